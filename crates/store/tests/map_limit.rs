//! A process that may make no more mappings: what needs one fails with an error and is tried again later; what is there is served.
//! A test of its own, since the limit is the whole process's.
#![allow(clippy::unwrap_used)]

mod common;

use common::{all, config, dispatched, message, names, open, put, until};
use ferromq_store::{KeyQuery, PutError, Store};
use memmap2::{Mmap, MmapMut};

/// Mappings that the kernel does not join, since every other one may not be written.
fn take_all_mappings() -> Vec<(Option<MmapMut>, Option<Mmap>)> {
    // Grown first: nothing may need memory later.
    let mut taken = Vec::with_capacity(1 << 17);
    loop {
        let Ok(map) = MmapMut::map_anon(4096) else {
            return taken;
        };
        taken.push(if taken.len() % 2 == 0 {
            (Some(map), None)
        } else {
            match map.make_read_only() {
                Ok(map) => (None, Some(map)),
                Err(_) => return taken,
            }
        });
        assert!(taken.len() < taken.capacity(), "there is no limit to reach");
    }
}

fn found(store: &Store, n: usize) -> usize {
    let query = KeyQuery {
        topic: "t",
        key: &format!("k{n}"),
        max_messages: 9,
        begin: 0,
        end: i64::MAX,
    };
    store.query(&query).records.len()
}

#[test]
fn without_mappings_sends_fail_and_come_back_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    let send = |n: usize| {
        let text = format!("KEYS\u{1}k{n}");
        store.put(message("t", 0, &[n as u8; 1_000], &text))
    };
    let mut stored = 0;
    while stored < 60 {
        send(stored).unwrap();
        stored += 1;
    }
    dispatched(&store);
    let taken = take_all_mappings();
    // The file in use takes what it has room for, and the one made ahead; then there is none.
    let refused = (0..1_000).find_map(|_| match send(stored) {
        Ok(_) => {
            stored += 1;
            None
        }
        Err(error) => Some(error),
    });
    let refused = refused.expect("a log without end");
    assert!(matches!(refused, PutError::CreateFile(_)), "{refused:?}");
    // What is stored is readable, in its queue and as a message; new queues need no mapping.
    dispatched(&store);
    assert_eq!(all(&store, "t", 0).len(), stored);
    let files = names(&config.index_dir()).len();
    for _ in 0..20 {
        assert!(send(stored).is_err());
    }
    assert!(
        names(&config.index_dir()).len() <= files,
        "an index file for each try"
    );
    drop(taken);

    // Nobody has to restart anything.
    until("sends to be taken again", || send(stored).is_ok());
    stored += 1;
    put(&store, "other", 0, b"a new queue");
    for _ in 0..200 {
        send(stored).unwrap();
        stored += 1;
    }
    dispatched(&store);
    assert_eq!(all(&store, "t", 0).len(), stored);
    until("the index to have all of them", || {
        (0..stored).all(|n| found(&store, n) == 1)
    });
    assert!(store.shutdown().unwrap().clean);
    drop(store);
    let store = open(config);
    assert_eq!(all(&store, "t", 0).len(), stored);
    assert!((0..stored).all(|n| found(&store, n) == 1));
}
