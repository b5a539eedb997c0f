//! The tables of the name server and every rule about them. Pure: time and connections come in as numbers.
//!
//! ```text
//! topics    topic → (broker name → queues)        live      address → seen, data version, channel
//! brokers   broker name → cluster, id → address   filters   address → filter servers
//! clusters  cluster → broker names
//! ```
//!
//! What holds after every operation:
//! * no topic is without queues, no broker name without an address, no cluster without a broker name;
//! * every broker name in `topics` and `clusters` is in `brokers`;
//! * a topic's encoded route, if there is one, is what would be built now.
//!
//! Two rules differ from Java's, for the better. Unregistering removes an id only if the address is still the
//! one that unregisters: a broker that was replaced cannot take its successor out of the routes. And what a
//! master tells is kept also when its data version is known already, if entries are missing here.

mod lists;
mod liveness;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use ferromq_protocol::body::{
    BrokerData, DataVersion, QueueData, RegisterBrokerBody, TopicConfig, TopicRouteData,
};
use ferromq_protocol::{fastjson, perm};

pub use lists::{Sizes, UnitTopics};
pub use liveness::EXPIRY_MILLIS;

/// A topic's queues at one broker name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Queues {
    read: i32,
    write: i32,
    perm: i32,
    sys_flag: i32,
}

impl From<&TopicConfig> for Queues {
    fn from(config: &TopicConfig) -> Self {
        Self {
            read: config.read_queue_nums,
            write: config.write_queue_nums,
            perm: config.perm,
            sys_flag: config.topic_sys_flag,
        }
    }
}

impl Queues {
    /// How a broker of ours says that it no longer has a topic.
    fn is_gone(self) -> bool {
        self.read == 0 && self.write == 0 && self.perm == 0
    }
}

#[derive(Debug, Default)]
struct Topic {
    /// Sorted by broker name.
    queues: Vec<(Arc<str>, Queues)>,
    /// The answer to 105, built when first asked for.
    route: OnceLock<Bytes>,
}

impl Topic {
    fn find(&self, broker: &str) -> Result<usize, usize> {
        self.queues
            .binary_search_by(|(name, _)| name.as_ref().cmp(broker))
    }

    fn forget_route(&mut self) {
        self.route = OnceLock::new();
    }
}

#[derive(Debug)]
struct Live {
    /// Milliseconds of the caller's clock.
    seen: AtomicU64,
    version: DataVersion,
    channel: u64,
    ha_addr: String,
    /// What it told last, if that may be told again without effect.
    told: Option<Told>,
}

/// A registration as it came, header and body, and the state of the tables when it was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Told {
    digest: u64,
    removals: u64,
}

/// Who registers.
#[derive(Debug, Clone, Copy)]
pub struct Registration<'a> {
    /// Cluster name.
    pub cluster: &'a str,
    /// Broker name: master and slaves share it.
    pub broker_name: &'a str,
    /// Address that clients use.
    pub broker_addr: &'a str,
    /// 0 is the master.
    pub broker_id: i64,
    /// Address for slaves.
    pub ha_addr: &'a str,
    /// The connection it came on.
    pub channel: u64,
    /// Milliseconds of the caller's clock.
    pub now: u64,
}

/// The answer to a registration: the master of a slave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Registered {
    /// Address for replication, if a slave asked and its master lives.
    pub ha_addr: Option<String>,
    /// The master's address, likewise.
    pub master_addr: Option<String>,
}

/// The tables.
#[derive(Debug, Default)]
pub struct RouteTable {
    topics: BTreeMap<String, Topic>,
    brokers: BTreeMap<Arc<str>, BrokerData>,
    clusters: BTreeMap<String, BTreeSet<Arc<str>>>,
    live: HashMap<String, Live>,
    filters: HashMap<String, Vec<String>>,
    /// Counts what was taken out. While it stands still, all that a broker told is still here.
    removals: u64,
    digests: RandomState,
}

impl RouteTable {
    /// Something that tells a registration from others: its header, how its body is to be read, and the body as it came.
    pub fn digest(&self, who: &Registration<'_>, form: (bool, bool), body: &[u8]) -> u64 {
        let name = (who.cluster, who.broker_name, who.broker_addr);
        self.digests
            .hash_one((name, who.broker_id, who.ha_addr, form, body))
    }

    /// Takes a registration (103) that is the broker's last one once more: a sign of life, without a look at any topic.
    /// `None` when it has to be taken in full, because it is another one, came on another connection, or something
    /// was taken out of the tables since.
    pub fn register_again(&self, who: &Registration<'_>, digest: u64) -> Option<Registered> {
        let live = self.live.get(who.broker_addr)?;
        let removals = self.removals;
        let listed = self
            .brokers
            .get(who.broker_name)?
            .broker_addrs
            .get(&who.broker_id)?;
        if live.told != Some(Told { digest, removals })
            || live.channel != who.channel
            || listed != who.broker_addr
        {
            return None;
        }
        live.seen.fetch_max(who.now, Ordering::Relaxed);
        Some(self.master_of(who))
    }

