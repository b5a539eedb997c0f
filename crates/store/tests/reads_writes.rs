//! Appending and reading: offsets, statuses, limits, files' ends, times and keys.
#![allow(clippy::unwrap_used)]

mod common;

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use common::{LOG_FILE, T0, all, config, dispatched, get, message, messages, open, put, until};
use ferromq_protocol::{batch, sysflag};
use ferromq_store::{
    Arrival, ArrivalListener, BrokerRole, Clock, Dispatched, Dispatcher, FlushMode, GetRequest, GetStatus,
    Hooks, KeyQuery, MessageFilter, OpenError, Progress, PutBatch, PutError, PutStatus, Store, StoreConfig,
    WriteRefusal,
};
use parking_lot::Mutex;

fn body(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + n) as u8).collect()
}

#[test]
fn messages_come_back_in_order_over_file_ends_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let mut expected = vec![Vec::new(); 3];
    for round in 0..3 {
        let store = open(config(dir.path()));
        for n in 0..100 {
            let queue = n % 3;
            let body = body(round * 100 + n, 10 + n * 31 % 2_000);
            let appended = put(&store, "t", queue as i32, &body);
            assert_eq!(appended.queue_offset, expected[queue].len() as i64);
            assert_eq!(appended.ack.ready(), Some(PutStatus::Ok));
            expected[queue].push(body);
        }
        dispatched(&store);
        for (queue, expected) in expected.iter().enumerate() {
            assert!(all(&store, "t", queue as i32) == *expected);
        }
        assert!(store.shutdown().unwrap().clean);
    }
    assert!(common::names(&dir.path().join("commitlog")).len() > 2);
    for name in common::names(&dir.path().join("commitlog")) {
        assert_eq!(
            fs::metadata(dir.path().join("commitlog").join(name))
                .unwrap()
                .len(),
            LOG_FILE
        );
    }
}

#[test]
fn every_status_says_where_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config(dir.path()));
    let status = |topic, offset| {
        let result = get(&store, topic, 0, offset, 32);
        (result.status, result.next_offset)
    };
    assert_eq!(status("none", 0), (GetStatus::NoMessageInQueue, 0));
    assert_eq!(status("none", 7), (GetStatus::NoMessageInQueue, 0));
    for n in 0..5 {
        put(&store, "t", 0, &[n]);
    }
    dispatched(&store);
    assert_eq!(status("t", -1), (GetStatus::OffsetTooSmall, 0));
    assert_eq!(status("t", 5), (GetStatus::OffsetOverflowOne, 5));
    assert_eq!(status("t", 6), (GetStatus::OffsetOverflowBadly, 5));
    assert_eq!(status("t", 2), (GetStatus::Found, 5));
    let result = get(&store, "t", 0, 1, 2);
    assert_eq!(
        (result.min_offset, result.max_offset, result.next_offset),
        (0, 5, 3)
    );
    assert_eq!(messages(&result), [(1, vec![1]), (2, vec![2])]);
    assert_eq!(result.chunks.len(), 1, "adjacent records share a slice");
    store.shutdown().unwrap();
    assert!(
        store
            .get(
                &GetRequest {
                    topic: "t",
                    queue_id: 0,
                    offset: 0,
                    max_messages: 1
                },
                &Tag(0)
            )
            .is_err()
    );
}

struct Tag(i64);

impl MessageFilter for Tag {
    fn by_queue(&self, tags_code: i64) -> bool {
        tags_code == self.0
    }
}

struct Longer(usize);

impl MessageFilter for Longer {
    fn by_queue(&self, _: i64) -> bool {
        true
    }

    fn by_record(&self, record: &[u8]) -> bool {
        common::parse(record).body.len() > self.0
    }
}

#[test]
fn filters_move_the_offset_past_what_they_refuse() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config(dir.path()));
    for n in 0..12 {
        let tag = if n % 3 == 0 {
            "TAGS\u{1}TagA"
        } else {
            "TAGS\u{1}TagB\u{2}"
        };
        store.put(message("t", 0, &vec![0; n], tag)).unwrap();
    }
    dispatched(&store);
    let request = GetRequest {
        topic: "t",
        queue_id: 0,
        offset: 0,
        max_messages: 32,
    };
    let result = store.get(&request, &Tag(2_598_919)).unwrap();
    let offsets: Vec<_> = messages(&result).iter().map(|m| m.0).collect();
    assert_eq!((result.status, result.next_offset), (GetStatus::Found, 12));
    assert_eq!(offsets, [0, 3, 6, 9]);
    let result = store.get(&request, &Tag(1)).unwrap();
    assert_eq!(
        (result.status, result.next_offset, result.count),
        (GetStatus::NoMatchedMessage, 12, 0)
    );
    let result = store.get(&request, &Longer(9)).unwrap();
    assert_eq!(messages(&result).len(), 2);
    store.shutdown().unwrap();
}

