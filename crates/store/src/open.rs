//! Opening: the lock first, then what is on the disk, then what of it can be trusted.
//!
//! After a stop in order the last three log files are read again, and queues are only cut where they point beyond the log's
//! end. After any other stop the log is read from the last file whose beginning was surely flushed with everything before
//! it; what queues and index have from there on is thrown away and made again from the log.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ferromq_protocol::record::{Check, Entry, Record, parse};

use crate::{
    FlushMode, Hooks, OpenError, Progress, Stage, StoreConfig,
    checkpoint::Checkpoint,
    clean::{DiskState, plan},
    commit_log::{self, CommitLog, LogFile, Pool, Scan, Visit},
    consume_queue::{self, EndBy, LoadError, Queue, QueueFiles, Queues, Unit},
    core::{Core, Parts},
    dispatch::{Dispatch, Phase},
    flush::DOUBT,
    fs::{
        crash_safe::{create_dir, is_full, sync_dir},
        lock::{LockError, StoreLock},
        log_dirs::LogDirs,
        prealloc::Prealloc,
    },
    ha,
    index::KeyIndex,
    memory, places,
    schedule::DelayTable,
};

/// Log files that are read again after a stop in order.
const LAST_FILES: usize = 3;
/// Time by which the checkpoint may be ahead of what is on the disk, in milliseconds.
const MARGIN: i64 = 3_000;

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { action, path, source }
}

fn hook_error(source: io::Error) -> OpenError {
    OpenError::Dispatcher(source)
}

fn check(config: &StoreConfig) -> Result<DiskState, OpenError> {
    let size = config.commit_log_file_size;
    if !(4096..=i32::MAX as u64).contains(&size) {
        return Err(OpenError::Config(format!(
            "mappedFileSizeCommitLog is {size}; it must be from 4096 to {}",
            i32::MAX
        )));
    }
    let ext = config.consume_queue_ext_file_size;
    if !(4096..=i32::MAX as u64).contains(&ext) {
        return Err(OpenError::Config(format!(
            "mappedFileSizeConsumeQueueExt is {ext}; it must be from 4096 to {}",
            i32::MAX
        )));
    }
    if config.max_hash_slot_num == 0 || config.max_index_num < 2 || config.max_index_num > i32::MAX as u32 {
        return Err(OpenError::Config(
            "maxHashSlotNum must be at least 1, maxIndexNum at least 2".to_owned(),
        ));
    }
    let ratios = [
        config.disk_max_used_space_ratio,
        config.disk_space_clean_forcibly_ratio,
        config.disk_space_warning_level_ratio,
    ];
    if ratios.iter().any(|r| *r > 100) {
        return Err(OpenError::Config(
            "a disk ratio is a percentage from 0 to 100".to_owned(),
        ));
    }
    if let Some(pool) = config.pool_bytes()
        && pool > memory::total() / 10 * 8
    {
        return Err(OpenError::Config(format!(
            "transientStorePoolSize is {} and mappedFileSizeCommitLog {size}: the pool may take {pool} bytes, and this process has {}; \
             set transientStorePoolSize lower, or transientStorePoolEnable=false",
            config.transient_store_pool_size,
            memory::total()
        )));
    }
    let hours = plan::parse_hours(&config.delete_when).map_err(OpenError::Config)?;
    let zone = plan::parse_zone(&config.delete_when_time_zone).map_err(OpenError::Config)?;
    Ok(DiskState::new(hours, zone))
}

/// Where reading starts.
pub(crate) fn start_file(
    config: &StoreConfig,
    checkpoint: &Checkpoint,
    files: &[LogFile],
    abnormal: bool,
) -> Result<u64, OpenError> {
    let Some(first) = files.first() else { return Ok(0) };
    if !abnormal {
        return Ok(files[files.len().saturating_sub(LAST_FILES)].base);
    }
    let mut trusted = checkpoint
        .log()
        .min(checkpoint.queues())
        .saturating_sub(MARGIN)
        .max(0);
    if config.message_index_enable && config.message_index_safe {
        trusted = trusted.min(checkpoint.index());
    }
    for file in files.iter().rev() {
        let time = commit_log::first_store_time(file).map_err(io_error("read", &file.path))?;
        if time.is_some_and(|time| time <= trusted) {
            return Ok(file.base);
        }
    }
    Ok(first.base)
}

