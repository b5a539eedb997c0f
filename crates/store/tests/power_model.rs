//! Random appends, cleanings, stops, kills and power losses at any write, also in the middle of a recovery, against a model that
//! knows what must be left: what was acknowledged, a prefix of what was sent, each offset once, each key once.
#![allow(clippy::unwrap_used)]

mod common;
mod disk;

use std::{collections::BTreeMap, fs, time::SystemTime};

use common::{LOG_FILE, T0, all, config, dispatched, host, message, names, open, until};
use disk::Disk;
use ferromq_protocol::{
    batch::{self, BatchMessage},
    names::topics,
};
use ferromq_store::{
    FlushMode, GetStatus, Hooks, KeyQuery, Progress, PutBatch, PutStatus, Store, StoreConfig,
};
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Put {
        topic: usize,
        queue: i32,
        len: usize,
    },
    Batch {
        queue: i32,
        count: usize,
        len: usize,
    },
    Delayed {
        len: usize,
    },
    /// Waits until everything is on the disk.
    Flush,
    /// The kernel writes back what it likes.
    WriteBack,
    /// The oldest files expire.
    Clean {
        files: usize,
    },
    Restart,
    /// The process goes, the kernel stays.
    Kill,
    /// Power goes so many writes from now; then again so many writes into the recovery.
    Power {
        after: u64,
        again: u64,
        seed: u64,
    },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let again = prop_oneof![3 => Just(u64::MAX), 2 => 0..30u64];
    let op = prop_oneof![
        30 => (0..2usize, 0..2, 1..9_000usize).prop_map(|(topic, queue, len)| Op::Put { topic, queue, len }),
        6 => (0..2, 1..9usize, 1..900usize).prop_map(|(queue, count, len)| Op::Batch { queue, count, len }),
        4 => (1..3_000usize).prop_map(|len| Op::Delayed { len }),
        6 => Just(Op::Flush),
        6 => Just(Op::WriteBack),
        2 => (1..3usize).prop_map(|files| Op::Clean { files }),
        1 => Just(Op::Restart),
        1 => Just(Op::Kill),
        4 => (0..60u64, again, any::<u64>()).prop_map(|(after, again, seed)| Op::Power { after, again, seed }),
    ];
    (any::<bool>(), prop::collection::vec(op, 20..90)).prop_map(|(restart, mut ops)| {
        if restart {
            ops.push(Op::Restart);
        }
        ops
    })
}

#[derive(Debug, Clone)]
struct Stored {
    queue: (String, i32),
    offset: i64,
    physical: i64,
    end: i64,
    body: Vec<u8>,
    key: String,
}

/// What was sent since the beginning, and what of it may be gone.
struct Model {
    base: StoreConfig,
    stored: Vec<Stored>,
    /// Everything below is acknowledged.
    safe: i64,
    serial: i64,
}

impl Model {
    fn config(&self, disk: &Disk) -> StoreConfig {
        StoreConfig {
            root: disk.path(),
            ..self.base.clone()
        }
    }

    fn next(&mut self, len: usize) -> (String, Vec<u8>) {
        self.serial += 1;
        self.base.clock.set(T0 + self.serial * 450);
        let serial = self.serial;
        let body = (0..len).map(|i| (i as i64 * 31 + serial) as u8 | 1).collect();
        (format!("k{serial}"), body)
    }

    fn note(&mut self, queue: (&str, i32), offset: i64, physical: i64, end: i64, body: Vec<u8>, key: String) {
        let queue = (queue.0.to_owned(), queue.1);
        let before = self.stored.iter().rev().find(|s| s.queue == queue);
        if let Some(before) = before {
            assert_eq!(
                offset,
                before.offset + 1,
                "offsets follow each other in {queue:?}"
            );
        }
        self.stored.push(Stored {
            queue,
            offset,
            physical,
            end,
            body,
            key,
        });
    }

    /// What is left after a loss is a prefix, with all that is safe.
    fn cut(&mut self, store: &Store) {
        let figures = store.figures();
        let end = figures.log_max;
        assert!(
            end >= self.safe,
            "acknowledged up to {}, and the log ends at {end}",
            self.safe
        );
        self.stored.retain(|s| s.end <= end);
        let last = self.stored.last().map_or(0, |s| s.end);
        assert!(
            end == last || end == (last as u64).next_multiple_of(LOG_FILE) as i64 || figures.log_min == end,
            "the log ends at {end}, the last message at {last}"
        );
    }

