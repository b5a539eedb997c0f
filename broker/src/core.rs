//! What all request handlers share: the store, the tables, the settings in force.

use std::net::SocketAddr;
use std::sync::Arc;

use ferromq_daemon::logging::Handle;
use ferromq_protocol::body::DataVersion;
use ferromq_remoting::Conn;
use ferromq_store::ha::Following;
use ferromq_store::json_table::TableError;
use ferromq_store::{BrokerRole, Store};
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::acl::Acl;
use crate::client_table::ClientTable;
use crate::clock::now_ms;
use crate::config::{BrokerSettings, SharedSettings};
use crate::expiring::Expiring;
use crate::extend::SendHook;
use crate::filter_table::FilterTable;
use crate::group_table::GroupTable;
use crate::item_stats::ItemStats;
use crate::last_times::LastTimes;
use crate::long_poll::LongPoll;
use crate::metrics::Series;
use crate::notice::Notices;
use crate::offset_table::OffsetTable;
use crate::overload::{Places, WriteGate};
use crate::persist::TableFile;
use crate::processor::Refusal;
use crate::rebalance_lock::RebalanceLocks;
use crate::register::Registrar;
use crate::replication::OwnCommits;
use crate::slow_readers::SlowReaders;
use crate::stats::Stats;
use crate::topic_table::{SystemTopics, TopicTable};
use crate::transaction::ledger::Ledger;

/// Who this broker is to others. Fixed from the start.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) cluster: String,
    pub(crate) name: String,
    /// 0 is the master.
    pub(crate) id: i64,
    /// `ip:port` that clients are told.
    pub(crate) advertised: String,
    /// `ip:port` that replicas are told.
    pub(crate) ha_advertised: String,
    /// The address in records and message ids.
    pub(crate) store_host: SocketAddr,
}

/// The files of the tables.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) topics: TableFile,
    pub(crate) groups: TableFile,
    pub(crate) offsets: TableFile,
    pub(crate) filters: TableFile,
}

/// One running broker.
pub(crate) struct Core {
    pub(crate) identity: Identity,
    settings: SharedSettings,
    /// Held while settings are changed.
    pub(crate) changing_settings: Mutex<()>,
    /// Version of the settings, told to administrators.
    pub(crate) settings_version: Mutex<DataVersion>,
    pub(crate) store: Store,
    /// How a slave follows its master.
    pub(crate) following: Option<Following>,
    pub(crate) topics: Arc<TopicTable>,
    pub(crate) groups: GroupTable,
    pub(crate) offsets: OffsetTable,
    /// Which groups select by expressions.
    pub(crate) filters: Arc<FilterTable>,
    pub(crate) clients: ClientTable<Conn>,
    pub(crate) locks: RebalanceLocks,
    /// Which half messages are decided.
    pub(crate) transactions: Mutex<Ledger>,
    pub(crate) held: Arc<LongPoll>,
    pub(crate) notices: Notices,
    /// Store times that tools asked for.
    pub(crate) last_times: LastTimes,
    /// How far behind groups read.
    pub(crate) slow_readers: SlowReaders,
    pub(crate) gate: Arc<WriteGate>,
    pub(crate) stats: Stats,
    pub(crate) items: ItemStats,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) files: Files,
    /// Access control, when it is on.
    pub(crate) acl: Option<Arc<Acl>>,
    /// Changes the log's level.
    pub(crate) log: Option<Handle>,
    /// Sees sends.
    pub(crate) send_hooks: Vec<Arc<dyn SendHook>>,
    /// Sends that wait for the disk or a replica.
    pub(crate) sends_waiting: Arc<Places>,
    /// Which rows of the metrics page have names of their own.
    pub(crate) series: Series,
    /// What retention will delete unread, as was found last.
    pub(crate) expiring: RwLock<Arc<[Expiring]>>,
    /// Fires when held pulls are to be answered because the broker stops.
    pub(crate) stopping: CancellationToken,
    pub(crate) tasks: TaskTracker,
    /// One permit for each read that may go to the disk at a time.
    pub(crate) cold_reads: Arc<Semaphore>,
    /// Wakes the task that saves tables.
    pub(crate) unsaved: Notify,
    /// When this process started serving, milliseconds since the epoch.
    pub(crate) booted_at: i64,
    /// When a slave last had all of its master's tables.
    pub(crate) tables_copied: Mutex<Option<std::time::Instant>>,
    /// What consumers committed here, on a slave, and the master has not been told.
    pub(crate) own_commits: Mutex<OwnCommits>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core")
            .field("identity", &self.identity)
            .finish_non_exhaustive()
    }
}

/// Everything that a [`Core`] is made of.
pub(crate) struct Parts {
    pub(crate) identity: Identity,
    pub(crate) settings: SharedSettings,
    pub(crate) store: Store,
    pub(crate) following: Option<Following>,
    pub(crate) topics: Arc<TopicTable>,
    pub(crate) groups: GroupTable,
    pub(crate) offsets: OffsetTable,
    pub(crate) filters: Arc<FilterTable>,
    pub(crate) held: Arc<LongPoll>,
    pub(crate) gate: Arc<WriteGate>,
    pub(crate) registrar: Arc<Registrar>,
    pub(crate) files: Files,
    pub(crate) acl: Option<Arc<Acl>>,
    pub(crate) log: Option<Handle>,
    pub(crate) send_hooks: Vec<Arc<dyn SendHook>>,
    pub(crate) tasks: TaskTracker,
    /// Milliseconds since the epoch.
    pub(crate) now: i64,
}

