//! What the operator counts.

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Labels of a finished pass.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Pass {
    kind: &'static str,
    result: &'static str,
}

/// Labels of everything that is counted by kind.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

/// All figures, ready for the metrics page.
#[derive(Debug)]
pub struct Metrics {
    registry: Mutex<Registry>,
    passes: Family<Pass, Counter>,
    seconds: Family<Kind, Histogram, fn() -> Histogram>,
    last_success: Family<Kind, Gauge>,
    writes: Family<Kind, Counter>,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = ferromq_daemon::metrics::registry();
        let passes = Family::<Pass, Counter>::default();
        registry.register(
            "reconciles",
            "Passes over a resource that ended, by result",
            passes.clone(),
        );
        let seconds = Family::<Kind, Histogram, fn() -> Histogram>::new_with_constructor(|| {
            Histogram::new([0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0])
        });
        registry.register(
            "reconcile_seconds",
            "Time of a pass over a resource",
            seconds.clone(),
        );
        let last_success = Family::<Kind, Gauge>::default();
        registry.register(
            "reconcile_last_success_timestamp_seconds",
            "When a pass over a resource last succeeded",
            last_success.clone(),
        );
        let writes = Family::<Kind, Counter>::default();
        registry.register(
            "writes",
            "Writes to Kubernetes and to brokers, by the kind written",
            writes.clone(),
        );
        Self {
            registry: Mutex::new(registry),
            passes,
            seconds,
            last_success,
            writes,
        }
    }
}

impl Metrics {
    /// Counts a pass that ended; `result` is "ok" or a word for the error.
    pub fn passed(&self, kind: &'static str, result: &'static str, took: Duration) {
        self.passes.get_or_create(&Pass { kind, result }).inc();
        self.seconds
            .get_or_create(&Kind { kind })
            .observe(took.as_secs_f64());
        if result == "ok" {
            self.last_success
                .get_or_create(&Kind { kind })
                .set(jiff::Timestamp::now().as_second());
        }
    }

    /// Counts a write.
    pub fn wrote(&self, kind: &'static str) {
        self.writes.get_or_create(&Kind { kind }).inc();
    }

    /// The metrics page.
    pub fn page(&self) -> String {
        ferromq_daemon::metrics::page(&self.registry.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_names_kind_and_result() {
        let metrics = Metrics::default();
        metrics.passed("Topic", "ok", Duration::from_millis(3));
        metrics.wrote("Service");
        let page = metrics.page();
        assert!(
            page.contains("ferromq_reconciles_total{kind=\"Topic\",result=\"ok\"} 1"),
            "{page}"
        );
        assert!(
            page.contains("ferromq_writes_total{kind=\"Service\"} 1"),
            "{page}"
        );
    }
}