    /// Takes a registration (103) whose [`digest`](Self::digest) is known.
    pub fn register_told(
        &mut self,
        who: &Registration<'_>,
        body: &RegisterBrokerBody,
        digest: u64,
    ) -> Registered {
        let registered = self.register(who, body);
        let removals = self.removals;
        if let Some(live) = self.live.get_mut(who.broker_addr) {
            live.told = Some(Told { digest, removals });
        }
        registered
    }

    /// Takes a registration (103).
    pub fn register(&mut self, who: &Registration<'_>, body: &RegisterBrokerBody) -> Registered {
        let name = self
            .brokers
            .get_key_value(who.broker_name)
            .map(|(name, _)| Arc::clone(name));
        let name = name.unwrap_or_else(|| Arc::from(who.broker_name));
        if !self
            .clusters
            .get(who.cluster)
            .is_some_and(|names| names.contains(&name))
        {
            self.clusters
                .entry(who.cluster.to_owned())
                .or_default()
                .insert(Arc::clone(&name));
        }
        let broker = self
            .brokers
            .entry(Arc::clone(&name))
            .or_insert_with(|| BrokerData {
                broker_addrs: BTreeMap::new(),
                broker_name: who.broker_name.to_owned(),
                cluster: who.cluster.to_owned(),
            });
        let before = broker.broker_addrs.clone();
        // One address has one id: a slave that became master loses its old one.
        broker
            .broker_addrs
            .retain(|id, addr| *id == who.broker_id || addr != who.broker_addr);
        broker
            .broker_addrs
            .insert(who.broker_id, who.broker_addr.to_owned());
        let first = !before.contains_key(&who.broker_id);
        let moved = before != broker.broker_addrs;

        let table = &body.topic_config_table;
        if who.broker_id == 0 {
            let known = self
                .live
                .get(who.broker_addr)
                .is_some_and(|live| live.version == table.data_version);
            for (topic, config) in &table.topic_config_table {
                let topic = if config.topic_name.is_empty() {
                    topic
                } else {
                    &config.topic_name
                };
                self.take_topic(&name, topic, Queues::from(config), first || !known);
            }
        }
        let live = Live {
            seen: AtomicU64::new(who.now),
            version: table.data_version,
            channel: who.channel,
            ha_addr: who.ha_addr.to_owned(),
            told: None,
        };
        self.live.insert(who.broker_addr.to_owned(), live);
        if let Some(filters) = &body.filter_server_list {
            let old = if filters.is_empty() {
                self.filters.remove(who.broker_addr)
            } else {
                self.filters.insert(who.broker_addr.to_owned(), filters.clone())
            };
            if old.unwrap_or_default() != *filters {
                self.forget_routes_at(who.broker_addr);
            }
        }
        if moved {
            self.forget_routes_of(&name);
        }
        self.master_of(who)
    }

    /// Upserts the queues of one topic at one broker; without `overwrite` only if they are missing.
    fn take_topic(&mut self, broker: &Arc<str>, topic: &str, queues: Queues, overwrite: bool) {
        if queues.is_gone() {
            if overwrite {
                self.drop_queues(topic, broker);
            }
            return;
        }
        let entry = match self.topics.get_mut(topic) {
            Some(entry) => entry,
            None => self.topics.entry(topic.to_owned()).or_default(),
        };
        match entry.find(broker) {
            Ok(at) if overwrite && entry.queues[at].1 != queues => entry.queues[at].1 = queues,
            Ok(_) => return,
            Err(at) => entry.queues.insert(at, (Arc::clone(broker), queues)),
        }
        entry.forget_route();
    }

    fn drop_queues(&mut self, topic: &str, broker: &str) {
        let Some(entry) = self.topics.get_mut(topic) else {
            return;
        };
        if let Ok(at) = entry.find(broker) {
            self.removals += 1;
            entry.queues.remove(at);
            entry.forget_route();
            if entry.queues.is_empty() {
                self.topics.remove(topic);
            }
        }
    }

    fn master_of(&self, who: &Registration<'_>) -> Registered {
        let answer = || {
            let master = self.brokers.get(who.broker_name)?.broker_addrs.get(&0)?;
            let live = self.live.get(master)?;
            Some(Registered {
                ha_addr: Some(live.ha_addr.clone()),
                master_addr: Some(master.clone()),
            })
        };
        if who.broker_id == 0 {
            Registered::default()
        } else {
            answer().unwrap_or_default()
        }
    }

    /// Takes a broker out (104).
    pub fn unregister(&mut self, broker_name: &str, broker_addr: &str, broker_id: i64) {
        self.live.remove(broker_addr);
        let filtered = self.filters.remove(broker_addr).is_some();
        let ours = self
            .brokers
            .get(broker_name)
            .and_then(|b| b.broker_addrs.get(&broker_id));
        if ours.is_some_and(|addr| addr == broker_addr) {
            self.remove_ids(broker_name, |id, _| id == broker_id);
        }
        if filtered {
            self.forget_routes_at(broker_addr);
        }
    }

