//! Waking one thread that waits for work, at next to no cost for the others while it is busy.

use std::{
    sync::atomic::{AtomicBool, Ordering, fence},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::AtomicU32};

    use super::*;

    #[test]
    fn no_wake_up_is_lost() {
        let signal = Arc::new(Signal::default());
        let work = Arc::new(AtomicU32::new(0));
        let (s, w) = (signal.clone(), work.clone());
        let waiter = std::thread::spawn(move || {
            let mut done = 0;
            while done < 20_000 {
                s.wait(Duration::from_mins(1), || w.load(Ordering::Acquire) > done);
                done = w.load(Ordering::Acquire);
            }
        });
        for _ in 0..20_000 {
            work.fetch_add(1, Ordering::Release);
            signal.notify();
        }
        waiter.join().unwrap();
    }
}
