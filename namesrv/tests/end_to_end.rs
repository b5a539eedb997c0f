//! A name server over real sockets: what brokers, clients and tools see.

#![allow(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::path::Path;
use std::time::Duration;

use ferromq_namesrv::{NamesrvSettings, Running, start};
use ferromq_protocol::body::{
    ClusterInfo, DataVersion, KvTable, RegisterBrokerBody, TopicConfig, TopicConfigTable, TopicList,
    TopicRouteData,
};
use ferromq_protocol::command::Command;
use ferromq_protocol::crc::crc31;
use ferromq_protocol::fastjson;
use ferromq_protocol::header;
use ferromq_remoting::{Client, ClientConfig, Dispatch};

const SOON: Duration = Duration::from_secs(20);
const A: &str = "10.0.0.1:10911";

struct Rig {
    server: Running,
    client: Client,
    addr: String,
    dir: tempfile::TempDir,
}

fn settings(dir: &Path) -> NamesrvSettings {
    NamesrvSettings {
        listen_port: 0,
        bind_address: "127.0.0.1".to_owned(),
        kv_config_path: dir.join("kvConfig.json").to_string_lossy().into_owned(),
        config_store_path: dir.join("namesrv.properties").to_string_lossy().into_owned(),
        ..NamesrvSettings::default()
    }
}

impl Rig {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = start(settings(dir.path())).await.unwrap();
        let addr = server.local_addr().to_string();
        Self {
            server,
            client: new_client(),
            addr,
            dir,
        }
    }

    async fn ask(&self, request: Command) -> Command {
        self.client.call(&self.addr, request, SOON).await.unwrap()
    }

    async fn route(&self, topic: &str) -> Result<TopicRouteData, Command> {
        let answer = self.ask(route_request(topic)).await;
        if answer.code == 0 {
            Ok(fastjson::from_slice(&answer.body).unwrap())
        } else {
            Err(answer)
        }
    }

    async fn list(&self, request: Command) -> Vec<String> {
        let answer = self.ask(request).await;
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        fastjson::from_slice::<TopicList>(&answer.body)
            .unwrap()
            .topic_list
    }
}

fn new_client() -> Client {
    Client::new(ClientConfig::default(), Dispatch::none())
}

fn route_request(topic: &str) -> Command {
    Command::request(105).with_header(&header::GetRouteInfo {
        topic,
        accept_standard_json_only: true,
    })
}

fn body(version: i64, topics: &[&str]) -> RegisterBrokerBody {
    let configs = topics
        .iter()
        .map(|t| ((*t).to_owned(), TopicConfig::new(*t, 8, 8, 6)));
    RegisterBrokerBody {
        filter_server_list: Some(vec![]),
        topic_config_table: TopicConfigTable {
            data_version: DataVersion {
                counter: version,
                timestamp: 1,
            },
            topic_config_table: configs.collect(),
        },
    }
}

fn register(addr: &str, id: i64, body: Vec<u8>, compressed: bool) -> Command {
    let head = header::RegisterBroker {
        broker_name: "broker-a",
        broker_addr: addr,
        cluster_name: "DefaultCluster",
        ha_server_addr: "10.0.0.1:10912",
        broker_id: id,
        compressed,
        body_crc32: crc31(&body),
    };
    Command::request(103).with_header(&head).with_body(body)
}

fn identity(code: i32) -> Command {
    let head = header::BrokerIdentity {
        broker_name: "broker-a",
        broker_addr: A,
        cluster_name: "DefaultCluster",
        broker_id: 0,
    };
    Command::request(code).with_header(&head)
}

async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let done = tokio::time::timeout(SOON, async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(done.await.is_ok(), "never came true: {what}");
}

