//! The rules said a second time, as plainly as possible, and any order of operations tried on both.

use std::collections::{BTreeMap, BTreeSet};

use ferromq_protocol::body::{
    DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable, TopicRouteData,
};
use ferromq_protocol::fastjson;
use proptest::prelude::*;

use super::{EXPIRY_MILLIS, Registration, RouteTable};

#[derive(Debug, Clone)]
enum Op {
    Register {
        cluster: u8,
        name: u8,
        addr: u8,
        id: i64,
        channel: u64,
        version: i64,
        topics: Vec<(u8, i32)>,
        filters: Option<u8>,
    },
    Unregister {
        name: u8,
        addr: u8,
        id: i64,
    },
    Query {
        name: u8,
        addr: u8,
        id: i64,
        version: i64,
    },
    Close {
        channel: u64,
    },
    Wait {
        millis: u64,
    },
    Wipe {
        name: u8,
    },
    Add {
        name: u8,
    },
    Delete {
        topic: u8,
        cluster: Option<u8>,
    },
    Look,
}

fn ops() -> impl Strategy<Value = Op> {
    let who = || (0..3u8, 0..4u8, 0..3i64);
    prop_oneof![
        8 => (0..2u8, who(), 0..4u64, 0..3i64, prop::collection::vec((0..4u8, 0..8i32), 0..4), prop::option::of(0..3u8))
            .prop_map(|(cluster, (name, addr, id), channel, version, topics, filters)| Op::Register {
                cluster, name, addr, id, channel, version, topics, filters,
            }),
        2 => who().prop_map(|(name, addr, id)| Op::Unregister { name, addr, id }),
        2 => (who(), 0..3i64).prop_map(|((name, addr, id), version)| Op::Query { name, addr, id, version }),
        2 => (0..4u64).prop_map(|channel| Op::Close { channel }),
        2 => prop_oneof![Just(1_000u64), Just(60_000), Just(EXPIRY_MILLIS), Just(EXPIRY_MILLIS + 1)]
            .prop_map(|millis| Op::Wait { millis }),
        1 => (0..3u8).prop_map(|name| Op::Wipe { name }),
        1 => (0..3u8).prop_map(|name| Op::Add { name }),
        1 => (0..4u8, prop::option::of(0..2u8)).prop_map(|(topic, cluster)| Op::Delete { topic, cluster }),
        3 => Just(Op::Look),
    ]
}

#[derive(Debug, Default)]
struct Model {
    /// name → (cluster, id → address)
    brokers: BTreeMap<String, (String, BTreeMap<i64, String>)>,
    clusters: BTreeSet<(String, String)>,
    /// (topic, broker name) → perm
    perms: BTreeMap<(String, String), i32>,
    /// address → (seen, version, channel)
    live: BTreeMap<String, (u64, i64, u64)>,
    filters: BTreeMap<String, Vec<String>>,
}

impl Model {
    fn register(&mut self, now: u64, op: &Op) {
        let Op::Register {
            cluster,
            name,
            addr,
            id,
            channel,
            version,
            topics,
            filters,
        } = op
        else {
            return;
        };
        let (cluster, name, addr) = (format!("c{cluster}"), format!("b{name}"), format!("a{addr}"));
        self.clusters.insert((cluster.clone(), name.clone()));
        let addrs = &mut self
            .brokers
            .entry(name.clone())
            .or_insert((cluster, BTreeMap::new()))
            .1;
        let first = !addrs.contains_key(id);
        addrs.retain(|_, a| *a != addr);
        addrs.insert(*id, addr.clone());
        if *id == 0 {
            let changed = self.live.get(&addr).is_none_or(|(_, v, _)| v != version);
            let told: BTreeMap<String, i32> = topics.iter().map(|(t, p)| (format!("t{t}"), *p)).collect();
            for (topic, perm) in told {
                let known = self.perms.entry((topic, name.clone()));
                if first || changed {
                    known.insert_entry(perm);
                } else {
                    known.or_insert(perm);
                }
            }
        }
        self.live.insert(addr.clone(), (now, *version, *channel));
        match filters {
            None => {}
            Some(0) => drop(self.filters.remove(&addr)),
            Some(n) => drop(self.filters.insert(addr, vec![format!("f{n}")])),
        }
    }

