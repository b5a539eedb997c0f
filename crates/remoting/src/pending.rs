//! Calls that wait for an answer: opaque → waiter.
//!
//! A [`Slot`] owns its entry: dropping it (answered, timed out or cancelled) frees the entry, so the table
//! never holds more than the calls that really wait. After `fail_all` no slot can be taken.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use ferromq_protocol::command::Command;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Calls that may wait on one connection.
const MAX_WAITING: usize = 65_536;

#[derive(Debug, Default)]
struct Table {
    waiters: HashMap<i32, oneshot::Sender<Command>>,
    closed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Pending {
    table: Mutex<Table>,
    next: AtomicI32,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Closed,
    TooMany(usize),
}

#[derive(Debug)]
pub(crate) struct Slot {
    pending: Arc<Pending>,
    pub(crate) opaque: i32,
    pub(crate) answer: oneshot::Receiver<Command>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.pending.table.lock().waiters.remove(&self.opaque);
    }
}

impl Pending {
    pub(crate) fn register(self: &Arc<Self>) -> Result<Slot, Refusal> {
        let (tx, answer) = oneshot::channel();
        let mut table = self.table.lock();
        if table.closed {
            return Err(Refusal::Closed);
        }
        if table.waiters.len() >= MAX_WAITING {
            return Err(Refusal::TooMany(table.waiters.len()));
        }
        // After 2^32 calls a number may still be taken by a very old waiter: skip it.
        let mut opaque = self.next_opaque();
        while table.waiters.contains_key(&opaque) {
            opaque = self.next_opaque();
        }
        table.waiters.insert(opaque, tx);
        drop(table);
        Ok(Slot {
            pending: Arc::clone(self),
            opaque,
            answer,
        })
    }

    /// A number for a request that expects no answer.
    pub(crate) fn next_opaque(&self) -> i32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Hands the answer to its waiter; false when nobody waits (any more).
    pub(crate) fn complete(&self, answer: Command) -> bool {
        let waiter = self.table.lock().waiters.remove(&answer.opaque);
        waiter.is_some_and(|w| w.send(answer).is_ok())
    }

    pub(crate) fn fail_all(&self) {
        let waiters = {
            let mut table = self.table.lock();
            table.closed = true;
            std::mem::take(&mut table.waiters)
        };
        drop(waiters);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.lock().waiters.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropping_a_slot_frees_its_entry() {
        let pending = Arc::new(Pending::default());
        let slot = pending.register().unwrap();
        assert_eq!(pending.len(), 1);
        drop(slot);
        assert_eq!(pending.len(), 0);
    }

    #[test]
    fn numbers_differ_and_survive_the_wrap() {
        let pending = Arc::new(Pending::default());
        pending.next.store(i32::MAX, Ordering::Relaxed);
        let a = pending.register().unwrap();
        let b = pending.register().unwrap();
        assert_eq!((a.opaque, b.opaque), (i32::MAX, i32::MIN));
    }

    #[test]
    fn a_taken_number_is_skipped() {
        let pending = Arc::new(Pending::default());
        let old = pending.register().unwrap();
        pending.next.store(old.opaque, Ordering::Relaxed);
        let new = pending.register().unwrap();
        assert_ne!(old.opaque, new.opaque);
    }

    #[test]
    fn an_answer_reaches_its_waiter_once() {
        let pending = Arc::new(Pending::default());
        let mut slot = pending.register().unwrap();
        let mut answer = Command::request(105).reply(0);
        answer.opaque = slot.opaque;
        assert!(pending.complete(answer.clone()));
        assert!(!pending.complete(answer));
        assert_eq!(slot.answer.try_recv().unwrap().opaque, slot.opaque);
    }

    #[test]
    fn after_fail_all_waiters_end_and_none_is_taken() {
        let pending = Arc::new(Pending::default());
        let mut slot = pending.register().unwrap();
        pending.fail_all();
        assert!(slot.answer.try_recv().is_err());
        assert_eq!(pending.register().unwrap_err(), Refusal::Closed);
    }
}
