//! What goes into the store's calls and comes out of them.

use std::{
    fmt,
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::QueueExtension;

/// A message to append.
#[derive(Debug, Clone, Copy)]
pub struct PutMessage<'a> {
    /// Topic, at most 127 bytes.
    pub topic: &'a str,
    /// Queue of the topic.
    pub queue_id: i32,
    /// The application's flag.
    pub flag: i32,
    /// Compression and transaction type; the address bits are set by the store.
    pub sys_flag: i32,
    /// When it was born, in milliseconds.
    pub born_timestamp: i64,
    /// Who it was born at.
    pub born_host: SocketAddr,
    /// How often it has been consumed in vain.
    pub reconsume_times: i32,
    /// Log offset of the half message that this one commits; else 0.
    pub prepared_transaction_offset: i64,
    /// Body as it came.
    pub body: &'a [u8],
    /// Properties in wire form, without WAIT. A DELAY among them sends the message through the delay topic.
    pub properties: &'a str,
    /// Whether the acknowledgement waits for the disk and the replica.
    pub wait_store_ok: bool,
}

/// A batch to append.
#[derive(Debug, Clone, Copy)]
pub struct PutBatch<'a> {
    /// Topic of all of them, at most 127 bytes.
    pub topic: &'a str,
    /// Queue of all of them.
    pub queue_id: i32,
    /// Flags of all of them; no transaction type.
    pub sys_flag: i32,
    /// When they were born, in milliseconds.
    pub born_timestamp: i64,
    /// Who they were born at.
    pub born_host: SocketAddr,
    /// How often they have been consumed in vain.
    pub reconsume_times: i32,
    /// The messages in the wire's form of a batch.
    pub body: &'a [u8],
    /// Properties added to each message's, without WAIT.
    pub properties: &'a str,
    /// Whether the acknowledgement waits for the disk and the replica.
    pub wait_store_ok: bool,
}

/// What an append came to. The message is in the log; `ack` tells when it's as safe as was asked.
#[derive(Debug)]
pub struct Put {
    /// Offset in the queue; the first one's of a batch.
    pub queue_offset: i64,
    /// Offset in the log; the first one's of a batch.
    pub physical_offset: i64,
    /// Bytes appended.
    pub size: usize,
    /// When it was stored, in milliseconds.
    pub store_timestamp: i64,
    /// Log offset of each message of a batch, for their ids; just the one of a single message.
    pub message_ids: Vec<i64>,
    /// Tells when it's safe.
    pub ack: Ack,
}

/// How an acknowledged append ended. In all cases the message is in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PutStatus {
    /// As safe as was asked.
    Ok,
    /// Not on the disk within `syncFlushTimeout`.
    FlushDiskTimeout,
    /// No replica said to have it within `slaveTimeout`.
    FlushSlaveTimeout,
    /// There's no replica that could have it.
    SlaveNotAvailable,
    /// The disk refused it: it may be gone after a restart. The store takes no more appends.
    FlushFailed,
}

/// A future that ends when an append is as safe as was asked.
pub struct Ack {
    disk: AckState,
    replica: AckState,
}

enum AckState {
    Ready(PutStatus),
    Waiting(Arc<AckCell>),
}

