//! Registration with name servers.

use std::net::TcpListener;

use ferromq_namesrv::NamesrvSettings;
use ferromq_protocol::Command;
use ferromq_protocol::body::TopicRouteData;
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{DeleteTopicInNamesrv, GetRouteInfo, TopicHeader};

use crate::admin::create;
use crate::support::{Peer, Rig, eventually};

async fn name_server(dir: &std::path::Path, port: u16) -> ferromq_namesrv::Running {
    let settings = NamesrvSettings {
        listen_port: port,
        bind_address: "127.0.0.1".to_owned(),
        kv_config_path: dir.join("kv.json").display().to_string(),
        config_store_path: dir.join("namesrv.properties").display().to_string(),
        ..NamesrvSettings::default()
    };
    ferromq_namesrv::start(settings).await.unwrap()
}

async fn route(names: &Peer, topic: &str) -> Option<TopicRouteData> {
    let command = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&GetRouteInfo {
        topic,
        accept_standard_json_only: true,
    });
    let answer = names
        .client
        .call(&names.addr, command, crate::support::LONG)
        .await
        .ok()?;
    (answer.code == 0).then(|| fastjson::from_slice(&answer.body).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_name_server_delays_nothing_and_the_living_hear_everything() {
    let dir = tempfile::tempdir().unwrap();
    let server = name_server(dir.path(), 0).await;
    let names = Peer::new(server.local_addr().to_string());
    // It accepts connections in the kernel and never answers.
    let dead = TcpListener::bind("127.0.0.1:0").unwrap();
    let list = format!("{};{}", dead.local_addr().unwrap(), server.local_addr());
    let rig = Rig::start_with(|s| s.namesrv_addr = list).await;
    assert!(rig.running().start_line().contains("and name server is"));
    let templates = route(&names, "TBW102")
        .await
        .expect("registered when the start returns");
    assert_eq!(
        templates.broker_datas[0].broker_addrs[&0],
        format!("127.0.0.1:{}", rig.port)
    );
    assert_eq!(templates.queue_datas[0].perm, 7);

    rig.peer.ok(create("Made", 5, 6)).await;
    assert_eq!(
        route(&names, "Made")
            .await
            .expect("routed when answered")
            .queue_datas[0]
            .write_queue_nums,
        5
    );
    rig.peer.send("OnUse", 0, "x").await;
    eventually("a topic made on use is routed", async || {
        route(&names, "OnUse").await.is_some()
    })
    .await;

    rig.peer
        .ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&TopicHeader { topic: "Made" }))
        .await;
    assert!(
        route(&names, "Made").await.is_none(),
        "the name server heard of the deletion"
    );
    let forget = DeleteTopicInNamesrv {
        topic: "Made",
        cluster_name: None,
    };
    names
        .ok(Command::request(request::DELETE_TOPIC_IN_NAMESRV).with_header(&forget))
        .await;
    rig.peer.ok(create("Other", 1, 6)).await;
    assert!(
        route(&names, "Other").await.is_some() && route(&names, "Made").await.is_none(),
        "told once only"
    );
    rig.peer.ok(create("Made", 5, 6)).await;
    assert_eq!(
        route(&names, "Made").await.expect("made anew").queue_datas[0].perm,
        6
    );

    rig.stop().await;
    assert!(route(&names, "Made").await.is_none(), "unregistered at the stop");
    server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_server_that_comes_later_or_again_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let port = crate::support::free_port();
    let rig = Rig::start_with(|s| s.namesrv_addr = format!("127.0.0.1:{port}")).await;
    let names = Peer::new(format!("127.0.0.1:{port}"));
    for _ in 0..2 {
        let server = name_server(dir.path(), port).await;
        eventually("registered", async || route(&names, "TBW102").await.is_some()).await;
        server.shutdown().await;
    }
    rig.stop().await;
}

