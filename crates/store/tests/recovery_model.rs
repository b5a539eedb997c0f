//! Random appends, restarts, crashes and damage against a model that knows what must be left.
#![allow(clippy::unwrap_used)]

mod common;

use std::{collections::BTreeMap, fs, fs::OpenOptions, os::unix::fs::FileExt};

use common::{LOG_FILE, all, config, copy_dir, dispatched, get, message, names, open};
use ferromq_store::{GetStatus, KeyQuery, Store, StoreConfig};
use proptest::{prelude::*, sample::Index};

#[derive(Debug, Clone)]
enum Op {
    Put { topic: usize, queue: i32, len: usize },
    Restart,
    Crash(Damage),
}

#[derive(Debug, Clone)]
enum Damage {
    None,
    /// A record's body is lost, and everything behind it with it, in the last file.
    Log(Index),
    /// Units of a queue that no stop has synced read as zeros.
    Queue(Index, Index, u64),
    Index(Index),
    Checkpoint,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let damage = prop_oneof![
        Just(Damage::None),
        any::<Index>().prop_map(Damage::Log),
        (any::<Index>(), any::<Index>(), 1..8u64).prop_map(|(q, at, n)| Damage::Queue(q, at, n)),
        any::<Index>().prop_map(Damage::Index),
        Just(Damage::Checkpoint),
    ];
    let op = prop_oneof![
        40 => (0..3usize, 0..2, 1..6_000usize).prop_map(|(topic, queue, len)| Op::Put { topic, queue, len }),
        1 => Just(Op::Restart),
        2 => damage.prop_map(Op::Crash),
    ];
    prop::collection::vec(op, 1..160)
}

#[derive(Debug, Clone)]
struct Stored {
    queue: (usize, i32),
    offset: i64,
    physical: i64,
    end: i64,
    body: Vec<u8>,
    key: String,
}

#[derive(Debug, Default)]
struct Model {
    stored: Vec<Stored>,
    /// Units that an orderly stop has brought onto the disk.
    synced: BTreeMap<(usize, i32), usize>,
}

impl Model {
    fn count(&self, queue: (usize, i32)) -> usize {
        self.stored.iter().filter(|s| s.queue == queue).count()
    }

    fn check(&self, store: &Store) {
        let mut queues: BTreeMap<(usize, i32), Vec<&Stored>> = BTreeMap::new();
        for stored in &self.stored {
            queues.entry(stored.queue).or_default().push(stored);
        }
        for topic in 0..3 {
            for queue in 0..2 {
                let expected = queues.remove(&(topic, queue)).unwrap_or_default();
                let name = format!("t{topic}");
                assert_eq!(
                    store.max_offset(&name, queue),
                    expected.len() as i64,
                    "{name} {queue}"
                );
                assert_eq!(store.min_offset(&name, queue), 0);
                let found = all(store, &name, queue);
                for (n, (found, expected)) in found.iter().zip(&expected).enumerate() {
                    assert_eq!(expected.offset, n as i64);
                    assert!(*found == expected.body, "{name} {queue} {n}");
                }
                let beyond = get(store, &name, queue, expected.len() as i64, 1).status;
                assert!(matches!(
                    beyond,
                    GetStatus::OffsetOverflowOne | GetStatus::NoMessageInQueue
                ));
            }
        }
        let (max, end) = (store.figures().log_max, self.stored.last().map_or(0, |s| s.end));
        assert!(
            max == end || max == (end as u64).next_multiple_of(LOG_FILE) as i64,
            "{max}, {end}"
        );
        for stored in self.stored.iter().rev().take(12) {
            let query = KeyQuery {
                topic: &format!("t{}", stored.queue.0),
                key: &stored.key,
                max_messages: 5,
                begin: 0,
                end: i64::MAX,
            };
            let found = store.query(&query);
            assert_eq!(found.records.len(), 1, "{}", stored.key);
            assert_eq!(common::parse(&found.records[0]).physical_offset, stored.physical);
        }
    }
}

