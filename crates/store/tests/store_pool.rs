//! Appends that go to memory first, and log files that are made present and locked.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::{sync::Arc, thread};

use common::{all, config, copy_dir, dispatched, message, open, put, until};
use ferromq_store::{BrokerRole, FlushMode, Hooks, OpenError, Progress, PutError, Store, StoreConfig};

fn pooled(mut config: StoreConfig) -> StoreConfig {
    config.transient_store_pool = true;
    config.commit_interval = 5;
    config.commit_thorough_interval = 5;
    config
}

/// The same, with nothing that copies the pool into the log by itself.
fn still(config: StoreConfig) -> StoreConfig {
    StoreConfig {
        commit_interval: 3_600_000,
        commit_thorough_interval: 3_600_000,
        commit_least_pages: 1_000_000,
        flush_interval_commit_log: 3_600_000,
        flush_commit_log_least_pages: 1_000_000,
        flush_commit_log_thorough_interval: 3_600_000,
        ..pooled(config)
    }
}

#[test]
fn what_goes_through_the_pool_is_the_same_log() {
    let dir = tempfile::tempdir().unwrap();
    let config = pooled(config(dir.path()));
    let store = Arc::new(open(config.clone()));
    let threads: Vec<_> = (0..4u8)
        .map(|t| {
            let store = store.clone();
            thread::spawn(move || {
                for n in 0..200u8 {
                    let put = put(&store, "T", i32::from(t), &[t, n, 0]);
                    assert_eq!(put.queue_offset, i64::from(n));
                    put.ack.wait();
                }
                // Records that leave less than a blank's room, and rolls.
                for n in 0..20 {
                    put(&store, "big", i32::from(t), &vec![t; 8_000 + n]);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let check = |store: &Store| {
        for t in 0..4u8 {
            let expected: Vec<_> = (0..200u8).map(|n| vec![t, n, 0]).collect();
            assert_eq!(all(store, "T", i32::from(t)), expected);
            let expected: Vec<_> = (0..20).map(|n| vec![t; 8_000 + n]).collect();
            assert_eq!(all(store, "big", i32::from(t)), expected);
        }
    };
    until("copies", || {
        store.max_offset("big", 3) == 20 && store.max_offset("T", 3) == 200
    });
    until("copies", || {
        (0..4).all(|t| store.max_offset("big", t) == 20 && store.max_offset("T", t) == 200)
    });
    check(&store);
    assert!(store.shutdown().unwrap().clean);
    drop(store);
    let store = open(config.clone());
    check(&store);
    // A stop takes along what wasn't copied yet.
    for n in 0..50u8 {
        put(&store, "last", 0, &[n]);
    }
    assert!(store.shutdown().unwrap().clean);
    drop(store);
    let store = open(config);
    assert_eq!(store.max_offset("last", 0), 50);
    assert_eq!(put(&store, "last", 0, b"x").queue_offset, 50);
}

#[test]
fn what_is_in_the_pool_only_is_not_readable_and_dies_with_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let config = still(config(dir.path()));
    let store = open(config.clone());
    let first = put(&store, "T", 0, b"in memory");
    assert_eq!(store.figures().log_max, 0);
    assert!(store.look_up(first.physical_offset).is_none());
    let crashed = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), crashed.path());
    let after = open(StoreConfig {
        root: crashed.path().to_owned(),
        ..config.clone()
    });
    assert_eq!(after.max_offset("T", 0), 0);
    drop(after);
    // Deleting topics waits for what is on its way.
    assert_eq!(store.delete_topics(&|_| true), Vec::<String>::new());
    put(&store, "T", 0, b"more");
    dispatched(&store);
    store.shutdown().unwrap();
    drop(store);
    assert_eq!(
        all(&open(config), "T", 0),
        [b"in memory".to_vec(), b"more".to_vec()]
    );
}

#[test]
fn a_full_pool_makes_appends_wait_or_refuses_them() {
    for fail_fast in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = pooled(config(dir.path()));
        config.transient_store_pool_size = 1;
        config.fail_fast_if_pool_is_full = fail_fast;
        config.commit_interval = 3_600_000;
        config.commit_thorough_interval = 3_600_000;
        config.commit_least_pages = 1_000_000;
        config.flush_interval_commit_log = 3_600_000;
        config.flush_commit_log_least_pages = 1_000_000;
        let store = open(config);
        let refused = (0..20).find_map(|n| {
            store
                .put(message("T", 0, &vec![n; 10_000], ""))
                .err()
                .map(|error| (n, error))
        });
        match refused {
            None => assert!(!fail_fast),
            Some((n, error)) => {
                assert!(fail_fast && n > 5, "{n} {error}");
                assert!(matches!(error, PutError::CreateFile(_)), "{error:?}");
            }
        }
    }
}

#[test]
fn a_pool_beyond_the_memory_stops_the_start_with_a_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = pooled(config(dir.path()));
    config.transient_store_pool_size = 1 << 40;
    let try_open = |config: &StoreConfig| Store::open(config.clone(), &Progress::new(), Hooks::default());
    match try_open(&config) {
        Err(OpenError::Config(why)) => assert!(why.contains("transientStorePoolSize"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Where there's no pool its size doesn't matter.
    config.flush_mode = FlushMode::Sync;
    assert!(try_open(&config).is_ok());
    config.flush_mode = FlushMode::Async;
    config.role = BrokerRole::Slave;
    assert!(try_open(&config).is_ok());
}

#[test]
fn warm_files_work_whatever_the_kernel_allows() {
    for (flush_mode, pages) in [(FlushMode::Async, 1), (FlushMode::Sync, 4), (FlushMode::Sync, 0)] {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.warm_log_files = true;
        config.flush_mode = flush_mode;
        config.warm_sync_pages = pages;
        let store = open(config);
        for n in 0..40 {
            put(&store, "T", 0, &vec![n; 8_000]).ack.wait();
        }
        dispatched(&store);
        assert_eq!(all(&store, "T", 0).len(), 40);
        assert!(store.shutdown().unwrap().clean);
    }
}

#[test]
fn a_stop_takes_what_only_the_pool_has_to_its_queue() {
    let dir = tempfile::tempdir().unwrap();
    let config = still(config(dir.path()));
    let store = open(config.clone());
    for n in 0..50u8 {
        put(&store, "last", 0, &[n]);
    }
    assert_eq!(store.max_offset("last", 0), 0);
    assert!(store.shutdown().unwrap().clean);
    assert_eq!(store.max_offset("last", 0), 50);
    drop(store);
    assert_eq!(all(&open(config), "last", 0).len(), 50);
}
