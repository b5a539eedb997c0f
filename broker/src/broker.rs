//! Starting and stopping in order.
//!
//! Start: pages → tables → store (lock, recover, run) → listen → register. Clients are served only after
//! the store runs, and are told of the broker only after it is served.
//!
//! Stop, so that clients notice least: leave the routes → answer held pulls → drain connections → save
//! tables → flush and close the store. A deadline bounds it; the tables and the store are closed even when it passes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use ferromq_daemon::http::Http;
use ferromq_daemon::limits::{self, Shares};
use ferromq_daemon::logging::Handle;
use ferromq_remoting::{
    Budget, Client, ClientConfig, ClientTls, Conn, ConnEvents, Dispatch, Limits, RpcHook, Server,
    ServerConfig, ServerFigures, ServerTls, TlsSettings,
};
use ferromq_store::ha::Slave;
use ferromq_store::{BrokerRole, Hooks, Progress, Store, StoreConfig};
use parking_lot::RwLock;
use tokio::time::{timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acl::{Acl, Signer};
use crate::clock::now_ms;
use crate::config::{BrokerSettings, SharedSettings};
use crate::core::{Core, Identity, Parts};
use crate::extend::{Extensions, SendHook};
use crate::filter_table::FilterTable;
use crate::http::{Labels, Pages};
use crate::long_poll::LongPoll;
use crate::offset_table::OffsetTable;
use crate::overload::WriteGate;
use crate::own_address::host_port;
use crate::register::Registrar;
use crate::tables::{load_filters, load_tables};
use crate::{housekeeping, notice, processor, replication, slow_readers, transaction};

/// How long the start waits for the first registration.
const FIRST_REGISTRATION: Duration = Duration::from_secs(3);
/// How long work that is still going on at the end of a stop has.
const LAST_WORK: Duration = Duration::from_secs(1);

/// The broker before it runs.
#[derive(Debug)]
pub struct Broker;

/// What a broker is started with, beside its settings.
#[derive(Debug, Clone, Default)]
pub struct StartOptions {
    /// The log whose level follows `logLevel` when that is changed at run time. Default: none, the key has no effect then.
    pub log: Option<Handle>,
    /// Encryption of what comes in and of what goes out. Default: clients may encrypt, with a certificate made at the start.
    pub tls: TlsSettings,
    /// Hooks. Default: none.
    pub extensions: Extensions,
}

/// A running broker.
#[derive(Debug)]
pub struct Running {
    core: Arc<Core>,
    pages: Arc<Pages>,
    client: Client,
    local: SocketAddr,
    http: Option<SocketAddr>,
    tasks: Tasks,
    deadline: Duration,
}

/// What has been started and how it is stopped.
#[derive(Debug, Default)]
struct Tasks {
    http: TaskTracker,
    http_stop: CancellationToken,
    registrar: TaskTracker,
    registrar_stop: CancellationToken,
    ha: TaskTracker,
    ha_stop: CancellationToken,
    servers: TaskTracker,
    servers_stop: CancellationToken,
    house: TaskTracker,
    house_stop: CancellationToken,
    failed: CancellationToken,
}

/// Encryption of what comes in and of what goes out.
struct Tls {
    server: Option<ServerTls>,
    client: Option<ClientTls>,
}

/// Tells the client table of closed connections.
struct Clients(Arc<Core>);

impl ConnEvents for Clients {
    fn closed(&self, conn: &Conn) {
        self.0.client_gone(conn);
    }
}

impl Broker {
    /// Starts a broker with completed settings (see [`BrokerSettings::complete`]). Returns when clients are served
    /// and the name servers have been told, or have not answered for 3 s.
    ///
    /// # Errors
    /// A table, the store or a port cannot be used; the text says which and what to do.
    pub async fn start(settings: BrokerSettings) -> anyhow::Result<Running> {
        Self::start_with(settings, StartOptions::default()).await
    }

    /// The same, with what the embedding program brings along.
    ///
    /// # Errors
    /// As [`Broker::start`]; and a certificate or key cannot be used.
    pub async fn start_with(settings: BrokerSettings, options: StartOptions) -> anyhow::Result<Running> {
        let tasks = Tasks::default();
        match start(settings, options, &tasks).await {
            Ok(started) => Ok(started.running(tasks)),
            Err(error) => {
                tasks.house_stop.cancel();
                tasks.servers_stop.cancel();
                tasks.ha_stop.cancel();
                tasks.registrar_stop.cancel();
                tasks.http_stop.cancel();
                for tracker in [
                    &tasks.servers,
                    &tasks.ha,
                    &tasks.registrar,
                    &tasks.house,
                    &tasks.http,
                ] {
                    tracker.close();
                    tracker.wait().await;
                }
                Err(error)
            }
        }
    }
}

struct Started {
    core: Arc<Core>,
    pages: Arc<Pages>,
    client: Client,
    local: SocketAddr,
    http: Option<SocketAddr>,
    deadline: Duration,
}

impl Started {
    fn running(self, tasks: Tasks) -> Running {
        Running {
            core: self.core,
            pages: self.pages,
            client: self.client,
            local: self.local,
            http: self.http,
            tasks,
            deadline: self.deadline,
        }
    }
}

async fn identity(settings: &BrokerSettings) -> anyhow::Result<Identity> {
    let port = settings.listen_port;
    let advertised = host_port(&settings.broker_ip1, port);
    let store_host = tokio::net::lookup_host(&advertised)
        .await
        .with_context(|| {
            format!(
                "brokerIP1={} is no address and no name that can be resolved",
                settings.broker_ip1
            )
        })?
        .next();
    let Some(store_host) = store_host else {
        bail!("brokerIP1={} resolves to no address", settings.broker_ip1);
    };
    Ok(Identity {
        cluster: settings.broker_cluster_name.clone(),
        name: settings.broker_name.clone(),
        id: settings.broker_id,
        advertised,
        ha_advertised: host_port(&settings.broker_ip2, port.saturating_add(1)),
        store_host: SocketAddr::new(store_host.ip().to_canonical(), port),
    })
}

async fn start(settings: BrokerSettings, options: StartOptions, tasks: &Tasks) -> anyhow::Result<Started> {
    let StartOptions { log, tls, extensions } = options;
    let tls = Tls {
        server: ServerTls::new(&tls)?,
        client: tls.outgoing().then(|| ClientTls::new(&tls.client)).transpose()?,
    };
    let identity = identity(&settings).await?;
    tracing::info!(
        broker = identity.name,
        cluster = identity.cluster,
        advertised = identity.advertised,
        store = settings.store_path_root_dir,
        role = settings.broker_role,
        "starting"
    );
    let progress = Progress::new();
    let gate = Arc::new(WriteGate::new(Instant::now()));
    let quota = limits::shares(limits::raise_open_files());
    let config = StoreConfig {
        open_queue_files: quota.queue_files,
        ..settings.store_config(identity.store_host)?
    };
    let token_file = settings.http_token_file.trim();
    let labels = Labels {
        cluster: identity.cluster.clone(),
        broker: identity.name.clone(),
        id: identity.id,
        role: config.role,
        token_file: (!token_file.is_empty()).then(|| token_file.into()),
    };
    let pages = Arc::new(Pages::new(progress.clone(), gate.clone(), labels));
    let http = start_http(&settings, &pages, tasks).await?;

    let held = Arc::new(LongPoll::new(settings.pull_thread_pool_queue_capacity));
    let filters = Arc::new(load_filters(&settings)?);
    let hooks = Hooks {
        arrival: held.clone(),
        dispatchers: extensions.dispatch,
        filter_bits: Some(filters.clone()),
    };
    let store = blocking(&tasks.house, move || Store::open(config, &progress, hooks))
        .await?
        .context("open the store")?;
    let starting = store.clone();
    // From here on the store has to be closed whatever happens.
    let result = blocking(&tasks.house, move || starting.start()).await;
    let result = match result {
        Ok(Ok(())) => {
            let made = Made {
                log,
                tls,
                identity,
                pages,
                gate,
                held,
                filters,
                store: store.clone(),
                http,
                quota,
                send_hooks: extensions.send,
            };
            serve(settings, made, tasks).await
        }
        Ok(Err(error)) => Err(error).context("start the store"),
        Err(error) => Err(error),
    };
    if result.is_err() {
        let closed = blocking(&tasks.house, move || store.shutdown()).await;
        tracing::debug!(?closed, "the store was closed after a failed start");
    }
    result
}

/// What is there once the store runs.
struct Made {
    log: Option<Handle>,
    tls: Tls,
    identity: Identity,
    pages: Arc<Pages>,
    gate: Arc<WriteGate>,
    held: Arc<LongPoll>,
    filters: Arc<FilterTable>,
    store: Store,
    http: Option<SocketAddr>,
    quota: Shares,
    send_hooks: Vec<Arc<dyn SendHook>>,
}

/// Moves progress that is beyond the end of its queue back to it.
fn keep_within_queues(store: &Store, offsets: &OffsetTable) {
    // A slave's log may lack what its master's consumers have read already.
    if store.config().role != BrokerRole::Slave && store.figures().dispatch_behind == 0 {
        let moved = offsets.keep_within(|topic, queue| store.max_offset(topic, queue));
        if moved > 0 {
            tracing::warn!(
                moved,
                "progress beyond the end of queues was moved back to it: a crash lost messages that had been read"
            );
        }
    }
}

/// Puts on disk what the start has added to the tables.
async fn save_tables(core: &Arc<Core>, house: &TaskTracker) -> anyhow::Result<()> {
    let saving = core.clone();
    let saved = blocking(house, move || {
        saving.save_topics()?;
        saving.save_groups()
    });
    match saved.await? {
        // The broker starts all the same: what is stored can be read, and room is made by deleting expired files.
        Err(error) if error.is_disk_full() => {
            tracing::error!(%error, "the disk is full: the tables are saved when there is room");
        }
        other => other.context("save the tables")?,
    }
    Ok(())
}

async fn serve(settings: BrokerSettings, made: Made, tasks: &Tasks) -> anyhow::Result<Started> {
    let Made {
        log,
        tls,
        identity,
        pages,
        gate,
        held,
        filters,
        store,
        http,
        quota,
        send_hooks,
    } = made;
    let now = now_ms();
    let deadline = Duration::from_millis(settings.shutdown_timeout_millis);
    let names = settings.name_servers()?;
    let (files, topics, groups, offsets) = load_tables(&settings, &identity, now)?;
    keep_within_queues(&store, &offsets);
    let topics = Arc::new(topics);
    let acl = settings.acl_enable.then(|| Acl::load(settings.acl_places()));
    let signer = Signer::of_file(&settings.home().join("conf/tools.yml"))
        .map_err(anyhow::Error::msg)
        .context("read the account that this broker signs its own requests with")?;
    let shared: SharedSettings = Arc::new(RwLock::new(Arc::new(settings)));
    let client = Client::new(
        ClientConfig {
            tls: tls.client,
            hooks: signer.into_iter().map(|hook| hook as Arc<dyn RpcHook>).collect(),
            ..ClientConfig::default()
        },
        Dispatch::none(),
    );
    let registrar = Arc::new(Registrar::new(
        identity.clone(),
        names,
        client.clone(),
        topics.clone(),
        shared.clone(),
    ));
    let slave = (store.config().role == BrokerRole::Slave)
        .then(|| Slave::new(store.clone(), replication::options(&shared.read())));
    let core = Arc::new(Core::new(Parts {
        identity,
        settings: shared,
        store,
        following: slave.as_ref().map(Slave::following),
        topics,
        groups,
        offsets,
        filters,
        held,
        gate,
        registrar: registrar.clone(),
        files,
        acl: acl.clone(),
        log,
        send_hooks,
        tasks: tasks.house.clone(),
        now,
    }));
    save_tables(&core, &tasks.house).await?;
    if slave.is_none() {
        replication::serve(&core, &tasks.ha, &tasks.ha_stop).await?;
    }
    if let Some(acl) = acl {
        tasks.house.spawn(acl.watch(tasks.house_stop.clone()));
    }
    let local = listen(&core, &pages, tls.server.as_ref(), quota, tasks, deadline)?;
    let (house, stop) = (&tasks.house, &tasks.house_stop);
    house.spawn(notice::run(core.clone(), stop.clone()));
    house.spawn(slow_readers::run(core.clone(), stop.clone()));
    house.spawn(housekeeping::run(core.clone(), stop.clone()));
    match slave {
        Some(slave) => replication::follow(&core, slave, client.clone(), &tasks.ha, &tasks.ha_stop),
        // The master asks about transactions.
        None => {
            house.spawn(transaction::check::run(core.clone(), stop.clone()));
        }
    }
    pages.serve(core.clone());
    tracing::info!(%local, "serving clients");
    tasks
        .registrar
        .spawn(registrar.clone().run(tasks.registrar_stop.clone()));
    registrar.first(FIRST_REGISTRATION).await;
    Ok(Started {
        core,
        pages,
        client,
        local,
        http,
        deadline,
    })
}

async fn start_http(
    settings: &BrokerSettings,
    pages: &Arc<Pages>,
    tasks: &Tasks,
) -> anyhow::Result<Option<SocketAddr>> {
    if settings.http_port == 0 {
        return Ok(None);
    }
    let http = Http::bind(SocketAddr::new(settings.bind()?, settings.http_port)).await?;
    let local = http.local_addr();
    tasks.http.spawn(http.run(pages.clone(), tasks.http_stop.clone()));
    Ok(Some(local))
}

/// Runs something that blocks.
async fn blocking<T: Send + 'static>(
    tasks: &TaskTracker,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    tasks.spawn_blocking(work).await.context("a worker thread failed")
}