#[test]
fn one_answer_has_a_limit() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        max_transfer_count_in_memory: 5,
        max_transfer_bytes_in_memory: 4_000,
        max_transfer_count_on_disk: 2,
        ..config(dir.path())
    };
    let store = open(config.clone());
    for _ in 0..10 {
        put(&store, "small", 0, b"x");
        put(&store, "large", 0, &[1; 1_500]);
        put(&store, "huge", 0, &[1; 5_000]);
    }
    dispatched(&store);
    assert_eq!(get(&store, "small", 0, 0, 3).count, 3);
    assert_eq!(get(&store, "small", 0, 0, 100).count, 5);
    assert_eq!(get(&store, "large", 0, 0, 100).count, 2);
    let huge = get(&store, "huge", 0, 4, 100);
    assert_eq!(
        (huge.count, huge.next_offset, huge.suggest_slave),
        (1, 5, false),
        "the first always fits"
    );
    assert!(store.is_hot("small", 0, 0));
    store.shutdown().unwrap();
    let store = open(StoreConfig {
        access_message_in_memory_max_ratio: 0,
        ..config
    });
    let cold = get(&store, "small", 0, 0, 100);
    assert_eq!((cold.count, cold.suggest_slave), (2, true));
    assert!(!store.is_hot("small", 0, 0));
    store.shutdown().unwrap();
}

#[test]
fn slices_outlive_files_and_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config(dir.path()));
    let physical = put(&store, "t", 0, b"keep me").physical_offset;
    let bytes = store.look_up(physical).unwrap();
    assert!(store.look_up(physical + 1).is_none());
    assert!(store.look_up(-1).is_none());
    assert!(store.look_up(i64::MAX).is_none());
    store.shutdown().unwrap();
    drop(store);
    drop(dir);
    assert_eq!(common::parse(&bytes).body, b"keep me");
}

fn encode_batch(messages: &[(&[u8], &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    batch::encode(
        messages.iter().map(|(body, properties)| batch::BatchMessage {
            flag: 0,
            body,
            properties: properties.as_bytes(),
        }),
        &mut out,
    );
    out
}

fn a_batch<'a>(body: &'a [u8], properties: &'a str) -> PutBatch<'a> {
    PutBatch {
        topic: "t",
        queue_id: 1,
        sys_flag: 0,
        born_timestamp: T0,
        born_host: common::host(),
        reconsume_times: 0,
        body,
        properties,
        wait_store_ok: true,
    }
}

#[test]
fn a_batch_stays_together() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config(dir.path()));
    put(&store, "t", 1, &vec![0; 30_000]);
    put(&store, "t", 1, &vec![0; 30_000]);
    let payload = [7; 1_000];
    let encoded = encode_batch(&[(payload.as_slice(), "A\u{1}1"); 8]);
    let appended = store.put_batch(a_batch(&encoded, "B\u{1}2")).unwrap();
    assert_eq!(
        appended.physical_offset, LOG_FILE as i64,
        "it begins in the next file"
    );
    assert_eq!(appended.queue_offset, 2);
    assert_eq!(appended.message_ids.len(), 8);
    for (n, physical) in appended.message_ids.iter().enumerate() {
        let bytes = store.look_up(*physical).unwrap();
        let record = common::parse(&bytes);
        assert_eq!(record.queue_offset, 2 + n as i64);
        assert_eq!(record.properties, b"A\x011\x02B\x012");
    }
    dispatched(&store);
    assert_eq!(store.max_offset("t", 1), 10);
    for (bad, properties) in [
        (encode_batch(&[]), ""),
        (encoded[..50].to_vec(), ""),
        (encode_batch(&[(b"x", "DELAY\u{1}1")]), ""),
    ] {
        assert!(matches!(
            store.put_batch(a_batch(&bad, properties)),
            Err(PutError::Illegal(_))
        ));
    }
    assert!(matches!(
        store.put_batch(a_batch(&encoded, "DELAY\u{1}2")),
        Err(PutError::Illegal(_))
    ));
    let transaction = PutBatch {
        sys_flag: sysflag::TRANSACTION_PREPARED,
        ..a_batch(&encoded, "")
    };
    assert!(matches!(store.put_batch(transaction), Err(PutError::Illegal(_))));
    assert_eq!(store.figures().puts.failed, 5);
    assert_eq!(store.figures().puts.messages, 10);
    store.shutdown().unwrap();
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config(dir.path()));
    let illegal = |m: ferromq_store::PutMessage<'_>| matches!(store.put(m), Err(PutError::Illegal(_)));
    assert!(illegal(message("", 0, b"x", "")));
    assert!(illegal(message(&"t".repeat(128), 0, b"x", "")));
    assert!(illegal(message("../up", 0, b"x", "")));
    assert!(illegal(message("t", -1, b"x", "")));
    assert!(illegal(message("t", 0, &vec![0; (32 << 10) + 1], "")));
    assert!(illegal(message("t", 0, b"x", &"p".repeat(32_768))));
    let wide = "\u{4e2d}".repeat(11_000);
    assert!(matches!(
        store.put(message("t", 0, b"x", &wide)),
        Err(PutError::PropertiesTooLong(33_000))
    ));
    assert_eq!(store.figures().log_max, 0);
    store
        .put(message(&"t".repeat(127), 0, b"x", &"p".repeat(32_767)))
        .unwrap();
    store.shutdown().unwrap();
    assert!(matches!(
        store.put(message("t", 0, b"x", "")),
        Err(PutError::NotWritable(WriteRefusal::ShutDown))
    ));
}

