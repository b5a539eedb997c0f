//! Peers that do not read, or ask without end: memory per connection is bounded, others go on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ferromq_protocol::command::Command;
use ferromq_protocol::frame;
use ferromq_remoting::{
    Conn, Dispatch, Limits, Outcome, Reply, RequestContext, Run, SendError, ServerConfig,
};
use parking_lot::Mutex;
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;

use crate::support::{Peer, TestServer, echo, request, until};

const BODY: usize = 256 * 1024;

fn pulls(handled: &Arc<AtomicUsize>) -> Arc<Dispatch> {
    let handled = Arc::clone(handled);
    let body = Bytes::from(vec![7; BODY]);
    let pull = move |_: &RequestContext, request: Command| -> Outcome {
        handled.fetch_add(1, Ordering::SeqCst);
        Reply {
            head: request.reply(0),
            chunks: vec![body.clone()],
        }
        .into()
    };
    let mut table = Dispatch::builder();
    table
        .on(11, Run::Inline, Arc::new(pull))
        .on(1, Run::Inline, echo());
    table.build()
}

fn many(code: i32, count: i32) -> BytesMut {
    let mut out = BytesMut::new();
    (0..count).for_each(|n| frame::encode(&request(code, n, b""), &mut out));
    out
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_held_back_and_served_when_it_reads() {
    let handled = Arc::new(AtomicUsize::new(0));
    let limits = Limits {
        write_queue: 1024 * 1024,
        ..Limits::default()
    };
    let server = TestServer::start(
        pulls(&handled),
        ServerConfig {
            limits,
            ..ServerConfig::default()
        },
    );
    let mut greedy = Peer::connect(server.addr).await;
    let asked = many(11, 1000);
    greedy.stream.write_all(&asked).await.unwrap();
    until("the server stops reading", || {
        server
            .seen
            .conns
            .lock()
            .first()
            .is_some_and(|c: &Conn| c.queued_bytes() >= 1024 * 1024)
    })
    .await;
    let conn = server.seen.conns.lock()[0].clone();
    assert!(
        conn.queued_bytes() <= 1024 * 1024 + BODY + 1024,
        "{} bytes are queued",
        conn.queued_bytes()
    );
    assert!(
        handled.load(Ordering::SeqCst) < 200,
        "{handled:?} answers were made for nobody"
    );
    // Others are not touched.
    assert_eq!(
        Peer::connect(server.addr)
            .await
            .ask(request(1, 1, b""))
            .await
            .code,
        0
    );
    // Once it reads it gets everything.
    for n in 0..1000 {
        let answer = greedy.next().await.unwrap();
        assert_eq!((answer.opaque, answer.body.len()), (n, BODY));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_peer_that_never_reads_is_closed() {
    let handled = Arc::new(AtomicUsize::new(0));
    let limits = Limits {
        write_queue: 1024 * 1024,
        write_stall: Duration::from_millis(200),
        ..Limits::default()
    };
    let server = TestServer::start(
        pulls(&handled),
        ServerConfig {
            limits,
            ..ServerConfig::default()
        },
    );
    let mut greedy = Peer::connect(server.addr).await;
    greedy.stream.write_all(&many(11, 1000)).await.unwrap();
    until("closed", || server.seen.closed.load(Ordering::SeqCst) == 1).await;
    let reason = server.seen.conns.lock()[0].close_reason().unwrap();
    assert!(reason.contains("did not read"), "{reason}");
    server.stop().await;
}

#[tokio::test]
async fn requests_beyond_the_limit_in_flight_wait_in_the_socket() {
    let gates: Arc<Mutex<Vec<oneshot::Sender<()>>>> = Arc::default();
    let waiting = Arc::clone(&gates);
    let park = move |_: &RequestContext, request: Command| {
        let (open, opened) = oneshot::channel();
        waiting.lock().push(open);
        Outcome::Later(Box::pin(async move {
            opened.await.ok();
            request.reply(0).into()
        }))
    };
    let mut table = Dispatch::builder();
    table.on(11, Run::Inline, Arc::new(park));
    let limits = Limits {
        in_flight: 10,
        ..Limits::default()
    };
    let server = TestServer::start(
        table.build(),
        ServerConfig {
            limits,
            ..ServerConfig::default()
        },
    );
    let mut peer = Peer::connect(server.addr).await;
    peer.stream.write_all(&many(11, 50)).await.unwrap();
    let mut answered = 0;
    while answered < 50 {
        until("ten are parked", || gates.lock().len() == 10.min(50 - answered)).await;
        let open = gates.lock().drain(..).collect::<Vec<_>>();
        for gate in open {
            gate.send(()).unwrap();
            assert!(peer.next().await.is_some());
            answered += 1;
            // One answered lets one more in, not more.
            assert!(gates.lock().len() <= 10);
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn pushing_to_a_peer_that_does_not_read_fails_instead_of_growing() {
    let limits = Limits {
        write_queue: 256 * 1024,
        ..Limits::default()
    };
    let server = TestServer::start(
        Dispatch::none(),
        ServerConfig {
            limits,
            ..ServerConfig::default()
        },
    );
    let mut peer = Peer::connect(server.addr).await;
    until("opened", || !server.seen.conns.lock().is_empty()).await;
    let conn = server.seen.conns.lock()[0].clone();
    let body = Bytes::from(vec![1; 10_000]);
    let mut sent = 0;
    // The kernel's buffers fill first.
    let refused = loop {
        match conn.oneway(Command::request(40).with_body(body.clone())) {
            Ok(()) => sent += 1,
            Err(error) => {
                let full = matches!(error, SendError::Full { .. });
                assert!(full, "{error}");
                tokio::task::yield_now().await;
                let stuck = conn.queued_bytes();
                tokio::time::sleep(Duration::from_millis(20)).await;
                if conn.queued_bytes() == stuck {
                    break error;
                }
            }
        }
    };
    assert!(
        refused.to_string().contains("does not read fast enough"),
        "{refused}"
    );
    assert!(conn.queued_bytes() <= 256 * 1024 + 10_200);
    for _ in 0..sent {
        assert_eq!(peer.next().await.unwrap().body.len(), 10_000);
    }
    conn.oneway(Command::request(40)).unwrap();
    server.stop().await;
}