fn load_error(error: LoadError, expected: u64) -> OpenError {
    match error {
        LoadError::Length { path, found } => OpenError::QueueFileLength {
            path,
            found,
            expected,
        },
        LoadError::Io { path, source } => OpenError::Io {
            action: "read",
            path,
            source,
        },
    }
}

/// Makes the names safe that a process made which was killed before it could.
fn sync_names(root: &Path, log_dirs: &[PathBuf]) -> Result<(), OpenError> {
    for dir in std::iter::once(root).chain(log_dirs.iter().map(PathBuf::as_path)) {
        sync_dir(dir).map_err(io_error("sync", dir))?;
        // What is above may be somebody else's.
        if let Some(Err(error)) = dir.parent().filter(|p| !p.as_os_str().is_empty()).map(sync_dir) {
            tracing::debug!(dir = %dir.display(), %error, "cannot sync the directory above");
        }
    }
    Ok(())
}

fn take_lock(root: &Path) -> Result<StoreLock, OpenError> {
    StoreLock::take(root).map_err(|e| match e {
        LockError::Held => OpenError::Locked {
            path: root.to_owned(),
            holder: None,
        },
        LockError::Io(source) => OpenError::Io {
            action: "lock",
            path: root.join("lock"),
            source,
        },
    })
}

/// After a sync that failed the kernel may show what the disk doesn't have: what was read is written to it again.
fn write_doubtful(config: &StoreConfig, files: &[LogFile], from: u64, to: u64) -> Result<(), OpenError> {
    if !fs::read(config.root.join("abort")).is_ok_and(|word| word == DOUBT) {
        return Ok(());
    }
    tracing::warn!(
        from,
        to,
        "a sync of the log failed before: writing it to the disk again"
    );
    commit_log::write_again(files, config.commit_log_file_size, from, to)
        .map_err(io_error("write again the end of", &config.commit_log_dir()))
}

/// Opens the store: everything but its threads.
pub(crate) fn open(config: StoreConfig, progress: &Progress, hooks: Hooks) -> Result<Core, OpenError> {
    progress.set_stage(Stage::Loading);
    let disk = check(&config)?;
    create_dir(&config.root).map_err(io_error("create", &config.root))?;
    let lock = take_lock(&config.root)?;
    ha::copy::settle(&config)?;
    let (queue_dir, index_dir) = (config.consume_queue_dir(), config.index_dir());
    let log_dirs = config.commit_log_dirs();
    let mut all_log_dirs = log_dirs.clone();
    all_log_dirs.extend(config.read_only_commit_log_dirs());
    let config_dir = config.root.join("config");
    for dir in log_dirs.iter().chain([&queue_dir, &index_dir, &config_dir]) {
        create_dir(dir).map_err(io_error("create", dir))?;
    }
    sync_names(&config.root, &log_dirs)?;
    let abnormal = config.root.join("abort").exists();
    progress.set_abnormal(abnormal);
    let checkpoint_path = config.root.join("checkpoint");
    let checkpoint = Checkpoint::load(&checkpoint_path).map_err(io_error("read", &checkpoint_path))?;
    let delay = DelayTable::load(config.config_file("delayOffset.json"))?;
    let size = config.commit_log_file_size;
    let files = commit_log::list(&all_log_dirs, size)?;
    let start = start_file(&config, &checkpoint, &files, abnormal)?;
    let index = KeyIndex::load(
        &index_dir,
        config.max_hash_slot_num,
        config.max_index_num,
        config.clock.clone(),
        abnormal.then(|| checkpoint.index()),
    )
    .map_err(io_error("load", &index_dir))?;
    let dispatch = Dispatch {
        queues: Queues::new(queue_files(&config)),
        index,
        checkpoint,
        hooks,
        levels: config.delay_levels.clone(),
        index_enabled: config.message_index_enable,
        index_behind: AtomicBool::new(false),
        unread: AtomicBool::new(false),
        multi: config.enable_multi_dispatch,
        log_dirs: all_log_dirs.clone(),
        log_file_size: size,
    };
    let recovery = Recovery {
        files: &files,
        size,
        start,
        abnormal,
        progress,
    };
    let found = recovery.run(&config, &dispatch)?;
    write_doubtful(&config, &files, start, found.end)?;
    let settled = commit_log::settle(&files, size, found.end)?;
    let log_dirs = LogDirs::new(log_dirs, config.disk_space_clean_forcibly_ratio);
    let write_ahead = config.flush_mode == FlushMode::Sync;
    let prealloc = Prealloc::start(log_dirs, size, config.warm(), write_ahead)
        .map_err(io_error("start allocating in", &config.commit_log_dir()))?;
    let mut log = CommitLog::new(
        prealloc,
        settled,
        found.last_time,
        // After a kill the last records may be in the page cache only: the next sync takes them along.
        if abnormal { start } else { found.end },
        config.clock.clone(),
    );
    if let Some(bytes) = config.pool_bytes() {
        log.use_pool(Pool::new(bytes as usize, config.fail_fast_if_pool_is_full));
    }
    let dispatched = found.dispatched.clamp(log.min(), log.max());
    let dispatched_time = if dispatched < log.max() {
        0
    } else {
        found.last_time
    };
    tracing::info!(
        root = %config.root.display(),
        abnormal,
        min = log.min(),
        max = log.max(),
        queues = dispatch.queues.len(),
        "the store is open"
    );
    let parts = Parts {
        log,
        dispatch,
        delay,
        disk,
        lock,
        dispatched,
        dispatched_time,
        last_stop_clean: !abnormal,
    };
    Ok(Core::new(config, progress, parts))
}

