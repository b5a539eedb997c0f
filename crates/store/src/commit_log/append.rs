//! Appending under the put lock: offsets, the store time and the bytes get one order, the same for all.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
};

use ferromq_protocol::record::{BLANK_LEN, RecordDraft, blank, patch};

use super::{CommitLog, Writing};
use crate::{
    consume_queue::Queue,
    fs::{prealloc::WINDOW, segment::Segment},
};

/// Records encoded but for their offsets and store time.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Encoded {
    /// Forgets all records, keeping the memory unless it's much.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(1 << 20);
        self.starts.clear();
    }

    pub(crate) fn push(&mut self, draft: &RecordDraft<'_>) {
        self.starts.push(self.bytes.len());
        draft.encode(&mut self.bytes);
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn count(&self) -> usize {
        self.starts.len()
    }

    /// Where each record starts.
    pub(crate) fn starts(&self) -> &[usize] {
        &self.starts
    }
}

/// Where records went.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Appended {
    pub(crate) queue_offset: i64,
    pub(crate) physical: i64,
    pub(crate) store_timestamp: i64,
}

/// Nothing was appended.
#[derive(Debug)]
pub(crate) enum AppendError {
    /// The queue was deleted meanwhile: look it up again.
    QueueGone,
    /// Longer than a file can take.
    TooLong,
    /// There's no next file.
    NoFile(io::Error),
    /// Something else.
    Io(io::Error),
}

/// A clock that steps back by this much, in milliseconds, makes store times stand; beyond it they follow.
const SMALL_STEP: i64 = 1_000;

/// Store times follow the log's order over small steps of the clock, but not into a future that was a mistake.
fn next_time(now: i64, last: i64) -> i64 {
    if (0..=SMALL_STEP).contains(&(last - now)) {
        last
    } else {
        now
    }
}

impl CommitLog {
    /// Appends the records to the log and gives them the next offsets of `queue`; if `counted` is false, offset 0.
    pub(crate) fn append(
        &self,
        queue: &Queue,
        records: &mut Encoded,
        counted: bool,
    ) -> Result<Appended, AppendError> {
        let len = records.bytes.len() as u64;
        if len + BLANK_LEN as u64 > self.segments.file_size() {
            return Err(AppendError::TooLong);
        }
        self.relieve_pool()?;
        let mut writing = self.put.lock();
        self.locked_at.store(self.clock.now(), Ordering::Relaxed);
        let result = self.append_locked(&mut writing, queue, records, counted);
        self.locked_at.store(0, Ordering::Relaxed);
        result
    }

    /// Like [`CommitLog::append`] for one record that is also in the queues `listed`: `encode` is called with the offsets
    /// that it gets there.
    pub(crate) fn append_listed(
        &self,
        queue: &Queue,
        listed: &[Arc<Queue>],
        records: &mut Encoded,
        counted: bool,
        encode: &mut dyn FnMut(&mut Encoded, &[i64]),
    ) -> Result<Appended, AppendError> {
        self.relieve_pool()?;
        let mut writing = self.put.lock();
        if listed.iter().any(|q| q.is_dead()) {
            return Err(AppendError::QueueGone);
        }
        self.locked_at.store(self.clock.now(), Ordering::Relaxed);
        let offsets: Vec<i64> = listed.iter().map(|q| q.next_put()).collect();
        records.clear();
        encode(records, &offsets);
        let result = if records.len() as u64 + BLANK_LEN as u64 > self.segments.file_size() {
            Err(AppendError::TooLong)
        } else {
            self.append_locked(&mut writing, queue, records, counted)
        };
        if result.is_ok() && counted {
            for (queue, offset) in listed.iter().zip(offsets) {
                queue.set_next_put(offset + 1);
            }
        }
        self.locked_at.store(0, Ordering::Relaxed);
        result
    }

    fn append_locked(
        &self,
        writing: &mut Writing,
        queue: &Queue,
        records: &mut Encoded,
        counted: bool,
    ) -> Result<Appended, AppendError> {
        if queue.is_dead() {
            return Err(AppendError::QueueGone);
        }
        if writing.staged.is_some() {
            return self.append_staged(writing, queue, records, counted);
        }
        let len = records.bytes.len() as u64;
        self.make_room(writing, len)?;
        let Some((segment, writer)) = &mut writing.current else {
            return Err(AppendError::Io(io::Error::other("there is no log file")));
        };
        let physical = segment.readable_end();
        let appended = self.fill_in(queue, records, counted, physical);
        let at = physical - segment.base();
        let stored = if self.synced_each {
            writer.write(at as usize, &records.bytes)
        } else {
            writer.copy(at as usize, &records.bytes)
        };
        stored.map_err(AppendError::Io)?;
        writer.publish((at + len) as usize);
        self.max.store(physical + len, Ordering::Release);
        self.whole.store(physical + len, Ordering::Release);
        self.count(queue, records, counted, appended);
        let segment = segment.clone();
        self.look_ahead(writing, physical + len, &segment);
        Ok(appended)
    }

