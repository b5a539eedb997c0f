//! Which brokers a producer passes over, from how they answered before.
//!
//! Two memories, one in use at a time: [`Faults::Unreachable`] passes over a broker that could not be reached, for 30 s
//! or until it answers; [`Faults::Latency`] is Java's table, in which slow answers count as well.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long a broker that could not be reached is passed over while others are there.
const SHUN_FOR: Duration = Duration::from_secs(30);

/// Answers at least so slow, in milliseconds, are followed by so many milliseconds of being passed over.
const TABLE: [(u64, u64); 7] = [
    (50, 0),
    (100, 0),
    (550, 30_000),
    (1000, 60_000),
    (2000, 120_000),
    (3000, 180_000),
    (15_000, 600_000),
];

/// A failure counts as an answer after this time.
const FAILED: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    latency: Duration,
    until: Instant,
}

#[derive(Debug)]
pub(crate) enum Faults {
    Unreachable(Mutex<HashMap<String, Instant>>),
    Latency(Mutex<HashMap<String, Fault>>),
}

fn passed_over_for(latency: Duration) -> Duration {
    let millis = latency.as_millis();
    let entry = TABLE
        .iter()
        .rev()
        .find(|(at_least, _)| millis >= u128::from(*at_least));
    Duration::from_millis(entry.map_or(0, |(_, pause)| *pause))
}

impl Faults {
    pub(crate) fn new(by_latency: bool) -> Self {
        if by_latency {
            Self::Latency(Mutex::default())
        } else {
            Self::Unreachable(Mutex::default())
        }
    }

    /// A broker answered, after this time.
    pub(crate) fn answered(&self, broker: &str, latency: Duration, now: Instant) {
        match self {
            Self::Unreachable(until) => {
                let mut until = until.lock();
                if !until.is_empty() {
                    until.remove(broker);
                }
            }
            Self::Latency(table) => {
                let fault = Fault {
                    latency,
                    until: now + passed_over_for(latency),
                };
                table.lock().insert(broker.to_owned(), fault);
            }
        }
    }

    /// A broker could not be reached, or did not answer.
    pub(crate) fn failed(&self, broker: &str, now: Instant) {
        match self {
            Self::Unreachable(until) => {
                until.lock().insert(broker.to_owned(), now + SHUN_FOR);
            }
            Self::Latency(_) => self.answered(broker, FAILED, now),
        }
    }

    pub(crate) fn avoids(&self, broker: &str, now: Instant) -> bool {
        match self {
            Self::Unreachable(until) => until.lock().get(broker).is_some_and(|until| now < *until),
            Self::Latency(table) => table.lock().get(broker).is_some_and(|fault| now < fault.until),
        }
    }

    /// When all are to be avoided: one of the better half, in turn. Only Java's table knows better ones.
    pub(crate) fn least_bad(&self, turn: usize, now: Instant) -> Option<String> {
        let Self::Latency(table) = self else { return None };
        let mut brokers: Vec<(bool, Duration, Instant, String)> = table
            .lock()
            .iter()
            .map(|(name, fault)| (now < fault.until, fault.latency, fault.until, name.clone()))
            .collect();
        brokers.sort();
        let half = (brokers.len() / 2).max(1);
        let at = turn % half;
        brokers.into_iter().nth(at).map(|(_, _, _, name)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_those_of_javas_table() {
        for (latency, pause) in [
            (0, 0),
            (99, 0),
            (549, 0),
            (550, 30_000),
            (999, 30_000),
            (1000, 60_000),
            (2999, 120_000),
            (3000, 180_000),
            (14_999, 180_000),
            (15_000, 600_000),
            (30_000, 600_000),
        ] {
            let latency = Duration::from_millis(latency);
            assert_eq!(
                passed_over_for(latency),
                Duration::from_millis(pause),
                "{latency:?}"
            );
        }
    }

    #[test]
    fn an_unreachable_broker_is_shunned_for_a_while_or_until_it_answers() {
        let (faults, now) = (Faults::new(false), Instant::now());
        faults.failed("a", now);
        assert!(faults.avoids("a", now + Duration::from_secs(29)));
        assert!(!faults.avoids("a", now + Duration::from_secs(31)));
        assert!(!faults.avoids("b", now));
        faults.answered("a", Duration::from_secs(20), now);
        assert!(!faults.avoids("a", now), "slow is not unreachable");
        assert_eq!(faults.least_bad(0, now), None);
    }

    #[test]
    fn slow_brokers_are_passed_over_and_the_better_half_is_left() {
        let (faults, now) = (Faults::new(true), Instant::now());
        for (broker, millis) in [("a", 600), ("b", 1500), ("c", 2500)] {
            faults.answered(broker, Duration::from_millis(millis), now);
        }
        faults.failed("d", now);
        for broker in ["a", "b", "c", "d"] {
            assert!(faults.avoids(broker, now), "{broker}");
        }
        assert!(!faults.avoids("a", now + Duration::from_secs(31)));
        let picked: Vec<_> = (0..3).filter_map(|turn| faults.least_bad(turn, now)).collect();
        assert_eq!(picked, ["a", "b", "a"]);
        faults.answered("d", Duration::from_millis(20), now);
        assert!(!faults.avoids("d", now));
    }
}