/// Listens on the port and on the one two below it.
fn listen(
    core: &Arc<Core>,
    pages: &Pages,
    tls: Option<&ServerTls>,
    quota: Shares,
    tasks: &Tasks,
    deadline: Duration,
) -> anyhow::Result<SocketAddr> {
    let settings = core.settings();
    let (ip, port) = (settings.bind()?, settings.listen_port);
    let dispatch = processor::dispatch(core);
    let events: Arc<dyn ConnEvents> = Arc::new(Clients(core.clone()));
    let budget = Budget::new(limits::connection_buffers(settings.connection_buffer_bytes));
    let config = |name, max_connections| ServerConfig {
        name,
        max_connections,
        budget: Arc::clone(&budget),
        limits: Limits {
            idle: Duration::from_secs(settings.server_channel_max_idle_time_seconds),
            ..Limits::default()
        },
        tls: tls.cloned(),
        backlog: settings.server_socket_backlog,
        drain: Duration::from_secs(5).min(deadline / 3),
    };
    let mut servers = vec![Server::bind(
        SocketAddr::new(ip, port),
        config("main", quota.main),
        dispatch.clone(),
        events.clone(),
    )?];
    if let Some(vip) = port.checked_sub(2).filter(|&p| p > 0) {
        servers.push(Server::bind(
            SocketAddr::new(ip, vip),
            config("vip", quota.vip),
            dispatch.clone(),
            events,
        )?);
    }
    let local = servers[0].local_addr();
    let stats = servers.iter().map(Server::stats).collect();
    pages.watch(ServerFigures::new(stats, vec![dispatch], budget));
    if let Some(tls) = tls {
        tasks.servers.spawn(tls.clone().watch(tasks.servers_stop.clone()));
    }
    for server in servers {
        let (stop, failed) = (tasks.servers_stop.clone(), tasks.failed.clone());
        tasks.servers.spawn(async move {
            server.run(stop.clone()).await;
            if !stop.is_cancelled() {
                tracing::error!("a server ended by itself; the broker stops");
                failed.cancel();
            }
        });
    }
    Ok(local)
}

