//! The text of a metrics page.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
pub use prometheus_client::registry::Registry;

/// A registry whose names begin with `ferromq_`, with the process's own figures registered.
pub fn registry() -> Registry {
    let mut registry = Registry::with_prefix("ferromq");
    registry.register_collector(Box::new(Process));
    registry
}

/// The page, in the OpenMetrics text form.
pub fn page(registry: &Registry) -> String {
    let mut text = String::new();
    if let Err(error) = encode(&mut text, registry) {
        tracing::error!(%error, "cannot write the metrics page");
    }
    text
}

/// Resident memory, open descriptors and threads of this process, read from /proc when asked.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        for (name, help, value) in [
            (
                "process_resident_memory_bytes",
                "Resident memory",
                status_kib("VmRSS:").map(|kib| kib * 1024),
            ),
            ("process_threads", "Threads", status_kib("Threads:")),
            ("process_open_fds", "Open file descriptors", open_fds()),
        ] {
            if let Some(value) = value {
                let gauge = ConstGauge::new(value);
                let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
                gauge.encode(metric)?;
            }
        }
        Ok(())
    }
}

fn status_kib(key: &str) -> Option<i64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

fn open_fds() -> Option<i64> {
    Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;

    #[test]
    fn the_page_has_own_and_process_figures() {
        let mut registry = registry();
        let puts: Counter = Counter::default();
        registry.register("puts", "Messages stored", puts.clone());
        puts.inc_by(3);
        let page = page(&registry);
        assert!(page.contains("ferromq_puts_total 3"), "{page}");
        assert!(page.contains("process_resident_memory_bytes"), "{page}");
    }
}