fn damage(config: &StoreConfig, what: &Damage, model: &mut Model) {
    let write = |path: std::path::PathBuf, at: u64, bytes: &[u8]| {
        OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .write_all_at(bytes, at)
            .unwrap();
    };
    match what {
        Damage::None => {}
        Damage::Log(which) => {
            // What was synced stays, so the damage is in the last file.
            let last_file = names(&config.commit_log_dir()).iter().rev().find_map(|n| {
                let base = n.parse::<i64>().unwrap();
                model.stored.iter().position(|s| s.physical >= base)
            });
            let Some(from) = last_file else { return };
            let first = from + which.index(model.stored.len() - from);
            let at = model.stored[first].physical as u64 + 88;
            let base = at / LOG_FILE * LOG_FILE;
            let path = config.commit_log_dir().join(format!("{base:020}"));
            write(path, at - base, &vec![0; (LOG_FILE - (at - base)) as usize]);
            model.stored.truncate(first);
            // The cut is made good on the disk.
            for q in (0..6).map(|n| (n / 2, (n % 2) as i32)) {
                let count = model.count(q);
                model.synced.entry(q).and_modify(|n| *n = count.min(*n));
            }
        }
        Damage::Queue(which, at, count) => {
            let unsynced: Vec<_> = (0..6)
                .map(|n| (n / 2, (n % 2) as i32))
                .filter_map(|q| {
                    let (from, to) = (model.synced.get(&q).copied().unwrap_or(0), model.count(q));
                    (from < to).then_some((q, from, to))
                })
                .collect();
            if unsynced.is_empty() {
                return;
            }
            let ((topic, queue), from, to) = unsynced[which.index(unsynced.len())];
            let unit = (from + at.index(to - from)) as u64;
            let base = unit * 20 / 400 * 400;
            let path = config
                .consume_queue_dir()
                .join(format!("t{topic}/{queue}/{base:020}"));
            // The last units may not have come to a file before the crash.
            if path.exists() {
                let most = (20 - unit % 20).min(*count);
                write(path, unit * 20 - base, &vec![0; (most * 20) as usize]);
            }
        }
        Damage::Index(which) => {
            let files = names(&config.index_dir());
            if !files.is_empty() {
                // What was synced stays; of the rest anything may be lost.
                let newest = files.len() - 1;
                let _ = which;
                fs::remove_file(config.index_dir().join(&files[newest])).unwrap();
            }
        }
        Damage::Checkpoint => {
            if config.root.join("checkpoint").exists() {
                fs::remove_file(config.root.join("checkpoint")).unwrap();
            }
        }
    }
}

fn run(ops: &[Op]) {
    let mut dir = tempfile::tempdir().unwrap();
    let base = config(dir.path());
    let at = |dir: &tempfile::TempDir| StoreConfig {
        root: dir.path().to_owned(),
        ..base.clone()
    };
    let mut store = open(at(&dir));
    let mut model = Model::default();
    let mut serial = 0;
    for op in ops {
        match op {
            Op::Put { topic, queue, len } => {
                serial += 1;
                base.clock.set(common::T0 + serial * 100);
                let body: Vec<u8> = (0..*len).map(|i| (i as i64 * 31 + serial) as u8 | 1).collect();
                let key = format!("k{serial}");
                let put = store
                    .put(message(
                        &format!("t{topic}"),
                        *queue,
                        &body,
                        &format!("KEYS\u{1}{key}"),
                    ))
                    .unwrap();
                let before = model
                    .stored
                    .iter()
                    .filter(|s| s.queue == (*topic, *queue))
                    .count();
                assert_eq!(put.queue_offset, before as i64, "offsets follow each other");
                model.stored.push(Stored {
                    queue: (*topic, *queue),
                    offset: put.queue_offset,
                    physical: put.physical_offset,
                    end: put.physical_offset + put.size as i64,
                    body,
                    key,
                });
            }
            Op::Restart => {
                assert!(store.shutdown().unwrap().clean);
                for q in (0..6).map(|n| (n / 2, (n % 2) as i32)) {
                    model.synced.insert(q, model.count(q));
                }
                store = open(at(&dir));
                model.check(&store);
            }
            Op::Crash(what) => {
                let copy = tempfile::tempdir().unwrap();
                copy_dir(dir.path(), copy.path());
                drop(store);
                dir = copy;
                damage(&at(&dir), what, &mut model);
                store = open(at(&dir));
                model.check(&store);
            }
        }
    }
    dispatched(&store);
    model.check(&store);
    assert!(store.shutdown().unwrap().clean);
    store = open(at(&dir));
    model.check(&store);
    store.shutdown().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: common::cases(12), failure_persistence: None, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn what_is_intact_is_kept(ops in ops()) {
        run(&ops);
    }
}
