//! How often each request code came, how it was answered and how long that took.
//!
//! Only codes with a handler of their own are told apart, so peers cannot make the table grow. One answer costs
//! two or three relaxed additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferromq_protocol::code::response;

/// Upper bounds of the buckets of the time to an answer, seconds; one more bucket has no bound. Held pulls take
/// up to half a minute.
pub const BUCKETS: [f64; 11] = [
    0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0,
];
const BOUNDS_MICROS: [u64; 11] = [
    100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 30_000_000,
];

/// Counters of one code.
#[derive(Debug, Default)]
pub(crate) struct CodeStats {
    buckets: [AtomicU64; 12],
    micros: AtomicU64,
    errors: AtomicU64,
}

/// What is known of one code.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestFigures {
    /// The request code; `None` stands for all codes without a handler of their own.
    pub code: Option<i32>,
    /// Requests answered, or handled without an answer.
    pub count: u64,
    /// Those of them answered with a failure. "Nothing there (yet)" and "another offset" are none.
    pub errors: u64,
    /// Sum of the times from the arrival of the request to its answer, seconds.
    pub seconds: f64,
    /// Requests by time, not cumulative; see [`BUCKETS`].
    pub buckets: [u64; 12],
}

impl CodeStats {
    /// One request is done; `answer` is the code of its answer, if it got one.
    pub(crate) fn done(&self, answer: Option<i32>, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MICROS.partition_point(|bound| *bound < micros);
        self.buckets[at].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        if answer.is_some_and(is_failure) {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn figures(&self, code: Option<i32>) -> RequestFigures {
        let buckets = std::array::from_fn(|n| self.buckets[n].load(Ordering::Relaxed));
        RequestFigures {
            code,
            count: buckets.iter().sum(),
            errors: self.errors.load(Ordering::Relaxed),
            seconds: self.micros.load(Ordering::Relaxed) as f64 / 1e6,
            buckets,
        }
    }
}

fn is_failure(code: i32) -> bool {
    !matches!(
        code,
        response::SUCCESS
            | response::PULL_NOT_FOUND
            | response::PULL_RETRY_IMMEDIATELY
            | response::PULL_OFFSET_MOVED
            | response::QUERY_NOT_FOUND
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_fall_into_their_buckets_and_failures_are_told_apart() {
        let stats = CodeStats::default();
        stats.done(Some(0), Duration::from_micros(100));
        stats.done(Some(response::PULL_NOT_FOUND), Duration::from_micros(101));
        stats.done(Some(1), Duration::from_secs(31));
        stats.done(None, Duration::from_secs(30));
        let figures = stats.figures(Some(10));
        assert_eq!((figures.count, figures.errors), (4, 1));
        assert_eq!(figures.buckets, [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert!((figures.seconds - 61.000_201).abs() < 1e-9);
    }

    #[test]
    fn the_bounds_are_the_same_in_both_units() {
        for (seconds, micros) in BUCKETS.iter().zip(BOUNDS_MICROS) {
            assert!((seconds * 1e6 - micros as f64).abs() < 1e-6);
        }
    }
}
