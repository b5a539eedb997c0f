//! Topics, groups, brokers, clusters.

use crate::cluster::{Cluster, wait_for};

#[test]
fn a_topic_lives_from_creation_to_deletion() {
    let cluster = Cluster::start();
    let done = cluster.json(&["topic", "create", "orders", "-r", "4", "-w", "3"]);
    assert_eq!(done["brokers"][0], "broker-a");
    wait_for("the topic's route", || {
        cluster.run(&["topic", "route", "orders"]).code == 0
    });
    let rows = cluster.json(&["topic", "get", "orders"]);
    assert_eq!(
        (&rows[0]["read_queues"], &rows[0]["write_queues"]),
        (&4.into(), &3.into()),
        "{rows}"
    );
    assert_eq!(rows[0]["perm"], "RW");
    let route = cluster.json(&["topic", "route", "orders"]);
    assert_eq!(route["queueDatas"][0]["readQueueNums"], 4, "{route}");
    assert_eq!(
        route["brokerDatas"][0]["brokerAddrs"]["0"],
        cluster.broker_address.as_str()
    );
    assert_eq!(cluster.json(&["topic", "list"]), serde_json::json!(["orders"]));
    assert!(cluster.run(&["topicList"]).fine().out.contains("TBW102"));
    let table = cluster.run(&["topic", "route", "orders"]).fine().out;
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    assert!(
        cluster
            .run(&["-o", "yaml", "topic", "list"])
            .fine()
            .out
            .contains("- orders")
    );

    cluster
        .run(&[
            "updateTopic",
            "-t",
            "orders",
            "-c",
            "TestCluster",
            "-r",
            "8",
            "-w",
            "8",
            "-p",
            "4",
        ])
        .fine();
    let rows = cluster.json(&["topic", "get", "orders"]);
    assert_eq!(
        (&rows[0]["write_queues"], &rows[0]["perm"]),
        (&8.into(), &"R".into()),
        "{rows}"
    );
    assert_eq!(
        cluster
            .json(&["topic", "stats", "orders"])
            .as_array()
            .unwrap()
            .len(),
        8
    );

    // Without a terminal nothing is destroyed unasked.
    let asked = cluster.run(&["topic", "delete", "orders"]);
    assert_eq!(asked.code, 2, "{asked:?}");
    assert!(asked.err.contains("--yes"), "{asked:?}");
    cluster.run(&["topic", "delete", "orders", "--yes"]).fine();
    for args in [
        ["topic", "route", "orders"],
        ["topic", "get", "orders"],
        ["topic", "stats", "orders"],
    ] {
        let gone = cluster.run(&args);
        assert_eq!(gone.code, 3, "{gone:?}");
        assert!(gone.err.contains("orders"), "{gone:?}");
    }
}

#[test]
fn names_that_cannot_be_are_refused() {
    let cluster = Cluster::start();
    assert_eq!(cluster.run(&["topic", "create", "no blanks"]).code, 2);
    let system = cluster.run(&["topic", "create", "TBW102"]);
    assert_eq!(system.code, 1, "{system:?}");
    let unknown = cluster.run(&["topic", "create", "T", "-c", "nowhere"]);
    assert_eq!(unknown.code, 3, "{unknown:?}");
    assert!(
        unknown.err.contains("TestCluster"),
        "it says which clusters there are: {unknown:?}"
    );
    assert_eq!(cluster.run(&["topic", "list", "-c", "nowhere"]).code, 3);
}

#[test]
fn clusters_and_brokers_are_shown_and_set() {
    let cluster = Cluster::start();
    let rows = cluster.json(&["cluster", "list"]);
    let row = &rows[0];
    assert_eq!(
        (&row["cluster"], &row["broker"], &row["id"]),
        (&"TestCluster".into(), &"broker-a".into(), &0.into())
    );
    assert_eq!(row["version"], "V4_9_7", "{rows}");
    let table = cluster.run(&["clusterList"]).fine().out;
    assert!(table.contains(&cluster.broker_address), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");

    let status = cluster.json(&["broker", "status", "-b", &cluster.broker_address]);
    assert_eq!(status["brokerVersionDesc"], "V4_9_7", "{status}");
    assert_eq!(
        cluster.json(&["brokerStatus", "-c", "TestCluster"])["brokerVersion"],
        "407"
    );
    let at = cluster.broker_address.as_str();
    let config = cluster.json(&[
        "broker",
        "config",
        "get",
        "-b",
        at,
        "brokerName",
        "fileReservedTime",
    ]);
    assert_eq!(
        config,
        serde_json::json!({"brokerName": "broker-a", "fileReservedTime": "72"})
    );
    cluster
        .run(&["broker", "config", "set", "-b", at, "regionId=North"])
        .fine();
    let config = cluster.json(&["broker", "config", "get", "-b", at, "regionId"]);
    assert_eq!(config["regionId"], "North");
    assert_eq!(
        cluster.run(&["broker", "config", "set", "regionId=North"]).code,
        2
    );
    assert_eq!(
        cluster
            .run(&["broker", "config", "get", "-b", at, "noSuchKey"])
            .code,
        3
    );
}

#[test]
fn a_group_lives_from_creation_to_deletion() {
    let cluster = Cluster::start();
    cluster
        .run(&["group", "create", "readers", "--retry-max", "5"])
        .fine();
    let groups = cluster.json(&["group", "list"]);
    assert_eq!(
        (groups.as_array().unwrap().len(), &groups[0]["group"]),
        (1, &"readers".into())
    );
    assert_eq!(groups[0]["retry_max"], 5);
    let all = cluster.run(&["group", "list", "--all"]).fine().out;
    assert!(all.contains("TOOLS_CONSUMER"), "{all}");
    let none = cluster.run(&["group", "progress", "readers"]);
    assert_eq!(none.code, 3, "{none:?}");
    cluster.run(&["group", "delete", "readers", "--yes"]).fine();
    assert_eq!(cluster.run(&["group", "delete", "readers", "--yes"]).code, 3);
}

#[test]
fn a_broker_is_taken_out_of_writing_and_put_back() {
    let cluster = Cluster::start();
    cluster.run(&["topic", "create", "orders"]).fine();
    wait_for("the topic's route", || {
        cluster.run(&["topic", "route", "orders"]).code == 0
    });
    cluster.run(&["wipeWritePerm", "-b", "broker-a"]).fine();
    let refused = cluster.run(&["message", "send", "orders", "x"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("writable"), "{refused:?}");
    cluster.run(&["addWritePerm", "-b", "broker-a"]).fine();
    cluster.run(&["message", "send", "orders", "x"]).fine();
    assert_eq!(cluster.run(&["wipeWritePerm", "-b", "nobody"]).code, 3);
    cluster
        .run(&["updateSubGroup", "-c", "TestCluster", "-g", "g", "-s", "false"])
        .fine();
    assert_eq!(cluster.json(&["group", "list"])[0]["enabled"], false);
}
