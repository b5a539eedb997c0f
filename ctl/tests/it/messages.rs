//! Single messages.

use crate::cluster::{Cluster, wait_for};

#[test]
fn a_message_is_sent_and_found_again() {
    let cluster = Cluster::start();
    cluster.run(&["topic", "create", "orders"]).fine();
    let args = [
        "message",
        "send",
        "orders",
        "hello",
        "-c",
        "paid",
        "-k",
        "k1",
        "-k",
        "k2",
        "--property",
        "region=eu",
    ];
    let sent = cluster.json(&args);
    assert_eq!(
        (&sent["broker"], &sent["status"]),
        (&"broker-a".into(), &"Stored".into()),
        "{sent}"
    );
    let id = sent["offset_id"].as_str().unwrap();
    let found = cluster.json(&["message", "get", id]);
    assert_eq!(
        (&found["body"], &found["tag"], &found["keys"]),
        (&"hello".into(), &"paid".into(), &"k1 k2".into())
    );
    assert_eq!(found["message_id"], sent["message_id"]);
    assert_eq!(found["properties"]["region"], "eu");
    assert_eq!(cluster.run(&["message", "get", id, "--body"]).fine().out, "hello");
    assert!(
        cluster
            .run(&["queryMsgById", "-i", id])
            .fine()
            .out
            .contains("hello")
    );

    // The queue to send to can be named.
    let sent = cluster.json(&["message", "send", "orders", "x", "-b", "broker-a", "-i", "2"]);
    assert_eq!(sent["queue"], 2, "{sent}");
    assert_eq!(
        cluster.run(&["message", "send", "orders", "x", "-i", "99"]).code,
        3
    );
    let stats = cluster.json(&["topic", "stats", "orders"]);
    let sum: i64 = stats
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["messages"].as_i64().unwrap())
        .sum();
    assert_eq!(sum, 2, "{stats}");
}

#[test]
fn what_is_not_there_is_said_to_be_missing() {
    let cluster = Cluster::start();
    cluster.run(&["topic", "create", "orders"]).fine();
    let sent = cluster.json(&["message", "send", "orders", "hello"]);
    let id = sent["offset_id"].as_str().unwrap();
    let beyond = format!("{}{:016X}", &id[..16], 1_i64 << 40);
    let missing = cluster.run(&["message", "get", &beyond]);
    assert_eq!(missing.code, 3, "{missing:?}");
    let refused = cluster.run(&["message", "send", "orders", ""]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("empty"), "{refused:?}");
}

#[test]
fn messages_are_found_by_key_and_unique_id() {
    let cluster = Cluster::start();
    cluster.run(&["topic", "create", "orders"]).fine();
    let sent = cluster.json(&["message", "send", "orders", "hello", "-k", "k1"]);
    // The index is written behind the log.
    let by_key = ["-o", "json", "message", "by-key", "orders", "k1"];
    wait_for("the key to be indexed", || cluster.run(&by_key).code == 0);
    let found = cluster.run(&by_key).fine().json();
    assert_eq!(found[0]["offset_id"], sent["offset_id"], "{found}");
    let id = sent["message_id"].as_str().unwrap();
    let found = cluster.json(&["message", "by-key", "orders", id, "--unique"]);
    assert_eq!(found[0]["body"], "hello", "{found}");
    let none = cluster.run(&["message", "by-key", "orders", "k2"]);
    assert_eq!(none.code, 3, "{none:?}");
    // A unique id is no offset id, and the program says where to go with it.
    let wrong = cluster.run(&["message", "get", id]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("by key"), "{wrong:?}");
}
