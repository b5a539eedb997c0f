//! Further dispatchers: what they are shown, and how one that is behind catches up.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use common::{config, copy_dir, dispatched, put, until};
use ferromq_store::{Dispatched, Dispatcher, Hooks, Progress, Store, StoreConfig};
use parking_lot::Mutex;

#[derive(Default)]
struct Seen {
    offsets: Mutex<Vec<i64>>,
    has_until: AtomicI64,
    cut: AtomicI64,
    failing: AtomicBool,
}

impl Dispatcher for Seen {
    fn dispatch(&self, record: &Dispatched<'_>) -> io::Result<()> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(io::Error::other("not now"));
        }
        let mut offsets = self.offsets.lock();
        if offsets.last().is_none_or(|last| *last < record.physical_offset) {
            offsets.push(record.physical_offset);
        }
        Ok(())
    }

    fn resume_from(&self) -> Option<i64> {
        Some(self.has_until.load(Ordering::SeqCst)).filter(|from| *from >= 0)
    }

    fn cut(&self, log_end: i64) -> io::Result<()> {
        self.cut.store(log_end, Ordering::SeqCst);
        Ok(())
    }
}

fn open(config: &StoreConfig, has_until: i64) -> (Store, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    seen.has_until.store(has_until, Ordering::SeqCst);
    let hooks = Hooks {
        dispatchers: vec![seen.clone()],
        ..Hooks::default()
    };
    let store = Store::open(config.clone(), &Progress::new(), hooks).unwrap();
    store.start().unwrap();
    (store, seen)
}

#[test]
fn one_that_is_behind_is_shown_what_it_lacks_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (store, seen) = open(&config, -1);
    let starts: Vec<_> = (0..60)
        .map(|n| put(&store, "T", n % 3, &[7; 3_000]).physical_offset)
        .collect();
    dispatched(&store);
    assert_eq!(*seen.offsets.lock(), starts);
    let killed = tempfile::tempdir().unwrap();
    copy_dir(dir.path(), killed.path());
    store.shutdown().unwrap();
    drop(store);
    let crashed = StoreConfig {
        root: killed.path().to_owned(),
        ..config.clone()
    };
    for (config, how) in [(&config, "stopped"), (&crashed, "killed")] {
        for lacks_from in [0, 1, 30, 59, 60] {
            let has_until = starts.get(lacks_from).copied().unwrap_or(i64::MAX);
            let (store, seen) = open(config, has_until);
            let new = put(&store, "T", 0, b"new").physical_offset;
            dispatched(&store);
            let shown = seen.offsets.lock().clone();
            for start in starts[lacks_from.min(60)..].iter().chain([&new]) {
                assert!(shown.contains(start), "{how}, {lacks_from}: {start}");
            }
            assert_eq!(seen.cut.load(Ordering::SeqCst), new, "{how}: the end is told");
            if how == "stopped" {
                store.shutdown().unwrap();
            }
            drop(store);
        }
    }
}

#[test]
fn one_that_cannot_take_a_record_gets_it_again() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let (store, seen) = open(&config, 0);
    seen.failing.store(true, Ordering::SeqCst);
    let first = put(&store, "T", 0, b"1").physical_offset;
    let second = put(&store, "T", 0, b"2").physical_offset;
    // The queue waits for it, too.
    assert_eq!(store.max_offset("T", 0), 0);
    seen.failing.store(false, Ordering::SeqCst);
    until("the second try", || store.max_offset("T", 0) == 2);
    assert_eq!(*seen.offsets.lock(), [first, second]);
    assert!(fs::exists(dir.path().join("abort")).unwrap());
}
