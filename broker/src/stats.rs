//! Totals and rates of what the broker did, for runtime info (28) and metrics.
//!
//! Counters only grow. A sample of them is taken every ten seconds; a rate over a window is the difference of
//! two samples over their distance in time, as `mqadmin clusterList` expects it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

/// Samples kept: ten minutes of one each ten seconds, and the first.
const SAMPLES: usize = 61;
/// Milliseconds between two samples.
pub(crate) const SAMPLE_EVERY_MS: u64 = 10_000;

/// The counters at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    /// Messages stored for clients.
    pub(crate) put: u64,
    pub(crate) put_bytes: u64,
    pub(crate) put_failed: u64,
    /// Pulls that found messages.
    pub(crate) get_found: u64,
    /// Pulls that found none.
    pub(crate) get_miss: u64,
    /// Messages handed to pulls.
    pub(crate) transferred: u64,
    pub(crate) transferred_bytes: u64,
    /// Messages that consumers sent back for a retry.
    pub(crate) sent_back: u64,
}

#[derive(Debug, Default)]
struct Days {
    day: i64,
    yesterday: Totals,
    today: Totals,
}

/// Upper ends in milliseconds of the spans that put times are sorted into, with Java's names of the spans.
const PUT_SPANS: [(u64, &str); 13] = [
    (0, "<=0ms"),
    (10, "0~10ms"),
    (50, "10~50ms"),
    (100, "50~100ms"),
    (200, "100~200ms"),
    (500, "200~500ms"),
    (1_000, "500ms~1s"),
    (2_000, "1~2s"),
    (3_000, "2~3s"),
    (4_000, "3~4s"),
    (5_000, "4~5s"),
    (10_000, "5~10s"),
    (u64::MAX, "10s~"),
];

/// Upper ends in microseconds of the buckets of the metrics page's histograms; a last one has no end.
const BUCKETS: [u64; 16] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 500_000, 1_000_000,
    5_000_000,
];

/// How many took how long.
#[derive(Debug, Default)]
struct Histogram {
    counts: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    fn add(&self, took: Duration) {
        let micros = took.as_micros() as u64;
        let bucket = BUCKETS.partition_point(|&end| end < micros);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn read(&self) -> (Vec<(f64, u64)>, f64) {
        let ends = BUCKETS.iter().map(|&end| end as f64 / 1e6).chain([f64::INFINITY]);
        let counts = self.counts.iter().map(|c| c.load(Ordering::Relaxed));
        (
            ends.zip(counts).collect(),
            self.micros.load(Ordering::Relaxed) as f64 / 1e6,
        )
    }
}

/// All counters.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    put: AtomicU64,
    put_bytes: AtomicU64,
    put_failed: AtomicU64,
    get_found: AtomicU64,
    get_miss: AtomicU64,
    transferred: AtomicU64,
    transferred_bytes: AtomicU64,
    sent_back: AtomicU64,
    put_spans: [AtomicU64; PUT_SPANS.len()],
    put_longest_millis: AtomicU64,
    get_longest_millis: AtomicU64,
    put_times: Histogram,
    get_times: Histogram,
    busy: AtomicU64,
    samples: Mutex<VecDeque<(i64, Totals)>>,
    days: Mutex<Days>,
}

