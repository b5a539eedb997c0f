//! The task of one connection: reader, dispatcher and writer in one future.
//!
//! Each wake-up goes round: take frames pushed through the handle, collect answers that became ready, handle
//! complete frames, write all that waits, read more; until none of these makes progress. What holds:
//!
//! * No frame is handled and nothing is read while the connection is *saturated*: too many bytes wait to be
//!   written, or too many requests are in flight. TCP then holds the peer back.
//! * The read buffer grows with the bytes that really came, never by the length a frame claims.
//! * A frame once begun must be complete within the idle time.
//! * A malformed frame ends this connection only.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ferromq_protocol::code::response;
use ferromq_protocol::command::{Command, Language, SerializeType};
use ferromq_protocol::ext::Ext;
use ferromq_protocol::frame;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, Sleep};
use tokio_util::io::poll_read_buf;

use crate::budget::{PATIENCE, PROGRESS, Share};
use crate::conn::Conn;
use crate::dispatch::{Dispatch, Dispatched, Reply, RequestContext, Wait, panic_reply};
use crate::out_buf::OutBuf;
use crate::stats;
use crate::tls::transport::Transport;

/// Smallest and largest read; the size adapts to what comes.
const READ_MIN: usize = 2 * 1024;
const READ_MAX: usize = 256 * 1024;
/// Counted for each request in flight beside its body.
const REQUEST_COST: usize = 512;
/// Longest time between two looks at the idle rules.
const TICK_MAX: Duration = Duration::from_secs(10);

/// What is remembered of a request to answer it.
#[derive(Debug, Clone)]
struct Asked {
    code: i32,
    opaque: i32,
    serialize: SerializeType,
    oneway: bool,
    size: usize,
    received: Instant,
    /// Place of its counters.
    stats: usize,
    /// What hooks have to see.
    request: Option<Arc<Command>>,
}

impl Asked {
    fn of(request: &Command, received: Instant) -> Self {
        Self {
            code: request.code,
            opaque: request.opaque,
            serialize: request.serialize,
            oneway: request.is_oneway(),
            size: request.body.len() + REQUEST_COST,
            received,
            stats: usize::MAX,
            request: None,
        }
    }

    fn error_head(&self) -> Command {
        Command {
            code: response::SYSTEM_ERROR,
            language: Language::Java,
            version: ferromq_protocol::VERSION,
            opaque: self.opaque,
            flag: 1,
            remark: None,
            ext: Ext::default(),
            serialize: self.serialize,
            body: Bytes::new(),
        }
    }
}

/// A request whose answer is to come.
struct InFlight {
    asked: Asked,
    wait: Wait,
}

impl Future for InFlight {
    type Output = (Asked, Option<Reply>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = catch_unwind(AssertUnwindSafe(|| match &mut self.wait {
            Wait::Reply(f) => f.as_mut().poll(cx).map(Some),
            Wait::Maybe(f) => f.as_mut().poll(cx),
        }));
        match polled {
            Ok(polled) => polled.map(|reply| (self.asked.clone(), reply)),
            Err(panic) => {
                let reply = panic_reply(self.asked.error_head(), self.asked.code, &*panic);
                Poll::Ready((self.asked.clone(), Some(reply)))
            }
        }
    }
}

/// Why a connection's task ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Closed by the peer, at a frame boundary or not.
    ByPeer,
    /// The handle was told to close it.
    Told,
    /// All was answered and written after a drain.
    Drained,
    /// Idle, stalled or too slow.
    Slow(&'static str),
    /// The peer sent something that is no frame.
    BadFrame(String),
    /// It hoarded memory while it was short.
    Shed,
    /// No TLS handshake, or none that was allowed.
    Tls(String),
    /// The socket failed.
    Io(String),
}

impl Ended {
    pub(crate) fn text(&self) -> String {
        match self {
            Self::ByPeer => "closed by the peer".to_owned(),
            Self::Told => "closed".to_owned(),
            Self::Drained => "drained".to_owned(),
            Self::Slow(what) => (*what).to_owned(),
            Self::BadFrame(what) => format!("malformed frame: {what}"),
            Self::Shed => "memory for connections is used up, and this one made no progress".to_owned(),
            Self::Tls(what) => what.clone(),
            Self::Io(what) => format!("socket error: {what}"),
        }
    }
}

