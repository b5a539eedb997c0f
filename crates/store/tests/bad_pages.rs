//! Pages of the log that can't be read any more: errors for whoever wants them, and for nobody else.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::fs::File;

use common::{all, config, dispatched, get, message, messages, open, put};
use ferromq_store::{GetRequest, NoFilter, PutError, ReadError, WriteRefusal};

#[test]
fn a_log_file_that_is_cut_under_its_readers_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let config = config(dir.path());
    let store = open(config.clone());
    let puts: Vec<_> = (0..20).map(|n| put(&store, "T", 0, &[n; 2_000])).collect();
    put(&store, "other", 0, b"early enough to be whole").ack.wait();
    dispatched(&store);
    let log = config.commit_log_dir().join(format!("{:020}", 0));
    let cut = (puts[10].physical_offset as u64).next_multiple_of(4096);
    File::options()
        .write(true)
        .open(&log)
        .unwrap()
        .set_len(cut)
        .unwrap();

    let request = |offset| GetRequest {
        topic: "T",
        queue_id: 0,
        offset,
        max_messages: 32,
    };
    // What is before the damage is served, the damage is told, and nothing of it is served as a message.
    let before = get(&store, "T", 0, 0, 32);
    let found = messages(&before);
    assert!((10..=12).contains(&found.len()), "{}", found.len());
    let at = before.next_offset;
    assert_eq!(at, found.len() as i64);
    match store.get(&request(at), &NoFilter) {
        Err(ReadError::Io { path, source }) => {
            assert_eq!(path, log);
            assert_eq!(source.raw_os_error(), Some(5));
        }
        other => panic!("{other:?}"),
    }
    assert!(store.look_up(puts[9].physical_offset).is_some());
    assert!(store.look_up(puts[15].physical_offset).is_none());
    assert_eq!(store.store_time("T", 0, 15), None);

    // What would be written to no file is refused, and so is everything after it.
    let refused = store.put(message("T", 0, &[1; 2_000], ""));
    assert!(matches!(refused, Err(PutError::Unknown(_))), "{refused:?}");
    assert!(matches!(
        store.put(message("T", 0, b"x", "")),
        Err(PutError::NotWritable(WriteRefusal::FlushFailed))
    ));
    assert!(!store.shutdown().unwrap().clean);
    drop(store);

    // The next start keeps what is whole, and goes on behind it.
    let store = open(config);
    assert_eq!(all(&store, "T", 0).len(), found.len());
    assert_eq!(put(&store, "T", 0, b"on").queue_offset, at);
}
