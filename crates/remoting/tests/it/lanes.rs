//! Lanes: bounded queue, deadline, and an answer even when every worker hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::command::Command;
use ferromq_remoting::{Dispatch, Lane, LaneId, Outcome, RequestContext, Run, ServerConfig};
use parking_lot::{Condvar, Mutex};

use crate::support::{Peer, SOON, TestServer, request, until};

/// A door that handlers wait at.
#[derive(Default)]
struct Door {
    open: Mutex<bool>,
    wake: Condvar,
    entered: AtomicUsize,
}

impl Door {
    fn pass(&self) {
        self.entered.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock();
        while !*open {
            self.wake.wait(&mut open);
        }
    }
    fn open(&self) {
        *self.open.lock() = true;
        self.wake.notify_all();
    }
}

fn table(queue: usize, max_wait: Duration) -> (Arc<Dispatch>, LaneId, Arc<Door>) {
    let door = Arc::new(Door::default());
    let mut table = Dispatch::builder();
    let lane = table.lane(Lane {
        name: "slow",
        workers: 1,
        queue,
        max_wait,
    });
    let inside = Arc::clone(&door);
    let slow = move |_: &RequestContext, request: Command| -> Outcome {
        inside.pass();
        if request.ext.get("silent").is_some() {
            Outcome::Silent
        } else {
            request.reply(0).into()
        }
    };
    table
        .on(1, Run::On(lane), Arc::new(slow))
        .on(2, Run::Inline, crate::support::echo());
    (table.build(), lane, door)
}

#[tokio::test]
async fn one_too_many_is_answered_busy_at_once() {
    let (table, lane, door) = table(2, SOON);
    let server = TestServer::start(Arc::clone(&table), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    peer.send(&[request(1, 1, b"")]).await;
    until("the worker is busy", || door.entered.load(Ordering::SeqCst) == 1).await;
    peer.send(&[request(1, 2, b""), request(1, 3, b""), request(1, 4, b"")])
        .await;
    let refused = peer.next().await.unwrap();
    assert_eq!((refused.code, refused.opaque), (2, 4));
    assert!(refused.remark.unwrap().starts_with("[OVERLOAD]system busy"));
    assert_eq!(table.lane_len(lane), 2);
    // Inline requests are served meanwhile.
    assert_eq!(peer.ask(request(2, 5, b"")).await.opaque, 5);
    door.open();
    for opaque in [1, 2, 3] {
        let answer = peer.next().await.unwrap();
        assert_eq!((answer.code, answer.opaque), (0, opaque));
    }
    server.stop().await;
}

#[tokio::test]
async fn waiting_too_long_is_answered_in_time_and_never_run() {
    let (table, lane, door) = table(2, Duration::from_millis(50));
    let server = TestServer::start(Arc::clone(&table), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    peer.send(&[request(1, 1, b"")]).await;
    until("the worker is busy", || door.entered.load(Ordering::SeqCst) == 1).await;
    peer.send(&[request(1, 2, b""), request(1, 3, b"")]).await;
    // The worker hangs, yet both are answered.
    for opaque in [2, 3] {
        let answer = peer.next().await.unwrap();
        assert_eq!((answer.code, answer.opaque), (2, opaque));
        assert!(
            answer
                .remark
                .unwrap()
                .starts_with("[TIMEOUT_CLEAN_QUEUE]broker busy")
        );
    }
    // Their places are free again.
    assert_eq!(table.lane_head_wait(lane), Duration::ZERO);
    peer.send(&[request(1, 4, b"")]).await;
    until("a place was found", || {
        table.lane_head_wait(lane) > Duration::ZERO
    })
    .await;
    door.open();
    let mut answers = [
        peer.next().await.unwrap().opaque,
        peer.next().await.unwrap().opaque,
    ];
    answers.sort_unstable();
    assert_eq!(answers, [1, 4]);
    assert!(
        door.entered.load(Ordering::SeqCst) <= 2,
        "an expired request was run"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_silent_outcome_frees_its_place() {
    let (table, _, door) = table(8, SOON);
    door.open();
    let limits = ferromq_remoting::Limits {
        in_flight: 2,
        ..ferromq_remoting::Limits::default()
    };
    let server = TestServer::start(
        table,
        ServerConfig {
            limits,
            ..ServerConfig::default()
        },
    );
    let mut peer = Peer::connect(server.addr).await;
    for opaque in 0..5 {
        peer.send(&[request(1, opaque, b"").with_ext("silent", "1")])
            .await;
    }
    assert_eq!(peer.ask(request(1, 9, b"")).await.opaque, 9);
    server.stop().await;
}