#[test]
fn half_messages_are_in_the_log_and_in_no_queue() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config(dir.path()));
    for kind in [sysflag::TRANSACTION_PREPARED, sysflag::TRANSACTION_ROLLBACK] {
        let appended = store
            .put(ferromq_store::PutMessage {
                sys_flag: kind,
                ..message("t", 0, b"h", "")
            })
            .unwrap();
        assert_eq!(appended.queue_offset, 0);
        assert!(store.look_up(appended.physical_offset).is_some());
    }
    let commit = ferromq_store::PutMessage {
        sys_flag: sysflag::TRANSACTION_COMMIT,
        ..message("t", 0, b"c", "")
    };
    assert_eq!(store.put(commit).unwrap().queue_offset, 0);
    dispatched(&store);
    assert_eq!(all(&store, "t", 0), [b"c"]);
    store.shutdown().unwrap();
}

#[test]
fn v6_hosts_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        store_host: "[2001:db8::1]:10911".parse().unwrap(),
        ..config(dir.path())
    };
    let store = open(config.clone());
    let born = "[2001:db8::2]:4711".parse().unwrap();
    let put = store
        .put(ferromq_store::PutMessage {
            born_host: born,
            ..message("t", 0, b"x", "")
        })
        .unwrap();
    let bytes = store.look_up(put.physical_offset).unwrap();
    let record = common::parse(&bytes);
    assert_eq!(
        (record.born_host, record.store_host, record.store_timestamp),
        (born, config.store_host, T0)
    );
    assert_eq!(record.sys_flag, sysflag::BORN_HOST_V6 | sysflag::STORE_HOST_V6);
    assert_eq!(put.size, 91 + 24 + 2);
    store.shutdown().unwrap();
}

#[test]
fn times_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    for time in [100, 200, 200, 200, 300, 400] {
        config.clock.set(T0 + time);
        put(&store, "t", 0, &[0; 100]);
    }
    for n in 0..100 {
        config.clock.set(T0 + 10_000 + n * 10);
        put(&store, "long", 0, &[0; 1_000]);
    }
    dispatched(&store);
    let at = |time| store.offset_by_time("t", 0, T0 + time);
    assert_eq!([at(0), at(100), at(149), at(150), at(151)], [0, 0, 0, 0, 1]);
    assert_eq!(
        [at(200), at(260), at(300), at(399), at(400), at(9_999)],
        [1, 4, 4, 5, 5, 5]
    );
    assert_eq!(store.offset_by_time("long", 0, T0 + 10_500), 50);
    assert_eq!(store.offset_by_time("none", 0, T0), 0);
    assert_eq!(store.earliest_store_time("t", 0), Some(T0 + 100));
    assert_eq!(store.store_time("t", 0, 4), Some(T0 + 300));
    assert_eq!(store.store_time("t", 0, 6), None);
    assert_eq!(store.figures().earliest_store_time, T0 + 100);
    store.shutdown().unwrap();
}

