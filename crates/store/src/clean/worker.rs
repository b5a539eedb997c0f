//! The thread that looks at the disk and deletes.

use std::{
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant, UNIX_EPOCH},
};

use ferromq_protocol::names::topics;
use jiff::tz::TimeZone;
use parking_lot::Mutex;

use super::plan::{self, Reason, Snapshot};
use crate::{
    core::{Core, Flags},
    fs::{
        crash_safe::{is_full, sync_dir},
        log_dirs::disk_use,
    },
};

const FIRST_CLEAN: Duration = Duration::from_mins(1);
const FIRST_CHECK: Duration = Duration::from_secs(1);
const CHECK: Duration = Duration::from_secs(10);

/// What is known of the disk, and what the cleaner was told.
#[derive(Debug)]
pub(crate) struct DiskState {
    log: AtomicU64,
    queues: AtomicU64,
    /// An allocation failed for want of space.
    no_space: AtomicBool,
    manual: AtomicU32,
    aligned_to: AtomicI64,
    /// Retention as changed at run time, hours and percent; `UNCHANGED` stands for the configuration's.
    reserved_hours: AtomicU64,
    max_used: AtomicU64,
    /// Hours of deleteWhen and their zone.
    schedule: Mutex<(Vec<i8>, TimeZone)>,
    /// storeCapacityBytes as changed at run time; `UNCHANGED` stands for the configuration's.
    capacity: AtomicU64,
}

const UNCHANGED: u64 = u64::MAX;

impl DiskState {
    pub(crate) fn new(hours: Vec<i8>, zone: TimeZone) -> Self {
        Self {
            log: AtomicU64::new((-1.0f64).to_bits()),
            queues: AtomicU64::new((-1.0f64).to_bits()),
            no_space: AtomicBool::new(false),
            manual: AtomicU32::new(0),
            aligned_to: AtomicI64::new(-1),
            reserved_hours: AtomicU64::new(UNCHANGED),
            max_used: AtomicU64::new(UNCHANGED),
            schedule: Mutex::new((hours, zone)),
            capacity: AtomicU64::new(UNCHANGED),
        }
    }

    /// Use of the disks of log and queues.
    pub(crate) fn ratios(&self) -> (f64, f64) {
        (
            f64::from_bits(self.log.load(Ordering::Acquire)),
            f64::from_bits(self.queues.load(Ordering::Acquire)),
        )
    }

    /// From now on keeps files for that many hours, and that percentage of the disk free of expired ones.
    pub(crate) fn set_retention(&self, reserved_hours: u64, max_used: u8) {
        self.reserved_hours
            .store(reserved_hours.min(UNCHANGED - 1), Ordering::Release);
        self.max_used.store(u64::from(max_used), Ordering::Release);
    }

    /// From now on deletes expired files at these hours, and takes this for the size of the disk (0: what it is).
    pub(crate) fn set_schedule(&self, hours: Vec<i8>, zone: TimeZone, capacity: u64) {
        *self.schedule.lock() = (hours, zone);
        self.capacity
            .store(capacity.min(UNCHANGED - 1), Ordering::Release);
    }

    /// Hours and percentage in force.
    fn retention(&self, configured: (u64, u8)) -> (u64, u8) {
        let hours = self.reserved_hours.load(Ordering::Acquire);
        let max_used = self.max_used.load(Ordering::Acquire);
        (
            if hours == UNCHANGED { configured.0 } else { hours },
            u8::try_from(max_used).unwrap_or(configured.1),
        )
    }

    fn set(&self, log: f64, queues: f64) {
        self.log.store(log.to_bits(), Ordering::Release);
        self.queues.store(queues.to_bits(), Ordering::Release);
    }
}

impl Core {
    /// An allocation or a write found the disk full: no more appends until there's room.
    pub(crate) fn note_disk_full(&self) {
        self.disk.no_space.store(true, Ordering::Release);
        if self.flags.set(Flags::DISK_FULL) {
            tracing::error!("the disk of the store is full: no messages are taken until there is room again");
        }
        self.clean_signal.notify();
    }

