//! Memory of all connections together.
//!
//! Each connection counts what it holds: its read buffer, the bodies of requests in flight, what waits to be written, and
//! what its TLS session holds (`tls::transport`). The first [`RESERVE`] bytes of each are its own; what it holds above them comes out of the budget that
//! the connections share. What holds:
//!
//! * With the budget used up, a connection that holds more than its reserve handles no frame and reads nothing, and
//!   TCP holds its peer back. One that holds less goes on: small requests are answered while others hoard.
//! * In all, connections hold at most the budget, one reserve each, and one answer and one read each that was
//!   under way when the budget ended.
//! * From then until half of the budget is free, a connection that holds more than its reserve and moves less than
//!   [`PROGRESS`] bytes within [`PATIENCE`] is closed: what it hoards is of use to nobody. So neither peers that never
//!   read nor frames that never end can keep the budget.
//!
//! Small connections never touch the shared counter.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;

/// Bytes that every connection may hold whatever the others do.
pub const RESERVE: usize = 64 * 1024;
/// How long a connection may hoard without moving [`PROGRESS`] bytes while memory is short.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// What counts as progress of such a connection, bytes read and written.
pub const PROGRESS: u64 = 64 * 1024;
/// Changes below this are not counted at once.
const GRAIN: usize = 16 * 1024;

/// What the connections of one or more servers may hold together.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    /// Used up, and not half free since.
    short: AtomicBool,
    held_back: Mutex<HashMap<u64, Waker>>,
}

impl Budget {
    /// A budget of `bytes`.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit: bytes,
            used: AtomicUsize::new(0),
            short: AtomicBool::new(false),
            held_back: Mutex::default(),
        })
    }

    /// No bound in total; each connection still has its own.
    pub fn unlimited() -> Arc<Self> {
        Self::new(usize::MAX)
    }

    /// The bound, bytes.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that connections hold above their reserves.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Connections that wait for others to let go.
    pub fn held_back(&self) -> usize {
        self.held_back.lock().len()
    }

    fn exhausted(&self) -> bool {
        self.used() >= self.limit
    }
}

/// One connection's part of a budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    id: u64,
    /// Bytes held, as last told.
    held: usize,
    /// Bytes of these taken from the budget.
    taken: usize,
    waits: bool,
}

impl Share {
    pub(crate) fn new(budget: Arc<Budget>, id: u64) -> Self {
        Self {
            budget,
            id,
            held: 0,
            taken: 0,
            waits: false,
        }
    }

    /// Tells how much the connection holds now.
    pub(crate) fn set(&mut self, held: usize) {
        self.held = held;
        let wanted = held.saturating_sub(RESERVE);
        if wanted == self.taken || (wanted > 0 && wanted.abs_diff(self.taken) < GRAIN) {
            return;
        }
        let budget = &self.budget;
        if wanted > self.taken {
            let more = wanted - self.taken;
            if budget.used.fetch_add(more, Ordering::AcqRel) + more >= budget.limit {
                budget.short.store(true, Ordering::Relaxed);
            }
        } else {
            let less = self.taken - wanted;
            let before = budget.used.fetch_sub(less, Ordering::AcqRel);
            if before - less < budget.limit / 2 {
                budget.short.store(false, Ordering::Relaxed);
            }
            if before >= budget.limit && before - less < budget.limit {
                let waiting = std::mem::take(&mut *budget.held_back.lock());
                waiting.into_values().for_each(Waker::wake);
            }
        }
        self.taken = wanted;
    }

    /// Whether the connection has to wait for others.
    pub(crate) fn is_held_back(&self) -> bool {
        self.held > RESERVE && self.budget.exhausted()
    }

    /// Whether the connection has to show progress.
    pub(crate) fn is_pressed(&self) -> bool {
        self.held > RESERVE && self.budget.short.load(Ordering::Relaxed)
    }

    /// Wakes `waker` when there is room; false when there is already.
    pub(crate) fn wait(&mut self, waker: &Waker) -> bool {
        self.budget.held_back.lock().insert(self.id, waker.clone());
        self.waits = true;
        // Room may have come between the look and the entry.
        self.is_held_back()
    }

    pub(crate) fn no_wait(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.budget.held_back.lock().remove(&self.id);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.no_wait();
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::task::{ArcWake, waker};

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl ArcWake for Woken {
        fn wake_by_ref(this: &Arc<Self>) {
            this.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn reserves_cost_nothing_and_the_rest_is_counted() {
        let budget = Budget::new(1 << 20);
        let mut share = Share::new(Arc::clone(&budget), 1);
        share.set(RESERVE);
        assert_eq!(budget.used(), 0);
        share.set(RESERVE + 100_000);
        assert_eq!(budget.used(), 100_000);
        share.set(RESERVE + 100_001);
        assert_eq!(budget.used(), 100_000, "small changes wait");
        share.set(0);
        assert_eq!(budget.used(), 0);
        share.set(RESERVE + GRAIN);
        drop(share);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn only_those_that_hold_much_are_held_back_and_they_are_woken() {
        let budget = Budget::new(1 << 20);
        let mut hoarder = Share::new(Arc::clone(&budget), 1);
        let mut other = Share::new(Arc::clone(&budget), 2);
        let mut small = Share::new(Arc::clone(&budget), 3);
        hoarder.set(2 << 20);
        other.set(RESERVE + GRAIN);
        small.set(1000);
        assert!(hoarder.is_held_back() && other.is_held_back() && !small.is_held_back());
        assert!(hoarder.is_pressed() && !small.is_pressed());
        let woken = Arc::new(Woken::default());
        assert!(other.wait(&waker(Arc::clone(&woken))));
        assert_eq!(budget.held_back(), 1);
        hoarder.set(RESERVE);
        assert_eq!(woken.0.load(Ordering::SeqCst), 1);
        assert!(
            !other.is_held_back() && !other.is_pressed(),
            "more than half is free"
        );
        assert!(!other.wait(&waker(woken)), "there is room already");
        other.no_wait();
        assert_eq!(budget.held_back(), 0);
    }
}
