//! Groups that select by expressions: their bits beside the queue, their file, held pulls, and retries.

use ferromq_broker::{Broker, BrokerSettings};
use ferromq_protocol::body::{
    ConsumeFromWhere, ConsumeType, ConsumerData, HeartbeatData, MessageModel, QueryConsumeQueueResponseBody,
    SubscriptionData,
};
use ferromq_protocol::code::request;
use ferromq_protocol::header::{PullMessage, QueryConsumeQueue};
use ferromq_protocol::sysflag::pull as flag;
use ferromq_protocol::{Command, fastjson};

use crate::support::{Peer, Pulled, Rig, eventually, send_command, settings};

fn with_bits(settings: &mut BrokerSettings) {
    settings.enable_property_filter = true;
    settings.enable_calc_filter_bit_map = true;
    settings.enable_consume_queue_ext = true;
    settings.mapped_file_size_consume_queue_ext = 1 << 20;
}

fn subscribe(client: &str, group: &str, topic: &str, expression: &str, version: i64) -> Command {
    let subscription = SubscriptionData {
        expression_type: Some("SQL92".to_owned()),
        sub_string: expression.to_owned(),
        sub_version: version,
        topic: topic.to_owned(),
        ..SubscriptionData::default()
    };
    let beat = HeartbeatData {
        client_id: client.to_owned(),
        consumer_data_set: vec![ConsumerData {
            consume_from_where: Some(ConsumeFromWhere::LastOffset),
            consume_type: Some(ConsumeType::Passively),
            group_name: group.to_owned(),
            message_model: Some(MessageModel::Clustering),
            subscription_data_set: vec![
                subscription,
                SubscriptionData::by_tags(&format!("%RETRY%{group}"), "*"),
            ],
            unit_mode: false,
        }],
        producer_data_set: Vec::new(),
    };
    Command::request(request::HEART_BEAT).with_body(fastjson::to_vec(&beat))
}

/// A pull whose selection is the one of the group's heartbeat.
fn pull(group: &str, topic: &str, offset: i64, wait: i64, version: i64, kind: &str) -> Command {
    Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
        consumer_group: group,
        topic,
        queue_id: 0,
        queue_offset: offset,
        max_msg_nums: 32,
        sys_flag: if wait > 0 { flag::SUSPEND } else { 0 },
        commit_offset: 0,
        suspend_timeout_millis: wait,
        subscription: None,
        sub_version: version,
        expression_type: Some(kind),
    })
}

async fn send(rig: &Rig, body: &str, price: u32) {
    rig.peer
        .ok(send_command("T", 0, body, &format!("price\u{1}{price}")))
        .await;
}

