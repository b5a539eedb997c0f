//! Queues that were deleted in part, or hold nothing but units that stand for no message, are made whole from the log.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use common::{all, config, copy_dir, dispatched, open, put};
use ferromq_store::{Store, StoreConfig};

const QUEUES: usize = 3;

fn body(n: usize) -> Vec<u8> {
    format!("message {n} {}", "x".repeat(1_500)).into_bytes()
}

fn fill(store: &Store, from: usize, to: usize) {
    for n in from..to {
        put(store, "T", (n % QUEUES) as i32, &body(n));
    }
    dispatched(store);
}

fn check(store: &Store, to: usize) {
    for queue in 0..QUEUES {
        let expected: Vec<_> = (queue..to).step_by(QUEUES).map(body).collect();
        assert_eq!(store.min_offset("T", queue as i32), 0);
        assert_eq!(all(store, "T", queue as i32), expected, "queue {queue}");
    }
}

/// A store of 300 messages whose checkpoint lets recovery start late, as a kill leaves it.
fn killed() -> (tempfile::TempDir, StoreConfig) {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    // Queues and checkpoint are synced at each pass, so recovery starts at the last files.
    config.flush_consume_queue_thorough_interval = 1;
    let store = open(config.clone());
    for n in 0..6 {
        config.clock.set(common::T0 + n * 60_000);
        fill(&store, n as usize * 50, (n as usize + 1) * 50);
    }
    let late = common::T0 + 4 * 60_000;
    common::until("a checkpoint", || {
        let bytes = fs::read(dir.path().join("checkpoint")).unwrap_or_default();
        let time = |at: usize| {
            bytes
                .get(at..at + 8)
                .map_or(0, |b| i64::from_be_bytes(b.try_into().unwrap()))
        };
        time(0) > late && time(8) > late
    });
    let crashed = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), crashed.path());
    crashed.path().clone_into(&mut config.root);
    drop(store);
    (crashed, config)
}

fn queue_dir(root: &Path, queue: usize) -> PathBuf {
    root.join("consumequeue/T").join(queue.to_string())
}

#[test]
fn a_queue_that_was_deleted_gets_all_its_units_back() {
    let (dir, config) = killed();
    fs::remove_dir_all(queue_dir(dir.path(), 1)).unwrap();
    let store = open(config.clone());
    check(&store, 300);
    fill(&store, 300, 330);
    check(&store, 330);
    store.shutdown().unwrap();
    drop(store);
    check(&open(config), 330);
}

#[test]
fn a_queue_that_lost_its_last_files_gets_them_back() {
    let (dir, config) = killed();
    let names = common::names(&queue_dir(dir.path(), 2));
    for name in &names[1..] {
        fs::remove_file(queue_dir(dir.path(), 2).join(name)).unwrap();
    }
    let store = open(config);
    check(&store, 300);
    fill(&store, 300, 310);
    check(&store, 310);
}

#[test]
fn a_queue_of_units_for_no_message_holds_up_nobody() {
    let (dir, config) = killed();
    // Java fills a queue that starts late with such units; a crash may leave nothing else.
    let files = common::names(&queue_dir(dir.path(), 0));
    for name in &files[1..] {
        fs::remove_file(queue_dir(dir.path(), 0).join(name)).unwrap();
    }
    let file = fs::File::options()
        .write(true)
        .open(queue_dir(dir.path(), 0).join(&files[0]))
        .unwrap();
    let mut blank = [0; 20];
    blank[8..12].copy_from_slice(&i32::MAX.to_be_bytes());
    for at in (0..400).step_by(20) {
        file.write_all_at(&blank, at).unwrap();
    }
    let store = open(config);
    // The other queues are dispatched, and take more.
    for queue in 1..QUEUES {
        let expected: Vec<_> = (queue..300).step_by(QUEUES).map(body).collect();
        assert_eq!(all(&store, "T", queue as i32), expected);
    }
    assert_eq!(store.max_offset("T", 0), 100);
    fill(&store, 300, 303);
    assert_eq!(store.max_offset("T", 0), 101);
}

/// The header of a record carries no checksum. One damaged queue offset costs that message its place in the queue, and nothing
/// else: no other message, no more than a little room, and not the order of what comes next.
#[test]
fn a_damaged_queue_offset_costs_one_message_its_place() {
    for (victim, wrong) in [
        (0, 1 << 40),
        (0, 7),
        (60, i64::MAX / 20),
        (60, 1_000),
        (61, 22),
        (299, 1 << 33),
    ] {
        let (dir, config) = killed();
        // Recovery reads the whole log.
        fs::write(config.root.join("checkpoint"), [0; 4096]).unwrap();
        fs::remove_dir_all(config.root.join("consumequeue")).unwrap();
        let place = place_of(&config, victim);
        let log = config
            .commit_log_dir()
            .join(format!("{:020}", place / common::LOG_FILE * common::LOG_FILE));
        let file = fs::File::options().write(true).open(log).unwrap();
        file.write_all_at(&i64::to_be_bytes(wrong), place % common::LOG_FILE + 20)
            .unwrap();

        let store = open(config.clone());
        dispatched(&store);
        let case = format!("message {victim} says {wrong}");
        for queue in 0..QUEUES {
            let mut expected: Vec<_> = (queue..300).step_by(QUEUES).map(body).collect();
            if victim % QUEUES == queue {
                expected.remove(victim / QUEUES);
            }
            let found = bodies(&store, queue as i32);
            assert!(
                found == expected,
                "{case}: queue {queue} has {} of {}",
                found.len(),
                expected.len()
            );
            let end = store.max_offset("T", queue as i32);
            let lost_last = victim == 299 && victim % QUEUES == queue;
            assert_eq!(end, 100 - i64::from(lost_last), "{case}: queue {queue}");
            assert_eq!(put(&store, "T", queue as i32, b"next").queue_offset, end);
        }
        let room = size_of(&config.consume_queue_dir());
        assert!(room < 100_000, "{case}: queues take {room} bytes");
        assert!(store.shutdown().unwrap().clean);
        drop(dir);
    }
}

/// Log offset of message `n`.
fn place_of(config: &StoreConfig, n: usize) -> u64 {
    let mut places = Vec::new();
    ferromq_store::inspect::records(&config.root.clone().into(), None, &mut |record| {
        places.push(record.physical_offset as u64);
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    places[n]
}

/// Messages of a queue in their order, whatever lies between.
fn bodies(store: &Store, queue: i32) -> Vec<Vec<u8>> {
    let (mut at, mut found) = (store.min_offset("T", queue), Vec::new());
    while at < store.max_offset("T", queue) {
        let read = common::get(store, "T", queue, at, 32);
        found.extend(common::messages(&read).into_iter().map(|(_, body)| body));
        assert!(read.next_offset > at);
        at = read.next_offset;
    }
    found
}

fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let meta = entry.metadata().unwrap();
            if meta.is_dir() {
                size_of(&entry.path())
            } else {
                meta.len()
            }
        })
        .sum()
}