    fn measure(&self) -> (f64, f64) {
        let capacity = match self.disk.capacity.load(Ordering::Acquire) {
            UNCHANGED => self.config.store_capacity_bytes,
            changed => changed,
        };
        if capacity > 0 {
            let log = self.log.segments.len() as u64 * self.config.commit_log_file_size;
            let queues: u64 = self.dispatch.queues.all().iter().map(|q| q.bytes()).sum();
            let used = log + queues + self.dispatch.index.bytes();
            let ratio = plan::ratio(used, capacity.saturating_sub(used));
            return (ratio, ratio);
        }
        let of = |path: &Path| disk_use(path).map_or(-1.0, |(used, available)| plan::ratio(used, available));
        (
            // Of several disks the emptiest counts: files go there.
            self.config
                .commit_log_dirs()
                .iter()
                .map(|dir| of(dir))
                .fold(f64::INFINITY, f64::min),
            of(&self.config.consume_queue_dir()),
        )
    }

    /// Looks how full the disk is, and refuses or takes appends by that.
    pub(crate) fn check_disk(&self) {
        let (log, queues) = self.measure();
        self.disk.set(log, queues);
        let warning = f64::from(self.config.disk_space_warning_level_ratio) / 100.0;
        if self.disk.no_space.load(Ordering::Acquire) {
            let needed = self.config.commit_log_file_size;
            let room = |path: &Path| disk_use(path).is_some_and(|(_, available)| available > needed);
            if self.config.commit_log_dirs().iter().any(|dir| room(dir))
                && room(&self.config.consume_queue_dir())
                && self.has_abort()
            {
                self.disk.no_space.store(false, Ordering::Release);
            }
        }
        if log > warning || self.disk.no_space.load(Ordering::Acquire) {
            if self.flags.set(Flags::DISK_FULL) {
                tracing::error!(
                    used = log,
                    warning,
                    "the disk of the store is nearly full: no messages are taken until there is room"
                );
            }
        } else if self.flags.clear(Flags::DISK_FULL) {
            tracing::info!(
                used = log,
                "the disk of the store has room again: messages are taken"
            );
        }
    }

    /// Whether the file is there that tells of a crash. A start on a full disk may have had no room for it.
    fn has_abort(&self) -> bool {
        !self.started.load(Ordering::Acquire)
            || self.config.root.join("abort").exists()
            || self.make_abort().is_ok()
    }

    /// Deletes log files that have to go, then what pointed to them.
    pub(crate) fn clean(&self, manual: bool) {
        let (log_used, queue_used) = self.measure();
        self.disk.set(log_used, queue_used);
        let segments = self.log.segments.snapshot();
        let modified: Vec<i64> = segments
            .iter()
            .map(|s| {
                s.modified()
                    .ok()
                    .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
                    .map_or(i64::MAX / 2, |d| d.as_millis() as i64)
            })
            .collect();
        let now = self.config.clock.now();
        let percent = |p: u8| f64::from(p) / 100.0;
        let (reserved_hours, max_used) = self.disk.retention((
            self.config.file_reserved_hours,
            self.config.disk_max_used_space_ratio,
        ));
        let (hours, zone) = self.disk.schedule.lock().clone();
        let snapshot = Snapshot {
            modified: &modified,
            now,
            hour: plan::hour_at(&zone, now),
            hours: &hours,
            reserved: reserved_hours.saturating_mul(3_600_000).min(i64::MAX as u64 / 4) as i64,
            used: log_used.max(queue_used),
            max_used: percent(max_used.clamp(10, 95)),
            force_used: percent(self.config.disk_space_clean_forcibly_ratio),
            may_force: self.config.clean_file_forcibly_enable,
            manual,
        };
        if let Some((reason, count)) = plan::decide(&snapshot) {
            self.delete_log_files(reason, count);
        }
        self.align();
    }

