//! The parts of an open store, and the state that they share.

use std::{
    fmt,
    sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
    thread::JoinHandle,
};

use parking_lot::Mutex;

use crate::{
    BrokerRole, FlushMode, PutTotals, StoreConfig, WriteRefusal,
    clean::DiskState,
    commit_log::{CommitLog, RawError},
    dispatch::Dispatch,
    flush::GroupCommit,
    fs::lock::StoreLock,
    ha::{LinkError, ack::Replicas},
    memory,
    progress::Progress,
    schedule::DelayTable,
    signal::Signal,
};

/// Java's running flags, and one of ours.
#[derive(Debug, Default)]
pub(crate) struct Flags(AtomicU32);

impl Flags {
    pub(crate) const QUEUE_ERROR: u32 = 1 << 2;
    pub(crate) const DISK_FULL: u32 = 1 << 4;
    pub(crate) const FLUSH_FAILED: u32 = 1 << 8;

    pub(crate) fn get(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.get() & flag != 0
    }

    /// Sets it; `true` if it wasn't set.
    pub(crate) fn set(&self, flag: u32) -> bool {
        self.0.fetch_or(flag, Ordering::AcqRel) & flag == 0
    }

    /// Clears it; `true` if it was set.
    pub(crate) fn clear(&self, flag: u32) -> bool {
        self.0.fetch_and(!flag, Ordering::AcqRel) & flag != 0
    }
}

/// Counters of appends.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) messages: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) flushes: AtomicU64,
}

impl Totals {
    pub(crate) fn get(&self) -> PutTotals {
        PutTotals {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            flushes: self.flushes.load(Ordering::Relaxed),
        }
    }
}

/// An open store.
pub(crate) struct Core {
    pub(crate) config: StoreConfig,
    pub(crate) progress: Progress,
    pub(crate) log: CommitLog,
    pub(crate) dispatch: Dispatch,
    pub(crate) group: GroupCommit,
    pub(crate) replicas: Replicas,
    pub(crate) delay: DelayTable,
    pub(crate) disk: DiskState,
    pub(crate) flags: Flags,
    pub(crate) totals: Totals,
    /// Log offset up to which queues and index have everything.
    pub(crate) dispatched: AtomicI64,
    /// Store time of the last dispatched record.
    pub(crate) dispatched_time: AtomicI64,
    pub(crate) reput_signal: Signal,
    pub(crate) flush_signal: Signal,
    pub(crate) commit_signal: Signal,
    pub(crate) queue_signal: Signal,
    pub(crate) clean_signal: Signal,
    pub(crate) delay_signal: Signal,
    pub(crate) started: AtomicBool,
    pub(crate) started_at: AtomicI64,
    /// No more appends.
    pub(crate) closing: AtomicBool,
    /// Threads end as soon as they can.
    pub(crate) stop: AtomicBool,
    /// Bytes of memory that hold the log's end, as reads count it.
    pub(crate) hot_bytes: i64,
    pub(crate) last_stop_clean: bool,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) lock: Mutex<Option<StoreLock>>,
}

/// What opening found, from which a store is made.
pub(crate) struct Parts {
    pub(crate) log: CommitLog,
    pub(crate) dispatch: Dispatch,
    pub(crate) delay: DelayTable,
    pub(crate) disk: DiskState,
    pub(crate) lock: StoreLock,
    pub(crate) dispatched: i64,
    /// Store time of the last record that the queues have; 0 if that isn't known.
    pub(crate) dispatched_time: i64,
    pub(crate) last_stop_clean: bool,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("root", &self.config.root)
            .field("max", &self.log.max())
            .finish_non_exhaustive()
    }
}

impl Core {
    pub(crate) fn new(config: StoreConfig, progress: &Progress, parts: Parts) -> Self {
        let hot_bytes = (memory::total() / 100 * u64::from(config.access_message_in_memory_max_ratio)) as i64;
        Self {
            progress: progress.clone(),
            log: parts.log,
            dispatch: parts.dispatch,
            group: GroupCommit::default(),
            replicas: Replicas::default(),
            delay: parts.delay,
            disk: parts.disk,
            flags: Flags::default(),
            totals: Totals::default(),
            dispatched: AtomicI64::new(parts.dispatched),
            dispatched_time: AtomicI64::new(parts.dispatched_time),
            reput_signal: Signal::default(),
            flush_signal: Signal::default(),
            commit_signal: Signal::default(),
            queue_signal: Signal::default(),
            clean_signal: Signal::default(),
            delay_signal: Signal::default(),
            started: AtomicBool::new(false),
            started_at: AtomicI64::new(0),
            closing: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            hot_bytes,
            last_stop_clean: parts.last_stop_clean,
            threads: Mutex::default(),
            lock: Mutex::new(Some(parts.lock)),
            config,
        }
    }

    /// Whether appends are taken, and if not, why.
    pub(crate) fn writable(&self) -> Result<(), WriteRefusal> {
        if self.closing.load(Ordering::Acquire) {
            return Err(WriteRefusal::ShutDown);
        }
        if !self.started.load(Ordering::Acquire) {
            return Err(WriteRefusal::NotStarted);
        }
        if self.config.role == BrokerRole::Slave {
            return Err(WriteRefusal::Slave);
        }
        self.sound()
    }

    /// Whether the disk takes what is appended.
    fn sound(&self) -> Result<(), WriteRefusal> {
        let flags = self.flags.get();
        if flags == 0 {
            return Ok(());
        }
        Err(if flags & Flags::FLUSH_FAILED != 0 {
            WriteRefusal::FlushFailed
        } else if flags & Flags::QUEUE_ERROR != 0 {
            WriteRefusal::QueueError
        } else {
            WriteRefusal::DiskFull
        })
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Wakes every thread, to see that it should stop.
    pub(crate) fn wake_all(&self) {
        for signal in [
            &self.reput_signal,
            &self.flush_signal,
            &self.commit_signal,
            &self.queue_signal,
            &self.clean_signal,
            &self.delay_signal,
        ] {
            signal.notify();
        }
        self.group.wake_all();
        self.replicas.waits.wake_all();
    }

    /// Log offset up to which queues have everything.
    pub(crate) fn dispatched(&self) -> i64 {
        self.dispatched.load(Ordering::Acquire)
    }

    /// Appends a master's bytes at the end of the log. Returns the new end.
    pub(crate) fn append_raw(&self, offset: i64, bytes: &[u8]) -> Result<i64, LinkError> {
        if self.closing.load(Ordering::Acquire) {
            return Err(WriteRefusal::ShutDown.into());
        }
        if !self.started.load(Ordering::Acquire) {
            return Err(WriteRefusal::NotStarted.into());
        }
        self.sound()?;
        let start = u64::try_from(offset).map_err(|_| LinkError::Offset(offset))?;
        if self.log.max() == 0 {
            // A first file that isn't the master's first: there's nothing to dispatch before it.
            self.dispatched.store(offset, Ordering::Release);
        }
        let end = self.log.append_raw(start, bytes).inspect_err(|error| {
            if let RawError::NoFile(source) = error
                && source.kind() == std::io::ErrorKind::StorageFull
            {
                self.note_disk_full();
            }
        })?;
        self.reput_signal.notify();
        if self.config.flush_mode == FlushMode::Sync {
            self.flush_signal.notify();
        }
        self.totals.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(end as i64)
    }
}
