//! The rules one by one.

use ferromq_protocol::body::{
    DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable, TopicRouteData,
};
use ferromq_protocol::fastjson;

use super::{EXPIRY_MILLIS, Registered, Registration, RouteTable, UnitTopics};

const A: &str = "10.0.0.1:10911";
const A_SLAVE: &str = "10.0.0.2:10911";

fn who<'a>(name: &'a str, addr: &'a str, id: i64) -> Registration<'a> {
    let channel = addr.bytes().map(u64::from).sum();
    Registration {
        cluster: "C",
        broker_name: name,
        broker_addr: addr,
        broker_id: id,
        ha_addr: "ha:1",
        channel,
        now: 0,
    }
}

fn told(version: i64, topics: &[(&str, i32)]) -> RegisterBrokerBody {
    let configs = topics
        .iter()
        .map(|(t, perm)| ((*t).to_owned(), TopicConfig::new(*t, 4, 4, *perm)));
    RegisterBrokerBody {
        filter_server_list: None,
        topic_config_table: TopicConfigTable {
            data_version: DataVersion {
                counter: version,
                timestamp: 1,
            },
            topic_config_table: configs.collect(),
        },
    }
}

fn route(table: &RouteTable, topic: &str) -> Option<TopicRouteData> {
    table
        .route(topic, || None)
        .map(|bytes| fastjson::from_slice(&bytes).unwrap())
}

fn perms(table: &RouteTable, topic: &str) -> Vec<(String, i32)> {
    let route = route(table, topic);
    route
        .into_iter()
        .flat_map(|r| r.queue_datas)
        .map(|q| (q.broker_name, q.perm))
        .collect()
}

fn pair(name: &str, perm: i32) -> (String, i32) {
    (name.to_owned(), perm)
}

#[test]
fn a_route_is_what_the_reference_shows() {
    let mut table = RouteTable::default();
    let mut who = who("broker-a", A, 0);
    who.cluster = "DefaultCluster";
    table.register(&who, &told(1, &[("TopicTest", 6)]));
    who.broker_addr = A_SLAVE;
    who.broker_id = 1;
    table.register(&who, &told(1, &[]));
    let text = table
        .route("TopicTest", || Some("broker-a:4".to_owned()))
        .unwrap();
    assert_eq!(
        std::str::from_utf8(&text).unwrap(),
        r#"{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}"#
    );
}

#[test]
fn a_route_is_built_once_until_something_changes() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6), ("U", 6)]));
    let first = table.route("T", || None).unwrap();
    let other = table.route("U", || None).unwrap();
    assert_eq!(
        first.as_ptr(),
        table.route("T", || panic!("built again")).unwrap().as_ptr()
    );
    // The same registration again changes nothing.
    table.register(&who("a", A, 0), &told(1, &[("T", 6), ("U", 6)]));
    assert_eq!(
        first.as_ptr(),
        table.route("T", || panic!("built again")).unwrap().as_ptr()
    );
    table.register(&who("a", A, 0), &told(2, &[("T", 4), ("U", 6)]));
    assert_eq!(perms(&table, "T"), [pair("a", 4)]);
    assert_eq!(
        other.as_ptr(),
        table.route("U", || panic!("built again")).unwrap().as_ptr()
    );
}

#[test]
fn what_was_told_before_is_only_a_sign_of_life_until_something_is_missing() {
    let mut table = RouteTable::default();
    let who = who("a", A, 0);
    let body = told(1, &[("T", 6), ("U", 6)]);
    let digest = table.digest(&who, (false, true), b"the body");
    assert_eq!(table.register_again(&who, digest), None);
    table.register_told(&who, &body, digest);
    let mut later = who;
    later.now += EXPIRY_MILLIS;
    assert!(table.register_again(&later, digest).is_some());
    assert!(table.expire(later.now + 1).is_empty(), "it was a sign of life");
    for other in [
        Registration { channel: 99, ..who },
        Registration {
            broker_addr: A_SLAVE,
            ..who
        },
        Registration { broker_id: 1, ..who },
    ] {
        assert_eq!(table.register_again(&other, digest), None);
    }
    let form = table.digest(&who, (true, true), b"the body");
    assert_ne!(form, digest);
    // A topic that was taken out is told anew by the next registration.
    table.delete_topic("T", None);
    assert_eq!(table.register_again(&who, digest), None);
    table.register_told(&who, &body, digest);
    assert_eq!(table.all_topics().topic_list, ["T", "U"]);
    assert!(table.register_again(&who, digest).is_some());
    // Another address took the id.
    table.register(
        &Registration {
            broker_addr: A_SLAVE,
            ..who
        },
        &told(1, &[]),
    );
    assert_eq!(table.register_again(&who, digest), None);
}

