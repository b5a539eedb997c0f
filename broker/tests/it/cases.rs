//! Situations in which brokers of this kind have failed: separators left out, property lengths that wrap, counts that size
//! an allocation, IPv6 addresses, the largest message, thousands of clients that leave at once.

use std::net::SocketAddr;

use bytes::BytesMut;
use ferromq_protocol::Command;
use ferromq_protocol::batch::{self, BatchMessage};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::frame;
use ferromq_protocol::header::{PullMessage, QueryMessage, SendMessage, ViewMessage};
use ferromq_protocol::message_id;
use ferromq_protocol::record::{self, Check, Entry};
use ferromq_protocol::sysflag::pull as flag;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{Process, get};
use crate::support::{Peer, Pulled, Rig, eventually, free_port, pull_tagged, send_command};

fn batch_of(topic: &str, messages: &[(&str, &str)]) -> Command {
    let mut body = Vec::new();
    batch::encode(
        messages.iter().map(|(body, properties)| BatchMessage {
            flag: 0,
            body: body.as_bytes(),
            properties: properties.as_bytes(),
        }),
        &mut body,
    );
    Command::request(request::SEND_BATCH_MESSAGE)
        .with_header(&SendMessage {
            producer_group: "PG",
            topic,
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            queue_id: 0,
            batch: true,
            ..SendMessage::default()
        })
        .with_body(body)
}

/// The last property may end without its separator: what the broker adds must not become part of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_brokers_properties_stay_apart_from_the_last_of_the_sender() {
    let rig = Rig::start().await;
    let texts = [
        "KEYS\u{1}k\u{2}TAGS\u{1}Red",
        "KEYS\u{1}k\u{2}TAGS\u{1}Red\u{2}",
        "TAGS\u{1}Red\u{2}KEYS\u{1}k",
        "TAGS\u{1}Red\u{2}\u{1}no name\u{2}E\u{1}\u{2}KEYS\u{1}k",
        "TAGS\u{1}Red\u{2}odd\u{1}one\u{1}two\u{2}KEYS\u{1}k",
    ];
    for text in texts {
        rig.peer.ok(send_command("T", 0, "single", text)).await;
    }
    rig.peer
        .ok(batch_of("T", &texts.map(|text| ("of a batch", text))))
        .await;
    rig.peer
        .ok(send_command("T", 0, "another", "TAGS\u{1}Blue"))
        .await;
    let mut next = 0;
    let mut found = Vec::new();
    eventually("all are in the queue", || async {
        rig.peer.max_offset("T", 0).await == 11
    })
    .await;
    while next < 11 {
        let pulled = Pulled::of(&rig.peer.call(pull_tagged("T", 0, next, 0, "Red")).await);
        next = pulled.header.next_begin_offset;
        found.extend(pulled.properties);
    }
    // The queue's tag codes are those of the plain tag, or these would not be found.
    assert_eq!(found.len(), 10);
    for properties in found {
        let value = |name: &str| {
            properties
                .split('\u{2}')
                .find_map(|p| p.strip_prefix(&format!("{name}\u{1}")))
                .map(str::to_owned)
        };
        assert_eq!(value("TAGS").as_deref(), Some("Red"), "{properties:?}");
        assert_eq!(value("KEYS").as_deref(), Some("k"), "{properties:?}");
        assert_eq!(
            value("CLUSTER").as_deref(),
            Some("DefaultCluster"),
            "{properties:?}"
        );
    }
    let by_key = Command::request(request::QUERY_MESSAGE).with_header(&QueryMessage {
        topic: "T",
        key: "k",
        max_num: 32,
        begin_timestamp: 0,
        end_timestamp: i64::MAX,
        unique_key: false,
    });
    eventually("the index has all of them", || async {
        let answer = rig.peer.call(by_key.clone()).await;
        record::iter(&answer.body, Check::Crc).count() == 10
    })
    .await;
    rig.stop().await;
}

