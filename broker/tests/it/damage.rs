//! Damaged tables, settings that cannot be kept, processes that are stopped for a while, and topics that are deleted on one
//! broker of two.

use std::path::Path;
use std::time::Duration;

use ferromq_broker::Broker;
use ferromq_namesrv::NamesrvSettings;
use ferromq_protocol::Command;
use ferromq_protocol::body::{SubscriptionGroupConfig, TopicRouteData};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{DeleteSubscriptionGroup, GetRouteInfo, TopicHeader};

use tokio_util::task::TaskTracker;

use crate::admin::{create, topics};
use crate::offsets::update;
use crate::process::{Process, get};
use crate::support::{Peer, Rig, eventually, free_port, pull_command, send_command, settings};

fn config_file(root: &Path, name: &str) -> std::path::PathBuf {
    root.join("config").join(name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_tables_fall_back_to_the_copy_before_and_two_broken_ones_stop_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let start = || Broker::start(settings(dir.path(), port));
    let running = start().await.unwrap();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    peer.ok(create("One", 1, 6)).await;
    peer.ok(create("Two", 1, 6)).await;
    assert!(running.shutdown().await);
    let file = config_file(dir.path(), "topics.json");
    assert!(std::fs::read_to_string(&file).unwrap().contains("\"Two\""));
    for damage in ["{\"topicConfigTable\":{\"One", "", "not json at all"] {
        std::fs::write(&file, damage).unwrap();
        let running = start().await.unwrap();
        let peer = Peer::new(format!("127.0.0.1:{port}"));
        peer.send("One", 0, "x").await;
        // The next save makes a good copy again.
        peer.ok(create(&format!("More{}", damage.len()), 1, 6)).await;
        assert!(running.shutdown().await);
        assert!(
            std::fs::read_to_string(&file).unwrap().contains("\"One\""),
            "{damage:?}"
        );
    }
    std::fs::write(&file, "{").unwrap();
    std::fs::write(config_file(dir.path(), "topics.json.bak"), "{").unwrap();
    let said = format!("{:#}", start().await.unwrap_err());
    assert!(said.contains("topics.json"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_be_kept_are_not_changed() {
    let rig = Rig::start().await;
    // Nothing can be written over a directory, whoever runs the test.
    std::fs::create_dir_all(config_file(rig.dir.path(), "live.properties")).unwrap();
    let change = Command::request(request::UPDATE_BROKER_CONFIG).with_body("fileReservedTime=5\n");
    let answer = rig.peer.call(change).await;
    assert_eq!(answer.code, 1);
    assert!(answer.remark.unwrap().contains("live.properties"));
    let config = rig.peer.ok(Command::request(request::GET_BROKER_CONFIG)).await;
    assert!(String::from_utf8_lossy(&config.body).contains("fileReservedTime=72"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_be_are_refused_whole_and_live_ones_hold_at_once() {
    let rig = Rig::start().await;
    let change = |text: &str| Command::request(request::UPDATE_BROKER_CONFIG).with_body(text.to_owned());
    for (text, word) in [
        ("regionId=elsewhere\ndeleteWhen=25\n", "deleteWhen"),
        ("regionId=elsewhere\nlistenPort=1\n", "restart"),
        ("regionId=elsewhere\nbrokerPermission=9\n", "brokerPermission"),
        ("regionId=elsewhere\ntraceOn=maybe\n", "traceOn"),
    ] {
        let answer = rig.peer.call(change(text)).await;
        assert_eq!(answer.code, 1, "{text}");
        let said = answer.remark.unwrap();
        assert!(said.contains(word), "{text}: {said}");
        rig.peer.send("T", 0, "still DefaultRegion").await;
    }
    rig.peer
        .ok(change("deleteWhen=05;17\nwaitTimeMillsInSendQueue=60000\n"))
        .await;
    let config = rig.peer.ok(Command::request(request::GET_BROKER_CONFIG)).await;
    assert!(String::from_utf8_lossy(&config.body).contains("deleteWhen=05;17"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_was_stopped_for_a_while_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut broker = Process::start(dir.path(), port, "", &[]);
    broker.started();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    peer.send("T", 0, "before").await;
    let tasks = TaskTracker::new();
    let (client, addr) = (peer.client.clone(), peer.addr.clone());
    let waiting = tasks.spawn(async move {
        client
            .call(&addr, pull_command("T", 0, 1, 60_000), Duration::from_secs(90))
            .await
    });
    broker.freeze().await;
    // Sent while nobody is there to read it.
    let (client, addr) = (peer.client.clone(), peer.addr.clone());
    let sending = tasks.spawn(async move {
        let send = send_command("T", 0, "meanwhile", "");
        client.call(&addr, send, Duration::from_secs(90)).await
    });
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(!sending.is_finished());
    broker.signal("-CONT");
    let sent = sending.await.unwrap().unwrap();
    // Stored, or given up with a reason: never lost without a word.
    assert!(matches!(sent.code, 0 | 2), "{sent:?}");
    peer.send("T", 0, "after").await;
    assert_eq!(waiting.await.unwrap().unwrap().code, 0);
    let count = if sent.code == 0 { 3 } else { 2 };
    assert_eq!(peer.drain("T", 0, 0, count).await.last().unwrap(), "after");
    broker.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_wake_up_is_lost_between_the_look_and_the_wait() {
    let rig = Rig::start().await;
    let other = Peer::new(rig.peer.addr.clone());
    for queue in 0..4 {
        rig.peer.send("T", queue, "first").await;
    }
    for round in 0..100 {
        let queue = round % 4;
        let offset = i64::from(round / 4 + 1);
        // Far less than the 60 s for which the pull may wait: a lost wake-up shows.
        let pull = async {
            tokio::time::timeout(
                Duration::from_secs(20),
                rig.peer.call(pull_command("T", queue, offset, 60_000)),
            )
            .await
            .unwrap_or_else(|_| panic!("round {round}: the message did not wake the pull"))
        };
        let (pulled, _) = tokio::join!(pull, other.send("T", queue, "next"));
        assert_eq!(pulled.code, 0, "round {round}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn codes_above_16_bits_are_answered_as_themselves() {
    let rig = Rig::start().await;
    for code in [32_768, 65_546, i32::MAX, -1, i32::MIN] {
        let answer = rig.peer.call(Command::request(code)).await;
        assert_eq!(answer.code, 3, "{code}");
        assert!(answer.remark.unwrap().contains(&code.to_string()), "{code}");
    }
    rig.stop().await;
}

async fn route(names: &Peer, topic: &str) -> Vec<String> {
    let ask = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&GetRouteInfo {
        topic,
        accept_standard_json_only: true,
    });
    let answer = names.call(ask).await;
    if answer.code != 0 {
        return Vec::new();
    }
    let route: TopicRouteData = fastjson::from_slice(&answer.body).unwrap();
    let mut brokers: Vec<String> = route.queue_datas.into_iter().map(|q| q.broker_name).collect();
    brokers.sort();
    brokers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_deleted_on_one_broker_leaves_its_route_and_stays_out() {
    let dir = tempfile::tempdir().unwrap();
    let server = ferromq_namesrv::start(NamesrvSettings {
        listen_port: 0,
        bind_address: "127.0.0.1".to_owned(),
        kv_config_path: dir.path().join("kv.json").display().to_string(),
        config_store_path: dir.path().join("namesrv.properties").display().to_string(),
        ..NamesrvSettings::default()
    })
    .await
    .unwrap();
    let names = Peer::new(server.local_addr().to_string());
    let list = server.local_addr().to_string();
    let start = |name: &'static str| {
        let list = list.clone();
        Rig::start_with(move |s| {
            s.broker_name = name.to_owned();
            s.namesrv_addr = list;
        })
    };
    let (a, b) = (start("broker-a").await, start("broker-b").await);
    for rig in [&a, &b] {
        rig.peer.ok(create("T", 2, 6)).await;
    }
    assert_eq!(route(&names, "T").await, ["broker-a", "broker-b"]);
    a.peer
        .ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&TopicHeader { topic: "T" }))
        .await;
    eventually("a is out of the route", || async {
        route(&names, "T").await == ["broker-b"]
    })
    .await;
    // Whole tables again, of both: 216 was never sent.
    for rig in [&a, &b] {
        let force = Command::request(request::UPDATE_BROKER_CONFIG).with_body("brokerPermission=6\n");
        rig.peer.ok(force).await;
        rig.peer.ok(create("Another", 1, 6)).await;
    }
    assert_eq!(route(&names, "Another").await, ["broker-a", "broker-b"]);
    assert_eq!(route(&names, "T").await, ["broker-b"]);
    b.peer.send("T", 0, "x").await;
    a.stop().await;
    b.stop().await;
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_shrink_when_topics_and_groups_go() {
    let pages = free_port();
    let rig = Rig::start_with(|s| s.http_port = pages).await;
    let before = topics(&rig).await.topic_config_table.len();
    for n in 0..60 {
        rig.peer.ok(create(&format!("T{n}"), 1, 6)).await;
        rig.peer.send(&format!("T{n}"), 0, "x").await;
        let group = SubscriptionGroupConfig::new(format!("G{n}"));
        rig.peer
            .ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
                .with_body(fastjson::to_vec(&group)))
            .await;
    }
    rig.peer.ok(update(1)).await;
    for n in 0..60 {
        let topic = format!("T{n}");
        rig.peer
            .ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&TopicHeader { topic: &topic }))
            .await;
        let group = format!("G{n}");
        rig.peer
            .ok(
                Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&DeleteSubscriptionGroup {
                    group_name: &group,
                    remove_offset: true,
                }),
            )
            .await;
    }
    assert_eq!(topics(&rig).await.topic_config_table.len(), before);
    let page = tokio::task::spawn_blocking(move || get(pages, "/metrics"))
        .await
        .unwrap()
        .unwrap()
        .1;
    assert!(!page.contains("topic=\"T5\""), "{page}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_sends_with_the_reason_serves_reads_and_is_left_without_a_restart() {
    let rig = Rig::start_with(|s| {
        s.clean_file_forcibly_enable = false;
        s.clean_resource_interval = 50;
    })
    .await;
    rig.peer.send("T", 0, "before").await;
    rig.peer.ok(update(1)).await;
    let capacity = |bytes: &str| {
        Command::request(request::UPDATE_BROKER_CONFIG).with_body(format!("storeCapacityBytes={bytes}"))
    };
    // What is there already is more than this, so the store's disk counts as full.
    rig.peer.ok(capacity("1000")).await;
    let said = parking_lot::Mutex::new(String::new());
    eventually("sends are refused", || async {
        let answer = rig.peer.call(send_command("T", 0, "full", "")).await;
        *said.lock() = answer.remark.unwrap_or_default();
        answer.code == 14
    })
    .await;
    assert!(said.lock().contains("the disk is full"), "{}", said.lock());
    let stored = rig.peer.max_offset("T", 0).await;
    assert_eq!(rig.peer.drain("T", 0, 0, 1).await[0], "before");
    rig.peer.ok(update(2)).await;
    rig.peer.ok(capacity("0")).await;
    eventually("sends are taken again", || async {
        rig.peer.call(send_command("T", 0, "after", "")).await.code == 0
    })
    .await;
    let bodies = rig.peer.drain("T", 0, 0, stored as usize + 1).await;
    assert_eq!(bodies.last().unwrap(), "after");
    rig.stop().await;
}
