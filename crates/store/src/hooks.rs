//! What others can hang onto the dispatch of the log.

use std::{fmt, sync::Arc};

/// A record that has become readable in its queue.
#[derive(Debug, Clone, Copy)]
pub struct Arrival<'a> {
    /// Topic of the queue.
    pub topic: &'a str,
    /// Number of the queue.
    pub queue_id: i32,
    /// Queue offset after the record: its own + 1.
    pub next_offset: i64,
    /// Hash of the record's tag, or the deliver time of a delayed one.
    pub tags_code: i64,
    /// When the record was stored, in milliseconds.
    pub store_timestamp: i64,
    /// Properties as stored.
    pub properties: &'a str,
}

/// Told of every record once it can be read from its queue. Called on the dispatching thread: must not wait.
pub trait ArrivalListener: Send + Sync {
    /// A record is readable.
    fn arrived(&self, arrival: &Arrival<'_>);
}

impl ArrivalListener for () {
    fn arrived(&self, _: &Arrival<'_>) {}
}

/// A record on its way from the log to the queues.
#[derive(Debug, Clone, Copy)]
pub struct Dispatched<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// Offset in the queue.
    pub queue_offset: i64,
    /// Offset in the log.
    pub physical_offset: i64,
    /// Transaction type and other flags.
    pub sys_flag: i32,
    /// When it was stored, in milliseconds.
    pub store_timestamp: i64,
    /// Properties as stored.
    pub properties: &'a str,
    /// The whole record.
    pub record: &'a [u8],
}

/// Sees every record of the log in order, at least once: after a crash the last ones come again.
pub trait Dispatcher: Send + Sync {
    /// A record has been appended.
    fn dispatch(&self, record: &Dispatched<'_>);
}

/// What is hung onto the store.
#[derive(Clone)]
pub struct Hooks {
    /// Told of readable records.
    pub arrival: Arc<dyn ArrivalListener>,
    /// See every record, before the queues do.
    pub dispatchers: Vec<Arc<dyn Dispatcher>>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            arrival: Arc::new(()),
            dispatchers: Vec::new(),
        }
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("dispatchers", &self.dispatchers.len())
            .finish_non_exhaustive()
    }
}
