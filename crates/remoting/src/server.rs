//! The server: accepts connections, drives them, drains them when told to stop.
//!
//! Lack of file descriptors or memory is not fatal: the accept loop waits a little, longer each time, and
//! goes on when there is room again. `closed` of [`ConnEvents`] is called once for each `opened`, on the
//! connection's own task, however the connection ends; there is no queue that could overflow.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Budget;
use crate::conn::{Conn, Limits};
use crate::dispatch::Dispatch;
use crate::driver::{Driver, Ended};
use crate::stats::{self, Stats};
use crate::tls::transport::Transport;
use crate::tls::{self, Mode, ServerTls};

/// First and longest pause after a failed accept.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// Time for a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// How a server listens.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Named in logs.
    pub name: &'static str,
    /// Bounds of each connection.
    pub limits: Limits,
    /// What all connections may hold together; give servers of one program the same. Default: no bound in total.
    pub budget: Arc<Budget>,
    /// Encryption on the same port; `None`, the default: plain only.
    pub tls: Option<ServerTls>,
    /// Length of the kernel's queue of connections not yet accepted. Default 1024.
    pub backlog: i32,
    /// Connections at the same time; more are closed at once. 0, the default: no limit.
    pub max_connections: usize,
    /// How long [`Server::run`] waits for open requests and unwritten answers when told to stop. Default 5 s.
    pub drain: Duration,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            name: "server",
            limits: Limits::default(),
            budget: Budget::unlimited(),
            tls: None,
            backlog: 1024,
            max_connections: 0,
            drain: Duration::from_secs(5),
        }
    }
}

/// Hears of connections. Called on the connection's task: must not block.
pub trait ConnEvents: Send + Sync + 'static {
    /// Before the first request of a connection is handled.
    fn opened(&self, _conn: &Conn) {}
    /// After the last; [`Conn::is_open`] is false.
    fn closed(&self, _conn: &Conn) {}
}

/// Ignores all events.
#[derive(Debug, Default, Clone, Copy)]
pub struct NoEvents;

impl ConnEvents for NoEvents {}

/// A bound server; [`run`](Self::run) serves.
pub struct Server {
    listener: TcpListener,
    local: SocketAddr,
    config: ServerConfig,
    dispatch: Arc<Dispatch>,
    events: Arc<dyn ConnEvents>,
    stats: Arc<Stats>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("name", &self.config.name)
            .field("local", &self.local)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Binds and listens. Must be called inside a tokio runtime. Port 0 takes a free one.
    ///
    /// # Errors
    /// The address is in use or not ours, or no descriptor is left; the text names the address.
    pub fn bind(
        addr: SocketAddr,
        config: ServerConfig,
        dispatch: Arc<Dispatch>,
        events: Arc<dyn ConnEvents>,
    ) -> io::Result<Self> {
        let listener = listen(addr, config.backlog).map_err(|error| {
            let text = format!("cannot listen on {addr}: {error}; choose a free port or end what uses it");
            io::Error::new(error.kind(), text)
        })?;
        let local = listener.local_addr()?;
        Ok(Self {
            listener,
            local,
            config,
            dispatch,
            events,
            stats: Arc::default(),
        })
    }

    /// The address bound, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Counters of this server.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.stats)
    }

    /// Serves until `stop` is cancelled; then accepts no more, reads no more, answers what is in flight, and
    /// returns when all connections are closed, at the latest after [`ServerConfig::drain`].
    pub async fn run(self, stop: CancellationToken) {
        let Self {
            listener,
            local,
            config,
            dispatch,
            events,
            stats,
        } = self;
        let tasks = TaskTracker::new();
        let open: Arc<Mutex<std::collections::HashMap<u64, Conn>>> = Arc::default();
        let mut back_off = BACK_OFF.0;
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    back_off = BACK_OFF.0;
                    if config.max_connections > 0 && open.lock().len() >= config.max_connections {
                        tracing::warn!(server = config.name, %peer, limit = config.max_connections, "too many connections; closed a new one");
                        continue;
                    }
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(server = config.name, %peer, %error, "a connection was gone before it was served");
                        continue;
                    }
                    let conn = Conn::new(
                        peer,
                        stream.local_addr().unwrap_or(local),
                        config.limits.clone(),
                        Arc::clone(&config.budget),
                        false,
                        Arc::clone(&stats),
                    );
                    open.lock().insert(conn.id(), conn.clone());
                    let life = Life {
                        conn: conn.clone(),
                        events: Arc::clone(&events),
                        open: Some(Arc::clone(&open)),
                        ended: None,
                    };
                    tasks.spawn(serve_accepted(
                        stream,
                        conn,
                        Arc::clone(&dispatch),
                        life,
                        config.tls.clone(),
                    ));
                }
                Err(error) if is_shortage(&error) => {
                    stats::add(&stats.accept_errors, 1);
                    if back_off == BACK_OFF.0 {
                        tracing::warn!(server = config.name, %error, "cannot accept connections now; raise the limit of open files or close connections");
                    }
                    tokio::select! {
                        () = stop.cancelled() => break,
                        () = tokio::time::sleep(back_off) => {}
                    }
                    back_off = (back_off * 2).min(BACK_OFF.1);
                }
                // The peer gave up before it was accepted.
                Err(error) => {
                    stats::add(&stats.accept_errors, 1);
                    tracing::debug!(server = config.name, %error, "a connection was gone before it was accepted");
                    tokio::task::yield_now().await;
                }
            }
        }
        drop(listener);
        tasks.close();
        let conns: Vec<Conn> = open.lock().values().cloned().collect();
        tracing::info!(
            server = config.name,
            connections = conns.len(),
            "stopped listening; answering what is in flight"
        );
        for conn in &conns {
            conn.drain();
        }
        if tokio::time::timeout(config.drain, tasks.wait()).await.is_err() {
            for conn in open.lock().values() {
                conn.close("the server stops");
            }
            tasks.wait().await;
        }
    }
}