    /// Removes ids of a broker name, and all of the name when none is left.
    fn remove_ids(&mut self, broker_name: &str, remove: impl Fn(i64, &str) -> bool) {
        let Some(broker) = self.brokers.get_mut(broker_name) else {
            return;
        };
        self.removals += 1;
        broker.broker_addrs.retain(|id, addr| !remove(*id, addr));
        if !broker.broker_addrs.is_empty() {
            self.forget_routes_of(broker_name);
            return;
        }
        self.brokers.remove(broker_name);
        self.clusters.retain(|_, names| {
            names.remove(broker_name);
            !names.is_empty()
        });
        self.topics.retain(|_, topic| {
            if let Ok(at) = topic.find(broker_name) {
                topic.queues.remove(at);
                topic.forget_route();
            }
            !topic.queues.is_empty()
        });
    }

    fn forget_routes_of(&mut self, broker: &str) {
        for topic in self.topics.values_mut() {
            if topic.route.get().is_some() && topic.find(broker).is_ok() {
                topic.forget_route();
            }
        }
    }

    /// Forgets the routes of all names that have the address; usually that is one.
    fn forget_routes_at(&mut self, addr: &str) {
        let at = |broker: &BrokerData| broker.broker_addrs.values().any(|a| a == addr);
        let names: Vec<Arc<str>> = self
            .brokers
            .iter()
            .filter(|(_, b)| at(b))
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in names {
            self.forget_routes_of(&name);
        }
    }

    /// Forgets the encoded route of a topic, because its order configuration changed.
    pub fn forget_route(&mut self, topic: &str) {
        if let Some(topic) = self.topics.get_mut(topic) {
            topic.forget_route();
        }
    }

    /// Forgets all encoded routes.
    pub fn forget_all_routes(&mut self) {
        self.topics.values_mut().for_each(Topic::forget_route);
    }

    /// Compares data versions (322): whether the broker should register, and the version known here. When it
    /// need not, the question counts as a sign of life.
    pub fn query_data_version(
        &self,
        broker_name: &str,
        broker_addr: &str,
        broker_id: i64,
        version: DataVersion,
        now: u64,
    ) -> (bool, Option<DataVersion>) {
        let live = self.live.get(broker_addr);
        let listed = self
            .brokers
            .get(broker_name)
            .and_then(|b| b.broker_addrs.get(&broker_id));
        let same = live.is_some_and(|l| l.version == version) && listed.is_some_and(|a| a == broker_addr);
        if let (true, Some(live)) = (same, live) {
            live.seen.fetch_max(now, Ordering::Relaxed);
        }
        (!same, live.map(|l| l.version))
    }

    /// The encoded route of a topic (105), `None` when there is none. `order_conf` gives the topic's order
    /// configuration; it is asked only when the route is built.
    pub fn route(&self, topic: &str, order_conf: impl FnOnce() -> Option<String>) -> Option<Bytes> {
        let entry = self.topics.get(topic)?;
        let bytes = entry
            .route
            .get_or_init(|| self.build_route(entry, order_conf()).into());
        Some(bytes.clone())
    }

    fn build_route(&self, topic: &Topic, order_topic_conf: Option<String>) -> Vec<u8> {
        let mut route = TopicRouteData {
            order_topic_conf,
            ..TopicRouteData::default()
        };
        for (name, queues) in &topic.queues {
            route.queue_datas.push(QueueData {
                broker_name: name.as_ref().to_owned(),
                perm: queues.perm,
                read_queue_nums: queues.read,
                topic_sys_flag: queues.sys_flag,
                write_queue_nums: queues.write,
            });
            let Some(broker) = self.brokers.get(name) else {
                continue;
            };
            for addr in broker.broker_addrs.values() {
                if let Some(filters) = self.filters.get(addr) {
                    route.filter_server_table.insert(addr.clone(), filters.clone());
                }
            }
            route.broker_datas.push(broker.clone());
        }
        fastjson::to_vec(&route)
    }

    /// Takes the write permission from all topics of a broker (205); gives how many it has.
    pub fn wipe_write_perm(&mut self, broker_name: &str) -> i32 {
        self.change_perm(broker_name, |old| old & !perm::WRITE)
    }

    /// Sets all topics of a broker to read and write (327); gives how many it has.
    pub fn add_write_perm(&mut self, broker_name: &str) -> i32 {
        self.change_perm(broker_name, |_| perm::READ | perm::WRITE)
    }

    fn change_perm(&mut self, broker_name: &str, change: impl Fn(i32) -> i32) -> i32 {
        let mut touched = 0;
        for topic in self.topics.values_mut() {
            if let Ok(at) = topic.find(broker_name) {
                let queues = &mut topic.queues[at].1;
                queues.perm = change(queues.perm);
                topic.forget_route();
                touched += 1;
            }
        }
        touched
    }

    /// Deletes a topic (216), at the brokers of one cluster or at all.
    pub fn delete_topic(&mut self, topic: &str, cluster: Option<&str>) {
        let Some(cluster) = cluster else {
            self.removals += 1;
            self.topics.remove(topic);
            return;
        };
        let names: Vec<Arc<str>> = self
            .clusters
            .get(cluster)
            .into_iter()
            .flatten()
            .cloned()
            .collect();
        for name in names {
            self.drop_queues(topic, &name);
        }
    }
}
