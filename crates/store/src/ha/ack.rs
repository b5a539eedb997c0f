//! Who has what: the replicas whose connections live, and the sends that wait for one of them.
//!
//! An acknowledgement is made of live connections only. When a replica's connection ends it's forgotten, and nothing that
//! it said counts for sends that come later.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{BrokerRole, PutStatus, StoreConfig, core::Core, flush::GroupCommit, requests::Ack};

/// A connected replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    /// Its address, `host:port` of its side of the connection.
    pub address: String,
    /// Its broker id, if it told one: ours does, Java's can't.
    pub broker_id: Option<u32>,
    /// It has the log up to here.
    pub ack_offset: i64,
    /// Bytes of the log that it lacks.
    pub behind_bytes: i64,
    /// Whether it counts for sends that wait for a replica: it lacks less than `haSlaveFallbehindMax`.
    pub in_sync: bool,
    /// Time since its last report.
    pub silent: Duration,
    /// Time since it connected.
    pub connected: Duration,
}

#[derive(Debug)]
struct Live {
    id: u64,
    address: String,
    broker_id: Option<u32>,
    end: i64,
    since: Instant,
    heard: Instant,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    live: Vec<Live>,
}

impl Table {
    /// The end of the replica that has most; `None` if there's none.
    fn best(&self) -> Option<i64> {
        self.live.iter().map(|l| l.end).max()
    }
}

/// The replicas of a master.
#[derive(Debug)]
pub(crate) struct Replicas {
    table: Mutex<Table>,
    /// Sends that wait.
    pub(crate) waits: GroupCommit,
    /// Told of each append.
    pub(crate) appended: Notify,
}

impl Default for Replicas {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            waits: GroupCommit::ending(PutStatus::FlushSlaveTimeout, PutStatus::FlushSlaveTimeout),
            appended: Notify::new(),
        }
    }
}

impl Replicas {
    /// An acknowledgement that comes when a replica has the log up to `end`. `log_end` is the log's.
    pub(crate) fn wait_for(&self, end: i64, log_end: i64, config: &StoreConfig) -> Ack {
        let best = self.table.lock().best();
        if best.is_none_or(|best| log_end - best >= config.ha_slave_fallbehind_max) {
            return Ack::done(PutStatus::SlaveNotAvailable);
        }
        let patience = Duration::from_millis(config.slave_timeout);
        let ack = self.waits.wait_for(end, patience, PutStatus::Ok);
        // It may have come before this send waited.
        if let Some(best) = self.table.lock().best() {
            self.waits.reached(best);
        }
        ack
    }

    /// A replica has said for the first time how far it is. It counts until what this returns is dropped.
    pub(crate) fn join(core: &Arc<Core>, address: String, broker_id: Option<u32>, end: i64) -> Member {
        let mut table = core.replicas.table.lock();
        table.next += 1;
        let id = table.next;
        let now = Instant::now();
        table.live.push(Live {
            id,
            address,
            broker_id,
            end,
            since: now,
            heard: now,
        });
        drop(table);
        Member {
            core: core.clone(),
            id,
        }
    }

    pub(crate) fn list(&self, log_end: i64, config: &StoreConfig) -> Vec<Replica> {
        let table = self.table.lock();
        let rows = table.live.iter().map(|l| Replica {
            address: l.address.clone(),
            broker_id: l.broker_id,
            ack_offset: l.end,
            behind_bytes: (log_end - l.end).max(0),
            in_sync: log_end - l.end < config.ha_slave_fallbehind_max,
            silent: l.heard.elapsed(),
            connected: l.since.elapsed(),
        });
        rows.collect()
    }
}

/// A replica's place among those that count.
#[derive(Debug)]
pub(crate) struct Member {
    core: Arc<Core>,
    id: u64,
}

impl Member {
    /// The replica has the log up to `end`.
    pub(crate) fn reached(&self, end: i64) {
        let replicas = &self.core.replicas;
        let best = {
            let mut table = replicas.table.lock();
            if let Some(live) = table.live.iter_mut().find(|l| l.id == self.id) {
                live.end = live.end.max(end);
                live.heard = Instant::now();
            }
            table.best()
        };
        if let Some(best) = best {
            replicas.waits.reached(best);
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut table = self.core.replicas.table.lock();
        table.live.retain(|l| l.id != self.id);
    }
}

impl Core {
    /// The thread that ends waits for a replica which take too long.
    pub(crate) fn run_replica_watch(self: &Arc<Self>) {
        if self.config.role == BrokerRole::SyncMaster {
            self.replicas.waits.watch(|| self.stop.load(Ordering::Acquire));
        }
    }
}
