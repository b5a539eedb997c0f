//! The dispatch table: request code → handler and where it runs.
//!
//! A handler either runs on the connection's task ([`Run::Inline`]: it must not block) or on a lane, a small
//! pool of threads with a bounded queue. What holds for every request: it gets one answer, or none if it is
//! one-way; a panic in a handler costs that request only.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::code::response;
use ferromq_protocol::command::Command;
use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::conn::Conn;
use crate::hook::{RpcHook, without_body};
use crate::lane::Pool;
use crate::requests::{CodeStats, RequestFigures};

/// An answer: the head and, unless empty, the pieces of its body, written without a copy.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Header; its own body is used when `chunks` is empty. Opaque, response flag and header form are set from
    /// the request by the connection.
    pub head: Command,
    /// Pieces of the body in order.
    pub chunks: Vec<Bytes>,
}

impl From<Command> for Reply {
    fn from(head: Command) -> Self {
        Self {
            head,
            chunks: Vec::new(),
        }
    }
}

/// What a handler gives back.
pub enum Outcome {
    /// Answer now.
    Reply(Reply),
    /// Answer when the future is ready; it is dropped when the connection closes.
    Later(BoxFuture<'static, Reply>),
    /// Never answer.
    Silent,
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(reply) => f.debug_tuple("Reply").field(reply).finish(),
            Self::Later(_) => f.write_str("Later(..)"),
            Self::Silent => f.write_str("Silent"),
        }
    }
}

impl From<Command> for Outcome {
    fn from(head: Command) -> Self {
        Self::Reply(head.into())
    }
}

impl From<Reply> for Outcome {
    fn from(reply: Reply) -> Self {
        Self::Reply(reply)
    }
}

/// What the connection's task does with a request that was dispatched.
pub(crate) enum Dispatched {
    Now(Option<Reply>),
    Later(Wait),
}

/// A request that was dispatched.
pub(crate) struct Handled {
    pub(crate) dispatched: Dispatched,
    /// Place of its counters.
    pub(crate) stats: usize,
    /// The request as the hooks left it, without body; only where there are hooks.
    pub(crate) seen: Option<Arc<Command>>,
}

/// An answer to come; lanes may end without one.
pub(crate) enum Wait {
    Reply(BoxFuture<'static, Reply>),
    Maybe(BoxFuture<'static, Option<Reply>>),
}

impl From<Outcome> for Dispatched {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Reply(reply) => Self::Now(Some(reply)),
            Outcome::Later(later) => Self::Later(Wait::Reply(later)),
            Outcome::Silent => Self::Now(None),
        }
    }
}

/// What a handler knows about a request beside the request itself.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The connection it came on.
    pub conn: Conn,
    /// When its bytes were read.
    pub received: Instant,
}

/// Handles requests of one or more codes.
pub trait Handler: Send + Sync + 'static {
    /// Handles one request. On a connection's task it must not block.
    fn handle(&self, cx: &RequestContext, request: Command) -> Outcome;
}

impl<F> Handler for F
where
    F: Fn(&RequestContext, Command) -> Outcome + Send + Sync + 'static,
{
    fn handle(&self, cx: &RequestContext, request: Command) -> Outcome {
        self(cx, request)
    }
}

/// A pool of threads for handlers that may block.
#[derive(Debug, Clone)]
pub struct Lane {
    /// Name of the lane; the threads carry it.
    pub name: &'static str,
    /// Threads, at least 1.
    pub workers: usize,
    /// Requests that may wait; one more is answered 2 `[OVERLOAD]`.
    pub queue: usize,
    /// A request that waited longer is answered 2 `[TIMEOUT_CLEAN_QUEUE]` at that moment and never run.
    pub max_wait: Duration,
}

/// A lane of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaneId(usize);

/// Where a handler runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// On the connection's task, without a thread hop. Must not block.
    Inline,
    /// On a lane.
    On(LaneId),
}

#[derive(Clone)]
struct Entry {
    run: Run,
    handler: Arc<dyn Handler>,
    /// Its place in the counters.
    stats: usize,
}

