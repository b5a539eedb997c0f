//! A slave's log copied from the beginning: which state of it may be opened as what, whenever the process ends.
//!
//! ```text
//! ha-copy                      "wanted" or "copying"; absent when the log here is whole
//! commitlog.set-aside          what was there before, until the copy is whole; likewise consumequeue, index, checkpoint
//! ```
//!
//! 1. A slave that its master finds too old writes `wanted`. Nothing is lost by that: opened as a master, the old log is
//!    served.
//! 2. The next opening as a slave moves the old log, queues and index aside, and writes `copying`. Doing it twice, or going
//!    on after a stop in the middle, comes to the same.
//! 3. The log is appended from the master's first file on. A stop in the middle goes on at its end, which the master compares
//!    like any other. A slave that starts empty begins here.
//! 4. When it has all that the master had when it connected, and that is on the disk, `ha-copy` goes, then what is aside.
//!
//! As long as there is `copying`, opening the store as a master is refused: it would serve half of the messages.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{BrokerRole, OpenError, StoreConfig, fs::crash_safe::sync_dir};

/// Name of the file that says how far it is.
pub(crate) const MARK: &str = "ha-copy";
const WANTED: &str = "wanted";
const COPYING: &str = "copying";

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_owned();
    move |source| OpenError::Io { action, path, source }
}

