//! The figures of servers as a collector for a metrics page.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::budget::Budget;
use crate::dispatch::Dispatch;
use crate::requests::{BUCKETS, RequestFigures};
use crate::stats::Stats;

/// Figures of the servers of one program: connections (all servers together), their memory, requests by code.
#[derive(Debug)]
pub struct ServerFigures {
    stats: Vec<Arc<Stats>>,
    budget: Arc<Budget>,
    dispatch: Vec<Arc<Dispatch>>,
}

impl ServerFigures {
    /// Of these servers, with the tables that handle their requests (each once) and the budget they share.
    pub fn new(stats: Vec<Arc<Stats>>, dispatch: Vec<Arc<Dispatch>>, budget: Arc<Budget>) -> Self {
        Self {
            stats,
            budget,
            dispatch,
        }
    }

    fn requests(&self) -> Vec<(String, RequestFigures)> {
        let mut all: Vec<(String, RequestFigures)> = Vec::new();
        for figures in self.dispatch.iter().flat_map(|d| d.requests()) {
            let label = figures.code.map_or_else(|| "other".to_owned(), |c| c.to_string());
            match all.iter_mut().find(|(known, _)| *known == label) {
                None => all.push((label, figures)),
                Some((_, sum)) => {
                    sum.count += figures.count;
                    sum.errors += figures.errors;
                    sum.seconds += figures.seconds;
                    sum.buckets
                        .iter_mut()
                        .zip(figures.buckets)
                        .for_each(|(a, b)| *a += b);
                }
            }
        }
        all
    }
}

/// Name, help, value of one server.
type Total = (&'static str, &'static str, fn(&Stats) -> u64);

const TOTALS: [Total; 10] = [
    ("connections_opened", "Connections accepted", Stats::opened),
    ("frames_received", "Frames received", Stats::frames_in),
    ("frames_sent", "Frames sent", Stats::frames_out),
    ("bytes_received", "Bytes received", Stats::bytes_in),
    ("bytes_sent", "Bytes sent", Stats::bytes_out),
    (
        "malformed_frames",
        "Connections closed for a malformed frame",
        Stats::bad_frames,
    ),
    (
        "accept_errors",
        "Failed accepts, mostly for lack of descriptors",
        Stats::accept_errors,
    ),
    (
        "tls_connections_opened",
        "TLS handshakes that succeeded",
        Stats::tls_opened,
    ),
    (
        "tls_errors",
        "TLS handshakes that failed, and plain connections refused in enforcing mode",
        Stats::tls_errors,
    ),
    (
        "connections_shed",
        "Connections closed since they hoarded memory while it was short",
        Stats::shed,
    ),
];

impl Collector for ServerFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let open: u64 = self.stats.iter().map(|s| s.open()).sum();
        for (name, help, value) in [
            ("connections", "Connections open now", open),
            (
                "connection_memory_bytes",
                "Bytes that connections hold above their reserve of 64 KiB each",
                self.budget.used() as u64,
            ),
            (
                "connection_memory_limit_bytes",
                "Bound of connection_memory_bytes",
                self.budget.limit() as u64,
            ),
            (
                "connections_held_back",
                "Connections not read from since memory is short",
                self.budget.held_back() as u64,
            ),
        ] {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        for (name, help, value) in TOTALS {
            let counter = ConstCounter::new(self.stats.iter().map(|s| value(s)).sum::<u64>());
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        let requests = self.requests();
        if requests.is_empty() {
            return Ok(());
        }
        let help = "Requests that were answered with a failure, by request code";
        let mut family = encoder.encode_descriptor("request_errors", help, None, MetricType::Counter)?;
        for (code, figures) in &requests {
            let labels = [("code", code.as_str())];
            let metric = family.encode_family(&labels)?;
            ConstCounter::new(figures.errors).encode(metric)?;
        }
        let help = "Time from the arrival of a request to its answer, by request code";
        let mut family = encoder.encode_descriptor("request_seconds", help, None, MetricType::Histogram)?;
        for (code, figures) in &requests {
            let labels = [("code", code.as_str())];
            let bounds = BUCKETS.into_iter().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(figures.buckets).collect();
            family
                .encode_family(&labels)?
                .encode_histogram::<[(&str, &str); 1]>(figures.seconds, figures.count, &buckets, None)?;
        }
        Ok(())
    }
}
