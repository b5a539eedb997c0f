//! Registration with the name servers.
//!
//! Each name server has a task of its own, so a dead one delays no other; and since that task makes one
//! registration at a time from the tables as they are, a registration never overtakes a newer one. It
//! registers at the start (again each second until it worked), after each change of topics, when the
//! connection breaks, and periodically. The list of name servers is resolved anew every ten seconds; servers that leave it are left.
//!
//! A registration only ever adds topics. So that a topic deleted here leaves this broker's part of the route, each name
//! server is told once that it has no queues here any more.
//!
//! A table too large for one frame goes in parts. Only the last part carries the table's version, so a name
//! server that has the version has everything.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::body::{DataVersion, KvTable, RegisterBrokerBody, TopicConfig, TopicConfigTable};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::header::{
    BrokerIdentity, QueryDataVersionResponse, RegisterBroker, RegisterBrokerResponse,
};
use ferromq_protocol::{Command, crc, fastjson};
use ferromq_remoting::{CallError, Client, NameServers};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::{BrokerSettings, SharedSettings};
use crate::core::Identity;
use crate::replication::configured_master;
use crate::topic_table::{PERM_RW, TopicTable, row};

/// How often the list is resolved.
const RESOLVE_EVERY: Duration = Duration::from_secs(10);
/// Pause after a failed try, doubled up to the period.
const RETRY: Duration = Duration::from_secs(1);
/// How long each name server has to take the farewell.
const FAREWELL: Duration = Duration::from_secs(3);
/// About how many topics go into one part: names are at most 127 bytes and the rest of a row is about as much.
const PART: usize = 25_000;
/// Deleted topics that are remembered for name servers that are away.
const DELETED_KEPT: usize = 10_000;
/// Counter of the version under which deletions are sent: unlike any of a table or its parts.
const DELETED_VERSION: i64 = i64::MIN;

/// Why a try failed.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the name server refused with code {code}: {remark}")]
    Refused { code: i32, remark: String },
}

#[derive(Debug)]
struct Server {
    /// The newest change that this server has heard of.
    done: u64,
    /// Whether the last try worked.
    healthy: bool,
    stop: CancellationToken,
}

/// A table as it is sent, kept while nothing changes.
#[derive(Debug)]
struct Encoded {
    key: (DataVersion, u64, i32, bool),
    parts: Vec<Bytes>,
}

/// Keeps this broker registered.
#[derive(Debug)]
pub(crate) struct Registrar {
    identity: Identity,
    names: NameServers,
    client: Client,
    topics: Arc<TopicTable>,
    settings: SharedSettings,
    changes: watch::Sender<u64>,
    servers: Mutex<BTreeMap<SocketAddr, Server>>,
    /// Counts finished tries.
    tries: watch::Sender<u64>,
    ever: AtomicBool,
    /// Where the master of this broker's group replicates, and whether that is settled.
    ha_master: watch::Sender<Option<String>>,
    ha_settled: bool,
    /// Where it serves clients.
    master: Mutex<Option<String>>,
    encoded: Mutex<Option<Arc<Encoded>>>,
    /// Deleted topics with the change that deleted them, oldest first.
    deleted: Mutex<Vec<(String, u64)>>,
}

impl Registrar {
    pub(crate) fn new(
        identity: Identity,
        names: NameServers,
        client: Client,
        topics: Arc<TopicTable>,
        settings: SharedSettings,
    ) -> Self {
        let configured = configured_master(&settings.read());
        Self {
            ha_settled: configured.is_some() || identity.id == 0,
            ha_master: watch::Sender::new(configured),
            master: Mutex::default(),
            identity,
            names,
            client,
            topics,
            settings,
            changes: watch::Sender::new(1),
            servers: Mutex::default(),
            tries: watch::Sender::new(0),
            ever: AtomicBool::new(false),
            encoded: Mutex::new(None),
            deleted: Mutex::default(),
        }
    }

    /// Whether there is anybody to register with.
    pub(crate) fn has_servers(&self) -> bool {
        !self.names.is_empty()
    }

    /// Whether any registration has worked since the start.
    pub(crate) fn ever_registered(&self) -> bool {
        self.ever.load(Ordering::Acquire)
    }

    /// The name servers at which the last registration worked.
    pub(crate) fn registered_at(&self) -> Vec<String> {
        self.servers
            .lock()
            .iter()
            .filter(|(_, s)| s.healthy)
            .map(|(addr, _)| addr.to_string())
            .collect()
    }

    /// The replication address of the master of this broker's group, as it becomes known.
    pub(crate) fn ha_master(&self) -> watch::Receiver<Option<String>> {
        self.ha_master.subscribe()
    }