#[test]
fn keys_are_found_and_compared() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    // "Aa" and "BB" have one Java hash.
    for n in 0..60 {
        config.clock.set(T0 + n * 1_000);
        let keys = format!(
            "UNIQ_KEY\u{1}U{n}\u{2}KEYS\u{1}{} all",
            if n % 2 == 0 { "Aa" } else { "BB" }
        );
        store.put(message("t", 0, &[n as u8], &keys)).unwrap();
    }
    dispatched(&store);
    let find = |key, max_messages, begin, end| {
        let found = store.query(&KeyQuery {
            topic: "t",
            key,
            max_messages,
            begin: T0 + begin,
            end: T0 + end,
        });
        found
            .records
            .iter()
            .map(|r| i64::from(common::parse(r).body[0]))
            .collect::<Vec<_>>()
    };
    assert_eq!(find("Aa", 64, 0, 100_000), (0..60).step_by(2).collect::<Vec<_>>());
    assert_eq!(
        find("BB", 3, 0, 100_000),
        [55, 57, 59],
        "the newest, oldest first"
    );
    assert_eq!(find("U17", 64, 0, 100_000), [17]);
    assert_eq!(find("all", 64, 10_000, 12_000), [10, 11, 12]);
    assert_eq!(find("none", 64, 0, 100_000), Vec::<i64>::new());
    let last = store.query(&KeyQuery {
        topic: "t",
        key: "x",
        max_messages: 1,
        begin: 0,
        end: 1,
    });
    assert_eq!(last.last_update_timestamp, T0 + 59_000);
    assert!(common::names(&config.index_dir()).len() >= 4);
    store.shutdown().unwrap();
}

#[derive(Default)]
struct Heard {
    arrivals: Mutex<Vec<(String, i32, i64, i64)>>,
    dispatched: AtomicUsize,
}

impl ArrivalListener for Heard {
    fn arrived(&self, a: &Arrival<'_>) {
        self.arrivals
            .lock()
            .push((a.topic.to_owned(), a.queue_id, a.next_offset, a.tags_code));
    }
}

