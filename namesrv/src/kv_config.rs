//! Key-value configuration in namespaces, on disk before it is in effect.
//!
//! ```text
//! {"configTable":{"ORDER_TOPIC_CONFIG":{"TopicTest":"broker-a:4;broker-b:4"}}}
//! ```
//!
//! Every change is saved (see [`ferromq_daemon::durable`]) before readers see it; when saving fails nothing has
//! changed. A namespace stays, empty, when its last key is deleted.

use std::io;
use std::path::PathBuf;

use ferromq_daemon::durable;
use ferromq_protocol::body::{KvConfigFile, KvTable};
use ferromq_protocol::fastjson;
use parking_lot::{Mutex, RwLock};

/// Namespace of the order configuration of topics.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// The table and its file.
#[derive(Debug)]
pub struct KvConfig {
    path: PathBuf,
    table: RwLock<KvConfigFile>,
    /// One change at a time; readers do not wait for the disk.
    changing: Mutex<()>,
}

impl KvConfig {
    /// Loads the file; an absent one is an empty table.
    ///
    /// # Errors
    /// File and backup are damaged or cannot be read.
    pub fn load(path: PathBuf) -> io::Result<Self> {
        let table = durable::load(&path, fastjson::from_slice::<KvConfigFile>)?;
        Ok(Self {
            path,
            table: RwLock::new(table.unwrap_or_default()),
            changing: Mutex::new(()),
        })
    }

    /// Sets a key.
    ///
    /// # Errors
    /// The file cannot be saved; nothing changed.
    pub fn put(&self, namespace: &str, key: &str, value: &str) -> io::Result<()> {
        self.change(|file| {
            file.config_table
                .entry(namespace.to_owned())
                .or_default()
                .insert(key.to_owned(), value.to_owned());
        })
    }

    /// Deletes a key; one that is not there is no error.
    ///
    /// # Errors
    /// The file cannot be saved; nothing changed.
    pub fn delete(&self, namespace: &str, key: &str) -> io::Result<()> {
        if self.get(namespace, key).is_none() {
            return Ok(());
        }
        self.change(|file| {
            if let Some(keys) = file.config_table.get_mut(namespace) {
                keys.remove(key);
            }
        })
    }

    fn change(&self, edit: impl FnOnce(&mut KvConfigFile)) -> io::Result<()> {
        let _one = self.changing.lock();
        let mut next = self.table.read().clone();
        edit(&mut next);
        durable::save(&self.path, &fastjson::to_vec(&next))?;
        *self.table.write() = next;
        Ok(())
    }

    /// The value of a key.
    pub fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.table.read().config_table.get(namespace)?.get(key).cloned()
    }

    /// All of a namespace, if it ever existed.
    pub fn namespace(&self, namespace: &str) -> Option<KvTable> {
        self.table
            .read()
            .config_table
            .get(namespace)
            .map(|keys| KvTable { table: keys.clone() })
    }

    /// Logs all of it.
    pub fn log(&self) {
        let table = self.table.read();
        for (namespace, keys) in &table.config_table {
            for (key, value) in keys {
                tracing::info!(%namespace, %key, %value, "key-value configuration");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_survive_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("namesrv/kvConfig.json");
        let kv = KvConfig::load(path.clone()).unwrap();
        kv.put("ns", "a", "1").unwrap();
        kv.put("ns", "a", "2").unwrap();
        kv.put("ns", "b", "中").unwrap();
        kv.delete("ns", "b").unwrap();
        kv.delete("nobody", "b").unwrap();
        let again = KvConfig::load(path).unwrap();
        assert_eq!(again.get("ns", "a").as_deref(), Some("2"));
        assert_eq!(again.get("ns", "b"), None);
        assert_eq!(again.namespace("nobody"), None);
    }

    #[test]
    fn an_emptied_namespace_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv.json");
        let kv = KvConfig::load(path.clone()).unwrap();
        kv.put("ns", "a", "1").unwrap();
        kv.delete("ns", "a").unwrap();
        assert!(kv.namespace("ns").unwrap().table.is_empty());
        assert!(KvConfig::load(path).unwrap().namespace("ns").is_some());
    }

    #[test]
    fn javas_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv.json");
        std::fs::write(
            &path,
            "{\n\t\"configTable\":{\"ORDER_TOPIC_CONFIG\":{\"T\":\"broker-a:4\"\n\t\t}\n\t}\n}",
        )
        .unwrap();
        let kv = KvConfig::load(path).unwrap();
        assert_eq!(kv.get(ORDER_TOPIC_CONFIG, "T").as_deref(), Some("broker-a:4"));
    }

    #[test]
    fn what_cannot_be_saved_does_not_change() {
        let dir = tempfile::tempdir().unwrap();
        let blocked = dir.path().join("file");
        std::fs::write(&blocked, "").unwrap();
        // A folder cannot be made where a file is.
        let kv = KvConfig {
            path: blocked.join("kv.json"),
            table: RwLock::default(),
            changing: Mutex::new(()),
        };
        assert!(kv.put("ns", "a", "1").is_err());
        assert_eq!(kv.get("ns", "a"), None);
    }

    #[test]
    fn damage_is_reported_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kv.json");
        std::fs::write(&path, "{\"configTable\":").unwrap();
        assert!(
            KvConfig::load(path.clone())
                .unwrap_err()
                .to_string()
                .contains("kv.json")
        );
        assert!(path.exists());
    }
}