    /// What follows from a broker name without addresses.
    fn settle(&mut self) {
        self.brokers.retain(|_, (_, addrs)| !addrs.is_empty());
        self.clusters.retain(|(_, name)| self.brokers.contains_key(name));
        self.perms.retain(|(_, name), _| self.brokers.contains_key(name));
    }

    fn gone(&mut self, addr: &str) {
        self.live.remove(addr);
        self.filters.remove(addr);
        for (_, addrs) in self.brokers.values_mut() {
            addrs.retain(|_, a| a != addr);
        }
        self.settle();
    }
}

fn body(version: i64, topics: &[(u8, i32)], filters: Option<u8>) -> RegisterBrokerBody {
    let configs = topics
        .iter()
        .map(|(t, perm)| (format!("t{t}"), TopicConfig::new(format!("t{t}"), 4, 4, *perm)));
    RegisterBrokerBody {
        filter_server_list: filters.map(|n| (n > 0).then(|| format!("f{n}")).into_iter().collect()),
        topic_config_table: TopicConfigTable {
            data_version: DataVersion {
                counter: version,
                timestamp: 7,
            },
            topic_config_table: configs.collect(),
        },
    }
}

#[allow(clippy::too_many_lines, reason = "one arm for each operation")]
fn apply(table: &mut RouteTable, model: &mut Model, now: &mut u64, op: &Op) {
    match op {
        Op::Register {
            cluster,
            name,
            addr,
            id,
            channel,
            version,
            topics,
            filters,
        } => {
            let (cluster, name, addr) = (format!("c{cluster}"), format!("b{name}"), format!("a{addr}"));
            let who = Registration {
                cluster: &cluster,
                broker_name: &name,
                broker_addr: &addr,
                broker_id: *id,
                ha_addr: "ha",
                channel: *channel,
                now: *now,
            };
            let body = body(*version, topics, *filters);
            // As the name server does: what was told before has to come to the same as if it were taken in full.
            let digest = table.digest(&who, (false, true), format!("{body:?}").as_bytes());
            let answer = table.register_again(&who, digest);
            let answer = answer.unwrap_or_else(|| table.register_told(&who, &body, digest));
            model.register(*now, op);
            let master = model.brokers[&name]
                .1
                .get(&0)
                .filter(|m| model.live.contains_key(*m));
            assert_eq!(answer.master_addr.as_ref(), master.filter(|_| *id != 0));
        }
        Op::Unregister { name, addr, id } => {
            let (name, addr) = (format!("b{name}"), format!("a{addr}"));
            table.unregister(&name, &addr, *id);
            model.live.remove(&addr);
            model.filters.remove(&addr);
            if let Some((_, addrs)) = model.brokers.get_mut(&name) {
                addrs.retain(|i, a| i != id || *a != addr);
            }
            model.settle();
        }
        Op::Query {
            name,
            addr,
            id,
            version,
        } => {
            let (name, addr) = (format!("b{name}"), format!("a{addr}"));
            let asked = DataVersion {
                counter: *version,
                timestamp: 7,
            };
            let (changed, known) = table.query_data_version(&name, &addr, *id, asked, *now);
            let listed = model.brokers.get(&name).and_then(|(_, a)| a.get(id)) == Some(&addr);
            let live = model.live.get_mut(&addr);
            assert_eq!(known.map(|v| v.counter), live.as_ref().map(|(_, v, _)| *v));
            match live.filter(|(_, v, _)| listed && v == version) {
                Some(live) => {
                    live.0 = *now;
                    assert!(!changed);
                }
                None => assert!(changed),
            }
        }
        Op::Close { channel } => {
            let gone = table.channel_closed(*channel);
            let expected: Vec<String> = model
                .live
                .iter()
                .filter(|(_, l)| l.2 == *channel)
                .map(|(a, _)| a.clone())
                .collect();
            assert_eq!(gone, expected);
            for addr in &expected {
                model.gone(addr);
            }
        }
        Op::Wait { millis } => {
            *now += millis;
            let gone: Vec<String> = table.expire(*now).into_iter().map(|(addr, _)| addr).collect();
            let expected: Vec<String> = model
                .live
                .iter()
                .filter(|(_, l)| l.0 + EXPIRY_MILLIS < *now)
                .map(|(a, _)| a.clone())
                .collect();
            assert_eq!(gone, expected);
            for addr in &expected {
                model.gone(addr);
            }
        }
        Op::Wipe { name } | Op::Add { name } => {
            let name = format!("b{name}");
            let wipe = matches!(op, Op::Wipe { .. });
            let count = if wipe {
                table.wipe_write_perm(&name)
            } else {
                table.add_write_perm(&name)
            };
            let mut expected = 0;
            for ((_, broker), perm) in &mut model.perms {
                if *broker == name {
                    *perm = if wipe { *perm & !2 } else { 6 };
                    expected += 1;
                }
            }
            assert_eq!(count, expected);
        }
        Op::Delete { topic, cluster } => {
            let (topic, cluster) = (format!("t{topic}"), cluster.map(|c| format!("c{c}")));
            table.delete_topic(&topic, cluster.as_deref());
            model.perms.retain(|(t, name), _| {
                let in_cluster = cluster
                    .as_ref()
                    .is_none_or(|c| model.clusters.contains(&(c.clone(), name.clone())));
                *t != topic || !in_cluster
            });
        }
        Op::Look => {
            for topic in 0..4 {
                table.route(&format!("t{topic}"), || None);
            }
        }
    }
}