/// Drives one connection until it ends.
pub(crate) struct Driver<S> {
    stream: S,
    dispatch: Arc<Dispatch>,
    cx: RequestContext,
    inbuf: BytesMut,
    read_size: usize,
    out: OutBuf,
    in_flight: FuturesUnordered<InFlight>,
    in_flight_bytes: usize,
    share: Share,
    /// Bytes read and written so far.
    moved: u64,
    /// Since when it has to show progress, and what it had moved then.
    pressed: Option<(Instant, u64)>,
    /// Written, but perhaps still in the stream's own buffer (TLS).
    unflushed: bool,
    tick: Pin<Box<Sleep>>,
    last_io: Instant,
    /// Since when bytes wait without any being taken by the peer.
    stalled_since: Option<Instant>,
    /// Since when a frame is incomplete.
    partial_since: Option<Instant>,
}

impl<S: Transport> Driver<S> {
    pub(crate) fn new(stream: S, conn: Conn, dispatch: Arc<Dispatch>) -> Self {
        let now = Instant::now();
        let tick = Box::pin(tokio::time::sleep(tick_of(&conn)));
        let share = conn.share();
        Self {
            stream,
            dispatch,
            cx: RequestContext { conn, received: now },
            inbuf: BytesMut::new(),
            read_size: READ_MIN,
            out: OutBuf::default(),
            in_flight: FuturesUnordered::new(),
            in_flight_bytes: 0,
            share,
            moved: 0,
            pressed: None,
            unflushed: false,
            tick,
            last_io: now,
            stalled_since: None,
            partial_since: None,
        }
    }

    /// Whether no more is to be handled or read now.
    fn saturated(&mut self) -> bool {
        self.tell_share();
        if self.share.is_pressed() && self.inbuf.is_empty() && self.inbuf.capacity() > 0 {
            // Room for what may come is nothing to be closed for.
            self.inbuf = BytesMut::new();
            self.read_size = READ_MIN;
            self.tell_share();
        }
        self.at_own_limit() || self.share.is_held_back()
    }

    fn tell_share(&mut self) {
        let buffers = self.inbuf.capacity() + self.out.len() + self.in_flight_bytes;
        self.share.set(buffers + self.stream.held());
    }

    fn at_own_limit(&self) -> bool {
        let limits = self.cx.conn.limits();
        self.out.len() >= limits.write_queue
            || self.in_flight.len() >= limits.in_flight
            || self.in_flight_bytes >= limits.in_flight_bytes
    }

    fn done(&self, asked: &Asked, answer: Option<i32>) {
        let took = asked.received.elapsed();
        self.dispatch.done(asked.stats, answer, took);
    }

    fn answer(&mut self, asked: &Asked, mut reply: Reply) {
        self.done(asked, Some(reply.head.code));
        if asked.oneway {
            return;
        }
        if let Some(request) = &asked.request {
            self.dispatch.after(&self.cx.conn, request, &mut reply.head);
        }
        reply.head.opaque = asked.opaque;
        reply.head.serialize = asked.serialize;
        reply.head.flag |= 1;
        let body = if reply.chunks.is_empty() {
            reply.head.body.len()
        } else {
            reply.chunks.iter().map(Bytes::len).sum()
        };
        let limit = self.cx.conn.limits().max_frame;
        if body + 4096 > limit {
            tracing::warn!(
                peer = %self.cx.conn.peer(), code = asked.code, body, limit,
                "an answer is too long for one frame; an error was sent in its place",
            );
            let text = format!("the answer has {body} bytes, a frame holds {limit}: ask for less at a time");
            reply = asked.error_head().with_remark(text).into();
        }
        self.out.push(&reply.head, reply.chunks);
        stats::add(&self.cx.conn.stats().frames_out, 1);
    }