#[tokio::test]
async fn a_broker_registers_is_routed_and_is_gone_with_its_connection() {
    let rig = Rig::start().await;
    let unknown = rig.route("TopicTest").await.unwrap_err();
    assert_eq!(unknown.code, 17);
    assert_eq!(
        unknown.remark.as_deref(),
        Some(
            "No topic route info in name server for the topic: TopicTest\nSee http://rocketmq.apache.org/docs/faq/ for further details."
        )
    );
    let broker = new_client();
    for compressed in [false, true] {
        let answer = broker
            .call(
                &rig.addr,
                register(A, 0, body(1, &["TopicTest"]).encode(compressed), compressed),
                SOON,
            )
            .await
            .unwrap();
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        assert!(answer.body.is_empty(), "there is no order configuration yet");
        let route = rig.route("TopicTest").await.unwrap();
        assert_eq!(route.broker_datas[0].broker_addrs[&0], A);
        assert_eq!(route.queue_datas[0].write_queue_nums, 8);
        rig.ask(identity(104)).await;
        assert!(rig.route("TopicTest").await.is_err());
    }
    let request = register(A, 0, body(1, &["TopicTest"]).encode(false), false);
    broker.call(&rig.addr, request, SOON).await.unwrap();
    let slave = rig
        .ask(register("10.0.0.2:10911", 1, body(1, &[]).encode(false), false))
        .await;
    let told: header::RegisterBrokerResponse<'_> = slave.header().unwrap();
    assert_eq!(
        (told.master_addr, told.ha_server_addr),
        (Some(A), Some("10.0.0.1:10912"))
    );
    assert_eq!(rig.server.live_brokers(), 2);
    // The master's connection closes: it is out at once, the slave stays.
    broker.close().await;
    until("the master is out", async || {
        let route = rig.route("TopicTest").await.unwrap();
        route.broker_datas[0].broker_addrs.keys().copied().eq([1])
    })
    .await;
    rig.server.shutdown().await;
}

#[tokio::test]
async fn the_last_connection_takes_the_topics_along() {
    let rig = Rig::start().await;
    let broker = new_client();
    broker
        .call(
            &rig.addr,
            register(A, 0, body(1, &["T", "U"]).encode(false), false),
            SOON,
        )
        .await
        .unwrap();
    assert_eq!(rig.list(Command::request(206)).await, ["T", "U"]);
    broker.close().await;
    until("all is gone", async || {
        rig.list(Command::request(206)).await.is_empty()
    })
    .await;
    assert_eq!(rig.server.topics(), 0);
    rig.server.shutdown().await;
}

#[tokio::test]
async fn data_versions_are_compared() {
    let rig = Rig::start().await;
    let version = |n: i64| {
        fastjson::to_vec(&DataVersion {
            counter: n,
            timestamp: 1,
        })
    };
    let ask = async |n: i64| {
        let answer = rig.ask(identity(322).with_body(version(n))).await;
        let changed = answer
            .header::<header::QueryDataVersionResponse>()
            .unwrap()
            .changed;
        let known = (!answer.body.is_empty())
            .then(|| fastjson::from_slice::<DataVersion>(&answer.body).unwrap().counter);
        (changed, known)
    };
    assert_eq!(ask(1).await, (true, None));
    rig.ask(register(A, 0, body(1, &["T"]).encode(false), false))
        .await;
    assert_eq!(ask(1).await, (false, Some(1)));
    assert_eq!(ask(2).await, (true, Some(1)));
    rig.server.shutdown().await;
}

