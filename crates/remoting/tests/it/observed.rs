//! What hooks and metrics see.

use std::sync::Arc;

use ferromq_protocol::command::Command;
use ferromq_remoting::{
    Budget, Client, ClientConfig, Dispatch, HookRefusal, Outcome, RequestContext, RpcHook, Run, ServerConfig,
    ServerFigures,
};
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::support::{Peer, SOON, TestServer, echo, request, until};

/// Writes down what it sees; refuses code 8, panics at 9 and in the answer to 10, signs answers.
#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl RpcHook for Diary {
    fn before(&self, _peer: &str, request: &mut Command) -> Result<(), HookRefusal> {
        self.0.lock().push(format!("before {}", request.code));
        request.ext.set("seen", "yes");
        match request.code {
            8 => Err(HookRefusal {
                code: 16,
                remark: "no".to_owned(),
            }),
            9 => panic!("at the request"),
            _ => Ok(()),
        }
    }

    fn after(&self, _peer: &str, request: &Command, answer: &mut Command) {
        let seen = request.ext.get("seen").unwrap_or("no");
        let line = format!("after {} seen={seen} answer={}", request.code, answer.code);
        self.0.lock().push(line);
        assert!(request.body.is_empty());
        assert!(request.code != 10, "at the answer");
        answer.ext.set("signed", "by me");
    }
}

fn table(hook: &Arc<Diary>) -> Arc<Dispatch> {
    let mut table = Dispatch::builder();
    let later = |_: &RequestContext, request: Command| -> Outcome {
        Outcome::Later(Box::pin(async move {
            tokio::task::yield_now().await;
            request.reply(19).into()
        }))
    };
    for code in [1, 8, 9, 10] {
        table.on(code, Run::Inline, echo());
    }
    table.on(11, Run::Inline, Arc::new(later));
    table.hook(Arc::clone(hook) as _);
    table.build()
}

#[tokio::test]
async fn hooks_of_a_server_see_requests_and_answers_and_cost_only_their_request() {
    let hook = Arc::new(Diary::default());
    let server = TestServer::start(table(&hook), ServerConfig::default());
    let mut peer = Peer::connect(server.addr).await;
    let mut ask = async |code| {
        let answer = peer.ask(request(code, 5, b"body")).await;
        assert_eq!(answer.opaque, 5);
        (answer.code, answer.ext.get("signed") == Some("by me"))
    };
    assert_eq!(ask(1).await, (0, true));
    assert_eq!(ask(8).await, (16, true));
    assert_eq!(ask(9).await, (1, true));
    assert_eq!(ask(10).await, (1, false));
    assert_eq!(ask(11).await, (19, true));
    assert_eq!(ask(77).await, (3, true));
    let diary = hook.0.lock().join("\n");
    for line in [
        "before 1\nafter 1 seen=yes answer=0",
        "before 8\nafter 8 seen=yes answer=16",
        "before 9\nafter 9 seen=yes answer=1",
        "before 11\nafter 11 seen=yes answer=19",
    ] {
        assert!(diary.contains(line), "{diary}");
    }
    server.stop().await;
}

#[tokio::test]
async fn hooks_of_a_client_see_answers_too() {
    let hook = Arc::new(Diary::default());
    let server = TestServer::echo();
    let config = ClientConfig {
        hooks: vec![Arc::clone(&hook) as _],
        ..ClientConfig::default()
    };
    let client = Client::new(config, Dispatch::none());
    let asked = Command::request(1).with_body(&b"x"[..]);
    let answer = client.call(&server.addr.to_string(), asked, SOON).await.unwrap();
    assert_eq!(answer.ext.get("signed"), Some("by me"));
    assert_eq!(*hook.0.lock(), ["before 1", "after 1 seen=yes answer=0"]);
    client.close().await;
    server.stop().await;
}

#[tokio::test]
async fn requests_are_counted_by_code_and_unknown_codes_together() {
    let table = table(&Arc::default());
    let small = table.without(&[1]);
    let budget = Budget::new(1 << 30);
    let config = ServerConfig {
        budget: Arc::clone(&budget),
        ..ServerConfig::default()
    };
    let server = TestServer::start(Arc::clone(&table), config.clone());
    let other = TestServer::start(small, config);
    let mut peer = Peer::connect(server.addr).await;
    for code in [1, 1, 8, 11, 500, 40_000, -7] {
        peer.ask(request(code, 1, b"")).await;
    }
    let mut oneway = request(1, 1, b"").oneway();
    oneway.opaque = 2;
    peer.send(&[oneway]).await;
    Peer::connect(other.addr).await.ask(request(1, 1, b"")).await;
    until("all are counted", || {
        table.requests().iter().map(|f| f.count).sum::<u64>() == 9
    })
    .await;

    let mut registry = Registry::with_prefix("test");
    let stats = vec![Arc::clone(&server.stats), Arc::clone(&other.stats)];
    registry.register_collector(Box::new(ServerFigures::new(stats, vec![table], budget)));
    let mut page = String::new();
    encode(&mut page, &registry).unwrap();
    for line in [
        "test_connections_opened_total 2",
        "test_connection_memory_limit_bytes 1073741824",
        // Of the second server's table, where the code is not supported.
        "test_request_errors_total{code=\"1\"} 1",
        "test_request_errors_total{code=\"8\"} 1",
        "test_request_errors_total{code=\"11\"} 0",
        "test_request_errors_total{code=\"other\"} 3",
        "test_request_seconds_count{code=\"1\"} 4",
        "test_request_seconds_count{code=\"other\"} 3",
        "le=\"+Inf\"",
        "# TYPE test_request_seconds histogram",
    ] {
        assert!(page.contains(line), "{line} in\n{page}");
    }
    assert!(!page.contains("40000") && !page.contains("code=\"9\""), "{page}");
    server.stop().await;
    other.stop().await;
}
