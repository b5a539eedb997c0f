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
