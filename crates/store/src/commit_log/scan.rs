//! Reading the log's files front to back with system calls: a bad block is an error, not a signal.

use std::{fs::File, io, ops::ControlFlow, os::unix::fs::FileExt};

use ferromq_protocol::record::{BLANK_LEN, Check, Entry, Record, parse};

use super::recover::LogFile;

const WINDOW: usize = 1 << 20;

/// What to do after a record.
pub(crate) type Visit = ControlFlow<()>;

/// How a scan ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Scan {
    /// Log offset after the last entry that was good.
    pub(crate) end: u64,
    /// Store time of the last record seen; 0 if there was none.
    pub(crate) last_time: i64,
}

struct Window<'f> {
    file: &'f File,
    size: u64,
    start: u64,
    buffer: Vec<u8>,
}

impl Window<'_> {
    /// At least `need` bytes from `at` on; fewer only at the file's end.
    fn from(&mut self, at: u64, need: usize) -> io::Result<&[u8]> {
        let need = need.min((self.size - at) as usize);
        let have = self.start..self.start + self.buffer.len() as u64;
        if at < have.start || at + need as u64 > have.end {
            let len = need.max(WINDOW).min((self.size - at) as usize);
            self.buffer.resize(len, 0);
            self.start = at;
            self.file.read_exact_at(&mut self.buffer, at)?;
        }
        Ok(&self.buffer[(at - self.start) as usize..])
    }
}

/// Reads entries from log offset `from`, the start of one, up to `to`, until the first that isn't whole and in its place.
///
/// `visit` sees each record with its bytes and can end the scan. `progress` is told log offsets.
pub(crate) fn scan(
    files: &[LogFile],
    size: u64,
    from: u64,
    to: u64,
    check: Check,
    progress: &mut dyn FnMut(u64),
    visit: &mut dyn FnMut(&Record<'_>, &[u8]) -> io::Result<Visit>,
) -> io::Result<Scan> {
    let mut result = Scan {
        end: from,
        last_time: 0,
    };
    let mut expected = from / size * size;
    for file in files.iter().filter(|f| f.base + size > from) {
        if file.base != expected || file.base >= to {
            return Ok(result);
        }
        expected += size;
        let handle = file.open_to_read()?;
        let mut window = Window {
            file: &handle,
            size,
            start: 0,
            buffer: Vec::new(),
        };
        let mut at = from.saturating_sub(file.base);
        let mut told = at;
        while at < size && file.base + at < to {
            let bytes = window.from(at, BLANK_LEN)?;
            let total = bytes.first_chunk().map_or(0, |b| i32::from_be_bytes(*b));
            let left = size - at;
            match parse(&bytes[..BLANK_LEN.min(bytes.len())], Check::None) {
                // A blank fills the file. It needs eight bytes: fewer are skipped.
                result
                    if left < BLANK_LEN as u64
                        || matches!(result, Ok(Entry::Blank { size }) if u64::try_from(size) == Ok(left)) =>
                {
                    at = size;
                    continue;
                }
                // A record's head alone is short of the rest; any other error says that there's no record.
                Err(ferromq_protocol::record::RecordError::Short { .. })
                    if total > 0 && total as u64 <= left => {}
                _ => return Ok(result),
            }
            let bytes = window.from(at, total as usize)?;
            let Some(bytes) = bytes.get(..total as usize) else {
                return Ok(result);
            };
            match parse(bytes, check) {
                Ok(Entry::Record(record)) if record.physical_offset == (file.base + at) as i64 => {
                    let flow = visit(&record, bytes)?;
                    result.last_time = record.store_timestamp;
                    at += total as u64;
                    result.end = file.base + at;
                    if flow.is_break() {
                        return Ok(result);
                    }
                }
                _ => return Ok(result),
            }
            if at - told > 4 << 20 {
                told = at;
                progress(file.base + at);
            }
        }
        result.end = file.base + at;
        progress(result.end);
    }
    Ok(result)
}
