//! Situations in which stores of this kind failed in the field.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    time::{SystemTime, UNIX_EPOCH},
};

use common::{LOG_FILE, T0, all, config, copy_dir, dispatched, get, message, names, open, put, until};
use ferromq_store::{Clock, DelayLevels, StoreConfig};

/// The last file of a queue has seven bytes of a unit and then zeros, is all zeros, or is empty: the store opens, and the queue
/// is what it was, after a stop in order and after a kill.
#[test]
fn a_last_queue_file_that_is_cut_or_empty_is_filled_from_the_log() {
    for killed in [false, true] {
        for damage in ["seven bytes", "zeros", "empty", "nine bytes in all"] {
            let dir = tempfile::tempdir().unwrap();
            let live = config(dir.path());
            let store = open(live.clone());
            let sent: Vec<Vec<u8>> = (0..50u8).map(|n| vec![n; 300]).collect();
            for body in &sent {
                put(&store, "t", 0, body);
            }
            dispatched(&store);
            let copy = tempfile::tempdir().unwrap();
            if !killed {
                store.shutdown().unwrap();
            }
            copy_dir(dir.path(), copy.path());
            drop(store);
            let broken = StoreConfig {
                root: copy.path().to_owned(),
                ..live
            };
            let queue = broken.consume_queue_dir().join("t/0");
            fs::create_dir_all(&queue).unwrap();
            // Units 40 to 49 are in the third file, if that was written already.
            let last = queue.join(format!("{:020}", 800));
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&last)
                .unwrap();
            file.set_len(400).unwrap();
            match damage {
                "seven bytes" => file.write_all_at(&[0; 400 - 67], 67).unwrap(),
                "zeros" => file.write_all_at(&[0; 400], 0).unwrap(),
                "empty" => file.set_len(0).unwrap(),
                _ => file.set_len(9).unwrap(),
            }
            let store = open(broken);
            dispatched(&store);
            assert_eq!(store.max_offset("t", 0), 50, "{damage}, killed: {killed}");
            assert!(all(&store, "t", 0) == sent, "{damage}, killed: {killed}");
            assert_eq!(put(&store, "t", 0, b"on").queue_offset, 50);
            store.shutdown().unwrap();
        }
    }
}

/// Readers that never finish hold what they were lent, and nothing else: files that expire go all the same.
#[test]
fn expired_files_go_while_their_slices_are_held() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64;
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        clock: Clock::manual(now),
        ..config(dir.path())
    };
    let store = open(config.clone());
    for n in 0..120u8 {
        put(&store, "t", 0, &vec![n; 3_000]);
    }
    dispatched(&store);
    let held: Vec<_> = (0..40).map(|offset| get(&store, "t", 0, offset, 8)).collect();
    config.clock.set(now + 73 * 3_600_000);
    let newest = store.figures().log_max / LOG_FILE as i64 * LOG_FILE as i64;
    until("old files to go", || {
        store.delete_expired_files();
        store.figures().log_min >= newest
    });
    until("their names to go", || {
        names(&config.commit_log_dir())
            .iter()
            .all(|n| n.parse::<i64>().unwrap() >= newest)
    });
    for (offset, read) in held.iter().enumerate() {
        let (_, body) = &common::messages(read)[0];
        assert!(*body == vec![offset as u8; 3_000]);
    }
    store.shutdown().unwrap();
}

/// Levels that are gone from the table with messages in them: those still come, at the time that they were given.
#[test]
fn a_shortened_delay_table_loses_no_message() {
    let dir = tempfile::tempdir().unwrap();
    let long = config(dir.path());
    let store = open(long.clone());
    store
        .put(message("late", 0, b"two hours", "DELAY\u{1}18"))
        .unwrap();
    store
        .put(message("late", 0, b"ten seconds", "DELAY\u{1}3"))
        .unwrap();
    dispatched(&store);
    store.shutdown().unwrap();
    let short = StoreConfig {
        delay_levels: DelayLevels::parse("1s 5s").unwrap(),
        ..long
    };
    let store = open(short.clone());
    short.clock.set(T0 + 3 * 3_600_000);
    until("both", || store.max_offset("late", 0) == 2);
    // A level above the table is its highest.
    store
        .put(message("late", 0, b"five seconds", "DELAY\u{1}18"))
        .unwrap();
    short.clock.set(T0 + 3 * 3_600_000 + 6_000);
    until("the third", || store.max_offset("late", 0) == 3);
    store.shutdown().unwrap();
}

/// A log directory elsewhere that isn't there yet is made, and counts as empty, not as full.
#[test]
fn an_absent_log_directory_is_made_and_not_full() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        root: dir.path().join("not/yet/there"),
        ..config(dir.path())
    };
    let store = open(config.clone());
    assert_eq!(put(&store, "t", 0, b"first").queue_offset, 0);
    assert_eq!(store.figures().flags, 0);
    assert!(fs::read_dir(config.commit_log_dir()).unwrap().count() > 0);
    store.shutdown().unwrap();
}
