//! A look at a store directory from outside: what is there, what is damaged, and what a start would do to it.
//!
//! Nothing is ever written, no lock is taken and no file is mapped, so a damaged disk gives errors and not signals. A
//! directory that a broker is working on can be looked at; what it appends meanwhile may or may not be seen.

mod dry_run;
mod verify;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    checkpoint::Checkpoint,
    commit_log::{LogFile, first_store_time, log_files},
    fs::segment::{file_name, parse_name},
    index,
};

pub use dry_run::{DryRun, dry_run};
pub use verify::{Found, Problem, records, verify};

/// The directory can't be looked at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no log in it.
    #[error("{} is no folder with a log: name the directory that storePathRootDir names, and those of storePathCommitLog if that is set", .0.display())]
    NoStore(PathBuf),
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> InspectError {
    let path = path.to_owned();
    move |source| InspectError::Io { action, path, source }
}

/// How the store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum LastStop {
    /// In order: there is no abort file.
    Clean,
    /// By a crash, or it is still in use: the abort file is there.
    Unclean,
}

/// Up to which store time, in milliseconds since 1970, each part is surely on the disk.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CheckpointTimes {
    /// The log.
    pub log: i64,
    /// The consume queues.
    pub queues: i64,
    /// The index.
    pub index: i64,
}

/// A file of the log.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LogFileReport {
    /// Its name: the log offset that it begins with.
    pub name: String,
    /// Bytes.
    pub length: u64,
    /// Store time of its first record; `None` when it begins with none.
    pub first_store_time: Option<i64>,
}

/// A consume queue.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueReport {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue: i32,
    /// Number of files.
    pub files: usize,
    /// The first offset that its files could hold.
    pub first: u64,
}

/// A file of the index.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct IndexReport {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub length: u64,
    /// Entries in use.
    pub entries: u32,
    /// Store time of the first record indexed.
    pub begin_time: i64,
    /// Store time of the last.
    pub end_time: i64,
    /// Log offset of the first.
    pub begin_offset: i64,
    /// Log offset of the last.
    pub end_offset: i64,
}

/// A file under `config`.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TableReport {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub length: u64,
}

/// What is in a store directory, as far as names, lengths and heads of files tell.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// The directory.
    pub root: PathBuf,
    /// How it was left.
    pub last_stop: LastStop,
    /// The file `checkpoint`.
    pub checkpoint: CheckpointTimes,
    /// Length of a log file, told from the files.
    pub log_file_size: u64,
    /// The log.
    pub log: Vec<LogFileReport>,
    /// The consume queues by topic and number.
    pub queues: Vec<QueueReport>,
    /// The index.
    pub index: Vec<IndexReport>,
    /// Tables of the broker, with what their former versions were kept as.
    pub tables: Vec<TableReport>,
}

/// Where a store is.
#[derive(Debug, Clone)]
pub struct Place {
    /// The directory that `storePathRootDir` names.
    pub root: PathBuf,
    /// Directories of the log, those that are only read included. Empty: `commitlog` in the root.
    pub log_dirs: Vec<PathBuf>,
}

impl<P: Into<PathBuf>> From<P> for Place {
    fn from(root: P) -> Self {
        Self {
            root: root.into(),
            log_dirs: Vec::new(),
        }
    }
}

/// What the parts of a store are.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
    log_dirs: Vec<PathBuf>,
    files: Vec<LogFile>,
    size: u64,
    abort: bool,
}

impl Layout {
    fn of(place: &Place) -> Result<Self, InspectError> {
        let root = place.root.clone();
        let log_dirs = if place.log_dirs.is_empty() {
            vec![root.join("commitlog")]
        } else {
            place.log_dirs.clone()
        };
        if let Some(missing) = log_dirs.iter().find(|dir| !dir.is_dir()) {
            return Err(InspectError::NoStore(missing.clone()));
        }
        let files = log_files(&log_dirs).map_err(io_error("list", &log_dirs[0]))?;
        let mut size = 0;
        for file in &files {
            let len = fs::metadata(&file.path)
                .map_err(io_error("look at", &file.path))?
                .len();
            size = size.max(len);
        }
        Ok(Self {
            abort: root.join("abort").exists(),
            root,
            log_dirs,
            files,
            size,
        })
    }

    /// The log's directory, or the first of several: for errors.
    fn log_dir(&self) -> &Path {
        &self.log_dirs[0]
    }

