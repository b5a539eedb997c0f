//! Heartbeats, members of groups, notices to them, and locks on queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::Command;
use ferromq_protocol::body::{
    CheckClientRequestBody, ConsumeFromWhere, ConsumeType, ConsumerConnection, ConsumerData, ConsumerIdList,
    GetConsumerStatusBody, HeartbeatData, LockBatchRequestBody, LockBatchResponseBody, MessageModel,
    MessageQueue, ProducerConnection, ProducerData, ResetOffsetBody, SubscriptionData, TopicConfigTable,
};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{
    ConsumeMessageDirectly, ConsumerGroupHeader, ConsumerSendMsgBack, GetConsumerRunningInfo,
    ProducerGroupHeader, PullMessage, ResetOffset, UnregisterClient, UpdateConsumerOffset,
};
use ferromq_protocol::{message_id, record};
use ferromq_remoting::{Client, ClientConfig, Dispatch, Outcome, RequestContext, Run};

use crate::support::{Peer, Rig, eventually};

fn consumers(client: &str, group: &str, model: MessageModel, topics: &[&str]) -> HeartbeatData {
    HeartbeatData {
        client_id: client.to_owned(),
        consumer_data_set: vec![ConsumerData {
            consume_from_where: Some(ConsumeFromWhere::LastOffset),
            consume_type: Some(ConsumeType::Passively),
            group_name: group.to_owned(),
            message_model: Some(model),
            subscription_data_set: topics.iter().map(|t| SubscriptionData::by_tags(t, "*")).collect(),
            unit_mode: false,
        }],
        producer_data_set: Vec::new(),
    }
}

fn sent(beat: &HeartbeatData) -> Command {
    Command::request(request::HEART_BEAT).with_body(fastjson::to_vec(beat))
}

/// The heartbeat of a client with a member of the group, in clustering mode, and no producer.
pub(crate) fn member(client: &str, group: &str, topics: &[&str]) -> Command {
    sent(&consumers(client, group, MessageModel::Clustering, topics))
}

fn heartbeat(client: &str, group: &str, model: MessageModel, topics: &[&str]) -> Command {
    sent(&HeartbeatData {
        producer_data_set: vec![ProducerData {
            group_name: "PG".to_owned(),
        }],
        ..consumers(client, group, model, topics)
    })
}

/// The heartbeat of a client with a member of group CG and a producer of group PG.
pub(crate) fn clustering(client: &str, topics: &[&str]) -> Command {
    heartbeat(client, "CG", MessageModel::Clustering, topics)
}

async fn ids(peer: &Peer, group: &str) -> Vec<String> {
    let command = Command::request(request::GET_CONSUMER_LIST_BY_GROUP).with_header(&ConsumerGroupHeader {
        consumer_group: group,
    });
    let answer = peer.call(command).await;
    if answer.code != 0 {
        return Vec::new();
    }
    fastjson::from_slice::<ConsumerIdList>(&answer.body)
        .unwrap()
        .consumer_id_list
}

