//! The thread that makes the next log file before it's needed, and the next pages of the current one.
//!
//! A file gets real blocks by `fallocate`: a full disk is an error here and not a signal on the appending thread. Pages
//! are made present a window ahead of the appends, so that an append is a copy and no page fault. Where each append waits for
//! the disk, the window is also written out, so that its wait is for a write of its own bytes and for nothing else.

use std::{
    fs, io,
    ops::Range,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

use super::{
    crash_safe::create_allocated,
    log_dirs::LogDirs,
    mmap::MapWriter,
    segment::{Segment, file_name},
};

/// Pages are made present this far ahead of the appends.
pub(crate) const WINDOW: u64 = 4 << 20;
/// Pages are made present in steps of so many bytes, that the thread can be stopped between.
const WARM_STEP: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

type Made = (Arc<Segment>, MapWriter);

#[derive(Debug, Default)]
struct State {
    wanted: Option<u64>,
    ready: Option<(u64, Made)>,
    failed: Option<(u64, io::Error)>,
    populate: Option<(Arc<Segment>, Range<usize>)>,
    /// A sync ahead of the appends failed, with what.
    sync_failed: Option<io::Error>,
    stopping: bool,
}

/// Whether the pages of a new file are made present before it's used, and locked in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Warm {
    No,
    /// All of them; synced after each `sync_every` bytes if that's above 0, so that the first sync of the file in use does not
    /// have to write all of it.
    Yes {
        sync_every: u64,
    },
}

#[derive(Debug)]
struct Shared {
    dirs: LogDirs,
    size: u64,
    warm: Warm,
    /// Whether windows are written out.
    write_ahead: bool,
    state: Mutex<State>,
    changed: Condvar,
}

