//! What the tests share: a server on a free port and a peer that speaks frames by hand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use ferromq_protocol::command::Command;
use ferromq_protocol::frame;
use ferromq_remoting::{
    Conn, ConnEvents, Dispatch, Handler, Outcome, RequestContext, Server, ServerConfig, Stats,
};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Generous bound for anything that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Echoes the body; code 0.
pub(crate) fn echo() -> Arc<dyn Handler> {
    Arc::new(|_: &RequestContext, request: Command| -> Outcome {
        let body = request.body.clone();
        request.reply(0).with_body(body).into()
    })
}

pub(crate) fn echo_table() -> Arc<Dispatch> {
    let mut table = Dispatch::builder();
    table.on(1, ferromq_remoting::Run::Inline, echo());
    table.build()
}

/// Counts and remembers connections.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) opened: AtomicUsize,
    pub(crate) closed: AtomicUsize,
    pub(crate) conns: Mutex<Vec<Conn>>,
}

impl ConnEvents for Seen {
    fn opened(&self, conn: &Conn) {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.conns.lock().push(conn.clone());
    }
    fn closed(&self, conn: &Conn) {
        assert!(!conn.is_open());
        self.closed.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) struct TestServer {
    pub(crate) addr: SocketAddr,
    pub(crate) stop: CancellationToken,
    pub(crate) seen: Arc<Seen>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) tasks: TaskTracker,
}

impl TestServer {
    pub(crate) fn start(dispatch: Arc<Dispatch>, config: ServerConfig) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), dispatch, config)
    }

    pub(crate) fn start_at(addr: SocketAddr, dispatch: Arc<Dispatch>, config: ServerConfig) -> Self {
        let seen = Arc::new(Seen::default());
        let server = Server::bind(addr, config, dispatch, Arc::clone(&seen) as _).unwrap();
        let (addr, stats) = (server.local_addr(), server.stats());
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        tasks.spawn(server.run(stop.clone()));
        tasks.close();
        Self {
            addr,
            stop,
            seen,
            stats,
            tasks,
        }
    }

    pub(crate) fn echo() -> Self {
        Self::start(echo_table(), ServerConfig::default())
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        within(self.tasks.wait()).await;
    }
}

/// A peer that writes and reads frames by hand.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    buf: BytesMut,
}

impl Peer {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(addr).await.unwrap(),
            buf: BytesMut::new(),
        }
    }

    pub(crate) async fn send(&mut self, requests: &[Command]) {
        let mut out = BytesMut::new();
        for request in requests {
            frame::encode(request, &mut out);
        }
        self.stream.write_all(&out).await.unwrap();
    }

    /// The next frame, or `None` when the server closed.
    pub(crate) async fn next(&mut self) -> Option<Command> {
        within(async {
            loop {
                if let Some(command) = frame::decode(&mut self.buf, frame::MAX_FRAME).unwrap() {
                    return Some(command);
                }
                match self.stream.read_buf(&mut self.buf).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                }
            }
        })
        .await
    }

    pub(crate) async fn ask(&mut self, request: Command) -> Command {
        self.send(&[request]).await;
        self.next().await.expect("an answer")
    }
}

pub(crate) fn request(code: i32, opaque: i32, body: &'static [u8]) -> Command {
    let mut request = Command::request(code).with_body(body);
    request.opaque = opaque;
    request
}

pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .expect("this takes far too long")
}

/// Polls until the condition holds.
pub(crate) async fn until(what: &str, condition: impl Fn() -> bool) {
    let done = tokio::time::timeout(SOON, async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(done.await.is_ok(), "never came true: {what}");
}