fn notices(peer: &Peer) -> usize {
    peer.received
        .lock()
        .iter()
        .filter(|c| c.code == request::NOTIFY_CONSUMER_IDS_CHANGED)
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_learn_of_those_who_come_and_go() {
    let rig = Rig::start().await;
    let other = Peer::new(rig.peer.addr.clone());
    rig.peer.ok(clustering("a", &["T"])).await;
    assert_eq!(ids(&rig.peer, "CG").await, ["a"]);
    other.ok(clustering("b", &["T"])).await;
    assert_eq!(ids(&rig.peer, "CG").await, ["a", "b"]);
    eventually("both were told", async || {
        notices(&rig.peer) >= 1 && notices(&other) >= 1
    })
    .await;

    let told = notices(&rig.peer);
    other
        .ok(
            Command::request(request::UNREGISTER_CLIENT).with_header(&UnregisterClient {
                client_id: "b",
                producer_group: Some("PG"),
                consumer_group: Some("CG"),
            }),
        )
        .await;
    assert_eq!(ids(&rig.peer, "CG").await, ["a"]);
    eventually("the one that stayed was told", async || notices(&rig.peer) > told).await;

    other.ok(clustering("b", &["T"])).await;
    eventually("of the return", async || notices(&rig.peer) > told + 1).await;
    let told = notices(&rig.peer);
    other.client.close().await;
    eventually("of the closed connection", async || {
        notices(&rig.peer) > told && ids(&rig.peer, "CG").await == ["a"]
    })
    .await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_changes_makes_few_notices_and_broadcasting_groups_get_none() {
    let rig = Rig::start().await;
    rig.peer.ok(clustering("a", &["T"])).await;
    let loud = Peer::new(rig.peer.addr.clone());
    loud.ok(heartbeat("x", "BG", MessageModel::Broadcasting, &["T"]))
        .await;
    for n in 0..100 {
        let topic = format!("T{n}");
        loud.ok(clustering("b", &[&topic])).await;
        loud.ok(heartbeat("x", "BG", MessageModel::Broadcasting, &[&topic]))
            .await;
    }
    eventually("told at all", async || notices(&rig.peer) >= 1).await;
    assert!(
        notices(&rig.peer) < 60,
        "{} notices for 100 changes",
        notices(&rig.peer)
    );
    let about: Vec<_> = loud
        .received
        .lock()
        .iter()
        .map(|c| c.ext.get("consumerGroup").unwrap().to_owned())
        .collect();
    assert!(about.iter().all(|group| group == "CG"), "{about:?}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_make_groups_and_retry_topics_and_serve_pulls() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "x").await;
    rig.peer.ok(clustering("a", &["T"])).await;
    let topics = rig.peer.ok(Command::request(request::GET_ALL_TOPIC_CONFIG)).await;
    let topics: TopicConfigTable = fastjson::from_slice(&topics.body).unwrap();
    assert_eq!(topics.topic_config_table["%RETRY%CG"].read_queue_nums, 1);
    let pull = |topic| {
        Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
            consumer_group: "CG",
            topic,
            queue_id: 0,
            queue_offset: 0,
            max_msg_nums: 1,
            sys_flag: 2,
            commit_offset: 0,
            suspend_timeout_millis: 20_000,
            subscription: None,
            sub_version: 0,
            expression_type: Some("TAG"),
        })
    };
    rig.peer.ok(pull("T")).await;
    assert_eq!(rig.peer.call(pull("BenchmarkTest")).await.code, 24);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_shown_to_administrators() {
    let rig = Rig::start().await;
    let consumers = || {
        Command::request(request::GET_CONSUMER_CONNECTION_LIST)
            .with_header(&ConsumerGroupHeader { consumer_group: "CG" })
    };
    let producers = || {
        Command::request(request::GET_PRODUCER_CONNECTION_LIST)
            .with_header(&ProducerGroupHeader { producer_group: "PG" })
    };
    assert_eq!(rig.peer.call(consumers()).await.code, 206);
    assert_eq!(rig.peer.call(producers()).await.code, 1);
    rig.peer.ok(clustering("a", &["T"])).await;
    let seen: ConsumerConnection = fastjson::from_slice(&rig.peer.ok(consumers()).await.body).unwrap();
    assert_eq!(seen.connection_set[0].client_id, "a");
    assert_eq!(seen.message_model, Some(MessageModel::Clustering));
    assert!(seen.subscription_table.contains_key("T"));
    let seen: ProducerConnection = fastjson::from_slice(&rig.peer.ok(producers()).await.body).unwrap();
    assert_eq!(seen.connection_set.len(), 1);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_is_locked_by_one_client_at_a_time() {
    let rig = Rig::start().await;
    let queues = vec![
        MessageQueue::new("T", "broker-a", 0),
        MessageQueue::new("T", "broker-a", 1),
    ];
    let body = |client: &str| {
        fastjson::to_vec(&LockBatchRequestBody {
            client_id: client.to_owned(),
            consumer_group: "CG".to_owned(),
            mq_set: queues.clone(),
        })
    };
    let lock = async |client: &str| {
        let answer = rig
            .peer
            .ok(Command::request(request::LOCK_BATCH_MQ).with_body(body(client)))
            .await;
        fastjson::from_slice::<LockBatchResponseBody>(&answer.body)
            .unwrap()
            .lock_ok_mq_set
    };
    assert_eq!(lock("a").await, queues);
    assert!(lock("b").await.is_empty());
    rig.peer
        .ok(Command::request(request::UNLOCK_BATCH_MQ).with_body(body("a")))
        .await;
    assert_eq!(lock("b").await, queues);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_are_checked_before_use() {
    let check = |kind: &str, text: &str| {
        let body = CheckClientRequestBody {
            client_id: "a".to_owned(),
            group: "CG".to_owned(),
            subscription_data: Some(SubscriptionData {
                expression_type: Some(kind.to_owned()),
                sub_string: text.to_owned(),
                ..SubscriptionData::default()
            }),
        };
        Command::request(request::CHECK_CLIENT_CONFIG).with_body(fastjson::to_vec(&body))
    };
    let rig = Rig::start().await;
    rig.peer.ok(check("TAG", "a || b")).await;
    assert_eq!(rig.peer.call(check("SQL92", "a > 1")).await.code, 1);
    rig.stop().await;
    let rig = Rig::start_with(|s| s.enable_property_filter = true).await;
    rig.peer.ok(check("SQL92", "a > 1")).await;
    assert_eq!(rig.peer.call(check("SQL92", "a >")).await.code, 23);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_sent_back_comes_again_and_ends_among_the_dead_letters() {
    let rig = Rig::start_with(|s| s.message_delay_level = "1s 1s 1s 1s".to_owned()).await;
    rig.peer.ok(clustering("a", &["T"])).await;
    let sent = rig.peer.send("T", 0, "hard").await;
    let (_, offset) = message_id::parse_offset_id(&sent.id).unwrap();
    let back = |offset, delay_level| {
        Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&ConsumerSendMsgBack {
            offset,
            group: "CG",
            delay_level,
            origin_msg_id: None,
            origin_topic: Some("T"),
            unit_mode: false,
            max_reconsume_times: Some(16),
        })
    };
    rig.peer.ok(back(offset, -1)).await;
    assert_eq!(rig.peer.drain("%DLQ%CG", 0, 0, 1).await, ["hard"]);
    rig.peer.ok(back(offset, 1)).await;
    assert_eq!(rig.peer.drain("%RETRY%CG", 0, 0, 1).await, ["hard"]);
    let retried = rig.peer.pull("%RETRY%CG", 0, 0).await;
    let properties = &retried.properties[0];
    assert!(properties.contains("RETRY_TOPIC\u{1}T"), "{properties}");
    assert!(
        properties.contains(&format!("ORIGIN_MESSAGE_ID\u{1}{}", sent.id)),
        "{properties}"
    );

    assert_eq!(rig.peer.call(back(i64::MAX - 7, 0)).await.code, 1);
    assert_eq!(rig.peer.call(back(-5, 0)).await.code, 1);
    rig.stop().await;
}

/// A client that answers what the broker asks of it.
fn answering() -> Client {
    let mut table = Dispatch::builder();
    table.on(
        request::GET_CONSUMER_RUNNING_INFO,
        Run::Inline,
        Arc::new(|_: &RequestContext, asked: Command| -> Outcome {
            asked.reply(0).with_body("running").into()
        }),
    );
    table.on(
        request::CONSUME_MESSAGE_DIRECTLY,
        Run::Inline,
        Arc::new(|_: &RequestContext, asked: Command| -> Outcome {
            let Ok(record::Entry::Record(found)) = record::parse(&asked.body, record::Check::Crc) else {
                panic!()
            };
            asked.reply(0).with_body(found.body.to_vec()).into()
        }),
    );
    table.on(
        request::PUSH_REPLY_MESSAGE_TO_CLIENT,
        Run::Inline,
        Arc::new(|_: &RequestContext, asked: Command| -> Outcome {
            assert_eq!(asked.body, "the reply");
            asked.reply(0).into()
        }),
    );
    Client::new(ClientConfig::default(), table.build())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_are_asked_through_the_broker() {
    let rig = Rig::start().await;
    let client = answering();
    client
        .call(&rig.peer.addr, clustering("a", &["T"]), crate::support::LONG)
        .await
        .unwrap();
    let info = |client_id| {
        Command::request(request::GET_CONSUMER_RUNNING_INFO).with_header(&GetConsumerRunningInfo {
            consumer_group: "CG",
            client_id,
            jstack_enable: false,
        })
    };
    assert_eq!(rig.peer.ok(info("a")).await.body, "running");
    assert_eq!(rig.peer.call(info("b")).await.code, 206);
    let sent = rig.peer.send("T", 0, "directly").await;
    let consume = |id| {
        Command::request(request::CONSUME_MESSAGE_DIRECTLY).with_header(&ConsumeMessageDirectly {
            consumer_group: "CG",
            client_id: Some("a"),
            msg_id: Some(id),
            broker_name: None,
        })
    };
    assert_eq!(rig.peer.ok(consume(&sent.id)).await.body, "directly");
    assert_eq!(rig.peer.call(consume("nonsense")).await.code, 1);

    let reply = |to: &str| {
        let mut command = crate::support::send_command(
            "DefaultCluster_REPLY_TOPIC",
            0,
            "the reply",
            &format!("REPLY_TO_CLIENT\u{1}{to}"),
        );
        command.code = request::SEND_REPLY_MESSAGE_V2;
        command
    };
    assert_eq!(rig.peer.ok(reply("a")).await.remark, None);
    assert!(
        rig.peer
            .ok(reply("b"))
            .await
            .remark
            .unwrap()
            .contains("not connected")
    );
    rig.stop().await;
}

/// A group's progress as its members tell it: those who stay silent hold the answer up once, not one after the other, and
/// what they say too late is for nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_who_say_nothing_hold_up_the_groups_status_once_only() {
    /// Asked in turn, each for as long as a member has, they would take longer than the test's own patience.
    const SILENT: usize = 20;
    let rig = Rig::start().await;
    let late = Arc::new(AtomicUsize::new(0));
    let mut members = Vec::new();
    for n in 0..=SILENT + 1 {
        let mut table = Dispatch::builder();
        let late = Arc::clone(&late);
        let status = move |_: &RequestContext, asked: Command| -> Outcome {
            let body = r#"{"messageQueueTable":{}}"#;
            let answer = asked.reply(0).with_body(body);
            let late = Arc::clone(&late);
            match n {
                0 => answer.into(),
                1 => Outcome::Later(Box::pin(async move {
                    tokio::time::sleep(Duration::from_secs(4)).await;
                    late.fetch_add(1, Ordering::SeqCst);
                    answer.into()
                })),
                _ => Outcome::Later(Box::pin(std::future::pending())),
            }
        };
        table.on(
            request::GET_CONSUMER_STATUS_FROM_CLIENT,
            Run::Inline,
            Arc::new(status),
        );
        let client = Client::new(ClientConfig::default(), table.build());
        let beat = clustering(&format!("member-{n}"), &["T"]);
        client
            .call(&rig.peer.addr, beat, crate::support::LONG)
            .await
            .unwrap();
        members.push(client);
    }
    let ask = || {
        Command::request(request::INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
            .with_ext("topic", "T")
            .with_ext("group", "CG")
    };
    // On one connection with the question: other answers come meanwhile.
    let others = async {
        for n in 0..20 {
            rig.peer.send("T", 0, &n.to_string()).await;
        }
    };
    let (status, ()) = tokio::join!(rig.peer.ok(ask()), others);
    let told = |status: &Command| -> Vec<String> {
        let body: GetConsumerStatusBody = fastjson::from_slice(&status.body).unwrap();
        body.consumer_table.into_keys().collect()
    };
    assert_eq!(told(&status), ["member-0"]);
    eventually("the late one has answered", || async {
        late.load(Ordering::SeqCst) == 1
    })
    .await;
    // Nobody took it for the answer to something else.
    assert_eq!(told(&rig.peer.ok(ask()).await), ["member-0"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reset_is_told_to_the_groups_clients() {
    let rig = Rig::start().await;
    for _ in 0..3 {
        for queue in 0..4 {
            rig.peer.send("T", queue, "x").await;
        }
    }
    for queue in 0..4 {
        rig.peer.drain("T", queue, 0, 3).await;
    }
    let reset = |timestamp, is_force| {
        Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET).with_header(&ResetOffset {
            topic: "T",
            group: "CG",
            timestamp,
            is_force,
        })
    };
    let none = rig.peer.call(reset(-1, true)).await;
    assert!(none.code == 1 && none.remark.unwrap().contains("not exist"));
    for queue_id in 0..4 {
        let update = Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&UpdateConsumerOffset {
            consumer_group: "CG",
            topic: "T",
            queue_id,
            commit_offset: 1,
        });
        rig.peer.ok(update).await;
    }
    assert_eq!(rig.peer.call(reset(-1, true)).await.code, 206);
    rig.peer.ok(clustering("a", &["T"])).await;
    let offsets = |answer: &[u8]| -> Vec<i64> {
        fastjson::from_slice::<ResetOffsetBody>(answer)
            .unwrap()
            .offset_table
            .into_values()
            .collect()
    };
    assert_eq!(offsets(&rig.peer.ok(reset(-1, true)).await.body), [3; 4]);
    assert_eq!(
        offsets(&rig.peer.ok(reset(-1, false)).await.body),
        [1; 4],
        "without force never forwards"
    );
    assert_eq!(offsets(&rig.peer.ok(reset(0, true)).await.body), [0; 4]);
    eventually("the client was told each time", async || {
        rig.peer
            .received
            .lock()
            .iter()
            .filter(|c| c.code == request::RESET_CONSUMER_CLIENT_OFFSET)
            .count()
            == 3
    })
    .await;
    rig.stop().await;
}
