//! Extensions of queue units: written and synced before the units, read in their place, repaired and cleaned with them.
#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, sync::Arc};

use common::{T0, all, config, copy_dir, dispatched, get, message, messages, names, open, put, until};
use ferromq_protocol::java_hash;
use ferromq_store::{
    Clock, DelayLevels, Dispatched, FilterBits, GetRequest, GetStatus, Hooks, MessageFilter, Progress,
    QueueExtension, Store, StoreConfig,
};

/// One bit a body: its first byte.
struct FirstByte;

impl FilterBits for FirstByte {
    fn bits(&self, record: &Dispatched<'_>) -> Vec<u8> {
        match common::parse(record.record).body.first() {
            Some(0) | None => Vec::new(),
            Some(first) => vec![*first; 14],
        }
    }
}

/// By bits, or by tag.
struct Wanted {
    bits: u8,
    tag: Option<&'static str>,
}

impl MessageFilter for Wanted {
    fn by_queue(&self, tags_code: i64) -> bool {
        self.tag.is_none_or(|tag| tags_code == java_hash::tag_code(tag))
    }

    fn by_filter_bits(&self, store_timestamp: i64, bits: &[u8]) -> bool {
        store_timestamp == T0 && bits == [self.bits; 14]
    }
}

fn extended(root: &std::path::Path) -> StoreConfig {
    StoreConfig {
        enable_consume_queue_ext: true,
        consume_queue_ext_file_size: 4096,
        ..config(root)
    }
}

fn open_extended(config: StoreConfig) -> Store {
    let hooks = Hooks {
        filter_bits: Some(Arc::new(FirstByte)),
        ..Hooks::default()
    };
    let store = Store::open(config, &Progress::new(), hooks).unwrap();
    store.start().unwrap();
    store
}

/// Queue offsets of the messages that a filter takes.
fn taken(store: &Store, filter: &Wanted) -> Vec<i64> {
    let mut found = Vec::new();
    let mut offset = store.min_offset("t", 0);
    while offset < store.max_offset("t", 0) {
        let request = GetRequest {
            topic: "t",
            queue_id: 0,
            offset,
            max_messages: 32,
        };
        let result = store.get(&request, filter).unwrap();
        found.extend(messages(&result).into_iter().map(|(at, _)| at));
        offset = result.next_offset;
    }
    found
}

/// Those with an odd number that say nothing else by their bits.
fn odd(store: &Store) -> Vec<i64> {
    let wanted = Wanted {
        bits: 1,
        tag: Some("odd"),
    };
    taken(store, &wanted)
}

fn send(store: &Store, from: u8, to: u8) {
    for n in from..to {
        let tag = ["TAGS\u{1}even\u{2}", "TAGS\u{1}odd\u{2}"][usize::from(n % 2)];
        store.put(message("t", 0, &[n % 3, n], tag)).unwrap();
    }
    dispatched(store);
}

/// Whatever happened before, readers find by tag and by bits what they would find without extensions.
fn check(store: &Store, count: i64) {
    let of = |such: &dyn Fn(i64) -> bool| (0..count).filter(|n| such(*n)).collect::<Vec<_>>();
    let wanted = |bits, tag| taken(store, &Wanted { bits, tag });
    // Without bits a message passes: here those with a body of 0.
    assert_eq!(wanted(1, None), of(&|n| n % 3 < 2));
    assert_eq!(wanted(2, Some("odd")), of(&|n| n % 3 != 1 && n % 2 == 1));
    assert_eq!(all(store, "t", 0).len() as i64, count);
    let units = store.queue_units("t", 0, 0, usize::MAX).unwrap();
    assert_eq!(units.len() as i64, count);
    for (n, unit) in units.into_iter().enumerate() {
        assert!(
            unit.tags_code < i64::from(i32::MIN),
            "an address: {}",
            unit.tags_code
        );
        let first = (n % 3) as u8;
        let expected = QueueExtension {
            tags_code: java_hash::tag_code(["even", "odd"][n % 2]),
            store_timestamp: T0,
            filter_bits: if first == 0 { Vec::new() } else { vec![first; 14] },
        };
        assert_eq!(unit.extension, Some(expected), "{n}");
    }
}

#[test]
fn they_stand_for_tags_and_carry_filter_bits() {
    let dir = tempfile::tempdir().unwrap();
    let config = extended(dir.path());
    let store = open_extended(config.clone());
    send(&store, 0, 200);
    check(&store, 200);
    assert!(names(&config.consume_queue_ext_dir().join("t/0")).len() > 1);
    store.shutdown().unwrap();
    let store = open_extended(config.clone());
    check(&store, 200);
    send(&store, 200, 250);
    check(&store, 250);
    store.shutdown().unwrap();

    // Turned off: those that are there still count, new units have plain codes.
    let off = StoreConfig {
        enable_consume_queue_ext: false,
        ..config
    };
    let store = open(off);
    send(&store, 250, 251);
    assert_eq!(
        odd(&store),
        (0..251).filter(|n| n % 3 < 2 && n % 2 == 1).collect::<Vec<_>>()
    );
    let last = store.queue_units("t", 0, 250, 1).unwrap().remove(0);
    assert_eq!(
        (last.tags_code, last.extension),
        (java_hash::tag_code("even"), None)
    );
    store.delete_topics(&|_| false);
    assert!(!dir.path().join("consumequeue_ext/t").exists());
    store.shutdown().unwrap();
}

