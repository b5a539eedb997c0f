//! Statistics of single topics, queues and groups (request 315), over the last minute, hour and day.
//!
//! Counting is two map look-ups under a shared lock and three additions. Samples are taken from outside:
//! every 10 s for the minute, every 10 min for the hour, every hour for the day. What nobody touched for a day is
//! forgotten, and so is what belongs to a topic or group that is deleted: the tables follow those in use.

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering};

use ferromq_protocol::body::{BrokerStatsData, BrokerStatsItem};
use ferromq_protocol::names::{self, topics};
use parking_lot::{Mutex, RwLock};

/// Samples kept for each span, and how far apart they are, in milliseconds.
const SPANS: [(usize, i64); 3] = [(7, 10_000), (7, 600_000), (25, 3_600_000)];

/// Totals of one row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    pub(crate) times: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sample {
    at: i64,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counter {
    messages: AtomicU64,
    bytes: AtomicU64,
    times: AtomicU64,
    /// Minute, hour, day.
    samples: Mutex<[VecDeque<Sample>; SPANS.len()]>,
}

impl Counter {
    fn count(&self, messages: u64, bytes: u64) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.times.fetch_add(1, Ordering::Relaxed);
    }

    fn now(&self) -> Counts {
        Counts {
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            times: self.times.load(Ordering::Relaxed),
        }
    }

    /// Takes the samples that are due; returns whether anything happened within a day.
    fn sample(&self, now: i64) -> bool {
        let sample = Sample {
            at: now,
            counts: self.now(),
        };
        let mut spans = self.samples.lock();
        for (samples, (keep, apart)) in spans.iter_mut().zip(SPANS) {
            // A little early is on time: the caller's clock is no better than its timer. A clock that was set
            // back begins anew.
            if samples.back().is_some_and(|last| now < last.at) {
                samples.clear();
            }
            if samples.back().is_none_or(|last| now - last.at >= apart - 500) {
                if samples.len() == keep {
                    samples.pop_front();
                }
                samples.push_back(sample);
            }
        }
        let day = &spans[2];
        day.len() < SPANS[2].0
            || day
                .front()
                .is_some_and(|first| first.counts.times != sample.counts.times)
    }

    fn data(&self, of: fn(&Counts) -> u64) -> BrokerStatsData {
        let spans = self.samples.lock();
        let item = |samples: &VecDeque<Sample>| -> BrokerStatsItem {
            let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
                return BrokerStatsItem::default();
            };
            let sum = of(&last.counts).saturating_sub(of(&first.counts));
            let (millis, times) = (
                last.at - first.at,
                last.counts.times.saturating_sub(first.counts.times),
            );
            BrokerStatsItem {
                sum: i64::try_from(sum).unwrap_or(i64::MAX),
                tps: if millis > 0 {
                    sum as f64 * 1000.0 / millis as f64
                } else {
                    0.0
                },
                avgpt: if times > 0 { sum as f64 / times as f64 } else { 0.0 },
            }
        };
        BrokerStatsData {
            stats_minute: item(&spans[0]),
            stats_hour: item(&spans[1]),
            stats_day: item(&spans[2]),
        }
    }
}

/// Counters by topic and what is counted of it.
#[derive(Debug)]
struct Family<K> {
    counters: RwLock<HashMap<String, HashMap<K, Counter>>>,
}

impl<K> Default for Family<K> {
    fn default() -> Self {
        Self {
            counters: RwLock::default(),
        }
    }
}

impl<K: Hash + Eq + Clone> Family<K> {
    fn count<Q>(&self, topic: &str, key: &Q, messages: u64, bytes: u64)
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ToOwned<Owned = K> + ?Sized,
    {
        if let Some(counter) = self.counters.read().get(topic).and_then(|keys| keys.get(key)) {
            counter.count(messages, bytes);
            return;
        }
        let mut counters = self.counters.write();
        let keys = counters.entry(topic.to_owned()).or_default();
        keys.entry(key.to_owned()).or_default().count(messages, bytes);
    }

    fn sample(&self, now: i64) {
        let idle: Vec<(String, K)> = {
            let counters = self.counters.read();
            let all = counters
                .iter()
                .flat_map(|(topic, keys)| keys.iter().map(move |(k, c)| (topic, k, c)));
            all.filter(|(_, _, counter)| !counter.sample(now))
                .map(|(t, k, _)| (t.clone(), k.clone()))
                .collect()
        };
        if idle.is_empty() {
            return;
        }
        let mut counters = self.counters.write();
        for (topic, key) in idle {
            if let Some(keys) = counters.get_mut(&topic) {
                keys.remove(&key);
            }
        }
        counters.retain(|_, keys| !keys.is_empty());
    }