impl Dispatcher for Heard {
    fn dispatch(&self, record: &Dispatched<'_>) -> std::io::Result<()> {
        assert_eq!(
            common::parse(record.record).physical_offset,
            record.physical_offset
        );
        self.dispatched.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn listeners_hear_of_each_message_once_it_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let heard = Arc::new(Heard::default());
    let hooks = Hooks {
        arrival: heard.clone(),
        dispatchers: vec![heard.clone()],
        ..Hooks::default()
    };
    let store = Store::open(config(dir.path()), &Progress::new(), hooks).unwrap();
    store.start().unwrap();
    store.put(message("t", 3, b"x", "TAGS\u{1}TagA")).unwrap();
    until("the arrival", || heard.arrivals.lock().len() == 1);
    assert_eq!(store.max_offset("t", 3), 1);
    assert_eq!(heard.arrivals.lock()[0], ("t".to_owned(), 3, 1, 2_598_919));
    assert_eq!(heard.dispatched.load(Ordering::Relaxed), 1);
    store.shutdown().unwrap();
}

#[test]
fn sync_appends_are_acknowledged_by_few_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(StoreConfig {
        flush_mode: FlushMode::Sync,
        ..config(dir.path())
    });
    let threads: Vec<_> = (0..8)
        .map(|t| {
            let store = store.clone();
            std::thread::spawn(move || {
                for n in 0..40 {
                    let appended = put(&store, "t", t, &[n; 200]);
                    let end = appended.physical_offset + appended.size as i64;
                    assert_eq!(appended.ack.wait(), PutStatus::Ok);
                    assert!(store.figures().log_flushed >= end, "acknowledged means flushed");
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let figures = store.figures();
    assert_eq!(figures.puts.messages, 320);
    assert!(
        figures.puts.flushes <= 330,
        "at most one an append, and one a file's end"
    );
    let hurried = store
        .put(ferromq_store::PutMessage {
            wait_store_ok: false,
            ..message("t", 0, b"x", "")
        })
        .unwrap();
    assert_eq!(hurried.ack.ready(), Some(PutStatus::Ok));
    store.shutdown().unwrap();
}

#[test]
fn roles() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(StoreConfig {
        role: BrokerRole::Slave,
        ..config(dir.path())
    });
    assert!(matches!(
        store.put(message("t", 0, b"x", "")),
        Err(PutError::NotWritable(WriteRefusal::Slave))
    ));
    store.shutdown().unwrap();
    let store = open(StoreConfig {
        role: BrokerRole::SyncMaster,
        ..config(dir.path())
    });
    assert_eq!(put(&store, "t", 0, b"x").ack.wait(), PutStatus::SlaveNotAvailable);
    store.shutdown().unwrap();
}

#[test]
fn one_store_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let first = open(config(dir.path()));
    let second = Store::open(config(dir.path()), &Progress::new(), Hooks::default());
    let error = second.unwrap_err();
    assert!(matches!(error, OpenError::Locked { .. }));
    assert!(error.to_string().contains("in use"));
    assert!(first.start().is_err());
    first.shutdown().unwrap();
    open(config(dir.path())).shutdown().unwrap();
}

#[test]
fn impossible_settings_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    for bad in [
        StoreConfig {
            delete_when: "25".to_owned(),
            ..config(dir.path())
        },
        StoreConfig {
            delete_when_time_zone: "Mars/Olympus".to_owned(),
            ..config(dir.path())
        },
        StoreConfig {
            commit_log_file_size: 1 << 31,
            ..config(dir.path())
        },
        StoreConfig {
            max_hash_slot_num: 0,
            ..config(dir.path())
        },
    ] {
        let error = Store::open(bad, &Progress::new(), Hooks::default()).unwrap_err();
        assert!(matches!(error, OpenError::Config(_)), "{error}");
    }
    let store = open(config(dir.path()));
    put(&store, "t", 0, b"x");
    store.shutdown().unwrap();
    let other = StoreConfig {
        commit_log_file_size: LOG_FILE / 2,
        ..config(dir.path())
    };
    let error = Store::open(other, &Progress::new(), Hooks::default()).unwrap_err();
    assert!(matches!(error, OpenError::FileLength { .. }), "{error}");
}

#[test]
fn deleted_topics_lose_their_queues_and_start_again_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    for n in 0..30 {
        put(&store, "gone", n % 2, b"old");
        put(&store, "stays", 0, b"s");
    }
    store.put(message("stays", 0, b"later", "DELAY\u{1}18")).unwrap();
    let removed = store.delete_topics(&|topic| topic == "stays");
    assert_eq!(removed, ["gone"]);
    assert!(!config.consume_queue_dir().join("gone").exists());
    assert_eq!(
        (store.max_offset("gone", 0), store.max_offset("stays", 0)),
        (0, 30)
    );
    assert_eq!(store.max_offset("SCHEDULE_TOPIC_XXXX", 17), 1);
    assert_eq!(put(&store, "gone", 0, b"new").queue_offset, 0);
    dispatched(&store);
    assert_eq!(all(&store, "gone", 0), [b"new"]);
    // A crash now replays the old records as well: the new queue must win.
    let copy = tempfile::tempdir().unwrap();
    common::copy_dir(dir.path(), copy.path());
    store.shutdown().unwrap();
    let store = open(StoreConfig {
        root: copy.path().to_owned(),
        clock: Clock::manual(T0),
        ..config
    });
    assert_eq!(all(&store, "gone", 0), [b"new"]);
    assert_eq!(put(&store, "gone", 0, b"next").queue_offset, 1);
    store.shutdown().unwrap();
}

#[test]
fn a_log_file_may_be_as_long_as_java_can_count() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(dir.path());
    config.commit_log_file_size = i32::MAX as u64;
    let store = open(config.clone());
    put(&store, "T", 0, b"in a long file");
    dispatched(&store);
    assert_eq!(
        fs::metadata(config.commit_log_dir().join(format!("{:020}", 0)))
            .unwrap()
            .len(),
        2_147_483_647
    );
    store.shutdown().unwrap();
    drop(store);
    assert_eq!(all(&open(config), "T", 0), [b"in a long file".to_vec()]);
}
