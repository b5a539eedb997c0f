//! The time of day, and what must hold although it steps.
//!
//! Waiting, time-outs, locks and the sharing of queues go by the monotonic clock. The time of day goes only into what
//! is sent: the birth of messages, their ids, the versions of subscriptions, traces. Two of these must not suffer when
//! an administrator or a time server sets the clock back: ids must stay unique, and a changed subscription must have
//! a higher version than the one before, or brokers keep the old one.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use ferromq_protocol::message_id::UniqueIds;
use parking_lot::Mutex;

use crate::config::random;

/// Milliseconds since 1970 by the system's clock.
pub(crate) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Gives messages their ids. Ids hold the time; one that is seen twice makes a new random part.
#[derive(Debug)]
pub(crate) struct Ids {
    address: IpAddr,
    now: fn() -> i64,
    state: Mutex<(UniqueIds, i64)>,
}

impl Ids {
    pub(crate) fn new(address: IpAddr, now: fn() -> i64) -> Self {
        Self {
            address,
            now,
            state: Mutex::new((maker(address), i64::MIN)),
        }
    }

    pub(crate) fn next(&self) -> String {
        let mut state = self.state.lock();
        // Under the lock: else two threads could see each other's times in the wrong order.
        let now = (self.now)();
        if now < state.1 {
            state.0 = maker(self.address);
        }
        state.1 = now;
        state.0.next(now)
    }
}

fn maker(address: IpAddr) -> UniqueIds {
    UniqueIds::new(address, std::process::id(), random() as u32)
}

/// Versions of a consumer's subscriptions: the time, and more than the last one in any case.
#[derive(Debug)]
pub(crate) struct Versions {
    now: fn() -> i64,
    last: Mutex<i64>,
}

impl Versions {
    pub(crate) fn new(now: fn() -> i64) -> Self {
        Self {
            now,
            last: Mutex::new(i64::MIN),
        }
    }

    pub(crate) fn next(&self) -> i64 {
        let mut last = self.last.lock();
        *last = (self.now)().max(last.saturating_add(1));
        *last
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicI64, Ordering};

    use super::*;

    #[test]
    fn ids_differ_though_the_same_times_come_again_and_again() {
        static NOW: AtomicI64 = AtomicI64::new(0);
        let ids = Ids::new(IpAddr::V4(Ipv4Addr::LOCALHOST), || NOW.load(Ordering::SeqCst));
        let mut seen = BTreeSet::new();
        // As many as one maker has for a millisecond, three times over.
        for _ in 0..3 {
            for half in 0..2 {
                NOW.store(1_700_000_000_000 + half, Ordering::SeqCst);
                for _ in 0..40_000 {
                    assert!(seen.insert(ids.next()));
                }
            }
        }
    }

    #[test]
    fn versions_grow_whatever_the_clock_does() {
        static NOW: AtomicI64 = AtomicI64::new(500);
        let versions = Versions::new(|| NOW.load(Ordering::SeqCst));
        assert_eq!((versions.next(), versions.next()), (500, 501));
        NOW.store(3, Ordering::SeqCst);
        assert_eq!(versions.next(), 502);
        NOW.store(900, Ordering::SeqCst);
        assert_eq!(versions.next(), 900);
    }
}
