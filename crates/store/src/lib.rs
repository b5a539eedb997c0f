//! The message store: one log of records, with consume queues and key index files built from it.
//!
//! The directory is interchangeable with the one that Apache RocketMQ 4.9 keeps. The log is the only truth:
//! everything else can be rebuilt from it, and is, whenever the two disagree.
//!
//! Positions keep one order at all times: appended ≥ flushed, and appended ≥ dispatched. Bytes below the
//! appended position never change, so a reader may hold a slice of them for as long as it likes.
//!
//! The store is synchronous and runs on its own named threads; only the acknowledgement of an append is a future.

mod checkpoint;
mod clean;
mod commit_log;
mod config;
mod consume_queue;
mod core;
mod dispatch;
mod error;
mod flush;
mod fs;
mod get;
mod hooks;
mod index;
mod lifecycle;
mod lookup;
mod memory;
mod open;
mod places;
mod progress;
mod put;
mod reput;
mod requests;
mod schedule;
mod signal;
mod store;
mod sync;

pub mod ha;
pub mod inspect;
pub mod json_table;

pub use config::{BrokerRole, Clock, DelayLevels, FlushMode, StoreConfig};
pub use consume_queue::{MOST_FILTER_BITS, QueueExtension};
pub use error::{OpenError, PutError, ReadError, ShutdownError, StartError, WriteRefusal};
pub use hooks::{Arrival, ArrivalListener, Dispatched, Dispatcher, FilterBits, Hooks};
pub use progress::{Progress, Stage};
pub use requests::{
    Ack, Figures, GetRequest, GetResult, GetStatus, KeyQuery, KeyQueryResult, MessageFilter, NoFilter, Put,
    PutBatch, PutMessage, PutStatus, PutTotals, QueuePositions, QueueUnit, ShutdownReport,
};
pub use store::Store;
