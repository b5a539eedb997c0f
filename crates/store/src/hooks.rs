//! What others can hang onto the dispatch of the log.

use std::{fmt, io, sync::Arc};

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
    /// What [`FilterBits`] made of it; empty without.
    pub filter_bits: &'a [u8],
}

/// Told of every record once it can be read from its queue. Called on the dispatching thread: must not wait.
pub trait ArrivalListener: Send + Sync {
    /// A record is readable.
    fn arrived(&self, arrival: &Arrival<'_>);

    /// Whether anyone waits for a record now. While nobody does, records may come up to a millisecond late.
    fn is_awaited(&self) -> bool {
        true
    }
}

impl ArrivalListener for () {
    fn arrived(&self, _: &Arrival<'_>) {}

    fn is_awaited(&self) -> bool {
        false
    }
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

/// Builds something from the log, as consume queues and the index are built.
///
/// It's shown every record in the log's order, before the record can be read from its queue, on one thread: the one that
/// opens and starts the store, then the dispatching one. Records come at least once: after a crash the last ones come again,
/// and after an error the one that failed. So a dispatcher compares [`Dispatched::physical_offset`] with what it has.
///
/// Whatever it keeps is worth no more than the log: it must be able to lose it, and to start over.
pub trait Dispatcher: Send + Sync {
    /// Takes a record. On an error the store tries again every second, and after 30 seconds takes no more messages; so an
    /// error is for what may pass, such as a full disk.
    fn dispatch(&self, record: &Dispatched<'_>) -> io::Result<()>;

    /// Log offset up to which it surely has everything, wherever it keeps that: asked once while the store opens. If that's
    /// before the offset from which the store dispatches on, the records between are shown first, from the start of the log if
    /// they begin there no more; so one that returns 0 gets the whole log. It has to be the start of a record: the end of
    /// the last one taken. `None`: it needs no more than what is dispatched from now on.
    fn resume_from(&self) -> Option<i64> {
        None
    }

    /// Told once while the store opens, after recovery, where the log ends: what it knows of records at or beyond that is of
    /// messages that were lost.
    fn cut(&self, log_end: i64) -> io::Result<()> {
        let _ = log_end;
        Ok(())
    }
}

/// Works out which of the expressions it knows a record may match, for the record's extension in its queue: readers that skip
/// by it are spared reading the record. Called on the dispatching thread, only if extensions are kept.
pub trait FilterBits: Send + Sync {
    /// The bits; at most [`MOST_FILTER_BITS`](crate::MOST_FILTER_BITS) bytes, with more the record gets no extension. Empty:
    /// nothing is known.
    fn bits(&self, record: &Dispatched<'_>) -> Vec<u8>;
}

/// What is hung onto the store.
#[derive(Clone)]
pub struct Hooks {
    /// Told of readable records.
    pub arrival: Arc<dyn ArrivalListener>,
    /// See every record, before the queues do.
    pub dispatchers: Vec<Arc<dyn Dispatcher>>,
    /// Makes the filter bits of records.
    pub filter_bits: Option<Arc<dyn FilterBits>>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            arrival: Arc::new(()),
            dispatchers: Vec::new(),
            filter_bits: None,
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
