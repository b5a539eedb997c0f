//! The pages of figures: metrics and what is about to be lost.

use ferromq_protocol::Command;
use ferromq_protocol::body::KvTable;
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::ViewBrokerStats;

use crate::offsets::update;
use crate::process::get;
use crate::support::{Rig, eventually, free_port, send_command};

async fn page(port: u16, path: &'static str) -> String {
    let page = tokio::task::spawn_blocking(move || get(port, path));
    page.await.unwrap().unwrap_or_else(|| panic!("no {path}")).1
}

async fn status(port: u16) -> serde_json::Value {
    serde_json::from_str(&page(port, "/status").await).unwrap()
}

/// The value of a sample, if it is there.
fn sample(page: &str, name: &str) -> Option<f64> {
    page.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_groups_and_queues_have_figures_and_their_number_is_bounded() {
    let pages = free_port();
    let rig = Rig::start_with(|s| {
        s.http_port = pages;
        s.metrics_max_series = 3;
    })
    .await;
    for n in 0..3 {
        rig.peer.send("T", n, "x").await;
    }
    rig.peer.drain("T", 0, 0, 1).await;
    rig.peer.ok(update(1)).await;
    let text = page(pages, "/metrics").await;
    for (name, value) in [
        ("ferromq_broker_topic_messages_stored_total{topic=\"T\"}", 3.0),
        (
            "ferromq_broker_group_messages_pulled_total{topic=\"T\",group=\"CG\"}",
            1.0,
        ),
        ("ferromq_broker_queue_max_offset{topic=\"T\",queue=\"0\"}", 1.0),
        ("ferromq_broker_put_seconds_count", 3.0),
        ("ferromq_broker_put_seconds_bucket{le=\"+Inf\"}", 3.0),
        ("ferromq_broker_busy_answers_total", 0.0),
        ("ferromq_broker_sends_waiting", 0.0),
    ] {
        assert_eq!(sample(&text, name), Some(value), "{name} in\n{text}");
    }
    for name in [
        "ferromq_broker_group_lag_messages{topic=\"T\",group=\"CG\"}",
        "ferromq_connections",
        "ferromq_bytes_received_total",
        "ferromq_process_resident_memory_bytes",
        "ferromq_broker_flush_behind_bytes",
        "ferromq_broker_disk_used_ratio",
        "ferromq_broker_get_seconds_count",
    ] {
        assert!(sample(&text, name).is_some(), "{name} in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
    for n in 0..20 {
        rig.peer.send(&format!("U{n}"), 0, "x").await;
    }
    let text = page(pages, "/metrics").await;
    let rows = |family: &str| text.lines().filter(|l| l.starts_with(family)).count();
    assert_eq!(rows("ferromq_broker_topic_messages_stored_total{"), 4);
    assert_eq!(
        sample(
            &text,
            "ferromq_broker_topic_messages_stored_total{topic=\"other\"}"
        ),
        Some(18.0)
    );
    assert!(rows("ferromq_broker_queue_max_offset{") <= 4);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_deletes_before_it_is_consumed_is_told() {
    let pages = free_port();
    let rig = Rig::start_with(|s| {
        s.http_port = pages;
        s.file_reserved_time = 0;
    })
    .await;
    let before = status(pages).await;
    assert_eq!(before["expiringUnconsumed"], serde_json::json!([]));
    assert_eq!(before["disk"]["oldestAgeSeconds"], 0);
    for n in 0..3 {
        rig.peer.send("T", 0, &format!("{n}")).await;
    }
    rig.peer.drain("T", 0, 0, 3).await;
    rig.peer.ok(update(1)).await;
    // With a retention of nothing, whatever is not consumed may go at any time.
    eventually("the status tells", || async {
        let status = status(pages).await;
        let rows = status["expiringUnconsumed"].as_array().unwrap().clone();
        rows.iter()
            .any(|row| row["group"] == "CG" && row["topic"] == "T" && row["messages"] == 2)
    })
    .await;
    let after = status(pages).await;
    let disk = &after["disk"];
    assert_eq!(disk["reservedHours"], 0);
    assert_eq!(disk["maxUsedRatio"], 0.75);
    assert!(
        (0.0..=1.0).contains(&disk["usedRatio"].as_f64().unwrap()),
        "{disk}"
    );
    assert_eq!(
        disk["logBytes"],
        after["log"]["max"].as_i64().unwrap() - after["log"]["min"].as_i64().unwrap()
    );
    let row = after["expiringUnconsumed"][0].clone();
    assert_eq!(row["deletedInSeconds"], 0);
    assert!(row["oldestAgeSeconds"].as_i64().unwrap() >= 0);
    let text = page(pages, "/metrics").await;
    let name = "ferromq_broker_group_expiring_messages{topic=\"T\",group=\"CG\"}";
    assert_eq!(sample(&text, name), Some(2.0), "{text}");
    rig.peer.ok(update(3)).await;
    eventually("consumed is no longer about to be lost", || async {
        status(pages).await["expiringUnconsumed"] == serde_json::json!([])
    })
    .await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_exporter_finds_what_it_asks_for() {
    let rig = Rig::start().await;
    rig.peer.ok(send_command("T", 0, "x", "TAGS\u{1}a\u{2}")).await;
    rig.peer.drain("T", 0, 0, 1).await;
    let answer = rig
        .peer
        .ok(Command::request(request::GET_BROKER_RUNTIME_INFO))
        .await;
    let info: KvTable = fastjson::from_slice(&answer.body).unwrap();
    for key in [
        "msgPutTotalTodayNow",
        "msgGetTotalTodayNow",
        "msgPutTotalTodayMorning",
        "msgGetTotalTodayMorning",
        "msgPutTotalYesterdayMorning",
        "msgGetTotalYesterdayMorning",
        "dispatchBehindBytes",
        "putMessageSizeTotal",
        "putMessageAverageSize",
        "queryThreadPoolQueueCapacity",
        "remainTransientStoreBufferNumbs",
        "earliestMessageTimeStamp",
        "putMessageEntireTimeMax",
        "startAcceptSendRequestTimeStamp",
        "sendThreadPoolQueueSize",
        "putMessageTimesTotal",
        "getMessageEntireTimeMax",
        "pageCacheLockTimeMills",
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "getFoundTps",
        "getMissTps",
        "getTotalTps",
        "getTransferedTps",
        "putTps",
        "brokerVersionDesc",
        "brokerVersion",
        "bootTimestamp",
        "commitLogMaxOffset",
        "commitLogMinOffset",
        "commitLogDirCapacity",
        "remainHowManyDataToFlush",
        "putMessageDistributeTime",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "queryThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueSize",
        "pullThreadPoolQueueCapacity",
        "sendThreadPoolQueueCapacity",
        "queryThreadPoolQueueSize",
        "putMessageFailedTimes",
        "runtime",
        "dispatchMaxBuffer",
    ] {
        assert!(info.table.contains_key(key), "{key}");
    }
    for (stats_name, stats_key) in [
        ("TOPIC_PUT_NUMS", "T"),
        ("TOPIC_PUT_SIZE", "T"),
        ("GROUP_GET_NUMS", "T@CG"),
        ("GROUP_GET_SIZE", "T@CG"),
        ("QUEUE_PUT_NUMS", "T@0"),
        ("QUEUE_GET_NUMS", "T@0@CG"),
        ("GROUP_GET_LATENCY", "0@T@CG"),
        ("BROKER_PUT_NUMS", "DefaultCluster"),
        ("BROKER_GET_NUMS", "DefaultCluster"),
    ] {
        let ask = Command::request(request::VIEW_BROKER_STATS_DATA).with_header(&ViewBrokerStats {
            stats_name,
            stats_key,
        });
        let answer = rig.peer.ok(ask).await;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        assert!(
            ["statsMinute", "statsHour", "statsDay", "sum", "tps", "avgpt"]
                .iter()
                .all(|k| text.contains(k)),
            "{stats_name}: {text}"
        );
    }
    rig.stop().await;
}
