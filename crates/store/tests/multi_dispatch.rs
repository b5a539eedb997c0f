//! Messages that are in further queues than their own, and logs in several directories.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::{
    path::PathBuf,
    sync::{Arc, atomic::AtomicUsize, atomic::Ordering},
};

use common::{all, config, copy_dir, dispatched, get, message, messages, names, open, parse, put};
use ferromq_protocol::properties;
use ferromq_store::{Arrival, ArrivalListener, GetStatus, Hooks, Progress, PutError, Store, StoreConfig};

const LIST: &str = "TAGS\u{1}x\u{2}INNER_MULTI_DISPATCH\u{1}%LMQ%a,%LMQ%b,other";

fn multi(mut config: StoreConfig) -> StoreConfig {
    config.enable_multi_dispatch = true;
    config.enable_lmq = true;
    config
}

fn put_listed(store: &Store, n: usize) -> ferromq_store::Put {
    let body = format!("listed {n}");
    let list = if n.is_multiple_of(3) {
        LIST
    } else {
        "INNER_MULTI_DISPATCH\u{1}%LMQ%b"
    };
    store.put(message("T", 2, body.as_bytes(), list)).unwrap()
}

fn check(store: &Store, count: usize) {
    let bodies = |every: usize| -> Vec<Vec<u8>> {
        (0..count)
            .step_by(every)
            .map(|n| format!("listed {n}").into_bytes())
            .collect()
    };
    assert_eq!(store.max_offset("T", 2), count as i64);
    for (topic, queue, every) in [("%LMQ%a", 0, 3), ("%LMQ%b", 0, 1), ("other", 2, 3)] {
        let mut found = Vec::new();
        while (found.len() as i64) < store.max_offset(topic, queue) {
            let result = get(store, topic, queue, found.len() as i64, 32);
            assert_eq!(result.status, GetStatus::Found, "{topic}");
            // The records carry the offset of their own queue.
            let read = messages(&result);
            assert_eq!(result.next_offset, (found.len() + read.len()) as i64);
            found.extend(read.into_iter().map(|(_, body)| body));
        }
        assert_eq!(found, bodies(every), "{topic}");
    }
    assert_eq!(store.max_offset("other", 0), 0, "only light queues have number 0");
}

#[derive(Default)]
struct Heard(AtomicUsize);

impl ArrivalListener for Heard {
    fn arrived(&self, arrival: &Arrival<'_>) {
        if arrival.topic == "%LMQ%b" {
            assert_eq!(arrival.queue_id, 0);
            let before = self.0.fetch_add(1, Ordering::SeqCst);
            assert_eq!(arrival.next_offset, before as i64 + 1);
        }
    }
}

#[test]
fn a_message_is_in_every_queue_that_it_lists() {
    let dir = tempfile::tempdir().unwrap();
    let config = multi(config(dir.path()));
    let heard = Arc::new(Heard::default());
    let hooks = Hooks {
        arrival: heard.clone(),
        ..Hooks::default()
    };
    let store = Store::open(config.clone(), &Progress::new(), hooks).unwrap();
    store.start().unwrap();
    let puts: Vec<_> = (0..100).map(|n| put_listed(&store, n)).collect();
    dispatched(&store);
    check(&store, 100);
    assert_eq!(heard.0.load(Ordering::SeqCst), 100);
    let bytes = store.look_up(puts[3].physical_offset).unwrap();
    let record = parse(&bytes);
    let text = record.properties_text();
    assert_eq!(properties::get(&text, "INNER_MULTI_QUEUE_OFFSET"), Some("1,3,1"));
    assert_eq!(properties::get(&text, "TAGS"), Some("x"));
    assert_eq!(record.queue_offset, 3);

    // After a stop in order, and after a kill, the counters of all queues go on.
    store.shutdown().unwrap();
    drop(store);
    let store = open(config.clone());
    for n in 100..150 {
        put_listed(&store, n);
    }
    dispatched(&store);
    check(&store, 150);
    let root = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), root.path());
    let killed = StoreConfig {
        root: root.path().to_owned(),
        ..config.clone()
    };
    let again = open(killed.clone());
    check(&again, 150);
    for n in 150..160 {
        put_listed(&again, n);
    }
    dispatched(&again);
    check(&again, 160);
    drop(again);

    // Light queues that are gone are made again from the log.
    std::fs::remove_dir_all(root.path().join("consumequeue/%LMQ%b")).unwrap();
    std::fs::remove_dir_all(root.path().join("consumequeue/other")).unwrap();
    let again = open(killed);
    check(&again, 160);
    assert!(
        store
            .delete_topics(&|_| false)
            .iter()
            .all(|t| !t.starts_with("%LMQ%"))
    );
    assert_eq!(store.max_offset("%LMQ%b", 0), 150);
}

#[test]
fn lists_count_only_where_they_are_enabled_and_light_queues_up_to_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(config(dir.path()));
    put_listed(&store, 0);
    dispatched(&store);
    assert_eq!((store.max_offset("T", 2), store.max_offset("%LMQ%a", 0)), (1, 0));
    drop(store);

    let dir = tempfile::tempdir().unwrap();
    let mut config = multi(config(dir.path()));
    config.max_lmq_queues = 2;
    let store = open(config);
    put_listed(&store, 0);
    let more = store.put(message("T", 0, b"x", "INNER_MULTI_DISPATCH\u{1}%LMQ%c"));
    assert!(matches!(more, Err(PutError::TooManyLightQueues(2))), "{more:?}");
    put_listed(&store, 1);
    let bad = store.put(message("T", 0, b"x", "INNER_MULTI_DISPATCH\u{1}../up"));
    assert!(matches!(bad, Err(PutError::Illegal(_))), "{bad:?}");
}

#[test]
fn log_files_go_to_several_directories_in_turn() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let joined = |names: &[&str]| {
        let all: Vec<_> = names.iter().map(|n| path(n).display().to_string()).collect();
        Some(PathBuf::from(all.join(",")))
    };
    let mut config = config(&path("store"));
    config.commit_log_path = joined(&["disk-b", "disk-a"]);
    let fill = |store: &Store, from: usize, to: usize| {
        for n in from..to {
            put(store, "T", 0, &[n as u8; 5_000]);
        }
        dispatched(store);
    };
    let check = |store: &Store, to: usize| {
        let expected: Vec<_> = (0..to).map(|n| vec![n as u8; 5_000]).collect();
        assert_eq!(all(store, "T", 0), expected);
    };
    let store = open(config.clone());
    fill(&store, 0, 50);
    store.shutdown().unwrap();
    drop(store);
    let (a, b) = (names(&path("disk-a")), names(&path("disk-b")));
    assert_eq!(
        a,
        [
            "00000000000000000000",
            "00000000000000131072",
            "00000000000000262144"
        ]
    );
    assert_eq!(b, ["00000000000000065536", "00000000000000196608"]);
    assert!(!path("store/commitlog").exists());

    // One of them becomes read only: what it has is served, and it gets nothing new.
    config.read_only_commit_log_paths = joined(&["disk-b"]);
    let store = open(config.clone());
    check(&store, 50);
    fill(&store, 50, 100);
    drop(store);
    assert_eq!(names(&path("disk-b")), b);
    let store = open(config);
    check(&store, 100);
}