/// A delayed message keeps its level although the property that says so is the last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delay_level_at_the_end_is_kept() {
    let rig = Rig::start_with(|s| s.message_delay_level = "1s 2s".to_owned()).await;
    rig.peer.send("T", 0, "makes the topic").await;
    rig.peer
        .ok(send_command("T", 0, "later", "K\u{1}v\u{2}DELAY\u{1}1"))
        .await;
    eventually("it is among the delayed of level 1", || async {
        rig.peer.max_offset("SCHEDULE_TOPIC_XXXX", 0).await == 1
    })
    .await;
    assert_eq!(rig.peer.drain("T", 0, 1, 1).await, ["later"]);
    rig.stop().await;
}

/// What the broker adds would make the length of the middle one's properties wrap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_whose_member_has_too_many_properties_is_refused_whole() {
    let mut rig = Rig::start().await;
    rig.peer.send("T", 0, "before").await;
    for wide in [
        format!("K\u{1}{}", "v".repeat(32_758)),
        format!("K\u{1}{}", "中".repeat(10_919)),
        format!("K\u{1}{}", "中".repeat(11_000)),
    ] {
        let batch = batch_of("T", &[("a", "X\u{1}1"), ("b", &wide), ("c", "X\u{1}3")]);
        let answer = rig.peer.call(batch).await;
        assert_eq!(answer.code, response::MESSAGE_ILLEGAL, "{:?}", answer.remark);
        let answer = rig.peer.call(send_command("T", 0, "alone", &wide)).await;
        assert_eq!(answer.code, response::MESSAGE_ILLEGAL, "{:?}", answer.remark);
    }
    let fits = format!("K\u{1}{}", "v".repeat(32_700));
    rig.peer
        .ok(batch_of("T", &[("a", ""), ("b", &fits), ("c", "")]))
        .await;
    rig.restart().await;
    assert_eq!(rig.peer.drain("T", 0, 0, 4).await, ["before", "a", "b", "c"]);
    assert_eq!(rig.peer.send("T", 0, "after").await.offset, 4);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_from_the_wire_size_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut broker = Process::start(dir.path(), port, "", &[]);
    broker.started();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    for n in 0..3 {
        peer.ok(send_command("T", 0, &n.to_string(), "KEYS\u{1}k")).await;
    }
    let ask = async |count: i32| {
        let pull = Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
            consumer_group: "CG",
            topic: "T",
            queue_id: 0,
            queue_offset: 0,
            max_msg_nums: count,
            sys_flag: flag::SUBSCRIPTION,
            commit_offset: 0,
            suspend_timeout_millis: 0,
            subscription: Some("*"),
            sub_version: 0,
            expression_type: None,
        });
        let query = Command::request(request::QUERY_MESSAGE).with_header(&QueryMessage {
            topic: "T",
            key: "k",
            max_num: count,
            begin_timestamp: 0,
            end_timestamp: i64::MAX,
            unique_key: false,
        });
        let mut units = Command::request(321);
        for (key, value) in [
            ("topic", "T"),
            ("queueId", "0"),
            ("index", "0"),
            ("consumerGroup", "CG"),
        ] {
            units.ext.set(key, value);
        }
        units.ext.set_display("count", count);
        for command in [pull, query, units] {
            let code = command.code;
            let answer = peer.call(command).await;
            assert!(
                matches!(answer.code, 0 | 1 | 13 | 19 | 22),
                "{code} with {count}: {} {:?}",
                answer.code,
                answer.remark
            );
        }
    };
    ask(32).await;
    let before = broker.kib("RssAnon");
    for count in [i32::MAX, i32::MAX - 1, -1, 0, i32::MIN] {
        ask(count).await;
    }
    // 15 requests; the allocator takes memory in pieces.
    let grown = broker.kib("RssAnon").saturating_sub(before);
    assert!(grown < 4 * 1024, "grew by {grown} KiB");
}