/// The files of queues, and of their extensions if these are kept or some are there.
fn queue_files(config: &StoreConfig) -> QueueFiles {
    let (dir, ext_dir) = (config.consume_queue_dir(), config.consume_queue_ext_dir());
    let queues = QueueFiles::new(dir, config.queue_file_size(), config.open_queue_files);
    if !config.enable_consume_queue_ext && !ext_dir.is_dir() {
        return queues;
    }
    let most = config.open_queue_files / 4;
    let ext = QueueFiles::new(ext_dir, config.consume_queue_ext_file_size, most);
    queues.with_ext(ext, config.enable_consume_queue_ext)
}

/// Deletes all queues under a directory.
fn delete_topics(dir: &Path) -> Result<(), OpenError> {
    let topics = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(io_error("list", dir))?,
    };
    for topic in topics
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
    {
        tracing::warn!(path = %topic.display(), "there is no log: deleting the queues of a topic");
        fs::remove_dir_all(&topic).map_err(io_error("delete", &topic))?;
    }
    Ok(())
}

struct Recovery<'a> {
    files: &'a [LogFile],
    size: u64,
    start: u64,
    abnormal: bool,
    progress: &'a Progress,
}

struct Found {
    end: u64,
    last_time: i64,
    /// Up to here queues and index have everything.
    dispatched: i64,
}

