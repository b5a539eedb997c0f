//! Taking messages: limits, the way through the delay topic, encoding outside the put lock, the acknowledgement.

use std::{
    cell::RefCell,
    net::SocketAddr,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ferromq_protocol::{
    batch,
    names::topics,
    properties::{self, MAX_LEN, names},
    record::{BLANK_LEN, MAX_TOPIC, RecordDraft},
    sysflag,
};

use crate::{
    BrokerRole, FlushMode, Put, PutBatch, PutError, PutMessage, PutStatus,
    commit_log::{AppendError, Appended, Encoded},
    consume_queue::Queue,
    core::{Core, Flags},
    fs::crash_safe::is_full,
    places,
    requests::Ack,
};

/// What a record may have beyond the body's limit.
const BEYOND_BODY: usize = 64 << 10;

thread_local! {
    static ENCODED: RefCell<Encoded> = RefCell::new(Encoded::default());
}

fn check_names(topic: &str, queue_id: i32, properties: &str) -> Result<(), PutError> {
    if topic.is_empty() || topic.len() > MAX_TOPIC {
        return Err(PutError::Illegal(format!(
            "a topic has 1 to {MAX_TOPIC} characters, this one {}",
            topic.len()
        )));
    }
    if let Some(bad) = topic
        .chars()
        .find(|c| !c.is_ascii_alphanumeric() && !matches!(c, '%' | '|' | '_' | '-'))
    {
        return Err(PutError::Illegal(format!(
            "the topic {topic:?} has the character {bad:?}; allowed are %|a-zA-Z0-9_-"
        )));
    }
    if queue_id < 0 {
        return Err(PutError::Illegal(format!("the queue {queue_id} is negative")));
    }
    if properties.len() > MAX_LEN {
        let chars = properties.encode_utf16().count();
        return Err(if chars > MAX_LEN {
            PutError::Illegal(format!(
                "the properties have {chars} characters; at most {MAX_LEN} are allowed"
            ))
        } else {
            PutError::PropertiesTooLong(properties.len())
        });
    }
    Ok(())
}

/// Where a delayed message waits: queue and properties in the delay topic.
fn delayed(message: &PutMessage<'_>, max_level: i32) -> Option<(i32, String)> {
    let asked = properties::get(message.properties, names::DELAY)?
        .parse::<i32>()
        .ok()
        .filter(|l| *l > 0)?;
    let level = asked.min(max_level);
    if level < 1 {
        return None;
    }
    let mut changed = properties::Builder::parse(message.properties);
    if level != asked {
        changed.put(names::DELAY, level.to_string());
    }
    changed.put(names::REAL_TOPIC, message.topic);
    changed.put(names::REAL_QID, message.queue_id.to_string());
    Some((level - 1, changed.build()))
}

impl Core {
    fn ready_to_put(&self) -> Result<(), PutError> {
        self.writable()?;
        let locked = self.log.locked_for();
        if locked > self.config.page_cache_busy_timeout && locked < 10_000_000 {
            return Err(PutError::PageCacheBusy(locked));
        }
        Ok(())
    }

    /// Appends one message; `delay` says whether its DELAY counts.
    pub(crate) fn put(&self, message: &PutMessage<'_>, delay: bool) -> Result<Put, PutError> {
        let result = self.try_put(message, delay);
        if result.is_err() {
            self.totals.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn try_put(&self, message: &PutMessage<'_>, delay: bool) -> Result<Put, PutError> {
        self.ready_to_put()?;
        check_names(message.topic, message.queue_id, message.properties)?;
        self.check_body(message.body.len())?;
        let transaction = sysflag::transaction(message.sys_flag);
        let queued = matches!(transaction, 0 | sysflag::TRANSACTION_COMMIT);
        let waiting = if queued && delay {
            delayed(message, self.config.delay_levels.max_level())
        } else {
            None
        };
        let (topic, queue_id, properties) = match &waiting {
            Some((queue_id, properties)) => (topics::SCHEDULE, *queue_id, properties.as_str()),
            None => (message.topic, message.queue_id, message.properties),
        };
        if properties.len() > MAX_LEN {
            return Err(PutError::PropertiesTooLong(properties.len()));
        }
        let draft = RecordDraft {
            topic,
            queue_id,
            flag: message.flag,
            sys_flag: message.sys_flag,
            born_timestamp: message.born_timestamp,
            born_host: message.born_host,
            store_host: self.config.store_host,
            reconsume_times: message.reconsume_times,
            prepared_transaction_offset: message.prepared_transaction_offset,
            body: message.body,
            properties: properties.as_bytes(),
        };
        ENCODED.with_borrow_mut(|encoded| {
            encoded.clear();
            if self.config.enable_multi_dispatch && places::wanted(properties, queue_id).next().is_some() {
                return self.append_listed(&draft, properties, encoded, queued, message.wait_store_ok);
            }
            encoded.push(&draft);
            self.append(topic, queue_id, encoded, queued, message.wait_store_ok)
        })
    }

    /// Appends a message that lists further queues to be in.
    fn append_listed(
        &self,
        draft: &RecordDraft<'_>,
        properties: &str,
        encoded: &mut Encoded,
        queued: bool,
        wait: bool,
    ) -> Result<Put, PutError> {
        let names: Vec<(&str, i32)> = places::wanted(properties, draft.queue_id).collect();
        for (topic, queue_id) in &names {
            check_names(topic, *queue_id, "")?;
        }
        // 20 digits and a comma are the most that an offset takes.
        let longest = properties.len() + names::INNER_MULTI_QUEUE_OFFSET.len() + 2 + 21 * names.len();
        if longest > MAX_LEN {
            return Err(PutError::PropertiesTooLong(longest));
        }
        let longest = draft.body.len() + longest + draft.topic.len() + BLANK_LEN + 256;
        if longest as u64 > self.config.commit_log_file_size {
            return Err(self.too_long(longest));
        }
        let (appended, size) = loop {
            let queue = self.dispatch.queues.find_or_make(draft.topic, draft.queue_id);
            let mut listed = Vec::with_capacity(names.len());
            for (topic, queue_id) in &names {
                listed.push(self.listed_queue(topic, *queue_id)?);
            }
            let mut encode = |encoded: &mut Encoded, offsets: &[i64]| {
                let properties = places::with_offsets(properties, offsets.iter().copied());
                encoded.push(&RecordDraft {
                    properties: properties.as_bytes(),
                    ..*draft
                });
            };
            let result = self
                .log
                .append_listed(&queue, &listed, encoded, queued, &mut encode);
            if let Some(appended) = self.judge(result, encoded.len())? {
                break (appended, encoded.len());
            }
        };
        Ok(self.appended(appended, size, vec![appended.physical], wait))
    }

    /// A queue that a message lists, made if there's none and there may be one more.
    fn listed_queue(&self, topic: &str, queue_id: i32) -> Result<Arc<Queue>, PutError> {
        let queues = &self.dispatch.queues;
        if let Some(queue) = queues.find(topic, queue_id) {
            return Ok(queue);
        }
        if self.config.enable_lmq && places::is_light(topic) {
            let have = queues.count_topics(places::is_light);
            if have >= self.config.max_lmq_queues {
                return Err(PutError::TooManyLightQueues(have));
            }
        }
        Ok(queues.find_or_make(topic, queue_id))
    }

    fn too_long(&self, size: usize) -> PutError {
        PutError::Illegal(format!(
            "{size} bytes don't fit into a log file of {} (mappedFileSizeCommitLog)",
            self.config.commit_log_file_size
        ))
    }

    /// Appends a batch.
    pub(crate) fn put_batch(&self, batch: &PutBatch<'_>) -> Result<Put, PutError> {
        let result = self.try_put_batch(batch);
        if result.is_err() {
            self.totals.failed.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    fn try_put_batch(&self, batch: &PutBatch<'_>) -> Result<Put, PutError> {
        self.ready_to_put()?;
        check_names(batch.topic, batch.queue_id, batch.properties)?;
        self.check_body(batch.body.len())?;
        if sysflag::transaction(batch.sys_flag) != 0 {
            return Err(PutError::Illegal(
                "a batch can't be part of a transaction".to_owned(),
            ));
        }
        let is_delayed = |properties: &[u8]| {
            properties::get_bytes(properties, names::DELAY)
                .and_then(|v| v.parse::<i32>().ok())
                .is_some_and(|l| l > 0)
        };
        if is_delayed(batch.properties.as_bytes()) {
            return Err(PutError::Illegal("a batch can't be delayed".to_owned()));
        }
        ENCODED.with_borrow_mut(|encoded| {
            encoded.clear();
            let mut joined = Vec::new();
            for message in batch::iter(batch.body) {
                let message = message.map_err(|e| PutError::Illegal(e.to_string()))?;
                joined.clear();
                joined.extend_from_slice(message.properties);
                properties::join(&mut joined, batch.properties.as_bytes());
                if joined.len() > MAX_LEN {
                    return Err(PutError::PropertiesTooLong(joined.len()));
                }
                if is_delayed(&joined) {
                    return Err(PutError::Illegal(
                        "a message of a batch can't be delayed".to_owned(),
                    ));
                }
                encoded.push(&RecordDraft {
                    topic: batch.topic,
                    queue_id: batch.queue_id,
                    flag: message.flag,
                    sys_flag: batch.sys_flag,
                    born_timestamp: batch.born_timestamp,
                    born_host: batch.born_host,
                    store_host: self.config.store_host,
                    reconsume_times: batch.reconsume_times,
                    prepared_transaction_offset: 0,
                    body: message.body,
                    properties: &joined,
                });
            }
            if encoded.count() == 0 {
                return Err(PutError::Illegal("the batch is empty".to_owned()));
            }
            self.append(batch.topic, batch.queue_id, encoded, true, batch.wait_store_ok)
        })
    }

    fn check_body(&self, len: usize) -> Result<(), PutError> {
        let most = self.config.max_message_size;
        if len > most {
            return Err(PutError::Illegal(format!(
                "the body has {len} bytes; maxMessageSize allows {most}: send less at a time, or raise it"
            )));
        }
        Ok(())
    }

    fn append(
        &self,
        topic: &str,
        queue_id: i32,
        encoded: &mut Encoded,
        queued: bool,
        wait: bool,
    ) -> Result<Put, PutError> {
        let size = encoded.len();
        let count = encoded.count();
        if count == 1 && size > self.config.max_message_size.saturating_add(BEYOND_BODY) {
            return Err(PutError::Illegal(format!(
                "the message takes {size} bytes in the log; that's too long"
            )));
        }
        let appended = loop {
            let queue = self.dispatch.queues.find_or_make(topic, queue_id);
            let result = self.log.append(&queue, encoded, queued);
            if let Some(appended) = self.judge(result, size)? {
                break appended;
            }
        };
        let message_ids = encoded
            .starts()
            .iter()
            .map(|start| appended.physical + *start as i64)
            .collect();
        Ok(self.appended(appended, size, message_ids, wait))
    }

    /// What an attempt to append came to; `None`: the queue is another one by now.
    fn judge(
        &self,
        result: Result<Appended, AppendError>,
        size: usize,
    ) -> Result<Option<Appended>, PutError> {
        match result {
            Ok(appended) => Ok(Some(appended)),
            Err(AppendError::QueueGone) => Ok(None),
            Err(AppendError::TooLong) => Err(self.too_long(size)),
            Err(AppendError::NoFile(error)) => {
                if is_full(&error) {
                    self.note_disk_full();
                }
                Err(PutError::CreateFile(error))
            }
            Err(AppendError::Io(error)) => {
                // A page of the current file is lost: nothing can be appended behind it either.
                self.flags.set(Flags::FLUSH_FAILED);
                tracing::error!(%error, "the log cannot be written: no more messages are taken until a restart");
                Err(PutError::Unknown(error.to_string()))
            }
        }
    }

    /// Tells everybody who has to know of an append.
    fn appended(&self, appended: Appended, size: usize, message_ids: Vec<i64>, wait: bool) -> Put {
        if self.log.uncommitted() > 0 {
            self.commit_signal.notify();
        }
        self.reput_signal.notify();
        self.replicas.appended.notify_waiters();
        self.totals
            .messages
            .fetch_add(message_ids.len() as u64, Ordering::Relaxed);
        self.totals.bytes.fetch_add(size as u64, Ordering::Relaxed);
        Put {
            queue_offset: appended.queue_offset,
            physical_offset: appended.physical,
            size,
            store_timestamp: appended.store_timestamp,
            message_ids,
            ack: self.acknowledge(appended.physical + size as i64, wait),
        }
    }

    fn acknowledge(&self, end: i64, wait: bool) -> Ack {
        let replica = if wait && self.config.role == BrokerRole::SyncMaster {
            self.replicas.wait_for(end, self.log.max(), &self.config)
        } else {
            Ack::done(PutStatus::Ok)
        };
        if self.config.flush_mode == FlushMode::Async {
            return replica;
        }
        let flush = if wait {
            let patience = Duration::from_millis(self.config.sync_flush_timeout);
            self.group.wait_for(end, patience, PutStatus::Ok)
        } else {
            Ack::done(PutStatus::Ok)
        };
        self.flush_signal.notify();
        flush.and(replica)
    }
}

/// A message that goes on from the delay topic to where it was sent.
#[derive(Debug)]
pub(crate) struct Onward<'a> {
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) record: &'a ferromq_protocol::record::Record<'a>,
    pub(crate) properties: &'a str,
}

impl Core {
    /// Appends a delayed message that is due.
    pub(crate) fn put_onward(self: &Arc<Self>, onward: &Onward<'_>) -> Result<Put, PutError> {
        let record = onward.record;
        let born_host: SocketAddr = record.born_host;
        self.put(
            &PutMessage {
                topic: onward.topic,
                queue_id: onward.queue_id,
                flag: record.flag,
                sys_flag: record.sys_flag,
                born_timestamp: record.born_timestamp,
                born_host,
                reconsume_times: record.reconsume_times,
                prepared_transaction_offset: 0,
                body: record.body,
                properties: onward.properties,
                wait_store_ok: false,
            },
            false,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Clock, Hooks, Progress, Store, StoreConfig};

    #[test]
    fn an_append_that_hangs_makes_the_store_busy() {
        let dir = tempfile::tempdir().unwrap();
        let now = 1_700_000_000_000;
        let store = Store::open(
            StoreConfig {
                root: dir.path().to_owned(),
                commit_log_file_size: 64 << 10,
                disk_space_warning_level_ratio: 100,
                page_cache_busy_timeout: 700,
                clock: Clock::manual(now),
                ..StoreConfig::default()
            },
            &Progress::new(),
            Hooks::default(),
        )
        .unwrap();
        store.start().unwrap();
        let put = || {
            store.put(PutMessage {
                topic: "T",
                queue_id: 0,
                flag: 0,
                sys_flag: 0,
                born_timestamp: 0,
                born_host: "10.0.0.1:1".parse().unwrap(),
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body: b"x",
                properties: "",
                wait_store_ok: false,
            })
        };
        let log = &store.core().log;
        log.pretend_locked_since(now - 700);
        assert!(!store.page_cache_busy() && put().is_ok());
        log.pretend_locked_since(now - 701);
        assert!(store.page_cache_busy());
        assert!(matches!(put(), Err(PutError::PageCacheBusy(701))));
        assert_eq!(store.figures().page_cache_lock_millis, 701);
        log.pretend_locked_since(0);
        assert!(!store.page_cache_busy() && put().is_ok());
    }
}
