//! Getting the log and the queues onto the disk.
//!
//! One thread syncs the log, and no other: every append that waits is covered by the next sync. A sync that fails has
//! lost what the kernel had taken over, so it's never tried again: those who wait are told, and no appends are taken any more.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use crate::{
    FlushMode, PutStatus,
    core::{Core, Flags},
    fs::crash_safe::is_full,
    requests::{Ack, AckCell},
};

const PAGE: i64 = 4096;
/// What the file `abort` says after a sync failed. Java looks only whether it's there.
pub(crate) const DOUBT: &[u8] = b"a sync of the log failed\n";
/// How long the thread that watches deadlines stays awake after the last append that it knew of. As long as appends come
/// more often, none of them has to wake it.
const LINGER: Duration = Duration::from_millis(200);

#[derive(Debug)]
struct Waiting {
    end: i64,
    deadline: Instant,
    cell: Arc<AckCell>,
    /// What the append ends with once it's on the disk.
    then: PutStatus,
}

/// Appends that wait for a sync, or for a replica.
#[derive(Debug)]
pub(crate) struct GroupCommit {
    /// What one that waited too long ends with.
    late: PutStatus,
    /// What all end with once there's nothing to wait for.
    lost: PutStatus,
    waiting: Mutex<VecDeque<Waiting>>,
    /// Whether the thread that watches deadlines has to be woken for the next append. Changed under the lock above.
    watcher_sleeps: AtomicBool,
    first: Condvar,
    failed: AtomicBool,
}

impl Default for GroupCommit {
    fn default() -> Self {
        Self::ending(PutStatus::FlushDiskTimeout, PutStatus::FlushFailed)
    }
}

impl GroupCommit {
    pub(crate) fn ending(late: PutStatus, lost: PutStatus) -> Self {
        Self {
            late,
            lost,
            waiting: Mutex::default(),
            watcher_sleeps: AtomicBool::default(),
            first: Condvar::default(),
            failed: AtomicBool::default(),
        }
    }

    /// An acknowledgement that comes when the log is safe up to `end`.
    pub(crate) fn wait_for(&self, end: i64, patience: Duration, then: PutStatus) -> Ack {
        let cell = Arc::new(AckCell::default());
        let mut waiting = self.waiting.lock();
        if self.failed.load(Ordering::Acquire) {
            return Ack::done(self.lost);
        }
        waiting.push_back(Waiting {
            end,
            deadline: Instant::now() + patience,
            cell: cell.clone(),
            then,
        });
        let wake = self.watcher_sleeps.swap(false, Ordering::Relaxed);
        drop(waiting);
        if wake {
            self.first.notify_one();
        }
        Ack::waiting(cell)
    }

    fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    /// Those up to `end` are done.
    pub(crate) fn reached(&self, end: i64) {
        let done: Vec<Waiting> = {
            let mut waiting = self.waiting.lock();
            // Requests come nearly in log order; a straggler waits for those before it.
            let n = waiting.iter().take_while(|w| w.end <= end).count();
            waiting.drain(..n).collect()
        };
        for w in done {
            w.cell.complete(w.then);
        }
    }

    pub(crate) fn fail(&self) {
        let all: Vec<Waiting> = {
            let mut waiting = self.waiting.lock();
            self.failed.store(true, Ordering::Release);
            waiting.drain(..).collect()
        };
        for w in all {
            w.cell.complete(self.lost);
        }
    }

    pub(crate) fn wake_all(&self) {
        drop(self.waiting.lock());
        self.first.notify_all();
    }

    /// Completes what is overdue, and waits for the next deadline.
    pub(crate) fn watch(&self, stop: impl Fn() -> bool) {
        let mut waiting = self.waiting.lock();
        let mut quiet = false;
        while !stop() {
            let now = Instant::now();
            let next = waiting.front().map(|w| w.deadline);
            if next.is_some() {
                quiet = false;
            }
            match next {
                None if quiet => {
                    self.watcher_sleeps.store(true, Ordering::Relaxed);
                    self.first.wait(&mut waiting);
                    self.watcher_sleeps.store(false, Ordering::Relaxed);
                    quiet = false;
                }
                None => quiet = self.first.wait_for(&mut waiting, LINGER).timed_out(),
                Some(deadline) if deadline <= now => {
                    if let Some(w) = waiting.pop_front() {
                        w.cell.complete(self.late);
                    }
                }
                Some(deadline) => {
                    self.first.wait_until(&mut waiting, deadline);
                }
            }
        }
    }
}

impl Core {
    /// Syncs the log. After a failure nothing is taken any more.
    pub(crate) fn flush_log(&self) -> bool {
        if self.flags.has(Flags::FLUSH_FAILED) {
            return false;
        }
        if !self.commit_log() {
            return false;
        }
        match self.log.flush() {
            Ok((time, files)) => {
                self.totals.flushes.fetch_add(files, Ordering::Relaxed);
                self.dispatch.checkpoint.set_log(time);
                self.group.reached(self.log.flushed());
                true
            }
            Err(error) => {
                self.flags.set(Flags::FLUSH_FAILED);
                self.mark_doubt();
                tracing::error!(%error, flushed = self.log.flushed(), "the disk refused a sync of the log: no more messages are taken until a restart");
                self.group.fail();
                false
            }
        }
    }

    /// Leaves word for the next start that the kernel may show what the disk doesn't have. The word need not reach the disk:
    /// with the machine both are gone.
    fn mark_doubt(&self) {
        let abort = self.config.root.join("abort");
        if let Err(error) = std::fs::write(&abort, DOUBT) {
            tracing::warn!(path = %abort.display(), %error, "cannot note that a sync failed: restart the machine, not only the broker");
        }
    }

