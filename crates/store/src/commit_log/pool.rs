//! The transient store pool: appends go to memory first, and a thread of their own copies them into the log's files.
//!
//! An append then never touches a page of a file, whatever the disk is doing; in return what wasn't copied yet is lost with
//! the process, and isn't readable before. So there are three positions: appended ≥ committed ≥ flushed, and `max` is the
//! committed one. Offsets in queues are given at the append, as ever.
//!
//! Pieces keep the order of the log. Locks are taken in this order: `writer`, the put lock, `incoming`.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use ferromq_protocol::record::{BLANK_LEN, blank};
use parking_lot::Mutex;

use super::{
    AppendError, CommitLog, Writing,
    append::{Appended, Encoded},
};
use crate::{
    consume_queue::Queue,
    fs::{mmap::MapWriter, segment::Segment},
};

/// Bytes of a piece.
const PIECE: usize = 1 << 20;
/// Pieces that are kept for the next appends.
const SPARE: usize = 8;

/// What isn't in a file yet. Belongs to whoever has the put lock.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// The file that is appended to.
    segment: Option<Arc<Segment>>,
    /// Log offset after the last record appended.
    end: u64,
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
struct Piece {
    base: u64,
    /// Where in the file it goes.
    at: u64,
    bytes: Vec<u8>,
    /// The file is readable up to here once it's there.
    until: u64,
}

/// The pool.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The writer of the file that is copied into, and the right to copy.
    writer: Mutex<Option<(u64, MapWriter)>>,
    /// Writers of files that nothing was copied into yet.
    incoming: Mutex<VecDeque<(u64, MapWriter)>>,
    spare: Mutex<Vec<Vec<u8>>>,
    /// Bytes appended and not copied.
    waiting: AtomicUsize,
    most: usize,
    /// A full pool is an error, and nothing to wait for.
    fail_fast: bool,
}

impl Pool {
    /// A pool of `most` bytes.
    pub(crate) fn new(most: usize, fail_fast: bool) -> Self {
        Self {
            writer: Mutex::default(),
            incoming: Mutex::default(),
            spare: Mutex::default(),
            waiting: AtomicUsize::new(0),
            most,
            fail_fast,
        }
    }

    /// Bytes that are appended and in no file yet.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Acquire)
    }

    fn full(&self) -> bool {
        self.waiting() >= self.most
    }

    fn piece(&self, len: usize) -> Vec<u8> {
        let spare = if len <= PIECE {
            self.spare.lock().pop()
        } else {
            None
        };
        spare.unwrap_or_else(|| Vec::with_capacity(len.max(PIECE)))
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        let mut spare = self.spare.lock();
        if spare.len() < SPARE && bytes.capacity() == PIECE {
            spare.push(bytes);
        }
    }
}

impl Staged {
    fn add(&mut self, pool: &Pool, base: u64, at: u64, bytes: &[u8], until: u64) {
        pool.waiting.fetch_add(bytes.len(), Ordering::AcqRel);
        if let Some(last) = self.pieces.back_mut()
            && last.base == base
            && last.at + last.bytes.len() as u64 == at
            && last.bytes.capacity() - last.bytes.len() >= bytes.len()
        {
            last.bytes.extend_from_slice(bytes);
            last.until = until;
            return;
        }
        let mut piece = pool.piece(bytes.len());
        piece.extend_from_slice(bytes);
        self.pieces.push_back(Piece {
            base,
            at,
            bytes: piece,
            until,
        });
    }
}

impl CommitLog {
    /// Has appends go through a pool from now on.
    pub(crate) fn use_pool(&mut self, pool: Pool) {
        let writing = self.put.get_mut();
        let mut staged = Staged {
            segment: None,
            end: *self.max.get_mut(),
            pieces: VecDeque::new(),
        };
        if let Some((segment, writer)) = writing.current.take() {
            *pool.writer.lock() = Some((segment.base(), writer));
            staged.segment = Some(segment);
        }
        writing.staged = Some(staged);
        self.pool = Some(pool);
    }