/// A broker known by an IPv6 address: brackets in its address, ids of 56 digits that lead back to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_an_ipv6_address() {
    let rig = Rig::start_with(|s| {
        s.broker_ip1 = "::1".to_owned();
        s.broker_ip2 = "::1".to_owned();
        s.bind_address = "::".to_owned();
    })
    .await;
    let six = Peer::new(format!("[::1]:{}", rig.port));
    for (peer, queue) in [(&rig.peer, 0), (&six, 1)] {
        let sent = peer.send("T", queue, "find me").await;
        assert_eq!(sent.id.len(), 56);
        let (host, offset) = message_id::parse_offset_id(&sent.id).unwrap();
        assert_eq!(host, SocketAddr::new("::1".parse().unwrap(), rig.port));
        let view = Command::request(request::VIEW_MESSAGE_BY_ID).with_header(&ViewMessage { offset });
        let answer = six.ok(view).await;
        let Entry::Record(found) = record::parse(&answer.body, Check::Crc).unwrap() else {
            panic!("no record")
        };
        assert_eq!((found.body, found.store_host), (&b"find me"[..], host));
        // Born over IPv4 and stored by an IPv6 host, and both IPv6.
        assert_eq!(found.born_host.is_ipv4(), queue == 0);
        assert_eq!(peer.drain("T", queue, 0, 1).await, ["find me"]);
    }
    let info = six.ok(Command::request(request::GET_BROKER_RUNTIME_INFO)).await;
    let info = String::from_utf8_lossy(&info.body).into_owned();
    assert!(!info.contains("\"::1:"), "{info}");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_message_passes_and_one_byte_more_does_not() {
    let rig = Rig::start_with(|s| s.mapped_file_size_commit_log = 8 << 20).await;
    let largest = "x".repeat(4 << 20);
    rig.peer.send("T", 0, &largest).await;
    assert!(rig.peer.drain("T", 0, 0, 1).await[0] == largest);
    let more = rig
        .peer
        .call(send_command("T", 0, &format!("{largest}x"), ""))
        .await;
    assert_eq!(more.code, response::MESSAGE_ILLEGAL, "{:?}", more.remark);
    rig.stop().await;
}

/// Each a group of its own, all gone at once: nothing of them stays connected, and the broker goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_clients_that_leave_at_once_are_forgotten() {
    // 12,000 where as many files may be open at each side.
    let files = ferromq_daemon::limits::raise_open_files();
    let clients = 12_000.min(files - files / 4);
    let dir = tempfile::tempdir().unwrap();
    let (port, pages) = (free_port(), free_port());
    let mut broker = Process::start(dir.path(), port, &format!("httpPort={pages}\n"), &[]);
    broker.started();
    let mut crowd = Vec::new();
    for n in 0..clients {
        let body = format!("{{\"clientID\":\"c{n}\",\"producerDataSet\":[{{\"groupName\":\"P{n}\"}}]}}");
        let mut out = BytesMut::new();
        frame::encode(&Command::request(request::HEART_BEAT).with_body(body), &mut out);
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        stream.write_all(&out).await.unwrap();
        crowd.push(stream);
    }
    for stream in &mut crowd {
        let mut length = [0; 4];
        stream.read_exact(&mut length).await.unwrap();
    }
    let groups = async || {
        let page = tokio::task::spawn_blocking(move || get(pages, "/metrics"))
            .await
            .unwrap();
        let (_, page) = page?;
        let line = page
            .lines()
            .find(|l| l.starts_with("ferromq_broker_producer_groups_connected "))?;
        line.rsplit(' ').next()?.parse::<usize>().ok()
    };
    assert_eq!(groups().await, Some(clients));
    drop(crowd);
    eventually("all groups are gone", || async { groups().await == Some(0) }).await;
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    let mut producers = Command::request(request::GET_PRODUCER_CONNECTION_LIST);
    producers.ext.set("producerGroup", "P7");
    assert_ne!(peer.call(producers).await.code, response::SUCCESS);
    peer.send("T", 0, "after").await;
}