    /// Copies what is in the pool only into the log. After a failure nothing is taken any more.
    fn commit_log(&self) -> bool {
        if self.log.uncommitted() == 0 {
            return true;
        }
        match self.log.commit() {
            Ok(()) => {
                self.reput_signal.notify();
                self.replicas.appended.notify_waiters();
                true
            }
            Err(error) => {
                self.flags.set(Flags::FLUSH_FAILED);
                tracing::error!(%error, "the transient store pool cannot be written to the log: no more messages are taken until a restart");
                self.group.fail();
                false
            }
        }
    }

    /// The thread that copies the pool into the log; without a pool it ends at once.
    pub(crate) fn run_commit(self: &Arc<Self>) {
        if self.config.pool_bytes().is_none() {
            return;
        }
        let pause = Duration::from_millis(self.config.commit_interval.max(1));
        let thorough = Duration::from_millis(self.config.commit_thorough_interval);
        let worth = (self.config.commit_least_pages as usize).saturating_mul(PAGE as usize);
        let mut last = Instant::now();
        while !self.stopping() {
            let enough = || self.log.uncommitted() >= worth.max(1);
            self.commit_signal.wait(pause, || self.stopping() || enough());
            if self.stopping() {
                return;
            }
            if enough() || last.elapsed() >= thorough {
                last = Instant::now();
                if !self.commit_log() {
                    // Only a restart helps: wait for it.
                    self.commit_signal
                        .wait(Duration::from_secs(1), || self.stopping());
                }
            }
        }
    }

    /// The thread that syncs the log.
    pub(crate) fn run_flush(self: &Arc<Self>) {
        let sync = self.config.flush_mode == FlushMode::Sync;
        let thorough = Duration::from_millis(self.config.flush_commit_log_thorough_interval);
        let worth = self.config.flush_commit_log_least_pages as i64 * PAGE;
        let mut last = Instant::now();
        while !self.stopping() {
            if sync {
                self.flush_signal.wait(Duration::from_secs(10), || {
                    self.stopping() || self.log.flushed() < self.log.max() || !self.group.is_empty()
                });
            } else {
                self.flush_signal.wait(
                    Duration::from_millis(self.config.flush_interval_commit_log.max(1)),
                    || self.stopping(),
                );
            }
            if self.stopping() {
                return;
            }
            let behind = self.log.max() - self.log.flushed();
            let due = last.elapsed() >= thorough;
            if sync || behind >= worth.max(1) || (due && behind > 0) {
                if !self.flush_log() {
                    // Only a restart helps: wait for it.
                    self.flush_signal.wait(Duration::from_secs(1), || self.stopping());
                }
                last = Instant::now();
            }
        }
    }

    /// The thread that ends waits for the disk which take too long.
    pub(crate) fn run_ack_watch(self: &Arc<Self>) {
        self.group.watch(|| self.stopping());
    }

    /// The thread that writes queues out, and syncs them now and then.
    pub(crate) fn run_queue_flush(self: &Arc<Self>) {
        let pause = Duration::from_millis(self.config.flush_interval_consume_queue.max(1));
        let thorough = Duration::from_millis(self.config.flush_consume_queue_thorough_interval);
        let mut last = Instant::now();
        let mut failing = false;
        while !self.stopping() {
            self.queue_signal.wait(pause, || self.stopping());
            if self.stopping() {
                return;
            }
            let result = if last.elapsed() >= thorough {
                last = Instant::now();
                self.sync_queues()
            } else {
                self.dispatch.queues.write_worthy()
            };
            match result {
                Ok(()) => failing = false,
                Err(error) => {
                    if is_full(&error) {
                        self.note_disk_full();
                    }
                    if !failing {
                        tracing::warn!(%error, "cannot write consume queues; trying again");
                    }
                    failing = true;
                }
            }
        }
    }

    /// Gets queues and index onto the disk, then says so in the checkpoint.
    pub(crate) fn sync_queues(&self) -> std::io::Result<()> {
        let time = self.dispatched_time.load(Ordering::Acquire);
        self.dispatch.queues.write_out()?;
        if let Err(error) = self.dispatch.queues.sync() {
            // What the kernel had taken over is lost: units may be missing on the disk, and no later sync brings them there.
            self.dispatch.checkpoint.lose_queues();
            if self.flags.set(Flags::QUEUE_ERROR) {
                tracing::error!(%error, "the disk refused a sync of a consume queue: no more messages are taken until a restart");
            }
            return Err(error);
        }
        self.dispatch.checkpoint.set_queues(time);
        self.dispatch.index.sync(&self.dispatch.checkpoint);
        self.dispatch.checkpoint.save()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sync_covers_all_who_came() {
        let group = GroupCommit::default();
        let acks: Vec<_> = [100, 200, 300]
            .iter()
            .map(|end| group.wait_for(*end, Duration::from_mins(1), PutStatus::Ok))
            .collect();
        group.reached(200);
        let ready: Vec<_> = acks.iter().map(Ack::ready).collect();
        assert_eq!(ready, [Some(PutStatus::Ok), Some(PutStatus::Ok), None]);
        group.fail();
        assert_eq!(acks[2].ready(), Some(PutStatus::FlushFailed));
        assert_eq!(
            group.wait_for(400, Duration::from_mins(1), PutStatus::Ok).ready(),
            Some(PutStatus::FlushFailed)
        );
    }

    #[test]
    fn overdue_ones_are_told() {
        let group = GroupCommit::default();
        let ack = group.wait_for(100, Duration::ZERO, PutStatus::Ok);
        group.watch(|| ack.ready().is_some());
        assert_eq!(ack.wait(), PutStatus::FlushDiskTimeout);
    }
}
