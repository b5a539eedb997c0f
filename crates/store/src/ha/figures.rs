//! How a slave's following goes, for those who ask: pages, metrics, the broker that has to act on it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// What a slave is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FollowState {
    /// It looks for its master.
    #[default]
    Connecting,
    /// It follows, and has had all that the master had when the link was made, or is on its way to that with a log of its own.
    Following,
    /// It started without a log, and has not had all yet.
    Copying,
    /// The master refuses it, or it refuses the master's bytes: a person must look.
    Refused,
    /// Its log is too old to be continued: it starts anew.
    StartingAnew,
}

impl FollowState {
    /// Its name in pages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Following => "following",
            Self::Copying => "copying",
            Self::Refused => "refused",
            Self::StartingAnew => "startingAnew",
        }
    }
}

/// A slave's figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowFigures {
    /// What it is doing.
    pub state: FollowState,
    /// The master's replication address, once it's known.
    pub master: Option<String>,
    /// Whether a master is connected and has sent something.
    pub connected: bool,
    /// Whether, since this link was made, it has had all that the master had then.
    pub caught_up: bool,
    /// Whether it has had all that its master had, at least once since the start.
    pub caught_up_once: bool,
    /// End of the master's log, as far as is known. A Java master tells it only when it's reached.
    pub master_end: Option<i64>,
    /// Bytes of the master's log that it lacks, as far as is known; `None` before the master said anything.
    pub behind_bytes: Option<i64>,
    /// Time since the master's last word.
    pub silent: Option<Duration>,
    /// Why it isn't following.
    pub error: Option<String>,
}

/// How the following goes. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Following(Arc<State>);

#[derive(Debug, Default)]
struct State {
    connected: AtomicBool,
    caught_up: AtomicBool,
    caught_up_once: AtomicBool,
    /// The log here isn't whole: it's being copied from its beginning.
    copying: AtomicBool,
    master_end: AtomicI64,
    rest: Mutex<Rest>,
    anew: CancellationToken,
}

#[derive(Debug, Default)]
struct Rest {
    state: FollowState,
    master: Option<String>,
    heard: Option<Instant>,
    error: Option<String>,
}

impl Following {
    /// Whether a master is connected and has sent something.
    pub fn connected(&self) -> bool {
        self.0.connected.load(Ordering::Acquire)
    }

    /// Whether this slave has had all that its master had, at least once since the start.
    pub fn caught_up_once(&self) -> bool {
        self.0.caught_up_once.load(Ordering::Acquire)
    }

    /// Returns when the store has to be closed and opened again: the log is too old to be continued, and the next opening sets
    /// it aside.
    pub async fn wants_reopening(&self) {
        self.0.anew.cancelled().await;
    }

    /// The figures, for a log that ends at `end`.
    pub fn figures(&self, end: i64) -> FollowFigures {
        let state = &*self.0;
        let connected = self.connected();
        let known = state.master_end.load(Ordering::Acquire);
        let rest = state.rest.lock();
        let heard = rest.heard.is_some();
        FollowFigures {
            state: match rest.state {
                FollowState::Following if state.copying.load(Ordering::Acquire) => FollowState::Copying,
                other => other,
            },
            master: rest.master.clone(),
            connected,
            caught_up: connected && state.caught_up.load(Ordering::Acquire),
            caught_up_once: self.caught_up_once(),
            master_end: heard.then_some(known),
            behind_bytes: heard.then(|| (known - end).max(0)),
            silent: rest.heard.map(|at| at.elapsed()),
            error: rest.error.clone(),
        }
    }

    pub(super) fn connecting(&self, master: Option<&str>) {
        self.0.caught_up.store(false, Ordering::Release);
        let mut rest = self.0.rest.lock();
        if let Some(master) = master {
            rest.master = Some(master.to_owned());
        }
        if rest.state == FollowState::Following {
            rest.state = FollowState::Connecting;
        }
    }

    /// The master said something; its log has at least `end`.
    pub(super) fn heard(&self, end: i64) {
        self.0.master_end.fetch_max(end, Ordering::AcqRel);
        let mut rest = self.0.rest.lock();
        rest.heard = Some(Instant::now());
        if !self.0.connected.swap(true, Ordering::AcqRel) {
            rest.state = FollowState::Following;
            rest.error = None;
        }
    }

    /// The master's log ends at `end`, even if it was longer before.
    pub(super) fn known_end(&self, end: i64) {
        self.0.master_end.store(end, Ordering::Release);
    }

    /// Returns whether it's news on this link.
    pub(super) fn caught_up(&self) -> bool {
        if self.0.caught_up.swap(true, Ordering::AcqRel) {
            return false;
        }
        if !self.0.caught_up_once.swap(true, Ordering::AcqRel) {
            tracing::info!("caught up with the master");
        }
        true
    }

    pub(super) fn ended(&self, state: FollowState, error: String) -> bool {
        let was = self.0.connected.swap(false, Ordering::AcqRel);
        self.0.caught_up.store(false, Ordering::Release);
        let mut rest = self.0.rest.lock();
        rest.state = state;
        rest.error = Some(error);
        was
    }

    pub(super) fn set_copying(&self, copying: bool) {
        self.0.copying.store(copying, Ordering::Release);
    }

    pub(super) fn copying(&self) -> bool {
        self.0.copying.load(Ordering::Acquire)
    }

    pub(super) fn want_reopening(&self) {
        self.0.anew.cancel();
    }
}