    /// Writes offsets and the store time into the records.
    fn fill_in(&self, queue: &Queue, records: &mut Encoded, counted: bool, physical: u64) -> Appended {
        let store_timestamp = next_time(self.clock.now(), self.last_time());
        let first = if counted { queue.next_put() } else { 0 };
        for (n, start) in records.starts.iter().enumerate() {
            let end = records.starts.get(n + 1).copied().unwrap_or(records.bytes.len());
            let record = &mut records.bytes[*start..end];
            patch::queue_offset(record, if counted { first + n as i64 } else { 0 });
            patch::physical_offset(record, (physical + *start as u64) as i64);
            patch::store_timestamp(record, store_timestamp);
        }
        Appended {
            queue_offset: first,
            physical: physical as i64,
            store_timestamp,
        }
    }

    /// The records are appended: the next ones come behind them.
    fn count(&self, queue: &Queue, records: &Encoded, counted: bool, appended: Appended) {
        self.last_time.store(appended.store_timestamp, Ordering::Release);
        if counted {
            queue.set_next_put(appended.queue_offset + records.starts.len() as i64);
        }
    }

    pub(super) fn stamp(
        &self,
        queue: &Queue,
        records: &mut Encoded,
        counted: bool,
        physical: u64,
    ) -> Appended {
        let appended = self.fill_in(queue, records, counted, physical);
        self.count(queue, records, counted, appended);
        appended
    }

    /// Makes the current file one that has room for `len` bytes and a blank.
    fn make_room(&self, writing: &mut Writing, len: u64) -> Result<(), AppendError> {
        writing.allocate().map_err(AppendError::NoFile)?;
        let next = match &mut writing.current {
            None => self.max.load(Ordering::Acquire),
            Some((segment, writer)) => {
                let left = segment.limit() - segment.readable_end();
                if left >= len + BLANK_LEN as u64 {
                    return Ok(());
                }
                if left > 0 {
                    let size = segment.limit() - segment.base();
                    if left >= BLANK_LEN as u64 {
                        writer
                            .write((size - left) as usize, &blank(left as i32))
                            .map_err(AppendError::Io)?;
                    }
                    writer.publish(size as usize);
                    self.max.store(segment.limit(), Ordering::Release);
                    self.whole.store(segment.limit(), Ordering::Release);
                }
                if self.warm {
                    segment.map().unlock();
                }
                segment.limit()
            }
        };
        let (segment, writer) = self.prealloc.take(next).map_err(AppendError::NoFile)?;
        self.segments.push(segment.clone());
        writing.current = Some((segment, writer));
        writing.populated = WINDOW;
        writing.asked = false;
        Ok(())
    }

    /// Has the next pages and the next file made in time.
    fn look_ahead(&self, writing: &mut Writing, end: u64, segment: &Arc<Segment>) {
        let (base, limit) = (segment.base(), segment.limit());
        let position = end - base;
        if position + WINDOW / 2 > writing.populated && base + writing.populated < limit {
            let from = writing.populated.max(position);
            let to = (from + WINDOW).min(limit - base);
            self.prealloc.populate(segment, from as usize..to as usize);
            writing.populated = to;
        }
        self.ask_for_next(writing, end, segment);
    }

    /// Has the next file made in time.
    pub(super) fn ask_for_next(&self, writing: &mut Writing, end: u64, segment: &Segment) {
        let (base, limit) = (segment.base(), segment.limit());
        if !writing.asked && end - base > (limit - base) / 2 {
            writing.asked = true;
            self.prealloc.want(limit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_times_stand_for_a_moment_and_never_run_ahead_for_good() {
        assert_eq!(next_time(5_000, 4_000), 5_000);
        assert_eq!(next_time(5_000, 5_000), 5_000);
        assert_eq!(next_time(5_000, 6_000), 6_000);
        assert_eq!(next_time(5_000, 6_001), 5_000);
    }
}
