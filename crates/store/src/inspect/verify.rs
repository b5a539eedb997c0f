//! Reading everything: each record with its checksum, each unit of a queue and each entry of the index against the log.

use std::{
    collections::{HashMap, hash_map},
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use ferromq_protocol::record::{Check, Entry, Record, parse};
use serde::Serialize;

use super::{InspectError, Layout, Place, QueueDir, io_error, name_of};
use crate::{
    commit_log::{LogFile, Visit, scan},
    consume_queue::{UNIT, Unit},
    dispatch::keys_of,
    index, places,
};

/// Problems that are told one by one; more are only counted.
const TOLD: usize = 1_000;

/// Something that isn't as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// File and place.
    pub at: String,
    /// What is wrong.
    pub what: String,
}

/// What was read, and what of it is wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Found {
    /// Whole records.
    pub records: u64,
    /// Log offset of the first.
    pub first: u64,
    /// Log offset behind the last that follows the first without a gap.
    pub end: u64,
    /// Units of queues that lead to their record.
    pub units: u64,
    /// Entries of the index that lead to a record with their key.
    pub entries: u64,
    /// Number of problems.
    pub problem_count: u64,
    /// The first thousand of them.
    pub problems: Vec<Problem>,
}

impl Found {
    fn problem(&mut self, at: String, what: impl Into<String>) {
        self.problem_count += 1;
        if self.problems.len() < TOLD {
            self.problems.push(Problem {
                at,
                what: what.into(),
            });
        }
    }
}

/// Calls `visit` with each whole record from log offset `from`, the start of one, until the log ends or `visit` says so.
/// Gives the log offset behind the last.
pub fn records(
    place: &Place,
    from: Option<u64>,
    visit: &mut dyn FnMut(&Record<'_>) -> std::ops::ControlFlow<()>,
) -> Result<u64, InspectError> {
    let layout = Layout::of(place)?;
    let from = from.or_else(|| layout.files.first().map(|f| f.base)).unwrap_or(0);
    let mut each = |record: &Record<'_>, _: &[u8]| -> io::Result<Visit> { Ok(visit(record)) };
    scan(
        &layout.files,
        layout.size,
        from,
        u64::MAX,
        Check::None,
        &mut |_| {},
        &mut each,
    )
    .map(|scan| scan.end)
    .map_err(io_error("read", layout.log_dir()))
}

/// Reads the whole store. `slots` is the broker's maxHashSlotNum, which index files do not tell. `progress` is told log
/// offsets while the log is read.
pub fn verify(place: &Place, slots: u32, progress: &mut dyn FnMut(u64)) -> Result<Found, InspectError> {
    let layout = Layout::of(place)?;
    let mut found = Found::default();
    if let Some(first) = layout.files.first() {
        found.first = first.base;
        log(&layout, &mut found, progress)?;
    }
    let mut handles = Records::new(&layout);
    for queue in layout.queue_dirs()? {
        check_queue(&queue, &mut handles, &mut found)?;
    }
    for path in layout.index_files()? {
        check_index(&path, slots, &mut handles, &mut found)?;
    }
    Ok(found)
}

fn log(layout: &Layout, found: &mut Found, progress: &mut dyn FnMut(u64)) -> Result<(), InspectError> {
    let dir = layout.log_dir();
    let mut count = 0;
    let scanned = scan(
        &layout.files,
        layout.size,
        found.first,
        u64::MAX,
        Check::Crc,
        progress,
        &mut |_, _| {
            count += 1;
            Ok(Visit::Continue(()))
        },
    )
    .map_err(io_error("read", dir))?;
    found.records = count;
    found.end = scanned.end;
    let mut expected = found.first;
    for file in &layout.files {
        if file.base != expected {
            found.problem(
                name_of(&file.path),
                format!("the file of log offset {expected} is missing before it"),
            );
        }
        expected = file.base + layout.size;
    }
    if let Some((at, why)) = what_stops(layout, found.end)? {
        let file = format!("commitlog, log offset {at}");
        found.problem(file, why);
    }
    Ok(())
}

/// What stands at the log's end, unless it is the zeros of a file not yet written.
pub(super) fn what_stops(layout: &Layout, end: u64) -> Result<Option<(u64, String)>, InspectError> {
    let Some(file) = layout
        .files
        .iter()
        .find(|f| (f.base..f.base + layout.size).contains(&end))
    else {
        return Ok(None);
    };
    let at = end - file.base;
    let mut handle = File::open(&file.path).map_err(io_error("open", &file.path))?;
    io::Seek::seek(&mut handle, io::SeekFrom::Start(at)).map_err(io_error("read", &file.path))?;
    let mut rest = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(&mut handle, layout.size - at), &mut rest)
        .map_err(io_error("read", &file.path))?;
    let Some(dirty) = rest.iter().rposition(|b| *b != 0) else {
        return Ok(None);
    };
    let why = match parse(&rest, Check::Crc) {
        Ok(Entry::Record(r)) => format!("a record of log offset {} stands here", r.physical_offset),
        Ok(Entry::Blank { size }) => format!("a blank of {size} bytes that does not fill the file"),
        Err(error) => error.to_string(),
    };
    Ok(Some((
        end,
        format!("{why}; {} bytes up to here are not zero", dirty + 1),
    )))
}

