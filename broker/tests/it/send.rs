//! Sends: what is stored, and what is refused.

use ferromq_protocol::batch::{self, BatchMessage};
use ferromq_protocol::code::request;
use ferromq_protocol::header::{SendMessage, ViewMessage};
use ferromq_protocol::record::{self, Check, Entry};
use ferromq_protocol::{Command, message_id};

use crate::support::{Rig, Sent, eventually, send_command};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_is_made_on_first_send_and_offsets_count_up() {
    let rig = Rig::start().await;
    let first = rig.peer.send("T", 1, "one").await;
    let second = rig.peer.send("T", 1, "two").await;
    assert_eq!((first.queue, first.offset, second.offset), (1, 0, 1));
    assert_eq!(rig.peer.drain("T", 1, 0, 2).await, ["one", "two"]);
    assert_eq!(rig.peer.max_offset("T", 1).await, 2);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_name_the_advertised_address_and_resolve() {
    let rig = Rig::start().await;
    let sent = rig.peer.send("T", 0, "find me").await;
    let (host, offset) = message_id::parse_offset_id(&sent.id).unwrap();
    assert_eq!(host.to_string(), format!("127.0.0.1:{}", rig.port));
    let answer = rig
        .peer
        .ok(Command::request(request::VIEW_MESSAGE_BY_ID).with_header(&ViewMessage { offset }))
        .await;
    let Entry::Record(found) = record::parse(&answer.body, Check::Crc).unwrap() else {
        panic!("no record")
    };
    assert_eq!(found.body, b"find me");
    assert_eq!(found.property("CLUSTER"), Some("DefaultCluster"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn properties_lose_wait_and_gain_cluster_with_or_without_a_last_separator() {
    let rig = Rig::start().await;
    for (n, properties) in [
        "WAIT\u{1}true\u{2}TAGS\u{1}a",
        "TAGS\u{1}a\u{2}WAIT\u{1}true\u{2}",
    ]
    .iter()
    .enumerate()
    {
        rig.peer.ok(send_command("T", 0, "x", properties)).await;
        assert_eq!(rig.peer.drain("T", 0, n as i64, 1).await, ["x"]);
        let pulled = rig.peer.pull("T", 0, n as i64).await;
        assert_eq!(pulled.properties, ["TAGS\u{1}a\u{2}CLUSTER\u{1}DefaultCluster"]);
    }
    rig.stop().await;
}

pub(crate) fn batch_command(topic: &str, bodies: &[&str], properties: &[u8]) -> Command {
    let mut body = Vec::new();
    batch::encode(
        bodies.iter().map(|b| BatchMessage {
            flag: 0,
            body: b.as_bytes(),
            properties,
        }),
        &mut body,
    );
    Command::request(request::SEND_BATCH_MESSAGE)
        .with_header(&SendMessage {
            producer_group: "PG",
            topic,
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            queue_id: 2,
            properties: "WAIT\u{1}true",
            batch: true,
            ..SendMessage::default()
        })
        .with_body(body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_has_an_id_and_an_offset_for_each_message() {
    let rig = Rig::start().await;
    let sent = Sent::of(
        &rig.peer
            .ok(batch_command("T", &["a", "b", "c"], b"TAGS\x01x"))
            .await,
    );
    let ids: Vec<_> = sent.id.split(',').collect();
    assert_eq!((ids.len(), sent.offset, sent.queue), (3, 0, 2));
    assert!(ids.iter().all(|id| message_id::parse_offset_id(id).is_some()));
    assert_eq!(rig.peer.send("T", 2, "d").await.offset, 3);
    assert_eq!(rig.peer.drain("T", 2, 0, 4).await, ["a", "b", "c", "d"]);
    let pulled = rig.peer.pull("T", 2, 0).await;
    assert_eq!(pulled.properties[0], "TAGS\u{1}x\u{2}CLUSTER\u{1}DefaultCluster");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_way_sends_are_stored_without_an_answer() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "first").await;
    rig.peer
        .client
        .oneway(&rig.peer.addr, send_command("T", 0, "silent", ""))
        .await
        .unwrap();
    assert_eq!(rig.peer.drain("T", 0, 0, 2).await, ["first", "silent"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_cannot_be_are_refused_with_their_code() {
    let rig = Rig::start_with(|s| s.auto_create_topic_enable = false).await;
    for (topic, queue, code) in [
        ("Unknown", 0, 17),
        ("bad topic!", 0, 1),
        ("", 0, 1),
        ("SCHEDULE_TOPIC_XXXX", 0, 16),
        ("RMQ_SYS_TRANS_HALF_TOPIC", 0, 16),
        ("BenchmarkTest", 5_000, 1),
        ("%RETRY%nobody", 0, 26),
    ] {
        let answer = rig.peer.call(send_command(topic, queue, "x", "")).await;
        assert_eq!(answer.code, code, "{topic}: {:?}", answer.remark);
        assert!(answer.ext.get("MSG_REGION").is_some(), "{topic}");
    }
    let long = "t".repeat(128);
    assert_eq!(rig.peer.call(send_command(&long, 0, "x", "")).await.code, 1);
    // Named as template, the cluster's topic does not get round the setting either.
    let sneaky = Command::request(request::SEND_MESSAGE_V2)
        .with_header(&SendMessage {
            producer_group: "PG",
            topic: "Sneaky",
            default_topic: "DefaultCluster",
            default_topic_queue_nums: 4,
            ..SendMessage::default()
        })
        .with_body("x");
    assert_eq!(rig.peer.call(sneaky).await.code, 17);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_negative_queue_lets_the_broker_choose() {
    let rig = Rig::start().await;
    for _ in 0..20 {
        let sent = rig.peer.send("T", -1, "x").await;
        assert!((0..4).contains(&sent.queue));
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_bodies_and_properties_are_refused_and_the_next_send_is_fine() {
    let rig = Rig::start_with(|s| s.max_message_size = 1_000).await;
    rig.peer.send("T", 0, "before").await;
    let large = rig.peer.call(send_command("T", 0, &"x".repeat(1_001), "")).await;
    assert_eq!(large.code, 13, "{:?}", large.remark);
    let wide = rig
        .peer
        .call(send_command(
            "T",
            0,
            "x",
            &format!("K\u{1}{}", "v".repeat(32_766)),
        ))
        .await;
    assert_eq!(wide.code, 13, "{:?}", wide.remark);
    let batch = batch_command(
        "T",
        &["a", "b"],
        format!("K\u{1}{}", "v".repeat(32_760)).as_bytes(),
    );
    assert_eq!(rig.peer.call(batch).await.code, 13);
    assert_eq!(rig.peer.send("T", 0, "after").await.offset, 1);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_vip_port_takes_sends_and_serves_pulls() {
    let rig = Rig::start().await;
    let vip = crate::support::Peer::new(format!("127.0.0.1:{}", rig.port - 2));
    vip.send("T", 0, "via vip").await;
    eventually("the message is readable", async || {
        vip.pull("T", 0, 0).await.bodies == ["via vip"]
    })
    .await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_sends_and_loses_nothing() {
    let rig = Rig::start_with(|s| {
        s.store_capacity_bytes = 6 << 20;
        s.clean_file_forcibly_enable = false;
    })
    .await;
    let body = "x".repeat(60_000);
    let mut acknowledged = 0;
    let until = std::time::Instant::now() + crate::support::LONG;
    let refused = loop {
        let answer = rig.peer.call(send_command("T", 0, &body, "")).await;
        if answer.code != 0 {
            break answer;
        }
        acknowledged += 1;
        assert!(
            std::time::Instant::now() < until,
            "{acknowledged} sends and the disk is not full"
        );
        if acknowledged > 100 {
            // Enough is stored; the store looks at the disk now and then only.
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    assert_eq!(refused.code, 14);
    let remark = refused.remark.unwrap();
    assert!(
        remark.contains("commitlog") && remark.contains("CL: 1") || remark.contains("CL: 0.9"),
        "{remark}"
    );
    assert_eq!(rig.peer.drain("T", 0, 0, acknowledged).await.len(), acknowledged);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn safety_is_waited_for_when_it_is_asked_for() {
    let rig = Rig::start_with(|s| s.flush_disk_type = "SYNC_FLUSH".to_owned()).await;
    let sends = (0..50).map(|n| rig.peer.send_owned("T", 0, n.to_string()));
    let offsets = futures::future::join_all(sends).await;
    assert_eq!(offsets.len(), 50);
    rig.stop().await;

    let rig = Rig::start_with(|s| s.broker_role = "SYNC_MASTER".to_owned()).await;
    let alone = rig.peer.call(send_command("T", 0, "x", "")).await;
    // Stored, and nobody to copy it: the client is told, with all that an answer to a send carries.
    assert_eq!(alone.code, 11, "{:?}", alone.remark);
    assert_eq!(Sent::of(&alone).offset, 0);
    let unasked = rig.peer.ok(send_command("T", 0, "x", "WAIT\u{1}false")).await;
    assert_eq!(Sent::of(&unasked).offset, 1);
    rig.stop().await;
}
