//! Finding out what the consume queue files on the disk hold.

use std::{
    fs::{self, File, OpenOptions},
    io,
    num::NonZeroUsize,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use rustix::fs::SeekFrom;

use super::{
    queue::{Queue, State},
    table::Queues,
    unit::{UNIT, Unit},
};
use crate::fs::segment::parse_name;

/// Queues that a thread takes at a time.
const PART: usize = 256;
/// Looking at queues is for the kernel to do; more threads wait for each other there.
const MOST_THREADS: usize = 8;

/// A queue's files can't be used.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// A file has another length than configured.
    Length { path: PathBuf, found: u64 },
    /// The system refused.
    Io { path: PathBuf, source: io::Error },
}

/// How to find the end of a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EndBy {
    /// The store was stopped in order: units fill the files from the front, so halving finds the end.
    Halving,
    /// Anything may be in the files: units are read from the front, and those at or beyond this log offset don't count.
    Reading { below: i64 },
}

/// A directory that may be a queue.
#[derive(Debug)]
struct Candidate {
    topic: Arc<str>,
    id: i32,
    dir: PathBuf,
}

/// Finds all queues under the directory, several at a time. What isn't a queue is skipped. Those that have lost units
/// between others come back.
pub(crate) fn load(queues: &Queues, dir: &Path, end_by: EndBy) -> Result<Vec<Arc<Queue>>, LoadError> {
    let candidates = candidates(dir)?;
    let next = AtomicUsize::new(0);
    let work = || {
        let mut holed = Vec::new();
        while let Some(part) = candidates.chunks(PART).nth(next.fetch_add(1, Ordering::Relaxed)) {
            for found in part {
                holed.extend(load_queue(queues, &found.topic, found.id, &found.dir, end_by)?);
            }
        }
        Ok(holed)
    };
    let threads = std::thread::available_parallelism()
        .map_or(1, NonZeroUsize::get)
        .min(candidates.len().div_ceil(PART))
        .min(MOST_THREADS);
    if threads < 2 {
        return work();
    }
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut holed = work()?;
        for other in others {
            match other.join() {
                Ok(found) => holed.extend(found?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(holed)
    })
}

fn candidates(dir: &Path) -> Result<Vec<Candidate>, LoadError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| LoadError::Io { path, source }
    };
    // Names that lead elsewhere are followed.
    let is_dir = |entry: &fs::DirEntry| {
        entry
            .file_type()
            .is_ok_and(|kind| kind.is_dir() || (kind.is_symlink() && entry.path().is_dir()))
    };
    let mut found = Vec::new();
    let topics = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        other => other.map_err(io_error(dir))?,
    };
    for topic in topics {
        let topic = topic.map_err(io_error(dir))?;
        let path = topic.path();
        let Some(name) = topic.file_name().to_str().map(Arc::<str>::from) else {
            continue;
        };
        if !is_dir(&topic) {
            tracing::warn!(path = %path.display(), "skipping a file among the consume queues");
            continue;
        }
        for queue in fs::read_dir(&path).map_err(io_error(&path))? {
            let queue = queue.map_err(io_error(&path))?;
            let id = queue.file_name().to_str().and_then(|n| n.parse::<i32>().ok());
            let Some(id) = id.filter(|id| *id >= 0 && is_dir(&queue)) else {
                tracing::warn!(path = %queue.path().display(), "skipping what is no consume queue");
                continue;
            };
            found.push(Candidate {
                topic: name.clone(),
                id,
                dir: queue.path(),
            });
        }
    }
    Ok(found)
}

fn load_queue(
    queues: &Queues,
    topic: &str,
    id: i32,
    dir: &Path,
    end_by: EndBy,
) -> Result<Option<Arc<Queue>>, LoadError> {
    let size = queues.files.size();
    let err = |source| LoadError::Io {
        path: dir.to_owned(),
        source,
    };
    let mut entries = Vec::new();
    for entry in fs::read_dir(dir).map_err(err)? {
        let entry = entry.map_err(err)?;
        if let Some(base) = parse_name(&entry.file_name()).filter(|base| base % UNIT == 0) {
            entries.push((base, entry));
        } else {
            tracing::warn!(path = %entry.path().display(), "skipping what is no consume queue file");
        }
    }
    // Most queues have one file with few units: one look at its beginning says everything.
    if let [(base, only)] = entries.as_slice()
        && base % size == 0
        && let Some(short) = Short::read(&only.path(), size, end_by).map_err(err)?
    {
        let queue = queues.find_or_make(topic, id);
        short.settle(&mut queue.state.lock(), *base);
        return Ok(None);
    }
    let mut bases = Vec::new();
    for (base, entry) in entries {
        bases.push((base, entry.metadata().map_err(err)?.len()));
    }
    bases.sort_unstable();
    let Some(&(last, _)) = bases.last() else {
        return Ok(None);
    };
    for &(base, len) in &bases {
        let path = dir.join(crate::fs::segment::file_name(base));
        // A crash may have kept a file's name and not its length.
        let empty = len == 0 && matches!(end_by, EndBy::Reading { .. });
        if base % size != 0 || len > size || (len < size && base != last && !empty) {
            return Err(LoadError::Length { path, found: len });
        }
        if len < size {
            tracing::warn!(path = %path.display(), len, "extending a consume queue file that is too short");
            OpenOptions::new()
                .write(true)
                .open(&path)
                .and_then(|f| f.set_len(size))
                .map_err(err)?;
        }
    }
    // Files before a gap can't be reached from the end.
    let mut first = bases.len() - 1;
    while first > 0 && bases[first - 1].0 + size == bases[first].0 {
        first -= 1;
    }
    let queue = queues.find_or_make(topic, id);
    let first = bases[first].0;
    {
        let mut state = queue.state.lock();
        state.first = first;
        state.min = first;
        state.end = last + size;
        state.written = state.end;
        state.synced = state.end;
        // A process that was killed may have made files whose names no sync has covered.
        state.names = matches!(end_by, EndBy::Reading { .. });
        state.tail_start = state.end;
    }
    let holed = settle(&queue, queues, first, last, end_by).map_err(err)?;
    Ok(holed.then_some(queue))
}