/// Ten minutes without name servers are registrations that fail; here twenty of them fail within seconds, as each new topic asks for one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_name_servers_the_broker_serves_stays_ready_and_is_routed_when_they_are_back() {
    let dir = tempfile::tempdir().unwrap();
    let (port, pages) = (crate::support::free_port(), crate::support::free_port());
    let server = name_server(dir.path(), port).await;
    let rig = Rig::start_with(|s| {
        s.namesrv_addr = format!("127.0.0.1:{port}");
        s.http_port = pages;
    })
    .await;
    let ready = || async {
        tokio::task::spawn_blocking(move || crate::process::get(pages, "/readyz"))
            .await
            .unwrap()
            .map(|(code, _)| code)
    };
    assert_eq!(ready().await, Some(200));
    server.shutdown().await;
    for n in 0..200 {
        // Each new topic asks for a registration of its own.
        rig.peer.send(&format!("New{}", n / 10), 0, "x").await;
        assert_eq!(ready().await, Some(200), "round {n}");
    }
    assert_eq!(rig.peer.drain("New0", 0, 0, 10).await.len(), 10);
    let server = name_server(dir.path(), port).await;
    let names = Peer::new(format!("127.0.0.1:{port}"));
    eventually("everything made meanwhile is routed", async || {
        route(&names, "New0").await.is_some() && route(&names, "New19").await.is_some()
    })
    .await;
    server.shutdown().await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_force_only_news_are_sent() {
    let dir = tempfile::tempdir().unwrap();
    let server = name_server(dir.path(), 0).await;
    let names = Peer::new(server.local_addr().to_string());
    let rig = Rig::start_with(|s| {
        s.namesrv_addr = format!("localhost:{}", server.local_addr().port());
        s.force_register = false;
        s.compressed_register = true;
    })
    .await;
    rig.peer.ok(create("Made", 5, 6)).await;
    assert!(route(&names, "Made").await.is_some());
    rig.stop().await;
    server.shutdown().await;
}

/// An address server whose list can be changed.
async fn address_server(list: std::sync::Arc<parking_lot::Mutex<String>>) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let domain = listener.local_addr().unwrap().to_string();
    // Ends with the test's runtime.
    tokio_util::task::TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            assert!(request.starts_with(b"GET /rocketmq/mine HTTP/1.0\r\n"));
            let answer = format!("HTTP/1.1 200 OK\r\n\r\n{}\n", list.lock());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    domain
}

/// The list moves from one name server to another while the first lives on: the broker goes along and leaves it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_follows_the_list_of_an_address_server() {
    let (dir_a, dir_b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = name_server(dir_a.path(), 0).await;
    let b = name_server(dir_b.path(), 0).await;
    let list = std::sync::Arc::new(parking_lot::Mutex::new(a.local_addr().to_string()));
    let domain = address_server(list.clone()).await;
    let rig = Rig::start_with(|s| {
        s.fetch_namesrv_addr_by_address_server = true;
        s.rmq_address_server_domain = domain;
        s.rmq_address_server_sub_group = "mine".to_owned();
        s.fetch_namesrv_addr_interval = 100;
    })
    .await;
    let (at_a, at_b) = (
        Peer::new(a.local_addr().to_string()),
        Peer::new(b.local_addr().to_string()),
    );
    assert!(
        route(&at_a, "TBW102").await.is_some(),
        "registered when the start returns"
    );
    *list.lock() = "no list at all".to_owned();
    rig.peer.ok(create("Made", 1, 6)).await;
    assert!(route(&at_a, "Made").await.is_some(), "a bad list changes nothing");
    *list.lock() = b.local_addr().to_string();
    eventually("registered at the new one", async || {
        route(&at_b, "Made").await.is_some()
    })
    .await;
    eventually("the old one is left", async || {
        route(&at_a, "Made").await.is_none()
    })
    .await;
    rig.stop().await;
    a.shutdown().await;
    b.shutdown().await;
}

/// A topic is deleted on one of two brokers and nobody tells the name server anything more: it stays routed to the other
/// only, also after both have registered everything again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_deleted_on_one_broker_leaves_that_one_only() {
    let dir = tempfile::tempdir().unwrap();
    let server = name_server(dir.path(), 0).await;
    let names = Peer::new(server.local_addr().to_string());
    let list = server.local_addr().to_string();
    let a = Rig::start_with(|s| s.namesrv_addr.clone_from(&list)).await;
    let b = Rig::start_with(|s| {
        s.namesrv_addr.clone_from(&list);
        s.broker_name = "broker-b".to_owned();
    })
    .await;
    for broker in [&a, &b] {
        broker.peer.ok(create("Shared", 4, 6)).await;
    }
    let at = async || -> Vec<String> {
        let Some(route) = route(&names, "Shared").await else {
            return Vec::new();
        };
        route.queue_datas.into_iter().map(|q| q.broker_name).collect()
    };
    assert_eq!(at().await, ["broker-a", "broker-b"]);
    let delete = TopicHeader { topic: "Shared" };
    a.peer
        .ok(Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&delete))
        .await;
    assert_eq!(at().await, ["broker-b"]);
    // Both tables change, so both are sent whole.
    for (broker, topic) in [(&a, "NewAtA"), (&b, "NewAtB")] {
        broker.peer.ok(create(topic, 1, 6)).await;
        assert!(route(&names, topic).await.is_some());
    }
    assert_eq!(at().await, ["broker-b"]);
    a.stop().await;
    b.stop().await;
    server.shutdown().await;
}