/// Reads from the disk for pulls at a time.
const COLD_READS: usize = 8;

impl Core {
    pub(crate) fn new(parts: Parts) -> Self {
        let light = parts.settings.read().enable_lmq;
        Self {
            identity: parts.identity,
            settings: parts.settings,
            changing_settings: Mutex::new(()),
            settings_version: Mutex::new(DataVersion {
                counter: 0,
                timestamp: parts.now,
            }),
            store: parts.store,
            following: parts.following,
            topics: parts.topics,
            groups: parts.groups,
            offsets: parts.offsets,
            filters: parts.filters,
            clients: ClientTable::default(),
            locks: RebalanceLocks::default(),
            transactions: Mutex::default(),
            held: parts.held,
            notices: Notices::default(),
            last_times: LastTimes::default(),
            slow_readers: SlowReaders::default(),
            gate: parts.gate,
            stats: Stats::default(),
            items: ItemStats::new(light),
            registrar: parts.registrar,
            files: parts.files,
            acl: parts.acl,
            log: parts.log,
            send_hooks: parts.send_hooks,
            sends_waiting: Arc::default(),
            series: Series::default(),
            expiring: RwLock::new(Arc::from([])),
            stopping: CancellationToken::new(),
            tasks: parts.tasks,
            cold_reads: Arc::new(Semaphore::new(COLD_READS)),
            unsaved: Notify::new(),
            booted_at: parts.now,
            tables_copied: Mutex::default(),
            own_commits: Mutex::default(),
        }
    }

    /// Whether this broker only follows a master.
    pub(crate) fn is_slave(&self) -> bool {
        self.store.config().role == BrokerRole::Slave
    }

    /// The settings in force now.
    pub(crate) fn settings(&self) -> Arc<BrokerSettings> {
        self.settings.read().clone()
    }

    /// Puts changed settings in force.
    pub(crate) fn replace_settings(&self, settings: Arc<BrokerSettings>, now: i64) {
        self.filters.calculate(settings.enable_calc_filter_bit_map);
        *self.settings.write() = settings;
        let mut version = self.settings_version.lock();
        *version = version.next(now);
    }

    /// Puts the topics on disk. Blocks.
    pub(crate) fn save_topics(&self) -> Result<(), TableError> {
        self.files
            .topics
            .save(|| self.topics.changes(), || self.topics.to_file())
    }

    /// Puts the groups on disk. Blocks.
    pub(crate) fn save_groups(&self) -> Result<(), TableError> {
        self.files
            .groups
            .save(|| self.groups.changes(), || self.groups.to_file())
    }

    /// Puts the consumers' progress on disk. Blocks.
    pub(crate) fn save_offsets(&self) -> Result<(), TableError> {
        self.files
            .offsets
            .save(|| self.offsets.changes(), || self.offsets.to_file())
    }

    /// Puts the groups' expressions on disk. Blocks.
    pub(crate) fn save_filters(&self) -> Result<(), TableError> {
        self.files
            .filters
            .save(|| self.filters.changes(), || self.filters.to_file())
    }

    /// Has changed tables put on disk soon, by another thread.
    pub(crate) fn save_soon(&self) {
        self.unsaved.notify_one();
    }

    /// Tells a group's members that its membership changed, unless broker or group has that turned off.
    pub(crate) fn tell_group(&self, group: &str) {
        let wanted = self.settings().notify_consumer_ids_changed_enable
            && self
                .groups
                .get(group)
                .is_none_or(|g| g.notify_consumer_ids_changed_enable);
        if wanted {
            self.notices.changed(group);
        }
    }

    /// A client's connection is gone.
    pub(crate) fn client_gone(&self, conn: &Conn) {
        for group in self.clients.closed(conn.id()) {
            self.left(&group);
        }
    }

    /// A consumer has left its group.
    pub(crate) fn left(&self, group: &str) {
        if self.clients.client_ids(group).is_empty() {
            self.filters.unregister(group, now_ms());
        }
        self.tell_group(group);
    }

    /// The names that administrators keep off.
    pub(crate) fn system_topics(&self) -> OwnedSystemTopics {
        let settings = self.settings();
        OwnedSystemTopics {
            cluster: self.identity.cluster.clone(),
            broker: self.identity.name.clone(),
            settings,
        }
    }
}

/// [`SystemTopics`] of the settings in force.
#[derive(Debug)]
pub(crate) struct OwnedSystemTopics {
    cluster: String,
    broker: String,
    settings: Arc<BrokerSettings>,
}

impl OwnedSystemTopics {
    pub(crate) fn put_into(&self, table: &TopicTable, now: i64) {
        system_topics(&self.cluster, &self.broker, &self.settings).put_into(table, now);
    }

    pub(crate) fn reserved(&self, topic: &str) -> bool {
        system_topics(&self.cluster, &self.broker, &self.settings).reserved(topic)
    }
}

/// The system topics that these settings ask for.
pub(crate) fn system_topics<'a>(
    cluster: &'a str,
    broker: &'a str,
    settings: &'a BrokerSettings,
) -> SystemTopics<'a> {
    SystemTopics {
        cluster,
        broker,
        auto_create: settings.auto_create_topic_enable,
        default_queues: settings.default_topic_queue_nums,
        cluster_topic: settings.cluster_topic_enable,
        broker_topic: settings.broker_topic_enable,
        trace_topic: settings
            .trace_topic_enable
            .then_some(settings.msg_trace_topic_name.as_str()),
    }
}

impl From<TableError> for Refusal {
    fn from(error: TableError) -> Self {
        Self::system(error.to_string())
    }
}