/// Bytes of a file that are looked at first.
const BEGINNING: usize = 4096;

/// What the beginning of a file says, if units end there.
struct Short {
    end: u64,
    first: Option<Unit>,
    last: Option<Unit>,
    max_physical: i64,
}

impl Short {
    /// Looks at a queue's only file; `None` if that doesn't say where its units end.
    fn read(path: &Path, size: u64, end_by: EndBy) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        if file.metadata()?.len() != size {
            return Ok(None);
        }
        let mut bytes = [0; BEGINNING];
        let len = BEGINNING.min(size as usize);
        file.read_exact_at(&mut bytes[..len], 0)?;
        let bytes = &bytes[..len];
        let mut short = Self {
            end: 0,
            first: None,
            last: None,
            max_physical: 0,
        };
        for unit in bytes.chunks_exact(UNIT as usize).map_while(Unit::parse) {
            if let EndBy::Reading { below } = end_by
                && !unit.is_pre_blank()
                && (unit.physical >= below || unit.physical < short.max_physical)
            {
                // It has to be cut.
                return Ok(None);
            }
            short.first.get_or_insert(unit);
            short.last = Some(unit);
            short.max_physical = short.max_physical.max(unit.end());
            short.end += UNIT;
        }
        let ends_here = short.end > 0 && short.end < len as u64 / UNIT * UNIT;
        let nothing_behind = || {
            bytes[short.end as usize..].iter().all(|b| *b == 0)
                && (len as u64 == size
                    || matches!(
                        rustix::fs::seek(&file, SeekFrom::Data(len as u64)),
                        Err(rustix::io::Errno::NXIO)
                    ))
        };
        let known = ends_here && (matches!(end_by, EndBy::Halving) || nothing_behind());
        Ok(known.then_some(short))
    }

    fn settle(self, state: &mut State, base: u64) {
        let end = base + self.end;
        state.first = base;
        state.min = base;
        state.end = end;
        state.written = end;
        state.synced = end;
        state.max_physical = self.max_physical;
        state.first_physical = self.first.filter(|u| !u.is_pre_blank()).map_or(0, |u| u.physical);
        // Recovery compares the last unit with the log.
        state.tail = self.last.map(|unit| unit.encode().to_vec()).unwrap_or_default();
        state.tail_start = end - state.tail.len() as u64;
    }
}

/// Sets a queue's end. `true` if units seem to be lost before others that were there.
fn settle(queue: &Arc<Queue>, queues: &Queues, first: u64, last: u64, end_by: EndBy) -> io::Result<bool> {
    let files = &queues.files;
    let size = files.size();
    let belongs = |unit: Option<Unit>| match (unit, end_by) {
        (None, _) => false,
        (Some(_), EndBy::Halving) => true,
        (Some(unit), EndBy::Reading { below }) => unit.is_pre_blank() || unit.physical < below,
    };
    // The last file that begins with a unit.
    let mut base = last;
    while base > first && !belongs(queue.unit(files, (base / UNIT) as i64)?) {
        base -= size;
    }
    // Whether the end is where units begin to point beyond the limit, and not where there are none.
    let mut limit = false;
    let mut end = match end_by {
        EndBy::Halving => {
            // Nothing was ever written to a hole, so units end before the first one.
            let written = files.first_hole(queue.uid, &queue.dir(files), base)?;
            let (mut low, mut high) = (
                (base / UNIT) as i64,
                (base + size).min(base + written).div_ceil(UNIT) as i64,
            );
            while low < high {
                let middle = low + (high - low) / 2;
                if queue.unit(files, middle)?.is_some() {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            low
        }
        EndBy::Reading { .. } => {
            let mut offset = (base / UNIT) as i64;
            let mut last_end = 0;
            let mut chunk = 64;
            'file: while ((offset as u64) * UNIT) < base + size {
                let units = queue.read(files, offset, chunk)?;
                let mut n = 0;
                for unit in units.raw() {
                    let Some(unit) = unit else { break 'file };
                    // Records follow each other, so units do.
                    if !belongs(Some(unit)) || (!unit.is_pre_blank() && unit.physical < last_end) {
                        limit = !belongs(Some(unit));
                        break 'file;
                    }
                    last_end = unit.end().max(last_end);
                    offset += 1;
                    n += 1;
                }
                if n < chunk {
                    break;
                }
                chunk = (chunk * 4).min(16_384);
            }
            offset
        }
    };
    end = end.max((first / UNIT) as i64);
    let at_end = (end as u64) * UNIT == last + size;
    if matches!(end_by, EndBy::Reading { .. }) {
        let something = queue.truncate(files, end)?;
        let full = (end as u64) * UNIT == base + size;
        return Ok(!limit && !full && (something || base != last));
    } else if !at_end {
        // What stands behind the end of a queue that was stopped in order is nothing, or left over from an older crash.
        let mut state = queue.state.lock();
        state.end = end as u64 * UNIT;
        state.written = state.end;
        state.synced = state.end;
        state.tail_start = state.end;
        drop(state);
        queue.refresh_max_physical(files)?;
    } else {
        queue.refresh_max_physical(files)?;
    }
    Ok(false)
}
