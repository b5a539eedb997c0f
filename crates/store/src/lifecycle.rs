//! Starting and stopping: which threads there are, in which order things are made safe.

use std::{
    fs::{self, File},
    io,
    path::Path,
    sync::{Arc, atomic::Ordering},
    thread::Builder,
};

use crate::{
    ShutdownError, ShutdownReport, Stage, StartError,
    core::Core,
    dispatch::Phase,
    fs::crash_safe::{is_full, sync_dir},
    json_table::TableError,
};

type Run = fn(&Arc<Core>);

const THREADS: [(&str, Run); 8] = [
    ("store-reput", Core::run_reput),
    ("store-delay", Core::run_schedule),
    ("store-commit", Core::run_commit),
    ("store-flush", Core::run_flush),
    ("store-ack", Core::run_ack_watch),
    ("store-replicas", Core::run_replica_watch),
    ("store-queues", Core::run_queue_flush),
    ("store-clean", Core::run_clean),
];
/// These end by themselves, once all that was appended is dispatched.
const ENDING_FIRST: [&str; 2] = ["store-reput", "store-delay"];

fn start_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StartError {
    let path = path.to_owned();
    move |source| StartError::Io { action, path, source }
}

fn stop_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ShutdownError {
    let path = path.to_owned();
    move |source| ShutdownError::Io { action, path, source }
}

impl Core {
    pub(crate) fn start(self: &Arc<Self>) -> Result<(), StartError> {
        if self.closing.load(Ordering::Acquire)
            || self
                .started_at
                .swap(self.config.clock.now().max(1), Ordering::AcqRel)
                != 0
        {
            return Err(StartError::AlreadyStarted);
        }
        self.progress.set_stage(Stage::Starting);
        // From here on queues may have units that aren't on the disk.
        let abort = self.config.root.join("abort");
        match self.make_abort() {
            // Nothing can be appended, so nothing has to be recovered.
            Err(error) if is_full(&error) => {
                tracing::error!(%error, "the disk is full: there is not even room for the file that tells of a crash");
                self.note_disk_full();
            }
            other => other.map_err(start_error("create", &abort))?,
        }
        let caught_up = self.catch_up(Phase::Recovery);
        for queue in self.dispatch.queues.all() {
            queue.set_next_put(queue.range().1);
        }
        if let Err(error) = caught_up {
            if !is_full(error.source()) {
                return Err(StartError::Dispatch(error.source().to_string()));
            }
            tracing::error!(error = %error.source(), "the disk is full: the rest of the log is dispatched when there is room");
            self.note_disk_full();
            self.number_on();
        }
        self.align();
        self.check_disk();
        for (name, run) in THREADS {
            let core = self.clone();
            let thread = Builder::new()
                .name(name.to_owned())
                .spawn(move || run(&core))
                .map_err(start_error("start a thread for", &self.config.root))?;
            self.threads.lock().push(thread);
        }
        self.started.store(true, Ordering::Release);
        self.progress.set_stage(Stage::Running);
        Ok(())
    }

    /// Makes the file that tells the next start of a crash, if it isn't there.
    pub(crate) fn make_abort(&self) -> io::Result<()> {
        let abort = self.config.root.join("abort");
        File::create(abort)?;
        sync_dir(&self.config.root)
    }

    fn join(&self, which: impl Fn(&str) -> bool) {
        let (now, later): (Vec<_>, Vec<_>) = std::mem::take(&mut *self.threads.lock())
            .into_iter()
            .partition(|t| t.thread().name().is_some_and(&which));
        self.threads.lock().extend(later);
        let me = std::thread::current().id();
        for thread in now {
            if thread.thread().id() == me {
                continue;
            }
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(thread = name, "a thread of the store died; see its message above");
            }
        }
    }

    /// Stops in order.
    pub(crate) fn shutdown(&self) -> Result<ShutdownReport, ShutdownError> {
        if self.closing.swap(true, Ordering::AcqRel) {
            return Ok(ShutdownReport {
                clean: !self.config.root.join("abort").exists(),
            });
        }
        self.progress.set_stage(Stage::Stopping);
        // Whoever is appending finishes.
        self.log.holding_appends(|| ());
        let result = self.close();
        self.end();
        result
    }

    fn close(&self) -> Result<ShutdownReport, ShutdownError> {
        let root = &self.config.root;
        let abort = root.join("abort");
        if !self.started.load(Ordering::Acquire) {
            return Ok(ShutdownReport {
                clean: !abort.exists(),
            });
        }
        self.wake_all();
        self.join(|name| ENDING_FIRST.contains(&name));
        let flushed = self.flush_log();
        // What came out of the pool just now may be in no queue yet, and its thread is gone.
        if let Err(error) = self.catch_up(Phase::Live) {
            tracing::error!(error = %error.source(), "cannot dispatch the end of the log; the next start does");
        }
        self.sync_queues()
            .map_err(stop_error("flush the queues of", root))?;
        self.delay.save().map_err(|e| match e {
            TableError::Io { action, path, source } => ShutdownError::Io { action, path, source },
            other => ShutdownError::Io {
                action: "save",
                path: root.join("config"),
                source: io::Error::other(other),
            },
        })?;
        let clean = flushed
            && self.dispatched() >= self.log.whole()
            && self.flags.get() == 0
            && !self.dispatch.index_behind()
            && !self.dispatch.checkpoint.has_lost();
        if clean {
            match fs::remove_file(&abort) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(stop_error("remove", &abort)(e)),
                _ => sync_dir(root).map_err(stop_error("sync", root))?,
            }
        }
        tracing::info!(clean, max = self.log.max(), "the store is closed");
        Ok(ShutdownReport { clean })
    }

    /// Ends threads and lets go of the lock.
    fn end(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake_all();
        self.join(|_| true);
        self.group.fail();
        self.replicas.waits.fail();
        self.log.prealloc.stop();
        drop(self.lock.lock().take());
    }

    /// Ends without making anything safe, as a crash would. For a store whose last handle goes away.
    pub(crate) fn abandon(&self) {
        if !self.closing.swap(true, Ordering::AcqRel) {
            self.end();
        }
    }
}
