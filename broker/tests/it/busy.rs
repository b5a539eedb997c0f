//! What the broker answers when it cannot keep up, and what hooks see and refuse.

use std::net::SocketAddr;
use std::sync::Arc;

use ferromq_broker::{Broker, Extensions, SendHook, Sending};
use ferromq_protocol::Command;
use ferromq_protocol::code::{request, response};
use ferromq_remoting::TlsSettings;
use ferromq_store::{Dispatched, Dispatcher};
use parking_lot::Mutex;

use crate::support::{Peer, Rig, eventually, free_port, pull_command, send_command, settings};

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
    let running = Broker::start_extended(
        settings(dir.path(), port),
        None,
        TlsSettings::default(),
        extensions,
    )
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
