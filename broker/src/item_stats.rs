//! Statistics of single topics and groups (request 315), over the last minute, hour and day.
//!
//! Counting is two map look-ups under a shared lock and three additions. Samples are taken from outside:
//! every 10 s for the minute, every 10 min for the hour, every hour for the day. What nobody touched for a day is
//! forgotten, so the tables follow the topics and groups in use.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};

use ferromq_protocol::body::{BrokerStatsData, BrokerStatsItem};
use parking_lot::{Mutex, RwLock};

/// Samples kept for each span, and how far apart they are, in milliseconds.
const SPANS: [(usize, i64); 3] = [(7, 10_000), (7, 600_000), (25, 3_600_000)];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sample {
    at: i64,
    messages: u64,
    bytes: u64,
    times: u64,
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

    /// Takes the samples that are due; returns whether anything happened within a day.
    fn sample(&self, now: i64) -> bool {
        let sample = Sample {
            at: now,
            messages: self.messages.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            times: self.times.load(Ordering::Relaxed),
        };
        let mut spans = self.samples.lock();
        for (samples, (keep, apart)) in spans.iter_mut().zip(SPANS) {
            // A little early is on time: the caller's clock is no better than its timer.
            if samples.back().is_none_or(|last| now - last.at >= apart - 500) {
                if samples.len() == keep {
                    samples.pop_front();
                }
                samples.push_back(sample);
            }
        }
        let day = &spans[2];
        day.len() < SPANS[2].0 || day.front().is_some_and(|first| first.times != sample.times)
    }

    fn data(&self, of: fn(&Sample) -> u64) -> BrokerStatsData {
        let spans = self.samples.lock();
        let item = |samples: &VecDeque<Sample>| -> BrokerStatsItem {
            let (Some(first), Some(last)) = (samples.front(), samples.back()) else {
                return BrokerStatsItem::default();
            };
            let sum = of(last).saturating_sub(of(first));
            let (millis, times) = (last.at - first.at, last.times.saturating_sub(first.times));
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

/// Counters by topic and group (an empty one where there is none).
#[derive(Debug, Default)]
struct Family {
    counters: RwLock<HashMap<String, HashMap<String, Counter>>>,
}

impl Family {
    fn count(&self, topic: &str, group: &str, messages: u64, bytes: u64) {
        if let Some(counter) = self
            .counters
            .read()
            .get(topic)
            .and_then(|groups| groups.get(group))
        {
            counter.count(messages, bytes);
            return;
        }
        let mut counters = self.counters.write();
        let groups = counters.entry(topic.to_owned()).or_default();
        groups.entry(group.to_owned()).or_default().count(messages, bytes);
    }

    fn sample(&self, now: i64) {
        let idle: Vec<(String, String)> = {
            let counters = self.counters.read();
            let all = counters
                .iter()
                .flat_map(|(topic, groups)| groups.iter().map(move |(g, c)| (topic, g, c)));
            all.filter(|(_, _, counter)| !counter.sample(now))
                .map(|(t, g, _)| (t.clone(), g.clone()))
                .collect()
        };
        if idle.is_empty() {
            return;
        }
        let mut counters = self.counters.write();
        for (topic, group) in idle {
            if let Some(groups) = counters.get_mut(&topic) {
                groups.remove(&group);
            }
        }
        counters.retain(|_, groups| !groups.is_empty());
    }

    fn data(&self, topic: &str, group: &str, of: fn(&Sample) -> u64) -> Option<BrokerStatsData> {
        Some(self.counters.read().get(topic)?.get(group)?.data(of))
    }
}

/// All statistics of single items.
#[derive(Debug, Default)]
pub(crate) struct ItemStats {
    topic_put: Family,
    group_get: Family,
    sent_back: Family,
    broker_put: Counter,
    broker_get: Counter,
}

impl ItemStats {
    /// Messages were stored in a topic.
    pub(crate) fn put(&self, topic: &str, messages: u64, bytes: u64) {
        self.topic_put.count(topic, "", messages, bytes);
        self.broker_put.count(messages, bytes);
    }

    /// Messages of a topic were handed to a group.
    pub(crate) fn got(&self, topic: &str, group: &str, messages: u64, bytes: u64) {
        self.group_get.count(topic, group, messages, bytes);
        self.broker_get.count(messages, bytes);
    }

    /// A group sent a message of a topic back.
    pub(crate) fn sent_back(&self, topic: &str, group: &str) {
        self.sent_back.count(topic, group, 1, 0);
    }

    /// Takes the samples that are due; called every 10 s.
    pub(crate) fn sample(&self, now: i64) {
        for family in [&self.topic_put, &self.group_get, &self.sent_back] {
            family.sample(now);
        }
        self.broker_put.sample(now);
        self.broker_get.sample(now);
    }

    /// A statistic by Java's name and key; `cluster` is the key of the broker's own.
    pub(crate) fn find(&self, name: &str, key: &str, cluster: &str) -> Option<BrokerStatsData> {
        let messages: fn(&Sample) -> u64 = |s| s.messages;
        let bytes: fn(&Sample) -> u64 = |s| s.bytes;
        let (topic, group) = key.split_once('@').unwrap_or((key, ""));
        match name {
            "TOPIC_PUT_NUMS" => self.topic_put.data(key, "", messages),
            "TOPIC_PUT_SIZE" => self.topic_put.data(key, "", bytes),
            "GROUP_GET_NUMS" => self.group_get.data(topic, group, messages),
            "GROUP_GET_SIZE" => self.group_get.data(topic, group, bytes),
            "SNDBCK_PUT_NUMS" => self.sent_back.data(topic, group, messages),
            "BROKER_PUT_NUMS" if key == cluster => Some(self.broker_put.data(messages)),
            "BROKER_GET_NUMS" if key == cluster => Some(self.broker_get.data(messages)),
            _ => None,
        }
    }

    /// Messages per second that the group was handed of the topic in the last minute.
    pub(crate) fn get_rate(&self, topic: &str, group: &str) -> f64 {
        self.group_get
            .data(topic, group, |s| s.messages)
            .map_or(0.0, |data| data.stats_minute.tps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_span_has_its_own_samples() {
        let stats = ItemStats::default();
        stats.put("T", 1, 10);
        stats.sample(0);
        for n in 1..=120 {
            stats.put("T", 10, 1_000);
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
    fn groups_are_keyed_by_topic_and_name() {
        let stats = ItemStats::default();
        stats.got("T", "G", 1, 1);
        stats.sent_back("T", "G");
        stats.sample(0);
        stats.got("T", "G", 30, 1);
        stats.sample(10_000);
        assert!((stats.get_rate("T", "G") - 3.0).abs() < f64::EPSILON);
        assert!(stats.get_rate("T", "H").abs() < f64::EPSILON);
        assert!(stats.find("GROUP_GET_NUMS", "T@G", "C").is_some());
        assert!(stats.find("SNDBCK_PUT_NUMS", "T@G", "C").is_some());
    }

    #[test]
    fn what_is_idle_for_a_day_is_forgotten() {
        let stats = ItemStats::default();
        stats.put("idle", 1, 1);
        stats.put("busy", 1, 1);
        for hour in 0..30 {
            stats.put("busy", 1, 1);
            stats.sample(hour * 3_600_000);
        }
        assert!(stats.find("TOPIC_PUT_NUMS", "idle", "C").is_none());
        assert!(stats.find("TOPIC_PUT_NUMS", "busy", "C").is_some());
    }
}
