//! Everything that Java's classes wrote (`e2e/java/golden`), cut at every place and with single bytes changed: reading it
//! gives a value or an error, never a panic. A small, steady share of what the fuzz targets do.

use bytes::BytesMut;
use ferromq_protocol::body::*;
use ferromq_protocol::record::{self, Check};
use ferromq_protocol::{batch, fastjson, frame, properties};
use serde_json::Value;

fn lines(file: &str) -> Vec<(String, Vec<u8>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/java/golden/").to_owned() + file;
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("read {path}: {e}"));
    text.lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).expect("a line of JSON");
            let hex = line["hex"].as_str().expect("hex digits");
            let bytes = (0..hex.len())
                .step_by(2)
                .map(|i| u8::from_str_radix(&hex[i..i + 2], 16).expect("two digits"))
                .collect();
            (line["name"].as_str().expect("a name").to_owned(), bytes)
        })
        .collect()
}

/// All prefixes, and all copies with one byte changed in three ways.
fn damaged(bytes: &[u8], mut check: impl FnMut(&[u8])) {
    for end in 0..=bytes.len() {
        check(&bytes[..end]);
    }
    let mut copy = bytes.to_vec();
    for at in 0..bytes.len() {
        for change in [0x01, 0x80, 0xFF] {
            copy[at] ^= change;
            check(&copy);
            copy[at] ^= change;
        }
    }
}

#[test]
fn damaged_frames_are_errors() {
    for (_, bytes) in lines("frames.jsonl") {
        damaged(&bytes, |bytes| {
            let mut buffer = BytesMut::from(bytes);
            while let Ok(Some(command)) = frame::decode(&mut buffer, frame::MAX_FRAME) {
                let mut out = BytesMut::new();
                frame::encode(&command, &mut out);
            }
        });
    }
}

#[test]
fn damaged_bodies_are_errors() {
    fn read(name: &str, bytes: &[u8]) {
        let _read = match name {
            "register" => RegisterBrokerBody::decode(bytes, false).is_ok(),
            "register-compressed" => RegisterBrokerBody::decode(bytes, true).is_ok(),
            "heartbeat" => fastjson::from_slice::<HeartbeatData>(bytes).is_ok(),
            "route" | "route-standard" => fastjson::from_slice::<TopicRouteData>(bytes).is_ok(),
            "cluster-info" => fastjson::from_slice::<ClusterInfo>(bytes).is_ok(),
            "topic-table" => fastjson::from_slice::<TopicConfigTable>(bytes).is_ok(),
            "group-table" => fastjson::from_slice::<SubscriptionGroupTable>(bytes).is_ok(),
            "consumer-offsets" => fastjson::from_slice::<ConsumerOffsetTable>(bytes).is_ok(),
            "topic-stats" => fastjson::from_slice::<TopicStatsTable>(bytes).is_ok(),
            "consume-stats" => fastjson::from_slice::<ConsumeStats>(bytes).is_ok(),
            "consume-stats-list" => fastjson::from_slice::<ConsumeStatsList>(bytes).is_ok(),
            "reset-offset" => fastjson::from_slice::<ResetOffsetBody>(bytes).is_ok(),
            "consumer-status" => fastjson::from_slice::<GetConsumerStatusBody>(bytes).is_ok(),
            "lock-request" | "unlock-request" => fastjson::from_slice::<LockBatchRequestBody>(bytes).is_ok(),
            "consumer-connection" => fastjson::from_slice::<ConsumerConnection>(bytes).is_ok(),
            "running-info" => fastjson::from_slice::<ConsumerRunningInfo>(bytes).is_ok(),
            "queue-entries" => fastjson::from_slice::<QueryConsumeQueueResponseBody>(bytes).is_ok(),
            "check-client" => fastjson::from_slice::<CheckClientRequestBody>(bytes).is_ok(),
            _ => fastjson::from_slice::<KvTable>(bytes).is_ok(),
        };
    }
    for (name, bytes) in lines("bodies.jsonl").into_iter().chain(lines("answers.jsonl")) {
        damaged(&bytes, |bytes| read(&name, bytes));
    }
}

#[test]
fn damaged_records_batches_and_properties_are_errors() {
    for (_, bytes) in lines("records.jsonl") {
        damaged(&bytes, |bytes| {
            for check in [Check::Crc, Check::None] {
                let _read = record::parse(bytes, check).is_ok();
            }
            let _read = batch::iter(bytes).take(1000).all(|m| m.is_ok());
        });
    }
    for (_, bytes) in lines("texts.jsonl") {
        damaged(&bytes, |bytes| {
            let _read = properties::iter(&String::from_utf8_lossy(bytes)).count();
        });
    }
}
