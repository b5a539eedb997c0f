//! Memory of all connections together: bounded, with small requests answered while others hoard, and hoarders closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ferromq_protocol::command::Command;
use ferromq_protocol::frame;
use ferromq_remoting::budget::RESERVE;
use ferromq_remoting::{
    Budget, Client, ClientConfig, ClientTls, Conn, Dispatch, Outcome, Reply, RequestContext, Run,
    ServerConfig, ServerTls, TlsSettings,
};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::support::{Peer, SOON, TestServer, echo, request, until};

const BODY: usize = 256 * 1024;
const LIMIT: usize = 4 << 20;

fn server() -> (TestServer, Arc<Budget>) {
    server_with(None)
}

fn server_with(tls: Option<ServerTls>) -> (TestServer, Arc<Budget>) {
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
        tls,
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

/// A peer whose own buffer grew while it sent much, and that has been quiet since, hoards nothing.
#[tokio::test]
async fn a_quiet_peer_that_sent_much_is_not_taken_for_a_hoarder() {
    let (server, budget) = server();
    let mut quiet = Peer::connect(server.addr).await;
    for n in 0..8 {
        let sent = request(1, n, b"").with_body(vec![1; 200_000]);
        assert_eq!(quiet.ask(sent).await.body.len(), 200_000);
    }
    let greedy = hoarders(&server, 20).await;
    until("the budget is used up", || budget.used() >= LIMIT).await;
    until("all hoarders are closed", || server.stats.shed() == 20).await;
    assert_eq!(quiet.ask(request(1, 9, b"still here")).await.opaque, 9);
    drop(greedy);
    server.stop().await;
}

/// Passes bytes on both ways; once frozen, no longer those to the client.
async fn freezer(server: SocketAddr, frozen: CancellationToken, tasks: &TaskTracker) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let own = tasks.clone();
    tasks.spawn(async move {
        let (client, _) = listener.accept().await.unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = TcpStream::connect(server).await.unwrap().into_split();
        own.spawn(async move {
            tokio::select! {
                // The end of either side ends the test.
                _copied = tokio::io::copy(&mut from_server, &mut to_client) => {}
                () = frozen.cancelled() => std::future::pending().await,
            }
        });
        tokio::io::copy(&mut from_client, &mut to_server).await.ok();
    });
    addr
}

/// What TLS sessions hold counts too: their peers ask for much, and then no byte reaches them any more.
#[tokio::test]
async fn tls_sessions_are_counted() {
    const PEERS: usize = 4;
    /// What a session holds in any case, and most of what it may hold to be sent.
    const SESSION: usize = (24 + 40) * 1024;
    let tls = TlsSettings::default();
    let (server, budget) = server_with(ServerTls::new(&tls).unwrap());
    let config = ClientConfig {
        tls: Some(ClientTls::new(&tls.client).unwrap()),
        ..ClientConfig::default()
    };
    let (frozen, tasks) = (CancellationToken::new(), TaskTracker::new());
    let mut clients = Vec::new();
    for _ in 0..PEERS {
        let addr = freezer(server.addr, frozen.clone(), &tasks).await.to_string();
        let client = Client::new(config.clone(), Dispatch::none());
        let answer = client.call(&addr, request(11, 0, b""), SOON).await.unwrap();
        assert_eq!(answer.body.len(), BODY);
        clients.push((client, addr));
    }
    assert_eq!(server.stats.tls_opened(), PEERS as u64);
    until("sessions that do nothing are free", || budget.used() == 0).await;
    frozen.cancel();
    for (client, addr) in &clients {
        let calls = (0..100).map(|_| client.call(addr, request(11, 0, b""), SOON));
        let all = futures::future::join_all(calls);
        // Asked for, and never answered.
        assert!(
            tokio::time::timeout(Duration::from_millis(200), all)
                .await
                .is_err()
        );
    }
    let queued = || -> usize { server.seen.conns.lock().iter().map(Conn::queued_bytes).sum() };
    until("answers and sessions are counted", || {
        budget.used() >= LIMIT && budget.used() + PEERS * RESERVE >= queued() + PEERS * SESSION
    })
    .await;
    until("they are closed like others", || {
        server.stats.shed() == PEERS as u64
    })
    .await;
    until("and all is given back", || budget.used() == 0).await;
    drop(clients);
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
