//! JSON as Java writes it, and text that is none.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;

use super::*;
use crate::body::{
    BrokerData, ClusterInfo, ConsumeStats, ConsumerConnection, ConsumerRunningInfo, DelayOffsetTable,
    GetConsumerStatusBody, HeartbeatData, KvTable, LockBatchRequestBody, MessageModel, MessageQueue,
    OffsetWrapper, QueueData, ResetOffsetBody, SubscriptionGroupConfig, TopicConfig, TopicFilterType,
    TopicOffset, TopicRouteData, TopicStatsTable,
};

fn text<T: Serialize>(v: &T) -> String {
    String::from_utf8(to_vec(v)).unwrap()
}

#[test]
fn route_as_java_writes_it() {
    let java = br#"{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#;
    let route: TopicRouteData = from_slice(java).unwrap();
    let expected = TopicRouteData {
        broker_datas: vec![BrokerData {
            broker_addrs: [(0, "10.0.0.1:10911".into()), (1, "10.0.0.2:10911".into())].into(),
            broker_name: "broker-a".into(),
            cluster: "DefaultCluster".into(),
        }],
        filter_server_table: BTreeMap::new(),
        order_topic_conf: Some("broker-a:4".into()),
        queue_datas: vec![QueueData {
            broker_name: "broker-a".into(),
            perm: 6,
            read_queue_nums: 4,
            topic_sys_flag: 0,
            write_queue_nums: 4,
        }],
    };
    assert_eq!(route, expected);
    // Bare keys give Java's bytes, quoted ones are valid JSON.
    assert_eq!(to_vec_java(&route), java);
    let ours = to_vec(&route);
    assert!(
        String::from_utf8_lossy(&ours)
            .contains(r#""brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"}"#)
    );
    assert!(serde_json::from_slice::<serde_json::Value>(&ours).is_ok());
    assert_eq!(from_slice::<TopicRouteData>(&ours).unwrap(), expected);
    assert_eq!(route.broker_datas[0].select_address(), Some("10.0.0.1:10911"));
    // The topic of an older peer, and an absent order.
    let old: TopicRouteData = from_slice(br#"{"queueDatas":[{"topicSynFlag":3,"perm":"4"}]}"#).unwrap();
    assert_eq!(
        (old.queue_datas[0].topic_sys_flag, old.queue_datas[0].perm),
        (3, 4)
    );
    assert!(!text(&old).contains("orderTopicConf"));
    let both: QueueData = from_slice(br#"{"topicSynFlag":3,"topicSysFlag":3,"perm":2,"perm":6}"#).unwrap();
    assert_eq!((both.topic_sys_flag, both.perm), (3, 2));
}

#[test]
fn standard_mode_escapes() {
    let kv: KvTable = from_slice(
        br#"{"table":{"a\/b":"\u4e2d\u6587 \ud83d\ude00 \ud83d x","n":5,"t":true,"o":{"x":[1]},"z":null}}"#,
    )
    .unwrap();
    assert_eq!(kv.table["a/b"], "中文 😀 \u{FFFD} x");
    assert_eq!(
        (
            kv.table["n"].as_str(),
            kv.table["t"].as_str(),
            kv.table["o"].as_str()
        ),
        ("5", "true", r#"{"x":[1]}"#)
    );
    assert!(!kv.table.contains_key("z"));
}

#[test]
fn queue_keyed_maps() {
    let java = r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:6}}"#;
    let body: ResetOffsetBody = from_slice(java.as_bytes()).unwrap();
    let expected: BTreeMap<_, _> = [
        (MessageQueue::new("T", "b", 0), 5),
        (MessageQueue::new("T", "b", 1), 6),
    ]
    .into();
    assert_eq!(body.offset_table, expected);
    assert_eq!(text(&body), java);
    // The object's text as a quoted key, members in another order, white space.
    let quoted = r#" { "offsetTable" : { "{\"topic\":\"T\",\"queueId\":\"0\",\"brokerName\":\"b\"}" : "5" , { "queueId" : 1, "brokerName":"b","topic":"T" } : 6 } } "#;
    assert_eq!(from_slice::<ResetOffsetBody>(quoted.as_bytes()).unwrap(), body);

    let stats = TopicStatsTable {
        offset_table: [(
            MessageQueue::new("T", "b", 0),
            TopicOffset {
                last_update_timestamp: 1,
                max_offset: 2,
                min_offset: 0,
            },
        )]
        .into(),
    };
    let expected = r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":1,"maxOffset":2,"minOffset":0}}}"#;
    assert_eq!(text(&stats), expected);
    assert_eq!(from_slice::<TopicStatsTable>(expected.as_bytes()).unwrap(), stats);

    let consume = ConsumeStats {
        consume_tps: 0.0,
        offset_table: [(
            MessageQueue::new("T", "b", 0),
            OffsetWrapper {
                broker_offset: 9,
                consumer_offset: i64::MAX,
                last_timestamp: 0,
            },
        )]
        .into(),
    };
    let written = text(&consume);
    assert!(
        written.starts_with(r#"{"consumeTps":0.0,"offsetTable":{{"#),
        "{written}"
    );
    assert_eq!(from_slice::<ConsumeStats>(written.as_bytes()).unwrap(), consume);
}

#[test]
fn references_read_as_empty() {
    let body = br#"{"consumerTable":{"c1":{{"brokerName":"b","queueId":0,"topic":"T"}:5}},"messageQueueTable":{"$ref":"$.consumerTable.c1"}}"#;
    let status: GetConsumerStatusBody = from_slice(body).unwrap();
    assert_eq!(status.consumer_table["c1"].len(), 1);
    assert!(status.message_queue_table.is_empty());
}

#[test]
fn heartbeats() {
    let java = r#"{"clientID":"10.0.0.9@12345#678","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","consumeType":"CONSUME_PASSIVELY","groupName":"CG","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[2598919,2598920],"expressionType":"TAG","subString":"TagA || TagB","subVersion":1640995200123,"tagsSet":["TagA","TagB"],"topic":"TopicTest"}],"unitMode":false}],"producerDataSet":[{"groupName":"PG"}]}"#;
    let beat: HeartbeatData = from_slice(java.as_bytes()).unwrap();
    assert_eq!(text(&beat), java);
    let mut made = crate::body::SubscriptionData::by_tags("TopicTest", "TagA || TagB");
    made.sub_version = 1_640_995_200_123;
    assert_eq!(beat.consumer_data_set[0].subscription_data_set[0], made);
    // Go's spelling, an unknown constant, an ordinal, a null.
    let go = br#"{"clientID":"c","consumerDataSet":[{"groupName":"g","messageModel":"BroadCasting","consumeType":"NEVER","consumeFromWhere":4,"subscriptionDataSet":[null]}],"producerDataSet":null}"#;
    let beat: HeartbeatData = from_slice(go).unwrap();
    let group = &beat.consumer_data_set[0];
    assert_eq!(group.message_model, Some(MessageModel::Broadcasting));
    assert_eq!(group.consume_type, None);
    assert_eq!(
        group.consume_from_where,
        Some(crate::body::ConsumeFromWhere::FirstOffset)
    );
    assert!(group.subscription_data_set.is_empty());
    assert!(!text(&beat).contains("consumeType"));
    for bad in ["{}", "[1]", "true", "1.5", "\"\"", "-1", "99"] {
        let one = format!(r#"{{"consumeType":{bad}}}"#);
        assert_eq!(
            from_slice::<ConsumerConnection>(one.as_bytes())
                .unwrap()
                .consume_type,
            None,
            "{bad}"
        );
    }
}

#[test]
fn defaults_of_absent_members() {
    let group: SubscriptionGroupConfig =
        from_slice(br#"{"groupName":"G","unknown":{"a":[1,{2:3}]}}"#).unwrap();
    assert_eq!(group, SubscriptionGroupConfig::new("G"));
    assert!(
        group.consume_enable && group.retry_max_times == 16 && group.which_broker_when_consume_slowly == 1
    );
    let topic: TopicConfig = from_slice(br#"{"topicName":"T","topicFilterType":"multi_tag"}"#).unwrap();
    assert_eq!(
        (topic.perm, topic.read_queue_nums, topic.topic_filter_type),
        (6, 16, Some(TopicFilterType::MultiTag))
    );
    assert_eq!(
        from_slice::<TopicConfig>(b"null").unwrap(),
        TopicConfig::default()
    );
}

#[test]
fn integer_keys() {
    let table: DelayOffsetTable = from_slice(br#"{"offsetTable":{3:12,"18":1,-1:0}}"#).unwrap();
    assert_eq!(table.offset_table, [(-1, 0), (3, 12), (18, 1)].into());
    assert_eq!(text(&table), r#"{"offsetTable":{"-1":0,"3":12,"18":1}}"#);
    assert_eq!(to_vec_java(&table), br#"{"offsetTable":{-1:0,3:12,18:1}}"#);
    // Tables of Java's files are indented with tabs.
    let indented = b"{\n\t\"offsetTable\":{3:12,\n\t\t18:1\n\t}\n}";
    assert_eq!(
        from_slice::<DelayOffsetTable>(indented)
            .unwrap()
            .offset_table
            .len(),
        2
    );
}

#[test]
fn numbers() {
    #[derive(Deserialize, Default, Debug, PartialEq)]
    #[serde(default)]
    struct N {
        i: i32,
        l: i64,
        f: f64,
        b: bool,
        s: String,
    }
    let read = |text: &str| from_slice::<N>(text.as_bytes());
    assert_eq!(
        read(r#"{"i":"5","l":9223372036854775807,"f":"1.5","b":"true","s":12}"#).unwrap(),
        N {
            i: 5,
            l: i64::MAX,
            f: 1.5,
            b: true,
            s: "12".into()
        }
    );
    assert_eq!(
        read(r#"{"i":5.9,"l":"","f":null,"b":1,"s":false}"#).unwrap(),
        N {
            i: 5,
            l: 0,
            f: 0.0,
            b: true,
            s: "false".into()
        }
    );
    for bad in [
        r#"{"i":2147483648}"#,
        r#"{"i":"x"}"#,
        r#"{"l":1e30}"#,
        r#"{"f":"x"}"#,
        r#"{"i":[]}"#,
        r#"{"i":--1}"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[test]
fn running_info_properties_may_be_numbers() {
    let info: ConsumerRunningInfo =
        from_slice(br#"{"properties":{"PROP_CONSUMER_START_TIMESTAMP":1640995200000,"a":"b"}}"#).unwrap();
    assert_eq!(info.properties["PROP_CONSUMER_START_TIMESTAMP"], "1640995200000");
}

#[test]
fn garbage_is_refused() {
    for bad in [
        "",
        " ",
        "{",
        "}",
        "{}}",
        "{} x",
        "[]",
        "5",
        "\"x\"",
        "{\"clusterAddrTable\"}",
        "{\"clusterAddrTable\":}",
        "{:1}",
        "{,}",
        "{\"a\":1,}",
        "{\"a\":1 \"b\":2}",
        "{\"a\":\"",
        "{\"a\":\"\\",
        "{\"brokerAddrTable\":[]}",
        "{a:tru}",
        "{\"a\":\"\\u",
    ] {
        assert!(from_slice::<ClusterInfo>(bad.as_bytes()).is_err(), "{bad}");
    }
    for bad in [
        r#""\q""#,
        r#""\u12""#,
        r#""\u12G4""#,
        r#""\"#,
        r#""\u"#,
        r#""\ud83d\u"#,
    ] {
        assert!(
            from_slice::<KvTable>(format!("{{\"table\":{{\"a\":{bad}}}}}").as_bytes()).is_err(),
            "{bad}"
        );
    }
    assert!(from_slice::<KvTable>(b"{\"table\":{\"a\":\"\xFF\"}}").is_err());
    assert!(from_slice::<KvTable>(b"{\"table\":{\xFF:\"a\"}}").is_err());
    let e = from_slice::<ClusterInfo>(b"{} x").unwrap_err();
    assert_eq!(
        (e.position(), e.to_string().as_str()),
        (3, "expected the end of the document, found 'x' (at byte 3)")
    );
}

#[test]
fn nesting_is_limited() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("{{\"a\":1}:", "}")] {
        let nested = |n: usize| format!("{{\"a\":{}1{}}}", open.repeat(n), close.repeat(n));
        assert!(
            from_slice::<KvTable>(nested(MAX_DEPTH - 2).as_bytes()).is_ok(),
            "{open}"
        );
        assert!(
            from_slice::<KvTable>(nested(MAX_DEPTH + 1).as_bytes()).is_err(),
            "{open}"
        );
        assert!(
            from_slice::<KvTable>(nested(1_000_000).as_bytes()).is_err(),
            "{open}"
        );
    }
    // Keys in keys as well.
    let keys = format!("{{\"offsetTable\":{}", "{".repeat(100_000));
    assert!(from_slice::<ResetOffsetBody>(keys.as_bytes()).is_err());
}

#[test]
fn objects_are_limited() {
    let many = format!("{{\"consumerDataSet\":[{}{{}}]}}", "{},".repeat(MAX_OBJECTS));
    let e = from_slice::<HeartbeatData>(many.as_bytes()).unwrap_err();
    assert!(e.to_string().contains("1000000 objects"), "{e}");
}

#[test]
fn not_a_number_vanishes() {
    let stats = ConsumeStats {
        consume_tps: f64::NAN,
        ..ConsumeStats::default()
    };
    assert_eq!(text(&stats), r#"{"offsetTable":{}}"#);
}

fn any_queue() -> impl Strategy<Value = MessageQueue> {
    (".*", ".*", any::<i32>()).prop_map(|(t, b, i)| MessageQueue::new(t, b, i))
}

proptest! {
    #[test]
    fn queue_maps_round_trip(table in prop::collection::btree_map(any_queue(), any::<i64>(), 0..6)) {
        let body = ResetOffsetBody { offset_table: table };
        prop_assert_eq!(&from_slice::<ResetOffsetBody>(&to_vec(&body)).unwrap(), &body);
        prop_assert_eq!(&from_slice::<ResetOffsetBody>(&to_vec_java(&body)).unwrap(), &body);
    }

    #[test]
    fn text_maps_round_trip(table in prop::collection::btree_map(".*".prop_filter("a reference", |k| k != "$ref"), ".*", 0..6)) {
        let body = KvTable { table };
        let written = to_vec(&body);
        prop_assert_eq!(&from_slice::<KvTable>(&written).unwrap(), &body);
        // Any standard reader agrees.
        let standard: serde_json::Value = serde_json::from_slice(&written).unwrap();
        prop_assert_eq!(standard, serde_json::to_value(&body).unwrap());
    }

    #[test]
    fn locks_round_trip(client_id in ".*", consumer_group in ".*", mq_set in prop::collection::vec(any_queue(), 0..4)) {
        let body = LockBatchRequestBody { client_id, consumer_group, mq_set };
        prop_assert_eq!(&from_slice::<LockBatchRequestBody>(&to_vec(&body)).unwrap(), &body);
    }

    #[test]
    fn hostile_text_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _any = from_slice::<HeartbeatData>(&bytes);
        let _any = from_slice::<ResetOffsetBody>(&bytes);
    }

    #[test]
    fn hostile_json_never_panics(text in r#"[\[\]{}:,"\\0-9a-z$ .eu-]{0,80}"#) {
        let _any = from_slice::<ConsumerRunningInfo>(text.as_bytes());
        let _any = from_slice::<TopicRouteData>(text.as_bytes());
        let _any = from_slice::<ResetOffsetBody>(format!("{{\"offsetTable\":{text}}}").as_bytes());
    }

    #[test]
    fn cut_text_never_panics(cut in 0_usize..200) {
        let whole = br#"{"offsetTable":{{"brokerName":"b\u0041","queueId":0,"topic":"T"}:5},"x":[1,2.5e3,true,null],"y":{0:"a"}}"#;
        let _any = from_slice::<ResetOffsetBody>(&whole[..cut.min(whole.len())]);
    }
}