    fn data<Q>(&self, topic: &str, key: &Q, of: fn(&Counts) -> u64) -> Option<BrokerStatsData>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        Some(self.counters.read().get(topic)?.get(key)?.data(of))
    }

    fn forget_topic(&self, topic: &str) {
        self.counters.write().remove(topic);
    }

    fn retain(&self, keep: impl Fn(&K) -> bool) {
        let mut counters = self.counters.write();
        for keys in counters.values_mut() {
            keys.retain(|key, _| keep(key));
        }
        counters.retain(|_, keys| !keys.is_empty());
    }

    fn rows(&self) -> Vec<(String, K, Counts)> {
        let counters = self.counters.read();
        let rows = counters
            .iter()
            .flat_map(|(topic, keys)| keys.iter().map(move |(k, c)| (topic.clone(), k.clone(), c.now())));
        rows.collect()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.counters.read().values().map(HashMap::len).sum()
    }
}

/// A queue and a group.
type Reading = (i32, String);

/// All statistics of single items.
#[derive(Debug, Default)]
pub(crate) struct ItemStats {
    topic_put: Family<String>,
    queue_put: Family<i32>,
    group_get: Family<String>,
    queue_get: Family<Reading>,
    latency: Family<Reading>,
    from_disk: Family<String>,
    sent_back: Family<String>,
    broker_put: Counter,
    broker_get: Counter,
    broker_from_disk: Counter,
    /// Whether all light queues count as one, and all their groups.
    light: bool,
}

/// Messages that were handed to a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Got<'a> {
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) group: &'a str,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// Whether they came from the disk.
    pub(crate) cold: bool,
    /// Age of the newest, in milliseconds.
    pub(crate) latency: Option<u64>,
}

impl ItemStats {
    /// With `light`, light queues share one row named `%LMQ%`, as do their groups: there may be very many.
    pub(crate) fn new(light: bool) -> Self {
        Self {
            light,
            ..Self::default()
        }
    }