    /// Makes room in the pool for another append. Call it without the put lock.
    pub(super) fn relieve_pool(&self) -> Result<(), AppendError> {
        let Some(pool) = self.pool.as_ref().filter(|pool| pool.full()) else {
            return Ok(());
        };
        if pool.fail_fast {
            return Err(AppendError::NoFile(io::Error::new(
                io::ErrorKind::WouldBlock,
                "the transient store pool is full (transientStorePoolSize)",
            )));
        }
        self.commit().map_err(AppendError::Io)
    }

    pub(super) fn append_staged(
        &self,
        writing: &mut Writing,
        queue: &Queue,
        records: &mut Encoded,
        counted: bool,
    ) -> Result<Appended, AppendError> {
        let (Some(pool), Some(staged)) = (&self.pool, &mut writing.staged) else {
            return Err(AppendError::Io(io::Error::other("there is no pool")));
        };
        let len = records.len() as u64;
        let left = staged.segment.as_ref().map_or(0, |s| s.limit() - staged.end);
        if left < len + BLANK_LEN as u64 {
            let next = match staged.segment.clone() {
                Some(old) => {
                    let size = old.limit() - old.base();
                    if left >= BLANK_LEN as u64 {
                        staged.add(pool, old.base(), size - left, &blank(left as i32), size);
                    } else if left > 0 {
                        staged.add(pool, old.base(), size - left, &[], size);
                    }
                    staged.end = old.limit();
                    if self.warm {
                        old.map().unlock();
                    }
                    old.limit()
                }
                None => staged.end,
            };
            let (segment, writer) = self.prealloc.take(next).map_err(AppendError::NoFile)?;
            self.segments.push(segment.clone());
            pool.incoming.lock().push_back((segment.base(), writer));
            staged.segment = Some(segment);
            writing.asked = false;
        }
        let Some(segment) = staged.segment.clone() else {
            return Err(AppendError::Io(io::Error::other("there is no log file")));
        };
        if std::mem::take(&mut writing.lacks_blocks)
            && let Err(error) = segment.allocate()
        {
            writing.lacks_blocks = true;
            return Err(AppendError::NoFile(error));
        }
        let physical = staged.end;
        let appended = self.stamp(queue, records, counted, physical);
        let at = physical - segment.base();
        staged.add(pool, segment.base(), at, records.bytes(), at + len);
        staged.end += len;
        self.ask_for_next(writing, physical + len, &segment);
        Ok(appended)
    }

    /// Copies everything appended so far into the files, and makes it readable.
    pub(crate) fn commit(&self) -> io::Result<()> {
        let Some(pool) = &self.pool else { return Ok(()) };
        let mut current = pool.writer.lock();
        loop {
            let piece = match &mut self.put.lock().staged {
                Some(staged) => staged.pieces.pop_front(),
                None => None,
            };
            let Some(piece) = piece else { return Ok(()) };
            if current.as_ref().is_none_or(|(base, _)| *base != piece.base) {
                *current = pool.incoming.lock().pop_front();
            }
            let copied = match &mut *current {
                Some((base, writer)) if *base == piece.base => {
                    writer.write(piece.at as usize, &piece.bytes).map(|()| {
                        writer.publish(piece.until as usize);
                        self.max.store(piece.base + piece.until, Ordering::Release);
                        self.whole.store(piece.base + piece.until, Ordering::Release);
                    })
                }
                _ => Err(io::Error::other("pieces of the log came in disorder")),
            };
            if let Err(error) = copied {
                // Whatever comes behind can't be told apart from damage: it stays here, and so does this.
                if let Some(staged) = &mut self.put.lock().staged {
                    staged.pieces.push_front(piece);
                }
                return Err(error);
            }
            pool.waiting.fetch_sub(piece.bytes.len(), Ordering::AcqRel);
            pool.give_back(piece.bytes);
        }
    }

    /// Bytes that are appended and in no file yet.
    pub(crate) fn uncommitted(&self) -> usize {
        self.pool.as_ref().map_or(0, Pool::waiting)
    }
}
