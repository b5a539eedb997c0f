//! Light queues: `%LMQ%…` topics and groups, which are there without being made.

use ferromq_broker::{Broker, BrokerSettings};
use ferromq_protocol::Command;
use ferromq_protocol::body::{ConsumerOffsetTable, TopicConfigTable};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{OffsetResponse, PullMessage, QueryConsumerOffset, UpdateConsumerOffset};
use ferromq_protocol::sysflag::pull as flag;

use crate::support::{Pulled, Rig, eventually, pull_command, send_command};

fn light(settings: &mut BrokerSettings) {
    settings.enable_lmq = true;
    settings.enable_multi_dispatch = true;
}

fn dispatched(body: &str, queues: &str) -> Command {
    send_command("T", 1, body, &format!("INNER_MULTI_DISPATCH\u{1}{queues}"))
}

fn commit(group: &str, topic: &str, queue_id: i32, commit_offset: i64) -> Command {
    Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&UpdateConsumerOffset {
        consumer_group: group,
        topic,
        queue_id,
        commit_offset,
    })
}

async fn stored(rig: &Rig, group: &str, topic: &str, queue_id: i32) -> i64 {
    let query = Command::request(request::QUERY_CONSUMER_OFFSET).with_header(&QueryConsumerOffset {
        consumer_group: group,
        topic,
        queue_id,
    });
    rig.peer
        .ok(query)
        .await
        .header::<OffsetResponse>()
        .unwrap()
        .offset
}

fn offsets_file(rig: &Rig, name: &str) -> ConsumerOffsetTable {
    let text = std::fs::read(rig.dir.path().join("config").join(name)).unwrap();
    fastjson::from_slice(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn light_queues_are_pulled_without_being_made() {
    let rig = Rig::start_with(light).await;
    rig.peer.ok(dispatched("both", "%LMQ%a,%LMQ%b")).await;
    rig.peer.ok(dispatched("one", "%LMQ%a")).await;
    assert_eq!(rig.peer.drain("%LMQ%a", 0, 0, 2).await, ["both", "one"]);
    assert_eq!(rig.peer.drain("%LMQ%b", 0, 0, 1).await, ["both"]);
    assert_eq!(rig.peer.drain("T", 1, 0, 2).await, ["both", "one"]);
    assert_eq!(rig.peer.max_offset("%LMQ%a", 0).await, 2);
    // One queue each, and a light queue that nobody wrote to is empty rather than unknown.
    assert_eq!(rig.peer.call(pull_command("%LMQ%a", 1, 0, 0)).await.code, 1);
    assert_eq!(rig.peer.pull_code("%LMQ%never").await, 19);
    // A held pull is woken, also by a group that is light itself.
    let pull = Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
        consumer_group: "%LMQ%g",
        topic: "%LMQ%b",
        queue_id: 0,
        queue_offset: 1,
        max_msg_nums: 32,
        sys_flag: flag::SUBSCRIPTION | flag::SUSPEND,
        commit_offset: 0,
        suspend_timeout_millis: 600_000,
        subscription: Some("*"),
        sub_version: 0,
        expression_type: None,
    });
    let (pulled, _) = tokio::join!(rig.peer.call(pull), rig.peer.ok(dispatched("woken", "%LMQ%b")));
    assert_eq!(Pulled::of(&pulled).bodies, ["woken"]);
    // A send of its own works as well.
    rig.peer.ok(send_command("%LMQ%direct", 0, "d", "")).await;
    assert_eq!(rig.peer.drain("%LMQ%direct", 0, 0, 1).await, ["d"]);

    let topics = rig.peer.ok(Command::request(request::GET_ALL_TOPIC_CONFIG)).await;
    let topics: TopicConfigTable = fastjson::from_slice(&topics.body).unwrap();
    let made: Vec<_> = topics.topic_config_table.keys().collect();
    assert!(made.iter().all(|name| !name.starts_with("%LMQ%")), "{made:?}");
    let groups = rig
        .peer
        .ok(Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        .await;
    assert!(!String::from_utf8_lossy(&groups.body).contains("%LMQ%"));
    // Cleaning the queues of unknown topics leaves them alone.
    rig.peer.ok(Command::request(request::CLEAN_UNUSED_TOPIC)).await;
    assert_eq!(rig.peer.max_offset("%LMQ%a", 0).await, 2);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_on_light_queues_is_kept_in_javas_file() {
    let mut rig = Rig::start_with(light).await;
    rig.peer.ok(dispatched("x", "%LMQ%a")).await;
    rig.peer.drain("%LMQ%a", 0, 0, 1).await;
    for body in ["0", "1"] {
        rig.peer.send("T", 1, body).await;
    }
    rig.peer.ok(commit("%LMQ%g", "%LMQ%a", 7, 1)).await;
    rig.peer.ok(commit("CG", "T", 1, 1)).await;
    assert_eq!(stored(&rig, "%LMQ%g", "%LMQ%a", 0).await, 1);
    rig.stop_in_place().await;
    let file = offsets_file(&rig, "lmqConsumerOffset.json");
    assert_eq!(
        file.lmq_offset_table.unwrap(),
        [("%LMQ%a@%LMQ%g".to_owned(), 1)].into()
    );
    assert_eq!(file.offset_table["T@CG"], [(1, 1)].into());

    // Without the setting the names are like any, and no progress is lost.
    rig.start_again().await;
    assert_eq!(rig.peer.pull_code("%LMQ%a").await, 17);
    assert_eq!(stored(&rig, "CG", "T", 1).await, 1);
    rig.peer.ok(commit("CG", "T", 1, 2)).await;
    rig.stop_in_place().await;
    assert_eq!(
        offsets_file(&rig, "consumerOffset.json").offset_table["T@CG"],
        [(1, 2)].into()
    );

    let mut again = crate::support::settings(rig.dir.path(), rig.port);
    light(&mut again);
    let running = Broker::start(again).await.unwrap();
    assert_eq!(stored(&rig, "CG", "T", 1).await, 2);
    assert_eq!(stored(&rig, "%LMQ%g", "%LMQ%a", 3).await, 1);
    assert!(running.shutdown().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_light_queues_are_refused_with_the_setting() {
    let rig = Rig::start_with(|s| {
        light(s);
        s.max_lmq_consume_queue_num = 2;
    })
    .await;
    rig.peer.ok(dispatched("x", "%LMQ%a,%LMQ%b")).await;
    eventually("both queues are there", || async {
        rig.peer.max_offset("%LMQ%b", 0).await == 1
    })
    .await;
    let refused = rig.peer.call(dispatched("y", "%LMQ%c")).await;
    let said = refused.remark.unwrap_or_default();
    assert!(
        refused.code == 1 && said.contains("maxLmqConsumeQueueNum"),
        "{} {said}",
        refused.code
    );
    rig.stop().await;
}
