//! What can go wrong, by what the caller can do about it.

use std::{io, path::PathBuf};

/// The store couldn't be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process has the store.
    #[error("the store {path} is in use by another process{}; stop that one, or give this broker a storePathRootDir of its own", holder.map_or_else(String::new, |pid| format!(" (pid {pid})")))]
    Locked {
        /// The store's root directory.
        path: PathBuf,
        /// The process that has it, if the system says.
        holder: Option<i32>,
    },
    /// A setting is impossible.
    #[error("the store cannot work with this configuration: {0}")]
    Config(String),
    /// A file of the log has another length than configured.
    #[error(
        "{path} has {found} bytes where mappedFileSizeCommitLog says {expected}; set the size that the store was made with"
    )]
    FileLength {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// A consume queue file has another length than configured.
    #[error(
        "{path} has {found} bytes where mappedFileSizeConsumeQueue says {expected}; set the size that the store was made with"
    )]
    QueueFileLength {
        /// The file.
        path: PathBuf,
        /// Its length.
        found: u64,
        /// What it should be.
        expected: u64,
    },
    /// The log's files don't follow each other.
    #[error(
        "the log has a gap: {path} should start at {expected}; restore the missing file, or move the files after the gap away"
    )]
    Gap {
        /// The file after the gap.
        path: PathBuf,
        /// Where the file should start.
        expected: u64,
    },
    /// The system refused something.
    #[error("cannot {action} {path}: {source}; look at the directory's rights and its disk")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A slave's copy of its master's log isn't whole, and the store is to be opened as a master's.
    #[error(
        "the log here is an unfinished copy of a master's, {path} says so: start this broker as a slave until the copy is whole; or, to be a master with half of the messages, delete that file; or, to go back to what was there before, also put each *.set-aside back under its name"
    )]
    HalfCopied {
        /// The file that says so.
        path: PathBuf,
    },
    /// One of the further dispatchers couldn't take what it lacks of the log.
    #[error("a dispatcher that was given to the store cannot catch up with the log: {0}")]
    Dispatcher(io::Error),
    /// A table under `config/` can't be read, nor its copy.
    #[error(transparent)]
    Table(#[from] crate::json_table::TableError),
}

/// The store couldn't be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Already started, or already shut down.
    #[error("the store was started before; open it anew")]
    AlreadyStarted,
    /// The log couldn't be dispatched to its queues.
    #[error("cannot bring the consume queues up to the log: {0}; look at the disk of the store")]
    Dispatch(String),
    /// The system refused something.
    #[error("cannot {action} {path}: {source}; look at the directory's rights and its disk")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// The store couldn't be shut down in order; what wasn't flushed is recovered at the next start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The system refused something.
    #[error("cannot {action} {path} while stopping: {source}; the next start recovers from the log")]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why the store takes no appends at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteRefusal {
    /// Not started yet.
    #[error("the store is not started yet; try again in a moment")]
    NotStarted,
    /// Stopping or stopped.
    #[error("the store is shutting down; send to another broker")]
    ShutDown,
    /// This is a slave.
    #[error("this broker is a slave; send to the master")]
    Slave,
    /// The disk is nearly full. Ends by itself when there is room again.
    #[error("the disk of the store is full; free space, or wait until old files are deleted")]
    DiskFull,
    /// A flush failed: what the disk has is unknown until the broker is restarted.
    #[error("a flush to the disk failed; check the disk, then restart the broker")]
    FlushFailed,
    /// A consume queue couldn't be written.
    #[error("a consume queue cannot be written; check the disk, then restart the broker")]
    QueueError,
}

/// Nothing was stored, and why.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// Java's SERVICE_NOT_AVAILABLE (response code 14).
    #[error("{0}")]
    NotWritable(#[from] WriteRefusal),
    /// Java's OS_PAGECACHE_BUSY (response code 1 or 2).
    #[error("the page cache is busy: an append has held the lock for {0} ms; send more slowly")]
    PageCacheBusy(u64),
    /// Java's MESSAGE_ILLEGAL (response code 13).
    #[error("the message is illegal: {0}")]
    Illegal(String),
    /// Java's LMQ_CONSUME_QUEUE_NUM_EXCEEDED (response code 1).
    #[error(
        "there are {0} light queues already; raise maxLmqConsumeQueueNum, or delete topics that begin with %LMQ%"
    )]
    TooManyLightQueues(usize),
    /// Java's PROPERTIES_SIZE_EXCEEDED (response code 13).
    #[error("the properties take {0} bytes; at most 32767 fit into a record")]
    PropertiesTooLong(usize),
    /// Java's CREATE_MAPEDFILE_FAILED (response code 1).
    #[error("cannot create the next log file: {0}; look at the disk of the store")]
    CreateFile(io::Error),
    /// Java's UNKNOWN_ERROR (response code 1).
    #[error("cannot append to the log: {0}")]
    Unknown(String),
}

/// A read found no answer for reasons other than the offset.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Stopping or stopped.
    #[error("the store is shut down; ask another broker")]
    ShutDown,
    /// The system refused something.
    #[error("cannot read {path}: {source}; look at the disk of the store")]
    Io {
        /// On what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}
