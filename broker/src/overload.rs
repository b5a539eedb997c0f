//! When the broker refuses work before doing it: writes stopped by an operator, a store that cannot keep
//! up or cannot write. Refusing early, with a reason, is kinder than a time-out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest lease of a write stop.
pub(crate) const MAX_LEASE: Duration = Duration::from_hours(1);

/// A stop of client writes that lapses by itself, so that whoever asked for it may vanish. Never saved.
#[derive(Debug)]
pub(crate) struct WriteGate {
    epoch: Instant,
    /// Milliseconds after `epoch` at which the stop ends; 0 when there is none.
    until: AtomicU64,
}

impl WriteGate {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            epoch: now,
            until: AtomicU64::new(0),
        }
    }

    fn since_epoch(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.epoch).as_millis()).unwrap_or(u64::MAX)
    }

    /// Stops writes for the lease, counted from now; a stop in force is replaced.
    pub(crate) fn stop(&self, now: Instant, lease: Duration) {
        let until = self.since_epoch(now + lease.min(MAX_LEASE)).max(1);
        self.until.store(until, Ordering::Release);
    }

    /// Ends a stop, if there is one.
    pub(crate) fn resume(&self) {
        self.until.store(0, Ordering::Release);
    }

    /// Whether a stop was asked for and not lapsed. Costs one load while there is none.
    pub(crate) fn stopped(&self, now: impl FnOnce() -> Instant) -> bool {
        self.until.load(Ordering::Acquire) != 0 && self.left(now()).is_some()
    }

    /// How much of the lease is left.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let until = self.until.load(Ordering::Acquire);
        let left = until.checked_sub(self.since_epoch(now))?;
        (left > 0).then(|| Duration::from_millis(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_lapses_by_itself() {
        let start = Instant::now();
        let gate = WriteGate::new(start);
        assert!(!gate.stopped(|| start));
        gate.stop(start, Duration::from_mins(1));
        assert!(gate.stopped(|| start + Duration::from_secs(59)));
        assert_eq!(
            gate.left(start + Duration::from_secs(50)),
            Some(Duration::from_secs(10))
        );
        assert!(!gate.stopped(|| start + Duration::from_mins(1)));
    }

    #[test]
    fn a_stop_can_be_ended_and_is_never_longer_than_an_hour() {
        let start = Instant::now();
        let gate = WriteGate::new(start);
        gate.stop(start, Duration::from_mins(1));
        gate.resume();
        assert!(!gate.stopped(|| start));
        gate.stop(start, Duration::MAX.min(Duration::from_secs(1 << 30)));
        assert_eq!(gate.left(start), Some(MAX_LEASE));
    }
}