/// Handle of the thread.
#[derive(Debug)]
pub(crate) struct Prealloc {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Prealloc {
    /// Starts the thread, for files of `size` bytes in `dirs`; `write_ahead` writes out what was made present.
    pub(crate) fn start(dirs: LogDirs, size: u64, warm: Warm, write_ahead: bool) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            dirs,
            size,
            warm,
            write_ahead,
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        });
        let theirs = shared.clone();
        let thread = std::thread::Builder::new()
            .name("store-alloc".to_owned())
            .spawn(move || theirs.run())?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Bytes of a file.
    pub(crate) fn file_size(&self) -> u64 {
        self.shared.size
    }

    /// Whether what is made present is written out.
    pub(crate) fn writes_ahead(&self) -> bool {
        self.shared.write_ahead
    }

    /// Whether files are locked in memory.
    pub(crate) fn is_warm(&self) -> bool {
        self.shared.warm != Warm::No
    }

    /// Has the file that starts at `base` made.
    pub(crate) fn want(&self, base: u64) {
        let mut state = self.shared.state.lock();
        if state.ready.as_ref().is_none_or(|(b, _)| *b != base) && state.wanted != Some(base) {
            state.wanted = Some(base);
            self.shared.changed.notify_all();
        }
    }

    /// Has pages made present.
    pub(crate) fn populate(&self, segment: &Arc<Segment>, range: Range<usize>) {
        self.shared.state.lock().populate = Some((segment.clone(), range));
        self.shared.changed.notify_all();
    }

    /// What a sync ahead of the appends failed with. The disk is then no better than after a failed sync of appends.
    pub(crate) fn sync_error(&self) -> Option<io::Error> {
        let state = self.shared.state.lock();
        let error = state.sync_failed.as_ref()?;
        let text = format!("a sync ahead of the appends failed: {error}");
        Some(io::Error::new(error.kind(), text))
    }

    /// The file that starts at `base`, waiting for it if need be.
    pub(crate) fn take(&self, base: u64) -> io::Result<Made> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.shared.state.lock();
        // An old failure is no answer to a new question.
        state.failed = None;
        loop {
            if let Some((_, made)) = state.ready.take_if(|(b, _)| *b == base) {
                return Ok(made);
            }
            if let Some((_, error)) = state.failed.take_if(|(b, _)| *b == base) {
                return Err(error);
            }
            if state.stopping {
                return Err(io::Error::other("the store is stopping"));
            }
            if state.wanted != Some(base) {
                state.wanted = Some(base);
                self.shared.changed.notify_all();
            }
            if self.shared.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the disk took more than 5 s to allocate a log file",
                ));
            }
        }
    }

    /// Ends the thread, and deletes a file that was made and not used.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopping = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that allocates log files died; see its message above");
        }
        if let Some((_, (segment, _))) = self.shared.state.lock().ready.take()
            && let Err(error) = segment.unlink()
        {
            tracing::warn!(path = %segment.path().display(), %error, "cannot delete an unused log file");
        }
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            if state.stopping {
                return;
            }
            if let Some((segment, range)) = state.populate.take() {
                parking_lot::MutexGuard::unlocked(&mut state, || {
                    segment.map().populate(range);
                    self.write_out(&segment);
                });
            } else if let Some(base) = state.wanted {
                if state.ready.as_ref().is_some_and(|(b, _)| *b == base) {
                    state.wanted = None;
                    continue;
                }
                let made = parking_lot::MutexGuard::unlocked(&mut state, || self.make(base));
                if state.wanted == Some(base) {
                    state.wanted = None;
                }
                match made {
                    Ok(made) => state.ready = Some((base, made)),
                    Err(error) => state.failed = Some((base, error)),
                }
                self.changed.notify_all();
            } else {
                self.changed.wait(&mut state);
            }
        }
    }

    /// Writes out what was made present, where that is wanted. That the disk fails is for the next sync to tell.
    fn write_out(&self, segment: &Segment) {
        if !self.write_ahead {
            return;
        }
        match segment.write_ahead() {
            // Deleted meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => self.state.lock().sync_failed = Some(error),
            Ok(()) => {}
        }
    }

    fn make(&self, base: u64) -> io::Result<Made> {
        let dir = self.dirs.choose(base / self.size);
        super::crash_safe::create_dir(dir)?;
        let path = dir.join(file_name(base));
        let file = create_allocated(&path, self.size)?;
        let made = Segment::open(&path, file, base, self.size, 0);
        if made.is_err()
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove a log file that could not be mapped");
        }
        let made = made?;
        let (first, step) = match self.warm {
            Warm::No => (WINDOW.min(self.size), WARM_STEP),
            Warm::Yes { sync_every: 0 } => (self.size, WARM_STEP),
            Warm::Yes { sync_every } => (self.size, (sync_every as usize).min(WARM_STEP)),
        };
        for start in (0..first as usize).step_by(step) {
            made.0.map().populate(start..(start + step).min(first as usize));
            if matches!(self.warm, Warm::Yes { sync_every: 1.. }) {
                self.write_out(&made.0);
            }
            if self.state.lock().stopping {
                break;
            }
        }
        self.write_out(&made.0);
        if self.warm != Warm::No
            && let Err(error) = made.0.map().lock()
        {
            tracing::warn!(path = %path.display(), %error, "the kernel does not lock a log file in memory; raise the limit on locked memory, or set warmMapedFileEnable=false");
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makes_files_and_deletes_the_unused_one() {
        let dir = tempfile::tempdir().unwrap();
        let prealloc = Prealloc::start(
            LogDirs::new(vec![dir.path().to_owned()], 100),
            65_536,
            Warm::Yes { sync_every: 8192 },
            true,
        )
        .unwrap();
        let (segment, mut writer) = prealloc.take(0).unwrap();
        writer.write(0, b"abc").unwrap();
        writer.publish(3);
        assert_eq!(segment.slice(0..3).unwrap(), b"abc");
        assert_eq!(segment.path().metadata().unwrap().len(), 65_536);
        prealloc.want(65_536);
        let deadline = Instant::now() + Duration::from_secs(20);
        while !dir.path().join(file_name(65_536)).exists() && Instant::now() < deadline {
            std::thread::yield_now();
        }
        prealloc.stop();
        assert!(dir.path().join(file_name(0)).exists());
        assert!(!dir.path().join(file_name(65_536)).exists());
    }

    #[test]
    fn a_failure_is_told_and_not_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(file_name(0)), b"in the way").unwrap();
        let prealloc = Prealloc::start(
            LogDirs::new(vec![dir.path().to_owned()], 100),
            65_536,
            Warm::No,
            false,
        )
        .unwrap();
        assert_eq!(prealloc.take(0).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        fs::remove_file(dir.path().join(file_name(0))).unwrap();
        assert!(prealloc.take(0).is_ok());
        prealloc.stop();
    }
}