#[test]
fn registering_again_never_removes_topics() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6), ("U", 6)]));
    table.register(&who("a", A, 0), &told(2, &[("V", 6)]));
    assert_eq!(table.all_topics().topic_list, ["T", "U", "V"]);
}

#[test]
fn a_topic_told_without_queues_and_permission_leaves() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6)]));
    let mut gone = told(2, &[]);
    gone.topic_config_table
        .topic_config_table
        .insert("T".to_owned(), TopicConfig::new("T", 0, 0, 0));
    table.register(&who("a", A, 0), &gone);
    assert!(route(&table, "T").is_none());
}

#[test]
fn what_is_missing_is_taken_although_the_version_is_known() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6), ("U", 6)]));
    table.delete_topic("T", None);
    table.wipe_write_perm("a");
    table.register(&who("a", A, 0), &told(1, &[("T", 6), ("U", 6)]));
    assert_eq!(perms(&table, "T"), [pair("a", 6)]);
    assert_eq!(perms(&table, "U"), [pair("a", 4)]);
}

#[test]
fn wiped_permission_stays_until_the_version_changes() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 7), ("R", 4)]));
    assert_eq!(table.wipe_write_perm("a"), 2);
    table.register(&who("a", A, 0), &told(1, &[("T", 7), ("R", 4)]));
    assert_eq!(perms(&table, "T"), [pair("a", 5)]);
    // Adding gives read and write, whatever was there before.
    assert_eq!(table.add_write_perm("a"), 2);
    assert_eq!(perms(&table, "T"), [pair("a", 6)]);
    assert_eq!(perms(&table, "R"), [pair("a", 6)]);
    table.register(&who("a", A, 0), &told(2, &[("T", 7)]));
    assert_eq!(perms(&table, "T"), [pair("a", 7)]);
    assert_eq!(table.wipe_write_perm("nobody"), 0);
}

#[test]
fn slaves_add_no_topics_and_learn_their_master() {
    let mut table = RouteTable::default();
    let alone = table.register(&who("a", A_SLAVE, 1), &told(1, &[("T", 6)]));
    assert_eq!(alone, Registered::default());
    assert!(route(&table, "T").is_none());
    let master = table.register(&who("a", A, 0), &told(1, &[("T", 6)]));
    assert_eq!(master, Registered::default());
    let slave = table.register(&who("a", A_SLAVE, 1), &told(1, &[]));
    assert_eq!(
        slave,
        Registered {
            ha_addr: Some("ha:1".to_owned()),
            master_addr: Some(A.to_owned())
        }
    );
}

#[test]
fn a_slave_that_became_master_keeps_one_id() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6)]));
    table.register(&who("a", A_SLAVE, 1), &told(1, &[]));
    table.channel_closed(who("a", A, 0).channel);
    // Without master: readable still.
    assert_eq!(route(&table, "T").unwrap().broker_datas[0].broker_addrs.len(), 1);
    table.register(&who("a", A_SLAVE, 0), &told(2, &[("T", 6)]));
    let addrs = &route(&table, "T").unwrap().broker_datas[0].broker_addrs;
    assert_eq!(
        addrs.iter().map(|(i, a)| (*i, a.as_str())).collect::<Vec<_>>(),
        [(0, A_SLAVE)]
    );
}

#[test]
fn a_replaced_master_cannot_take_its_successor_out() {
    let mut table = RouteTable::default();
    let new = "10.0.0.9:10911";
    table.register(&who("a", A, 0), &told(1, &[("T", 6)]));
    table.register(&who("a", new, 0), &told(1, &[("T", 6)]));
    table.unregister("a", A, 0);
    table.channel_closed(who("a", A, 0).channel);
    assert_eq!(route(&table, "T").unwrap().broker_datas[0].broker_addrs[&0], new);
}

#[test]
fn the_last_address_takes_all_of_its_name_along() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6), ("U", 6)]));
    table.register(&who("b", "b:1", 0), &told(1, &[("U", 6)]));
    table.unregister("a", A, 0);
    assert!(route(&table, "T").is_none());
    assert_eq!(perms(&table, "U"), [pair("b", 6)]);
    table.unregister("b", "b:1", 0);
    assert_eq!(table.sizes(), super::Sizes::default());
}

#[test]
fn brokers_expire_after_two_minutes_of_silence() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6)]));
    assert!(table.expire(EXPIRY_MILLIS).is_empty());
    let same = DataVersion {
        counter: 1,
        timestamp: 1,
    };
    assert_eq!(
        table.query_data_version("a", A, 0, same, 50_000),
        (false, Some(same))
    );
    assert!(table.expire(50_000 + EXPIRY_MILLIS).is_empty());
    let other = DataVersion {
        counter: 2,
        timestamp: 1,
    };
    assert_eq!(
        table.query_data_version("a", A, 0, other, 60_000),
        (true, Some(same))
    );
    // That did not count as a sign of life.
    assert_eq!(
        table.expire(50_001 + EXPIRY_MILLIS),
        [(A.to_owned(), who("a", A, 0).channel)]
    );
    assert_eq!(table.query_data_version("a", A, 0, same, 60_000), (true, None));
    assert!(route(&table, "T").is_none());
}