/// The table. Shared by all connections of a server or client.
pub struct Dispatch {
    entries: HashMap<i32, Entry>,
    otherwise: Option<Entry>,
    hooks: Vec<Arc<dyn RpcHook>>,
    lanes: Vec<Arc<Pool>>,
    /// One for each code, the last for all codes without a handler of their own.
    stats: Arc<[(Option<i32>, CodeStats)]>,
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch")
            .field("codes", &self.codes())
            .finish_non_exhaustive()
    }
}

impl Dispatch {
    /// Starts an empty table.
    pub fn builder() -> DispatchBuilder {
        DispatchBuilder::default()
    }

    /// A table that answers every request with "not supported": for clients that serve nothing.
    pub fn none() -> Arc<Self> {
        Self::builder().build()
    }

    /// The codes that have a handler of their own, sorted.
    pub fn codes(&self) -> Vec<i32> {
        let mut codes: Vec<i32> = self.entries.keys().copied().collect();
        codes.sort_unstable();
        codes
    }

    /// The same table with the same lanes, but `codes` are answered "not supported".
    pub fn without(&self, codes: &[i32]) -> Arc<Self> {
        let mut entries = self.entries.clone();
        for code in codes {
            let stats = entries
                .get(code)
                .map_or(self.stats.len() - 1, |entry| entry.stats);
            let unsupported: Arc<dyn Handler> = Arc::new(|_: &RequestContext, r: Command| not_supported(&r));
            entries.insert(
                *code,
                Entry {
                    run: Run::Inline,
                    handler: unsupported,
                    stats,
                },
            );
        }
        Arc::new(Self {
            entries,
            otherwise: self.otherwise.clone(),
            hooks: self.hooks.clone(),
            lanes: self.lanes.clone(),
            stats: Arc::clone(&self.stats),
        })
    }

    /// Requests that wait in a lane now.
    pub fn lane_len(&self, lane: LaneId) -> usize {
        self.lanes.get(lane.0).map_or(0, |pool| pool.len())
    }

    /// How long the oldest request of a lane has waited.
    pub fn lane_head_wait(&self, lane: LaneId) -> Duration {
        self.lanes
            .get(lane.0)
            .map_or(Duration::ZERO, |pool| pool.head_wait())
    }

    /// Counters of the codes that came at least once. Tables made by [`without`](Self::without) share them.
    pub fn requests(&self) -> Vec<RequestFigures> {
        let all = self.stats.iter().map(|(code, stats)| stats.figures(*code));
        all.filter(|figures| figures.count > 0).collect()
    }

    pub(crate) fn done(&self, stats: usize, answer: Option<i32>, took: Duration) {
        if let Some((_, stats)) = self.stats.get(stats) {
            stats.done(answer, took);
        }
    }

    /// Shows an answer to the hooks.
    pub(crate) fn after(&self, conn: &Conn, request: &Command, answer: &mut Command) {
        let peer = conn.peer().to_string();
        for hook in &self.hooks {
            let seen = catch_unwind(AssertUnwindSafe(|| hook.after(&peer, request, answer)));
            if let Err(panic) = seen {
                *answer = panic_reply(request.reply(response::SYSTEM_ERROR), request.code, &*panic).head;
            }
        }
    }

    fn before(&self, cx: &RequestContext, request: &mut Command) -> Option<Reply> {
        let peer = cx.conn.peer().to_string();
        for hook in &self.hooks {
            let seen = catch_unwind(AssertUnwindSafe(|| hook.before(&peer, request)));
            let refused = match seen {
                Ok(Ok(())) => continue,
                Ok(Err(refusal)) => request.reply(refusal.code).with_remark(refusal.remark).into(),
                Err(panic) => panic_reply(request.reply(response::SYSTEM_ERROR), request.code, &*panic),
            };
            return Some(refused);
        }
        None
    }

    /// Hands one request to its handler. Never panics, never blocks.
    pub(crate) fn dispatch(&self, cx: &RequestContext, mut request: Command) -> Handled {
        let mut refusal = None;
        let mut seen = None;
        if !self.hooks.is_empty() {
            refusal = self.before(cx, &mut request);
            seen = Some(Arc::new(without_body(&request)));
        }
        let entry = self.entries.get(&request.code);
        let stats = entry.map_or(self.stats.len() - 1, |entry| entry.stats);
        let dispatched = match (refusal, entry.or(self.otherwise.as_ref())) {
            (Some(refusal), _) => Dispatched::Now(Some(refusal)),
            (None, Some(entry)) => self.handle(entry, cx, request),
            (None, None) => not_supported(&request).into(),
        };
        Handled {
            dispatched,
            stats,
            seen,
        }
    }

