//! When the broker refuses work before doing it: writes stopped by an operator, a store that cannot keep
//! up or cannot write. Refusing early, with a reason, is kinder than a time-out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

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

/// Sends that wait for the disk or a replica, by topic. Each has a place that it gives back when it ends, however it ends.
///
/// What holds: a topic gets another place only while those it has are fewer than a multiple of those still free. So one topic
/// alone stops at a share of the places, several hot ones at equal shares, and whatever they do, some stay free for a
/// topic that sends little.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: AtomicUsize,
    topics: Mutex<HashMap<String, usize>>,
}

/// One place.
#[derive(Debug)]
pub(crate) struct Place {
    places: Arc<Places>,
    topic: String,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
        let mut topics = self.places.topics.lock();
        if let Some(taken) = topics.get_mut(&self.topic) {
            *taken -= 1;
            if *taken == 0 {
                topics.remove(&self.topic);
            }
        }
    }
}

impl Places {
    /// Places taken now.
    pub(crate) fn now(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Places that the topic has taken, when those are too many for it to get another one of `most`. `percent` is the share that
    /// one topic alone may have.
    pub(crate) fn too_many(&self, topic: &str, most: usize, percent: u32) -> Option<usize> {
        let free = most.saturating_sub(self.now());
        let (percent, rest) = (percent.min(100) as usize, 100 - percent.min(100) as usize);
        let fits = |taken: usize| taken.saturating_mul(rest) < percent.saturating_mul(free);
        // Most of the time even a topic that had them all would fit, and nothing has to be looked up.
        if fits(self.now()) {
            return None;
        }
        let own = self.topics.lock().get(topic).copied().unwrap_or(0);
        (!fits(own)).then_some(own)
    }

    pub(crate) fn take(self: &Arc<Self>, topic: &str) -> Place {
        self.taken.fetch_add(1, Ordering::Relaxed);
        let mut topics = self.topics.lock();
        if let Some(taken) = topics.get_mut(topic) {
            *taken += 1;
        } else {
            topics.insert(topic.to_owned(), 1);
        }
        Place {
            places: self.clone(),
            topic: topic.to_owned(),
        }
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
        let (one, two) = (places.take("a"), places.take("a"));
        assert_eq!(places.now(), 2);
        drop((one, two));
        assert_eq!(places.now(), 0);
        assert!(places.topics.lock().is_empty());
    }

    /// Fills places with sends of these topics in turn until none of them gets another.
    fn filled(places: &Arc<Places>, hot: &[&str], most: usize, percent: u32) -> Vec<(Place, String)> {
        let mut held = Vec::new();
        loop {
            let before = held.len();
            for topic in hot {
                if places.too_many(topic, most, percent).is_none() {
                    held.push((places.take(topic), (*topic).to_owned()));
                }
            }
            if held.len() == before {
                return held;
            }
        }
    }

    #[test]
    fn hot_topics_leave_places_for_others() {
        for (hot, percent) in [(&["a"][..], 80), (&["a", "b"], 80), (&["a", "b", "c", "d"], 50)] {
            let places = Arc::new(Places::default());
            let held = filled(&places, hot, 1_000, percent);
            let alpha = f64::from(percent) / f64::from(100 - percent);
            let each = 1_000.0 * alpha / (1.0 + alpha * hot.len() as f64);
            for topic in hot {
                let own = held.iter().filter(|(_, t)| t == topic).count() as f64;
                assert!(
                    (own - each).abs() <= 4.0,
                    "{topic} has {own} of {each} with {hot:?}"
                );
            }
            assert!(places.too_many("quiet", 1_000, percent).is_none());
        }
        // With 100 the first come have them all.
        let places = Arc::new(Places::default());
        let held = filled(&places, &["a"], 50, 100);
        assert_eq!(held.len(), 50);
        assert_eq!(places.too_many("quiet", 50, 100), Some(0));
    }
}