    fn check(&self, store: &Store) {
        dispatched(store);
        let log_min = store.figures().log_min;
        let mut queues: BTreeMap<(String, i32), Vec<&Stored>> = BTreeMap::new();
        for stored in self.stored.iter().filter(|s| s.physical >= log_min) {
            queues.entry(stored.queue.clone()).or_default().push(stored);
        }
        for ((topic, queue), expected) in queues {
            assert_eq!(
                store.min_offset(&topic, queue),
                expected[0].offset,
                "{topic} {queue}"
            );
            let end = expected[expected.len() - 1].offset + 1;
            assert_eq!(store.max_offset(&topic, queue), end, "{topic} {queue}");
            let found = all(store, &topic, queue);
            assert_eq!(found.len(), expected.len(), "{topic} {queue}");
            for (found, expected) in found.iter().zip(&expected) {
                assert!(*found == expected.body, "{topic} {queue} {}", expected.offset);
            }
            let beyond = common::get(store, &topic, queue, end, 1).status;
            assert_eq!(beyond, GetStatus::OffsetOverflowOne, "{topic} {queue}");
        }
        for stored in self
            .stored
            .iter()
            .rev()
            .filter(|s| s.physical >= log_min)
            .step_by(3)
        {
            let query = KeyQuery {
                topic: &stored.queue.0,
                key: &stored.key,
                max_messages: 5,
                begin: 0,
                end: i64::MAX,
            };
            let found = store.query(&query);
            let found: Vec<i64> = found
                .records
                .iter()
                .map(|r| common::parse(r).physical_offset)
                .collect();
            assert_eq!(found, [stored.physical], "{}", stored.key);
        }
    }

    /// Opens what a power loss left, losing power again during the recovery if it takes more writes than that.
    fn recover(&mut self, mut disk: Disk, again: u64, seed: u64) -> (Disk, Store) {
        if again < u64::MAX {
            disk.lose_power_at(disk.changes() + again, seed);
            let opened = Store::open(self.config(&disk), &Progress::new(), Hooks::default());
            if let Ok(store) = opened {
                store.start().unwrap();
                dispatched(&store);
            }
            disk = Disk::with(&disk.power_loss(seed ^ 1));
        }
        let store = open(self.config(&disk));
        self.cut(&store);
        self.check(&store);
        (disk, store)
    }
}

/// Appends what the operation says. An acknowledgement counts if power was there all the time.
fn append(model: &mut Model, store: &Store, disk: &Disk, op: &Op) {
    let put = match op {
        Op::Put { topic, queue, len } => {
            let (key, body) = model.next(*len);
            let topic = format!("t{topic}");
            let put = store
                .put(message(&topic, *queue, &body, &format!("KEYS\u{1}{key}")))
                .unwrap();
            let end = put.physical_offset + put.size as i64;
            model.note(
                (&topic, *queue),
                put.queue_offset,
                put.physical_offset,
                end,
                body,
                key,
            );
            put
        }
        Op::Delayed { len } => {
            let (key, body) = model.next(*len);
            let properties = format!("KEYS\u{1}{key}\u{2}DELAY\u{1}18");
            let put = store.put(message("t0", 0, &body, &properties)).unwrap();
            let end = put.physical_offset + put.size as i64;
            model.note(
                (topics::SCHEDULE, 17),
                put.queue_offset,
                put.physical_offset,
                end,
                body,
                key,
            );
            put
        }
        Op::Batch { queue, count, len } => {
            let members: Vec<(String, Vec<u8>)> = (0..*count).map(|_| model.next(*len)).collect();
            let properties: Vec<String> = members.iter().map(|(key, _)| format!("KEYS\u{1}{key}")).collect();
            let mut encoded = Vec::new();
            let each = members
                .iter()
                .zip(&properties)
                .map(|((_, body), properties)| BatchMessage {
                    flag: 0,
                    body,
                    properties: properties.as_bytes(),
                });
            batch::encode(each, &mut encoded);
            let put = store
                .put_batch(PutBatch {
                    topic: "batches",
                    queue_id: *queue,
                    sys_flag: 0,
                    born_timestamp: T0,
                    born_host: host(),
                    reconsume_times: 0,
                    body: &encoded,
                    properties: "",
                    wait_store_ok: true,
                })
                .unwrap();
            let last = put.physical_offset + put.size as i64;
            let ends: Vec<i64> = put.message_ids[1..].iter().copied().chain([last]).collect();
            for (n, (key, body)) in members.into_iter().enumerate() {
                let (offset, physical) = (put.queue_offset + n as i64, put.message_ids[n]);
                model.note(("batches", *queue), offset, physical, ends[n], body, key);
            }
            put
        }
        _ => return,
    };
    let end = put.physical_offset + put.size as i64;
    let status = put.ack.wait();
    if !disk.lost_power() {
        assert_eq!(status, PutStatus::Ok);
        if model.base.flush_mode == FlushMode::Sync {
            model.safe = end;
        }
    }
}