impl Stats {
    pub(crate) fn stored(&self, messages: u64, bytes: u64) {
        self.put.fetch_add(messages, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// How long the store took to take a message.
    pub(crate) fn put_took(&self, took: Duration) {
        let millis = took.as_millis() as u64;
        let span = PUT_SPANS
            .iter()
            .position(|&(end, _)| millis <= end)
            .unwrap_or(PUT_SPANS.len() - 1);
        self.put_spans[span].fetch_add(1, Ordering::Relaxed);
        self.put_times.add(took);
        if millis > self.put_longest_millis.load(Ordering::Relaxed) {
            self.put_longest_millis.fetch_max(millis, Ordering::Relaxed);
        }
    }

    /// How long the store took to answer a read.
    pub(crate) fn get_took(&self, took: Duration) {
        self.get_times.add(took);
        let millis = took.as_millis() as u64;
        if millis > self.get_longest_millis.load(Ordering::Relaxed) {
            self.get_longest_millis.fetch_max(millis, Ordering::Relaxed);
        }
    }

    /// Buckets by upper end in seconds, and the sum of all times, of puts.
    pub(crate) fn put_times(&self) -> (Vec<(f64, u64)>, f64) {
        self.put_times.read()
    }

    /// The same of gets.
    pub(crate) fn get_times(&self) -> (Vec<(f64, u64)>, f64) {
        self.get_times.read()
    }

    /// A request was answered busy before it was handled.
    pub(crate) fn answered_busy(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn busy(&self) -> u64 {
        self.busy.load(Ordering::Relaxed)
    }

    /// The longest put and the longest get, in milliseconds.
    pub(crate) fn longest(&self) -> (u64, u64) {
        (
            self.put_longest_millis.load(Ordering::Relaxed),
            self.get_longest_millis.load(Ordering::Relaxed),
        )
    }

    /// The time in milliseconds within which that part of the puts was done, as far as the spans tell.
    pub(crate) fn put_within(&self, part: f64) -> f64 {
        let counts: Vec<u64> = self.put_spans.iter().map(|c| c.load(Ordering::Relaxed)).collect();
        let wanted = counts.iter().sum::<u64>() as f64 * part;
        let mut seen = 0;
        for (&(end, _), count) in PUT_SPANS.iter().zip(counts) {
            seen += count;
            if seen as f64 >= wanted {
                return end.min(self.put_longest_millis.load(Ordering::Relaxed)) as f64;
            }
        }
        0.0
    }

    /// How many puts took how long, as the runtime info spells it.
    pub(crate) fn put_distribution(&self) -> String {
        let mut text = String::new();
        for ((_, name), count) in PUT_SPANS.iter().zip(&self.put_spans) {
            for part in ["[", name, "]:", &count.load(Ordering::Relaxed).to_string(), " "] {
                text.push_str(part);
            }
        }
        text
    }

    pub(crate) fn put_refused(&self) {
        self.put_failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn pulled(&self, messages: u64, bytes: u64) {
        self.get_found.fetch_add(1, Ordering::Relaxed);
        self.transferred.fetch_add(messages, Ordering::Relaxed);
        self.transferred_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn pulled_nothing(&self) {
        self.get_miss.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sent_back(&self) {
        self.sent_back.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> Totals {
        let load = |a: &AtomicU64| a.load(Ordering::Relaxed);
        Totals {
            put: load(&self.put),
            put_bytes: load(&self.put_bytes),
            put_failed: load(&self.put_failed),
            get_found: load(&self.get_found),
            get_miss: load(&self.get_miss),
            transferred: load(&self.transferred),
            transferred_bytes: load(&self.transferred_bytes),
            sent_back: load(&self.sent_back),
        }
    }

    /// Takes a sample; called every [`SAMPLE_EVERY_MS`].
    pub(crate) fn sample(&self, now: i64) {
        let totals = self.totals();
        let mut samples = self.samples.lock();
        if samples.len() == SAMPLES {
            samples.pop_front();
        }
        samples.push_back((now, totals));
        drop(samples);
        let day = now.div_euclid(86_400_000);
        let mut days = self.days.lock();
        if days.day == 0 {
            days.day = day;
        } else if days.day != day {
            days.day = day;
            days.yesterday = days.today;
            days.today = totals;
        }
    }

    /// The totals at the beginning of yesterday and of today (UTC), as far as this process lived then.
    pub(crate) fn mornings(&self) -> (Totals, Totals) {
        let days = self.days.lock();
        (days.yesterday, days.today)
    }

    /// Per second over the last 10 s, 60 s and 600 s (or since the start), as the runtime info spells it.
    pub(crate) fn rates(&self, of: impl Fn(&Totals) -> u64) -> String {
        let samples = self.samples.lock();
        let rate = |back: usize| -> f64 {
            let Some((end, last)) = samples.back() else {
                return 0.0;
            };
            let (begin, first) = &samples[samples.len().saturating_sub(back + 1)];
            let millis = end - begin;
            if millis <= 0 {
                0.0
            } else {
                of(last).saturating_sub(of(first)) as f64 * 1000.0 / millis as f64
            }
        };
        format!("{} {} {}", text(rate(1)), text(rate(6)), text(rate(60)))
    }
}

/// Java's way to print a double of this size.
fn text(value: f64) -> String {
    format!("{value:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_over_their_windows() {
        let stats = Stats::default();
        assert_eq!(stats.rates(|t| t.put), "0.0 0.0 0.0");
        stats.sample(0);
        stats.stored(100, 1);
        stats.sample(10_000);
        assert_eq!(stats.rates(|t| t.put), "10.0 10.0 10.0");
        for i in 2..=100 {
            stats.sample(i * 10_000);
        }
        stats.stored(600, 1);
        stats.sample(1_010_000);
        assert_eq!(stats.rates(|t| t.put), "60.0 10.0 1.0");
    }

    #[test]
    fn put_times_are_sorted_into_spans() {
        let stats = Stats::default();
        for micros in [10, 700, 9_000, 12_000_000] {
            stats.put_took(Duration::from_micros(micros));
        }
        assert!(
            stats
                .put_distribution()
                .starts_with("[<=0ms]:2 [0~10ms]:1 [10~50ms]:0 ")
        );
        assert!(stats.put_distribution().ends_with("[10s~]:1 "));
        assert_eq!(stats.longest(), (12_000, 0));
        assert_eq!(
            (
                stats.put_within(0.5),
                stats.put_within(0.75),
                stats.put_within(0.99)
            ),
            (0.0, 10.0, 12_000.0)
        );
    }

    #[test]
    fn a_new_day_moves_the_mornings() {
        let stats = Stats::default();
        let day = 86_400_000;
        stats.sample(day * 10);
        stats.stored(5, 1);
        stats.sample(day * 11);
        stats.stored(5, 1);
        stats.sample(day * 12);
        let (yesterday, today) = stats.mornings();
        assert_eq!((yesterday.put, today.put), (5, 10));
    }
}
