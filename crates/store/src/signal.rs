//! Waking one thread that waits for work, at next to no cost for the others while it is busy.

use std::time::Duration;

use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, fence};

/// One waits, many notify.
#[derive(Debug, Default)]
pub(crate) struct Signal {
    waiting: AtomicBool,
    set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Wakes the waiter, if it waits. Call it after the work is visible.
    pub(crate) fn notify(&self) {
        // Pairs with the fence in `wait`: either the waiter sees the work, or this sees the waiter.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) {
            *self.set.lock() = true;
            self.changed.notify_one();
        }
    }

    /// Waits for a notification, or for `most`, unless `ready` says that there's work.
    pub(crate) fn wait(&self, most: Duration, ready: impl Fn() -> bool) {
        self.waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            let mut set = self.set.lock();
            if !*set {
                self.changed.wait_for(&mut set, most);
            }
            *set = false;
        }
        self.waiting.store(false, Ordering::Relaxed);
    }
}
