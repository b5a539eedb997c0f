//! Appending a master's bytes as they are.
//!
//! They come in pieces that cut records anywhere, so the log's end may stand inside a record: what is whole is counted on
//! its own. Each entry is looked at as its head comes in. Bytes of a log that isn't this one's continuation are refused.

use std::{io, sync::atomic::Ordering};

use ferromq_protocol::record::{BLANK_LEN, BLANK_MAGIC, FIXED_LEN, MESSAGE_MAGIC, at};

use super::{CommitLog, Writing};

/// What of an entry says where it belongs: up to and with the log offset.
const HEAD: usize = at::PHYSICAL_OFFSET + 8;

/// A master's bytes weren't taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RawError {
    #[error("the master sends from log offset {offset}, this log ends at {end}: the two have parted ways")]
    Elsewhere { offset: u64, end: u64 },
    #[error(
        "{len} bytes from log offset {offset} don't fit into files of {size}: mappedFileSizeCommitLog must be the same at the master and here"
    )]
    FileSize { offset: u64, len: usize, size: u64 },
    #[error("the master sends no record for log offset {0}: the two logs have parted ways")]
    NoRecord(u64),
    #[error("cannot create the next log file: {0}")]
    NoFile(io::Error),
    #[error("cannot append to the log: {0}")]
    Io(io::Error),
}

/// Where entries begin and end in what was taken.
#[derive(Debug, Clone)]
pub(super) struct Boundaries {
    /// Start of the entry that is coming in: everything before is whole.
    start: u64,
    /// Its end, once that's known.
    end: Option<u64>,
    head: [u8; HEAD],
    have: usize,
}

impl Boundaries {
    pub(super) fn at(start: u64) -> Self {
        Self {
            start,
            end: None,
            head: [0; HEAD],
            have: 0,
        }
    }

    /// Follows `bytes` from `pos` on, which are of the file that ends at `limit`. Fails with the offset of what is no entry.
    fn follow(&mut self, mut pos: u64, mut bytes: &[u8], limit: u64) -> Result<(), u64> {
        while !bytes.is_empty() {
            if self.end.is_none() && limit - self.start < BLANK_LEN as u64 {
                self.end = Some(limit);
            }
            let taken = if let Some(end) = self.end {
                bytes.len().min((end - pos) as usize)
            } else {
                let need = if self.have < BLANK_LEN { BLANK_LEN } else { HEAD };
                let n = bytes.len().min(need - self.have);
                self.head[self.have..self.have + n].copy_from_slice(&bytes[..n]);
                self.have += n;
                self.judge(limit)?;
                n
            };
            pos += taken as u64;
            bytes = &bytes[taken..];
            if self.end == Some(pos) {
                *self = Self::at(pos);
            }
        }
        Ok(())
    }

    /// Says where the entry ends as soon as its head tells.
    fn judge(&mut self, limit: u64) -> Result<(), u64> {
        let size = i32::from_be_bytes(std::array::from_fn(|i| self.head[i]));
        let magic = i32::from_be_bytes(std::array::from_fn(|i| self.head[at::MAGIC + i]));
        let size = u64::try_from(size).unwrap_or(0);
        let left = limit - self.start;
        if self.have == BLANK_LEN {
            match magic {
                BLANK_MAGIC if size == left => self.end = Some(limit),
                MESSAGE_MAGIC if (FIXED_LEN as u64..=left).contains(&size) => {}
                _ => return Err(self.start),
            }
        } else if self.have == HEAD {
            let physical = i64::from_be_bytes(std::array::from_fn(|i| self.head[at::PHYSICAL_OFFSET + i]));
            if u64::try_from(physical) != Ok(self.start) {
                return Err(self.start);
            }
            self.end = Some(self.start + size);
        }
        Ok(())
    }
}

impl CommitLog {
    /// Appends `bytes` at log offset `offset`, which is the end of the log, or the start of any file while the log is
    /// empty. Returns the new end.
    pub(crate) fn append_raw(&self, offset: u64, bytes: &[u8]) -> Result<u64, RawError> {
        let mut writing = self.put.lock();
        self.locked_at.store(self.clock.now(), Ordering::Relaxed);
        let result = self.append_raw_locked(&mut writing, offset, bytes);
        self.locked_at.store(0, Ordering::Relaxed);
        result
    }

