//! What every request may rely on.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::command::{Command, SerializeType};
use ferromq_remoting::{
    Dispatch, HookRefusal, Lane, Limits, Outcome, Reply, RequestContext, RpcHook, Run, ServerConfig,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::support::{Peer, TestServer, echo, request, until, within};

#[tokio::test]
async fn pipelined_requests_are_all_answered() {
    let server = TestServer::echo();
    let mut peer = Peer::connect(server.addr).await;
    let requests: Vec<Command> = (0..2000).map(|n| request(1, n, b"body")).collect();
    peer.send(&requests).await;
    let mut opaques = HashSet::new();
    for _ in 0..2000 {
        let answer = peer.next().await.unwrap();
        assert!(answer.is_response());
        assert_eq!((answer.code, answer.body.as_ref()), (0, &b"body"[..]));
        opaques.insert(answer.opaque);
    }
    assert_eq!(opaques.len(), 2000);
    server.stop().await;
}

#[tokio::test]
async fn answers_leave_in_the_order_in_which_they_become_ready() {
    let gates: Arc<Mutex<Vec<oneshot::Sender<()>>>> = Arc::default();
    let waiting = Arc::clone(&gates);
    let mut table = Dispatch::builder();
    let later = move |_: &RequestContext, request: Command| {
        let (open, gate) = oneshot::channel();
        waiting.lock().push(open);
        let head = request.reply(0);
        Outcome::Later(Box::pin(async move {
            gate.await.ok();
            head.into()
        }))
    };
    table
        .on(5, Run::Inline, Arc::new(later))
        .on(1, Run::Inline, echo());
    let server = TestServer::start(table.build(), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    peer.send(&[request(5, 10, b""), request(5, 11, b""), request(1, 12, b"")])
        .await;
    assert_eq!(peer.next().await.unwrap().opaque, 12);
    for expected in [11, 10] {
        let gate = gates.lock().pop().unwrap();
        gate.send(()).unwrap();
        assert_eq!(peer.next().await.unwrap().opaque, expected);
    }
    server.stop().await;
}

#[tokio::test]
async fn one_way_requests_are_never_answered() {
    let handled = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&handled);
    let mut table = Dispatch::builder();
    let count = move |_: &RequestContext, request: Command| -> Outcome {
        counter.fetch_add(1, Ordering::SeqCst);
        request.reply(0).into()
    };
    table
        .on(2, Run::Inline, Arc::new(count))
        .on(1, Run::Inline, echo());
    let server = TestServer::start(table.build(), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    // Known, unknown, then one that is answered: only that answer comes.
    peer.send(&[
        request(2, 1, b"").oneway(),
        request(99, 2, b"").oneway(),
        request(1, 3, b""),
    ])
    .await;
    assert_eq!(peer.next().await.unwrap().opaque, 3);
    assert_eq!(handled.load(Ordering::SeqCst), 1);
    server.stop().await;
}

#[tokio::test]
async fn unknown_codes_are_answered_three() {
    let server = TestServer::echo();
    let mut peer = Peer::connect(server.addr).await;
    let answer = peer.ask(request(40_000, 7, b"")).await;
    assert_eq!((answer.code, answer.opaque), (3, 7));
    assert_eq!(
        answer.remark.as_deref(),
        Some(" request type 40000 not supported")
    );
    server.stop().await;
}

#[tokio::test]
async fn a_panic_costs_one_request() {
    let mut table = Dispatch::builder();
    let lane = table.lane(Lane {
        name: "panics",
        workers: 1,
        queue: 8,
        max_wait: Duration::from_mins(1),
    });
    let now: fn(&RequestContext, Command) -> Outcome = |_, _| panic!("at once");
    let later: fn(&RequestContext, Command) -> Outcome =
        |_, _| Outcome::Later(Box::pin(async { panic!("a little later") }));
    table
        .on(10, Run::Inline, Arc::new(now))
        .on(11, Run::Inline, Arc::new(later));
    table
        .on(12, Run::On(lane), Arc::new(now))
        .on(1, Run::Inline, echo());
    let server = TestServer::start(table.build(), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    for (code, text) in [(10, "at once"), (11, "a little later"), (12, "at once")] {
        let answer = peer.ask(request(code, code, b"")).await;
        assert_eq!((answer.code, answer.opaque), (1, code));
        assert!(answer.remark.unwrap().contains(text));
    }
    assert_eq!(peer.ask(request(1, 1, b"on")).await.body.as_ref(), b"on");
    server.stop().await;
}

#[tokio::test]
async fn the_answer_has_the_form_of_the_request() {
    let server = TestServer::echo();
    let mut peer = Peer::connect(server.addr).await;
    for form in [SerializeType::Json, SerializeType::Binary] {
        let mut asked = request(1, 5, b"x");
        asked.serialize = form;
        assert_eq!(peer.ask(asked).await.serialize, form);
    }
    server.stop().await;
}

#[tokio::test]
async fn large_bodies_in_pieces_arrive_whole() {
    let mut table = Dispatch::builder();
    let pieces = |_: &RequestContext, request: Command| -> Outcome {
        let chunks = (0..100u8)
            .map(|n| Bytes::from(vec![n; 100 + usize::from(n) * 700]))
            .collect();
        Reply {
            head: request.reply(0),
            chunks,
        }
        .into()
    };
    table.on(1, Run::Inline, Arc::new(pieces));
    let server = TestServer::start(table.build(), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    let expected: Vec<u8> = (0..100u8)
        .flat_map(|n| vec![n; 100 + usize::from(n) * 700])
        .collect();
    peer.send(&[request(1, 1, b""), request(1, 2, b""), request(1, 3, b"")])
        .await;
    for _ in 0..3 {
        assert!(peer.next().await.unwrap().body == expected);
    }
    server.stop().await;
}

#[tokio::test]
async fn an_answer_above_the_frame_limit_becomes_an_error() {
    let mut table = Dispatch::builder();
    let huge = |_: &RequestContext, request: Command| -> Outcome {
        request.reply(0).with_body(vec![0; 17 * 1024 * 1024]).into()
    };
    table.on(1, Run::Inline, Arc::new(huge));
    let server = TestServer::start(table.build(), ServerConfig::default());
    let answer = Peer::connect(server.addr).await.ask(request(1, 1, b"")).await;
    assert_eq!(answer.code, 1);
    assert!(answer.remark.unwrap().contains("less at a time"));
    server.stop().await;
}

struct NoTopicA;

impl RpcHook for NoTopicA {
    fn before(&self, _peer: &str, request: &mut Command) -> Result<(), HookRefusal> {
        if request.ext.get("topic") == Some("a") {
            return Err(HookRefusal {
                code: 1,
                remark: "not a".to_owned(),
            });
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_hook_can_refuse() {
    let mut table = Dispatch::builder();
    table.on(1, Run::Inline, echo()).hook(Arc::new(NoTopicA));
    let server = TestServer::start(table.build(), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    let refused = peer.ask(request(1, 1, b"").with_ext("topic", "a")).await;
    assert_eq!((refused.code, refused.remark.as_deref()), (1, Some("not a")));
    assert_eq!(peer.ask(request(1, 2, b"").with_ext("topic", "b")).await.code, 0);
    server.stop().await;
}

#[tokio::test]
async fn events_come_once_each() {
    let server = TestServer::echo();
    for _ in 0..50 {
        Peer::connect(server.addr).await.ask(request(1, 1, b"")).await;
    }
    let seen = Arc::clone(&server.seen);
    until("all closed", || seen.closed.load(Ordering::SeqCst) == 50).await;
    assert_eq!(seen.opened.load(Ordering::SeqCst), 50);
    assert_eq!((server.stats.opened(), server.stats.open()), (50, 0));
    server.stop().await;
}

#[tokio::test]
async fn a_mass_disconnect_loses_no_event() {
    let server = TestServer::echo();
    let mut peers = Vec::new();
    for _ in 0..300 {
        let mut peer = Peer::connect(server.addr).await;
        peer.ask(request(1, 1, b"")).await;
        peers.push(peer);
    }
    assert_eq!(server.stats.open(), 300);
    drop(peers);
    until("all closed", || server.seen.closed.load(Ordering::SeqCst) == 300).await;
    assert_eq!(server.stats.open(), 0);
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let limits = Limits {
        idle: Duration::from_millis(100),
        ..Limits::default()
    };
    let server = TestServer::start(
        crate::support::echo_table(),
        ServerConfig {
            limits,
            ..ServerConfig::default()
        },
    );
    let mut peer = Peer::connect(server.addr).await;
    peer.ask(request(1, 1, b"")).await;
    assert!(peer.next().await.is_none());
    assert_eq!(
        server.seen.conns.lock()[0].close_reason().as_deref(),
        Some("idle")
    );
    server.stop().await;
}

#[tokio::test]
async fn stopping_answers_what_is_in_flight() {
    let gate: Arc<Mutex<Option<oneshot::Sender<()>>>> = Arc::default();
    let place = Arc::clone(&gate);
    let mut table = Dispatch::builder();
    let later = move |_: &RequestContext, request: Command| {
        let (open, opened) = oneshot::channel();
        *place.lock() = Some(open);
        Outcome::Later(Box::pin(async move {
            opened.await.ok();
            request.reply(0).into()
        }))
    };
    table.on(1, Run::Inline, Arc::new(later));
    let server = TestServer::start(
        table.build(),
        ServerConfig {
            drain: crate::support::SOON,
            ..ServerConfig::default()
        },
    );
    let mut peer = Peer::connect(server.addr).await;
    peer.send(&[request(1, 1, b"")]).await;
    until("handled", || gate.lock().is_some()).await;
    server.stop.cancel();
    until("listener closed", || {
        std::net::TcpStream::connect(server.addr).is_err()
    })
    .await;
    gate.lock().take().unwrap().send(()).unwrap();
    assert_eq!(peer.next().await.unwrap().opaque, 1);
    assert!(peer.next().await.is_none());
    within(server.tasks.wait()).await;
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let mut table = Dispatch::builder();
    let never: fn(&RequestContext, Command) -> Outcome =
        |_, _| Outcome::Later(Box::pin(std::future::pending::<Reply>()));
    table.on(1, Run::Inline, Arc::new(never));
    let config = ServerConfig {
        drain: Duration::from_millis(50),
        ..ServerConfig::default()
    };
    let server = TestServer::start(table.build(), config);
    let mut peer = Peer::connect(server.addr).await;
    peer.send(&[request(1, 1, b"")]).await;
    until("read", || server.stats.frames_in() == 1).await;
    server.stop().await;
    assert!(peer.next().await.is_none());
}

#[tokio::test]
async fn the_server_can_call_its_peer() {
    let server = TestServer::echo();
    let mut peer = Peer::connect(server.addr).await;
    until("opened", || !server.seen.conns.lock().is_empty()).await;
    let conn = server.seen.conns.lock()[0].clone();
    let calls = async {
        let (a, b) = tokio::join!(
            conn.call(Command::request(220).with_body("a"), crate::support::SOON),
            conn.call(Command::request(220).with_body("b"), crate::support::SOON),
        );
        (a.unwrap().body, b.unwrap().body)
    };
    let serve = async {
        let (first, second) = (peer.next().await.unwrap(), peer.next().await.unwrap());
        let answers = [&second, &first].map(|r| r.reply(0).with_body(r.body.clone()));
        peer.send(&answers).await;
    };
    let ((a, b), ()) = tokio::join!(calls, serve);
    assert_eq!((a.as_ref(), b.as_ref()), (&b"a"[..], &b"b"[..]));
    assert_eq!(conn.waiting_calls(), 0);
    conn.oneway(Command::request(40)).unwrap();
    assert!(peer.next().await.unwrap().is_oneway());
    server.stop().await;
    assert!(conn.oneway(Command::request(40)).is_err());
}

#[tokio::test]
async fn a_peer_that_does_not_answer_stays_connected() {
    let server = TestServer::echo();
    let mut peer = Peer::connect(server.addr).await;
    until("opened", || !server.seen.conns.lock().is_empty()).await;
    let conn = server.seen.conns.lock()[0].clone();
    let error = conn
        .call(Command::request(307), Duration::from_millis(3_050))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ferromq_remoting::CallError::Timeout { .. }),
        "{error}"
    );
    assert_eq!(peer.next().await.unwrap().code, 307);
    assert_eq!(peer.ask(request(1, 1, b"")).await.code, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_table_without_some_codes_shares_the_rest() {
    let mut table = Dispatch::builder();
    table
        .on(1, Run::Inline, echo())
        .on(11, Run::Inline, echo())
        .otherwise(Run::Inline, echo());
    let server = TestServer::start(table.build().without(&[11]), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    assert_eq!(peer.ask(request(1, 1, b"")).await.code, 0);
    assert_eq!(peer.ask(request(11, 1, b"")).await.code, 3);
    assert_eq!(peer.ask(request(12, 1, b"")).await.code, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let server = TestServer::echo();
    let again = ferromq_remoting::Server::bind(
        server.addr,
        ServerConfig::default(),
        Dispatch::none(),
        Arc::new(ferromq_remoting::NoEvents),
    );
    assert!(again.unwrap_err().to_string().contains(&server.addr.to_string()));
    server.stop().await;
}
