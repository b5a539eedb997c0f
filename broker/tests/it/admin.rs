//! Requests of administrators: topics, groups, settings, figures, cleaning.

use ferromq_daemon::Properties;
use ferromq_protocol::Command;
use ferromq_protocol::body::{
    ConsumeStats, GroupList, KvTable, QueryConsumeQueueResponseBody, SubscriptionGroupConfig,
    SubscriptionGroupTable, TopicConfig, TopicConfigTable, TopicStatsTable,
};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{
    CreateTopic, DeleteSubscriptionGroup, GetConsumeStats, OffsetResponse, QueryConsumeQueue, QueryMessage,
    TopicHeader, ViewBrokerStats,
};

use crate::offsets::update;
use crate::support::{Rig, eventually, send_command};

pub(crate) fn create(topic: &str, queues: i32, perm: i32) -> Command {
    Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&CreateTopic {
        topic,
        default_topic: "TBW102",
        read_queue_nums: queues,
        write_queue_nums: queues,
        perm,
        topic_filter_type: "SINGLE_TAG",
        topic_sys_flag: None,
        order: false,
    })
}

fn delete(topic: &str) -> Command {
    Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&TopicHeader { topic })
}

pub(crate) async fn topics(rig: &Rig) -> TopicConfigTable {
    fastjson::from_slice(
        &rig.peer
            .ok(Command::request(request::GET_ALL_TOPIC_CONFIG))
            .await
            .body,
    )
    .unwrap()
}

