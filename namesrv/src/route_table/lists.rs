//! Lists for administrators. All are sorted and built when asked for.

use std::collections::BTreeSet;

use ferromq_protocol::body::{ClusterInfo, TopicList};

use super::{RouteTable, Topic};

/// Bits of a topic's system flag.
const UNIT: i32 = 1;
const UNIT_SUB: i32 = 2;

/// Which topics a unit list holds; judged by the queues of the first broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitTopics {
    /// 311: unit topics.
    Unit,
    /// 312: topics with a unit subscription.
    UnitSub,
    /// 313: topics with a unit subscription that are no unit topics.
    UnitSubNotUnit,
}

/// Sizes, for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Topics with a route.
    pub topics: usize,
    /// Broker names.
    pub broker_names: usize,
    /// Addresses with a sign of life.
    pub live: usize,
    /// Clusters.
    pub clusters: usize,
}

impl RouteTable {
    /// All brokers and clusters (106).
    pub fn cluster_info(&self) -> ClusterInfo {
        ClusterInfo {
            broker_addr_table: self
                .brokers
                .iter()
                .map(|(n, b)| (n.as_ref().to_owned(), b.clone()))
                .collect(),
            cluster_addr_table: self
                .clusters
                .iter()
                .map(|(c, names)| (c.clone(), names.iter().map(|n| n.as_ref().to_owned()).collect()))
                .collect(),
        }
    }

    /// All topics (206).
    pub fn all_topics(&self) -> TopicList {
        self.topics_where(|_| true)
    }

    /// Topics with queues at a broker of the cluster (224); none for an unknown one.
    pub fn topics_of_cluster(&self, cluster: &str) -> TopicList {
        let Some(names) = self.clusters.get(cluster) else {
            return TopicList::default();
        };
        self.topics_where(|topic| topic.queues.iter().any(|(name, _)| names.contains(name)))
    }

    /// Unit topics (311, 312, 313).
    pub fn unit_topics(&self, which: UnitTopics) -> TopicList {
        self.topics_where(|topic| {
            let flag = topic.queues.first().map_or(0, |(_, queues)| queues.sys_flag);
            match which {
                UnitTopics::Unit => flag & UNIT != 0,
                UnitTopics::UnitSub => flag & UNIT_SUB != 0,
                UnitTopics::UnitSubNotUnit => flag & UNIT_SUB != 0 && flag & UNIT == 0,
            }
        })
    }

    /// Names of clusters and brokers, which are topics too (304), and the address of some broker.
    pub fn system_topics(&self) -> TopicList {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for (cluster, brokers) in &self.clusters {
            names.insert(cluster);
            names.extend(brokers.iter().map(AsRef::as_ref));
        }
        let some = self.brokers.values().find_map(|b| b.broker_addrs.values().next());
        TopicList {
            broker_addr: some.cloned(),
            topic_list: names.into_iter().map(str::to_owned).collect(),
        }
    }

    fn topics_where(&self, keep: impl Fn(&Topic) -> bool) -> TopicList {
        let kept = self.topics.iter().filter(|(_, topic)| keep(topic));
        TopicList {
            broker_addr: None,
            topic_list: kept.map(|(name, _)| name.clone()).collect(),
        }
    }

    /// Whether a broker name has a master.
    pub fn has_master(&self, broker: &str) -> bool {
        self.brokers
            .get(broker)
            .is_some_and(|b| b.broker_addrs.contains_key(&0))
    }

    /// Sizes of the tables.
    pub fn sizes(&self) -> Sizes {
        Sizes {
            topics: self.topics.len(),
            broker_names: self.brokers.len(),
            live: self.live.len(),
            clusters: self.clusters.len(),
        }
    }
}
