//! Tables that follow those in use: topics, groups and statistics that go leave nothing behind; members of a large group who
//! come and go one after the other make few notices; log files go although peers that never read hold their messages.
//!
//! The ordinary form is small; `make many-clients` makes 3,000 topics and groups (`FERROMQ_TOPICS`).

use std::time::Duration;

use bytes::BytesMut;
use ferromq_protocol::Command;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::frame;
use ferromq_protocol::header::{CreateTopic, DeleteSubscriptionGroup, TopicHeader};
use futures::stream::{self, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpSocket;

use crate::clients;
use crate::process::{Process, figure, get};
use crate::support::{Peer, Pulled, Rig, eventually, free_port, pull_command, send_command};

async fn each<F: Future<Output = ()>>(count: usize, work: impl Fn(usize) -> F) {
    stream::iter((0..count).map(work))
        .buffer_unordered(64)
        .for_each(|()| async {})
        .await;
}

fn name(n: usize) -> String {
    // As long as names of topics often are.
    format!("Topic_{n:05}_{}", "x".repeat(40))
}

async fn make(peer: &Peer, n: usize) {
    let topic = name(n);
    let create = Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&CreateTopic {
        topic: &topic,
        default_topic: "TBW102",
        read_queue_nums: 1,
        write_queue_nums: 1,
        perm: 6,
        topic_filter_type: "SINGLE_TAG",
        topic_sys_flag: None,
        order: false,
    });
    peer.ok(create).await;
    let group = format!("{{\"groupName\":\"G{n}\"}}");
    peer.ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(group))
        .await;
    // Counters of topic, queue and group, and progress.
    peer.ok(send_command(&topic, 0, "x", "")).await;
    let mut pull = pull_command(&topic, 0, 0, 1_000);
    pull.ext.set("consumerGroup", format!("G{n}"));
    peer.call(pull).await;
    let commit = Command::request(request::UPDATE_CONSUMER_OFFSET)
        .with_ext("consumerGroup", format!("G{n}"))
        .with_ext("topic", &topic)
        .with_ext("queueId", "0")
        .with_ext("commitOffset", "1");
    peer.ok(commit).await;
}

async fn delete(peer: &Peer, n: usize) {
    let topic = name(n);
    let gone = Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&TopicHeader { topic: &topic });
    peer.ok(gone).await;
    let group = format!("G{n}");
    let gone = Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&DeleteSubscriptionGroup {
        group_name: &group,
        remove_offset: true,
    });
    peer.ok(gone).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_and_groups_that_are_deleted_leave_nothing_behind() {
    let count = std::env::var("FERROMQ_TOPICS").map_or(300, |n| n.parse().unwrap());
    ferromq_daemon::limits::raise_open_files();
    let dir = tempfile::tempdir().unwrap();
    let (port, pages) = (free_port(), free_port());
    let more = format!("httpPort={pages}\nmetricsMaxSeries=100000\n");
    let mut broker = Process::start(dir.path(), port, &more, &[]);
    broker.started();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    // Topics, groups, queues of the store, tables of progress that are ours.
    let figures = async || {
        let mut found = vec![figure(pages, "ferromq_broker_queues").await as usize];
        for (code, ours) in [
            (request::GET_ALL_TOPIC_CONFIG, "\"topicName\":\"Topic_"),
            (request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "\"groupName\":\"G"),
            (request::GET_ALL_CONSUMER_OFFSET, "\"Topic_"),
        ] {
            let table = peer.ok(Command::request(code)).await;
            found.push(String::from_utf8_lossy(&table.body).matches(ours).count());
        }
        found
    };
    // Twice: what the first round leaves in caches and in the allocator is no leak.
    let mut rounds = Vec::new();
    let at_first = figures().await;
    assert_eq!(at_first[1..], [0, 0, 0]);
    for _ in 0..2 {
        each(count, |n| make(&peer, n)).await;
        let full = figures().await;
        assert_eq!(full, [at_first[0] + count, count, count, count]);
        let peak = broker.kib("RssAnon");
        each(count, |n| delete(&peer, n)).await;
        eventually("all tables are as before", || async {
            figures().await == at_first
        })
        .await;
        let page = tokio::task::spawn_blocking(move || get(pages, "/metrics"))
            .await
            .unwrap();
        let page = page.unwrap().1;
        assert!(!page.contains("Topic_0"), "a statistic of a topic that is gone");
        for (stat, key) in [
            ("TOPIC_PUT_NUMS", name(7)),
            ("GROUP_GET_NUMS", format!("{}@G7", name(7))),
        ] {
            let asked = Command::request(request::VIEW_BROKER_STATS_DATA)
                .with_ext("statsName", stat)
                .with_ext("statsKey", key);
            assert_ne!(peer.call(asked).await.code, response::SUCCESS, "{stat}");
        }
        rounds.push((peak, broker.kib("RssAnon")));
    }
    eprintln!("{count} topics and groups; KiB anonymous at the peak and after: {rounds:?}");
    let (first, second) = (rounds[0].1, rounds[1].1);
    assert!(
        second < first + first / 4 + 8 * 1024,
        "each round of topics leaves memory: {rounds:?}"
    );
    broker.stop();
}

