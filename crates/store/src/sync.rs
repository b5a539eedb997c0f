//! What the lock-free parts are made of. A test that tries every order of their steps brings its own.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering, fence};

pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicU32},
        time::Duration,
    };

    use super::*;
    use crate::signal::Signal;

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
