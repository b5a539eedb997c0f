//! Replication as this broker's part in its group: a master serves its log one above its port, a slave follows
//! its master and copies its tables.
//!
//! The log goes over the link of [`ferromq_store::ha`]. Topics, groups, consumers' progress and the progress of delayed
//! messages are asked for over the ordinary protocol. Progress is merged by its maximum, so that neither a
//! master that was restarted nor a late answer takes back what a consumer has done. What consumers committed here, while
//! their master was away, is told to the master when it's back, where it's further than what the master has.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use ferromq_protocol::body::{
    ConsumerOffsetTable, DelayOffsetTable, SubscriptionGroupTable, TopicConfigTable,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::header::UpdateConsumerOffset;
use ferromq_protocol::{Command, fastjson};
use ferromq_remoting::{CallError, Client, split_addr};
use ferromq_store::ha::{Master, Options, Slave};
use ferromq_store::json_table::{self, TableError};
use serde::de::DeserializeOwned;
use tokio::net::TcpListener;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::BrokerSettings;
use crate::core::Core;
use crate::own_address::host_port;

/// How long the master has for each answer.
const ANSWER: Duration = Duration::from_secs(3);
/// A shorter address than this is none; peers take it as unset.
const SHORTEST_ADDRESS: usize = 6;

/// Nothing is repeated more often.
const SHORTEST_PACE: Duration = Duration::from_millis(10);

/// Why a table was not copied.
#[derive(Debug, thiserror::Error)]
enum CopyError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the master refused request {code} with {answer}: {remark}")]
    Refused { code: i32, answer: i32, remark: String },
    #[error("the master's answer to {code} was not understood: {reason}")]
    Answer { code: i32, reason: String },
    #[error(transparent)]
    Save(#[from] TableError),
    #[error("a worker thread failed: {0}")]
    Worker(#[from] tokio::task::JoinError),
}

fn pace(settings: &BrokerSettings) -> Duration {
    Duration::from_millis(settings.ha_send_heartbeat_interval).max(SHORTEST_PACE)
}

pub(crate) fn options(settings: &BrokerSettings) -> Options {
    Options {
        heartbeat: pace(settings),
        housekeeping: Duration::from_millis(settings.ha_housekeeping_interval).max(SHORTEST_PACE),
        batch: settings.ha_transfer_batch_size,
        retry: pace(settings),
        group: format!("{}/{}", settings.broker_cluster_name, settings.broker_name),
        broker_id: u32::try_from(settings.broker_id).unwrap_or(0),
        ..Options::default()
    }
}

/// Queues of which a slave remembers what was committed here.
const OWN_COMMITS: usize = 100_000;

/// What consumers committed on a slave, and its master has not been told.
#[derive(Debug, Default)]
pub(crate) struct OwnCommits(HashMap<(String, String, i32), i64>);

impl OwnCommits {
    pub(crate) fn note(&mut self, group: &str, topic: &str, queue: i32, offset: i64) {
        let key = (group.to_owned(), topic.to_owned(), queue);
        if self.0.len() < OWN_COMMITS || self.0.contains_key(&key) {
            self.0.insert(key, offset);
        }
    }

    /// The master has been told of this offset.
    fn told(&mut self, group: &str, topic: &str, queue: i32, offset: i64) {
        let key = (group.to_owned(), topic.to_owned(), queue);
        if self.0.get(&key) == Some(&offset) {
            self.0.remove(&key);
        }
    }

    /// Forgets what the master has already, and gives the rest.
    fn ahead_of(&mut self, master: &ConsumerOffsetTable) -> Vec<(String, String, i32, i64)> {
        self.0.retain(|(group, topic, queue), offset| {
            let known = master
                .offset_table
                .get(&format!("{topic}@{group}"))
                .and_then(|queues| queues.get(queue));
            known.is_none_or(|known| known < offset)
        });
        let rows = self.0.iter();
        rows.map(|((group, topic, queue), offset)| (group.clone(), topic.clone(), *queue, *offset))
            .collect()
    }
}

/// The master's replication address that the settings name, if they do.
pub(crate) fn configured_master(settings: &BrokerSettings) -> Option<String> {
    let address = settings.ha_master_address.trim();
    (address.len() >= SHORTEST_ADDRESS).then(|| address.to_owned())
}

/// Listens for slaves one above the port.
pub(crate) async fn serve(
    core: &Arc<Core>,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let settings = core.settings();
    let Some(port) = settings.listen_port.checked_add(1) else {
        tracing::warn!("listenPort is 65535: there is no port above it for slaves");
        return Ok(());
    };
    let address = SocketAddr::new(settings.bind()?, port);
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("cannot listen on {address} for slaves; free the port, or choose another listenPort")
    })?;
    let master = Arc::new(Master::new(core.store.clone(), options(&settings)));
    tasks.spawn(master.run(listener, stop.clone()));
    Ok(())
}

