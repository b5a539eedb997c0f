//! Consume queues: per topic and queue a list of units that say where in the log each message is.
//!
//! ```text
//! consumequeue/<topic>/<queue>/<20-digit logical offset>     files of one length, sparse, never mapped
//! unit n at logical offset 20·n:  i64 log offset · i32 record size · i64 tags code
//! a pre-blank unit {0, 0x7fffffff, 0} stands for an offset that the queue never had
//! ```
//!
//! A queue keeps its positions and the last few units in memory; files are opened through one bounded cache, so a
//! hundred thousand queues need no descriptor and no mapping each. Units reach the files in coalesced writes.
//! Everything here can be rebuilt from the log.

mod ext;
mod files;
mod queue;
mod recover;
mod table;
mod unit;

pub(crate) use ext::{ExtReader, offset_of};
pub use ext::{MOST_FILTER_BITS, QueueExtension};
pub(crate) use files::QueueFiles;
pub(crate) use queue::{Appended, Queue, Units};
pub(crate) use recover::{EndBy, LoadError, load};
pub(crate) use table::Queues;
pub(crate) use unit::{UNIT, Unit};
