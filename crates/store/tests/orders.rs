//! What the store does without locks, under every order of its steps: waking threads that wait for work, and the register
//! that the handler of page faults reads.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

#[path = "../src/fs/damage.rs"]
mod damage;
#[path = "../src/signal.rs"]
mod signal;

/// The parts of [`signal`] and [`damage`], by loom. A wait never ends by its time here: one that is not woken is found out.
mod sync {
    use std::{
        ops::{Deref, DerefMut},
        time::Duration,
    };

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

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

use damage::{Damage, Entry};
use loom::sync::atomic::AtomicPtr;
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

/// One mapping goes and another takes its place: whoever looks meanwhile sees one of them whole, or nothing.
#[test]
fn an_entry_is_seen_whole_or_not_at_all() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        const A: (usize, usize) = (1_000, 100);
        const B: (usize, usize) = (1_050, 10);
        let (mut of_a, mut of_b) = (1u8, 2u8);
        let (of_a, of_b) = (&raw mut of_a as usize, &raw mut of_b as usize);
        let entry = Arc::new(Entry::<u8> {
            version: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            damage: AtomicPtr::new(std::ptr::null_mut()),
        });
        entry.change(A.0, A.1, of_a as *mut u8);
        let theirs = entry.clone();
        let changing = thread::spawn(move || {
            theirs.change(0, 0, std::ptr::null_mut());
            theirs.change(B.0, B.1, of_b as *mut u8);
        });
        // Both mappings have this address.
        match entry
            .holding(1_055)
            .map(|(start, damage)| (start, damage as usize))
        {
            None => {}
            Some(found) => assert!([(A.0, of_a), (B.0, of_b)].contains(&found), "{found:?}"),
        }
        // Only A has this one: found with B's start or damage it would be a page of somebody else's.
        if let Some(found) = entry.holding(1_099) {
            assert_eq!((found.0, found.1 as usize), (A.0, of_a));
        }
        changing.join().unwrap();
        assert_eq!(entry.holding(1_055).map(|(start, _)| start), Some(B.0));
    });
}

/// Two threads find bad pages, more than can be named: who sees that there are any sees the one that was noted.
#[test]
fn a_bad_page_that_was_noted_is_known() {
    loom::model(|| {
        let damage = Arc::new(Damage::new(1));
        let theirs = damage.clone();
        let other = thread::spawn(move || theirs.note(7));
        damage.note(3);
        assert!(damage.touches_pages(3, 3));
        other.join().unwrap();
        assert!(damage.touches_pages(7, 9) && damage.touches_pages(0, 3));
        assert!(damage.news() && !damage.news());
    });
}
