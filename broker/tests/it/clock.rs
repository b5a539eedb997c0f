//! A wall clock that jumps by an hour, either way, under a running broker and its name server.
//!
//! The program runs with a small library before it that shifts what its clock says (`clock_shift.c`), so that everything that
//! asks for the time meets the jump, not only what a test seam would reach.

use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use ferromq_protocol::Command;
use ferromq_protocol::body::{ConsumerIdList, LockBatchRequestBody, LockBatchResponseBody, MessageQueue};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{
    CheckTransactionState, ConsumerGroupHeader, GetRouteInfo, OffsetResponse, SearchOffset,
};
use ferromq_protocol::record::{self, Check};
use tokio_util::task::TaskTracker;

use crate::clients::clustering;
use crate::process::{BROKER, Process};
use crate::support::{Peer, Pulled, Sent, eventually, free_port, pull_command, send_command};

fn built(dir: &Path) -> PathBuf {
    let library = dir.join("clock_shift.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clock_shift.c");
    let status = Program::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .status()
        .expect("run cc, which builds of this project need anyway");
    assert!(status.success());
    library
}

struct Clock(PathBuf);

impl Clock {
    fn shift(&self, seconds: i64) {
        // In place: the broker has the file mapped.
        use std::io::Write as _;
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&self.0)
            .unwrap();
        file.write_all(&seconds.to_ne_bytes()).unwrap();
    }
}

fn start(dir: &Path, port: u16, names: u16, clock: Option<(&Path, &Clock)>) -> Process {
    let more = "transactionTimeOut=1500\ntransactionCheckInterval=200\n";
    let file = Process::configure(dir, port, more);
    let mut program = Program::new(BROKER);
    program.arg("-c").arg(file).stderr(Stdio::null());
    program.args(["--with-namesrv", &format!("-Dnamesrv.listenPort={names}")]);
    if let Some((library, clock)) = clock {
        program
            .env("LD_PRELOAD", library)
            .env("FERROMQ_TEST_CLOCK", &clock.0);
    }
    let mut process = Process::run(program);
    assert!(process.next_line().starts_with("The Name Server boot success"));
    process.started();
    process
}

async fn locked(peer: &Peer, client: &str) -> usize {
    let body = LockBatchRequestBody {
        client_id: client.to_owned(),
        consumer_group: "CG".to_owned(),
        mq_set: vec![MessageQueue::new("T", "broker-a", 0)],
    };
    let answer = peer
        .ok(Command::request(request::LOCK_BATCH_MQ).with_body(fastjson::to_vec(&body)))
        .await;
    let body: LockBatchResponseBody = fastjson::from_slice(&answer.body).unwrap();
    body.lock_ok_mq_set.len()
}

async fn members(peer: &Peer) -> Vec<String> {
    let ask = Command::request(request::GET_CONSUMER_LIST_BY_GROUP)
        .with_header(&ConsumerGroupHeader { consumer_group: "CG" });
    let answer = peer.ok(ask).await;
    fastjson::from_slice::<ConsumerIdList>(&answer.body)
        .unwrap()
        .consumer_id_list
}

async fn by_time(peer: &Peer, timestamp: i64) -> i64 {
    let ask = Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP).with_header(&SearchOffset {
        topic: "T",
        queue_id: 0,
        timestamp,
    });
    peer.ok(ask).await.header::<OffsetResponse>().unwrap().offset
}

fn asked_about(peer: &Peer, half: &str) -> bool {
    let received = peer.received.lock();
    received
        .iter()
        .filter(|c| c.code == request::CHECK_TRANSACTION_STATE)
        .any(|c| {
            c.header::<CheckTransactionState<'_>>()
                .is_ok_and(|check| check.transaction_id == Some(half))
        })
}