/// 500 members of one group are restarted one after the other: 1,000 changes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_a_large_group_makes_few_notices() {
    const MEMBERS: usize = 500;
    let rig = Rig::start().await;
    let members: Vec<Peer> = (0..MEMBERS).map(|_| Peer::new(rig.peer.addr.clone())).collect();
    each(MEMBERS, |n| {
        let member = &members[n];
        async move {
            member
                .ok(clients::member(&format!("member-{n}"), "CG", &["T"]))
                .await;
        }
    })
    .await;
    // One that stays, and sends all the while.
    let stays = Peer::new(rig.peer.addr.clone());
    stays.ok(clients::member("stays", "CG", &["T"])).await;
    let began = std::time::Instant::now();
    for (n, member) in members.iter().enumerate() {
        member.client.close().await;
        let again = Peer::new(rig.peer.addr.clone());
        again
            .ok(clients::member(&format!("member-{n}"), "CG", &["T"]))
            .await;
        if n % 50 == 0 {
            stays.send("T", 0, "meanwhile").await;
        }
        again.client.close().await;
    }
    let told = || {
        let received = stays.received.lock();
        received
            .iter()
            .filter(|c| c.code == request::NOTIFY_CONSUMER_IDS_CHANGED)
            .count()
    };
    eventually("told at all", || async { told() > 0 }).await;
    // However fast they come and go: one notice at once and then one in 100 ms.
    let most = began.elapsed().as_millis() as usize / 100 + 2;
    assert!(told() <= most, "{} notices, {most} at the most", told());
    rig.stop().await;
}

/// Peers that ask and never read hold messages of old log files, which have to go all the same; and all is given back
/// when the peers are gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_files_expire_while_peers_that_never_read_hold_their_messages() {
    let dir = tempfile::tempdir().unwrap();
    let (port, pages) = (free_port(), free_port());
    let more = format!("fileReservedTime=0\nhttpPort={pages}\nconnectionBufferBytes=67108864\n");
    let mut broker = Process::start(dir.path(), port, &more, &[]);
    broker.started();
    let good = Peer::new(format!("127.0.0.1:{port}"));
    let piece = "x".repeat(60 << 10);
    for _ in 0..200 {
        good.send("T", 0, &piece).await;
    }
    let first = dir.path().join("store/commitlog/00000000000000000000");
    assert!(first.exists());
    let mut pulls = BytesMut::new();
    for n in 0..1_000 {
        let mut pull = pull_command("T", 0, 0, 0);
        pull.opaque = n;
        frame::encode(&pull, &mut pulls);
    }
    let mut greedy = Vec::new();
    for _ in 0..50 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(([127, 0, 0, 1], port).into()).await.unwrap();
        // What does not go in now waits in the sockets; the broker reads on as far as it lets itself.
        drop(tokio::time::timeout(Duration::from_secs(2), stream.write_all(&pulls)).await);
        greedy.push(stream);
    }
    eventually("their answers wait", || async {
        figure(pages, "ferromq_connection_memory_bytes").await >= 32e6
    })
    .await;

    good.ok(Command::request(request::DELETE_EXPIRED_COMMITLOG)).await;
    eventually("the oldest files are gone", || async { !first.exists() }).await;
    let sent = good.send("Good", 0, "meanwhile").await;
    let pulled = Pulled::of(&good.call(pull_command("Good", 0, sent.offset, 5_000)).await);
    assert_eq!(pulled.bodies, ["meanwhile"]);
    eventually("a reader of what is gone is told where to go on", || async {
        good.pull_code("T").await == response::PULL_OFFSET_MOVED
    })
    .await;

    drop(greedy);
    let id = broker.id();
    let held = move || {
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        maps.lines()
            .filter(|line| line.contains("commitlog") && line.contains("(deleted)"))
            .count()
    };
    eventually("no mapping of a deleted file is left", || async { held() == 0 }).await;
    broker.stop();
}