#[tokio::test]
async fn bad_registrations_are_refused_and_change_nothing() {
    let rig = Rig::start().await;
    let good = body(1, &["T"]).encode(false);
    let wrong_crc = register(A, 0, good.clone(), false).with_ext("bodyCrc32", "1");
    assert_eq!(
        rig.ask(wrong_crc).await.remark.as_deref(),
        Some("crc32 not match")
    );
    let mut bomb = body(1, &[]);
    for n in 0..600_000 {
        let name = format!("topic-{n:0>110}");
        bomb.topic_config_table
            .topic_config_table
            .insert(name.clone(), TopicConfig::new(name, 1, 1, 6));
    }
    // Inflates to more than 64 MiB.
    let bomb = bomb.encode(true);
    assert!(bomb.len() < 8 * 1024 * 1024);
    for (what, request) in [
        ("no JSON", register(A, 0, b"{".to_vec(), false)),
        ("no zlib", register(A, 0, b"nothing".to_vec(), true)),
        ("a bomb", register(A, 0, bomb, true)),
        (
            "no id",
            register(A, 0, good.clone(), false).with_ext("brokerId", "abc"),
        ),
        (
            "id too large",
            register(A, 0, good.clone(), false).with_ext("brokerId", "9223372036854775808"),
        ),
        (
            "no name",
            register(A, 0, good.clone(), false).with_ext("brokerName", ""),
        ),
        ("no address", register("", 0, good.clone(), false)),
        ("no arguments", Command::request(103)),
        ("no topic", Command::request(105)),
        ("version no JSON", identity(322).with_body("[")),
    ] {
        let answer = rig.ask(request).await;
        assert_eq!(answer.code, 1, "{what}: {answer:?}");
        assert!(answer.remark.is_some_and(|r| !r.is_empty()), "{what}");
    }
    assert_eq!(rig.server.topics(), 0);
    rig.ask(register(A, 0, good, false)).await;
    assert!(rig.route("T").await.is_ok());
    rig.server.shutdown().await;
}

#[tokio::test]
async fn permissions_topics_and_clusters() {
    let rig = Rig::start().await;
    rig.ask(register(A, 0, body(1, &["T", "U"]).encode(false), false))
        .await;
    let name = header::BrokerNameHeader {
        broker_name: "broker-a",
    };
    let wiped = rig.ask(Command::request(205).with_header(&name)).await;
    assert_eq!(wiped.ext.get("wipeTopicCount"), Some("2"));
    assert_eq!(rig.route("T").await.unwrap().queue_datas[0].perm, 4);
    let added = rig.ask(Command::request(327).with_header(&name)).await;
    assert_eq!(added.ext.get("addTopicCount"), Some("2"));
    assert_eq!(rig.route("T").await.unwrap().queue_datas[0].perm, 6);
    let info: ClusterInfo = fastjson::from_slice(&rig.ask(Command::request(106)).await.body).unwrap();
    assert_eq!(info.cluster_addr_table["DefaultCluster"], ["broker-a"]);
    let cluster = header::ClusterHeader {
        cluster: "DefaultCluster",
    };
    assert_eq!(
        rig.list(Command::request(224).with_header(&cluster)).await,
        ["T", "U"]
    );
    assert_eq!(
        rig.list(Command::request(304)).await,
        ["DefaultCluster", "broker-a"]
    );
    for code in [311, 312, 313] {
        assert!(rig.list(Command::request(code)).await.is_empty());
    }
    let topic = header::DeleteTopicInNamesrv {
        topic: "T",
        cluster_name: None,
    };
    rig.ask(Command::request(216).with_header(&topic)).await;
    assert_eq!(rig.list(Command::request(206)).await, ["U"]);
    rig.server.shutdown().await;
}