fn compare(table: &RouteTable, model: &Model) {
    let brokers: BTreeMap<String, (String, BTreeMap<i64, String>)> = table
        .brokers
        .iter()
        .map(|(n, b)| (n.as_ref().to_owned(), (b.cluster.clone(), b.broker_addrs.clone())))
        .collect();
    assert_eq!(brokers, model.brokers);
    let clusters: BTreeSet<(String, String)> = table
        .clusters
        .iter()
        .flat_map(|(c, names)| names.iter().map(move |n| (c.clone(), n.as_ref().to_owned())))
        .collect();
    assert_eq!(clusters, model.clusters);
    let perms: BTreeMap<(String, String), i32> = table
        .topics
        .iter()
        .flat_map(|(t, topic)| {
            topic
                .queues
                .iter()
                .map(move |(n, q)| ((t.clone(), n.as_ref().to_owned()), q.perm))
        })
        .collect();
    assert_eq!(perms, model.perms);
    // What must hold whatever happened.
    assert!(table.topics.values().all(|t| !t.queues.is_empty()));
    assert!(table.clusters.values().all(|names| !names.is_empty()));
    for (name, topic) in &table.topics {
        assert!(topic.queues.is_sorted_by(|a, b| a.0 < b.0), "{name}");
        if let Some(cached) = topic.route.get() {
            assert_eq!(
                cached.as_ref(),
                table.build_route(topic, None),
                "the route of {name} is stale"
            );
        }
        let bytes = table.build_route(topic, None);
        let route: TopicRouteData = fastjson::from_slice(&bytes).unwrap();
        assert_eq!(route.queue_datas.len(), route.broker_datas.len());
        for addr in route.broker_datas.iter().flat_map(|b| b.broker_addrs.values()) {
            assert_eq!(route.filter_server_table.get(addr), model.filters.get(addr));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_operations_gives_what_the_rules_give(ops in prop::collection::vec(ops(), 1..60)) {
        let (mut table, mut model, mut now) = (RouteTable::default(), Model::default(), 0);
        for op in &ops {
            apply(&mut table, &mut model, &mut now, op);
            compare(&table, &model);
        }
    }
}
