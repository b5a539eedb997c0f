//! The broker's JSON tables on disk, under `storePathRootDir/config`.
//!
//! A table is written beside its file, synced, and renamed over it; the file before is kept as `.bak`, which
//! is read when the file is missing or broken. What holds: a save returns only when the state at its call,
//! or a newer one, is on disk; savers that queue up behind one another write once.

use std::path::{Path, PathBuf};

use ferromq_protocol::fastjson;
use ferromq_store::json_table::{self, TableError};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One table's file.
#[derive(Debug)]
pub(crate) struct TableFile {
    path: PathBuf,
    /// The change count of the state on disk, when it was written by this process.
    saved: Mutex<Option<u64>>,
}

impl TableFile {
    pub(crate) fn new(root: &Path, name: &str) -> Self {
        Self {
            path: root.join("config").join(name),
            saved: Mutex::new(None),
        }
    }

    /// Whether this one was written after the other, or the other is not there.
    pub(crate) fn is_newer_than(&self, other: &Self) -> bool {
        let written = |file: &Self| file.path.metadata().and_then(|m| m.modified()).ok();
        written(self) > written(other)
    }

    /// The table of the file or of its `.bak`; an empty one when neither exists.
    pub(crate) fn load<T: DeserializeOwned + Default>(&self) -> Result<T, TableError> {
        Ok(json_table::load_with(&self.path, fastjson::from_slice)?.unwrap_or_default())
    }

    /// Writes the table unless the state that `changes` counts is on disk already. Blocks on the disk.
    pub(crate) fn save<T: Serialize>(
        &self,
        changes: impl Fn() -> u64,
        table: impl FnOnce() -> T,
    ) -> Result<(), TableError> {
        let mut saved = self.saved.lock();
        // Counted before the table is read: what is written is at least as new as the count says.
        let count = changes();
        if *saved == Some(count) {
            return Ok(());
        }
        json_table::save_durably(&self.path, &fastjson::to_vec(&table()))?;
        *saved = Some(count);
        Ok(())
    }

    /// Marks the loaded state as the one on disk.
    pub(crate) fn clean(&self, changes: u64) {
        *self.saved.lock() = Some(changes);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Table = BTreeMap<String, i32>;

    #[test]
    fn what_was_saved_is_loaded_and_saved_once() {
        let root = tempfile::tempdir().unwrap();
        let file = TableFile::new(root.path(), "t.json");
        assert_eq!(file.load::<Table>().unwrap(), Table::new());
        let table = Table::from([("a".into(), 1)]);
        file.save(|| 1, || table.clone()).unwrap();
        file.save(|| 1, || -> Table { panic!("saved already") }).unwrap();
        assert_eq!(file.load::<Table>().unwrap(), table);
    }

    #[test]
    fn a_broken_file_falls_back_to_its_bak() {
        let root = tempfile::tempdir().unwrap();
        let file = TableFile::new(root.path(), "t.json");
        file.save(|| 1, || Table::from([("a".into(), 1)])).unwrap();
        file.save(|| 2, || Table::from([("a".into(), 2)])).unwrap();
        std::fs::write(&file.path, "{\"a\":").unwrap();
        assert_eq!(file.load::<Table>().unwrap(), Table::from([("a".into(), 1)]));
        std::fs::write(&file.path, "").unwrap();
        assert_eq!(file.load::<Table>().unwrap(), Table::from([("a".into(), 1)]));
    }

    #[test]
    fn nothing_readable_stops_the_start_with_the_files_name() {
        let root = tempfile::tempdir().unwrap();
        let file = TableFile::new(root.path(), "t.json");
        std::fs::create_dir_all(root.path().join("config")).unwrap();
        std::fs::write(&file.path, "[").unwrap();
        let error = file.load::<Table>().unwrap_err().to_string();
        assert!(error.contains("t.json"), "{error}");
    }
}