    /// Collects answers that became ready. True when any did.
    fn collect(&mut self, cx: &mut Context<'_>) -> bool {
        let mut any = false;
        while self.out.len() < self.cx.conn.limits().write_queue {
            match self.in_flight.poll_next_unpin(cx) {
                Poll::Ready(Some((asked, reply))) => {
                    any = true;
                    self.in_flight_bytes -= asked.size;
                    match reply {
                        Some(reply) => self.answer(&asked, reply),
                        None => self.done(&asked, None),
                    }
                }
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        any
    }

    /// Handles the complete frames in the read buffer. True when there was any.
    fn handle_frames(&mut self) -> Result<bool, Ended> {
        let mut any = false;
        let max_frame = self.cx.conn.limits().max_frame;
        while self.inbuf.len() >= 4 && !self.saturated() {
            match frame::decode(&mut self.inbuf, max_frame) {
                Ok(Some(mut command)) => {
                    any = true;
                    if command.body.is_empty() {
                        // An empty slice would keep the whole read buffer: a parked pull must not.
                        command.body = Bytes::new();
                    }
                    stats::add(&self.cx.conn.stats().frames_in, 1);
                    self.handle(command);
                }
                Ok(None) => break,
                Err(error) => return Err(Ended::BadFrame(error.to_string())),
            }
        }
        if any || self.inbuf.is_empty() {
            self.partial_since = None;
        }
        if !self.inbuf.is_empty() && self.partial_since.is_none() {
            self.partial_since = Some(Instant::now());
        }
        Ok(any)
    }

    fn handle(&mut self, command: Command) {
        if command.is_response() {
            let (code, opaque) = (command.code, command.opaque);
            if !self.cx.conn.complete(command) {
                tracing::debug!(peer = %self.cx.conn.peer(), code, opaque, "an answer came that nobody waits for");
            }
            return;
        }
        let mut asked = Asked::of(&command, self.cx.received);
        let handled = self.dispatch.dispatch(&self.cx, command);
        asked.stats = handled.stats;
        asked.request = handled.seen;
        match handled.dispatched {
            Dispatched::Now(Some(reply)) => self.answer(&asked, reply),
            Dispatched::Now(None) => self.done(&asked, None),
            Dispatched::Later(wait) => {
                self.in_flight_bytes += asked.size;
                self.in_flight.push(InFlight { asked, wait });
            }
        }
    }

    /// Writes what waits. True when bytes left.
    fn flush(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        let mut any = false;
        while !self.out.is_empty() {
            match self.out.poll_write(&mut self.stream, cx) {
                Poll::Ready(Ok(n)) => {
                    any = true;
                    self.moved += n as u64;
                    stats::add(&self.cx.conn.stats().bytes_out, n as u64);
                }
                Poll::Ready(Err(error)) => return Err(Ended::Io(error.to_string())),
                Poll::Pending => break,
            }
        }
        if any || self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Err(error)) => return Err(Ended::Io(error.to_string())),
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Pending => self.unflushed = true,
            }
        }
        if any {
            self.last_io = Instant::now();
            self.stalled_since = None;
        }
        if self.out.is_empty() && !self.unflushed {
            self.stalled_since = None;
        } else if self.stalled_since.is_none() {
            self.stalled_since = Some(Instant::now());
        }
        self.cx.conn.publish_writing(self.out.len());
        Ok(any)
    }

    /// Reads once. True when bytes came.
    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Ended> {
        if self.inbuf.capacity() - self.inbuf.len() < READ_MIN {
            self.inbuf.reserve(self.read_size.max(self.missing()));
        }
        let room = self.inbuf.capacity() - self.inbuf.len();
        let n = match poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.inbuf) {
            Poll::Pending => return Ok(false),
            // A TLS peer that closed without saying so first.
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(Ended::ByPeer);
            }
            Poll::Ready(Err(error)) => return Err(Ended::Io(error.to_string())),
            Poll::Ready(Ok(0)) => return Err(Ended::ByPeer),
            Poll::Ready(Ok(n)) => n,
        };
        // A read that filled its room shows that more is there: take more at a time.
        self.read_size = if n == room {
            (self.read_size * 2).min(READ_MAX)
        } else {
            self.read_size
        };
        let now = Instant::now();
        self.last_io = now;
        self.cx.received = now;
        self.cx.conn.note_read(now);
        self.moved += n as u64;
        stats::add(&self.cx.conn.stats().bytes_in, n as u64);
        Ok(true)
    }

    /// Bytes the frame at the front still lacks, as far as they may be reserved at once: not more than have
    /// come already.
    fn missing(&self) -> usize {
        let Some(head) = self.inbuf.first_chunk::<4>() else {
            return 0;
        };
        let whole = 4 + u32::from_be_bytes(*head) as usize;
        whole
            .saturating_sub(self.inbuf.len())
            .min(self.inbuf.len().max(READ_MAX))
    }
}

