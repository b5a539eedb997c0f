//! Settings of the operator: flags, each with an environment variable that the chart sets. All timers are here.

use clap::ValueEnum;
use std::time::Duration;

/// How the operator reaches brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Dial {
    /// By headless names inside Kubernetes (where KUBERNETES_SERVICE_HOST is set), else by pod addresses.
    Auto,
    /// By headless names, and by the pod's address where the name does not lead to the right broker.
    Names,
    /// By pod addresses only, for an operator that runs outside Kubernetes on the pod network.
    PodIps,
}

/// Settings of `ferromq-operator run`.
#[derive(Debug, Clone, clap::Args)]
pub struct Settings {
    /// Watch only these namespaces, with commas between them; empty means all.
    #[arg(long, env = "FERROMQ_WATCH_NAMESPACE", default_value = "")]
    pub watch_namespace: String,
    /// Seconds after which everything is looked at again, changed or not.
    #[arg(long, env = "FERROMQ_RESYNC_SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub resync_seconds: u64,
    /// Seconds between looks at a resource that is on its way or failed.
    #[arg(long, env = "FERROMQ_RETRY_SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub retry_seconds: u64,
    /// Milliseconds that one call to a broker may take.
    #[arg(long, env = "FERROMQ_BROKER_TIMEOUT_MILLISECONDS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub broker_timeout_milliseconds: u64,
    /// Resources of a kind reconciled at the same time.
    #[arg(long, env = "FERROMQ_CONCURRENCY", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub concurrency: u16,
    /// Seconds that clients are given to learn of fewer queues or groups: they ask for routes every 30 seconds.
    #[arg(long, env = "FERROMQ_ROUTE_REFRESH_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub route_refresh_seconds: u32,
    /// Seconds after which another operator takes over from one that no longer renews its lease; 0 is no election.
    #[arg(long, env = "FERROMQ_LEASE_SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub lease_seconds: u64,
    /// Namespace of the operator itself, for its lease.
    #[arg(long, env = "POD_NAMESPACE", default_value = "default")]
    pub own_namespace: String,
    /// Name of this process in leases and events.
    #[arg(long, env = "POD_NAME", default_value = "ferromq-operator")]
    pub identity: String,
    /// How brokers are reached.
    #[arg(long, env = "FERROMQ_DIAL", value_enum, default_value = "auto")]
    pub dial: Dial,
    /// Port of probes and metrics; 0 is off.
    #[arg(long, env = "FERROMQ_HTTP_PORT", default_value_t = 8080)]
    pub http_port: u16,
    /// error, warn, info, debug or trace, or target=level pairs.
    #[arg(long, env = "FERROMQ_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
    /// text or json.
    #[arg(long, env = "FERROMQ_LOG_FORMAT", default_value = "text")]
    pub log_format: String,
}

impl Settings {
    /// Time after which everything is looked at again.
    pub fn resync(&self) -> Duration {
        Duration::from_secs(self.resync_seconds)
    }

    /// Time between looks at something on its way.
    pub fn retry(&self) -> Duration {
        Duration::from_secs(self.retry_seconds)
    }

    /// Time for one call to a broker.
    pub fn broker_timeout(&self) -> Duration {
        Duration::from_millis(self.broker_timeout_milliseconds)
    }

    /// Seconds that clients are given to learn of a change of routes.
    pub fn route_refresh(&self) -> i64 {
        i64::from(self.route_refresh_seconds)
    }

    /// The namespaces to watch; one empty name stands for all.
    pub fn namespaces(&self) -> Vec<String> {
        let mut named: Vec<String> = self
            .watch_namespace
            .split(',')
            .map(str::trim)
            .filter(|n| !n.is_empty())
            .map(str::to_owned)
            .collect();
        named.sort();
        named.dedup();
        if named.is_empty() {
            vec![String::new()]
        } else {
            named
        }
    }

    /// Whether headless names are used, given whether this process runs inside Kubernetes.
    pub fn dials_names(&self, inside: bool) -> bool {
        match self.dial {
            Dial::Auto => inside,
            Dial::Names => true,
            Dial::PodIps => false,
        }
    }
}