#[tokio::test]
async fn key_value_configuration_is_kept_over_a_restart_and_goes_into_routes() {
    let dir = tempfile::tempdir().unwrap();
    let client = new_client();
    let put = |key: &'static str, value: &'static str| {
        Command::request(100).with_header(&header::PutKvConfig {
            namespace: "ORDER_TOPIC_CONFIG",
            key,
            value,
        })
    };
    let get = |key: &'static str| {
        Command::request(101).with_header(&header::KvKey {
            namespace: "ORDER_TOPIC_CONFIG",
            key,
        })
    };
    let list = || {
        Command::request(219).with_header(&header::KvNamespace {
            namespace: "ORDER_TOPIC_CONFIG",
        })
    };
    let first = start(settings(dir.path())).await.unwrap();
    let addr = first.local_addr().to_string();
    let ask = async |addr: &str, request: Command| client.call(addr, request, SOON).await.unwrap();
    let absent = ask(&addr, get("T")).await;
    assert_eq!(absent.code, 22);
    assert_eq!(
        absent.remark.as_deref(),
        Some("No config item, Namespace: ORDER_TOPIC_CONFIG Key: T")
    );
    assert_eq!(ask(&addr, list()).await.code, 22);
    assert_eq!(ask(&addr, put("T", "broker-a:4")).await.code, 0);
    first.shutdown().await;

    let second = start(settings(dir.path())).await.unwrap();
    let addr = second.local_addr().to_string();
    assert_eq!(ask(&addr, get("T")).await.ext.get("value"), Some("broker-a:4"));
    let registered = ask(&addr, register(A, 0, body(1, &["T"]).encode(false), false)).await;
    let orders: KvTable = fastjson::from_slice(&registered.body).unwrap();
    assert_eq!(orders.table["T"], "broker-a:4");
    let conf = async || {
        let answer = ask(&addr, route_request("T")).await;
        fastjson::from_slice::<TopicRouteData>(&answer.body)
            .unwrap()
            .order_topic_conf
    };
    assert_eq!(conf().await, None);
    ask(
        &addr,
        Command::request(318).with_body("orderMessageEnable=true\nnobody=1\n"),
    )
    .await;
    assert_eq!(conf().await.as_deref(), Some("broker-a:4"));
    ask(&addr, put("T", "broker-a:8")).await;
    assert_eq!(conf().await.as_deref(), Some("broker-a:8"));
    let delete = Command::request(102).with_header(&header::KvKey {
        namespace: "ORDER_TOPIC_CONFIG",
        key: "T",
    });
    assert_eq!(ask(&addr, delete).await.code, 0);
    assert_eq!(conf().await, None);
    let emptied = ask(&addr, list()).await;
    assert_eq!((emptied.code, emptied.body.as_ref()), (0, &b"{\"table\":{}}"[..]));
    second.shutdown().await;
}

#[tokio::test]
async fn settings_are_shown_changed_saved_and_guarded() {
    let rig = Rig::start().await;
    let shown = async || String::from_utf8(rig.ask(Command::request(319)).await.body.to_vec()).unwrap();
    let text = shown().await;
    assert!(
        text.contains("orderMessageEnable=false\n") && text.contains("serverWorkerThreads=8\n"),
        "{text}"
    );
    let update = async |body: &'static str| rig.ask(Command::request(318).with_body(body)).await;
    let done = update("orderMessageEnable=true\nserverWorkerThreads=16\nunknown=1").await;
    assert_eq!((done.code, done.remark), (0, None));
    let text = shown().await;
    assert!(
        text.contains("orderMessageEnable=true\n") && text.contains("serverWorkerThreads=16\n"),
        "{text}"
    );
    assert!(!text.contains("unknown"));
    let saved = std::fs::read_to_string(rig.dir.path().join("namesrv.properties")).unwrap();
    assert!(saved.contains("orderMessageEnable=true"), "{saved}");
    for black in [
        "configBlackList=x",
        "kvConfigPath=/x",
        "configStorePath=/x",
        "rocketmqHome=/x",
    ] {
        let refused = update(black).await;
        assert_eq!(
            (refused.code, refused.remark.as_deref()),
            (16, Some("Can not update config in black list."))
        );
    }
    let impossible = update("orderMessageEnable=perhaps").await;
    assert_eq!(impossible.code, 1);
    assert!(impossible.remark.unwrap().contains("orderMessageEnable=perhaps"));
    rig.server.shutdown().await;
}

