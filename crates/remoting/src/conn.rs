//! The handle of one connection, on a server or a client.
//!
//! The handle never touches the socket: it queues encoded frames in the shared buffer and wakes the
//! connection's task. What holds: bytes queued ≤ [`Limits::write_queue`] plus one frame, except for replies,
//! which the task itself bounds by not reading on; `closed` fires after the state says closed and every
//! waiting call has failed.

use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferromq_protocol::command::Command;
use ferromq_protocol::frame::MAX_FRAME;
use futures::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::budget::{Budget, Share};
use crate::error::{CallError, SendError};
use crate::out_buf::OutBuf;
use crate::pending::{Pending, Refusal};
use crate::stats::{self, Stats};

/// A call that times out on a link from which nothing was read for at least this long closes the link.
const SILENCE: Duration = Duration::from_secs(3);

/// What one connection may hold, and how long it may do nothing.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Longest frame accepted, bytes with the length word. Default 16 MiB, which is also what peers accept.
    pub max_frame: usize,
    /// Bytes waiting to be written above which no more is read from the peer. Default 8 MiB.
    pub write_queue: usize,
    /// Requests handled later at the same time, parked pulls among them. Default 8192.
    pub in_flight: usize,
    /// Bytes of the bodies of these requests. Default 64 MiB.
    pub in_flight_bytes: usize,
    /// Closed when nothing was read or written for this long. Default 120 s.
    pub idle: Duration,
    /// Closed when the peer takes no byte of what waits for it for this long. Default 60 s.
    pub write_stall: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_frame: MAX_FRAME,
            write_queue: 8 * 1024 * 1024,
            in_flight: 8192,
            in_flight_bytes: 64 * 1024 * 1024,
            idle: Duration::from_mins(2),
            write_stall: Duration::from_mins(1),
        }
    }
}

pub(crate) struct Inner {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    limits: Limits,
    budget: Arc<Budget>,
    /// Made by us, not accepted.
    dialed: bool,
    /// Frames pushed through the handle, not yet taken by the task.
    out: Mutex<OutBuf>,
    /// Bytes the task has taken but not yet written.
    writing: AtomicUsize,
    waker: AtomicWaker,
    room: Notify,
    close_reason: OnceLock<Arc<str>>,
    draining: AtomicBool,
    secure: AtomicBool,
    closed: CancellationToken,
    pending: Arc<Pending>,
    born: Instant,
    last_read_millis: AtomicU64,
    pub(crate) stats: Arc<Stats>,
}

/// A connection, as handlers and callers see it. Cheap to clone; equal when it is the same connection.
#[derive(Clone)]
pub struct Conn {
    inner: Arc<Inner>,
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("id", &self.id())
            .field("peer", &self.peer())
            .finish_non_exhaustive()
    }
}