impl Running {
    /// The address of the main port.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The address of the pages, when they are on.
    pub fn http_addr(&self) -> Option<SocketAddr> {
        self.http
    }

    /// The line that scripts wait for.
    pub fn start_line(&self) -> String {
        let identity = &self.core.identity;
        let names = self.core.settings().namesrv_addr.clone();
        let mut line = format!(
            "The broker[{}, {}] boot success. serializeType=JSON",
            identity.name, identity.advertised
        );
        if !names.is_empty() {
            line.push_str(" and name server is ");
            line.push_str(&names);
        }
        line
    }

    /// Returns when a part that the broker cannot do without has ended by itself.
    pub async fn failed(&self) {
        self.tasks.failed.cancelled().await;
    }

    /// Returns when this broker has to be stopped and started anew with the same settings: it's a slave whose log is too old to
    /// be continued. The next start sets that aside and copies its master's from the beginning.
    pub async fn wants_restart(&self) {
        match &self.core.following {
            Some(following) => following.wants_reopening().await,
            None => std::future::pending().await,
        }
    }

    /// Stops in order. Returns whether everything was saved and the next start needs no recovery.
    pub async fn shutdown(self) -> bool {
        let Self {
            core,
            pages,
            client,
            tasks,
            deadline,
            ..
        } = self;
        let until = tokio::time::Instant::now() + deadline;
        tracing::info!("stopping: leaving the routes, then draining, then closing the store");
        pages.stop();
        let polite = async {
            tasks.registrar_stop.cancel();
            tasks.registrar.close();
            tasks.registrar.wait().await;
            core.registrar.unregister().await;
            core.stopping.cancel();
            tasks.servers_stop.cancel();
            tasks.servers.close();
            tasks.servers.wait().await;
            // Until here sends may have waited for a slave.
            tasks.ha_stop.cancel();
            tasks.ha.close();
            tasks.ha.wait().await;
            tasks.house_stop.cancel();
        };
        if timeout(deadline * 2 / 3, polite).await.is_err() {
            tracing::warn!(
                ?deadline,
                "connections were not drained in time and are cut off (shutdownTimeoutMillis)"
            );
            core.stopping.cancel();
            tasks.servers_stop.cancel();
            tasks.ha_stop.cancel();
            tasks.house_stop.cancel();
        }
        let (saving, closing) = (core.clone(), core.store.clone());
        let closing = blocking(&tasks.house, move || {
            let mut clean = true;
            transaction::save_progress(&saving);
            for saved in [
                saving.save_topics(),
                saving.save_groups(),
                saving.save_offsets(),
                saving.save_filters(),
            ] {
                if let Err(error) = saved {
                    tracing::error!(%error, "a table could not be saved at the stop");
                    clean = false;
                }
            }
            match closing.shutdown() {
                Ok(report) => clean && report.clean,
                Err(error) => {
                    tracing::error!(%error, "the store was not closed in order");
                    false
                }
            }
        });
        let clean = matches!(timeout_at(until, closing).await, Ok(Ok(true)));
        client.close().await;
        tasks.house.close();
        if timeout_at(
            until.max(tokio::time::Instant::now() + LAST_WORK),
            tasks.house.wait(),
        )
        .await
        .is_err()
        {
            tracing::warn!("some work was still going on at the end of the stop");
        }
        tasks.http_stop.cancel();
        tasks.http.close();
        if timeout(LAST_WORK, tasks.http.wait()).await.is_err() {
            tracing::debug!("a request for a page was cut off at the end of the stop");
        }
        if clean {
            tracing::info!("stopped; everything is on disk");
        } else {
            tracing::warn!("stopped, but not in order: the next start recovers from the log");
        }
        clean
    }
}
