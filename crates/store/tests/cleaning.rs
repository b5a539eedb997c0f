//! Old files go, and with them what pointed to them; a full disk refuses messages until there is room.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use common::{LOG_FILE, all, config, dispatched, get, message, names, open, put, until};
use ferromq_store::{Clock, GetStatus, KeyQuery, Put, PutError, Store, StoreConfig, WriteRefusal};

fn real_now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64
}

fn fill(store: &Store, count: i64) -> Vec<Put> {
    (0..count)
        .map(|n| {
            let text = format!("KEYS\u{1}k{n}");
            store
                .put(message("t", (n % 2) as i32, &vec![n as u8; 3_000], &text))
                .unwrap()
        })
        .collect()
}

#[test]
fn expired_files_go_with_their_queue_units_and_index() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        clock: Clock::manual(real_now()),
        ..config(dir.path())
    };
    let store = open(config.clone());
    put(&store, "old", 0, b"only in the first file");
    let puts = fill(&store, 200);
    dispatched(&store);
    let files = names(&config.commit_log_dir()).len();
    assert!(files > 9);
    // Nothing is old enough yet.
    store.delete_expired_files();
    config.clock.set(real_now() + 73 * 3_600_000);
    store.delete_expired_files();
    until("files to go", || store.figures().log_min > 0);
    until("all but the newest to go", || {
        store.delete_expired_files();
        store.figures().log_min >= (puts[199].physical_offset as u64 / LOG_FILE * LOG_FILE) as i64
    });
    let log_min = store.figures().log_min;
    until("queues to follow", || {
        store.min_offset("t", 0) > 0 && store.min_offset("t", 1) > 0
    });
    for queue in 0..2 {
        let first = puts
            .iter()
            .enumerate()
            .filter(|(n, p)| n % 2 == queue && p.physical_offset >= log_min);
        let first = first.map(|(_, p)| p.queue_offset).min().unwrap();
        until("the first offset", || {
            store.min_offset("t", queue as i32) == first
        });
        let small = get(&store, "t", queue as i32, 0, 1);
        assert_eq!(
            (small.status, small.next_offset),
            (GetStatus::OffsetTooSmall, first)
        );
        assert_eq!(all(&store, "t", queue as i32).len() as i64, 100 - first);
    }
    until("the queue without records", || store.min_offset("old", 0) == 1);
    assert_eq!(get(&store, "old", 0, 0, 1).status, GetStatus::OffsetTooSmall);
    assert!(store.look_up(0).is_none());
    let query = KeyQuery {
        topic: "t",
        key: "k0",
        max_messages: 9,
        begin: 0,
        end: i64::MAX,
    };
    assert!(store.query(&query).records.is_empty());
    until("the index to follow", || names(&config.index_dir()).len() <= 2);
    assert!(!names(&config.consume_queue_dir().join("t/0")).contains(&format!("{:020}", 0)));
    store.clean_expired_queues();
    assert!(!config.consume_queue_dir().join("old").exists());
    assert_eq!(store.max_offset("t", 0), 100);
    store.shutdown().unwrap();
    // What is left is a store.
    let store = open(config);
    assert_eq!(store.figures().log_min, log_min);
    assert_eq!(put(&store, "t", 0, b"on").queue_offset, 100);
    dispatched(&store);
    assert_eq!(all(&store, "t", 0).last().unwrap(), b"on");
    store.shutdown().unwrap();
}

#[test]
fn capacity_counts_and_a_full_store_refuses_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        store_capacity_bytes: 10 * LOG_FILE,
        disk_space_clean_forcibly_ratio: 85,
        disk_space_warning_level_ratio: 90,
        clean_file_forcibly_enable: false,
        message_index_enable: false,
        clock: Clock::manual(real_now()),
        ..config(dir.path())
    };
    let store = open(config.clone());
    // Nothing expires and nothing is forced: the store fills up.
    fill(&store, 190);
    dispatched(&store);
    store.delete_expired_files();
    until("the refusal", || store.writable() == Err(WriteRefusal::DiskFull));
    assert!(store.figures().log_disk_ratio > 0.9);
    assert!(matches!(
        store.put(message("t", 0, b"x", "")),
        Err(PutError::NotWritable(WriteRefusal::DiskFull))
    ));
    assert!(!all(&store, "t", 0).is_empty(), "reads go on");
    // Time passes, files expire, appends are taken again by themselves.
    config.clock.set(real_now() + 73 * 3_600_000);
    until("room", || {
        store.delete_expired_files();
        store.writable().is_ok()
    });
    put(&store, "t", 0, b"x");
    assert!(store.shutdown().unwrap().clean);
}

#[test]
fn a_store_that_stops_while_full_is_recovered() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        store_capacity_bytes: 4 * LOG_FILE,
        disk_space_warning_level_ratio: 50,
        clean_file_forcibly_enable: false,
        ..config(dir.path())
    };
    let store = open(config.clone());
    fill(&store, 80);
    dispatched(&store);
    store.delete_expired_files();
    until("the refusal", || store.writable() == Err(WriteRefusal::DiskFull));
    assert!(!store.shutdown().unwrap().clean);
    assert!(config.root.join("abort").exists());
    let store = open(StoreConfig {
        store_capacity_bytes: 0,
        disk_space_warning_level_ratio: 100,
        ..config
    });
    assert_eq!(store.max_offset("t", 0) + store.max_offset("t", 1), 80);
    store.shutdown().unwrap();
}

#[test]
fn forced_deletion_takes_young_files() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        store_capacity_bytes: 8 * LOG_FILE,
        disk_space_clean_forcibly_ratio: 60,
        disk_space_warning_level_ratio: 95,
        message_index_enable: false,
        clock: Clock::manual(real_now()),
        ..config(dir.path())
    };
    let store = open(config);
    fill(&store, 120);
    dispatched(&store);
    let before = store.figures().log_max;
    store.delete_expired_files();
    until("the oldest file to go", || store.figures().log_min > 0);
    assert_eq!(store.figures().log_max, before);
    until("enough room", || store.figures().log_disk_ratio <= 0.6);
    until("queues to follow", || {
        store.min_offset("t", 0) > 0 && store.earliest_store_time("t", 0).is_some()
    });
    assert!(
        store.figures().log_min <= 3 * LOG_FILE as i64,
        "no more than has to"
    );
    assert_eq!(
        all(&store, "t", 0).len() as i64,
        store.max_offset("t", 0) - store.min_offset("t", 0)
    );
    store.shutdown().unwrap();
}

#[test]
fn deletions_are_paced_and_a_stop_does_not_wait_for_them() {
    let dir = tempfile::tempdir().unwrap();
    let now = real_now();
    let config = StoreConfig {
        message_index_enable: false,
        delete_commit_log_files_interval: 3_600_000,
        clock: Clock::manual(now),
        ..config(dir.path())
    };
    let store = open(config.clone());
    fill(&store, 120);
    dispatched(&store);
    config.clock.set(now + 73 * 3_600_000);
    store.delete_expired_files();
    until("the oldest file to go", || store.figures().log_min > 0);
    // Without a pause the next ones would be gone long before these are stored.
    for _ in 0..20 {
        fill(&store, 10);
        dispatched(&store);
    }
    assert_eq!(store.figures().log_min, LOG_FILE as i64, "one at a time");
    assert!(store.shutdown().unwrap().clean);
}