    fn queue_dirs(&self) -> Result<Vec<QueueDir>, InspectError> {
        let mut found = Vec::new();
        for topic in entries(&self.root.join("consumequeue"))? {
            let Some(name) = topic.file_name().and_then(|n| n.to_str()) else {
                continue;
            };
            if !topic.is_dir() {
                continue;
            }
            for queue in entries(&topic)? {
                let id = queue
                    .file_name()
                    .and_then(|n| n.to_str())
                    .and_then(|n| n.parse().ok());
                let Some(id) = id.filter(|id: &i32| *id >= 0) else {
                    continue;
                };
                let mut files: Vec<(u64, PathBuf)> = entries(&queue)?
                    .into_iter()
                    .filter_map(|path| Some((parse_name(path.file_name()?)?, path)))
                    .collect();
                files.sort();
                found.push(QueueDir {
                    topic: name.to_owned(),
                    id,
                    files,
                });
            }
        }
        found.sort_by(|a, b| (&a.topic, a.id).cmp(&(&b.topic, b.id)));
        Ok(found)
    }

    fn index_files(&self) -> Result<Vec<PathBuf>, InspectError> {
        let named = |path: &PathBuf| path.file_name().is_some_and(|n| n.len() == 17);
        let mut files: Vec<PathBuf> = entries(&self.root.join("index"))?
            .into_iter()
            .filter(named)
            .collect();
        files.sort();
        Ok(files)
    }

    fn checkpoint(&self) -> Result<Checkpoint, InspectError> {
        let path = self.root.join("checkpoint");
        Checkpoint::load(&path).map_err(io_error("read", &path))
    }
}

/// The files of one consume queue.
#[derive(Debug, Clone)]
pub(crate) struct QueueDir {
    topic: String,
    id: i32,
    files: Vec<(u64, PathBuf)>,
}

/// What is in a directory; nothing if it isn't there.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, InspectError> {
    match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(io_error("list", dir)(e)),
        Ok(list) => list
            .map(|entry| entry.map(|e| e.path()))
            .collect::<io::Result<_>>()
            .map_err(io_error("list", dir)),
    }
}

fn length(path: &Path) -> Result<u64, InspectError> {
    Ok(fs::metadata(path).map_err(io_error("look at", path))?.len())
}

/// Tells what is in a store directory, ours or Java's. Reads heads of files only.
pub fn inspect(place: &Place) -> Result<Inspection, InspectError> {
    let layout = Layout::of(place)?;
    let root = &layout.root;
    let checkpoint = layout.checkpoint()?;
    let mut log = Vec::new();
    for file in &layout.files {
        log.push(LogFileReport {
            name: file_name(file.base),
            length: length(&file.path)?,
            // A file shorter than a record's head begins with none.
            first_store_time: first_store_time(file).unwrap_or(None),
        });
    }
    let queues = layout.queue_dirs()?.into_iter().map(|queue| QueueReport {
        files: queue.files.len(),
        first: queue.files.first().map_or(0, |(base, _)| base / 20),
        topic: queue.topic,
        queue: queue.id,
    });
    let queues = queues.collect();
    let mut indexes = Vec::new();
    for path in layout.index_files()? {
        let header = File::open(&path)
            .and_then(|file| index::read_header(&file))
            .map_err(io_error("read", &path))?;
        indexes.push(IndexReport {
            name: name_of(&path),
            length: length(&path)?,
            entries: header.count.saturating_sub(1) as u32,
            begin_time: header.begin_time,
            end_time: header.end_time,
            begin_offset: header.begin_offset,
            end_offset: header.end_offset,
        });
    }
    let mut tables = Vec::new();
    for path in entries(&root.join("config"))? {
        if path.is_file() {
            tables.push(TableReport {
                name: name_of(&path),
                length: length(&path)?,
            });
        }
    }
    tables.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Inspection {
        root: root.to_owned(),
        last_stop: if layout.abort {
            LastStop::Unclean
        } else {
            LastStop::Clean
        },
        checkpoint: CheckpointTimes {
            log: checkpoint.log(),
            queues: checkpoint.queues(),
            index: checkpoint.index(),
        },
        log_file_size: layout.size,
        log,
        queues,
        index: indexes,
        tables,
    })
}

fn name_of(path: &Path) -> String {
    path.file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}
