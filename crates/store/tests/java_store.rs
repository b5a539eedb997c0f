//! Stores that the Java broker wrote are served as it served them, after an orderly stop and after a kill.
#![allow(clippy::unwrap_used)]

mod common;

use std::{fs, fs::File, path::Path};

use common::{get, messages, open, parse, put};
use ferromq_protocol::{crc, message_id, properties};
use ferromq_store::{Clock, GetStatus, Hooks, KeyQuery, Progress, Store, StoreConfig};
use serde_json::Value;

fn fixture(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/java-store")
        .join(name)
}

struct Sample {
    dir: tempfile::TempDir,
    manifest: Value,
    messages: Vec<Value>,
}

impl Sample {
    fn unpack(kind: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tar = zstd::Decoder::new(File::open(fixture(&format!("{kind}.tar.zst"))).unwrap()).unwrap();
        tar::Archive::new(tar).unpack(dir.path()).unwrap();
        let manifest =
            serde_json::from_slice(&fs::read(fixture(&format!("{kind}.manifest.json"))).unwrap()).unwrap();
        let lines = fs::read_to_string(fixture(&format!("{kind}.messages.jsonl"))).unwrap();
        let messages = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        Self {
            dir,
            manifest,
            messages,
        }
    }

    fn config(&self) -> StoreConfig {
        let last = self
            .messages
            .iter()
            .map(|m| m["stored"].as_i64().unwrap())
            .max()
            .unwrap();
        StoreConfig {
            root: self.dir.path().join("store"),
            commit_log_file_size: 1 << 20,
            consume_queue_file_size: 2_000,
            max_hash_slot_num: 200,
            max_index_num: 800,
            max_message_size: 262_144,
            store_host: "127.0.0.1:12911".parse().unwrap(),
            disk_max_used_space_ratio: 95,
            disk_space_clean_forcibly_ratio: 100,
            disk_space_warning_level_ratio: 100,
            delete_when: String::new(),
            clock: Clock::manual(last + 1),
            ..StoreConfig::default()
        }
    }

    fn check(&self, store: &Store) {
        assert_eq!(self.messages.len(), 501);
        for m in &self.messages {
            let (topic, queue, offset) = (
                m["topic"].as_str().unwrap(),
                m["queue"].as_i64().unwrap() as i32,
                m["offset"].as_i64().unwrap(),
            );
            let result = get(store, topic, queue, offset, 1);
            assert_eq!((result.status, result.count), (GetStatus::Found, 1), "{m}");
            assert_eq!(result.next_offset, offset + 1);
            let bytes = &result.chunks[0];
            let record = parse(bytes);
            let physical = m["phy"].as_i64().unwrap();
            assert_eq!(store.look_up(physical).unwrap(), bytes, "{m}");
            assert_eq!(record.topic, topic);
            assert_eq!(i64::from(record.queue_id), m["queue"].as_i64().unwrap());
            assert_eq!(record.queue_offset, offset);
            assert_eq!(record.physical_offset, physical);
            assert_eq!(i64::from(record.total_size), m["size"].as_i64().unwrap());
            assert_eq!(i64::from(record.sys_flag), m["sys_flag"].as_i64().unwrap());
            assert_eq!(i64::from(record.flag), m["flag"].as_i64().unwrap());
            assert_eq!(record.born_timestamp, m["born"].as_i64().unwrap());
            assert_eq!(record.store_timestamp, m["stored"].as_i64().unwrap());
            assert_eq!(
                i64::from(record.reconsume_times),
                m["reconsume"].as_i64().unwrap()
            );
            assert_eq!(
                record.prepared_transaction_offset,
                m["prepared"].as_i64().unwrap()
            );
            assert_eq!(i64::from(record.body_crc), m["crc"].as_i64().unwrap());
            assert_eq!(crc::crc31(record.body), record.body_crc);
            if record.sys_flag & 1 == 0 {
                assert_eq!(record.body.len() as i64, m["body_len"].as_i64().unwrap());
            }
            assert_eq!(
                message_id::offset_id(record.store_host, record.physical_offset),
                m["offset_msg_id"].as_str().unwrap()
            );
            let text = record.properties_text();
            for (name, value) in m["properties"].as_object().unwrap() {
                // The client that listed the messages added these.
                if name != "MIN_OFFSET" && name != "MAX_OFFSET" {
                    assert_eq!(properties::get(&text, name), value.as_str(), "{name} of {m}");
                }
            }
            assert_eq!(store.store_time(topic, queue, offset), m["stored"].as_i64());
        }
        for part in ["topics", "hidden"] {
            for (topic, about) in self.manifest[part].as_object().unwrap() {
                for (queue, range) in about["queues"].as_object().unwrap() {
                    let queue = queue.parse().unwrap();
                    assert_eq!(
                        Some(store.min_offset(topic, queue)),
                        range["min"].as_i64(),
                        "{topic} {queue}"
                    );
                    assert_eq!(
                        Some(store.max_offset(topic, queue)),
                        range["max"].as_i64(),
                        "{topic} {queue}"
                    );
                }
            }
        }
        for look_up in self.manifest["index"].as_array().unwrap() {
            let (topic, key) = (
                look_up["topic"].as_str().unwrap(),
                look_up["key"].as_str().unwrap(),
            );
            let found = store.query(&KeyQuery {
                topic,
                key,
                max_messages: 64,
                begin: 0,
                end: i64::MAX,
            });
            assert_eq!(
                found.records.len() as i64,
                look_up["found"].as_i64().unwrap(),
                "{look_up}"
            );
            assert!(found.records.iter().all(|r| parse(r).topic == topic));
        }
        assert_eq!((store.figures().log_min, store.figures().log_max), (0, 2_582_294));
    }
}

