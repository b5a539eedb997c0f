//! What the store's tests share.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::{
    fs, io,
    net::SocketAddr,
    path::Path,
    time::{Duration, Instant},
};

use ferromq_protocol::record::{self, Check, Entry};
use ferromq_store::{
    Clock, GetRequest, GetResult, Hooks, NoFilter, Progress, Put, PutMessage, Store, StoreConfig,
};

pub const LOG_FILE: u64 = 64 << 10;
pub const T0: i64 = 1_700_000_000_000;

/// Small files, and a clock that stands still.
pub fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        root: root.to_owned(),
        commit_log_file_size: LOG_FILE,
        consume_queue_file_size: 400,
        max_hash_slot_num: 100,
        max_index_num: 50,
        max_message_size: 32 << 10,
        flush_interval_commit_log: 20,
        flush_interval_consume_queue: 20,
        delete_commit_log_files_interval: 1,
        delete_consume_queue_files_interval: 1,
        // The machine's disk is not what is tested.
        disk_max_used_space_ratio: 95,
        disk_space_clean_forcibly_ratio: 100,
        disk_space_warning_level_ratio: 100,
        delete_when: String::new(),
        clock: Clock::manual(T0),
        ..StoreConfig::default()
    }
}

pub fn open(config: StoreConfig) -> Store {
    let store = Store::open(config, &Progress::new(), Hooks::default()).unwrap();
    store.start().unwrap();
    store
}

pub fn host() -> SocketAddr {
    "10.1.2.3:54321".parse().unwrap()
}

pub fn message<'a>(topic: &'a str, queue_id: i32, body: &'a [u8], properties: &'a str) -> PutMessage<'a> {
    PutMessage {
        topic,
        queue_id,
        flag: 0,
        sys_flag: 0,
        born_timestamp: T0 - 5,
        born_host: host(),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties,
        wait_store_ok: true,
    }
}

pub fn put(store: &Store, topic: &str, queue_id: i32, body: &[u8]) -> Put {
    store.put(message(topic, queue_id, body, "")).unwrap()
}

/// Waits until `condition` holds; gives up after a minute.
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !condition() {
        assert!(Instant::now() < deadline, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub fn dispatched(store: &Store) {
    until("dispatch", || store.figures().dispatch_behind == 0);
}

pub fn get(store: &Store, topic: &str, queue_id: i32, offset: i64, max_messages: usize) -> GetResult {
    store
        .get(
            &GetRequest {
                topic,
                queue_id,
                offset,
                max_messages,
            },
            &NoFilter,
        )
        .unwrap()
}

/// Queue offset and body of each message that a read gave.
pub fn messages(result: &GetResult) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    for chunk in &result.chunks {
        for record in record::iter(chunk, Check::Crc) {
            let record = record.unwrap();
            found.push((record.queue_offset, record.body.to_vec()));
        }
    }
    assert_eq!(found.len(), result.count);
    assert_eq!(
        result.chunks.iter().map(bytes::Bytes::len).sum::<usize>(),
        result.bytes
    );
    found
}

/// Everything in a queue, with consecutive offsets.
pub fn all(store: &Store, topic: &str, queue_id: i32) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let first = store.min_offset(topic, queue_id);
    let mut offset = first;
    while offset < store.max_offset(topic, queue_id) {
        let result = get(store, topic, queue_id, offset, 100);
        for (at, body) in messages(&result) {
            assert_eq!(at, first + found.len() as i64, "{topic} {queue_id}");
            found.push(body);
        }
        assert!(result.next_offset > offset, "{:?}", result.status);
        offset = result.next_offset;
    }
    found
}

pub fn parse(bytes: &[u8]) -> record::Record<'_> {
    match record::parse(bytes, Check::Crc).unwrap() {
        Entry::Record(record) => record,
        Entry::Blank { .. } => panic!("a blank"),
    }
}

/// Copies a store as it is at this moment, as a crash would leave it.
pub fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let entries = match fs::read_dir(from) {
        // Gone between the look and the copy: a directory that was set aside.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        entries => entries.unwrap(),
    };
    for entry in entries {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        match entry.metadata() {
            Ok(m) if m.is_dir() => copy_dir(&path, &target),
            Ok(_) => match fs::copy(&path, &target) {
                // Gone between the look and the copy: a file that was written aside.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                copied => {
                    copied.unwrap();
                }
            },
            Err(e) => assert_eq!(e.kind(), io::ErrorKind::NotFound),
        }
    }
}

/// How many cases a model test tries: `PROPTEST_CASES`, or else `few`.
pub fn cases(few: u32) -> u32 {
    std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(few)
}

/// Files of a directory in order of their names.
pub fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}
