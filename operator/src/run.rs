//! The running operator: connection, HTTP, controllers, and the order in which they stop.

use crate::access::Access;
use crate::context::{Context, Directory};
use crate::controller::{brokercluster, consumergroup, topic};
use crate::crd::{BrokerCluster, ConsumerGroup, Topic};
use crate::events::Said;
use crate::lease::Candidate;
use crate::metrics::Metrics;
use crate::settings::Settings;
use anyhow::Context as _;
use ferromq_client::ClientConfig;
use ferromq_daemon::http::{App, Http};
use ferromq_daemon::{logging, shutdown};
use kube::api::ListParams;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long passes that have begun may go on after a signal.
const DRAIN: Duration = Duration::from_secs(20);

struct Page {
    cx: Arc<Context>,
    ready: Arc<AtomicBool>,
}

impl App for Page {
    fn ready(&self) -> Result<(), String> {
        if self.ready.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("the custom resources cannot be read yet; are the definitions installed?".to_owned())
        }
    }

    fn metrics(&self) -> String {
        self.cx.metrics.page()
    }
}

/// Runs until a signal.
///
/// # Errors
/// Logging, the connection's settings or the HTTP port are wrong.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let format = logging::Format::from_name(&settings.log_format)
        .with_context(|| format!("log format {:?} is neither text nor json", settings.log_format))?;
    let _level = logging::init(format, &settings.log_level)?;
    let client = kube::Client::try_default().await.context(
        "find the Kubernetes cluster (a service account, or the kubeconfig of KUBECONFIG or ~/.kube/config)",
    )?;
    let client_config = ClientConfig::new("").with_call_timeout(settings.broker_timeout());
    let by_name = settings.dials_names(std::env::var_os("KUBERNETES_SERVICE_HOST").is_some());
    let cx = Arc::new(Context {
        client,
        by_name,
        access: Access::new(&client_config).context("set up calls to brokers")?,
        metrics: Metrics::default(),
        directory: Directory::default(),
        passes: TaskTracker::new(),
        identity: settings.identity.clone(),
        said: Said::default(),
        settings,
    });

    let stop = CancellationToken::new();
    let ended = CancellationToken::new();
    let tasks = TaskTracker::new();
    shutdown::on_signals(&tasks, stop.clone(), ended.clone()).context("listen for signals")?;
    let ready = Arc::new(AtomicBool::new(false));
    if cx.settings.http_port != 0 {
        let http = Http::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, cx.settings.http_port))).await?;
        let page = Arc::new(Page {
            cx: Arc::clone(&cx),
            ready: Arc::clone(&ready),
        });
        let ended = ended.clone();
        tasks.spawn(async move { http.run(page, ended).await });
    }
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "ferromq-operator started");

    let mut lost = Ok(());
    if wait_for_definitions(&cx, &stop).await {
        ready.store(true, Ordering::Relaxed);
        lost = lead(&cx, &stop).await;
    }
    let by_signal = stop.is_cancelled();
    ready.store(false, Ordering::Relaxed);
    ended.cancel();
    tasks.close();
    tasks.wait().await;
    cx.access.close().await;
    lost?;
    anyhow::ensure!(by_signal, "the controllers ended by themselves");
    tracing::info!("ferromq-operator stopped");
    Ok(())
}

/// Runs the controllers, once the lease is held if there is an election. Ends with them, with a stop, or with the lease.
async fn lead(cx: &Arc<Context>, stop: &CancellationToken) -> anyhow::Result<()> {
    let seconds = cx.settings.lease_seconds;
    let candidate = (seconds > 0).then(|| {
        Candidate::new(
            cx.client.clone(),
            &cx.settings.own_namespace,
            &cx.identity,
            Duration::from_secs(seconds),
        )
    });
    if let Some(candidate) = &candidate {
        if !candidate.acquire(stop).await {
            return Ok(());
        }
        tracing::info!("leading");
    }
    let ended = CancellationToken::new();
    let hold = async {
        if let Some(candidate) = &candidate {
            candidate.hold(ended.clone()).await
        } else {
            ended.cancelled().await;
            Ok(())
        }
    };
    let work = async {
        let controllers = cx.settings.namespaces().into_iter().map(|namespace| {
            futures::future::join3(
                Box::pin(brokercluster::run(
                    Arc::clone(cx),
                    namespace.clone(),
                    stop.clone(),
                )),
                Box::pin(topic::run(Arc::clone(cx), namespace.clone(), stop.clone())),
                Box::pin(consumergroup::run(Arc::clone(cx), namespace, stop.clone())),
            )
        });
        tokio::select! {
            _ = futures::future::join_all(controllers) => {}
            () = drained(cx, stop) => {}
        }
        ended.cancel();
    };
    tokio::pin!(work, hold);
    tokio::select! {
        () = &mut work => hold.await,
        // Whoever leads now works already.
        lost = &mut hold => lost,
    }
}

/// Ends when a stop was asked for and the passes under way have ended. The controllers begin no new ones then, but their
/// own end is not waited for: their streams may sleep on after the last pass.
async fn drained(cx: &Context, stop: &CancellationToken) {
    stop.cancelled().await;
    cx.passes.close();
    if tokio::time::timeout(DRAIN, cx.passes.wait()).await.is_err() {
        tracing::warn!("passes did not end in {DRAIN:?} and are given up; the next start takes them up");
    }
}

/// Waits until both kinds can be listed; false when told to stop.
async fn wait_for_definitions(cx: &Context, stop: &CancellationToken) -> bool {
    loop {
        let one = ListParams::default().limit(1);
        let namespace = cx.settings.namespaces().into_iter().next().unwrap_or_default();
        let clusters = cx
            .watched::<BrokerCluster>(&namespace)
            .list_metadata(&one)
            .await
            .map(drop);
        let topics = cx
            .watched::<Topic>(&namespace)
            .list_metadata(&one)
            .await
            .map(drop);
        let groups = cx
            .watched::<ConsumerGroup>(&namespace)
            .list_metadata(&one)
            .await
            .map(drop);
        let Err(error) = clusters.and(topics).and(groups) else {
            return true;
        };
        tracing::warn!(%error, "cannot read the custom resources yet");
        tokio::select! {
            () = stop.cancelled() => return false,
            () = tokio::time::sleep(cx.settings.retry()) => {}
        }
    }
}