    /// Where the master of this broker's group serves clients, if a name server has said so.
    pub(crate) fn master(&self) -> Option<String> {
        self.master.lock().clone()
    }

    /// A name server said who the master is. One that knows none changes nothing: the old one may come back.
    fn take_master(&self, answer: &Command) {
        if self.identity.id == 0 {
            return;
        }
        let Ok(header) = answer.header::<RegisterBrokerResponse<'_>>() else {
            return;
        };
        let said = |address: Option<&str>| {
            address
                .map(str::trim)
                .filter(|a| !a.is_empty())
                .map(str::to_owned)
        };
        if let Some(master) = said(header.master_addr) {
            *self.master.lock() = Some(master);
        }
        if let Some(address) = said(header.ha_server_addr).filter(|_| !self.ha_settled) {
            self.ha_master.send_if_modified(|known| {
                let news = known.as_deref() != Some(&address);
                *known = Some(address);
                news
            });
        }
    }

    /// What is registered has changed: has all name servers told soon.
    pub(crate) fn changed(&self) {
        self.changes.send_modify(|n| *n += 1);
    }

    /// A topic was deleted: has all name servers told that this broker has no queues of it any more.
    pub(crate) fn deleted(&self, topic: &str) {
        // Numbered under the lock: whoever sees the number finds the topic in the list.
        let mut deleted = self.deleted.lock();
        let mut number = 0;
        self.changes.send_modify(|n| {
            *n += 1;
            number = *n;
        });
        deleted.retain(|(known, _)| known != topic);
        if deleted.len() == DELETED_KEPT {
            deleted.remove(0);
        }
        deleted.push((topic.to_owned(), number));
    }

    /// Rows without queues for the topics that were deleted after that change and are not there again.
    fn deleted_since(&self, told: u64) -> BTreeMap<String, TopicConfig> {
        let deleted = self.deleted.lock();
        let news = deleted
            .iter()
            .filter(|(topic, number)| *number > told && !self.topics.contains(topic));
        news.map(|(topic, _)| (topic.clone(), row(topic, 0, 0, 0)))
            .collect()
    }

    /// Tells the name servers and waits until all that work have heard of it, at most `wait`.
    pub(crate) async fn register_now(&self, wait: Duration) {
        self.changed();
        let wanted = *self.changes.borrow();
        let mut tries = self.tries.subscribe();
        let heard = async {
            loop {
                tries.mark_unchanged();
                if self
                    .servers
                    .lock()
                    .values()
                    .all(|s| s.done >= wanted || !s.healthy)
                {
                    return;
                }
                if tries.changed().await.is_err() {
                    return;
                }
            }
        };
        if timeout(wait, heard).await.is_err() {
            tracing::warn!(within = ?wait, "not every name server has heard of a change yet; it is told again until it has");
        }
    }

    /// Waits until a registration has worked, at most `wait`. Returns at once without name servers.
    pub(crate) async fn first(&self, wait: Duration) {
        if !self.has_servers() {
            return;
        }
        let mut tries = self.tries.subscribe();
        let waited = timeout(wait, tries.wait_for(|_| self.ever_registered())).await;
        if waited.is_err() {
            tracing::warn!(
                names = self.names.text(),
                "no name server has taken this broker's registration yet; it is tried again until one has"
            );
        }
    }

    /// Runs until told to stop; then all its tasks have ended.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let workers = TaskTracker::new();
        while !stop.is_cancelled() {
            let wanted = self.names.resolve().await;
            self.follow(&wanted, &workers, &stop);
            let pause = if wanted.is_empty() && !self.names.is_empty() {
                RETRY
            } else {
                RESOLVE_EVERY
            };
            tokio::select! {
                () = stop.cancelled() => break,
                () = sleep(pause) => {}
            }
        }
        workers.close();
        workers.wait().await;
    }

    /// Starts a task for each new address and ends those of addresses that are gone.
    fn follow(self: &Arc<Self>, wanted: &[SocketAddr], workers: &TaskTracker, stop: &CancellationToken) {
        let mut servers = self.servers.lock();
        servers.retain(|addr, server| {
            let stays = wanted.contains(addr);
            if !stays {
                tracing::info!(name_server = %addr, "a name server left the list");
                server.stop.cancel();
            }
            stays
        });
        for &addr in wanted {
            servers.entry(addr).or_insert_with(|| {
                let stop = stop.child_token();
                workers.spawn(self.clone().serve(addr, stop.clone()));
                Server {
                    done: 0,
                    healthy: false,
                    stop,
                }
            });
        }
    }

    /// Keeps the broker registered at one name server.
    async fn serve(self: Arc<Self>, addr: SocketAddr, stop: CancellationToken) {
        let target = addr.to_string();
        let mut changes = self.changes.subscribe();
        let mut failures = 0u32;
        let mut told = 0;
        while !stop.is_cancelled() {
            let now = *changes.borrow_and_update();
            let outcome = tokio::select! {
                () = stop.cancelled() => break,
                outcome = self.register(&target, now, told) => outcome,
            };
            let worked = outcome.is_ok();
            if let Some(server) = self.servers.lock().get_mut(&addr) {
                server.healthy = worked;
                if worked {
                    server.done = now;
                }
            }
            match outcome {
                Ok(()) => {
                    if failures > 0 || !self.ever.load(Ordering::Acquire) {
                        tracing::info!(name_server = target, "registered");
                    }
                    (failures, told) = (0, now);
                    self.ever.store(true, Ordering::Release);
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::warn!(name_server = target, %error, "registration failed; trying again until it works");
                    }
                    failures = failures.saturating_add(1);
                }
            }
            self.tries.send_modify(|n| *n += 1);
            let period = self.period();
            let pause = if worked {
                period
            } else {
                period.min(RETRY * 2u32.pow(failures.min(6) - 1))
            };
            let link = self.client.connected(&target);
            let broken = async {
                match link.filter(|_| worked) {
                    Some(link) => link.closed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = stop.cancelled() => break,
                _ = changes.changed() => {}
                // It has forgotten this broker with the connection, or was restarted.
                () = broken => sleep(RETRY.min(period)).await,
                () = sleep(pause) => {}
            }
        }
        self.client.disconnect(&target);
    }

    fn period(&self) -> Duration {
        Duration::from_millis(
            self.settings
                .read()
                .register_name_server_period
                .clamp(10_000, 60_000),
        )
    }

    fn identity_header(&self) -> BrokerIdentity<'_> {
        BrokerIdentity {
            broker_name: &self.identity.name,
            broker_addr: &self.identity.advertised,
            cluster_name: &self.identity.cluster,
            broker_id: self.identity.id,
        }
    }

    /// Registers at a name server as of change `now`; the last it heard of was `told`, or 0.
    async fn register(&self, target: &str, now: u64, told: u64) -> Result<(), RegisterError> {
        let settings = self.settings.read().clone();
        let limit = Duration::from_millis(settings.register_broker_timeout_mills);
        let encoded = self.encode(settings.broker_permission, settings.compressed_register);
        // One that was told nothing yet has nothing to forget.
        let deleted = if told == 0 {
            BTreeMap::new()
        } else {
            self.deleted_since(told)
        };
        if !deleted.is_empty() {
            let data_version = DataVersion {
                counter: DELETED_VERSION,
                ..encoded.key.0
            };
            let table = TopicConfigTable {
                data_version,
                topic_config_table: deleted,
            };
            let body = body(table, settings.compressed_register);
            self.send_part(target, &body, &settings, limit).await?;
        }
        let ask_first = now == told && (!settings.force_register || encoded.parts.len() > 1);
        if ask_first && !self.is_news(target, encoded.key.0, limit).await {
            return Ok(());
        }
        for part in &encoded.parts {
            self.send_part(target, part, &settings, limit).await?;
        }
        Ok(())
    }

    async fn send_part(
        &self,
        target: &str,
        part: &Bytes,
        settings: &BrokerSettings,
        limit: Duration,
    ) -> Result<(), RegisterError> {
        let command = Command::request(request::REGISTER_BROKER)
            .with_header(&RegisterBroker {
                broker_name: &self.identity.name,
                broker_addr: &self.identity.advertised,
                cluster_name: &self.identity.cluster,
                ha_server_addr: &self.identity.ha_advertised,
                broker_id: self.identity.id,
                compressed: settings.compressed_register,
                body_crc32: crc::crc31(part),
            })
            .with_body(part.clone());
        let answer = self.client.call(target, command, limit).await?;
        if answer.code != response::SUCCESS {
            let remark = answer.remark.unwrap_or_default();
            return Err(RegisterError::Refused {
                code: answer.code,
                remark,
            });
        }
        self.take_master(&answer);
        self.take_order(&answer.body);
        Ok(())
    }

    /// Asks whether the name server lacks this version. Doubt counts as yes.
    async fn is_news(&self, target: &str, version: DataVersion, limit: Duration) -> bool {
        let command = Command::request(request::QUERY_DATA_VERSION)
            .with_header(&self.identity_header())
            .with_body(fastjson::to_vec(&version));
        match self.client.call(target, command, limit).await {
            Ok(answer) if answer.code == response::SUCCESS => {
                answer
                    .header::<QueryDataVersionResponse>()
                    .is_ok_and(|h| h.changed)
                    || answer.header::<QueryDataVersionResponse>().is_err()
            }
            _ => true,
        }
    }

    /// Takes over which topics are ordered, if the name server keeps such a list.
    fn take_order(&self, body: &[u8]) {
        if body.is_empty() {
            return;
        }
        match fastjson::from_slice::<KvTable>(body) {
            Ok(kv) => self.topics.mark_ordered(&|topic| kv.table.contains_key(topic)),
            Err(error) => {
                tracing::debug!(%error, "a name server's list of ordered topics was not understood");
            }
        }
    }

    /// The registration's bodies for the tables as they are.
    fn encode(&self, permission: i32, compressed: bool) -> Arc<Encoded> {
        let key = (
            self.topics.version(),
            self.topics.changes(),
            permission,
            compressed,
        );
        let mut kept = self.encoded.lock();
        if let Some(known) = kept.as_ref().filter(|known| known.key == key) {
            return known.clone();
        }
        let table = self.topics.to_file();
        // The version as of the rows: a change in between is sent by the next try.
        let key = (table.data_version, key.1, permission, compressed);
        let made = Arc::new(Encoded {
            key,
            parts: parts(table, permission, compressed),
        });
        *kept = Some(made.clone());
        made
    }

    /// Takes this broker out of all routes. All name servers are told at once.
    pub(crate) async fn unregister(&self) {
        let targets: Vec<String> = self.names.known().iter().map(ToString::to_string).collect();
        join_all(targets.iter().map(|target| async move {
            let command = Command::request(request::UNREGISTER_BROKER).with_header(&self.identity_header());
            match self.client.call(target, command, FAREWELL).await {
                Ok(answer) if answer.code == response::SUCCESS => {
                    tracing::info!(name_server = target, "unregistered");
                }
                Ok(answer) => {
                    tracing::warn!(name_server = target, code = answer.code, remark = ?answer.remark, "could not unregister");
                }
                Err(error) => tracing::warn!(name_server = target, %error, "could not unregister"),
            }
        }))
        .await;
        self.servers
            .lock()
            .values_mut()
            .for_each(|server| server.healthy = false);
    }
}