    fn delete_log_files(&self, reason: Reason, count: usize) {
        let pause = Duration::from_millis(self.config.delete_commit_log_files_interval);
        // Queues can't be made again from a log that is gone: those whose messages all go keep their offsets.
        match self.sync_queues() {
            Err(error) if !is_full(&error) => {
                tracing::warn!(%error, "no log file is deleted: the queues of its messages cannot be made safe");
                return;
            }
            _ => {}
        }
        for n in 0..count {
            let Some(first) = self.log.segments.first() else {
                return;
            };
            // A file that isn't in the queues yet stays.
            if self.stopping() || first.limit() as i64 > self.dispatched() {
                return;
            }
            let Some(segment) = self.log.segments.remove_first(first.base()) else {
                return;
            };
            match segment.unlink() {
                Ok(()) => {
                    tracing::info!(path = %segment.path().display(), ?reason, "deleted a log file");
                    // Files must not come back in another order than they went, or the log has a gap.
                    if let Err(error) = segment.path().parent().map_or(Ok(()), sync_dir) {
                        tracing::warn!(path = %segment.path().display(), %error, "cannot make a deletion safe");
                    }
                }
                Err(error) => {
                    tracing::error!(path = %segment.path().display(), %error, "cannot delete a log file; its messages are gone, its space is not");
                }
            }
            if reason == Reason::Forced {
                // Young files go only as long as they have to.
                let (log, queues) = self.measure();
                self.disk.set(log, queues);
                if log.max(queues) <= f64::from(self.config.disk_space_clean_forcibly_ratio) / 100.0 {
                    return;
                }
            }
            if n + 1 < count {
                self.clean_signal.wait(pause, || self.stopping());
            }
        }
    }

    /// Moves queues and index up to the log's first offset.
    pub(crate) fn align(&self) {
        let log_min = self.log.min();
        if self.disk.aligned_to.swap(log_min, Ordering::AcqRel) >= log_min {
            return;
        }
        let pause = Duration::from_millis(self.config.delete_consume_queue_files_interval);
        // Files whose units are still in memory could not be deleted.
        if let Err(error) = self.dispatch.queues.write_out() {
            tracing::warn!(%error, "cannot write consume queues before cleaning them");
        }
        let files = &self.dispatch.queues.files;
        for queue in self.dispatch.queues.all() {
            let result: io::Result<()> = (|| {
                while queue.delete_first_file(files, log_min)? {
                    if !self.stopping() && self.started.load(Ordering::Acquire) {
                        self.clean_signal.wait(pause, || self.stopping());
                    }
                }
                queue.align(files, log_min)?;
                queue.align_ext(files)
            })();
            if let Err(error) = result {
                tracing::warn!(topic = %queue.topic(), queue = queue.id(), %error, "cannot clean a consume queue");
            }
        }
        if let Err(error) = self.dispatch.index.clean(log_min) {
            tracing::warn!(%error, "cannot delete an index file");
        }
    }

    /// Removes queues all of whose records are gone, but for the delay topic's.
    pub(crate) fn remove_expired_queues(&self) {
        let log_min = self.log.min();
        for queue in self.dispatch.queues.all() {
            let (_, max) = queue.range();
            let expired = &**queue.topic() != topics::SCHEDULE
                && max > 0
                && queue.next_put() == max
                && queue.max_physical() <= log_min;
            if expired {
                let removed = self.log.holding_appends(|| {
                    if queue.next_put() == max {
                        self.dispatch.queues.remove_queue(&queue)
                    } else {
                        Ok(())
                    }
                });
                match removed {
                    Ok(()) => {
                        tracing::info!(topic = %queue.topic(), queue = queue.id(), "removed an expired queue");
                    }
                    Err(error) => {
                        tracing::warn!(topic = %queue.topic(), queue = queue.id(), %error, "cannot remove an expired queue");
                    }
                }
            }
        }
    }

    /// Has the cleaner delete expired files at its next run, whatever the hour.
    pub(crate) fn ask_to_clean(&self) {
        self.disk.manual.store(1, Ordering::Release);
        self.clean_signal.notify();
    }

    /// The thread.
    pub(crate) fn run_clean(self: &Arc<Self>) {
        let interval = Duration::from_millis(self.config.clean_resource_interval.max(1));
        let start = Instant::now();
        let (mut clean_at, mut check_at) = (start + FIRST_CLEAN, start + FIRST_CHECK);
        while !self.stopping() {
            let now = Instant::now();
            let wait = clean_at.min(check_at).saturating_duration_since(now);
            self.clean_signal.wait(wait, || {
                self.stopping() || self.disk.manual.load(Ordering::Acquire) > 0
            });
            if self.stopping() {
                return;
            }
            let now = Instant::now();
            let manual = self.disk.manual.swap(0, Ordering::AcqRel) > 0;
            let pressed = self.flags.has(Flags::DISK_FULL);
            if manual || now >= clean_at || (pressed && now >= check_at) {
                self.clean(manual);
                clean_at = now + interval;
            }
            if now >= check_at || manual || pressed {
                self.check_disk();
                check_at = now + CHECK;
            }
        }
    }
}
