//! Finding out what the consume queue files on the disk hold.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    queue::Queue,
    table::Queues,
    unit::{UNIT, Unit},
};
use crate::fs::segment::parse_name;

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

/// Finds all queues under the directory. What isn't a queue is skipped. Those that have lost units between others come back.
pub(crate) fn load(queues: &Queues, dir: &Path, end_by: EndBy) -> Result<Vec<Arc<Queue>>, LoadError> {
    let mut holed = Vec::new();
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| LoadError::Io { path, source }
    };
    let topics = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(holed),
        other => other.map_err(io_error(dir))?,
    };
    for topic in topics {
        let topic = topic.map_err(io_error(dir))?;
        let path = topic.path();
        let Some(name) = topic.file_name().to_str().map(ToOwned::to_owned) else {
            continue;
        };
        if !path.is_dir() {
            tracing::warn!(path = %path.display(), "skipping a file among the consume queues");
            continue;
        }
        for queue in fs::read_dir(&path).map_err(io_error(&path))? {
            let queue = queue.map_err(io_error(&path))?;
            let id = queue.file_name().to_str().and_then(|n| n.parse::<i32>().ok());
            let Some(id) = id.filter(|id| *id >= 0 && queue.path().is_dir()) else {
                tracing::warn!(path = %queue.path().display(), "skipping what is no consume queue");
                continue;
            };
            holed.extend(load_queue(queues, &name, id, &queue.path(), end_by)?);
        }
    }
    Ok(holed)
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
    let mut bases = Vec::new();
    for entry in fs::read_dir(dir).map_err(err)? {
        let entry = entry.map_err(err)?;
        if let Some(base) = parse_name(&entry.file_name()).filter(|base| base % UNIT == 0) {
            bases.push((base, entry.metadata().map_err(err)?.len()));
        } else {
            tracing::warn!(path = %entry.path().display(), "skipping what is no consume queue file");
        }
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
        state.tail_start = state.end;
    }
    let holed = settle(&queue, queues, first, last, end_by).map_err(err)?;
    Ok(holed.then_some(queue))
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
            let (mut low, mut high) = ((base / UNIT) as i64, ((base + size) / UNIT) as i64);
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