    fn handle(&self, entry: &Entry, cx: &RequestContext, request: Command) -> Dispatched {
        match entry.run {
            Run::Inline => run_caught(entry.handler.as_ref(), cx, request).into(),
            Run::On(lane) => match self.lanes.get(lane.0) {
                Some(pool) => pool.submit(cx, request, &entry.handler),
                // Only a lane of another table gets here; run it rather than lose it.
                None => run_caught(entry.handler.as_ref(), cx, request).into(),
            },
        }
    }
}

/// Code 3 in the words that peers know.
fn not_supported(request: &Command) -> Outcome {
    request
        .reply(response::REQUEST_CODE_NOT_SUPPORTED)
        .with_remark(format!(" request type {} not supported", request.code))
        .into()
}

/// Runs a handler; a panic becomes code 1.
pub(crate) fn run_caught(handler: &dyn Handler, cx: &RequestContext, request: Command) -> Outcome {
    let on_panic = request.reply(response::SYSTEM_ERROR);
    let code = request.code;
    match catch_unwind(AssertUnwindSafe(|| handler.handle(cx, request))) {
        Ok(outcome) => outcome,
        Err(panic) => panic_reply(on_panic, code, &*panic).into(),
    }
}

/// The answer after a panic, which is logged here.
pub(crate) fn panic_reply(head: Command, code: i32, panic: &(dyn std::any::Any + Send)) -> Reply {
    let text = panic
        .downcast_ref::<&str>()
        .map(|s| (*s).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned());
    tracing::error!(code, panic = %text, "the handler of a request panicked; the request was answered with an error");
    head.with_remark(format!("internal error while handling request {code}: {text}"))
        .into()
}

/// Builds a [`Dispatch`].
#[derive(Default)]
pub struct DispatchBuilder {
    entries: HashMap<i32, Entry>,
    otherwise: Option<Entry>,
    hooks: Vec<Arc<dyn RpcHook>>,
    lanes: Vec<Lane>,
}

impl fmt::Debug for DispatchBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DispatchBuilder")
            .field("lanes", &self.lanes)
            .finish_non_exhaustive()
    }
}

impl DispatchBuilder {
    /// Adds a lane; its threads start with [`build`](Self::build).
    pub fn lane(&mut self, lane: Lane) -> LaneId {
        self.lanes.push(lane);
        LaneId(self.lanes.len() - 1)
    }

    /// Sets the handler of a code; a later one replaces an earlier one.
    pub fn on(&mut self, code: i32, run: Run, handler: Arc<dyn Handler>) -> &mut Self {
        let stats = self
            .entries
            .get(&code)
            .map_or(self.entries.len(), |entry| entry.stats);
        self.entries.insert(code, Entry { run, handler, stats });
        self
    }

    /// Sets the handler of all codes that have none; without it they are answered 3.
    pub fn otherwise(&mut self, run: Run, handler: Arc<dyn Handler>) -> &mut Self {
        self.otherwise = Some(Entry {
            run,
            handler,
            stats: usize::MAX,
        });
        self
    }

    /// Adds a hook; hooks see a request in the order in which they were added.
    pub fn hook(&mut self, hook: Arc<dyn RpcHook>) -> &mut Self {
        self.hooks.push(hook);
        self
    }

    /// Starts the lanes. Inside a tokio runtime the lane threads can use it too.
    pub fn build(&mut self) -> Arc<Dispatch> {
        let this = std::mem::take(self);
        let mut codes = vec![None; this.entries.len() + 1];
        this.entries
            .iter()
            .for_each(|(code, entry)| codes[entry.stats] = Some(*code));
        Arc::new(Dispatch {
            entries: this.entries,
            otherwise: this.otherwise,
            hooks: this.hooks,
            stats: codes
                .into_iter()
                .map(|code| (code, CodeStats::default()))
                .collect(),
            lanes: this
                .lanes
                .into_iter()
                .map(|lane| Arc::new(Pool::start(lane)))
                .collect(),
        })
    }
}