impl PartialEq for Conn {
    fn eq(&self, other: &Self) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for Conn {}

impl Hash for Conn {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.id.hash(state);
    }
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl Conn {
    pub(crate) fn new(
        peer: SocketAddr,
        local: SocketAddr,
        limits: Limits,
        budget: Arc<Budget>,
        dialed: bool,
        stats: Arc<Stats>,
    ) -> Self {
        stats::add(&stats.opened, 1);
        Self {
            inner: Arc::new(Inner {
                id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
                peer: canonical(peer),
                local: canonical(local),
                limits,
                budget,
                dialed,
                out: Mutex::new(OutBuf::default()),
                writing: AtomicUsize::new(0),
                waker: AtomicWaker::new(),
                room: Notify::new(),
                close_reason: OnceLock::new(),
                draining: AtomicBool::new(false),
                secure: AtomicBool::new(false),
                closed: CancellationToken::new(),
                pending: Arc::new(Pending::default()),
                born: Instant::now(),
                last_read_millis: AtomicU64::new(0),
                stats,
            }),
        }
    }

    /// A number that no other connection of this process has or had.
    pub fn id(&self) -> u64 {
        self.inner.id
    }

    /// Address of the other end; an IPv4-mapped IPv6 address is folded to IPv4.
    pub fn peer(&self) -> SocketAddr {
        self.inner.peer
    }

    /// Our own address of this connection, folded likewise.
    pub fn local(&self) -> SocketAddr {
        self.inner.local
    }

    /// Whether it is encrypted.
    pub fn is_tls(&self) -> bool {
        self.inner.secure.load(Ordering::Relaxed)
    }

    /// False once closed or told to close.
    pub fn is_open(&self) -> bool {
        self.inner.close_reason.get().is_none()
    }

    /// Closes the connection soon; frames not yet written are lost, waiting calls fail. The first reason stays.
    pub fn close(&self, reason: impl Into<Cow<'static, str>>) {
        let reason: Cow<'static, str> = reason.into();
        if self.inner.close_reason.set(Arc::from(reason.as_ref())).is_ok() {
            self.inner.waker.wake();
        }
    }

    /// Returns when the connection is closed.
    pub async fn closed(&self) {
        self.inner.closed.cancelled().await;
    }

    /// Why the connection was closed, once it was.
    pub fn close_reason(&self) -> Option<Arc<str>> {
        self.inner.close_reason.get().cloned()
    }

    /// Bytes that wait to be written.
    pub fn queued_bytes(&self) -> usize {
        self.inner.out.lock().len() + self.inner.writing.load(Ordering::Relaxed)
    }

    /// Calls that wait for an answer.
    pub fn waiting_calls(&self) -> usize {
        self.inner.pending.len()
    }

    /// Queues a one-way request. Never waits.
    ///
    /// # Errors
    /// [`SendError::Closed`], or [`SendError::Full`] when the peer does not read fast enough.
    pub fn oneway(&self, request: Command) -> Result<(), SendError> {
        let mut request = request.oneway();
        request.opaque = self.inner.pending.next_opaque();
        self.push(&request)
    }

    /// Sends a request and waits for its answer. Dropping the future gives the call up and frees its slot.
    ///
    /// When a call over a connection that a client made times out and nothing at all came from the peer
    /// meanwhile (at least 3 s), the link is taken for dead and closed. An accepted connection stays: its peer
    /// may just not know the request.
    ///
    /// # Errors
    /// See [`CallError`]; the time-out covers waiting for room in the write queue too.
    pub async fn call(&self, mut request: Command, timeout: Duration) -> Result<Command, CallError> {
        let deadline = Instant::now() + timeout;
        let mut slot = self.inner.pending.register().map_err(|refusal| match refusal {
            Refusal::Closed => CallError::Send(self.closed_error()),
            Refusal::TooMany(waiting) => CallError::Send(SendError::TooManyCalls {
                peer: self.peer().to_string(),
                waiting,
            }),
        })?;
        request.opaque = slot.opaque;
        self.push_when_room(&request, deadline).await?;
        match timeout_at(deadline, &mut slot.answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(CallError::Lost {
                addr: self.peer().to_string(),
                reason: self.reason(),
            }),
            Err(_) => {
                if self.inner.dialed && self.silent_for() >= timeout.max(SILENCE) {
                    self.close("no answer and nothing else came from the peer");
                }
                Err(CallError::Timeout {
                    addr: self.peer().to_string(),
                    after: timeout,
                })
            }
        }
    }

    async fn push_when_room(&self, request: &Command, deadline: Instant) -> Result<(), CallError> {
        loop {
            let room = self.inner.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match self.push(request) {
                Err(full @ SendError::Full { .. }) => {
                    if timeout_at(deadline, room).await.is_err() {
                        return Err(full.into());
                    }
                }
                other => return other.map_err(CallError::from),
            }
        }
    }

    fn push(&self, request: &Command) -> Result<(), SendError> {
        if !self.is_open() {
            return Err(self.closed_error());
        }
        let limit = self.inner.limits.max_frame;
        // The header is bounded by the check of the peer; bodies are what grows.
        if request.body.len() + 4096 > limit {
            return Err(SendError::TooLarge {
                peer: self.peer().to_string(),
                size: request.body.len(),
                limit: limit.saturating_sub(4096),
            });
        }
        {
            let mut out = self.inner.out.lock();
            let queued = out.len() + self.inner.writing.load(Ordering::Relaxed);
            if queued > 0 && queued + request.body.len() > self.inner.limits.write_queue {
                return Err(SendError::Full {
                    peer: self.peer().to_string(),
                    queued,
                });
            }
            out.push(request, Vec::new());
        }
        stats::add(&self.inner.stats.frames_out, 1);
        self.inner.waker.wake();
        Ok(())
    }

    fn closed_error(&self) -> SendError {
        SendError::Closed {
            peer: self.peer().to_string(),
            reason: self.reason(),
        }
    }

    fn reason(&self) -> Arc<str> {
        self.close_reason().unwrap_or_else(|| Arc::from("closed"))
    }

    fn silent_for(&self) -> Duration {
        let last = Duration::from_millis(self.inner.last_read_millis.load(Ordering::Relaxed));
        self.inner.born.elapsed().saturating_sub(last)
    }

    // What the connection's task needs.

    pub(crate) fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    pub(crate) fn share(&self) -> Share {
        Share::new(Arc::clone(&self.inner.budget), self.id())
    }

    pub(crate) fn stats(&self) -> &Stats {
        &self.inner.stats
    }

    pub(crate) fn register_waker(&self, waker: &std::task::Waker) {
        self.inner.waker.register(waker);
    }

    /// Moves frames pushed through the handle behind `out`; true when there were any.
    pub(crate) fn take_pushed(&self, out: &mut OutBuf) -> bool {
        let mut pushed = self.inner.out.lock();
        if pushed.is_empty() {
            return false;
        }
        out.append(&mut pushed);
        self.inner.writing.store(out.len(), Ordering::Relaxed);
        true
    }

    /// Tells callers how much the task still has to write.
    pub(crate) fn publish_writing(&self, bytes: usize) {
        let before = self.inner.writing.swap(bytes, Ordering::Relaxed);
        if bytes < before && bytes <= self.inner.limits.write_queue / 2 {
            self.inner.room.notify_waiters();
        }
    }

    pub(crate) fn note_read(&self, now: Instant) {
        let millis = now.saturating_duration_since(self.inner.born).as_millis();
        self.inner
            .last_read_millis
            .store(millis as u64, Ordering::Relaxed);
    }

    pub(crate) fn complete(&self, answer: Command) -> bool {
        self.inner.pending.complete(answer)
    }

    pub(crate) fn has_pushed(&self) -> bool {
        !self.inner.out.lock().is_empty()
    }

    /// Asks the task to finish what it has, read nothing more, and end.
    pub(crate) fn drain(&self) {
        self.inner.draining.store(true, Ordering::Release);
        self.inner.waker.wake();
    }

    pub(crate) fn set_tls(&self) {
        self.inner.secure.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.inner.draining.load(Ordering::Acquire)
    }

    pub(crate) fn set_closed(&self, reason: &str) {
        // An earlier reason stays.
        self.inner.close_reason.get_or_init(|| Arc::from(reason));
        self.inner.pending.fail_all();
        self.inner.room.notify_waiters();
        stats::add(&self.inner.stats.closed, 1);
        self.inner.closed.cancel();
    }
}

fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}