/// Records of the log by their place.
struct Records<'a> {
    files: &'a [LogFile],
    size: u64,
    open: HashMap<u64, File>,
}

impl<'a> Records<'a> {
    fn new(layout: &'a Layout) -> Self {
        Self {
            files: &layout.files,
            size: layout.size,
            open: HashMap::new(),
        }
    }

    /// What `use_record` says of the record at a log offset; `None` when none is there.
    fn at<T>(&mut self, at: i64, use_record: impl FnOnce(&Record<'_>) -> T) -> Option<T> {
        let at = u64::try_from(at).ok()?;
        let file = self
            .files
            .iter()
            .find(|f| (f.base..f.base + self.size).contains(&at))?;
        let handle = match self.open.entry(file.base) {
            hash_map::Entry::Occupied(open) => open.into_mut(),
            hash_map::Entry::Vacant(none) => none.insert(File::open(&file.path).ok()?),
        };
        let mut head = [0; 4];
        handle.read_exact_at(&mut head, at - file.base).ok()?;
        let total = u64::try_from(i32::from_be_bytes(head)).ok()?;
        if total > self.size - (at - file.base) {
            return None;
        }
        let mut bytes = vec![0; total as usize];
        handle.read_exact_at(&mut bytes, at - file.base).ok()?;
        match parse(&bytes, Check::None) {
            Ok(Entry::Record(record)) if record.physical_offset == at as i64 => Some(use_record(&record)),
            _ => None,
        }
    }
}

fn check_queue(queue: &QueueDir, log: &mut Records<'_>, found: &mut Found) -> Result<(), InspectError> {
    let (first, end) = (found.first as i64, found.end as i64);
    for (base, path) in &queue.files {
        let bytes = std::fs::read(path).map_err(io_error("read", path))?;
        for (n, unit) in bytes.chunks(UNIT as usize).enumerate() {
            let Some(unit) = Unit::parse(unit) else { break };
            if unit.is_pre_blank() || unit.physical < first {
                continue;
            }
            let offset = (base / UNIT) as i64 + n as i64;
            let agrees = log.at(unit.physical, |record| {
                places::offset_in(record, &queue.topic, queue.id) == Some(offset)
                    && record.total_size == unit.size
            });
            let at = || format!("queue {} of topic {}, offset {offset}", queue.id, queue.topic);
            match agrees {
                Some(true) => found.units += 1,
                Some(false) => found.problem(
                    at(),
                    format!("log offset {} holds another message", unit.physical),
                ),
                None if unit.physical >= end => found.problem(
                    at(),
                    format!("points to log offset {}, beyond the log's end", unit.physical),
                ),
                None => found.problem(at(), format!("no record at log offset {}", unit.physical)),
            }
        }
    }
    Ok(())
}

fn check_index(
    path: &Path,
    slots: u32,
    log: &mut Records<'_>,
    found: &mut Found,
) -> Result<(), InspectError> {
    let first = found.first as i64;
    let file = File::open(path).map_err(io_error("open", path))?;
    let name = name_of(path);
    let mut each = |number: u32, hash: i32, offset: i64| {
        if offset < first {
            return;
        }
        let at = format!("index file {name}, entry {number}");
        let has_key = |record: &Record<'_>| {
            let text = record.properties_text();
            index::hashes_to(record.topic, keys_of(&text), hash)
        };
        match log.at(offset, has_key) {
            Some(true) => found.entries += 1,
            Some(false) => found.problem(at, format!("log offset {offset} has no such key")),
            None => found.problem(at, format!("no record at log offset {offset}")),
        }
    };
    let fits = index::read_entries(&file, slots, &mut each).map_err(io_error("read", path))?;
    if !fits {
        found.problem(
            format!("index file {name}"),
            format!("too short for {slots} slots (maxHashSlotNum) and its entries"),
        );
    }
    Ok(())
}