#[test]
fn a_crash_repeats_none_and_loses_none() {
    let dir = tempfile::tempdir().unwrap();
    let config = extended(dir.path());
    let store = open_extended(config.clone());
    send(&store, 0, 150);
    let copy = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), copy.path());
    store.shutdown().unwrap();
    let crashed = || extended(copy.path());
    let store = open_extended(crashed());
    check(&store, 150);
    send(&store, 150, 180);
    check(&store, 180);
    store.shutdown().unwrap();

    // All queues gone: they're made again from the log, extensions and all.
    fs::remove_dir_all(crashed().consume_queue_dir()).unwrap();
    fs::write(copy.path().join("abort"), b"").unwrap();
    let store = open_extended(crashed());
    check(&store, 180);
    store.shutdown().unwrap();

    // Extensions gone: no message is kept from anyone, and new ones don't stand in for the old.
    fs::remove_dir_all(crashed().consume_queue_ext_dir()).unwrap();
    let store = open_extended(crashed());
    assert_eq!(odd(&store), (0..180).collect::<Vec<_>>());
    send(&store, 180, 182);
    assert_eq!(odd(&store), (0..180).chain([181]).collect::<Vec<_>>());
    store.shutdown().unwrap();
}

#[test]
fn files_go_with_the_units_that_point_to_them() {
    let dir = tempfile::tempdir().unwrap();
    let real = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    let config = StoreConfig {
        clock: Clock::manual(real),
        ..extended(dir.path())
    };
    let store = open_extended(config.clone());
    for n in 0..300u32 {
        store
            .put(message(
                "t",
                0,
                &vec![1 + (n % 2) as u8; 3_000],
                "TAGS\u{1}a\u{2}",
            ))
            .unwrap();
    }
    dispatched(&store);
    let ext = config.consume_queue_ext_dir().join("t/0");
    assert!(names(&ext).len() > 2 && names(&ext)[0] == format!("{:020}", 0));
    config.clock.set(real + 73 * 3_600_000);
    until("all log files but the last to go", || {
        store.delete_expired_files();
        names(&config.commit_log_dir()).len() == 1
    });
    until("extension files to go", || names(&ext)[0] != format!("{:020}", 0));
    until("queues to follow", || {
        let min = store.min_offset("t", 0);
        min > 200 && get(&store, "t", 0, min, 1).status == GetStatus::Found
    });
    let (min, max) = (store.min_offset("t", 0), store.max_offset("t", 0));
    let units = store.queue_units("t", 0, min, usize::MAX).unwrap();
    assert_eq!(units.len() as i64, max - min);
    assert!(units.iter().all(|unit| unit.extension.is_some()));
    store.shutdown().unwrap();
}

#[test]
fn delayed_messages_keep_their_time() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        delay_levels: DelayLevels::parse("1s 10s").unwrap(),
        ..extended(dir.path())
    };
    let store = open(config.clone());
    store.put(message("t", 2, &[1], "DELAY\u{1}1\u{2}")).unwrap();
    store.put(message("t", 2, &[2], "DELAY\u{1}2\u{2}")).unwrap();
    dispatched(&store);
    config.clock.set(T0 + 999);
    put(&store, "other", 0, b"x");
    dispatched(&store);
    assert_eq!(store.delay_offsets().values().sum::<i64>(), 0);
    config.clock.set(T0 + 1_000);
    until("the first", || store.max_offset("t", 2) == 1);
    store.shutdown().unwrap();
    // Where its extension is gone a message is due by its store time.
    fs::remove_dir_all(config.consume_queue_ext_dir()).unwrap();
    let store = open(config.clone());
    config.clock.set(T0 + 9_999);
    put(&store, "other", 0, b"x");
    dispatched(&store);
    assert_eq!(store.max_offset("t", 2), 1);
    config.clock.set(T0 + 10_000);
    until("the second", || store.max_offset("t", 2) == 2);
    store.shutdown().unwrap();
}

#[test]
fn a_size_that_no_file_can_have_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        consume_queue_ext_file_size: 100,
        ..extended(dir.path())
    };
    let error = Store::open(config, &Progress::new(), Hooks::default()).unwrap_err();
    assert!(
        error.to_string().contains("mappedFileSizeConsumeQueueExt is 100"),
        "{error}"
    );
}
