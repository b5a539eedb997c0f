//! Where a consumer keeps how far it has come.
//!
//! In memory first; every few seconds, when a queue leaves, and at the end, what changed goes to the broker (a
//! clustering group shares its offsets) or to a file (of a broadcasting group every member has its own).
//!
//! The file is `{dir}/{instance}/{group}/offsets.json` with Java's content, `{"offsetTable":{{queue}:offset,…}}`. It is
//! replaced whole, by renaming; the one before stays as `offsets.json.bak` and is read when the file is damaged. When
//! both are, the consumer starts where a new one would: damage never stops it. Queues that are not there for a while
//! keep their offsets.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use ferromq_protocol::body::ResetOffsetBody;
use ferromq_protocol::fastjson;
use futures::future::join_all;
use parking_lot::Mutex;

use crate::MessageQueue;
use crate::error::{ClientError, Result};
use crate::fetch::Fetcher;

/// Questions to one broker at the same time.
const AT_ONCE: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Known {
    offset: i64,
    changed: bool,
}

#[derive(Debug)]
enum Place {
    Broker { fetcher: Fetcher, group: String },
    File(PathBuf),
}

#[derive(Debug)]
pub(crate) struct OffsetStore {
    place: Place,
    known: Mutex<HashMap<MessageQueue, Known>>,
    /// One save of the file at a time.
    saving: tokio::sync::Mutex<()>,
}

impl OffsetStore {
    /// Of a clustering group.
    pub(crate) fn at_broker(fetcher: Fetcher, group: String) -> Self {
        Self::new(Place::Broker { fetcher, group }, HashMap::new())
    }

    /// Of one member of a broadcasting group.
    pub(crate) fn in_file(path: PathBuf) -> Self {
        let known = load(&path).into_iter().map(|(queue, offset)| {
            let known = Known {
                offset,
                changed: false,
            };
            (queue, known)
        });
        let known = known.collect();
        Self::new(Place::File(path), known)
    }

    fn new(place: Place, known: HashMap<MessageQueue, Known>) -> Self {
        Self {
            place,
            known: Mutex::new(known),
            saving: tokio::sync::Mutex::new(()),
        }
    }

    /// The offset in memory.
    pub(crate) fn get(&self, queue: &MessageQueue) -> Option<i64> {
        self.known.lock().get(queue).map(|known| known.offset)
    }

    /// The stored offset: that in memory, else the broker's.
    pub(crate) async fn read(&self, queue: &MessageQueue) -> Result<Option<i64>> {
        if let Some(offset) = self.get(queue) {
            return Ok(Some(offset));
        }
        match &self.place {
            Place::File(_) => Ok(None),
            Place::Broker { fetcher, group } => {
                let broker = fetcher.master(queue).await?;
                let admin = fetcher.client().admin();
                admin
                    .group_offset(&broker, group, &queue.topic, queue.queue_id)
                    .await
            }
        }
    }

    /// Notes how far a queue is done; never goes back.
    pub(crate) fn advance(&self, queue: &MessageQueue, offset: i64) {
        let mut known = self.known.lock();
        match known.get_mut(queue) {
            Some(known) if known.offset >= offset => {}
            Some(known) => {
                *known = Known {
                    offset,
                    changed: true,
                }
            }
            None => {
                let entry = Known {
                    offset,
                    changed: true,
                };
                known.insert(queue.clone(), entry);
            }
        }
    }

    /// Notes an offset whatever was there.
    pub(crate) fn set(&self, queue: &MessageQueue, offset: i64) {
        let entry = Known {
            offset,
            changed: true,
        };
        self.known.lock().insert(queue.clone(), entry);
    }

    /// Takes a queue out of the memory: its next reader asks the broker, which another member may have told more.
    pub(crate) fn forget(&self, queue: &MessageQueue) {
        if matches!(self.place, Place::Broker { .. }) {
            self.known.lock().remove(queue);
        }
    }

    /// All offsets in memory of a topic.
    pub(crate) fn of_topic(&self, topic: &str) -> BTreeMap<MessageQueue, i64> {
        let known = self.known.lock();
        let of_topic = known.iter().filter(|(queue, _)| queue.topic == topic);
        of_topic
            .map(|(queue, known)| (queue.clone(), known.offset))
            .collect()
    }

    /// Stores what has changed since the last time, of all queues.
    ///
    /// # Errors
    /// The first that came; the others are tried all the same, and what failed is tried again the next time.
    pub(crate) async fn persist(&self) -> Result<()> {
        let changed: Vec<MessageQueue> = {
            let known = self.known.lock();
            let changed = known.iter().filter(|(_, known)| known.changed);
            changed.map(|(queue, _)| queue.clone()).collect()
        };
        self.persist_queues(&changed).await
    }

