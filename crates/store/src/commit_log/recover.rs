//! Listing the log's files, and making them fit what recovery found: zeros behind the end, no file beyond it.

use std::{
    collections::BTreeSet,
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

/// The files in `dirs`, in order and without a gap. Foreign names are skipped; an empty or short last file gets its length.
pub(crate) fn list(dirs: &[PathBuf], size: u64) -> Result<Vec<LogFile>, OpenError> {
    let mut found = Vec::new();
    for dir in dirs {
        let entries = match fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
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
            // On a full disk it gets no blocks yet, or nothing could ever make room again.
            file.open()
                .and_then(|f| match crash_safe::allocate(&f, 0, size) {
                    Err(error) if crash_safe::is_full(&error) => f.set_len(size),
                    other => other,
                })
                .map_err(io_error("allocate", &file.path))?;
        }
    }
    Ok(found.into_iter().map(|(f, _)| f).collect())
}

/// The files in `dirs` by name, without a look at them.
pub(crate) fn log_files(dirs: &[PathBuf]) -> io::Result<Vec<LogFile>> {
    let mut files = Vec::new();
    for dir in dirs {
        let entries = match fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            if let Some(base) = parse_name(&entry.file_name()) {
                files.push(LogFile {
                    base,
                    path: entry.path(),
                });
            }
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

/// Writes what files hold of `[from, to)` once more and waits until it's on the disk: after a sync that failed the kernel takes
/// pages for written that are not.
pub(crate) fn write_again(files: &[LogFile], size: u64, from: u64, to: u64) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for file in files.iter().filter(|f| f.base + size > from && f.base < to) {
        let handle = file.open()?;
        let mut at = from.max(file.base) - file.base;
        let end = to.min(file.base + size) - file.base;
        while at < end {
            let part = &mut buffer[..(end - at).min(1 << 20) as usize];
            handle.read_exact_at(part, at)?;
            handle.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        handle.sync_data()?;
    }
    Ok(())
}

/// Files mapped in order, and the right to write the last one.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) writer: Option<MapWriter>,
    /// The last file has no blocks yet where appends would go: the disk is full.
    pub(crate) lacks_blocks: bool,
}

/// Makes `end` the log's end: zeros what stands behind it, deletes the files beyond it, and maps the rest.
pub(crate) fn settle(files: &[LogFile], size: u64, end: u64) -> Result<Settled, OpenError> {
    let mut settled = Settled {
        segments: Vec::new(),
        writer: None,
        lacks_blocks: false,
    };
    let beyond = files
        .iter()
        .position(|f| f.base > end || (f.base == end && f.base > files[0].base))
        .unwrap_or(files.len());
    // From the last one backwards: a crash between two deletions must leave no gap.
    for file in files[beyond..].iter().rev() {
        tracing::info!(path = %file.path.display(), end, "deleting a log file beyond the end of the log");
        fs::remove_file(&file.path).map_err(io_error("delete", &file.path))?;
    }
    let dirs: BTreeSet<_> = files[beyond..].iter().filter_map(|f| f.path.parent()).collect();
    for dir in dirs {
        crash_safe::sync_dir(dir).map_err(io_error("sync", dir))?;
    }
    for file in &files[..beyond] {
        let readable = (end - file.base).min(size);
        let handle = file.open().map_err(io_error("open", &file.path))?;
        if readable < size {
            // Bytes left behind the end must never be taken for records again.
            crash_safe::zero(&handle, readable, size, true)
                .and_then(|_| match crash_safe::allocate(&handle, 0, size) {
                    // A file of Java's has no blocks yet behind its end.
                    Err(error) if crash_safe::is_full(&error) => {
                        tracing::error!(path = %file.path.display(), %error, "the disk is full: the last log file gets its blocks when there is room");
                        settled.lacks_blocks = true;
                        Ok(())
                    }
                    other => other,
                })
                .and_then(|()| handle.sync_data())
                .map_err(io_error("clear the end of", &file.path))?;
        }
        let (segment, writer) = Segment::open(&file.path, handle, file.base, size, readable)
            .map_err(io_error("map", &file.path))?;
        settled.segments.push(segment);
        settled.writer = Some(writer);
    }
    Ok(settled)
}
