//! How far opening has come, readable while it runs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

/// What the store is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Taking the lock and listing files.
    Loading,
    /// Reading the log.
    Recovering,
    /// Recovered; bringing queues up to the log, starting threads.
    Starting,
    /// Taking appends and reads.
    Running,
    /// Flushing and closing.
    Stopping,
}

impl Stage {
    /// Lower-case name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Recovering => "recovering",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopping => "stopping",
        }
    }
}

/// How far opening has come. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Progress(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    stage: AtomicU8,
    abnormal: AtomicBool,
    done: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// A new one, at the first stage.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the store is doing.
    pub fn stage(&self) -> Stage {
        match self.0.stage.load(Ordering::Acquire) {
            0 => Stage::Loading,
            1 => Stage::Recovering,
            2 => Stage::Starting,
            3 => Stage::Running,
            _ => Stage::Stopping,
        }
    }

    /// Whether the store wasn't stopped in order the last time.
    pub fn abnormal(&self) -> bool {
        self.0.abnormal.load(Ordering::Acquire)
    }

    /// Bytes of the log read so far.
    pub fn done(&self) -> u64 {
        self.0.done.load(Ordering::Acquire)
    }

    /// Bytes of the log to read, at most; 0 while unknown.
    pub fn total(&self) -> u64 {
        self.0.total.load(Ordering::Acquire)
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        let n = match stage {
            Stage::Loading => 0,
            Stage::Recovering => 1,
            Stage::Starting => 2,
            Stage::Running => 3,
            Stage::Stopping => 4,
        };
        self.0.stage.store(n, Ordering::Release);
    }

    pub(crate) fn set_abnormal(&self, abnormal: bool) {
        self.0.abnormal.store(abnormal, Ordering::Release);
    }

    pub(crate) fn set_done(&self, done: u64) {
        self.0.done.store(done, Ordering::Release);
    }

    pub(crate) fn set_total(&self, total: u64) {
        self.0.total.store(total, Ordering::Release);
    }
}
