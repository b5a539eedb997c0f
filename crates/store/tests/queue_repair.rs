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