    fn name<'a>(&self, name: &'a str) -> &'a str {
        if self.light && names::is_light(name) {
            return topics::LMQ_PREFIX;
        }
        name
    }

    /// Messages were stored in a topic. With `detail` they are counted by queue too.
    pub(crate) fn put(&self, topic: &str, queue_id: i32, messages: u64, bytes: u64, detail: bool) {
        let topic = self.name(topic);
        self.topic_put.count(topic, "", messages, bytes);
        if detail {
            self.queue_put.count(topic, &queue_id, messages, bytes);
        }
        self.broker_put.count(messages, bytes);
    }

    /// Messages of a topic were handed to a group. With `detail` they are counted by queue too.
    pub(crate) fn got(&self, mut got: Got<'_>, detail: bool) {
        (got.topic, got.group) = (self.name(got.topic), self.name(got.group));
        self.group_get
            .count(got.topic, got.group, got.messages, got.bytes);
        self.broker_get.count(got.messages, got.bytes);
        if got.cold {
            self.from_disk
                .count(got.topic, got.group, got.messages, got.bytes);
            self.broker_from_disk.count(got.messages, got.bytes);
        }
        if detail {
            let reading = (got.queue_id, got.group.to_owned());
            self.queue_get.count(got.topic, &reading, got.messages, got.bytes);
            if let Some(latency) = got.latency {
                self.latency.count(got.topic, &reading, latency, 0);
            }
        }
    }

    /// A group sent a message of a topic back.
    pub(crate) fn sent_back(&self, topic: &str, group: &str) {
        self.sent_back.count(self.name(topic), self.name(group), 1, 0);
    }

    /// Takes the samples that are due; called every 10 s.
    pub(crate) fn sample(&self, now: i64) {
        for family in [&self.topic_put, &self.group_get, &self.sent_back, &self.from_disk] {
            family.sample(now);
        }
        self.queue_put.sample(now);
        self.queue_get.sample(now);
        self.latency.sample(now);
        for counter in [&self.broker_put, &self.broker_get, &self.broker_from_disk] {
            counter.sample(now);
        }
    }

    /// A topic was deleted.
    pub(crate) fn forget_topic(&self, topic: &str) {
        for family in [&self.topic_put, &self.group_get, &self.sent_back, &self.from_disk] {
            family.forget_topic(topic);
        }
        self.queue_put.forget_topic(topic);
        self.queue_get.forget_topic(topic);
        self.latency.forget_topic(topic);
    }

    /// A group was deleted.
    pub(crate) fn forget_group(&self, group: &str) {
        for family in [&self.group_get, &self.sent_back, &self.from_disk] {
            family.retain(|own| own != group);
        }
        self.queue_get.retain(|(_, own)| own != group);
        self.latency.retain(|(_, own)| own != group);
    }

    /// A statistic by Java's name and key; `cluster` is the key of the broker's own.
    pub(crate) fn find(&self, name: &str, key: &str, cluster: &str) -> Option<BrokerStatsData> {
        let messages: fn(&Counts) -> u64 = |c| c.messages;
        let bytes: fn(&Counts) -> u64 = |c| c.bytes;
        let (topic, rest) = key.split_once('@').unwrap_or((key, ""));
        let queue = || rest.parse::<i32>().ok();
        // `topic@queue@group`
        let reading = || {
            let (queue, group) = rest.split_once('@')?;
            Some((queue.parse::<i32>().ok()?, group.to_owned()))
        };
        // `queue@topic@group`
        let turned = || {
            let (own_topic, group) = rest.split_once('@')?;
            Some((own_topic, (topic.parse::<i32>().ok()?, group.to_owned())))
        };
        let own = key == cluster;
        match name {
            "TOPIC_PUT_NUMS" => self.topic_put.data(key, "", messages),
            "TOPIC_PUT_SIZE" => self.topic_put.data(key, "", bytes),
            "QUEUE_PUT_NUMS" => self.queue_put.data(topic, &queue()?, messages),
            "QUEUE_PUT_SIZE" => self.queue_put.data(topic, &queue()?, bytes),
            "QUEUE_GET_NUMS" => self.queue_get.data(topic, &reading()?, messages),
            "QUEUE_GET_SIZE" => self.queue_get.data(topic, &reading()?, bytes),
            "GROUP_GET_NUMS" => self.group_get.data(topic, rest, messages),
            "GROUP_GET_SIZE" => self.group_get.data(topic, rest, bytes),
            "GROUP_GET_FROM_DISK_NUMS" => self.from_disk.data(topic, rest, messages),
            "GROUP_GET_FROM_DISK_SIZE" => self.from_disk.data(topic, rest, bytes),
            "GROUP_GET_LATENCY" => {
                let (topic, reading) = turned()?;
                self.latency.data(topic, &reading, messages)
            }
            "SNDBCK_PUT_NUMS" => self.sent_back.data(topic, rest, messages),
            "BROKER_PUT_NUMS" if own => Some(self.broker_put.data(messages)),
            "BROKER_GET_NUMS" if own => Some(self.broker_get.data(messages)),
            "BROKER_GET_FROM_DISK_NUMS" if own => Some(self.broker_from_disk.data(messages)),
            "BROKER_GET_FROM_DISK_SIZE" if own => Some(self.broker_from_disk.data(bytes)),
            _ => None,
        }
    }

    /// Messages per second that the group was handed of the topic in the last minute.
    pub(crate) fn get_rate(&self, topic: &str, group: &str) -> f64 {
        self.group_get
            .data(topic, group, |c| c.messages)
            .map_or(0.0, |data| data.stats_minute.tps)
    }

    /// What was stored, by topic.
    pub(crate) fn topics(&self) -> Vec<(String, Counts)> {
        let rows = self.topic_put.rows().into_iter();
        rows.map(|(topic, _, counts)| (topic, counts)).collect()
    }

    /// What was handed out, by topic and group.
    pub(crate) fn groups(&self) -> Vec<(String, String, Counts)> {
        self.group_get.rows()
    }

    /// What was sent back, by topic and group.
    pub(crate) fn sent_back_rows(&self) -> Vec<(String, String, Counts)> {
        self.sent_back.rows()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn got(topic: &'static str, group: &'static str, messages: u64) -> Got<'static> {
        Got {
            topic,
            queue_id: 3,
            group,
            messages,
            bytes: 10 * messages,
            cold: true,
            latency: Some(7),
        }
    }

    #[test]
    fn each_span_has_its_own_samples() {
        let stats = ItemStats::default();
        stats.put("T", 0, 1, 10, true);
        stats.sample(0);
        for n in 1..=120 {
            stats.put("T", 0, 10, 1_000, true);
            stats.sample(n * 10_000);
        }
        let data = stats.find("TOPIC_PUT_NUMS", "T", "C").unwrap();
        assert_eq!(
            (
                data.stats_minute.sum,
                data.stats_minute.tps,
                data.stats_minute.avgpt
            ),
            (60, 1.0, 10.0)
        );
        assert_eq!((data.stats_hour.sum, data.stats_hour.tps), (1_200, 1.0));
        assert_eq!(data.stats_day.sum, 0, "one sample so far");
        assert_eq!(
            stats.find("TOPIC_PUT_SIZE", "T", "C").unwrap().stats_minute.sum,
            6_000
        );
        assert_eq!(
            stats.find("BROKER_PUT_NUMS", "C", "C").unwrap().stats_minute.sum,
            60
        );
        assert!(stats.find("BROKER_PUT_NUMS", "D", "C").is_none());
        assert!(stats.find("TOPIC_PUT_NUMS", "U", "C").is_none());
        assert!(stats.find("NO_SUCH", "T", "C").is_none());
    }

    #[test]
    fn every_name_has_its_key() {
        let stats = ItemStats::default();
        stats.put("T", 3, 1, 10, true);
        stats.got(got("T", "G", 1), true);
        stats.sent_back("T", "G");
        stats.sample(0);
        stats.put("T", 3, 2, 20, true);
        stats.got(got("T", "G", 2), true);
        stats.sent_back("T", "G");
        stats.sample(10_000);
        for (name, key, sum) in [
            ("TOPIC_PUT_NUMS", "T", 2),
            ("TOPIC_PUT_SIZE", "T", 20),
            ("QUEUE_PUT_NUMS", "T@3", 2),
            ("QUEUE_PUT_SIZE", "T@3", 20),
            ("QUEUE_GET_NUMS", "T@3@G", 2),
            ("QUEUE_GET_SIZE", "T@3@G", 20),
            ("GROUP_GET_NUMS", "T@G", 2),
            ("GROUP_GET_SIZE", "T@G", 20),
            ("GROUP_GET_FROM_DISK_NUMS", "T@G", 2),
            ("GROUP_GET_FROM_DISK_SIZE", "T@G", 20),
            ("GROUP_GET_LATENCY", "3@T@G", 7),
            ("SNDBCK_PUT_NUMS", "T@G", 1),
            ("BROKER_PUT_NUMS", "C", 2),
            ("BROKER_GET_NUMS", "C", 2),
            ("BROKER_GET_FROM_DISK_NUMS", "C", 2),
            ("BROKER_GET_FROM_DISK_SIZE", "C", 20),
        ] {
            let data = stats
                .find(name, key, "C")
                .unwrap_or_else(|| panic!("{name} {key}"));
            assert_eq!(data.stats_minute.sum, sum, "{name}");
        }
        for (name, key) in [
            ("QUEUE_PUT_NUMS", "T@x"),
            ("QUEUE_GET_NUMS", "T@3"),
            ("GROUP_GET_LATENCY", "T@3@G"),
        ] {
            assert!(stats.find(name, key, "C").is_none(), "{name} {key}");
        }
    }

    #[test]
    fn groups_are_keyed_by_topic_and_name() {
        let stats = ItemStats::default();
        stats.got(got("T", "G", 1), true);
        stats.sample(0);
        stats.got(got("T", "G", 30), true);
        stats.sample(10_000);
        assert!((stats.get_rate("T", "G") - 3.0).abs() < f64::EPSILON);
        assert!(stats.get_rate("T", "H").abs() < f64::EPSILON);
    }

    #[test]
    fn what_is_idle_for_a_day_is_forgotten() {
        let stats = ItemStats::default();
        stats.put("idle", 0, 1, 1, true);
        stats.put("busy", 0, 1, 1, true);
        for hour in 0..30 {
            stats.put("busy", 0, 1, 1, true);
            stats.sample(hour * 3_600_000);
        }
        assert!(stats.find("TOPIC_PUT_NUMS", "idle", "C").is_none());
        assert!(stats.find("TOPIC_PUT_NUMS", "busy", "C").is_some());
    }

    #[test]
    fn tables_shrink_with_topics_and_groups() {
        let stats = ItemStats::default();
        let names: Vec<String> = (0..500).map(|n| format!("name-{n}")).collect();
        for name in &names {
            stats.put(name, 0, 1, 1, true);
            stats.got(
                Got {
                    topic: "T",
                    group: name,
                    ..got("T", "", 1)
                },
                true,
            );
            stats.sent_back(name, "G");
        }
        for name in &names {
            stats.forget_topic(name);
            stats.forget_group(name);
        }
        assert_eq!((stats.topic_put.len(), stats.queue_put.len()), (0, 0));
        assert_eq!(
            (stats.group_get.len(), stats.queue_get.len(), stats.latency.len()),
            (0, 0, 0)
        );
        assert_eq!((stats.sent_back.len(), stats.from_disk.len()), (0, 0));
    }

    #[test]
    fn a_clock_that_was_set_back_begins_anew() {
        let stats = ItemStats::default();
        stats.put("T", 0, 1, 1, true);
        for n in 0..7 {
            stats.sample(100_000_000 + n * 10_000);
        }
        for n in 0..7 {
            stats.put("T", 0, 10, 1, true);
            stats.sample(96_400_000 + n * 10_000);
        }
        let data = stats.find("TOPIC_PUT_NUMS", "T", "C").unwrap();
        assert_eq!((data.stats_minute.sum, data.stats_minute.tps), (60, 1.0));
    }
}
