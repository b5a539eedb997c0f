//! Load and proof: `bench send` writes numbered messages, `bench receive` shows that none is missing.
//!
//! Progress goes to standard error, one line of JSON with the result to standard output at the end.

mod ledger;
mod payload;
pub(crate) mod receive;
pub(crate) mod send;

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

/// Between two tries of what failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Times in microseconds from 1 µs to 1 h, to three digits.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("bounds that the constructor takes")
}

fn record(times: &mut Histogram<u64>, took: Duration) {
    times.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
}

/// Times in milliseconds.
#[derive(Debug, Default, Serialize)]
struct Times {
    min: f64,
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Times {
    fn of(times: &Histogram<u64>) -> Self {
        if times.is_empty() {
            return Self::default();
        }
        let millis = |micros: u64| micros as f64 / 1000.0;
        let at = |quantile| millis(times.value_at_quantile(quantile));
        Self {
            min: millis(times.min()),
            mean: (times.mean()).round() / 1000.0,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: millis(times.max()),
        }
    }
}

/// A bar on a terminal, a line every five seconds elsewhere.
pub(crate) struct Progress {
    bar: ProgressBar,
    what: &'static str,
    total: u64,
    started: Instant,
    told: Instant,
}

impl Progress {
    pub(crate) fn new(what: &'static str, total: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = "{prefix} {bar:30} {human_pos}/{human_len} {per_sec} {elapsed}";
        if let Ok(style) = ProgressStyle::with_template(style) {
            bar.set_style(style);
        }
        bar.set_prefix(what);
        let now = Instant::now();
        Self {
            bar,
            what,
            total,
            started: now,
            told: now,
        }
    }

    pub(crate) fn set(&mut self, done: u64) {
        self.bar.set_position(done);
        if self.bar.is_hidden() && self.told.elapsed() >= Duration::from_secs(5) {
            self.told = Instant::now();
            let seconds = self.started.elapsed().as_secs_f64();
            eprintln!("{} {done} of {} in {seconds:.0} s", self.what, self.total);
        }
    }

    pub(crate) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

/// `count` in `seconds` as a rate, to one digit.
fn rate(count: u64, seconds: f64) -> f64 {
    if seconds <= 0.0 {
        0.0
    } else {
        (count as f64 / seconds * 10.0).round() / 10.0
    }
}

fn rounded(seconds: f64) -> f64 {
    (seconds * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_milliseconds() {
        let mut times = histogram();
        for millis in 1..=100 {
            record(&mut times, Duration::from_millis(millis));
        }
        record(&mut times, Duration::from_secs(100_000));
        let told = Times::of(&times);
        assert!((told.p50 - 51.0).abs() < 1.0, "{told:?}");
        assert!((told.min - 1.0).abs() < 0.01, "{told:?}");
        assert!(told.max >= 3_600_000.0, "{told:?}");
        assert_eq!(Times::of(&histogram()).max.to_bits(), 0.0f64.to_bits());
    }

    #[test]
    fn rates_do_not_divide_by_zero() {
        assert_eq!(rate(10, 0.0).to_bits(), 0.0f64.to_bits());
        assert!((rate(10, 4.0) - 2.5).abs() < 1e-9);
    }
}