/// Follows the master and copies its tables.
pub(crate) fn follow(
    core: &Arc<Core>,
    slave: Slave,
    client: Client,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) {
    tasks.spawn(slave.run(core.registrar.ha_master(), stop.clone()));
    tasks.spawn(copy_tables(core.clone(), client, stop.clone()));
}

async fn copy_tables(core: Arc<Core>, client: Client, stop: CancellationToken) {
    let settings = core.settings();
    // By default 3 s and 10 s.
    let pace = pace(&settings);
    let (first, every) = (pace * 3 / 5, pace * 2);
    let mut ticks = interval_at(Instant::now() + first, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tables = Tables {
        core,
        client,
        delays: Bytes::new(),
    };
    let mut failing = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(master) = tables.master() else { continue };
        let copied = tokio::select! {
            () = stop.cancelled() => return,
            copied = tables.copy(&master) => copied,
        };
        match copied {
            Ok(()) => {
                *tables.core.tables_copied.lock() = Some(std::time::Instant::now());
                failing = false;
            }
            Err(error) => {
                if !failing {
                    tracing::warn!(master, %error, "the master's tables could not be copied; trying again");
                }
                failing = true;
            }
        }
    }
}

struct Tables {
    core: Arc<Core>,
    client: Client,
    /// The progress of delayed messages as it was last written.
    delays: Bytes,
}

impl Tables {
    /// Where the master serves clients: as the name server says, else the port below its replication port.
    fn master(&self) -> Option<String> {
        self.core.registrar.master().or_else(|| {
            let address = configured_master(&self.core.settings())?;
            let (host, port) = split_addr(&address).ok()?;
            Some(host_port(host, port.checked_sub(1)?))
        })
    }

    async fn ask(&self, address: &str, code: i32) -> Result<Bytes, CopyError> {
        self.call(address, Command::request(code), code).await
    }

    async fn call(&self, address: &str, request: Command, code: i32) -> Result<Bytes, CopyError> {
        let answer = self.client.call(address, request, ANSWER).await?;
        if answer.code != response::SUCCESS {
            return Err(CopyError::Refused {
                code,
                answer: answer.code,
                remark: answer.remark.unwrap_or_default(),
            });
        }
        Ok(answer.body)
    }

    /// Each table on its own: one that fails keeps no other back. The first failure is told.
    async fn copy(&mut self, master: &str) -> Result<(), CopyError> {
        let topics = self.topics(master).await;
        let offsets = self.offsets(master).await;
        let delays = self.delays(master).await;
        let groups = self.groups(master).await;
        topics.and(offsets).and(delays).and(groups)
    }

    async fn topics(&self, master: &str) -> Result<(), CopyError> {
        let code = request::GET_ALL_TOPIC_CONFIG;
        // The second port, where ordinary clients are not in the way, if it can be reached.
        let quiet = split_addr(master)
            .ok()
            .and_then(|(host, port)| Some(host_port(host, port.checked_sub(2)?)));
        let mut body: Option<Bytes> = None;
        if let Some(quiet) = quiet {
            body = self.ask(&quiet, code).await.ok();
        }
        let body = match body {
            Some(body) => body,
            None => self.ask(master, code).await?,
        };
        let table: TopicConfigTable = parse(code, &body)?;
        if table.data_version == self.core.topics.version() {
            return Ok(());
        }
        tracing::info!(
            topics = table.topic_config_table.len(),
            "taking over the master's topics"
        );
        self.core.topics.replace(table);
        self.core.registrar.changed();
        self.save(Core::save_topics).await
    }

