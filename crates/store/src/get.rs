//! Reading from a queue: which statuses there are, where to read next, how much goes into one answer.

use std::{io, ops::Range, sync::Arc, sync::atomic::Ordering};

use bytes::Bytes;

use crate::{
    GetRequest, GetResult, GetStatus, MessageFilter, ReadError,
    consume_queue::{ExtReader, Queue, UNIT, Units, offset_of},
    core::Core,
    fs::{mmap::unreadable, segment::Segment},
};

/// Bytes of a queue that one read looks at, at least.
const WINDOW: usize = 16_000;

/// Slices of the log, adjacent records in one.
#[derive(Default)]
struct Chunks {
    done: Vec<Bytes>,
    open: Option<(Arc<Segment>, Range<u64>)>,
}

impl Chunks {
    fn push(&mut self, segment: Arc<Segment>, range: Range<u64>) {
        if let Some((last, open)) = &mut self.open
            && last.base() == segment.base()
            && open.end == range.start
        {
            open.end = range.end;
            return;
        }
        self.close();
        self.open = Some((segment, range));
    }

    fn close(&mut self) {
        if let Some((segment, range)) = self.open.take()
            && let Some(bytes) = segment.bytes(range)
        {
            self.done.push(bytes);
        }
    }
}

/// What the units of one read came to.
struct Taken {
    status: GetStatus,
    next: i64,
    chunks: Chunks,
    count: usize,
    bytes: usize,
    last_physical: i64,
    /// The first record can't be read.
    damaged: Option<Arc<Segment>>,
}

/// Whether a record may be wanted by what its unit says, or the extension that this points to.
fn wanted(filter: &dyn MessageFilter, tags_code: i64, ext: Option<&mut ExtReader<'_>>) -> bool {
    let Some(offset) = offset_of(tags_code) else {
        return filter.by_queue(tags_code);
    };
    match ext.map(|ext| ext.read(offset)) {
        Some(Ok(Some(found))) => {
            filter.by_queue(found.tags_code)
                && (found.filter_bits.is_empty()
                    || filter.by_filter_bits(found.store_timestamp, &found.filter_bits))
        }
        Some(Err(error)) => {
            tracing::warn!(%error, "cannot read the extension of a queue's unit; its message is not filtered by it");
            true
        }
        _ => true,
    }
}

impl Core {
    pub(crate) fn check_readable(&self) -> Result<(), ReadError> {
        if self.stop.load(Ordering::Acquire) {
            Err(ReadError::ShutDown)
        } else {
            Ok(())
        }
    }

    /// Whether a record is far from the log's end, where memory is thought not to have it.
    pub(crate) fn is_cold(&self, physical: i64) -> bool {
        self.log.max() - physical > self.hot_bytes
    }

    fn is_full(&self, size: i32, most: usize, bytes: usize, count: usize, cold: bool) -> bool {
        if count == 0 {
            return false;
        }
        let (most_bytes, most_count) = if cold {
            (
                self.config.max_transfer_bytes_on_disk,
                self.config.max_transfer_count_on_disk,
            )
        } else {
            (
                self.config.max_transfer_bytes_in_memory,
                self.config.max_transfer_count_in_memory,
            )
        };
        count >= most || bytes + size.max(0) as usize > most_bytes || count >= most_count
    }