#[test]
fn a_closed_old_connection_does_not_matter_after_a_new_one() {
    let mut table = RouteTable::default();
    let mut first = who("a", A, 0);
    first.channel = 1;
    table.register(&first, &told(1, &[("T", 6)]));
    first.channel = 2;
    table.register(&first, &told(1, &[("T", 6)]));
    assert!(table.channel_closed(1).is_empty());
    assert!(route(&table, "T").is_some());
    assert_eq!(table.channel_closed(2), [A]);
    assert!(route(&table, "T").is_none());
}

#[test]
fn filter_servers_come_and_go() {
    let mut table = RouteTable::default();
    let mut body = told(1, &[("T", 6)]);
    body.filter_server_list = Some(vec!["f:1".to_owned()]);
    table.register(&who("a", A, 0), &body);
    assert_eq!(route(&table, "T").unwrap().filter_server_table[A], ["f:1"]);
    body.filter_server_list = None;
    table.register(&who("a", A, 0), &body);
    assert_eq!(route(&table, "T").unwrap().filter_server_table[A], ["f:1"]);
    body.filter_server_list = Some(vec![]);
    table.register(&who("a", A, 0), &body);
    assert!(route(&table, "T").unwrap().filter_server_table.is_empty());
}

#[test]
fn filter_servers_of_an_address_show_under_all_its_names() {
    let mut table = RouteTable::default();
    let mut body = told(1, &[("T", 6)]);
    body.filter_server_list = Some(vec!["f:1".to_owned()]);
    table.register(&who("old-name", A, 0), &body);
    assert_eq!(route(&table, "T").unwrap().filter_server_table.len(), 1);
    // The broker was renamed and told nothing about the old name.
    body.filter_server_list = Some(vec![]);
    table.register(&who("new-name", A, 0), &body);
    assert!(route(&table, "T").unwrap().filter_server_table.is_empty());
    assert_eq!(route(&table, "T").unwrap().broker_datas.len(), 2);
    table.channel_closed(who("a", A, 0).channel);
    assert_eq!(table.sizes(), super::Sizes::default());
}

#[test]
fn topics_are_deleted_everywhere_or_in_one_cluster() {
    let mut table = RouteTable::default();
    table.register(&who("a", A, 0), &told(1, &[("T", 6), ("U", 6)]));
    let other = Registration {
        cluster: "D",
        ..who("b", "b:1", 0)
    };
    table.register(&other, &told(1, &[("T", 6), ("U", 6)]));
    table.delete_topic("T", Some("D"));
    table.delete_topic("U", None);
    table.delete_topic("U", Some("nobody"));
    assert_eq!(perms(&table, "T"), [pair("a", 6)]);
    assert!(route(&table, "U").is_none());
}

#[test]
fn lists() {
    let mut table = RouteTable::default();
    let mut body = told(1, &[("plain", 6)]);
    for (topic, flag) in [("unit", 1), ("sub", 2), ("both", 3)] {
        let config = TopicConfig {
            topic_sys_flag: flag,
            ..TopicConfig::new(topic, 4, 4, 6)
        };
        body.topic_config_table
            .topic_config_table
            .insert(topic.to_owned(), config);
    }
    table.register(&who("a", A, 0), &body);
    table.register(
        &Registration {
            cluster: "D",
            ..who("b", "b:1", 0)
        },
        &told(1, &[("other", 6)]),
    );
    assert_eq!(table.unit_topics(UnitTopics::Unit).topic_list, ["both", "unit"]);
    assert_eq!(table.unit_topics(UnitTopics::UnitSub).topic_list, ["both", "sub"]);
    assert_eq!(table.unit_topics(UnitTopics::UnitSubNotUnit).topic_list, ["sub"]);
    assert_eq!(table.topics_of_cluster("D").topic_list, ["other"]);
    assert!(table.topics_of_cluster("nobody").topic_list.is_empty());
    let system = table.system_topics();
    assert_eq!(system.topic_list, ["C", "D", "a", "b"]);
    assert_eq!(system.broker_addr.as_deref(), Some(A));
    let info = table.cluster_info();
    assert_eq!(info.cluster_addr_table["C"], ["a"]);
    assert_eq!(info.broker_addr_table["b"].broker_addrs[&0], "b:1");
}