    async fn offsets(&self, master: &str) -> Result<(), CopyError> {
        let code = request::GET_ALL_CONSUMER_OFFSET;
        let table: ConsumerOffsetTable = parse(code, &self.ask(master, code).await?)?;
        let ahead = self.core.own_commits.lock().ahead_of(&table);
        for (group, topic, queue_id, commit_offset) in ahead {
            let code = request::UPDATE_CONSUMER_OFFSET;
            let update = Command::request(code).with_header(&UpdateConsumerOffset {
                consumer_group: &group,
                topic: &topic,
                queue_id,
                commit_offset,
            });
            self.call(master, update, code).await?;
            // Told once: who sets progress back at the master is not overruled.
            self.core
                .own_commits
                .lock()
                .told(&group, &topic, queue_id, commit_offset);
        }
        for (key, offset) in table.lmq_offset_table.into_iter().flatten() {
            if let Some((topic, group)) = key.split_once('@') {
                self.core.offsets.advance(group, topic, 0, offset);
            }
        }
        for (key, queues) in table.offset_table {
            let Some((topic, group)) = key.split_once('@') else {
                continue;
            };
            for (queue, offset) in queues {
                self.core.offsets.advance(group, topic, queue, offset);
            }
        }
        self.save(Core::save_offsets).await
    }

    async fn delays(&mut self, master: &str) -> Result<(), CopyError> {
        let code = request::GET_ALL_DELAY_OFFSET;
        let body = self.ask(master, code).await?;
        let _: DelayOffsetTable = parse(code, &body)?;
        if body == self.delays {
            return Ok(());
        }
        let (file, text) = (
            self.core.store.config().config_file("delayOffset.json"),
            body.clone(),
        );
        let write = move || json_table::save_durably(&file, &text);
        self.core.tasks.spawn_blocking(write).await??;
        self.delays = body;
        Ok(())
    }

    async fn groups(&self, master: &str) -> Result<(), CopyError> {
        let code = request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG;
        let table: SubscriptionGroupTable = parse(code, &self.ask(master, code).await?)?;
        if !self.core.groups.replace(table) {
            return Ok(());
        }
        tracing::info!("taking over the master's consumer groups");
        self.save(Core::save_groups).await
    }

    async fn save(&self, save: fn(&Core) -> Result<(), TableError>) -> Result<(), CopyError> {
        let core = self.core.clone();
        self.core.tasks.spawn_blocking(move || save(&core)).await??;
        Ok(())
    }
}

fn parse<T: DeserializeOwned>(code: i32, body: &[u8]) -> Result<T, CopyError> {
    fastjson::from_slice(body).map_err(|error| CopyError::Answer {
        code,
        reason: error.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_commits_are_told_where_they_are_ahead_and_only_once() {
        let mut own = OwnCommits::default();
        own.note("g", "t", 0, 7);
        own.note("g", "t", 1, 7);
        own.note("g", "u", 0, 7);
        let master: ConsumerOffsetTable =
            fastjson::from_slice(br#"{"offsetTable":{"t@g":{0:5,1:9}}}"#).unwrap();
        let mut ahead = own.ahead_of(&master);
        ahead.sort();
        let row = |topic: &str| ("g".to_owned(), topic.to_owned(), 0, 7);
        assert_eq!(ahead, [row("t"), row("u")]);
        // Meanwhile there was a newer commit.
        own.note("g", "u", 0, 8);
        own.told("g", "t", 0, 7);
        own.told("g", "u", 0, 7);
        assert_eq!(own.ahead_of(&master), [("g".to_owned(), "u".to_owned(), 0, 8)]);
    }
}
