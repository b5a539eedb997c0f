//! The store's one lock-free protocol, the waking of threads that wait for work, under every order of its steps.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

#[path = "../src/signal.rs"]
mod signal;

/// The parts of [`signal`], by loom. A wait never ends by its time here: one that is not woken is found out.
mod sync {
    use std::{
        ops::{Deref, DerefMut},
        time::Duration,
    };

    pub(crate) use loom::sync::atomic::{AtomicBool, Ordering, fence};

    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    pub(crate) struct Guard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        pub(crate) fn lock(&self) -> Guard<'_, T> {
            Guard(Some(self.0.lock().unwrap()))
        }
    }

    impl<T> Deref for Guard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().unwrap()
        }
    }

    impl<T> DerefMut for Guard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().unwrap()
        }
    }

    #[derive(Debug, Default)]
    pub(crate) struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub(crate) fn notify_one(&self) {
            self.0.notify_one();
        }

        pub(crate) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, _: Duration) {
            let inner = guard.0.take().unwrap();
            guard.0 = Some(self.0.wait(inner).unwrap());
        }
    }
}

use std::time::Duration;

use loom::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use signal::Signal;

/// One waits until all the work of `notifiers` is done; each does one piece and notifies.
fn all_work_is_seen(notifiers: usize) {
    let mut model = loom::model::Builder::new();
    // Each thread may be parted from its processor so often: enough for any known kind of lost wake-up.
    model.preemption_bound = Some(2);
    model.check(move || {
        let signal = Arc::new(Signal::default());
        let work = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..notifiers)
            .map(|_| {
                let (signal, work) = (signal.clone(), work.clone());
                thread::spawn(move || {
                    work.fetch_add(1, Ordering::Release);
                    signal.notify();
                })
            })
            .collect();
        let mut done = 0;
        while done < notifiers {
            signal.wait(Duration::MAX, || work.load(Ordering::Acquire) > done);
            done = work.load(Ordering::Acquire);
        }
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn no_wake_up_is_lost_in_any_order() {
    all_work_is_seen(1);
    all_work_is_seen(2);
}

/// A waiter that was woken late by an earlier piece of work still sees the next one.
#[test]
fn a_late_wake_up_does_not_swallow_the_next() {
    loom::model(|| {
        let signal = Arc::new(Signal::default());
        let work = Arc::new(AtomicUsize::new(0));
        let (theirs, pieces) = (signal.clone(), work.clone());
        let worker = thread::spawn(move || {
            for _ in 0..2 {
                pieces.fetch_add(1, Ordering::Release);
                theirs.notify();
            }
        });
        for done in 0..2 {
            signal.wait(Duration::MAX, || work.load(Ordering::Acquire) > done);
            if work.load(Ordering::Acquire) == 2 {
                break;
            }
        }
        worker.join().unwrap();
    });
}
