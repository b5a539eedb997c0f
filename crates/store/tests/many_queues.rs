//! Many queues need few descriptors, few mappings and little memory.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fs;

use common::{all, config, dispatched, get, open, put};
use ferromq_store::GetStatus;

const QUEUES: usize = 5_000;

fn entries(dir: &str) -> usize {
    fs::read_dir(dir).unwrap().count()
}

fn mappings() -> usize {
    fs::read_to_string("/proc/self/maps").unwrap().lines().count()
}

#[test]
fn five_thousand_queues_take_no_descriptor_and_no_mapping_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.commit_log_file_size = 4 << 20;
    config.flush_interval_consume_queue = 60_000;
    let (fds, maps) = (entries("/proc/self/fd"), mappings());
    let few = |when: &str| {
        assert!(entries("/proc/self/fd") < fds + 600, "{when}");
        assert!(mappings() < maps + 100, "{when}");
    };
    let topic = |n: usize| format!("Topic{}", n / 8);
    let store = open(config.clone());
    for round in 0..2 {
        for n in 0..QUEUES {
            put(&store, &topic(n), (n % 8) as i32, &[round, n as u8]);
        }
        dispatched(&store);
        few("appending");
    }
    let check = |store: &ferromq_store::Store| {
        assert_eq!(store.figures().queues, QUEUES);
        for n in (0..QUEUES).step_by(7) {
            let expected: Vec<_> = (0..2).map(|round| vec![round, n as u8]).collect();
            assert_eq!(all(store, &topic(n), (n % 8) as i32), expected);
            assert_eq!(
                get(store, &topic(n), (n % 8) as i32, 2, 1).status,
                GetStatus::OffsetOverflowOne
            );
        }
        few("reading");
    };
    check(&store);
    store.shutdown().unwrap();
    drop(store);
    let store = open(config.clone());
    few("open after a stop");
    check(&store);
    drop(store);
    let store = open(config);
    few("open after a kill");
    check(&store);
    assert_eq!(put(&store, &topic(0), 0, b"on").queue_offset, 2);
}