    /// Stores the offsets of these queues if they changed.
    pub(crate) async fn persist_queues(&self, queues: &[MessageQueue]) -> Result<()> {
        if queues.is_empty() {
            return Ok(());
        }
        match &self.place {
            Place::File(path) => {
                let _one = self.saving.lock().await;
                let table = {
                    let mut known = self.known.lock();
                    known.values_mut().for_each(|known| known.changed = false);
                    known
                        .iter()
                        .map(|(queue, known)| (queue.clone(), known.offset))
                        .collect()
                };
                let (file, body) = (path.clone(), ResetOffsetBody { offset_table: table });
                let saved = tokio::task::spawn_blocking(move || save(&file, &fastjson::to_vec(&body))).await;
                match saved {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(error)) => Err(unsaved(path, &error.to_string())),
                    Err(error) => Err(unsaved(path, &error.to_string())),
                }
            }
            Place::Broker { fetcher, group } => {
                let mut by_broker: BTreeMap<&str, Vec<(&MessageQueue, i64)>> = BTreeMap::new();
                for queue in queues {
                    let known = self.known.lock().get(queue).copied();
                    if let Some(known) = known.filter(|known| known.changed) {
                        let of_broker = by_broker.entry(&queue.broker_name).or_default();
                        of_broker.push((queue, known.offset));
                    }
                }
                let mut brokers = Vec::new();
                for queues in by_broker.into_values() {
                    brokers.push(self.tell_broker(fetcher, group, queues));
                }
                join_all(brokers).await.into_iter().collect()
            }
        }
    }

    /// Tells one broker. When it cannot be reached the rest waits for the next time, and no other broker for it.
    ///
    /// One queue of each topic goes before the topic's others: Java's broker makes a group's table for a topic at its first
    /// offset, and of two that come at the same time it may lose one, having said that it has stored it.
    async fn tell_broker(&self, fetcher: &Fetcher, group: &str, queues: Offsets<'_>) -> Result<()> {
        let mut result = Ok(());
        let (first, others) = first_of_each_topic(queues);
        for some in first.chunks(AT_ONCE).chain(others.chunks(AT_ONCE)) {
            let mut tells = Vec::new();
            for (queue, offset) in some {
                tells.push(self.tell(fetcher, group, queue, *offset));
            }
            for told in join_all(tells).await {
                if result.is_ok() {
                    result = told;
                }
            }
            if result.as_ref().is_err_and(ClientError::is_unreachable) {
                break;
            }
        }
        result
    }

    async fn tell(&self, fetcher: &Fetcher, group: &str, queue: &MessageQueue, offset: i64) -> Result<()> {
        let broker = fetcher.master(queue).await?;
        let admin = fetcher.client().admin();
        admin
            .set_group_offset(&broker, group, &queue.topic, queue.queue_id, offset)
            .await?;
        if let Some(known) = self.known.lock().get_mut(queue)
            && known.offset == offset
        {
            known.changed = false;
        }
        Ok(())
    }
}

type Offsets<'a> = Vec<(&'a MessageQueue, i64)>;

/// One queue of each topic, and the others.
fn first_of_each_topic(queues: Offsets<'_>) -> (Offsets<'_>, Offsets<'_>) {
    let mut topics = HashSet::new();
    queues
        .into_iter()
        .partition(|(queue, _)| topics.insert(queue.topic.as_str()))
}

fn unsaved(path: &Path, reason: &str) -> ClientError {
    ClientError::Offsets {
        path: path.to_owned(),
        reason: reason.to_owned(),
    }
}

/// The file's offsets, else those of the file before it, else none.
fn load(path: &Path) -> BTreeMap<MessageQueue, i64> {
    for path in [path.to_owned(), backup(path)] {
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the offsets cannot be read");
                continue;
            }
        };
        match fastjson::from_slice::<ResetOffsetBody>(&bytes) {
            Ok(body) => return body.offset_table,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "the offsets are damaged; the older copy is tried");
            }
        }
    }
    BTreeMap::new()
}

fn backup(path: &Path) -> PathBuf {
    path.with_extension("json.bak")
}

fn save(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    let aside = path.with_extension("json.tmp");
    let mut file = std::fs::File::create(&aside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    match std::fs::rename(path, backup(path)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::rename(aside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_queue_of_each_topic_goes_first() {
        let of = |topic: &str, id| MessageQueue::new(topic, "b", id);
        let queues = [of("T", 0), of("T", 1), of("U", 3), of("T", 2), of("U", 0)];
        let (first, others) = first_of_each_topic(queues.iter().map(|queue| (queue, 7)).collect());
        assert_eq!(first, [(&queues[0], 7), (&queues[2], 7)]);
        assert_eq!(others, [(&queues[1], 7), (&queues[3], 7), (&queues[4], 7)]);
    }

    fn queue(id: i32) -> MessageQueue {
        MessageQueue::new("T", "b", id)
    }

    #[tokio::test]
    async fn a_file_survives_restarts_and_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ip@DEFAULT/G/offsets.json");
        let store = OffsetStore::in_file(path.clone());
        assert_eq!(store.read(&queue(0)).await.unwrap(), None);
        store.advance(&queue(0), 5);
        store.advance(&queue(0), 3);
        store.persist().await.unwrap();
        store.advance(&queue(1), 9);
        store.persist().await.unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            r#"{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5,{"brokerName":"b","queueId":1,"topic":"T"}:9}}"#
        );
        let again = OffsetStore::in_file(path.clone());
        assert_eq!((again.get(&queue(0)), again.get(&queue(1))), (Some(5), Some(9)));
        again.forget(&queue(0));
        assert_eq!(again.get(&queue(0)), Some(5), "a file is the only place there is");
        for damage in ["", "{", "\u{0}\u{0}", "{\"offsetTable\":{{\"brok"] {
            std::fs::write(&path, damage).unwrap();
            let older = OffsetStore::in_file(path.clone());
            assert_eq!(
                (older.get(&queue(0)), older.get(&queue(1))),
                (Some(5), None),
                "{damage:?}"
            );
        }
        std::fs::write(backup(&path), "x").unwrap();
        assert_eq!(OffsetStore::in_file(path).get(&queue(0)), None);
    }
}
