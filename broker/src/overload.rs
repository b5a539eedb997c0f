//! When the broker refuses work before doing it: writes stopped by an operator, a store that cannot keep
//! up or cannot write. Refusing early, with a reason, is kinder than a time-out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::config::BrokerSettings;

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

/// Things of one kind that are going on, each with a place that it gives back when it ends, however it ends.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: AtomicUsize,
}

/// One place.
#[derive(Debug)]
pub(crate) struct Place(Arc<Places>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Places {
    /// Places taken now.
    pub(crate) fn now(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn take(self: &Arc<Self>) -> Place {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Place(self.clone())
    }
}

/// Kinds of requests that are given up when they are handled too late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    Send,
    Pull,
    Heartbeat,
    Transaction,
}

impl Patience {
    fn millis(self, settings: &BrokerSettings) -> u64 {
        match self {
            Self::Send => settings.wait_time_mills_in_send_queue,
            Self::Pull => settings.wait_time_mills_in_pull_queue,
            Self::Heartbeat => settings.wait_time_mills_in_heartbeat_queue,
            Self::Transaction => settings.wait_time_mills_in_transaction_queue,
        }
    }

    /// Why a request that has waited this long is not worth handling any more: its client has most likely given it up, and
    /// handling it makes those behind it late too.
    pub(crate) fn lost(self, settings: &BrokerSettings, waited: Duration) -> Option<String> {
        let most = self.millis(settings);
        if !settings.broker_fast_failure_enable || waited <= Duration::from_millis(most) {
            return None;
        }
        Some(format!(
            "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: {}ms, longest: {most}ms \
             (waitTimeMillsIn{self:?}Queue); the broker has too little CPU, or its disk is slow",
            waited.as_millis()
        ))
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

    #[test]
    fn what_waited_too_long_is_given_up_with_the_reason() {
        let settings = BrokerSettings::default();
        for (patience, most) in [
            (Patience::Send, 1_000),
            (Patience::Pull, 5_000),
            (Patience::Heartbeat, 31_000),
            (Patience::Transaction, 3_000),
        ] {
            assert!(patience.lost(&settings, Duration::from_millis(most)).is_none());
            let said = patience.lost(&settings, Duration::from_millis(most + 1)).unwrap();
            assert!(
                said.contains("[TIMEOUT_CLEAN_QUEUE]")
                    && said.contains(&format!("waitTimeMillsIn{patience:?}Queue")),
                "{said}"
            );
        }
        let off = BrokerSettings {
            broker_fast_failure_enable: false,
            ..settings
        };
        assert!(Patience::Send.lost(&off, Duration::from_hours(1)).is_none());
    }

    #[test]
    fn places_are_given_back() {
        let places = Arc::new(Places::default());
        let (one, two) = (places.take(), places.take());
        assert_eq!(places.now(), 2);
        drop((one, two));
        assert_eq!(places.now(), 0);
    }
}