    pub(crate) fn get(
        &self,
        request: &GetRequest<'_>,
        filter: &dyn MessageFilter,
    ) -> Result<GetResult, ReadError> {
        self.check_readable()?;
        let offset = request.offset;
        let queue = self.dispatch.queues.find(request.topic, request.queue_id);
        let (min, max) = queue.as_ref().map_or((0, 0), |q| q.range());
        let nothing = |status, next_offset| {
            Ok(GetResult {
                status,
                next_offset,
                min_offset: min,
                max_offset: max,
                chunks: Vec::new(),
                count: 0,
                bytes: 0,
                suggest_slave: false,
            })
        };
        // Given out already, though the queue doesn't have what is before it yet: that comes in a moment.
        if offset > max && queue.as_ref().is_some_and(|q| offset <= q.next_put()) {
            return nothing(GetStatus::OffsetOverflowOne, offset);
        }
        let Some(queue) = queue.filter(|_| max > 0) else {
            return nothing(GetStatus::NoMessageInQueue, 0);
        };
        if offset < min {
            return nothing(GetStatus::OffsetTooSmall, min);
        }
        if offset == max {
            return nothing(GetStatus::OffsetOverflowOne, offset);
        }
        if offset > max {
            return nothing(GetStatus::OffsetOverflowBadly, max);
        }
        let files = &self.dispatch.queues.files;
        let most = (WINDOW / UNIT as usize).max(request.max_messages);
        let units = match queue.read(files, offset, most) {
            Ok(units) if !units.is_empty() => units,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let path = files.queue_dir(queue.topic(), queue.id());
                return Err(ReadError::Io { path, source: error });
            }
            _ => return nothing(GetStatus::OffsetFoundNull, Queue::next_file(files, offset)),
        };
        let taken = queue.with_ext(files, |ext| self.take(request, filter, &units, ext));
        if let Some(segment) = taken.damaged {
            return Err(ReadError::Io {
                path: segment.path().to_owned(),
                source: unreadable(),
            });
        }
        Ok(GetResult {
            status: taken.status,
            next_offset: taken.next,
            min_offset: min,
            max_offset: max,
            chunks: taken.chunks.done,
            count: taken.count,
            bytes: taken.bytes,
            suggest_slave: taken.last_physical != i64::MAX && self.is_cold(taken.last_physical),
        })
    }

    /// Takes the records of units as long as they fit into one answer.
    fn take(
        &self,
        request: &GetRequest<'_>,
        filter: &dyn MessageFilter,
        units: &Units,
        mut ext: Option<&mut ExtReader<'_>>,
    ) -> Taken {
        let offset = request.offset;
        let mut status = GetStatus::NoMatchedMessage;
        let mut chunks = Chunks::default();
        let (mut count, mut bytes, mut next) = (0, 0, offset);
        let mut skip_below = i64::MIN;
        let mut last_physical = i64::MAX;
        let mut damaged = None;
        for unit in units.iter() {
            if unit.is_pre_blank() || unit.physical < skip_below {
                if count == 0 {
                    status = GetStatus::MessageWasRemoving;
                }
                next += 1;
                continue;
            }
            if self.is_full(
                unit.size,
                request.max_messages,
                bytes,
                count,
                self.is_cold(unit.physical),
            ) {
                break;
            }
            next += 1;
            last_physical = unit.physical;
            if !wanted(filter, unit.tags_code, ext.as_deref_mut()) {
                if count == 0 {
                    status = GetStatus::NoMatchedMessage;
                }
                continue;
            }
            let located = self.log.locate(unit.physical);
            let Some((segment, range)) = located.filter(|(_, r)| r.end - r.start == unit.size as u64) else {
                if let Some(segment) = self.damaged(unit.physical, unit.size) {
                    // What came before is given; the next read says why there's no more.
                    next -= 1;
                    damaged = (count == 0).then_some(segment);
                    break;
                }
                if count == 0 {
                    status = GetStatus::MessageWasRemoving;
                }
                skip_below = self.log.next_file(unit.physical);
                continue;
            };
            if !segment
                .slice(range.clone())
                .is_some_and(|record| filter.by_record(record))
            {
                if count == 0 {
                    status = GetStatus::NoMatchedMessage;
                }
                continue;
            }
            skip_below = i64::MIN;
            status = GetStatus::Found;
            count += 1;
            bytes += unit.size as usize;
            chunks.push(segment, range);
        }
        chunks.close();
        Taken {
            status,
            next,
            chunks,
            count,
            bytes,
            last_physical,
            damaged,
        }
    }

    /// The file of a record that the disk can't read.
    fn damaged(&self, physical: i64, size: i32) -> Option<Arc<Segment>> {
        let segment = self.log.segments.find(u64::try_from(physical).ok()?)?;
        let range = physical as u64..physical.saturating_add(i64::from(size)) as u64;
        (!segment.is_sound(&range)).then_some(segment)
    }
}
