//! A table of named rows with a data version, as topics and groups are kept.
//!
//! What holds: every change of a row raises the data version and the count of changes, nothing else raises the version;
//! a row is handed out as an `Arc`, so a reader keeps a consistent one while another replaces it; two that make the
//! same row get the same one.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ferromq_protocol::body::DataVersion;
use parking_lot::RwLock;

/// A table at one time; what is done under one lock.
#[derive(Debug)]
pub(crate) struct Rows<T> {
    by_name: HashMap<String, Arc<T>>,
    version: DataVersion,
    changes: u64,
}

impl<T> Rows<T> {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<T>> {
        self.by_name.get(name)
    }

    /// Makes or replaces a row.
    pub(crate) fn set(&mut self, name: &str, row: Arc<T>, now: i64) {
        self.by_name.insert(name.to_owned(), row);
        self.changed(now);
    }

    fn changed(&mut self, now: i64) {
        self.version = self.version.next(now);
        self.changes += 1;
    }

    /// Changes rows as the table's owner sees fit, without a new version. The state has to be saved again.
    pub(crate) fn adjust(&mut self, name: &str, change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        if let Some(row) = self.by_name.get_mut(name) {
            change(Arc::make_mut(row));
            self.changes += 1;
        }
    }
}

/// The table.
#[derive(Debug)]
pub(crate) struct Versioned<T> {
    inner: RwLock<Rows<T>>,
}

impl<T: Clone + PartialEq> Versioned<T> {
    /// A table with these rows. A version that was never dated is dated now.
    pub(crate) fn new(rows: HashMap<String, Arc<T>>, mut version: DataVersion, now: i64) -> Self {
        if version.timestamp == 0 {
            version.timestamp = now;
        }
        Self {
            inner: RwLock::new(Rows {
                by_name: rows,
                version,
                changes: 0,
            }),
        }
    }

    /// All rows by name, with the version that they make up.
    pub(crate) fn snapshot(&self) -> (BTreeMap<String, T>, DataVersion) {
        let inner = self.inner.read();
        let rows = inner
            .by_name
            .iter()
            .map(|(name, row)| (name.clone(), (**row).clone()));
        (rows.collect(), inner.version)
    }

    pub(crate) fn version(&self) -> DataVersion {
        self.inner.read().version
    }

    /// The number of changes since the start; equal numbers mean an unchanged table.
    pub(crate) fn changes(&self) -> u64 {
        self.inner.read().changes
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<T>> {
        self.inner.read().by_name.get(name).cloned()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.inner.read().by_name.contains_key(name)
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.inner.read().by_name.values().cloned().collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.inner.read().by_name.keys().cloned().collect()
    }

    /// Makes or replaces a row. Returns false when it was like that already.
    pub(crate) fn put(&self, name: &str, row: T, now: i64) -> bool {
        let mut inner = self.inner.write();
        if inner.by_name.get(name).is_some_and(|old| **old == row) {
            return false;
        }
        inner.set(name, Arc::new(row), now);
        true
    }

    /// The row, made when it is missing; and whether it was made now.
    pub(crate) fn get_or_make(&self, name: &str, make: impl FnOnce() -> T, now: i64) -> (Arc<T>, bool) {
        if let Some(found) = self.get(name) {
            return (found, false);
        }
        self.with(|rows| {
            if let Some(found) = rows.get(name) {
                return (found.clone(), false);
            }
            let row = Arc::new(make());
            rows.set(name, row.clone(), now);
            (row, true)
        })
    }

    /// Does something under the table's lock.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Rows<T>) -> R) -> R {
        work(&mut self.inner.write())
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&self, name: &str, now: i64) -> bool {
        let mut inner = self.inner.write();
        let removed = inner.by_name.remove(name).is_some();
        if removed {
            inner.changed(now);
        }
        removed
    }

    /// Raises the version without a change of rows.
    pub(crate) fn touch(&self, now: i64) {
        self.inner.write().changed(now);
    }

    /// Takes over another table as it is, version and all. Returns false when this is that version already.
    pub(crate) fn replace(&self, new: Self) -> bool {
        let new = new.inner.into_inner();
        let mut inner = self.inner.write();
        if inner.version == new.version {
            return false;
        }
        inner.by_name = new.by_name;
        inner.version = new.version;
        inner.changes += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Versioned<i32> {
        Versioned::new(HashMap::new(), DataVersion::default(), 7)
    }

    #[test]
    fn only_changes_raise_the_version() {
        let table = table();
        assert_eq!((table.version().timestamp, table.changes()), (7, 0));
        assert!(table.put("a", 1, 8) && !table.put("a", 1, 9) && table.put("a", 2, 9));
        assert!(table.get_or_make("b", || 5, 10).1 && !table.get_or_make("b", || 6, 11).1);
        assert_eq!((table.version().counter, table.version().timestamp), (3, 10));
        table.with(|rows| rows.adjust("a", |row| *row = 9));
        assert_eq!((table.version().counter, table.changes()), (3, 4));
        assert_eq!(*table.get("a").unwrap(), 9);
        assert!(table.remove("a", 12) && !table.remove("a", 13));
        table.touch(14);
        assert_eq!((table.version().counter, table.changes()), (5, 6));
    }

    #[test]
    fn another_table_is_taken_over_once() {
        let (table, other) = (table(), table());
        other.put("x", 1, 9);
        let (rows, version) = other.snapshot();
        let copy = || {
            Versioned::new(
                rows.iter().map(|(k, v)| (k.clone(), Arc::new(*v))).collect(),
                version,
                0,
            )
        };
        assert!(table.replace(copy()) && !table.replace(copy()));
        assert_eq!((table.names(), table.version()), (vec!["x".to_owned()], version));
    }
}