fn flush(model: &mut Model, store: &Store, disk: &Disk) {
    let max = store.figures().log_max;
    until("the flush", || {
        store.figures().log_flushed >= max || disk.lost_power()
    });
    if !disk.lost_power() {
        model.safe = model.safe.max(max);
    }
}

/// The oldest files go, if the newest is none of them.
fn clean(store: &Store, disk: &Disk, files: usize) {
    let dir = disk.path().join("commitlog");
    let max = store.figures().log_max as u64;
    dispatched(store);
    let old: Vec<String> = names(&dir)
        .into_iter()
        .take(files)
        .filter(|n| n.parse::<u64>().unwrap() + LOG_FILE < max)
        .collect();
    let Some(last) = old.last() else { return };
    let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(T0 as u64 / 1_000 - 100 * 3_600);
    let end = (last.parse::<u64>().unwrap() + LOG_FILE) as i64;
    // A page that is written back only now makes its file young again.
    until("old files to go", || {
        for name in &old {
            fs::File::options()
                .write(true)
                .open(dir.join(name))
                .and_then(|f| f.set_modified(long_ago))
                .ok();
        }
        store.delete_expired_files();
        store.figures().log_min >= end || disk.lost_power()
    });
}

fn run(sync: bool, ops: &[Op]) {
    let Some(mut disk) = Disk::new() else { return };
    let mut model = Model {
        base: StoreConfig {
            flush_mode: if sync { FlushMode::Sync } else { FlushMode::Async },
            flush_commit_log_thorough_interval: 30,
            flush_consume_queue_thorough_interval: 30,
            ..config(&disk.path())
        },
        stored: Vec::new(),
        safe: 0,
        serial: 0,
    };
    let mut store = open(model.config(&disk));
    let mut power = None;
    for op in ops {
        match op {
            Op::Put { .. } | Op::Batch { .. } | Op::Delayed { .. } => append(&mut model, &store, &disk, op),
            Op::Flush => flush(&mut model, &store, &disk),
            Op::WriteBack => disk.write_back(),
            Op::Clean { files } => clean(&store, &disk, *files),
            Op::Restart => {
                let report = store.shutdown().unwrap();
                if !disk.lost_power() {
                    assert!(report.clean);
                    model.safe = store.figures().log_max;
                    store = open(model.config(&disk));
                    model.check(&store);
                }
            }
            Op::Kill => {
                drop(store);
                store = open(model.config(&disk));
                if !disk.lost_power() {
                    model.check(&store);
                }
            }
            Op::Power { after, again, seed } => {
                if power.is_none() {
                    disk.lose_power_at(disk.changes() + after, *seed);
                    power = Some((*again, *seed));
                }
            }
        }
        if disk.lost_power()
            && let Some((again, seed)) = power.take()
        {
            let image = disk.power_loss(seed);
            drop(store);
            (disk, store) = model.recover(Disk::with(&image), again, seed);
        }
    }
    let image = disk.power_loss(1);
    drop(store);
    let (disk, store) = model.recover(Disk::with(&image), u64::MAX, 1);
    assert!(store.shutdown().unwrap().clean);
    let store = open(model.config(&disk));
    model.check(&store);
    store.shutdown().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::cases(24), failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_was_acknowledged_survives_whatever_happens(sync in any::<bool>(), ops in ops()) {
        run(sync, &ops);
    }
}