fn read(root: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(root.join(MARK)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn write(root: &Path, text: &str) -> io::Result<()> {
    let new = root.join(format!("{MARK}.tmp"));
    let mut file = File::create(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&new, root.join(MARK))?;
    sync_dir(root)
}

fn remove(path: &Path) -> io::Result<()> {
    let gone = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(e) => Err(e),
    };
    match gone {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What is moved aside, and where to.
fn places(config: &StoreConfig) -> Vec<(PathBuf, PathBuf)> {
    let mut all = config.commit_log_dirs();
    all.extend([
        config.consume_queue_dir(),
        config.consume_queue_ext_dir(),
        config.index_dir(),
        config.root.join("checkpoint"),
    ]);
    let places = all.into_iter().map(|from| {
        let mut aside = OsString::from(&from);
        aside.push(".set-aside");
        (from, PathBuf::from(aside))
    });
    places.collect()
}

/// Whether the log here is being copied from its beginning.
pub(crate) fn is_copying(root: &Path) -> bool {
    // A mark that can't be read is none of a whole log.
    read(root).map_or(true, |mark| mark.is_some_and(|mark| mark != WANTED))
}

/// The master finds the log here too old.
pub(crate) fn want(root: &Path) -> io::Result<()> {
    write(root, WANTED)
}

/// The first bytes of a log are about to be appended.
pub(crate) fn begin(root: &Path) -> io::Result<()> {
    write(root, COPYING)
}

/// All is here and on the disk.
pub(crate) fn finish(config: &StoreConfig) -> io::Result<()> {
    remove(&config.root.join(MARK))?;
    sync_dir(&config.root)?;
    clear(config);
    Ok(())
}

/// Deletes what is aside. What stays is tried again at the next opening.
fn clear(config: &StoreConfig) {
    for (_, aside) in places(config) {
        if fs::symlink_metadata(&aside).is_err() {
            continue;
        }
        match remove(&aside) {
            Ok(()) => {
                tracing::info!(path = %aside.display(), "deleted what the copy from the master replaces");
            }
            Err(error) => {
                tracing::warn!(path = %aside.display(), %error, "cannot delete what the copy from the master replaces; delete it by hand");
            }
        }
    }
}

/// At an opening, with the lock held and before anything is looked at: brings the directory into a state that may be opened.
pub(crate) fn settle(config: &StoreConfig) -> Result<(), OpenError> {
    let (root, slave) = (&config.root, config.role == BrokerRole::Slave);
    let mark_path = root.join(MARK);
    let mark = read(root).map_err(io_error("read", &mark_path))?;
    match mark.as_deref() {
        None => {
            clear(config);
            Ok(())
        }
        Some(WANTED) if slave => {
            if !config.read_only_commit_log_dirs().is_empty() {
                return Err(OpenError::Config(
                    "the master's log is to be copied from its beginning, and readOnlyCommitLogStorePaths names files that belong to the old one: unset that key, and delete them when the copy is whole".to_owned(),
                ));
            }
            tracing::warn!(root = %root.display(), "setting the old log aside: the master's is copied from its beginning");
            for (from, aside) in places(config) {
                set_aside(&from, &aside)?;
            }
            write(root, COPYING).map_err(io_error("write", &mark_path))
        }
        Some(WANTED) => {
            tracing::warn!(root = %root.display(), "this slave was about to copy its master's log and becomes a master: its own log, which is older, is kept");
            remove(&mark_path).map_err(io_error("delete", &mark_path))
        }
        Some(_) if slave => Ok(()),
        Some(_) => Err(OpenError::HalfCopied { path: mark_path }),
    }
}

fn set_aside(from: &Path, aside: &Path) -> Result<(), OpenError> {
    if fs::symlink_metadata(from).is_err() {
        return Ok(());
    }
    if fs::symlink_metadata(aside).is_ok() {
        // What is aside is of before; this is a copy that was never whole.
        remove(from).map_err(io_error("delete", from))?;
    } else {
        fs::rename(from, aside).map_err(io_error("set aside", from))?;
    }
    match from.parent() {
        Some(dir) => sync_dir(dir).map_err(io_error("sync", dir)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slave(root: &Path) -> StoreConfig {
        StoreConfig {
            root: root.to_owned(),
            role: BrokerRole::Slave,
            ..StoreConfig::default()
        }
    }

    fn old_store(root: &Path) {
        for dir in ["commitlog", "consumequeue/T/0", "index", "config"] {
            fs::create_dir_all(root.join(dir)).unwrap();
            fs::write(root.join(dir).join("old"), "old").unwrap();
        }
        fs::write(root.join("checkpoint"), "old").unwrap();
    }

    #[test]
    fn an_end_anywhere_in_setting_aside_comes_to_the_same() {
        let names = ["commitlog", "consumequeue", "index", "checkpoint"];
        for done in 0..=names.len() {
            let dir = tempfile::tempdir().unwrap();
            let root = dir.path();
            old_store(root);
            want(root).unwrap();
            for name in &names[..done] {
                fs::rename(root.join(name), root.join(format!("{name}.set-aside"))).unwrap();
            }
            let config = slave(root);
            settle(&config).unwrap();
            assert!(is_copying(root));
            for name in names {
                assert!(!root.join(name).exists(), "{done} {name}");
                assert!(root.join(format!("{name}.set-aside")).exists(), "{done} {name}");
            }
            assert!(root.join("config/old").exists());
            settle(&config).unwrap();
            assert!(root.join("commitlog.set-aside/old").exists());
            let master = StoreConfig {
                role: BrokerRole::AsyncMaster,
                ..slave(root)
            };
            let refused = settle(&master).unwrap_err();
            assert!(
                matches!(&refused, OpenError::HalfCopied { path } if path.ends_with(MARK)),
                "{refused}"
            );
            finish(&config).unwrap();
            assert!(!is_copying(root));
            assert!(!root.join("commitlog.set-aside").exists());
            settle(&master).unwrap();
        }
    }

    #[test]
    fn all_directories_of_the_log_are_set_aside_and_read_only_ones_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let logs: Vec<_> = ["log-a", "log-b"].map(|name| root.join(name)).to_vec();
        for log in &logs {
            fs::create_dir_all(log).unwrap();
            fs::write(log.join("old"), "old").unwrap();
        }
        let joined = format!("{},{}", logs[0].display(), logs[1].display());
        let config = StoreConfig {
            commit_log_path: Some(PathBuf::from(joined)),
            ..slave(root)
        };
        want(root).unwrap();
        let read_only = StoreConfig {
            read_only_commit_log_paths: Some(logs[1].clone()),
            ..config.clone()
        };
        assert!(matches!(settle(&read_only), Err(OpenError::Config(_))));
        assert!(logs[0].join("old").exists());
        settle(&config).unwrap();
        for log in ["log-a", "log-b"] {
            assert!(!root.join(log).exists());
            assert!(root.join(format!("{log}.set-aside/old")).exists());
        }
    }

    #[test]
    fn a_copy_that_grew_too_old_goes_and_what_was_before_stays() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        old_store(root);
        want(root).unwrap();
        settle(&slave(root)).unwrap();
        fs::create_dir_all(root.join("commitlog")).unwrap();
        fs::write(root.join("commitlog/half"), "half").unwrap();
        want(root).unwrap();
        settle(&slave(root)).unwrap();
        assert!(!root.join("commitlog").exists());
        assert!(root.join("commitlog.set-aside/old").exists());
    }

    #[test]
    fn a_slave_promoted_before_it_began_keeps_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        old_store(root);
        want(root).unwrap();
        let master = StoreConfig {
            role: BrokerRole::SyncMaster,
            ..slave(root)
        };
        settle(&master).unwrap();
        assert!(root.join("commitlog/old").exists());
        assert!(!root.join(MARK).exists());
    }
}
