//! Start, liveness scan and stop of a name server.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferromq_daemon::http::{App, HeaderMap, Http, Method, Response, StatusCode};
use ferromq_daemon::{limits, logging, metrics};
use ferromq_remoting::{
    Budget, CallError, Limits, Server, ServerConfig, ServerFigures, ServerTls, TlsError, TlsSettings,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::NamesrvSettings;
use crate::processor::{Channels, Core, dispatch};

/// First look at the brokers' signs of life, and the time between looks.
const SCAN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(10));
/// Path of the list of name servers.
const ADDRESS_PAGE: &str = "/rocketmq/nsaddr";
/// The key-value configuration is logged this often.
const LOG_KV: Duration = Duration::from_mins(10);

/// Why a name server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// bindAddress is no address.
    #[error("bindAddress={0} is not an IP address; write one such as 0.0.0.0 or ::")]
    BindAddress(String),
    /// The key-value configuration cannot be loaded.
    #[error("cannot load the key-value configuration: {0}")]
    KvConfig(#[source] io::Error),
    /// The name servers of the other environment cannot be understood.
    #[error("clusterTest=true, but the other environment cannot be asked: {0}")]
    OtherEnvironment(#[source] CallError),
    /// A certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A port cannot be bound; the text names it.
    #[error(transparent)]
    Bind(io::Error),
}

/// The name server; see [`NameServer::start`].
#[derive(Debug, Clone, Copy)]
pub struct NameServer;

/// A running name server. Dropping it without [`shutdown`](Running::shutdown) stops it without draining.
pub struct Running {
    local: SocketAddr,
    http: Option<SocketAddr>,
    core: Arc<Core>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("local", &self.local)
            .field("http", &self.http)
            .finish_non_exhaustive()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Running {
    /// The address that brokers and clients connect to, with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The address of the HTTP pages, if there are any.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// Number of topics that have a route.
    pub fn topics(&self) -> usize {
        self.core.table.read().sizes().topics
    }

    /// Number of broker addresses with a sign of life.
    pub fn live_brokers(&self) -> usize {
        self.core.table.read().sizes().live
    }

    /// Accepts no more, answers what is in flight, and returns when all is closed.
    pub async fn shutdown(self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl NameServer {
    /// Starts a name server. When this returns it accepts connections.
    ///
    /// # Errors
    /// A port is taken, or the key-value configuration is damaged.
    pub async fn start(
        settings: NamesrvSettings,
        log: Option<logging::Handle>,
    ) -> Result<Running, StartError> {
        Self::start_with(settings, log, TlsSettings::default()).await
    }

    /// The same, with settings of TLS.
    ///
    /// # Errors
    /// As [`NameServer::start`]; and a certificate or key cannot be used.
    pub async fn start_with(
        settings: NamesrvSettings,
        log: Option<logging::Handle>,
        tls: TlsSettings,
    ) -> Result<Running, StartError> {
        let tls = ServerTls::new(&tls)?;
        let ip: IpAddr = settings
            .bind_address
            .trim()
            .parse()
            .map_err(|_| StartError::BindAddress(settings.bind_address.clone()))?;
        let budget = Budget::new(limits::connection_buffers(settings.connection_buffer_bytes));
        let config = ServerConfig {
            budget: Arc::clone(&budget),
            name: "namesrv",
            limits: Limits {
                idle: Duration::from_secs(settings.idle_seconds.into()),
                ..Limits::default()
            },
            tls: tls.clone(),
            backlog: settings.backlog,
            ..ServerConfig::default()
        };
        let (port, http_port, warm_up) = (settings.listen_port, settings.http_port, settings.warm_up_millis);
        let core = Arc::new(Core::new(settings, log)?);
        let events = Arc::new(Channels(Arc::clone(&core)));
        let dispatch = dispatch(&core);
        let server = Server::bind(SocketAddr::new(ip, port), config, Arc::clone(&dispatch), events)
            .map_err(StartError::Bind)?;
        let local = server.local_addr();
        let stop = CancellationToken::new();
        let tasks = TaskTracker::new();
        let mut http = None;
        if http_port != 0 {
            let bound = Http::bind(SocketAddr::new(ip, http_port))
                .await
                .map_err(StartError::Bind)?;
            http = Some(bound.local_addr());
            let figures = ServerFigures::new(vec![server.stats()], vec![dispatch], budget);
            let pages = Pages::new(&core, figures, stop.clone(), Duration::from_millis(warm_up));
            tasks.spawn(bound.run(Arc::new(pages), stop.clone()));
        }
        tasks.spawn(server.run(stop.clone()));
        if let Some(tls) = tls {
            tasks.spawn(tls.watch(stop.clone()));
        }
        tasks.spawn(scan(Arc::clone(&core), stop.clone()));
        Ok(Running {
            local,
            http,
            core,
            stop,
            tasks,
        })
    }
}

/// Starts a name server inside another program or a test.
///
/// # Errors
/// As [`NameServer::start`].
pub async fn start(settings: NamesrvSettings) -> Result<Running, StartError> {
    NameServer::start(settings, None).await
}

/// Runs a name server until `stop` is cancelled, then drains it.
///
/// # Errors
/// As [`NameServer::start`].
pub async fn run(settings: NamesrvSettings, stop: CancellationToken) -> Result<(), StartError> {
    let running = start(settings).await?;
    stop.cancelled().await;
    running.shutdown().await;
    Ok(())
}

async fn scan(core: Arc<Core>, stop: CancellationToken) {
    let start = tokio::time::Instant::now();
    let mut looks = tokio::time::interval_at(start + SCAN.0, SCAN.1);
    let mut logs = tokio::time::interval_at(start + LOG_KV, LOG_KV);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = looks.tick() => core.expire(),
            _ = logs.tick() => core.kv.log(),
        }
    }
}

/// The HTTP pages.
struct Pages {
    core: Arc<Core>,
    registry: Registry,
    stop: CancellationToken,
    warm_up: Duration,
    /// Brokers that end the waiting once all are there.
    expected: Vec<String>,
}

impl Pages {
    fn new(core: &Arc<Core>, servers: ServerFigures, stop: CancellationToken, warm_up: Duration) -> Self {
        let mut registry = metrics::registry();
        registry.register_collector(Box::new(Figures {
            core: Arc::clone(core),
        }));
        registry.register_collector(Box::new(servers));
        let expected = core.settings.read().expected_brokers.clone();
        let names = expected.split(';').map(str::trim).filter(|name| !name.is_empty());
        Self {
            core: Arc::clone(core),
            registry,
            stop,
            warm_up,
            expected: names.map(str::to_owned).collect(),
        }
    }
}

impl App for Pages {
    fn ready(&self) -> Result<(), String> {
        if self.stop.is_cancelled() {
            return Err("stopping".to_owned());
        }
        let up = self.core.started.elapsed();
        if up >= self.warm_up {
            return Ok(());
        }
        let left = self.warm_up.saturating_sub(up).as_secs() + 1;
        if self.expected.is_empty() {
            return Err(format!("waiting {left} s more for brokers to register"));
        }
        let table = self.core.table.read();
        match self.expected.iter().find(|name| !table.has_master(name)) {
            None => Ok(()),
            Some(name) => Err(format!("waiting for {name} to register, {left} s more at most")),
        }
    }

    fn metrics(&self) -> String {
        metrics::page(&self.registry)
    }

    /// The page that clients and brokers ask when they look for name servers.
    fn route(&self, method: &Method, path: &str, _: &HeaderMap, _: &[u8]) -> Option<Response> {
        if path != ADDRESS_PAGE || !matches!(*method, Method::GET | Method::HEAD) {
            return None;
        }
        let list = self.core.settings.read().address_list.trim().to_owned();
        Some(if list.is_empty() {
            let text = "addressList is not set: this name server does not say where name servers are\n";
            Response::text(StatusCode::NOT_FOUND, text)
        } else {
            Response::text(StatusCode::OK, list + "\n")
        })
    }
}

struct Figures {
    core: Arc<Core>,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Figures")
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let sizes = self.core.table.read().sizes();
        for (name, help, value) in [
            ("namesrv_topics", "Topics with a route", sizes.topics as u64),
            (
                "namesrv_broker_names",
                "Broker names in the routes",
                sizes.broker_names as u64,
            ),
            (
                "namesrv_live_brokers",
                "Broker addresses with a sign of life",
                sizes.live as u64,
            ),
            ("namesrv_clusters", "Clusters", sizes.clusters as u64),
        ] {
            let gauge = ConstGauge::new(value as i64);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    /// Keeps what is logged.
    #[derive(Debug, Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_key_value_configuration_is_logged_every_ten_minutes() {
        let dir = tempfile::tempdir().unwrap();
        let settings = NamesrvSettings {
            kv_config_path: dir.path().join("kv.json").display().to_string(),
            ..NamesrvSettings::default()
        };
        let core = Arc::new(Core::new(settings, None).unwrap());
        core.kv.put("NS", "key", "value").unwrap();
        let lines = Lines::default();
        let sink = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || sink.clone())
            .finish();
        let _logging = tracing::subscriber::set_default(subscriber);
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        tasks.spawn(scan(core, stop.clone()));
        let logged = || {
            let text = String::from_utf8(lines.0.lock().clone()).unwrap();
            text.lines()
                .filter(|line| line.contains("key-value configuration"))
                .count()
        };
        for (minutes, times) in [(9, 0), (2, 1), (10, 2), (10, 3)] {
            tokio::time::sleep(Duration::from_mins(minutes)).await;
            assert_eq!(logged(), times);
        }
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}
