//! The lock that keeps a second process out of the store: a POSIX record lock on the file `lock`, as Java takes it.
//!
//! Such a lock belongs to the process and is lost when *any* descriptor of the file is closed, so a list of the
//! roots that this process has open is looked at before the file is touched.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, fcntl_lock};

use super::crash_safe::is_full;

static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// The lock, held until dropped.
#[derive(Debug)]
pub(crate) struct StoreLock {
    path: PathBuf,
    _file: File,
}

/// Why the lock wasn't taken.
#[derive(Debug)]
pub(crate) enum LockError {
    /// Somebody has it.
    Held,
    /// The system refused.
    Io(io::Error),
}

impl StoreLock {
    /// Takes the lock of the store in `root`, which must exist.
    pub(crate) fn take(root: &Path) -> Result<Self, LockError> {
        let path = root.canonicalize().map_err(LockError::Io)?.join("lock");
        let mut held = HELD.lock();
        if held.contains(&path) {
            return Err(LockError::Held);
        }
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(LockError::Io)?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::ACCESS | rustix::io::Errno::AGAIN) => return Err(LockError::Held),
            Err(e) => return Err(LockError::Io(e.into())),
        }
        // Nobody reads what it says: a full disk is no reason to stay closed.
        match file.metadata().map(|m| m.len()) {
            Ok(0) => match file.write_all(b"lock") {
                Err(e) if !is_full(&e) => return Err(LockError::Io(e)),
                _ => {}
            },
            other => {
                other.map_err(LockError::Io)?;
            }
        }
        held.insert(path.clone());
        Ok(Self { path, _file: file })
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        HELD.lock().remove(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = StoreLock::take(dir.path()).unwrap();
        assert!(matches!(StoreLock::take(dir.path()), Err(LockError::Held)));
        drop(first);
        let again = StoreLock::take(dir.path()).unwrap();
        assert_eq!(std::fs::read(dir.path().join("lock")).unwrap(), b"lock");
        drop(again);
    }
}