impl AckState {
    fn ready(&self) -> Option<PutStatus> {
        match self {
            Self::Ready(status) => Some(*status),
            Self::Waiting(cell) => cell.0.lock().0,
        }
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<PutStatus> {
        match self {
            Self::Ready(status) => Poll::Ready(*status),
            Self::Waiting(cell) => {
                let mut cell = cell.0.lock();
                if let Some(status) = cell.0 {
                    return Poll::Ready(status);
                }
                match &mut cell.1 {
                    Some(old) => old.clone_from(cx.waker()),
                    none => *none = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }
}

/// What an append ends with: a loss first, then what the replica said, as Java has it.
fn combined(disk: PutStatus, replica: PutStatus) -> PutStatus {
    match (disk, replica) {
        (PutStatus::FlushFailed, _) | (_, PutStatus::Ok) => disk,
        _ => replica,
    }
}

#[derive(Debug, Default)]
pub(crate) struct AckCell(Mutex<(Option<PutStatus>, Option<Waker>)>);

impl AckCell {
    /// The first result stays.
    pub(crate) fn complete(&self, status: PutStatus) {
        let waker = {
            let mut cell = self.0.lock();
            if cell.0.is_some() {
                return;
            }
            cell.0 = Some(status);
            cell.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Ack {
    pub(crate) fn done(status: PutStatus) -> Self {
        Self {
            disk: AckState::Ready(status),
            replica: AckState::Ready(PutStatus::Ok),
        }
    }

    pub(crate) fn waiting(cell: Arc<AckCell>) -> Self {
        Self {
            disk: AckState::Waiting(cell),
            replica: AckState::Ready(PutStatus::Ok),
        }
    }

    /// One that ends when both have: this one of the disk's, `replica` of a replica's.
    pub(crate) fn and(self, replica: Self) -> Self {
        Self {
            disk: self.disk,
            replica: replica.disk,
        }
    }

    /// The result, if it's there already.
    pub fn ready(&self) -> Option<PutStatus> {
        Some(combined(self.disk.ready()?, self.replica.ready()?))
    }

    /// Waits on this thread.
    pub fn wait(self) -> PutStatus {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        let mut this = self;
        loop {
            match Pin::new(&mut this).poll(&mut cx) {
                Poll::Ready(status) => return status,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl Future for Ack {
    type Output = PutStatus;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PutStatus> {
        match (self.disk.poll(cx), self.replica.poll(cx)) {
            (Poll::Ready(disk), Poll::Ready(replica)) => Poll::Ready(combined(disk, replica)),
            _ => Poll::Pending,
        }
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Ack").field(&self.ready()).finish()
    }
}

/// Which records of a queue a reader wants.
pub trait MessageFilter {
    /// By the consume queue's tag hash; the low 32 bits are the hash. Says no only if the record is surely unwanted. Not asked
    /// where the hash is in an extension that can't be read.
    fn by_queue(&self, tags_code: i64) -> bool;

    /// By the bits of the record's extension, if it has some, and the time when it was stored, in milliseconds. Says no only if
    /// the record is surely unwanted.
    fn by_filter_bits(&self, store_timestamp: i64, bits: &[u8]) -> bool {
        let _ = (store_timestamp, bits);
        true
    }

    /// By the record itself.
    fn by_record(&self, record: &[u8]) -> bool {
        let _ = record;
        true
    }
}

/// Takes every record.
#[derive(Debug, Clone, Copy)]
pub struct NoFilter;

impl MessageFilter for NoFilter {
    fn by_queue(&self, _: i64) -> bool {
        true
    }
}

/// A read of a queue.
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// First queue offset wanted.
    pub offset: i64,
    /// Most messages wanted.
    pub max_messages: usize,
}

/// How a read ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GetStatus {
    /// There are messages.
    Found,
    /// The filter took none of those that were looked at.
    NoMatchedMessage,
    /// The records are gone from the log.
    MessageWasRemoving,
    /// The queue has no unit there.
    OffsetFoundNull,
    /// Beyond the queue's end.
    OffsetOverflowBadly,
    /// Just at the queue's end.
    OffsetOverflowOne,
    /// Before the queue's first offset.
    OffsetTooSmall,
    /// There's no such queue.
    NoMatchedLogicQueue,
    /// The queue is empty.
    NoMessageInQueue,
}

/// What a read came to.
#[derive(Debug)]
pub struct GetResult {
    /// How it ended.
    pub status: GetStatus,
    /// Where to read next.
    pub next_offset: i64,
    /// The queue's first offset.
    pub min_offset: i64,
    /// The queue's end.
    pub max_offset: i64,
    /// The records back to back; adjacent ones may share a slice. The slices borrow the log's mapping.
    pub chunks: Vec<Bytes>,
    /// Records in `chunks`.
    pub count: usize,
    /// Bytes in `chunks`.
    pub bytes: usize,
    /// Whether the reader is so far behind that a slave should serve it.
    pub suggest_slave: bool,
}

/// A look-up by key.
#[derive(Debug, Clone, Copy)]
pub struct KeyQuery<'a> {
    /// Topic.
    pub topic: &'a str,
    /// One of the message's KEYS, or its UNIQ_KEY.
    pub key: &'a str,
    /// Most messages wanted.
    pub max_messages: usize,
    /// Earliest store time, in milliseconds.
    pub begin: i64,
    /// Latest store time, in milliseconds.
    pub end: i64,
}

/// What a look-up by key came to.
#[derive(Debug, Default)]
pub struct KeyQueryResult {
    /// The records, oldest first.
    pub records: Vec<Bytes>,
    /// Store time of the newest indexed message.
    pub last_update_timestamp: i64,
    /// Log offset of the newest indexed message.
    pub last_update_offset: i64,
}

/// How the store was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShutdownReport {
    /// Everything is flushed and dispatched, and the next start needs no recovery.
    pub clean: bool,
}

/// One unit of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueUnit {
    /// Log offset of the record.
    pub physical: i64,
    /// Bytes of the record.
    pub size: i32,
    /// Hash of its tag; deliver time of a delayed message; below every hash: the address of its extension.
    pub tags_code: i64,
    /// Its extension, if it has one that can be read.
    pub extension: Option<QueueExtension>,
}

/// Positions of a queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePositions {
    /// Topic.
    pub topic: Arc<str>,
    /// Queue.
    pub queue_id: i32,
    /// First offset.
    pub min_offset: i64,
    /// Offset after the last message.
    pub max_offset: i64,
}

/// Appends since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutTotals {
    /// Messages appended.
    pub messages: u64,
    /// Bytes appended.
    pub bytes: u64,
    /// Appends refused or failed.
    pub failed: u64,
    /// `fdatasync` calls on the log.
    pub flushes: u64,
}

/// The store's figures, for metrics and the admin tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Figures {
    /// First log offset.
    pub log_min: i64,
    /// Log offset after the last record.
    pub log_max: i64,
    /// Up to here the log is on the disk.
    pub log_flushed: i64,
    /// Bytes of the log that no queue has yet.
    pub dispatch_behind: i64,
    /// Use of the log's disk, 0 to 1; negative if unknown.
    pub log_disk_ratio: f64,
    /// Use of the consume queues' disk, 0 to 1; negative if unknown.
    pub queue_disk_ratio: f64,
    /// Appends.
    pub puts: PutTotals,
    /// How long the running append has held the lock, in milliseconds; 0 if there's none.
    pub page_cache_lock_millis: u64,
    /// Java's running flags: 1 not readable, 2 not writable, 4 queue error, 8 index error, 16 disk full.
    pub flags: u32,
    /// Number of queues.
    pub queues: usize,
    /// Store time of the first record of the log; -1 if there's none.
    pub earliest_store_time: i64,
    /// When the store was started, in milliseconds.
    pub started_at: i64,
    /// Whether the last stop was in order.
    pub last_stop_clean: bool,
}
