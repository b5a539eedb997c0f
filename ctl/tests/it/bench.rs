//! The proving bench: nothing missing, and it says so when something is.

use crate::cluster::{Cluster, ferroctl, wait_for};

#[test]
fn all_that_is_sent_is_received() {
    let cluster = Cluster::start();
    cluster.run(&["topic", "create", "load"]).fine();
    let args = [
        "bench",
        "send",
        "--topic",
        "load",
        "--count",
        "1000",
        "--run",
        "r1",
        "--concurrency",
        "8",
    ];
    let sent = cluster.run(&args).fine();
    let report = sent.json();
    assert_eq!(
        (&report["sent"], &report["failed"], &report["run"]),
        (&1000.into(), &0.into(), &"r1".into())
    );
    assert!(report["latency_ms"]["p99"].as_f64().unwrap() > 0.0, "{report}");
    assert_eq!(sent.out.lines().count(), 1, "one line of JSON");

    let receive = [
        "bench", "receive", "--topic", "load", "--count", "1000", "--run", "r1", "--group", "readers",
    ];
    let report = cluster.run(&receive).fine().json();
    assert_eq!(
        (&report["received"], &report["missing"]),
        (&1000.into(), &0.into()),
        "{report}"
    );
    assert_eq!(
        (&report["foreign"], &report["damaged"]),
        (&0.into(), &0.into()),
        "{report}"
    );

    // The group has stored how far it came.
    let progress = cluster.json(&["group", "progress", "readers"]);
    let behind: i64 = progress
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["behind"].as_i64().unwrap())
        .sum();
    assert_eq!(behind, 0, "{progress}");
    let again = cluster.run(&[
        "bench", "receive", "--topic", "load", "--count", "1000", "--run", "r1", "--group", "readers",
        "--idle", "1",
    ]);
    assert_eq!(again.code, 1, "nothing comes twice to one group: {again:?}");
    assert_eq!(again.json()["missing"], 1000);
}

#[test]
fn batches_and_steady_rates_work_too() {
    let cluster = Cluster::start();
    cluster
        .run(&["topic", "create", "load", "-r", "2", "-w", "2"])
        .fine();
    let batch = [
        "bench", "send", "--topic", "load", "--count", "1001", "--batch", "10", "--run", "b", "--size", "64",
    ];
    let report = cluster.run(&batch).fine().json();
    assert_eq!(report["sent"], 1001, "{report}");
    let steady = [
        "bench", "send", "--topic", "load", "--count", "50", "--rate", "500", "--run", "s",
    ];
    assert_eq!(cluster.run(&steady).fine().json()["sent"], 50);
    let receive = [
        "bench", "receive", "--topic", "load", "--count", "1001", "--run", "b",
    ];
    let report = cluster.run(&receive).fine().json();
    assert_eq!(report["missing"], 0, "{report}");
    let receive = [
        "bench",
        "receive",
        "--topic",
        "load",
        "--count",
        "50",
        "--run",
        "s",
        "--from-start",
    ];
    let report = cluster.run(&receive).fine().json();
    assert_eq!(report["missing"], 0, "{report}");
}

#[test]
fn a_missing_message_is_noticed_and_named() {
    let cluster = Cluster::start();
    cluster
        .run(&["topic", "create", "load", "-r", "1", "-w", "1"])
        .fine();
    let file = cluster.dir.path().join("acknowledged");
    let file = file.to_str().unwrap();
    cluster
        .run(&[
            "bench",
            "send",
            "--topic",
            "load",
            "--count",
            "10",
            "--run",
            "r",
            "--acknowledged",
            file,
        ])
        .fine();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "0-9\n");
    let more = [
        "bench", "receive", "--topic", "load", "--count", "12", "--run", "r", "--idle", "1",
    ];
    let ran = cluster.run(&more);
    assert_eq!(ran.code, 1, "{ran:?}");
    let report = ran.json();
    assert_eq!(
        (&report["missing"], &report["missing_first"]),
        (&2.into(), &"10-11".into()),
        "{report}"
    );
    let acknowledged = [
        "bench",
        "receive",
        "--topic",
        "load",
        "--count",
        "12",
        "--run",
        "r",
        "--from-start",
        "--acknowledged",
        file,
    ];
    assert_eq!(cluster.run(&acknowledged).fine().json()["expected"], 10);
}

#[test]
fn a_topic_that_is_not_there_fails_at_once() {
    let cluster = Cluster::start();
    let ran = cluster.run(&["bench", "receive", "--topic", "nothing", "--run", "r"]);
    assert_eq!(ran.code, 3, "{ran:?}");
    assert!(ran.err.contains("nothing"), "{ran:?}");
}

#[test]
fn a_restart_of_the_broker_loses_nothing() {
    let mut cluster = Cluster::start();
    cluster.run(&["topic", "create", "load"]).fine();
    let namesrv = cluster.namesrv.clone();
    let sender = std::thread::spawn(move || {
        let args = [
            "bench", "send", "--topic", "load", "--count", "3000", "--rate", "1000", "--run", "r",
        ];
        ferroctl(&namesrv, &args)
    });
    wait_for("the first messages", || {
        let stats = cluster.json(&["topic", "stats", "load"]);
        stats.as_array().unwrap().iter().any(|row| row["max_offset"] != 0)
    });
    cluster.restart_broker();
    let report = sender.join().unwrap().fine().json();
    assert_eq!(
        (&report["sent"], &report["failed"]),
        (&3000.into(), &0.into()),
        "{report}"
    );
    let receive = [
        "bench", "receive", "--topic", "load", "--count", "3000", "--run", "r",
    ];
    let report = cluster.run(&receive).fine().json();
    assert_eq!(report["missing"], 0, "{report}");
}