fn log_bytes(config: &StoreConfig) -> Vec<u8> {
    let mut all = Vec::new();
    for name in common::names(&config.commit_log_dir()) {
        all.extend(fs::read(config.commit_log_dir().join(name)).unwrap());
    }
    all.truncate(2_582_294);
    all
}

#[test]
fn a_store_that_java_closed_is_served_as_it_was() {
    let sample = Sample::unpack("clean");
    let config = sample.config();
    let before = log_bytes(&config);
    let progress = Progress::new();
    let store = Store::open(config.clone(), &progress, Hooks::default()).unwrap();
    assert!(!progress.abnormal());
    assert_eq!(progress.done(), progress.total());
    store.start().unwrap();
    sample.check(&store);
    assert_eq!(store.delay_offsets().get(&1), Some(&7));
    assert!(store.shutdown().unwrap().clean);
    assert!(!config.root.join("abort").exists());
    assert!(log_bytes(&config) == before, "the log's bytes stay");
    // And once more, now that we closed it.
    let store = open(config.clone());
    sample.check(&store);
    assert!(store.figures().last_stop_clean);
    let appended = put(&store, "fx-plain", 2, b"ours");
    assert_eq!((appended.queue_offset, appended.physical_offset), (10, 2_582_294));
    common::dispatched(&store);
    assert_eq!(
        messages(&get(&store, "fx-plain", 2, 10, 5)),
        [(10, b"ours".to_vec())]
    );
    store.shutdown().unwrap();
}

#[test]
fn a_store_that_java_was_killed_over_is_recovered() {
    let sample = Sample::unpack("crash");
    let config = sample.config();
    let before = log_bytes(&config);
    let progress = Progress::new();
    let store = Store::open(config.clone(), &progress, Hooks::default()).unwrap();
    assert!(progress.abnormal());
    assert_eq!(progress.done(), progress.total());
    store.start().unwrap();
    assert!(!store.figures().last_stop_clean);
    sample.check(&store);
    assert!(store.shutdown().unwrap().clean);
    assert!(log_bytes(&config) == before, "the log's bytes stay");
    assert_eq!(
        common::names(&config.commit_log_dir()).len(),
        3,
        "the file made ahead is gone"
    );
    let store = open(config);
    sample.check(&store);
    store.shutdown().unwrap();
}

#[test]
fn lost_queues_and_index_are_made_again_from_javas_log() {
    let sample = Sample::unpack("crash");
    let config = sample.config();
    fs::remove_dir_all(config.consume_queue_dir()).unwrap();
    fs::remove_dir_all(config.index_dir()).unwrap();
    let store = open(config);
    sample.check(&store);
    store.shutdown().unwrap();
}

#[test]
fn our_queues_are_javas_byte_for_byte() {
    let sample = Sample::unpack("clean");
    let config = sample.config();
    let java = sample.dir.path().join("java-queues");
    fs::rename(config.consume_queue_dir(), &java).unwrap();
    fs::write(config.root.join("abort"), b"").unwrap();
    let store = open(config.clone());
    store.shutdown().unwrap();
    let mut compared = 0;
    for topic in common::names(&java) {
        for queue in common::names(&java.join(&topic)) {
            let (theirs, ours) = (
                java.join(&topic).join(&queue),
                config.consume_queue_dir().join(&topic).join(&queue),
            );
            for file in common::names(&theirs) {
                let same = fs::read(theirs.join(&file)).unwrap() == fs::read(ours.join(&file)).unwrap();
                assert!(same, "{topic} {queue} {file}");
                compared += 1;
            }
        }
    }
    assert!(compared > 25);
}