/// What must hold around one jump.
async fn jump(peer: &Peer, names: &Peer, clock: &Clock, hours: i64, round: i64) {
    let what = format!("with the clock {hours} h off");
    let tasks = TaskTracker::new();
    let at_end = peer.max_offset("T", 1).await;
    let (client, addr) = (peer.client.clone(), peer.addr.clone());
    let held = tasks.spawn(async move {
        client
            .call(
                &addr,
                pull_command("T", 1, at_end, 240_000),
                Duration::from_mins(4),
            )
            .await
    });
    let half = format!("half-{round}");
    let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}PG\u{2}UNIQ_KEY\u{1}{half}");
    peer.ok(send_command("T", 3, &half, &properties)).await;
    peer.ok(send_command("T", 2, "delayed", "DELAY\u{1}1")).await;

    clock.shift(hours * 3_600);

    // Sends go on where they were, and wake who waits.
    assert_eq!(peer.send("T", 0, "after").await.offset, 2 * round + 1, "{what}");
    let woken = Sent::of(&peer.ok(send_command("T", 1, "woken", "")).await);
    let pulled = Pulled::of(&held.await.unwrap().unwrap());
    assert_eq!(
        (pulled.code, pulled.bodies),
        (0, vec!["woken".to_owned()]),
        "{what}, offset {}",
        woken.offset
    );
    // Nobody takes a lock that is held, and its owner keeps it.
    assert_eq!(
        (locked(peer, "b").await, locked(peer, "a").await),
        (0, 1),
        "{what}"
    );
    assert_eq!(members(peer).await, ["a"], "{what}");
    // What is delayed comes: at once when the clock is ahead, after its delay when it is behind.
    assert_eq!(peer.drain("T", 2, round, 1).await, ["delayed"], "{what}");
    eventually(&format!("the producer is asked, {what}"), || async {
        asked_about(peer, &half)
    })
    .await;
    // Looking a time up finds a place in the queue, whatever the order of the times in it.
    for timestamp in [0, i64::MAX, 1_600_000_000_000] {
        let found = by_time(peer, timestamp).await;
        assert!(
            (0..=peer.max_offset("T", 0).await).contains(&found),
            "{what}: {found}"
        );
    }
    peer.ok(Command::request(request::DELETE_EXPIRED_COMMITLOG)).await;
    let route = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&GetRouteInfo {
        topic: "T",
        accept_standard_json_only: true,
    });
    assert_eq!(names.call(route).await.code, 0, "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumps_by_an_hour_either_way_loses_nothing_and_drops_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (port, names_port) = (free_port(), free_port());
    let library = built(dir.path());
    let clock = Clock(dir.path().join("shift"));
    clock.shift(0);
    let broker = start(dir.path(), port, names_port, Some((&library, &clock)));
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    let names = Peer::new(format!("127.0.0.1:{names_port}"));
    peer.send("T", 0, "before").await;
    peer.send("T", 1, "before").await;
    peer.drain("T", 1, 0, 1).await;
    peer.ok(clustering("a", &["T"])).await;
    assert_eq!(locked(&peer, "a").await, 1);
    eventually("the topic is routed", || async {
        let route = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&GetRouteInfo {
            topic: "T",
            accept_standard_json_only: true,
        });
        names.call(route).await.code == 0
    })
    .await;
    for (round, hours) in [1, -1, 0].into_iter().enumerate() {
        jump(&peer, &names, &clock, hours, round as i64).await;
        peer.send("T", 0, "between").await;
    }
    clock.shift(-3_600);
    peer.send("T", 0, "last").await;
    // The jumps were real: the records' times span two hours.
    let pulled = peer.call(pull_command("T", 0, 0, 0)).await;
    let times: Vec<i64> = record::iter(&pulled.body, Check::Crc)
        .map(|r| r.unwrap().store_timestamp)
        .collect();
    let span = times.iter().max().unwrap() - times.iter().min().unwrap();
    assert!(span > 7_000_000, "{times:?}");
    let bodies = peer.drain("T", 0, 0, 8).await;
    // A crash in the past, and a start in the present.
    broker.kill();
    let broker = start(dir.path(), port, names_port, None);
    assert_eq!(peer.drain("T", 0, 0, 8).await, bodies);
    assert_eq!(peer.send("T", 0, "on").await.offset, 8);
    broker.stop();
}
