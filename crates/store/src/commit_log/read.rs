//! Reading records by log offset. Slices borrow the mapping.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use ferromq_protocol::record::{Check, Entry, FIXED_LEN, MESSAGE_MAGIC, Record, parse};

use super::CommitLog;
use crate::fs::segment::Segment;

impl CommitLog {
    /// The file of a record and the record's range, if its head makes sense.
    pub(crate) fn locate(&self, physical: i64) -> Option<(Arc<Segment>, Range<u64>)> {
        let start = u64::try_from(physical).ok()?;
        let segment = self.segments.find(start)?;
        let head = segment.slice(start..start.checked_add(8)?)?;
        let size = i32::from_be_bytes(*head.first_chunk()?);
        let magic = i32::from_be_bytes(*head[4..].first_chunk()?);
        let size = u64::try_from(size)
            .ok()
            .filter(|n| *n >= FIXED_LEN as u64 && magic == MESSAGE_MAGIC)?;
        let range = start..start + size;
        segment.slice(range.clone())?;
        Some((segment, range))
    }

    /// The record at a log offset.
    pub(crate) fn look_up(&self, physical: i64) -> Option<Bytes> {
        let (segment, range) = self.locate(physical)?;
        segment.bytes(range)
    }

    /// Reads the record at a log offset.
    pub(crate) fn with_record<R>(&self, physical: i64, f: impl FnOnce(&Record<'_>, &[u8]) -> R) -> Option<R> {
        let (segment, range) = self.locate(physical)?;
        let bytes = segment.slice(range)?;
        match parse(bytes, Check::None) {
            Ok(Entry::Record(record)) => Some(f(&record, bytes)),
            _ => None,
        }
    }

    /// When the record at a log offset was stored.
    pub(crate) fn store_time(&self, physical: i64) -> Option<i64> {
        self.with_record(physical, |record, _| record.store_timestamp)
    }

    /// Start of the file after the one with this log offset.
    pub(crate) fn next_file(&self, physical: i64) -> i64 {
        let size = self.segments.file_size() as i64;
        (physical - physical.rem_euclid(size)).saturating_add(size)
    }

    /// Readable bytes from a log offset to the end of its file; `None` if there's no such file.
    pub(crate) fn rest_of_file(&self, offset: u64) -> Option<(Arc<Segment>, Range<u64>)> {
        let segment = self.segments.find(offset)?;
        let end = segment.readable_end();
        (offset <= end).then_some((segment, offset..end))
    }
}