impl Recovery<'_> {
    fn run(&self, config: &StoreConfig, dispatch: &Dispatch) -> Result<Found, OpenError> {
        let queue_dir = config.consume_queue_dir();
        let log_error = |e| io_error("read", &config.commit_log_dir())(e);
        let index_error = |e| io_error("repair", &config.index_dir())(e);
        self.progress.set_stage(Stage::Recovering);
        let Some(last) = self.files.last() else {
            // Queues without a log say nothing.
            for dir in [&queue_dir, &config.consume_queue_ext_dir()] {
                delete_topics(dir)?;
            }
            dispatch.index.cut(0).map_err(index_error)?;
            for dispatcher in &dispatch.hooks.dispatchers {
                dispatcher.cut(0).map_err(hook_error)?;
            }
            return Ok(Found {
                end: 0,
                last_time: 0,
                dispatched: 0,
            });
        };
        let end_by = if self.abnormal {
            EndBy::Reading {
                below: self.start as i64,
            }
        } else {
            EndBy::Halving
        };
        let holed = consume_queue::load(&dispatch.queues, &queue_dir, end_by)
            .map_err(|e| load_error(e, config.queue_file_size()))?;
        // Somebody may have deleted the queues to have them made again: then the checkpoint says nothing about them.
        let start = if dispatch.queues.len() == 0 {
            self.files[0].base
        } else {
            self.start
        };
        dispatch
            .unread
            .store(start > self.files[0].base, Ordering::Release);
        self.progress.set_total(last.base + self.size - start);
        let found = if self.abnormal {
            self.after_crash(config, dispatch, &holed, start)?
        } else {
            self.after_stop(config, dispatch, start)?
        };
        if let Some(from) = dispatch.index.cut(found.end as i64).map_err(index_error)?
            && dispatch.index_enabled
        {
            self.index_again(dispatch, from, found.end).map_err(log_error)?;
        } else if dispatch.index_enabled && dispatch.index.was_dropped() {
            self.index_again(dispatch, dispatch.index.end().1, found.end)
                .map_err(log_error)?;
        }
        for dispatcher in &dispatch.hooks.dispatchers {
            dispatcher.cut(found.end as i64).map_err(hook_error)?;
        }
        for queue in dispatch.queues.all() {
            queue.forget_tail();
        }
        self.progress.set_done(self.progress.total());
        Ok(found)
    }

    /// Repairs the queues, reads the log from the start on and gives queues and index what it holds.
    fn after_crash(
        &self,
        config: &StoreConfig,
        dispatch: &Dispatch,
        holed: &[Arc<Queue>],
        start: u64,
    ) -> Result<Found, OpenError> {
        let queue_error = |e| io_error("repair", &config.consume_queue_dir())(e);
        let log_error = |e| io_error("read", &config.commit_log_dir())(e);
        dispatch.catch_up_hooks(start).map_err(hook_error)?;
        let lacking = self
            .distrust(dispatch, self.files[0].base as i64)
            .map_err(queue_error)?;
        for queue in holed.iter().chain(&lacking) {
            dispatch.fill(queue, start as i64).map_err(queue_error)?;
        }
        if dispatch.index_enabled {
            // What is indexed ends with a record; those behind it may or may not have had keys.
            self.index_again(dispatch, dispatch.index.end().1, start)
                .map_err(log_error)?;
        }
        // On a full disk the store opens all the same, or nothing could ever make room again. The rest is dispatched as
        // soon as there is some.
        let mut stopped = None;
        let scanned = self
            .scan(config, start, &mut |record, bytes| {
                if stopped.is_none()
                    && let Err(error) = dispatch.record(record, bytes, Phase::Recovery)
                {
                    if !is_full(error.source()) {
                        return Err(io::Error::other(error.source().to_string()));
                    }
                    tracing::error!(at = record.physical_offset, error = %error.source(), "the disk is full: queues are filled again when there is room");
                    stopped = Some(record.physical_offset);
                }
                Ok(Visit::Continue(()))
            })
            .map_err(log_error)?;
        match dispatch.queues.write_out() {
            Err(error) if is_full(&error) => {
                tracing::error!(%error, "the disk is full: queues are written when there is room");
            }
            other => other.map_err(queue_error)?,
        }
        Ok(Found {
            end: scanned.end,
            last_time: scanned.last_time,
            dispatched: stopped.unwrap_or(scanned.end as i64),
        })
    }

    /// Looks for the end of the log and takes from the queues what lies behind it.
    fn after_stop(&self, config: &StoreConfig, dispatch: &Dispatch, start: u64) -> Result<Found, OpenError> {
        let queue_error = |e| io_error("repair", &config.consume_queue_dir())(e);
        let scanned = self
            .scan(config, start, &mut |_, _| Ok(Visit::Continue(())))
            .map_err(io_error("read", &config.commit_log_dir()))?;
        let end = scanned.end as i64;
        for queue in dispatch.queues.all() {
            if queue.max_physical() > end {
                queue
                    .cut_at_physical(&dispatch.queues.files, end)
                    .map_err(queue_error)?;
            }
        }
        let lacking = self.distrust(dispatch, start as i64).map_err(queue_error)?;
        for queue in &lacking {
            dispatch.fill(queue, end).map_err(queue_error)?;
        }
        let dispatched = dispatch
            .queues
            .all()
            .iter()
            .map(|q| q.max_physical())
            .max()
            .unwrap_or(0);
        let first = self.files.first().map_or(0, |f| f.base) as i64;
        dispatch
            .catch_up_hooks(dispatched.clamp(first, end) as u64)
            .map_err(hook_error)?;
        Ok(Found {
            end: scanned.end,
            last_time: scanned.last_time,
            dispatched,
        })
    }

    /// Reads the log from `start` on and tells how far it is.
    fn scan(
        &self,
        config: &StoreConfig,
        start: u64,
        visit: &mut dyn FnMut(&Record<'_>, &[u8]) -> io::Result<Visit>,
    ) -> io::Result<Scan> {
        let check = if config.check_crc_on_recover {
            Check::Crc
        } else {
            Check::None
        };
        let mut tell = |at: u64| self.progress.set_done(at.saturating_sub(start));
        commit_log::scan(self.files, self.size, start, u64::MAX, check, &mut tell, visit)
    }

    /// Adds the keys of the records in a range of the log to the index.
    fn index_again(&self, dispatch: &Dispatch, from: i64, to: u64) -> io::Result<()> {
        let from = (from.max(0) as u64).max(self.files.first().map_or(0, |f| f.base));
        if from >= to {
            return Ok(());
        }
        let mut visit = |record: &Record<'_>, _: &[u8]| -> io::Result<Visit> {
            dispatch.index(record, &record.properties_text());
            Ok(Visit::Continue(()))
        };
        commit_log::scan(
            self.files,
            self.size,
            from,
            to,
            Check::None,
            &mut |_| {},
            &mut visit,
        )?;
        Ok(())
    }

    /// Compares the last unit of each queue with the record that it points to, if that is at or above log offset `from`.
    /// Where they disagree the queue is cut to the last unit that is right; such queues come back.
    fn distrust(&self, dispatch: &Dispatch, from: i64) -> io::Result<Vec<Arc<Queue>>> {
        let mut log = Handles {
            files: self.files,
            size: self.size,
            open: HashMap::new(),
        };
        let files = &dispatch.queues.files;
        let mut lacking = Vec::new();
        for queue in dispatch.queues.all() {
            let (first, max) = queue.file_range();
            let mut end = max;
            let mut step = 1;
            while end > first {
                let unit = queue.unit(files, end - 1)?;
                let right = unit.is_some_and(|unit| {
                    unit.is_pre_blank() || unit.physical < from || log.agrees(&queue, end - 1, unit)
                });
                if right {
                    break;
                }
                end = (end - step).max(first);
                step *= 2;
            }
            if end < max {
                tracing::warn!(topic = %queue.topic(), queue = queue.id(), end, max, "a queue disagrees with the log: cutting it and filling it again");
                queue.truncate(files, end)?;
                lacking.push(queue);
            }
        }
        Ok(lacking)
    }
}

struct Handles<'a> {
    files: &'a [LogFile],
    size: u64,
    open: HashMap<u64, File>,
}

impl Handles<'_> {
    /// Whether the record that a unit points to is the queue's message of that offset.
    fn agrees(&mut self, queue: &Queue, offset: i64, unit: Unit) -> bool {
        let physical = unit.physical as u64;
        let base = physical / self.size * self.size;
        if unit.size as u64 > self.size - (physical - base) {
            return false;
        }
        if !self.open.contains_key(&base) {
            let file = self
                .files
                .iter()
                .find(|f| f.base == base)
                .and_then(|f| f.open().ok());
            let Some(file) = file else { return false };
            self.open.insert(base, file);
        }
        let Some(file) = self.open.get(&base) else {
            return false;
        };
        let mut bytes = vec![0; unit.size as usize];
        if file.read_exact_at(&mut bytes, physical - base).is_err() {
            return false;
        }
        matches!(
            parse(&bytes, Check::None),
            Ok(Entry::Record(r)) if r.physical_offset == unit.physical
                && r.total_size == unit.size
                && places::offset_in(&r, queue.topic(), queue.id()) == Some(offset)
        )
    }
}
