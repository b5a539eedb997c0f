//! Where this broker does better than Java's in small ways that no other test is about; and that docs/improvements.md and docs/broker.md name
//! tests that exist.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use ferromq_protocol::Command;
use ferromq_protocol::body::SubscriptionGroupTable;
use ferromq_protocol::code::request;
use ferromq_protocol::header::{ConsumerGroupHeader, ConsumerSendMsgBack, GetConsumeStats};
use ferromq_protocol::{fastjson, message_id};

use crate::offsets::update;
use crate::support::{Rig, send_command};

async fn groups(rig: &Rig) -> SubscriptionGroupTable {
    let answer = rig
        .peer
        .ok(Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        .await;
    fastjson::from_slice(&answer.body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_about_a_group_does_not_make_it() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "x").await;
    for command in [
        Command::request(request::GET_CONSUMER_LIST_BY_GROUP).with_header(&ConsumerGroupHeader {
            consumer_group: "Curious",
        }),
        Command::request(request::GET_CONSUME_STATS).with_header(&GetConsumeStats {
            consumer_group: "Curious",
            topic: None,
        }),
        Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&ConsumerSendMsgBack {
            offset: 0,
            group: "Curious",
            delay_level: 0,
            origin_msg_id: None,
            origin_topic: None,
            unit_mode: false,
            max_reconsume_times: None,
        }),
        send_command("%RETRY%Curious", 0, "x", ""),
    ] {
        rig.peer.call(command).await;
    }
    assert!(
        !groups(&rig)
            .await
            .subscription_group_table
            .contains_key("Curious")
    );
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_back_is_not_sent_back_twice_because_no_slave_confirms_it() {
    let rig = Rig::start_with(|s| s.broker_role = "SYNC_MASTER".to_owned()).await;
    let stored = rig.peer.call(send_command("T", 0, "x", "")).await;
    assert_eq!(stored.code, 11, "stored, but there is no slave");
    let id = stored.ext.get("msgId").unwrap().to_owned();
    let (_, offset) = message_id::parse_offset_id(&id).unwrap();
    // The group has to be there.
    rig.peer.pull("T", 0, 0).await;
    let back = Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&ConsumerSendMsgBack {
        offset,
        group: "CG",
        delay_level: -1,
        origin_msg_id: None,
        origin_topic: Some("T"),
        unit_mode: false,
        max_reconsume_times: None,
    });
    rig.peer.ok(back).await;
    assert_eq!(rig.peer.drain("%DLQ%CG", 0, 0, 1).await, ["x"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_of_queues_and_groups_are_of_the_offsets_that_are_told() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    rig.peer.drain("T", 0, 0, 1).await;
    rig.peer.ok(update(1)).await;
    let stats = || async {
        let ask = Command::request(request::GET_CONSUME_STATS).with_header(&GetConsumeStats {
            consumer_group: "CG",
            topic: Some("T"),
        });
        let answer = rig.peer.ok(ask).await;
        let stats: ferromq_protocol::body::ConsumeStats = fastjson::from_slice(&answer.body).unwrap();
        let row = stats.offset_table.iter().find(|(queue, _)| queue.queue_id == 0);
        row.unwrap().1.clone()
    };
    let first = stats().await;
    assert!(first.last_timestamp > 0);
    assert_eq!(stats().await, first, "the same when nothing moved");
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    rig.peer.send("T", 0, "1").await;
    rig.peer.drain("T", 0, 1, 1).await;
    rig.peer.ok(update(2)).await;
    assert!(stats().await.last_timestamp > first.last_timestamp);
    rig.stop().await;
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The names of all functions of each Rust file, by path.
fn functions(dir: &Path, found: &mut HashMap<PathBuf, HashSet<String>>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            functions(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fn ").skip(1).map(|rest| {
                let end = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                rest[..end].to_owned()
            });
            found.insert(path, names.collect());
        }
    }
}

/// Texts in backticks of the form `file.rs: name`, of which the name may end in `…`.
fn named(page: &str) -> Vec<(String, String)> {
    let quoted = page.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| {
            let (file, name) = text.split_once(": ")?;
            Path::new(file)
                .extension()
                .is_some_and(|e| e == "rs")
                .then(|| (file.to_owned(), name.to_owned()))
        })
        .collect()
}

#[test]
fn the_pages_name_tests_that_exist() {
    let root = root();
    let mut all = HashMap::new();
    for dir in ["broker", "crates", "ctl", "namesrv", "operator", "e2e"] {
        functions(&root.join(dir), &mut all);
    }
    let (mut checked, mut missing) = (0, Vec::new());
    for page in ["docs/broker.md", "docs/improvements.md"] {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for (file, name) in named(&text) {
            let file_is_there = all.iter().any(|(path, names)| {
                path.ends_with(&file)
                    && match name.strip_suffix('…') {
                        Some(start) => names.iter().any(|known| known.starts_with(start)),
                        None => names.contains(&name),
                    }
            });
            if !file_is_there {
                missing.push(format!("{page}: `{file}: {name}`"));
            }
            checked += 1;
        }
    }
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
    assert!(checked > 80, "{checked} tests are named");
}