async fn topic(rig: &Rig, name: &str) -> Option<TopicConfig> {
    topics(rig).await.topic_config_table.remove(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_made_changed_and_deleted() {
    let rig = Rig::start().await;
    let before = topics(&rig).await.data_version;
    rig.peer.ok(create("T", 4, 6)).await;
    assert_eq!(topic(&rig, "T").await.unwrap().write_queue_nums, 4);
    assert_eq!(topics(&rig).await.data_version.counter, before.counter + 1);
    rig.peer.ok(create("T", 8, 4)).await;
    assert_eq!(topic(&rig, "T").await.unwrap().perm, 4);
    assert_eq!(rig.peer.call(send_command("T", 0, "x", "")).await.code, 16);
    rig.peer.ok(create("T", 8, 6)).await;
    rig.peer.send("T", 7, "x").await;
    rig.peer.drain("T", 7, 0, 1).await;
    rig.peer.ok(update(9)).await;
    rig.peer.ok(delete("T")).await;
    assert!(topic(&rig, "T").await.is_none());
    assert_eq!(rig.peer.pull_code("T").await, 17);
    // Made anew it is empty, and nobody has progress in it.
    rig.peer.ok(create("T", 8, 6)).await;
    assert_eq!(rig.peer.send("T", 7, "again").await.offset, 0);
    let offsets = rig
        .peer
        .ok(Command::request(request::GET_ALL_CONSUMER_OFFSET))
        .await;
    assert!(!String::from_utf8_lossy(&offsets.body).contains("T@CG"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_topics_are_refused() {
    let rig = Rig::start().await;
    for command in [
        create("TBW102", 4, 6),
        create("DefaultCluster", 4, 6),
        create("broker-a", 4, 6),
        create("SCHEDULE_TOPIC_XXXX", 4, 6),
        create("a b", 4, 6),
        create("T", -1, 6),
        create("T", i32::MAX, 6),
        create("T", 4, 99),
        delete("OFFSET_MOVED_EVENT"),
    ] {
        let answer = rig.peer.call(command).await;
        assert_eq!(answer.code, 1);
        assert!(answer.remark.is_some_and(|r| !r.is_empty()));
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_are_made_changed_and_deleted() {
    let rig = Rig::start().await;
    let put = |enable| {
        let config = SubscriptionGroupConfig {
            consume_enable: enable,
            ..SubscriptionGroupConfig::new("CG")
        };
        Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(fastjson::to_vec(&config))
    };
    let groups = async || -> SubscriptionGroupTable {
        let all = rig
            .peer
            .ok(Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
            .await;
        fastjson::from_slice(&all.body).unwrap()
    };
    assert!(
        groups()
            .await
            .subscription_group_table
            .contains_key("TOOLS_CONSUMER")
    );
    rig.peer.ok(put(false)).await;
    rig.peer.send("T", 0, "x").await;
    assert_eq!(rig.peer.pull_code("T").await, 16);
    rig.peer.ok(put(true)).await;
    assert_ne!(rig.peer.pull_code("T").await, 16);
    rig.peer.ok(update(3)).await;
    rig.peer
        .ok(
            Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&DeleteSubscriptionGroup {
                group_name: "CG",
                remove_offset: true,
            }),
        )
        .await;
    assert!(!groups().await.subscription_group_table.contains_key("CG"));
    let offsets = rig
        .peer
        .ok(Command::request(request::GET_ALL_CONSUMER_OFFSET))
        .await;
    assert!(!String::from_utf8_lossy(&offsets.body).contains("CG"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statistics_show_queues_and_lags() {
    let rig = Rig::start().await;
    for n in 0..5 {
        rig.peer.send("T", 0, &n.to_string()).await;
    }
    rig.peer.drain("T", 0, 0, 5).await;
    rig.peer.ok(update(2)).await;
    let stats = rig
        .peer
        .ok(Command::request(request::GET_TOPIC_STATS_INFO).with_header(&TopicHeader { topic: "T" }))
        .await;
    let stats: TopicStatsTable = fastjson::from_slice(&stats.body).unwrap();
    assert_eq!(stats.offset_table.len(), 4);
    let (queue, first) = stats.offset_table.iter().next().unwrap();
    assert_eq!(
        (queue.queue_id, queue.broker_name.as_str(), first.max_offset),
        (0, "broker-a", 5)
    );
    assert!(first.last_update_timestamp > 0);
    let item = |stats_name, stats_key| {
        Command::request(request::VIEW_BROKER_STATS_DATA).with_header(&ViewBrokerStats {
            stats_name,
            stats_key,
        })
    };
    rig.peer.ok(item("TOPIC_PUT_NUMS", "T")).await;
    rig.peer.ok(item("GROUP_GET_NUMS", "T@CG")).await;
    assert_eq!(rig.peer.call(item("TOPIC_PUT_NUMS", "Nope")).await.code, 1);
    let none = Command::request(request::GET_TOPIC_STATS_INFO).with_header(&TopicHeader { topic: "Nope" });
    assert_eq!(rig.peer.call(none).await.code, 17);

    let lag = Command::request(request::GET_CONSUME_STATS).with_header(&GetConsumeStats {
        consumer_group: "CG",
        topic: None,
    });
    let lag: ConsumeStats = fastjson::from_slice(&rig.peer.ok(lag).await.body).unwrap();
    let first = lag.offset_table.values().next().unwrap();
    assert_eq!((first.broker_offset, first.consumer_offset), (5, 2));
    let who = Command::request(request::QUERY_TOPIC_CONSUME_BY_WHO).with_header(&TopicHeader { topic: "T" });
    let who: GroupList = fastjson::from_slice(&rig.peer.ok(who).await.body).unwrap();
    assert_eq!(who.group_list, ["CG"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runtime_info_has_what_the_tools_read() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "x").await;
    let info = rig
        .peer
        .ok(Command::request(request::GET_BROKER_RUNTIME_INFO))
        .await;
    let info: KvTable = fastjson::from_slice(&info.body).unwrap();
    for key in [
        "putTps",
        "getTransferedTps",
        "sendThreadPoolQueueSize",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueSize",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pageCacheLockTimeMills",
        "earliestMessageTimeStamp",
        "commitLogDiskRatio",
        "msgPutTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "dispatchBehindBytes",
    ] {
        assert!(info.table.contains_key(key), "{key}");
    }
    assert_eq!(info.table["brokerVersionDesc"], "V4_9_7");
    assert_eq!(info.table["msgPutTotalTodayNow"], "1");
    assert_eq!(info.table["putTps"].split(' ').count(), 3);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_are_shown_and_live_ones_changed_for_good() {
    let mut rig = Rig::start().await;
    let shown = async |rig: &Rig| {
        let answer = rig.peer.ok(Command::request(request::GET_BROKER_CONFIG)).await;
        assert!(answer.ext.get("version").unwrap().contains("counter"));
        Properties::parse(&String::from_utf8_lossy(&answer.body)).unwrap()
    };
    assert_eq!(shown(&rig).await.get("brokerName"), Some("broker-a"));
    let change = |text: &'static str| Command::request(request::UPDATE_BROKER_CONFIG).with_body(text);
    rig.peer.ok(change("traceOn=false\nsomebodyElses=1")).await;
    assert_eq!(shown(&rig).await.get("traceOn"), Some("false"));
    let restart_needed = rig.peer.call(change("traceOn=true\nlistenPort=1")).await;
    assert_eq!(restart_needed.code, 1);
    assert!(restart_needed.remark.unwrap().contains("listenPort"));
    assert_eq!(shown(&rig).await.get("traceOn"), Some("false"), "all or nothing");
    assert_eq!(rig.peer.call(change("configBlackList=")).await.code, 16);
    assert_eq!(rig.peer.call(change("brokerPermission=x")).await.code, 1);
    let kept = std::fs::read_to_string(rig.dir.path().join("config/live.properties")).unwrap();
    assert!(
        kept.contains("traceOn=false") && !kept.contains("somebodyElses"),
        "{kept}"
    );

    rig.peer.ok(change("autoCreateTopicEnable=false")).await;
    assert_eq!(rig.peer.call(send_command("New", 0, "x", "")).await.code, 17);
    rig.peer.ok(change("autoCreateTopicEnable=true")).await;
    rig.peer.ok(send_command("New", 0, "x", "")).await;
    rig.peer.ok(change("brokerPermission=2")).await;
    assert_eq!(rig.peer.pull_code("T").await, 16);
    rig.restart().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_are_found_by_key() {
    let rig = Rig::start().await;
    rig.peer
        .ok(send_command(
            "T",
            0,
            "keyed",
            "KEYS\u{1}k1 k2\u{2}UNIQ_KEY\u{1}U1",
        ))
        .await;
    let by_key = |key, max_num, unique_key| {
        Command::request(request::QUERY_MESSAGE).with_header(&QueryMessage {
            topic: "T",
            key,
            max_num,
            begin_timestamp: 0,
            end_timestamp: i64::MAX,
            unique_key,
        })
    };
    for (key, max, unique) in [
        ("k1", 10, false),
        ("k2", i32::MAX, false),
        ("k2", -1, false),
        ("U1", 0, true),
    ] {
        eventually("the key is indexed", async || {
            rig.peer.call(by_key(key, max, unique)).await.code == 0
        })
        .await;
    }
    assert_eq!(rig.peer.call(by_key("k3", 10, false)).await.code, 22);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cleaning_leaves_known_topics_alone() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "x").await;
    rig.peer.drain("T", 0, 0, 1).await;
    for code in [
        request::CLEAN_EXPIRED_CONSUMEQUEUE,
        request::CLEAN_UNUSED_TOPIC,
        request::DELETE_EXPIRED_COMMITLOG,
    ] {
        rig.peer.ok(Command::request(code)).await;
    }
    assert_eq!(rig.peer.drain("T", 0, 0, 1).await, ["x"]);
    let delay = rig.peer.ok(Command::request(request::GET_ALL_DELAY_OFFSET)).await;
    assert!(delay.body.starts_with(b"{\"offsetTable\":{"));
    assert!(delay.header::<OffsetResponse>().is_err());
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_of_a_queue_are_shown_and_bounded() {
    let rig = Rig::start().await;
    for n in 0..3 {
        rig.peer
            .ok(send_command("T", 0, &format!("{n}"), "TAGS\u{1}a\u{2}"))
            .await;
    }
    rig.peer.drain("T", 0, 0, 3).await;
    let ask = |topic, index, count| {
        Command::request(request::QUERY_CONSUME_QUEUE).with_header(&QueryConsumeQueue {
            topic,
            queue_id: 0,
            index,
            count,
            consumer_group: Some("nobody"),
        })
    };
    for (index, count, units) in [(0, 2, 2), (1, i32::MAX, 2), (2, 1, 1)] {
        let answer = rig.peer.ok(ask("T", index, count)).await;
        let body: QueryConsumeQueueResponseBody = fastjson::from_slice(&answer.body).unwrap();
        assert_eq!((body.min_queue_index, body.max_queue_index), (0, 3));
        assert_eq!(body.queue_data.len(), units);
        assert_eq!(body.filter_data.as_deref(), Some("nobody@T is not online!"));
        assert!(
            body.queue_data
                .iter()
                .all(|unit| unit.tags_code == 97 && unit.physic_size > 0)
        );
    }
    let answer = rig.peer.ok(ask("T", 3, 1)).await;
    assert_eq!(answer.remark.as_deref(), Some("Index 3 of 0@T is not exist!"));
    for (topic, count) in [("Unknown", 1), ("T", -1)] {
        assert_eq!(rig.peer.call(ask(topic, 0, count)).await.code, 1);
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_servers_may_register_but_classes_are_refused() {
    let rig = Rig::start().await;
    let register = Command::request(request::REGISTER_FILTER_SERVER).with_ext("filterServerAddr", "h:1");
    let answer = rig.peer.ok(register).await;
    assert_eq!(answer.ext.get("brokerName"), Some("broker-a"));
    assert_eq!(answer.ext.get("brokerId"), Some("0"));
    let answer = rig
        .peer
        .call(Command::request(request::REGISTER_MESSAGE_FILTER_CLASS))
        .await;
    assert_eq!(answer.code, 1);
    assert!(answer.remark.unwrap().contains("SQL92"));
    rig.stop().await;
}
