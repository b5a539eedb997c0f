//! The log: all records in the order in which they were stored.
//!
//! ```text
//! commitlog/<20-digit log offset>    files of one length, allocated in full, mapped
//! record · record · … · blank        a record never straddles two files
//! ```
//!
//! `flushed ≤ max`, and what is below `max` never changes. One thread at a time appends, under the put lock.

mod append;
mod pool;
mod raw;
mod read;
mod recover;
mod scan;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;

pub(crate) use append::{AppendError, Appended, Encoded};
pub(crate) use pool::Pool;
pub(crate) use raw::RawError;
pub(crate) use recover::{LogFile, Settled, first_store_time, list, log_files, settle, write_again};
pub(crate) use scan::{Scan, Visit, scan};

use crate::{
    config::Clock,
    fs::{mmap::MapWriter, prealloc::Prealloc, segment::Segment, segment_list::SegmentList},
};

/// The log.
#[derive(Debug)]
pub(crate) struct CommitLog {
    pub(crate) segments: SegmentList,
    pub(crate) prealloc: Prealloc,
    put: Mutex<Writing>,
    pool: Option<Pool>,
    /// Files are locked in memory while they are written.
    warm: bool,
    /// A sync follows each append.
    synced_each: bool,
    clock: Clock,
    /// Log offset after the last record.
    max: AtomicU64,
    /// Log offset after the last whole record: on a slave the last one may have come in part.
    whole: AtomicU64,
    /// Everything below is on the disk.
    flushed: AtomicU64,
    one_flush: Mutex<()>,
    /// Store time of the last record.
    last_time: AtomicI64,
    /// When the append that has the lock took it; 0 if none has.
    locked_at: AtomicI64,
}

#[derive(Debug)]
struct Writing {
    current: Option<(Arc<Segment>, MapWriter)>,
    /// Pages of the current file below this position are present or will be.
    populated: u64,
    /// The next file was asked for.
    asked: bool,
    /// The current file has to get its blocks before anything is appended.
    lacks_blocks: bool,
    /// With a pool: what is appended and in no file yet.
    staged: Option<pool::Staged>,
    /// On a slave: where the entries begin that came.
    boundaries: raw::Boundaries,
}

impl Writing {
    /// Gives the current file its blocks if it lacks them: a store to one that has none would be a signal on a full disk.
    fn allocate(&mut self) -> io::Result<()> {
        if self.lacks_blocks
            && let Some((segment, _)) = &self.current
        {
            segment.allocate()?;
        }
        self.lacks_blocks = false;
        Ok(())
    }
}

impl CommitLog {
    /// A log of recovered files. Below `flushed` it's known to be on the disk.
    pub(crate) fn new(
        prealloc: Prealloc,
        settled: Settled,
        last_time: i64,
        flushed: u64,
        clock: Clock,
    ) -> Self {
        let Settled {
            segments,
            writer,
            lacks_blocks,
        } = settled;
        let max = segments.last().map_or(0, |s| s.readable_end());
        let current = segments.last().cloned().zip(writer);
        Self {
            segments: SegmentList::new(prealloc.file_size(), segments),
            warm: prealloc.is_warm(),
            synced_each: prealloc.writes_ahead(),
            prealloc,
            put: Mutex::new(Writing {
                current,
                populated: 0,
                asked: false,
                lacks_blocks,
                staged: None,
                boundaries: raw::Boundaries::at(max),
            }),
            pool: None,
            clock,
            max: AtomicU64::new(max),
            whole: AtomicU64::new(max),
            flushed: AtomicU64::new(flushed.min(max)),
            one_flush: Mutex::new(()),
            last_time: AtomicI64::new(last_time),
            locked_at: AtomicI64::new(0),
        }
    }

    /// First log offset.
    pub(crate) fn min(&self) -> i64 {
        self.segments
            .first()
            .map_or_else(|| self.max(), |s| s.base() as i64)
    }

    /// Log offset after the last record.
    pub(crate) fn max(&self) -> i64 {
        self.max.load(Ordering::Acquire) as i64
    }

    /// Log offset after the last whole record.
    pub(crate) fn whole(&self) -> i64 {
        self.whole.load(Ordering::Acquire) as i64
    }

    /// Notes the store time of a record that a master stored.
    pub(crate) fn note_time(&self, time: i64) {
        self.last_time.store(time, Ordering::Release);
    }

    /// Everything below is on the disk.
    pub(crate) fn flushed(&self) -> i64 {
        self.flushed.load(Ordering::Acquire) as i64
    }

    /// Store time of the last record.
    pub(crate) fn last_time(&self) -> i64 {
        self.last_time.load(Ordering::Acquire)
    }

    /// How long the running append has had the lock, in milliseconds.
    pub(crate) fn locked_for(&self) -> u64 {
        match self.locked_at.load(Ordering::Relaxed) {
            0 => 0,
            since => self.clock.now().saturating_sub(since).max(0) as u64,
        }
    }

    /// As if an append had taken the lock at that time and had it still; 0: as if none had.
    #[cfg(test)]
    pub(crate) fn pretend_locked_since(&self, time: i64) {
        self.locked_at.store(time, Ordering::Relaxed);
    }

    /// Runs `f` while nothing can be appended, and everything appended is in the files.
    pub(crate) fn holding_appends<R>(&self, f: impl FnOnce() -> R) -> R {
        loop {
            let committed = self.commit();
            if let Err(error) = &committed {
                tracing::error!(%error, "the transient store pool cannot be written to the log");
            }
            let _guard = self.put.lock();
            if committed.is_err() || self.uncommitted() == 0 {
                return f();
            }
        }
    }

    /// Waits until everything appended so far is on the disk. Returns the store time that this covers, and how many files
    /// were synced.
    pub(crate) fn flush(&self) -> io::Result<(i64, u64)> {
        let _one = self.one_flush.lock();
        // The time first: its record is then below the offset.
        let time = self.last_time();
        let target = self.max.load(Ordering::Acquire);
        let mut at = self.flushed.load(Ordering::Acquire);
        let mut files = 0;
        while at < target {
            match self.segments.find(at) {
                Some(segment) => {
                    let end = segment.limit().min(target);
                    segment.sync(&(at..end))?;
                    files += 1;
                    at = end;
                }
                // Deleted by the cleaner meanwhile.
                None => at = self.min().max(at as i64 + 1) as u64,
            }
        }
        if let Some(error) = self.prealloc.sync_error() {
            return Err(error);
        }
        self.flushed.fetch_max(target, Ordering::AcqRel);
        Ok((time, files))
    }
}
