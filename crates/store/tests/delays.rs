//! Delayed messages arrive when they are due: not before, not twice.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{T0, all, config, dispatched, message, open, put, until};
use ferromq_protocol::properties;
use ferromq_store::{Clock, DelayLevels, Store, StoreConfig};

fn delayed(store: &Store, n: u8, level: i32) {
    let text = format!("TAGS\u{1}x\u{2}DELAY\u{1}{level}");
    store.put(message("t", 2, &[n], &text)).unwrap();
}

#[test]
fn they_wait_for_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        delay_levels: DelayLevels::parse("1s 10s").unwrap(),
        ..config(dir.path())
    };
    let clock = config.clock.clone();
    let store = open(config);
    delayed(&store, 1, 2);
    delayed(&store, 2, 1);
    delayed(&store, 3, 9);
    put(&store, "t", 2, &[0]);
    dispatched(&store);
    assert_eq!(
        store.max_offset("SCHEDULE_TOPIC_XXXX", 1),
        2,
        "levels beyond the table count as its last"
    );
    let bodies = |n: usize| {
        until("delivery", || store.max_offset("t", 2) >= n as i64);
        dispatched(&store);
        all(&store, "t", 2)
    };
    assert_eq!(bodies(1), [[0]]);
    clock.set(T0 + 999);
    // Something else goes all the way through meanwhile, and nothing is delivered.
    put(&store, "other", 0, b"x");
    dispatched(&store);
    assert_eq!(store.delay_offsets().values().sum::<i64>(), 0);
    clock.set(T0 + 1_000);
    assert_eq!(bodies(2), [[0], [2]]);
    clock.set(T0 + 9_999);
    assert_eq!(bodies(2), [[0], [2]]);
    clock.set(T0 + 10_000);
    assert_eq!(bodies(4), [[0], [2], [1], [3]]);
    let result = common::get(&store, "t", 2, 2, 1);
    let record = common::parse(&result.chunks[0]);
    let text = record.properties_text();
    assert_eq!(properties::get(&text, "REAL_TOPIC"), Some("t"));
    assert_eq!(properties::get(&text, "REAL_QID"), Some("2"));
    assert_eq!(properties::get(&text, "DELAY"), Some("2"));
    assert_eq!(
        (record.store_timestamp, record.born_timestamp),
        (T0 + 10_000, T0 - 5)
    );
    store.shutdown().unwrap();
}

#[test]
fn a_clean_restart_repeats_and_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = StoreConfig {
        delay_levels: DelayLevels::parse("1s 5s").unwrap(),
        ..config(dir.path())
    };
    let mut sent = 0u8;
    for round in 0..4 {
        let store = open(config.clone());
        for _ in 0..20 {
            delayed(&store, sent, 1 + i32::from(sent % 2));
            sent += 1;
        }
        config.clock.set(T0 + (round + 1) * 1_000);
        if round % 2 == 1 {
            until("some delivery", || store.max_offset("t", 2) > 0);
        }
        store.shutdown().unwrap();
        let now = config.clock.now();
        config.clock = Clock::manual(now);
    }
    let store = open(config.clone());
    config.clock.set(T0 + 3_600_000);
    until("all deliveries", || store.max_offset("t", 2) >= i64::from(sent));
    until("the offsets", || {
        store.delay_offsets().values().sum::<i64>() == i64::from(sent)
    });
    dispatched(&store);
    let mut bodies: Vec<u8> = all(&store, "t", 2).into_iter().flatten().collect();
    bodies.sort_unstable();
    assert_eq!(bodies, (0..sent).collect::<Vec<_>>());
    store.shutdown().unwrap();
    let saved = fs::read_to_string(dir.path().join("config/delayOffset.json")).unwrap();
    let saved: serde_json::Value = serde_json::from_str(&saved).unwrap();
    assert_eq!(saved["offsetTable"]["1"], 40);
}

#[test]
fn recovery_keeps_their_times() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        delay_levels: DelayLevels::parse("1s 10s").unwrap(),
        ..config(dir.path())
    };
    let store = open(config.clone());
    delayed(&store, 1, 2);
    dispatched(&store);
    let copy = tempfile::tempdir().unwrap();
    common::copy_dir(dir.path(), copy.path());
    store.shutdown().unwrap();
    fs::remove_dir_all(copy.path().join("consumequeue")).unwrap();
    let clock = Clock::manual(T0 + 9_000);
    let store = open(StoreConfig {
        root: copy.path().to_owned(),
        clock: clock.clone(),
        ..config
    });
    put(&store, "t", 2, &[0]);
    dispatched(&store);
    assert_eq!(store.max_offset("t", 2), 1, "not before its time");
    clock.set(T0 + 10_000);
    until("delivery", || store.max_offset("t", 2) == 2);
    store.shutdown().unwrap();
}

#[test]
fn a_saved_offset_outside_the_queue_is_moved_in() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("config")).unwrap();
    fs::write(
        dir.path().join("config/delayOffset.json"),
        b"{\"offsetTable\":{1:99,\"2\":-3}}",
    )
    .unwrap();
    let config = StoreConfig {
        delay_levels: DelayLevels::parse("1s 2s").unwrap(),
        ..config(dir.path())
    };
    let store = open(config.clone());
    assert_eq!(store.delay_offsets().get(&1), Some(&99));
    delayed(&store, 1, 2);
    config.clock.set(T0 + 5_000);
    until("delivery", || store.max_offset("t", 2) == 1);
    store.shutdown().unwrap();
}