/// Reports the end of a connection exactly once, also when its task panics or is dropped.
pub(crate) struct Life {
    pub(crate) conn: Conn,
    pub(crate) events: Arc<dyn ConnEvents>,
    pub(crate) open: Option<Arc<Mutex<std::collections::HashMap<u64, Conn>>>>,
    pub(crate) ended: Option<Ended>,
}

impl Life {
    /// The connection ends before it was reported as open.
    fn never_opened(&mut self, ended: Ended) {
        self.events = Arc::new(NoEvents);
        self.ended = Some(ended);
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        let ended = self.ended.clone().unwrap_or(Ended::Told);
        let text = match (&ended, self.conn.close_reason()) {
            (Ended::Told, Some(reason)) => reason.to_string(),
            _ => ended.text(),
        };
        let peer = self.conn.peer();
        if let Ended::BadFrame(what) = &ended {
            stats::add(&self.conn.stats().bad_frames, 1);
            tracing::warn!(%peer, %what, "closed a connection: its peer sent a malformed frame");
        } else if ended == Ended::Shed {
            stats::add(&self.conn.stats().shed, 1);
            tracing::warn!(%peer, "closed a connection: memory for connections is used up, and what this one holds is not read or completed");
        } else if let Ended::Tls(what) = &ended {
            stats::add(&self.conn.stats().tls_errors, 1);
            tracing::warn!(%peer, %what, "closed a connection: no TLS with its peer");
        } else {
            tracing::debug!(%peer, reason = %text, "connection closed");
        }
        self.conn.set_closed(&text);
        if let Some(open) = &self.open {
            open.lock().remove(&self.conn.id());
        }
        self.events.closed(&self.conn);
    }
}

pub(crate) async fn serve<S: Transport>(stream: S, conn: Conn, dispatch: Arc<Dispatch>, mut life: Life) {
    tracing::debug!(peer = %conn.peer(), tls = conn.is_tls(), "connection opened");
    life.events.opened(&conn);
    life.ended = Some(Driver::new(stream, conn, dispatch).await);
}

/// Serves an accepted connection, which may be encrypted when there is `tls`.
async fn serve_accepted(
    stream: TcpStream,
    conn: Conn,
    dispatch: Arc<Dispatch>,
    mut life: Life,
    tls: Option<ServerTls>,
) {
    let Some(tls) = tls else {
        return serve(stream, conn, dispatch, life).await;
    };
    // A peer that never says anything is as idle as one that no longer does.
    let mut first = [0];
    let looked = before_frames(&conn, conn.limits().idle, "idle", stream.peek(&mut first)).await;
    let ended = match looked {
        Ok(Ok(1)) if first[0] == tls::HANDSHAKE => {
            return Box::pin(serve_encrypted(stream, conn, dispatch, life, tls)).await;
        }
        Ok(Ok(1)) if tls.mode() == Mode::Permissive => {
            return serve(stream, conn, dispatch, life).await;
        }
        Ok(Ok(1)) => Ended::Tls("it does not speak TLS, and tls.server.mode is enforcing".to_owned()),
        Ok(Ok(_)) => Ended::ByPeer,
        Ok(Err(error)) => Ended::Io(error.to_string()),
        Err(ended) => ended,
    };
    life.never_opened(ended);
}

async fn serve_encrypted(
    stream: TcpStream,
    conn: Conn,
    dispatch: Arc<Dispatch>,
    mut life: Life,
    tls: ServerTls,
) {
    let limit = HANDSHAKE.min(conn.limits().idle);
    let late = "the TLS handshake took too long";
    match before_frames(&conn, limit, late, tls.accept(stream)).await {
        Ok(Ok(stream)) => {
            stats::add(&conn.stats().tls_opened, 1);
            conn.set_tls();
            serve(stream, conn, dispatch, life).await;
        }
        Ok(Err(error)) => life.never_opened(Ended::Tls(error.to_string())),
        Err(ended) => life.never_opened(ended),
    }
}

/// Waits for `work` as long as the connection may live without it.
async fn before_frames<T>(
    conn: &Conn,
    limit: Duration,
    late: &'static str,
    work: impl Future<Output = T>,
) -> Result<T, Ended> {
    let mut work = std::pin::pin!(tokio::time::timeout(limit, work));
    std::future::poll_fn(|cx| {
        conn.register_waker(cx.waker());
        if !conn.is_open() {
            return Poll::Ready(Err(Ended::Told));
        }
        if conn.is_draining() {
            return Poll::Ready(Err(Ended::Drained));
        }
        let done = work.as_mut().poll(cx);
        done.map(|done| done.map_err(|_| Ended::Slow(late)))
    })
    .await
}

fn listen(addr: SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.bind(&addr.into())?;
    socket.listen(backlog)?;
    TcpListener::from_std(socket.into())
}

/// No descriptor, buffer or memory left: waiting helps.
fn is_shortage(error: &io::Error) -> bool {
    // EMFILE 24, ENFILE 23, ENOBUFS 105, ENOMEM 12 on Linux.
    matches!(error.raw_os_error(), Some(12 | 23 | 24 | 105))
}

/// Connects to the first address that answers.
pub(crate) async fn connect_any(addrs: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for addr in addrs {
        match TcpStream::connect(addr).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
