//! What the broker answers when it cannot keep up, and what hooks see and refuse.

use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use ferromq_broker::{Broker, Extensions, SendHook, Sending, StartOptions};
use ferromq_protocol::body::{SubscriptionGroupConfig, SubscriptionGroupTable};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::{Command, fastjson};
use ferromq_store::{Dispatched, Dispatcher};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{LONG, Peer, Rig, eventually, free_port, pull_command, send_command, settings};

/// The broker's answers to `count` sends at once.
async fn burst(rig: &Rig, count: usize) -> Vec<Command> {
    let sends = (0..count).map(|n| rig.peer.call(send_command("T", 0, &format!("{n}"), "")));
    futures::future::join_all(sends).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sends_that_wait_for_a_replica_are_bounded_and_the_rest_refused_early() {
    let rig = Rig::start_with(|s| {
        s.broker_role = "SYNC_MASTER".to_owned();
        s.flush_disk_type = "SYNC_FLUSH".to_owned();
        s.send_thread_pool_queue_capacity = 1;
    })
    .await;
    rig.peer.call(send_command("T", 0, "first", "")).await;
    let mut refused = Vec::new();
    for _ in 0..50 {
        let answers = burst(&rig, 100).await;
        refused.extend(answers.into_iter().filter(|a| a.code == response::SYSTEM_BUSY));
        if !refused.is_empty() {
            break;
        }
    }
    let said = refused.first().and_then(|a| a.remark.clone()).unwrap_or_default();
    assert!(
        said.contains("[OVERLOAD]") && said.contains("sendThreadPoolQueueCapacity"),
        "{said}"
    );
    // Whoever was refused may try again: the places are given back.
    eventually("a send is taken again", || async {
        rig.peer.call(send_command("T", 0, "again", "")).await.code != response::SYSTEM_BUSY
    })
    .await;
    rig.stop().await;
}

/// Says that it follows the log from its beginning, and then nothing: sends wait for it.
fn mute_slave(port: u16) -> TcpStream {
    let mut slave = TcpStream::connect(("127.0.0.1", port + 1)).unwrap();
    slave.write_all(&0_i64.to_be_bytes()).unwrap();
    slave
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_topic_leaves_room_for_others() {
    let rig = Rig::start_with(|s| {
        s.broker_role = "SYNC_MASTER".to_owned();
        s.send_thread_pool_queue_capacity = 50;
        s.slave_timeout = 60_000;
        s.shutdown_timeout_millis = 3_000;
    })
    .await;
    // Without a slave nothing waits, and the topics are made.
    for topic in ["Hot", "Quiet"] {
        rig.peer.call(send_command(topic, 0, "first", "")).await;
    }
    let slave = mute_slave(rig.port);
    eventually("sends wait for the slave", || async {
        let send = rig.peer.call(send_command("Hot", 0, "waits", ""));
        tokio::time::timeout(Duration::from_millis(100), send)
            .await
            .is_err()
    })
    .await;
    // Whatever one topic does, it gets 40 of the 50 places.
    let tasks = TaskTracker::new();
    let (client, addr) = (rig.peer.client.clone(), rig.peer.addr.clone());
    for _ in 0..100 {
        let (client, addr) = (client.clone(), addr.clone());
        tasks.spawn(async move { client.call(&addr, send_command("Hot", 0, "more", ""), LONG).await });
    }
    let said = Mutex::new(String::new());
    eventually("the hot topic is refused", || async {
        let send = rig.peer.call(send_command("Hot", 0, "one more", ""));
        let Ok(answer) = tokio::time::timeout(Duration::from_millis(100), send).await else {
            return false;
        };
        assert_eq!(answer.code, response::SYSTEM_BUSY);
        *said.lock() = answer.remark.unwrap_or_default();
        true
    })
    .await;
    let said = said.into_inner();
    assert!(
        said.contains("[OVERLOAD]")
            && said.contains("to topic Hot")
            && said.contains("hotTopicSendPercent=80"),
        "{said}"
    );
    // A quiet one is taken: it waits for the slave as it should.
    let quiet = rig.peer.call(send_command("Quiet", 0, "taken", ""));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), quiet)
            .await
            .is_err(),
        "the quiet topic was refused"
    );
    drop(slave);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_one_topic_does_not_stop_another() {
    let rig = Rig::start().await;
    rig.peer.send("Quiet", 0, "0").await;
    let flooders: Vec<Peer> = (0..8).map(|_| Peer::new(rig.peer.addr.clone())).collect();
    let done = CancellationToken::new();
    let flood = async {
        let each = flooders.iter().map(|flooder| async {
            let mut sent = 0_u64;
            while !done.is_cancelled() {
                let many = (0..64).map(|_| flooder.call(send_command("Hot", 0, "flood", "")));
                let answers = futures::future::join_all(many).await;
                sent += answers.iter().filter(|a| a.code == 0).count() as u64;
            }
            sent
        });
        futures::future::join_all(each).await.into_iter().sum::<u64>()
    };
    let quiet = async {
        for n in 1..=100 {
            assert_eq!(rig.peer.send("Quiet", 0, "q").await.offset, n);
        }
        done.cancel();
    };
    let (flooded, ()) = tokio::join!(flood, quiet);
    assert!(flooded > 0);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_reads_too_far_behind_is_turned_off() {
    let rig = Rig::start_with(|s| {
        s.disable_consume_if_consumer_read_slowly = true;
        s.consumer_fallbehind_threshold = 4_000;
        s.consumer_fallbehind_check_interval = 50;
    })
    .await;
    for n in 0..50 {
        rig.peer.send("T", 0, &format!("{n:0>200}")).await;
    }
    rig.peer.drain("T", 0, 49, 1).await;
    // Reading near the end does no harm.
    for _ in 0..5 {
        assert_eq!(rig.peer.pull("T", 0, 49).await.code, 0);
    }
    let mut from_start = pull_command("T", 0, 0, 0);
    from_start.ext.set("maxMsgNums", "1");
    eventually("the group is turned off", || {
        let pull = from_start.clone();
        async { rig.peer.call(pull).await.code == response::NO_PERMISSION }
    })
    .await;
    let group = |consume_enable| {
        let config = SubscriptionGroupConfig {
            consume_enable,
            ..SubscriptionGroupConfig::new("CG")
        };
        Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(fastjson::to_vec(&config))
    };
    let all = rig
        .peer
        .ok(Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        .await;
    let all: SubscriptionGroupTable = fastjson::from_slice(&all.body).unwrap();
    assert!(!all.subscription_group_table["CG"].consume_enable);
    // An administrator lets it read again, and where it reads now it may.
    rig.peer.ok(group(true)).await;
    assert_eq!(rig.peer.pull("T", 0, 49).await.code, 0);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_port_serves_pulls_too() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "x").await;
    let vip = Peer::new(format!("127.0.0.1:{}", rig.port - 2));
    assert_eq!(vip.drain("T", 0, 0, 1).await, ["x"]);
    vip.send("T", 0, "y").await;
    assert_eq!(rig.peer.drain("T", 0, 1, 1).await, ["y"]);
    rig.stop().await;
}

#[derive(Default)]
struct Watch {
    seen: Mutex<Vec<String>>,
}

impl SendHook for Watch {
    fn before(&self, sending: &Sending<'_>) -> Result<(), String> {
        let _: SocketAddr = sending.peer;
        if sending.body == b"bad" {
            return Err("no bad messages here".to_owned());
        }
        Ok(())
    }

    fn stored(&self, sending: &Sending<'_>, queue_offset: i64, _: i64) {
        let row = format!("{}@{}={queue_offset}", sending.topic, sending.queue_id);
        self.seen.lock().push(row);
    }
}

impl Dispatcher for Watch {
    fn dispatch(&self, record: &Dispatched<'_>) -> std::io::Result<()> {
        self.seen
            .lock()
            .push(format!("{}/{}", record.topic, record.queue_offset));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hooks_see_sends_and_the_dispatch() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let (sends, dispatched) = (Arc::new(Watch::default()), Arc::new(Watch::default()));
    let extensions = Extensions {
        send: vec![sends.clone()],
        dispatch: vec![dispatched.clone()],
    };
    let options = StartOptions {
        extensions,
        ..StartOptions::default()
    };
    let running = Broker::start_with(settings(dir.path(), port), options)
        .await
        .unwrap();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    peer.send("T", 2, "good").await;
    let answer = peer.call(send_command("T", 2, "bad", "")).await;
    assert_eq!(
        (answer.code, answer.remark.as_deref()),
        (1, Some("no bad messages here"))
    );
    assert_eq!(*sends.seen.lock(), ["T@2=0"]);
    eventually("the record is dispatched", || async {
        dispatched.seen.lock().contains(&"T/0".to_owned())
    })
    .await;
    assert_eq!(dispatched.seen.lock().len(), 1);
    assert!(running.shutdown().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_of_history_do_not_stop_senders() {
    // All that is read counts as far from memory, and there are more readers than may read at a time.
    let rig = Rig::start_with(|s| s.access_message_in_memory_max_ratio = 0).await;
    for n in 0..64 {
        rig.peer.send("T", 0, &format!("{n}")).await;
    }
    rig.peer.drain("T", 0, 0, 64).await;
    let readers: Vec<Peer> = (0..32).map(|_| Peer::new(rig.peer.addr.clone())).collect();
    let reading = async {
        let all = readers.iter().map(|reader| async {
            for _ in 0..20 {
                assert_eq!(reader.call(pull_command("T", 0, 0, 0)).await.code, 0);
            }
        });
        futures::future::join_all(all).await;
    };
    let sending = async {
        for n in 0..200 {
            rig.peer.send("Other", 0, &format!("{n}")).await;
        }
    };
    tokio::join!(reading, sending);
    let command = Command::request(request::GET_BROKER_RUNTIME_INFO);
    assert_eq!(rig.peer.ok(command).await.code, 0);
    rig.stop().await;
}
