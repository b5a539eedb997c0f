//! The client against real servers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_protocol::command::Command;
use ferromq_remoting::{
    CallError, Client, ClientConfig, Dispatch, HookRefusal, Outcome, Reply, RequestContext, RpcHook, Run,
    ServerConfig,
};
use socket2::{Domain, Socket, Type};
use tokio_util::task::TaskTracker;

use crate::support::{SOON, TestServer, echo, echo_table, until, within};

fn client() -> Client {
    Client::new(ClientConfig::default(), Dispatch::none())
}

#[tokio::test]
async fn concurrent_calls_share_one_connection() {
    let server = TestServer::echo();
    let client = client();
    let addr = server.addr.to_string();
    let calls = (0..200).map(|n: i32| {
        let (client, addr) = (client.clone(), addr.clone());
        async move {
            let answer = client
                .call(&addr, Command::request(1).with_body(n.to_string()), SOON)
                .await
                .unwrap();
            assert_eq!(answer.body, n.to_string());
        }
    });
    within(futures::future::join_all(calls)).await;
    assert_eq!(server.stats.opened(), 1);
    assert_eq!(client.addresses(), [addr]);
    client.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_closed_connection_is_made_anew() {
    let server = TestServer::echo();
    let client = client();
    let addr = server.addr.to_string();
    client.call(&addr, Command::request(1), SOON).await.unwrap();
    let conn = server.seen.conns.lock()[0].clone();
    conn.close("for the test");
    until("seen by the client", || client.connected(&addr).is_none()).await;
    client.call(&addr, Command::request(1), SOON).await.unwrap();
    assert_eq!(server.stats.opened(), 2);
    // A server that went away and came back at the same address.
    let at = server.addr;
    server.stop().await;
    until("seen by the client", || client.connected(&addr).is_none()).await;
    let error = client.call(&addr, Command::request(1), SOON).await.unwrap_err();
    assert!(matches!(error, CallError::Connect { .. }), "{error}");
    assert!(!error.may_have_been_sent() && error.to_string().contains(&addr));
    let server = TestServer::start_at(at, echo_table(), ServerConfig::default());
    client.call(&addr, Command::request(1), SOON).await.unwrap();
    client.close().await;
    server.stop().await;
}

fn never_table() -> Arc<Dispatch> {
    let mut table = Dispatch::builder();
    let never: fn(&RequestContext, Command) -> Outcome =
        |_, _| Outcome::Later(Box::pin(std::future::pending::<Reply>()));
    table
        .on(9, Run::Inline, Arc::new(never))
        .on(1, Run::Inline, echo());
    table.build()
}

#[tokio::test]
async fn a_time_out_or_a_dropped_call_frees_its_slot() {
    let config = ServerConfig {
        drain: Duration::ZERO,
        ..ServerConfig::default()
    };
    let server = TestServer::start(never_table(), config);
    let client = client();
    let addr = server.addr.to_string();
    let error = client
        .call(&addr, Command::request(9), Duration::from_millis(30))
        .await
        .unwrap_err();
    assert_eq!(
        error,
        CallError::Timeout {
            addr: addr.clone(),
            after: Duration::from_millis(30)
        }
    );
    assert!(error.may_have_been_sent());
    let conn = client.connected(&addr).unwrap();
    assert_eq!(conn.waiting_calls(), 0);
    {
        let call = client.call(&addr, Command::request(9), SOON);
        let mut call = std::pin::pin!(call);
        assert!(futures::poll!(call.as_mut()).is_pending());
        assert_eq!(conn.waiting_calls(), 1);
    }
    assert_eq!(conn.waiting_calls(), 0);
    // The connection is of use still.
    client.call(&addr, Command::request(1), SOON).await.unwrap();
    assert_eq!(server.stats.opened(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_lost_connection_fails_waiting_calls_at_once() {
    let config = ServerConfig {
        drain: Duration::ZERO,
        ..ServerConfig::default()
    };
    let server = TestServer::start(never_table(), config);
    let client = client();
    let addr = server.addr.to_string();
    let stop = async {
        until("read", || server.stats.frames_in() == 1).await;
        server.stop.cancel();
    };
    let (answer, ()) = tokio::join!(
        within(client.call(&addr, Command::request(9), Duration::from_mins(10))),
        stop
    );
    assert!(matches!(answer, Err(CallError::Lost { .. })), "{answer:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_link_that_stays_silent_is_closed() {
    // Accepts into the kernel's queue and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = silent.local_addr().unwrap().to_string();
    let client = client();
    let error = client
        .call(&addr, Command::request(1), Duration::from_millis(3100))
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Timeout { .. }), "{error}");
    until("closed", || client.connected(&addr).is_none()).await;
}

#[tokio::test]
async fn connecting_to_a_black_hole_ends_in_time_for_all_who_wait() {
    // A listener whose queue is full drops what comes next.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket
        .bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into())
        .unwrap();
    socket.listen(0).unwrap();
    let addr = socket.local_addr().unwrap().as_socket().unwrap();
    let mut fill = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(300)) {
        fill.push(stream);
        assert!(fill.len() < 100, "the queue does not fill");
    }
    let config = ClientConfig {
        connect_timeout: Duration::from_millis(100),
        ..ClientConfig::default()
    };
    let client = Client::new(config, Dispatch::none());
    let addr = addr.to_string();
    let calls = (0..20).map(|_| client.call(&addr, Command::request(1), Duration::from_mins(10)));
    for answer in within(futures::future::join_all(calls)).await {
        assert!(matches!(answer, Err(CallError::Connect { .. })), "{answer:?}");
    }
    drop(fill);
}

#[tokio::test]
async fn a_caller_that_gives_up_does_not_end_the_attempt_of_others() {
    let server = TestServer::echo();
    let client = client();
    let addr = server.addr.to_string();
    let first = client.call(&addr, Command::request(1), SOON);
    {
        let mut first = std::pin::pin!(first);
        assert!(futures::poll!(first.as_mut()).is_pending());
    }
    within(client.call(&addr, Command::request(1), SOON))
        .await
        .unwrap();
    assert_eq!(server.stats.opened(), 1);
    server.stop().await;
}

#[tokio::test]
async fn requests_from_the_server_reach_the_clients_table() {
    let server = TestServer::echo();
    let client = Client::new(ClientConfig::default(), echo_table());
    let addr = server.addr.to_string();
    client.call(&addr, Command::request(1), SOON).await.unwrap();
    let conn = server.seen.conns.lock()[0].clone();
    let answer = conn
        .call(Command::request(1).with_body("from the server"), SOON)
        .await
        .unwrap();
    assert_eq!(answer.body.as_ref(), b"from the server");
    client.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_closed_client_writes_out_what_was_queued_and_refuses_more() {
    let server = TestServer::echo();
    let client = client();
    let addr = server.addr.to_string();
    for _ in 0..100 {
        client.oneway(&addr, Command::request(1)).await.unwrap();
    }
    within(client.close()).await;
    until("all arrived", || server.stats.frames_in() == 100).await;
    until("closed", || server.seen.closed.load(Ordering::SeqCst) == 1).await;
    assert_eq!(
        client.call(&addr, Command::request(1), SOON).await,
        Err(CallError::ClientClosed)
    );
    server.stop().await;
}

#[tokio::test]
async fn dropping_the_last_client_closes_its_connections() {
    let server = TestServer::echo();
    let client = client();
    client
        .call(&server.addr.to_string(), Command::request(1), SOON)
        .await
        .unwrap();
    drop(client);
    until("closed", || server.seen.closed.load(Ordering::SeqCst) == 1).await;
    server.stop().await;
}

struct Sign;

impl RpcHook for Sign {
    fn before(&self, _peer: &str, request: &mut Command) -> Result<(), HookRefusal> {
        if request.code == 66 {
            return Err(HookRefusal {
                code: 1,
                remark: "no key".to_owned(),
            });
        }
        request.ext.set("Signature", "x");
        Ok(())
    }
}

#[tokio::test]
async fn hooks_see_requests_before_they_are_sent() {
    let mut table = Dispatch::builder();
    let show = |_: &RequestContext, request: Command| -> Outcome {
        let signature = request.ext.get("Signature").unwrap_or("none").to_owned();
        request.reply(0).with_remark(signature).into()
    };
    table.on(1, Run::Inline, Arc::new(show));
    let server = TestServer::start(table.build(), ServerConfig::default());
    let client = Client::new(
        ClientConfig {
            hooks: vec![Arc::new(Sign)],
            ..ClientConfig::default()
        },
        Dispatch::none(),
    );
    let addr = server.addr.to_string();
    let answer = client.call(&addr, Command::request(1), SOON).await.unwrap();
    assert_eq!(answer.remark.as_deref(), Some("x"));
    let error = client.call(&addr, Command::request(66), SOON).await.unwrap_err();
    assert_eq!(
        error,
        CallError::Refused {
            remark: "no key".to_owned()
        }
    );
    server.stop().await;
}

#[tokio::test]
async fn many_callers_wait_for_room_instead_of_failing() {
    let server = TestServer::echo();
    let limits = ferromq_remoting::Limits {
        write_queue: 64 * 1024,
        ..ferromq_remoting::Limits::default()
    };
    let client = Client::new(
        ClientConfig {
            limits,
            ..ClientConfig::default()
        },
        Dispatch::none(),
    );
    let addr = server.addr.to_string();
    let tasks = TaskTracker::new();
    let body = bytes::Bytes::from(vec![5; 20_000]);
    let callers: Vec<_> = (0..100)
        .map(|_| {
            let (client, addr, body) = (client.clone(), addr.clone(), body.clone());
            tasks.spawn(async move {
                client
                    .call(&addr, Command::request(1).with_body(body), SOON)
                    .await
            })
        })
        .collect();
    for caller in callers {
        assert_eq!(within(caller).await.unwrap().unwrap().body.len(), 20_000);
    }
    server.stop().await;
}

/// A burst of notices must not hold up an answer, nor be answered.
#[tokio::test]
async fn an_answer_comes_through_a_burst_of_notices() {
    let notices = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&notices);
    let mut table = Dispatch::builder();
    table.on(
        40,
        Run::Inline,
        Arc::new(move |_: &RequestContext, _: Command| {
            seen.fetch_add(1, Ordering::SeqCst);
            Outcome::Silent
        }),
    );
    let own = table.build();
    let burst = |cx: &RequestContext, request: Command| -> Outcome {
        for _ in 0..5_000 {
            cx.conn.oneway(Command::request(40)).unwrap();
        }
        request.reply(0).into()
    };
    let mut table = Dispatch::builder();
    table.on(1, Run::Inline, Arc::new(burst));
    let server = TestServer::start(table.build(), ServerConfig::default());
    let client = Client::new(ClientConfig::default(), own);
    let answer = client
        .call(&server.addr.to_string(), Command::request(1), SOON)
        .await;
    assert_eq!(answer.unwrap().code, 0);
    until("all notices came", || notices.load(Ordering::SeqCst) == 5_000).await;
    client.close().await;
    server.stop().await;
}