fn body(topic_config_table: TopicConfigTable, compressed: bool) -> Bytes {
    let body = RegisterBrokerBody {
        filter_server_list: Some(Vec::new()),
        topic_config_table,
    };
    Bytes::from(body.encode(compressed))
}

/// Encodes a table, in parts when it is large.
fn parts(table: TopicConfigTable, permission: i32, compressed: bool) -> Vec<Bytes> {
    let version = table.data_version;
    let mut rows: Vec<(String, TopicConfig)> = table.topic_config_table.into_iter().collect();
    if permission & PERM_RW != PERM_RW {
        // What the broker does not allow no topic does.
        for (_, row) in &mut rows {
            row.perm &= permission;
        }
    }
    let count = rows.len().div_ceil(PART).max(1);
    let mut rows = rows.into_iter();
    (1..=count)
        .map(|part| {
            let data_version = if part == count {
                version
            } else {
                DataVersion {
                    counter: -(part as i64),
                    ..version
                }
            };
            let topic_config_table = rows.by_ref().take(PART).collect();
            body(
                TopicConfigTable {
                    data_version,
                    topic_config_table,
                },
                compressed,
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(topics: usize) -> TopicConfigTable {
        TopicConfigTable {
            data_version: DataVersion {
                counter: 5,
                timestamp: 7,
            },
            topic_config_table: (0..topics)
                .map(|i| {
                    let name = format!("{i:0100}");
                    (name.clone(), row(&name, 8, 6, 0))
                })
                .collect(),
        }
    }

    #[test]
    fn a_large_table_goes_in_parts_and_only_the_last_has_the_version() {
        let parts = parts(table(70_000), 6, false);
        assert_eq!(parts.len(), 3);
        assert!(parts.iter().all(|p| p.len() < 12 * 1024 * 1024));
        let decoded: Vec<_> = parts
            .iter()
            .map(|p| RegisterBrokerBody::decode(p, false).unwrap())
            .collect();
        let versions: Vec<_> = decoded
            .iter()
            .map(|d| d.topic_config_table.data_version.counter)
            .collect();
        assert_eq!(versions, [-1, -2, 5]);
        let all: usize = decoded
            .iter()
            .map(|d| d.topic_config_table.topic_config_table.len())
            .sum();
        assert_eq!(all, 70_000);
    }

    #[test]
    fn the_brokers_permission_caps_the_topics() {
        let parts = parts(table(1), 4, true);
        let decoded = RegisterBrokerBody::decode(&parts[0], true).unwrap();
        assert!(
            decoded
                .topic_config_table
                .topic_config_table
                .values()
                .all(|t| t.perm == 4)
        );
    }
}
