//! Memory of all connections together: bounded, with small requests answered while others hoard, and hoarders closed.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ferromq_protocol::command::Command;
use ferromq_protocol::frame;
use ferromq_remoting::budget::RESERVE;
use ferromq_remoting::{Budget, Conn, Dispatch, Outcome, Reply, RequestContext, Run, ServerConfig};
use tokio::io::AsyncWriteExt;

use crate::support::{Peer, TestServer, echo, request, until};

const BODY: usize = 256 * 1024;
const LIMIT: usize = 4 << 20;

fn server() -> (TestServer, Arc<Budget>) {
    let body = Bytes::from(vec![7; BODY]);
    let pull = move |_: &RequestContext, request: Command| -> Outcome {
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
    let budget = Budget::new(LIMIT);
    let config = ServerConfig {
        budget: Arc::clone(&budget),
        ..ServerConfig::default()
    };
    (TestServer::start(table.build(), config), budget)
}

fn many(code: i32, count: i32) -> BytesMut {
    let mut out = BytesMut::new();
    (0..count).for_each(|n| frame::encode(&request(code, n, b""), &mut out));
    out
}

/// Peers that ask for `count` answers each and read none.
async fn hoarders(server: &TestServer, peers: usize) -> Vec<Peer> {
    let mut all = Vec::new();
    for _ in 0..peers {
        let mut peer = Peer::connect(server.addr).await;
        peer.stream.write_all(&many(11, 200)).await.unwrap();
        all.push(peer);
    }
    all
}

#[tokio::test]
async fn what_all_hold_together_is_bounded_and_small_requests_are_answered_meanwhile() {
    let (server, budget) = server();
    let greedy = hoarders(&server, 20).await;
    until("the budget is used up", || budget.used() >= LIMIT).await;
    let mut good = Peer::connect(server.addr).await;
    for n in 0..200 {
        assert_eq!(good.ask(request(1, n, b"small")).await.opaque, n);
    }
    // One answer per connection may be under way when the budget ends.
    let most = LIMIT + 20 * (BODY + RESERVE);
    assert!(budget.used() <= most, "{} bytes", budget.used());
    let queued: usize = server.seen.conns.lock().iter().map(Conn::queued_bytes).sum();
    assert!(queued <= most + 20 * RESERVE, "{queued} bytes wait to be written");
    drop(greedy);
    until("all is given back", || {
        server.stats.open() == 1 && budget.used() == 0
    })
    .await;
    assert_eq!(budget.held_back(), 0);
    server.stop().await;
}

#[tokio::test]
async fn those_that_read_get_everything_and_those_that_do_not_are_closed() {
    let (server, budget) = server();
    let greedy = hoarders(&server, 8).await;
    until("the budget is used up", || budget.used() >= LIMIT).await;
    let mut reader = Peer::connect(server.addr).await;
    reader.stream.write_all(&many(11, 200)).await.unwrap();
    for n in 0..200 {
        let answer = reader.next().await.expect("an answer");
        assert_eq!((answer.opaque, answer.body.len()), (n, BODY));
    }
    until("hoarders are closed until there is room", || {
        server.stats.shed() > 0 && budget.used() < LIMIT
    })
    .await;
    assert_eq!(reader.ask(request(1, 1, b"")).await.code, 0);
    drop(greedy);
    server.stop().await;
}

#[tokio::test]
async fn frames_that_never_end_cannot_keep_the_budget() {
    let (server, budget) = server();
    let mut liars = Vec::new();
    for _ in 0..8 {
        let mut liar = Peer::connect(server.addr).await;
        // Says 15 MiB; as much as the server takes.
        let mut bytes = vec![0, 0xF0, 0, 0, 0, 0, 0, 100];
        bytes.resize(1 << 20, b' ');
        let sent = tokio::time::timeout(Duration::from_millis(200), liar.stream.write_all(&bytes)).await;
        assert!(!matches!(sent, Ok(Err(_))), "{sent:?}");
        liars.push(liar);
    }
    until("the budget is used up", || budget.used() >= LIMIT).await;
    let mut good = Peer::connect(server.addr).await;
    assert_eq!(good.ask(request(1, 1, b"")).await.code, 0);
    // A large request needs room that the liars have; its connection may be taken for one of theirs.
    let large = Command::request(1).with_body(vec![1; 1 << 20]);
    loop {
        let mut peer = Peer::connect(server.addr).await;
        peer.send(std::slice::from_ref(&large)).await;
        if let Some(answer) = peer.next().await {
            assert_eq!(answer.body.len(), 1 << 20);
            break;
        }
    }
    assert!(server.stats.shed() > 0);
    drop(liars);
    server.stop().await;
}
