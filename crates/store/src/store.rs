//! The store's handle: what the broker calls.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use crate::{
    Figures, GetRequest, GetResult, Hooks, KeyQuery, KeyQueryResult, MessageFilter, OpenError, Progress, Put,
    PutBatch, PutError, PutMessage, QueuePositions, ReadError, ShutdownError, ShutdownReport, StartError,
    StoreConfig, WriteRefusal,
};

/// The store. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: StoreConfig,
}

impl Store {
    /// Takes the lock, loads and recovers. `progress` can be read meanwhile by another thread.
    pub fn open(config: StoreConfig, progress: &Progress, hooks: Hooks) -> Result<Self, OpenError> {
        let _ = (progress, hooks);
        Ok(Self {
            inner: Arc::new(Inner { config }),
        })
    }

    /// Brings the queues up to the log, writes the abort file and starts the threads.
    pub fn start(&self) -> Result<(), StartError> {
        Ok(())
    }

    /// Flushes everything, writes the checkpoint, and removes the abort file if nothing is left to recover.
    pub fn shutdown(&self) -> Result<ShutdownReport, ShutdownError> {
        Ok(ShutdownReport { clean: true })
    }

    /// The configuration it was opened with.
    pub fn config(&self) -> &StoreConfig {
        &self.inner.config
    }

    /// Appends a message.
    pub fn put(&self, message: PutMessage<'_>) -> Result<Put, PutError> {
        let _ = message;
        Err(WriteRefusal::NotStarted.into())
    }

    /// Appends a batch: all of it or nothing, with consecutive offsets.
    pub fn put_batch(&self, batch: PutBatch<'_>) -> Result<Put, PutError> {
        let _ = batch;
        Err(WriteRefusal::NotStarted.into())
    }

    /// Reads from a queue.
    pub fn get(&self, request: &GetRequest<'_>, filter: &dyn MessageFilter) -> Result<GetResult, ReadError> {
        let _ = (request, filter);
        Err(ReadError::ShutDown)
    }

    /// The record at a log offset, if there is one.
    pub fn look_up(&self, physical: i64) -> Option<Bytes> {
        let _ = physical;
        None
    }

    /// Offset after the last message of a queue; 0 for an unknown one.
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        let _ = (topic, queue_id);
        0
    }

    /// First offset of a queue; 0 for an unknown one.
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> i64 {
        let _ = (topic, queue_id);
        0
    }

    /// The offset whose message was stored nearest to `timestamp`; 0 for an empty queue.
    pub fn offset_by_time(&self, topic: &str, queue_id: i32, timestamp: i64) -> i64 {
        let _ = (topic, queue_id, timestamp);
        0
    }

    /// When the first message of a queue was stored.
    pub fn earliest_store_time(&self, topic: &str, queue_id: i32) -> Option<i64> {
        let _ = (topic, queue_id);
        None
    }

    /// When a message was stored.
    pub fn store_time(&self, topic: &str, queue_id: i32, offset: i64) -> Option<i64> {
        let _ = (topic, queue_id, offset);
        None
    }

    /// Whether the message is in the part of the log that memory is thought to hold.
    pub fn is_hot(&self, topic: &str, queue_id: i32, offset: i64) -> bool {
        let _ = (topic, queue_id, offset);
        true
    }

    /// Looks messages up by key.
    pub fn query(&self, query: &KeyQuery<'_>) -> KeyQueryResult {
        let _ = query;
        KeyQueryResult::default()
    }

    /// Positions of every queue, in no order.
    pub fn queues(&self) -> Vec<QueuePositions> {
        Vec::new()
    }

    /// Removes the queues of topics that `keep` says no to; the delay topic, the transaction topics and their offsets stay.
    /// Returns the topics removed.
    pub fn delete_topics(&self, keep: &dyn Fn(&str) -> bool) -> Vec<String> {
        let _ = keep;
        Vec::new()
    }

    /// Removes queues all of whose records are gone from the log.
    pub fn clean_expired_queues(&self) {}

    /// Deletes expired log files now, whatever the hour.
    pub fn delete_expired_files(&self) {}

    /// Next offset to deliver by delay level.
    pub fn delay_offsets(&self) -> BTreeMap<i32, i64> {
        BTreeMap::new()
    }

    /// The store's figures.
    pub fn figures(&self) -> Figures {
        Figures {
            log_min: 0,
            log_max: 0,
            log_flushed: 0,
            dispatch_behind: 0,
            log_disk_ratio: -1.0,
            queue_disk_ratio: -1.0,
            puts: crate::PutTotals::default(),
            page_cache_lock_millis: 0,
            flags: 0,
            queues: 0,
            earliest_store_time: -1,
            started_at: 0,
            last_stop_clean: true,
        }
    }

    /// Whether an append holds the lock for longer than `osPageCacheBusyTimeOutMills`.
    pub fn page_cache_busy(&self) -> bool {
        false
    }

    /// Whether appends are taken, and if not, why.
    pub fn writable(&self) -> Result<(), WriteRefusal> {
        Err(WriteRefusal::NotStarted)
    }
}
