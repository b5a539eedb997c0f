//! The file `checkpoint`: up to which store time the log, the queues and the index are surely on the disk.
//!
//! ```text
//! 4096 bytes, zero but for   +0 i64 log · +8 i64 consume queues · +16 i64 index      store times of messages, in ms
//! ```
//!
//! A value is set here only once the data that it speaks of has been synced, so the file never promises too much.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicI64, Ordering},
};

use parking_lot::Mutex;

use crate::fs::crash_safe::sync_dir;

const LEN: u64 = 4096;

/// The three times.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    log: AtomicI64,
    queues: AtomicI64,
    index: AtomicI64,
    /// A sync failed, so what the disk has of queues or index is unknown: their times stay.
    queues_lost: AtomicBool,
    index_lost: AtomicBool,
    file: Mutex<Option<File>>,
}

impl Checkpoint {
    /// Reads it; all zero if the file is absent or short.
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        let content = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            other => other?,
        };
        let at = |i: usize| {
            content
                .get(i..i + 8)
                .map_or(0, |b| i64::from_be_bytes(std::array::from_fn(|k| b[k])))
        };
        Ok(Self {
            path: path.to_owned(),
            log: AtomicI64::new(at(0)),
            queues: AtomicI64::new(at(8)),
            index: AtomicI64::new(at(16)),
            queues_lost: AtomicBool::new(false),
            index_lost: AtomicBool::new(false),
            file: Mutex::new(None),
        })
    }

    pub(crate) fn log(&self) -> i64 {
        self.log.load(Ordering::Acquire)
    }

    pub(crate) fn queues(&self) -> i64 {
        self.queues.load(Ordering::Acquire)
    }

    pub(crate) fn index(&self) -> i64 {
        self.index.load(Ordering::Acquire)
    }

    pub(crate) fn set_log(&self, time: i64) {
        self.log.store(time, Ordering::Release);
    }

    pub(crate) fn set_queues(&self, time: i64) {
        if !self.queues_lost.load(Ordering::Acquire) {
            self.queues.store(time, Ordering::Release);
        }
    }

    pub(crate) fn set_index(&self, time: i64) {
        if !self.index_lost.load(Ordering::Acquire) {
            self.index.store(time, Ordering::Release);
        }
    }

    /// A sync of queues failed: a later one that succeeds says nothing.
    pub(crate) fn lose_queues(&self) {
        self.queues_lost.store(true, Ordering::Release);
    }

    /// A sync of the index failed: a later one that succeeds says nothing. `true` if it's the first.
    pub(crate) fn lose_index(&self) -> bool {
        !self.index_lost.swap(true, Ordering::AcqRel)
    }

    /// Whether a sync of queues or index failed since the start.
    pub(crate) fn has_lost(&self) -> bool {
        self.queues_lost.load(Ordering::Acquire) || self.index_lost.load(Ordering::Acquire)
    }

    /// Writes and syncs it.
    pub(crate) fn save(&self) -> io::Result<()> {
        let mut slot = self.file.lock();
        let file = match &mut *slot {
            Some(file) => file,
            none => {
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .open(&self.path)?;
                if file.metadata()?.len() != LEN {
                    file.set_len(LEN)?;
                    self.path.parent().map_or(Ok(()), sync_dir)?;
                }
                none.insert(file)
            }
        };
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&self.log().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.queues().to_be_bytes());
        bytes[16..].copy_from_slice(&self.index().to_be_bytes());
        file.write_all_at(&bytes, 0)?;
        file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("checkpoint");
        let checkpoint = Checkpoint::load(&path).unwrap();
        checkpoint.set_log(1_645_600_000_456);
        checkpoint.set_queues(1_645_600_000_456);
        checkpoint.save().unwrap();
        let content = fs::read(&path).unwrap();
        assert_eq!(content.len(), 4096);
        let time = [0, 0, 1, 0x7f, 0x25, 0x67, 0x49, 0xc8];
        assert_eq!(content[..8], time);
        assert_eq!(content[8..16], time);
        assert!(content[16..].iter().all(|b| *b == 0));
        let again = Checkpoint::load(&path).unwrap();
        assert_eq!(
            (again.log(), again.queues(), again.index()),
            (1_645_600_000_456, 1_645_600_000_456, 0)
        );
    }
}
