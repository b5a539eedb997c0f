//! The HTTP server against well and badly behaved peers.

#![allow(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferromq_daemon::http::{App, HeaderMap, Http, MAX_BODY, Method, Response, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

const SOON: Duration = Duration::from_secs(30);

#[derive(Default)]
struct Pages {
    ready: AtomicBool,
}

impl App for Pages {
    fn ready(&self) -> Result<(), String> {
        if self.ready.load(Ordering::SeqCst) {
            Ok(())
        } else {
            Err("recovering".to_owned())
        }
    }
    fn metrics(&self) -> String {
        "# EOF\n".to_owned()
    }
    fn route(&self, method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> Option<Response> {
        (path == "/writes" && method == Method::PUT).then(|| {
            let token = headers
                .get("authorization")
                .map_or("none", |v| v.to_str().unwrap());
            Response::text(StatusCode::CREATED, format!("{token}: {} bytes", body.len()))
        })
    }
}

struct Rig {
    addr: SocketAddr,
    app: Arc<Pages>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Rig {
    async fn start() -> Self {
        let http = Http::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (addr, app) = (http.local_addr(), Arc::new(Pages::default()));
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(http.run(Arc::clone(&app) as _, stop.clone()));
        tasks.close();
        Self {
            addr,
            app,
            stop,
            tasks,
        }
    }

    async fn ask(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        // The server may refuse before it has read everything.
        let written = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let read = timeout(SOON, stream.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok());
        (
            status.unwrap_or_else(|| panic!("no status: {answer:?} {written:?} {read:?}")),
            answer,
        )
    }

    async fn get(&self, path: &str) -> (u16, String) {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        ))
        .await
    }
}

#[tokio::test]
async fn probes_metrics_and_own_pages() {
    let rig = Rig::start().await;
    assert_eq!(rig.get("/livez").await.0, 200);
    let (status, text) = rig.get("/readyz").await;
    assert!(status == 503 && text.ends_with("recovering\n"), "{text}");
    rig.app.ready.store(true, Ordering::SeqCst);
    assert_eq!(rig.get("/readyz?x=1").await.0, 200);
    let (status, text) = rig.get("/metrics").await;
    assert!(
        status == 200 && text.contains("openmetrics") && text.ends_with("# EOF\n"),
        "{text}"
    );
    assert_eq!(rig.get("/writes").await.0, 404);
    let put = "PUT /writes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer t\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let (status, text) = rig.ask(put).await;
    assert!(status == 201 && text.ends_with("Bearer t: 5 bytes"), "{text}");
    let post = "POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert_eq!(rig.ask(post).await.0, 405);
}

#[tokio::test]
async fn large_and_broken_requests_are_refused() {
    let rig = Rig::start().await;
    let large = format!(
        "PUT /writes HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
        MAX_BODY + 1,
        "x".repeat(MAX_BODY + 1)
    );
    assert_eq!(rig.ask(&large).await.0, 413);
    assert_eq!(rig.ask("NONSENSE\r\n\r\n").await.0, 400);
    let header = format!("GET /livez HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(64 * 1024));
    assert!(rig.ask(&header).await.0 >= 400);
    assert_eq!(rig.get("/livez").await.0, 200);
}

#[tokio::test]
async fn silent_peers_do_not_keep_others_out_or_hold_the_stop_up() {
    let rig = Rig::start().await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(rig.addr).await.unwrap());
    }
    assert_eq!(rig.get("/livez").await.0, 200);
    rig.stop.cancel();
    timeout(SOON, rig.tasks.wait()).await.unwrap();
    assert!(TcpStream::connect(rig.addr).await.is_err());
}

#[tokio::test]
async fn a_taken_port_is_named() {
    let rig = Rig::start().await;
    let error = Http::bind(rig.addr).await.unwrap_err().to_string();
    assert!(
        error.contains(&rig.addr.to_string()) && error.contains("httpPort"),
        "{error}"
    );
}
