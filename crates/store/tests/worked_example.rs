//! The bytes of one message in the log, its queue and the index, as the Java broker reads and writes them.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;

use common::{config, dispatched, message, open};
use ferromq_protocol::message_id;
use ferromq_store::{Clock, StoreConfig};

const RECORD: [u8; 131] = [
    0x00, 0x00, 0x00, 0x83, 0xda, 0xa3, 0x20, 0xa7, 0x69, 0xc8, 0x65, 0xed, 0x00, 0x00, 0x00, 0x02, //
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, //
    0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x01, 0x7f, 0x25, 0x67, 0x48, 0x7b, //
    0x0a, 0x01, 0x02, 0x03, 0x00, 0x00, 0xd4, 0x31, 0x00, 0x00, 0x01, 0x7f, 0x25, 0x67, 0x49, 0xc8, //
    0x0a, 0x01, 0x02, 0x04, 0x00, 0x00, 0x2a, 0x9f, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, //
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x0e, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x20, 0x52, 0x6f, //
    0x63, 0x6b, 0x65, 0x74, 0x4d, 0x51, 0x09, 0x54, 0x6f, 0x70, 0x69, 0x63, 0x54, 0x65, 0x73, 0x74, //
    0x00, 0x11, 0x4b, 0x45, 0x59, 0x53, 0x01, 0x6b, 0x31, 0x02, 0x54, 0x41, 0x47, 0x53, 0x01, 0x54, //
    0x61, 0x67, 0x41,
];
const UNIT: [u8; 20] = [
    0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x83, 0, 0, 0, 0, 0, 0x27, 0xa8, 7,
];
const TIME: [u8; 8] = [0, 0, 1, 0x7f, 0x25, 0x67, 0x49, 0xc8];

#[test]
fn every_byte_is_where_java_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        clock: Clock::manual(1_645_600_000_456),
        store_host: "10.1.2.4:10911".parse().unwrap(),
        consume_queue_file_size: 6_000_000,
        ..config(dir.path())
    };
    let store = open(config.clone());
    // Three messages, after which 100 bytes are left in the first file.
    let body = [
        vec![1; 20_000],
        vec![2; 20_000],
        vec![3; 65_536 - 100 - 40_000 - 300],
    ];
    for body in &body {
        store.put(message("TopicTest", 2, body, "")).unwrap();
    }
    let mut hello = message("TopicTest", 2, b"Hello RocketMQ", "KEYS\u{1}k1\u{2}TAGS\u{1}TagA");
    hello.born_timestamp = 1_645_600_000_123;
    let put = store.put(hello).unwrap();
    assert_eq!(
        (put.queue_offset, put.physical_offset, put.size),
        (3, 65_536, 131)
    );
    assert_eq!(
        message_id::offset_id(config.store_host, put.physical_offset),
        "0A01020400002A9F0000000000010000"
    );
    dispatched(&store);
    assert_eq!(store.look_up(65_536).unwrap(), RECORD.as_slice());
    assert!(store.shutdown().unwrap().clean);

    let first = fs::read(config.commit_log_dir().join("00000000000000000000")).unwrap();
    assert_eq!(first[65_436..65_444], [0, 0, 0, 0x64, 0xcb, 0xd4, 0x31, 0x94]);
    let second = fs::read(config.commit_log_dir().join("00000000000000065536")).unwrap();
    assert_eq!(second.len(), 65_536);
    assert_eq!(second[..131], RECORD);
    assert!(second[131..].iter().all(|b| *b == 0));

    let queue = fs::read(
        config
            .consume_queue_dir()
            .join("TopicTest/2/00000000000000000000"),
    )
    .unwrap();
    assert_eq!(queue.len(), 6_000_000);
    assert_eq!(queue[60..80], UNIT);

    let index = fs::read_dir(config.index_dir()).unwrap().next().unwrap().unwrap();
    let index = fs::read(index.path()).unwrap();
    let mut header = Vec::new();
    header.extend([TIME, TIME].concat());
    header.extend([0, 0, 0, 0, 0, 1, 0, 0].repeat(2));
    header.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(index[..40], header);
    // Hash 2746024 in 100 slots: slot 24.
    assert_eq!(index[40 + 4 * 24..40 + 4 * 25], [0, 0, 0, 1]);
    let entry = [
        0, 0x29, 0xe6, 0xa8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    assert_eq!(index[40 + 400 + 20..40 + 400 + 40], entry);

    let checkpoint = fs::read(config.root.join("checkpoint")).unwrap();
    assert_eq!(checkpoint.len(), 4_096);
    assert_eq!((&checkpoint[..8], &checkpoint[8..16]), (&TIME[..], &TIME[..]));
}

#[test]
fn a_delayed_message_waits_under_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let config = StoreConfig {
        clock: Clock::manual(1_645_600_000_456),
        ..config(dir.path())
    };
    let store = open(config.clone());
    store
        .put(message("TopicTest", 2, b"later", "DELAY\u{1}3\u{2}TAGS\u{1}TagA"))
        .unwrap();
    dispatched(&store);
    store.shutdown().unwrap();
    let queue = fs::read(
        config
            .consume_queue_dir()
            .join("SCHEDULE_TOPIC_XXXX/2/00000000000000000000"),
    )
    .unwrap();
    assert_eq!(queue[12..20], [0, 0, 1, 0x7f, 0x25, 0x67, 0x70, 0xd8]);
}