    fn append_raw_locked(&self, writing: &mut Writing, offset: u64, bytes: &[u8]) -> Result<u64, RawError> {
        let size = self.segments.file_size();
        let len = bytes.len() as u64;
        let misfit = || RawError::FileSize {
            offset,
            len: bytes.len(),
            size,
        };
        let end = self.max.load(Ordering::Acquire);
        let empty = writing.current.is_none();
        if empty && !offset.is_multiple_of(size) {
            return Err(misfit());
        }
        if !empty && offset != end {
            return Err(RawError::Elsewhere { offset, end });
        }
        if bytes.is_empty() {
            return Ok(end);
        }
        let limit = (offset / size)
            .checked_add(1)
            .and_then(|n| n.checked_mul(size))
            .filter(|limit| offset.checked_add(len).is_some_and(|to| to <= *limit))
            .ok_or_else(misfit)?;
        let mut boundaries = if empty {
            Boundaries::at(offset)
        } else {
            writing.boundaries.clone()
        };
        boundaries
            .follow(offset, bytes, limit)
            .map_err(RawError::NoRecord)?;
        writing.allocate().map_err(RawError::NoFile)?;
        if writing.current.as_ref().is_none_or(|(s, _)| s.limit() == offset) {
            let (segment, writer) = self.prealloc.take(offset).map_err(RawError::NoFile)?;
            self.segments.push(segment.clone());
            writing.current = Some((segment, writer));
            writing.asked = false;
        }
        let Some((segment, writer)) = &mut writing.current else {
            return Err(RawError::Io(io::Error::other("there is no log file")));
        };
        let at = offset - segment.base();
        writer.write(at as usize, bytes).map_err(RawError::Io)?;
        writer.publish((at + len) as usize);
        let segment = segment.clone();
        let whole = boundaries.start;
        writing.boundaries = boundaries;
        self.max.store(offset + len, Ordering::Release);
        self.whole.store(whole, Ordering::Release);
        self.ask_for_next(writing, offset + len, &segment);
        Ok(offset + len)
    }
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::record::{RecordDraft, blank, patch};

    use super::*;

    const LIMIT: u64 = 4096;

    fn record(physical: u64, body: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let host = "10.1.2.3:1".parse().unwrap();
        RecordDraft {
            topic: "T",
            queue_id: 0,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 1,
            born_host: host,
            store_host: host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties: b"",
        }
        .encode(&mut bytes);
        patch::physical_offset(&mut bytes, physical as i64);
        bytes
    }

    fn file() -> (Vec<u8>, Vec<u64>) {
        let (mut bytes, mut starts) = (Vec::new(), Vec::new());
        while bytes.len() < 3_900 {
            starts.push(bytes.len() as u64);
            let record = record(bytes.len() as u64, b"hello");
            bytes.extend_from_slice(&record);
        }
        starts.push(bytes.len() as u64);
        bytes.extend_from_slice(&blank(LIMIT as i32 - bytes.len() as i32));
        bytes.resize(LIMIT as usize, 0);
        starts.push(LIMIT);
        (bytes, starts)
    }

    #[test]
    fn entries_are_followed_however_they_are_cut() {
        let (bytes, starts) = file();
        for step in [1, 7, 8, 36, 100, 4096] {
            let mut boundaries = Boundaries::at(0);
            let mut pos = 0;
            for piece in bytes.chunks(step) {
                boundaries.follow(pos, piece, LIMIT).unwrap();
                pos += piece.len() as u64;
                let whole = *starts.iter().rfind(|s| **s <= pos).unwrap();
                assert_eq!(boundaries.start, whole, "cut every {step}, at {pos}");
            }
        }
    }

    #[test]
    fn what_is_no_entry_is_refused_where_it_starts() {
        let (bytes, _) = file();
        // A record of another place.
        assert_eq!(Boundaries::at(8).follow(8, &bytes, LIMIT), Err(8));
        // A record that is too long for its file, one of nothing, and a blank that doesn't fill it.
        assert_eq!(Boundaries::at(0).follow(0, &bytes, 50), Err(0));
        assert_eq!(Boundaries::at(0).follow(0, &[0; 100], LIMIT), Err(0));
        assert_eq!(Boundaries::at(0).follow(0, &blank(99), LIMIT), Err(0));
    }
}