#[tokio::test]
async fn unknown_codes_are_answered_three() {
    let rig = Rig::start().await;
    for code in [10, 11, 325, 40_000, -1] {
        let answer = rig.ask(Command::request(code)).await;
        assert_eq!(answer.code, 3);
        assert_eq!(answer.remark, Some(format!(" request type {code} not supported")));
    }
    rig.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_registration_does_not_hold_up_routes() {
    let rig = Rig::start().await;
    let names: Vec<String> = (0..20_000).map(|n| format!("topic-{n:0>90}")).collect();
    let topics: Vec<&str> = names.iter().map(String::as_str).collect();
    let large = register(A, 0, body(1, &topics).encode(true), true);
    let broker = new_client();
    let (answer, ()) = tokio::join!(broker.call(&rig.addr, large, Duration::from_mins(1)), async {
        for _ in 0..50 {
            assert!(rig.route("nobody").await.is_err());
        }
    });
    assert_eq!(answer.unwrap().code, 0);
    assert_eq!(rig.list(Command::request(206)).await.len(), 20_000);
    rig.server.shutdown().await;
}

/// A test cluster's name server asks production for what it does not know; two that ask each other do not ask in circles.
#[tokio::test]
async fn unknown_topics_are_looked_up_in_another_environment() {
    let production = Rig::start().await;
    let told = body(1, &["Everywhere", "Production"]).encode(false);
    assert_eq!(production.ask(register(A, 0, told, false)).await.code, 0);
    let test_of = |other: String| async move {
        let dir = tempfile::tempdir().unwrap();
        let settings = NamesrvSettings {
            cluster_test: true,
            product_env_namesrv_addr: other,
            ..settings(dir.path())
        };
        let server = start(settings).await.unwrap();
        let addr = server.local_addr().to_string();
        Rig {
            server,
            client: new_client(),
            addr,
            dir,
        }
    };
    let test = test_of(production.addr.clone()).await;
    let own = body(1, &["Everywhere", "Test"]).encode(false);
    assert_eq!(test.ask(register("10.0.0.9:10911", 0, own, false)).await.code, 0);
    let broker = |route: TopicRouteData| route.broker_datas[0].broker_addrs[&0].clone();
    assert_eq!(broker(test.route("Test").await.unwrap()), "10.0.0.9:10911");
    assert_eq!(broker(test.route("Everywhere").await.unwrap()), "10.0.0.9:10911");
    assert_eq!(broker(test.route("Production").await.unwrap()), A);
    assert_eq!(test.route("Nowhere").await.unwrap_err().code, 17);

    let mirror = test_of(test.addr.clone()).await;
    assert_eq!(broker(mirror.route("Test").await.unwrap()), "10.0.0.9:10911");
    assert_eq!(mirror.route("Production").await.unwrap_err().code, 17);

    let addr = production.addr.clone();
    production.server.shutdown().await;
    let refused = test.route("Production").await.unwrap_err();
    assert_eq!(refused.code, 17, "{addr} is gone: {:?}", refused.remark);
}

/// What an administrator wrote into the order configuration goes into the route as it is; a route is never lost over it.
#[tokio::test]
async fn a_malformed_order_configuration_leaves_the_route_whole() {
    let dir = tempfile::tempdir().unwrap();
    let settings = NamesrvSettings {
        order_message_enable: true,
        ..settings(dir.path())
    };
    let server = start(settings).await.unwrap();
    let addr = server.local_addr().to_string();
    let rig = Rig {
        server,
        client: new_client(),
        addr,
        dir,
    };
    let told = body(1, &["T"]).encode(false);
    assert_eq!(rig.ask(register(A, 0, told, false)).await.code, 0);
    for value in [";;:", "broker-a", "broker-a:many;", "\u{1}\u{2}\"{", "世界:4"] {
        let put = header::PutKvConfig {
            namespace: "ORDER_TOPIC_CONFIG",
            key: "T",
            value,
        };
        assert_eq!(rig.ask(Command::request(100).with_header(&put)).await.code, 0);
        let route = rig.route("T").await.unwrap();
        assert_eq!(route.order_topic_conf.as_deref(), Some(value));
        assert_eq!(route.queue_datas.len(), 1);
    }
    rig.server.shutdown().await;
}