impl<S: Transport> Driver<S> {
    /// The rules about time, looked at every tick.
    fn check_times(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        while self.tick.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let we_do_not_read = self.saturated();
            self.check_share(now)?;
            let limits = self.cx.conn.limits();
            let over = |since: Option<Instant>, limit| {
                since.is_some_and(|at| now.saturating_duration_since(at) >= limit)
            };
            if over(self.stalled_since, limits.write_stall) {
                return Err(Ended::Slow("the peer did not read what waits for it"));
            }
            if self.partial_since.is_some() && we_do_not_read {
                // It is we who do not read.
                self.partial_since = Some(now);
            } else if over(self.partial_since, limits.idle) {
                return Err(Ended::Slow("a frame stayed incomplete for too long"));
            }
            if over(Some(self.last_io), limits.idle) {
                return Err(Ended::Slow("idle"));
            }
            if self.inbuf.is_empty() && over(Some(self.last_io), tick_of(&self.cx.conn)) {
                self.inbuf = BytesMut::new();
                self.read_size = READ_MIN;
                self.out.shrink();
                self.tell_share();
            }
            let mut next = tick_of(&self.cx.conn);
            if self.pressed.is_some() {
                next = next.min(PATIENCE / 4);
            }
            self.tick.as_mut().reset(now + next);
        }
        Ok(())
    }

    /// While the memory of all is short, those that hold much of it have to show progress.
    fn check_share(&mut self, now: Instant) -> Result<(), Ended> {
        if !self.share.is_pressed() {
            self.pressed = None;
            return Ok(());
        }
        match self.pressed {
            Some((since, moved)) if now.saturating_duration_since(since) >= PATIENCE => {
                if self.moved - moved < PROGRESS {
                    return Err(Ended::Shed);
                }
                self.pressed = Some((now, self.moved));
            }
            Some(_) => {}
            None => self.pressed = Some((now, self.moved)),
        }
        Ok(())
    }

    fn step(&mut self, cx: &mut Context<'_>) -> Result<(), Ended> {
        self.cx.conn.register_waker(cx.waker());
        loop {
            if !self.cx.conn.is_open() {
                return Err(Ended::Told);
            }
            let mut progress = self.cx.conn.take_pushed(&mut self.out);
            progress |= self.collect(cx);
            let frames = self.handle_frames();
            // What was answered before a malformed frame still leaves, if the socket takes it at once.
            let flushed = self.flush(cx);
            progress |= frames? | flushed?;
            if self.cx.conn.is_draining() {
                let written = self.out.is_empty() && !self.unflushed;
                let idle = self.in_flight.is_empty() && written && !self.cx.conn.has_pushed();
                if idle && !progress {
                    return Err(Ended::Drained);
                }
            } else if !self.saturated() {
                self.share.no_wait();
                progress |= self.read(cx)?;
            } else if !progress && !self.at_own_limit() {
                // There is room again already unless it waits.
                progress = !self.share.wait(cx.waker());
                if self.pressed.is_none() {
                    let now = Instant::now();
                    self.pressed = Some((now, self.moved));
                    self.tick.as_mut().reset(now + PATIENCE / 4);
                }
            }
            if !progress {
                return self.check_times(cx);
            }
        }
    }
}

impl<S: Transport> Future for Driver<S> {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        let this = self.get_mut();
        match this.step(cx) {
            Ok(()) => Poll::Pending,
            Err(ended) => {
                if this.cx.conn.is_tls() {
                    // A farewell, if the socket takes it at once; without it the peer has to suspect a cut.
                    if let Poll::Ready(Err(error)) = Pin::new(&mut this.stream).poll_shutdown(cx) {
                        tracing::trace!(%error, "a TLS connection ended without a farewell");
                    }
                }
                Poll::Ready(ended)
            }
        }
    }
}

fn tick_of(conn: &Conn) -> Duration {
    let limits = conn.limits();
    (limits.idle.min(limits.write_stall) / 4).clamp(Duration::from_millis(10), TICK_MAX)
}