async fn units(rig: &Rig, group: &str) -> QueryConsumeQueueResponseBody {
    let ask = Command::request(request::QUERY_CONSUME_QUEUE).with_header(&QueryConsumeQueue {
        topic: "T",
        queue_id: 0,
        index: 0,
        count: 100,
        consumer_group: Some(group),
    });
    fastjson::from_slice(&rig.peer.ok(ask).await.body).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_tell_before_the_log_is_read_and_survive_a_restart() {
    let mut rig = Rig::start_with(with_bits).await;
    let (cheap, dear) = (Peer::new(rig.peer.addr.clone()), Peer::new(rig.peer.addr.clone()));
    send(&rig, "before", 1).await;
    cheap.ok(subscribe("c", "cheap", "T", "price < 10", 7)).await;
    dear.ok(subscribe("d", "dear", "T", "price >= 10", 7)).await;
    // What is stored in the millisecond in which a row was made says nothing about it.
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    for n in 0..10 {
        send(&rig, &format!("low {n}"), n).await;
        send(&rig, &format!("high {n}"), 10 + n).await;
    }
    rig.peer.drain("T", 0, 0, 21).await;
    let low: Vec<String> = (0..10).map(|n| format!("low {n}")).collect();
    let high: Vec<String> = (0..10).map(|n| format!("high {n}")).collect();
    for _ in 0..2 {
        let got = Pulled::of(&rig.peer.call(pull("dear", "T", 0, 0, 7, "SQL92")).await);
        assert_eq!((got.code, &got.bodies), (0, &high));
        let got = Pulled::of(&rig.peer.call(pull("cheap", "T", 0, 0, 7, "SQL92")).await);
        assert_eq!(got.bodies, [&["before".to_owned()], low.as_slice()].concat());
        // Of what came later half is passed over without a look into the log; of what came before nothing is known.
        let told = units(&rig, "dear").await;
        let evals: Vec<bool> = told.queue_data.iter().map(|unit| unit.eval).collect();
        assert_eq!(evals.len(), 21);
        assert!(
            evals[0] && evals.iter().filter(|wanted| !**wanted).count() >= 8,
            "{evals:?}"
        );
        assert!(
            told.queue_data[1]
                .bit_map
                .as_ref()
                .is_some_and(|map| !map.is_empty())
        );

        rig.stop_in_place().await;
        let kept = std::fs::read_to_string(rig.dir.path().join("config/consumerFilter.json")).unwrap();
        assert!(kept.contains("price >= 10") && kept.contains("bitPos"), "{kept}");
        let mut again = settings(rig.dir.path(), rig.port);
        with_bits(&mut again);
        rig.resume(Broker::start(again).await.unwrap());
        cheap.ok(subscribe("c", "cheap", "T", "price < 10", 7)).await;
        dear.ok(subscribe("d", "dear", "T", "price >= 10", 7)).await;
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_expression_misses_nothing_that_came_before() {
    let rig = Rig::start_with(with_bits).await;
    rig.peer.ok(subscribe("c", "g", "T", "price < 10", 1)).await;
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    for n in 0..20 {
        send(&rig, &format!("{n}"), n).await;
    }
    rig.peer.drain("T", 0, 0, 20).await;
    rig.peer.ok(subscribe("c", "g", "T", "price >= 15", 2)).await;
    let got = Pulled::of(&rig.peer.call(pull("g", "T", 0, 0, 2, "SQL92")).await);
    assert_eq!(got.bodies, ["15", "16", "17", "18", "19"]);
    // Who asks with a newer version than the heartbeat's has to wait for it.
    assert_eq!(rig.peer.call(pull("g", "T", 0, 0, 3, "SQL92")).await.code, 25);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_pull_is_woken_by_what_it_wants() {
    let rig = Rig::start_with(with_bits).await;
    rig.peer.ok(subscribe("c", "g", "T", "price >= 10", 1)).await;
    send(&rig, "first", 1).await;
    rig.peer.drain("T", 0, 0, 1).await;
    let sends = async {
        for n in 0..50 {
            send(&rig, "unwanted", n % 10).await;
        }
        send(&rig, "wanted", 10).await;
    };
    let held = rig.peer.call(pull("g", "T", 1, 600_000, 1, "SQL92"));
    let (got, ()) = tokio::join!(held, sends);
    assert_eq!(Pulled::of(&got).bodies, ["wanted"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_are_selected_by_their_own_topics_expression_if_asked() {
    for selected in [false, true] {
        let rig = Rig::start_with(|s| {
            with_bits(s);
            s.filter_support_retry = selected;
        })
        .await;
        rig.peer.ok(subscribe("c", "g", "T", "price >= 10", 1)).await;
        for price in [1, 11] {
            let properties = format!("price\u{1}{price}\u{2}RETRY_TOPIC\u{1}T");
            let command = send_command("%RETRY%g", 0, &format!("{price}"), &properties);
            rig.peer.ok(command).await;
        }
        eventually("both are there", || async {
            rig.peer.max_offset("%RETRY%g", 0).await == 2
        })
        .await;
        let got = Pulled::of(&rig.peer.call(pull("g", "%RETRY%g", 0, 0, 0, "TAG")).await);
        assert_eq!(got.bodies, if selected { &["11"][..] } else { &["1", "11"] });
        rig.stop().await;
    }
}
