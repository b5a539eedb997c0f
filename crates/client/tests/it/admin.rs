//! Administrative calls: the requests they make and the answers they read, in the form Java writes them.

use ferromq_client::admin::{
    Admin, BrokerIdentity, KeyQuery, SubscriptionGroupConfig, TopicConfig, TopicFilterType,
};
use ferromq_client::{ClientError, Message, MessageQueue, ProducerConfig};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;

use crate::fake::Cluster;

fn admin(cluster: &Cluster) -> (Admin, String, String) {
    let admin = Admin::new(&cluster.config()).unwrap();
    (
        admin,
        cluster.names.running.address.to_string(),
        cluster.brokers[0].address(),
    )
}

#[tokio::test]
async fn name_server_tables_are_read() {
    let cluster = Cluster::start(&["a"], 1);
    let (admin, name_server, _) = admin(&cluster);
    cluster.names.set_body(
        request::GET_BROKER_CLUSTER_INFO,
        r#"{"brokerAddrTable":{"a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"a","cluster":"C"}},"clusterAddrTable":{"C":["a"]}}"#,
    );
    let info = admin.cluster_info().await.unwrap();
    assert_eq!(info, admin.cluster_info_at(&name_server).await.unwrap());
    assert_eq!(info.broker_addr_table["a"].broker_addrs[&1], "10.0.0.2:10911");
    cluster.names.set_body(
        request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        r#"{"topicList":["b","a","b"]}"#,
    );
    assert_eq!(admin.topic_list().await.unwrap(), ["a", "b"]);
    assert_eq!(admin.topic_list_at(&name_server).await.unwrap(), ["a", "b"]);
    cluster
        .names
        .set_body(request::GET_TOPICS_BY_CLUSTER, r#"{"topicList":["x"]}"#);
    assert_eq!(admin.topics_of_cluster("C").await.unwrap(), ["x"]);
    let asked = cluster.names.asked(request::GET_TOPICS_BY_CLUSTER);
    assert_eq!(asked[0].ext.get("cluster"), Some("C"));
    assert_eq!(admin.name_servers().await.unwrap(), [name_server]);
}

#[tokio::test]
async fn name_server_state_is_changed() {
    let cluster = Cluster::start(&["a"], 1);
    let (admin, name_server, _) = admin(&cluster);
    let at = name_server.as_str();
    assert_eq!(admin.get_kv(at, "NS", "k").await.unwrap(), None);
    admin.put_kv(at, "NS", "k", "v").await.unwrap();
    assert_eq!(admin.get_kv(at, "NS", "k").await.unwrap().as_deref(), Some("v"));
    admin.delete_kv(at, "NS", "k").await.unwrap();
    assert_eq!(admin.get_kv(at, "NS", "k").await.unwrap(), None);
    cluster
        .names
        .set_body(request::GET_KVLIST_BY_NAMESPACE, r#"{"table":{"T":"a:4"}}"#);
    assert_eq!(admin.list_kv(at, "NS").await.unwrap()["T"], "a:4");
    assert_eq!(admin.wipe_write_perm(at, "a").await.unwrap(), 3);
    admin
        .delete_topic_in_name_server(at, "T", Some("C"))
        .await
        .unwrap();
    let asked = cluster.names.asked(request::DELETE_TOPIC_IN_NAMESRV);
    assert_eq!(asked[0].ext.get("clusterName"), Some("C"));
    assert!(matches!(
        admin.route_at(at, "T").await.unwrap_err(),
        ClientError::NoRoute { .. }
    ));
    cluster.names.set_body(request::UNREGISTER_BROKER, "");
    let broker = BrokerIdentity {
        broker_name: "a",
        broker_addr: "b:1",
        cluster_name: "C",
        broker_id: 0,
    };
    admin.unregister_broker(at, &broker).await.unwrap();
    let asked = cluster.names.asked(request::UNREGISTER_BROKER);
    assert_eq!(asked[0].ext.get("brokerAddr"), Some("b:1"));
}

#[tokio::test]
async fn topics_and_groups_are_read_and_changed() {
    let cluster = Cluster::start(&["a"], 1);
    let (admin, _, address) = admin(&cluster);
    let broker = &cluster.brokers[0];
    let topic = TopicConfig {
        topic_filter_type: Some(TopicFilterType::MultiTag),
        ..TopicConfig::new("T", 3, 4, 6)
    };
    admin.create_topic(&address, &topic).await.unwrap();
    let asked = broker.asked(request::UPDATE_AND_CREATE_TOPIC).remove(0);
    let fields = [
        "topic",
        "readQueueNums",
        "writeQueueNums",
        "perm",
        "topicFilterType",
        "defaultTopic",
        "order",
    ];
    let values: Vec<_> = fields
        .iter()
        .map(|name| asked.ext.get(name).unwrap_or("-"))
        .collect();
    assert_eq!(values, ["T", "3", "4", "6", "MULTI_TAG", "TBW102", "false"]);
    broker.set_body(
        request::GET_ALL_TOPIC_CONFIG,
        r#"{"dataVersion":{"counter":7,"timestamp":1640995200000},"topicConfigTable":{"T":{"order":false,"perm":6,"readQueueNums":3,"topicFilterType":"SINGLE_TAG","topicName":"T","topicSysFlag":0,"writeQueueNums":4}}}"#,
    );
    let table = admin.topics(&address).await.unwrap();
    assert_eq!(
        (
            table.data_version.counter,
            table.topic_config_table["T"].write_queue_nums
        ),
        (7, 4)
    );
    admin.delete_topic_in_broker(&address, "T").await.unwrap();
    assert_eq!(
        broker.asked(request::DELETE_TOPIC_IN_BROKER)[0].ext.get("topic"),
        Some("T")
    );

    let group = SubscriptionGroupConfig {
        retry_max_times: 3,
        ..SubscriptionGroupConfig::new("G")
    };
    admin.upsert_group(&address, &group).await.unwrap();
    let sent = broker
        .asked(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
        .remove(0);
    assert_eq!(
        fastjson::from_slice::<SubscriptionGroupConfig>(&sent.body).unwrap(),
        group
    );
    broker.set_body(
        request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        r#"{"dataVersion":{"counter":1,"timestamp":2},"subscriptionGroupTable":{"G":{"groupName":"G","retryMaxTimes":3}}}"#,
    );
    assert_eq!(
        admin.groups(&address).await.unwrap().subscription_group_table["G"],
        group
    );
    admin.delete_group(&address, "G", true).await.unwrap();
    let asked = broker.asked(request::DELETE_SUBSCRIPTIONGROUP).remove(0);
    assert_eq!(
        (asked.ext.get("groupName"), asked.ext.get("removeOffset")),
        (Some("G"), Some("true"))
    );
}

#[tokio::test]
async fn figures_are_read_in_javas_form() {
    let cluster = Cluster::start(&["a"], 1);
    let (admin, _, address) = admin(&cluster);
    let broker = &cluster.brokers[0];
    let queue = MessageQueue::new("T", "a", 1);
    broker.set_body(
        request::GET_TOPIC_STATS_INFO,
        r#"{"offsetTable":{{"brokerName":"a","queueId":1,"topic":"T"}:{"lastUpdateTimestamp":3,"maxOffset":2,"minOffset":1}}}"#,
    );
    let stats = admin.topic_stats(&address, "T").await.unwrap();
    assert_eq!(
        (
            stats.offset_table[&queue].min_offset,
            stats.offset_table[&queue].max_offset
        ),
        (1, 2)
    );
    broker.set_body(
        request::GET_CONSUME_STATS,
        r#"{"consumeTps":0.0,"offsetTable":{{"brokerName":"a","queueId":1,"topic":"T"}:{"brokerOffset":9,"consumerOffset":4,"lastTimestamp":0}}}"#,
    );
    let stats = admin.consume_stats(&address, "G", Some("T")).await.unwrap();
    assert_eq!(stats.offset_table[&queue].consumer_offset, 4);
    broker.set_body(
        request::GET_BROKER_RUNTIME_INFO,
        r#"{"table":{"putTps":"1.0 2.0 3.0"}}"#,
    );
    assert_eq!(
        admin.runtime_info(&address).await.unwrap()["putTps"],
        "1.0 2.0 3.0"
    );
    broker.set_body(request::GET_BROKER_CONFIG, "brokerName=a\nfileReservedTime=72\n");
    assert_eq!(
        admin.broker_config(&address).await.unwrap()["fileReservedTime"],
        "72"
    );
    admin
        .update_broker_config(&address, [("fileReservedTime", "48")])
        .await
        .unwrap();
    assert_eq!(
        broker.asked(request::UPDATE_BROKER_CONFIG)[0].body,
        "fileReservedTime=48\n"
    );
    broker.set_body(request::QUERY_TOPIC_CONSUME_BY_WHO, r#"{"groupList":["h","g"]}"#);
    assert_eq!(admin.groups_of_topic(&address, "T").await.unwrap(), ["g", "h"]);
}

#[tokio::test]
async fn messages_are_found_by_id_and_key() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let (admin, _, address) = admin(&cluster);
    assert!(
        admin
            .query_by_key(&address, &KeyQuery::new("T", "k"))
            .await
            .unwrap()
            .is_empty()
    );
    let producer = client.producer(ProducerConfig::new("PG"));
    let receipt = producer
        .send(Message::new("T", "hello").key("k").property("p", "v"))
        .await
        .unwrap();
    let message = admin.message_by_id(&receipt.offset_ids[0]).await.unwrap();
    assert_eq!((&*message.topic, message.property("p")), ("T", Some("v")));
    assert_eq!(message.offset_id(), receipt.offset_ids[0]);
    let found = admin
        .query_by_key(&address, &KeyQuery::new("T", "k"))
        .await
        .unwrap();
    assert_eq!(found, [message]);
    let error = admin.view_message(&address, 99).await.unwrap_err();
    assert_eq!(error.code(), Some(1));
    assert!(error.to_string().contains("VIEW_MESSAGE_BY_ID"), "{error}");
    let error = admin.message_by_id("xyz").await.unwrap_err();
    assert!(matches!(error, ClientError::InvalidArgument { .. }), "{error}");
    client.shutdown().await;
}

#[tokio::test]
async fn damaged_answers_are_errors_that_name_the_peer() {
    let cluster = Cluster::start(&["a"], 1);
    let (admin, _, address) = admin(&cluster);
    for damaged in ["", "{", "[1]", "\u{1}"] {
        cluster.brokers[0].set_body(request::GET_ALL_TOPIC_CONFIG, damaged);
        let error = admin.topics(&address).await.unwrap_err();
        assert!(
            matches!(error, ClientError::BadAnswer { .. }),
            "{damaged:?}: {error}"
        );
        assert!(error.to_string().contains(&address), "{error}");
    }
}

#[tokio::test]
async fn an_address_where_nobody_listens_is_unreachable() {
    let cluster = Cluster::start(&["a"], 1);
    let (admin, _, address) = admin(&cluster);
    cluster.brokers[0].running.end().await;
    let error = admin.runtime_info(&address).await.unwrap_err();
    assert!(
        error.is_unreachable() && matches!(error, ClientError::Connect { .. }),
        "{error}"
    );
    let error = admin.runtime_info("no port").await.unwrap_err();
    assert!(matches!(error, ClientError::BadAddress { .. }), "{error}");
}
