//! Listing the log's files, and making them fit what recovery found: zeros behind the end, no file beyond it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use ferromq_protocol::record::{MESSAGE_MAGIC, at};

use crate::{
    error::OpenError,
    fs::{
        crash_safe,
        mmap::MapWriter,
        segment::{Segment, parse_name},
    },
};

/// A file of the log by its name.
#[derive(Debug, Clone)]
pub(crate) struct LogFile {
    pub(crate) base: u64,
    pub(crate) path: PathBuf,
}

impl LogFile {
    pub(crate) fn open(&self) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).open(&self.path)
    }

    pub(crate) fn open_to_read(&self) -> io::Result<File> {
        File::open(&self.path)
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { action, path, source }
}

/// The files in `dir`, in order and without a gap. Foreign names are skipped; an empty or short last file gets its length.
pub(crate) fn list(dir: &Path, size: u64) -> Result<Vec<LogFile>, OpenError> {
    let mut found = Vec::new();
    let entries = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(io_error("list", dir))?,
    };
    for entry in entries {
        let entry = entry.map_err(io_error("list", dir))?;
        let path = entry.path();
        if let Some(base) = parse_name(&entry.file_name()) {
            let len = entry.metadata().map_err(io_error("look at", &path))?.len();
            found.push((LogFile { base, path }, len));
        } else {
            tracing::warn!(path = %path.display(), "skipping what is no log file");
        }
    }
    found.sort_by_key(|(f, _)| f.base);
    let count = found.len();
    for (n, (file, len)) in found.iter().enumerate() {
        if *len > size || file.base % size != 0 || (*len < size && n + 1 < count) {
            return Err(OpenError::FileLength {
                path: file.path.clone(),
                found: *len,
                expected: size,
            });
        }
        if n > 0 && found[n - 1].0.base + size != file.base {
            return Err(OpenError::Gap {
                path: file.path.clone(),
                expected: found[n - 1].0.base + size,
            });
        }
        if *len < size {
            tracing::warn!(path = %file.path.display(), len, "the last log file is too short: giving it its length");
            file.open()
                .and_then(|f| crash_safe::allocate(&f, 0, size))
                .map_err(io_error("allocate", &file.path))?;
        }
    }
    Ok(found.into_iter().map(|(f, _)| f).collect())
}

/// The files in `dir` by name, without a look at them.
pub(crate) fn log_files(dir: &Path) -> io::Result<Vec<LogFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if let Some(base) = parse_name(&entry.file_name()) {
            files.push(LogFile {
                base,
                path: entry.path(),
            });
        }
    }
    files.sort_by_key(|f| f.base);
    Ok(files)
}

/// Store time of the record that a file begins with; `None` if it begins with none.
pub(crate) fn first_store_time(file: &LogFile) -> io::Result<Option<i64>> {
    let mut head = [0; 84];
    file.open_to_read()?.read_exact_at(&mut head, 0)?;
    let i32_at = |i: usize| i32::from_be_bytes(std::array::from_fn(|k| head[i + k]));
    let time = at::store_timestamp(i32_at(at::SYS_FLAG));
    let time = i64::from_be_bytes(std::array::from_fn(|k| head[time + k]));
    Ok((i32_at(at::MAGIC) == MESSAGE_MAGIC && time != 0).then_some(time))
}

/// Files mapped in order, and the right to write the last one.
pub(crate) type Settled = (Vec<Arc<Segment>>, Option<MapWriter>);

/// Makes `end` the log's end: zeros what stands behind it, deletes the files beyond it, and maps the rest.
pub(crate) fn settle(files: &[LogFile], size: u64, end: u64) -> Result<Settled, OpenError> {
    let mut segments = Vec::new();
    let mut last = None;
    let mut deleted = false;
    for file in files {
        if file.base > end || (file.base == end && !segments.is_empty()) {
            tracing::info!(path = %file.path.display(), end, "deleting a log file beyond the end of the log");
            fs::remove_file(&file.path).map_err(io_error("delete", &file.path))?;
            deleted = true;
            continue;
        }
        let readable = (end - file.base).min(size);
        let handle = file.open().map_err(io_error("open", &file.path))?;
        if readable < size {
            // Bytes left behind the end must never be taken for records again.
            crash_safe::zero(&handle, readable, size, true)
                .and_then(|_| crash_safe::allocate(&handle, 0, size))
                .and_then(|()| handle.sync_data())
                .map_err(io_error("clear the end of", &file.path))?;
        }
        let (segment, writer) = Segment::open(&file.path, handle, file.base, size, readable)
            .map_err(io_error("map", &file.path))?;
        segments.push(segment);
        last = Some(writer);
    }
    if deleted && let Some(dir) = files.first().and_then(|f| f.path.parent()) {
        crash_safe::sync_dir(dir).map_err(io_error("sync", dir))?;
    }
    Ok((segments, last))
}
