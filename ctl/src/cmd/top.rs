//! `ferroctl top`: brokers, the busiest topics and the groups that are furthest behind, again and again.
//!
//! Rates of topics are differences of their queues' ends between two looks, so the first look has none. On a terminal each
//! look replaces the one before; elsewhere, or with `--once`, looks follow one another.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use ferromq_protocol::names;
use futures::future::join_all;
use serde::Serialize;

use super::cluster::{self, BrokerRow};
use crate::cli::{Format, Target};
use crate::context::{Broker, Context};
use crate::output::{self, Table};

/// Clears the terminal and goes to its first line.
const CLEAR: &str = "\x1b[2J\x1b[H";

#[derive(Serialize)]
struct Look {
    brokers: Vec<BrokerRow>,
    topics: Vec<TopicRow>,
    groups: Vec<GroupRow>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct TopicRow {
    topic: String,
    /// Absent in the first look.
    in_per_second: Option<f64>,
    messages: i64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct GroupRow {
    group: String,
    topic: String,
    behind: i64,
    /// Absent in the first look.
    consumed_per_second: Option<f64>,
}

/// Positions at the last look.
#[derive(Debug, Default)]
struct Before {
    at: Option<Instant>,
    ends: BTreeMap<String, i64>,
    consumed: BTreeMap<(String, String), i64>,
}

impl Before {
    fn rate(&self, now: Instant, before: Option<&i64>, end: i64) -> Option<f64> {
        let seconds = now.duration_since(self.at?).as_secs_f64();
        before.filter(|_| seconds > 0.0).map(|before| {
            let rate = (end - before).max(0) as f64 / seconds;
            (rate * 10.0).round() / 10.0
        })
    }
}

pub(crate) async fn run(cx: &Context, interval: Duration, rows: usize, once: bool) -> anyhow::Result<()> {
    let live = !once && cx.format == Format::Table && std::io::stdout().is_terminal();
    let mut before = Before::default();
    loop {
        let look = look(cx, &mut before, rows).await?;
        if cx.format == Format::Table {
            let head = if live { CLEAR } else { "" };
            output::write(format!("{head}{}", text(&look)).as_bytes())?;
        } else {
            output::print_line(&look)?;
        }
        if once {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

async fn look(cx: &Context, before: &mut Before, rows: usize) -> anyhow::Result<Look> {
    let brokers = cluster::rows(cx, None).await?;
    let masters = cx.masters(&Target::default()).await?;
    let now = Instant::now();
    let mut ends: BTreeMap<String, (i64, i64)> = BTreeMap::new();
    let mut consumed: BTreeMap<(String, String), (i64, i64)> = BTreeMap::new();
    // A broker that does not answer has its row above; here it is left out.
    for of in join_all(masters.iter().map(|broker| of_broker(cx, broker))).await {
        let (topics, groups) = of.unwrap_or_default();
        for (topic, (min, max)) in topics {
            let sum = ends.entry(topic).or_default();
            sum.0 += min;
            sum.1 += max;
        }
        for (key, (at, behind)) in groups {
            let sum = consumed.entry(key).or_default();
            sum.0 += at;
            sum.1 += behind;
        }
    }
    let mut topics: Vec<TopicRow> = ends
        .iter()
        .map(|(topic, (min, max))| TopicRow {
            topic: topic.clone(),
            in_per_second: before.rate(now, before.ends.get(topic), *max),
            messages: max - min,
        })
        .collect();
    topics.sort_by(|a, b| {
        let key = |row: &TopicRow| (row.in_per_second.unwrap_or(0.0), row.messages as f64);
        key(b).partial_cmp(&key(a)).unwrap_or(std::cmp::Ordering::Equal)
    });
    topics.truncate(rows);
    let mut groups: Vec<GroupRow> = consumed
        .iter()
        .map(|(key, (at, behind))| GroupRow {
            group: key.0.clone(),
            topic: key.1.clone(),
            behind: *behind,
            consumed_per_second: before.rate(now, before.consumed.get(key), *at),
        })
        .collect();
    groups.sort_by_key(|row| std::cmp::Reverse(row.behind));
    groups.truncate(rows);
    *before = Before {
        at: Some(now),
        ends: ends.into_iter().map(|(topic, (_, max))| (topic, max)).collect(),
        consumed: consumed.into_iter().map(|(key, (at, _))| (key, at)).collect(),
    };
    Ok(Look {
        brokers,
        topics,
        groups,
    })
}

/// First and last offsets by topic; consumed and behind by group and topic.
type OfBroker = (
    BTreeMap<String, (i64, i64)>,
    BTreeMap<(String, String), (i64, i64)>,
);

async fn of_broker(cx: &Context, broker: &Broker) -> Result<OfBroker, ferromq_client::ClientError> {
    let own = |topic: &String| *topic == broker.name || *topic == broker.cluster;
    let topics = cx.admin.topics(&broker.address).await?.topic_config_table;
    let topics: BTreeSet<String> = topics
        .into_keys()
        .filter(|topic| !names::is_system_topic(topic) && !names::is_retry_topic(topic) && !own(topic))
        .collect();
    let mut ends = BTreeMap::new();
    for topic in topics {
        let stats = cx.admin.topic_stats(&broker.address, &topic).await?;
        let sum = stats.offset_table.values().fold((0, 0), |sum, offsets| {
            (sum.0 + offsets.min_offset, sum.1 + offsets.max_offset)
        });
        ends.insert(topic, sum);
    }
    let mut consumed = BTreeMap::new();
    let groups = cx.admin.groups(&broker.address).await?.subscription_group_table;
    for group in groups.into_keys().filter(|group| !names::is_system_group(group)) {
        let Ok(stats) = cx.admin.consume_stats(&broker.address, &group, None).await else {
            continue;
        };
        for (queue, offsets) in stats.offset_table {
            let key = (group.clone(), queue.topic);
            let sum: &mut (i64, i64) = consumed.entry(key).or_default();
            sum.0 += offsets.consumer_offset.max(0);
            sum.1 += (offsets.broker_offset - offsets.consumer_offset.max(0)).max(0);
        }
    }
    Ok((ends, consumed))
}

fn text(look: &Look) -> String {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.1}"));
    let mut topics = Table::new(&["topic", "in/s", "messages"]).numbers(&[1, 2]);
    for row in &look.topics {
        topics.row([
            row.topic.clone(),
            rate(row.in_per_second),
            row.messages.to_string(),
        ]);
    }
    let mut groups = Table::new(&["group", "topic", "consumed/s", "behind"]).numbers(&[2, 3]);
    for row in &look.groups {
        groups.row([
            row.group.clone(),
            row.topic.clone(),
            rate(row.consumed_per_second),
            row.behind.to_string(),
        ]);
    }
    format!(
        "{}\n{}\n{}",
        cluster::table(&look.brokers).render(),
        topics.render(),
        groups.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_need_a_look_before() {
        let now = Instant::now();
        let mut before = Before::default();
        assert_eq!(before.rate(now, Some(&10), 30), None);
        before.at = now.checked_sub(Duration::from_secs(2));
        assert_eq!(before.rate(now, Some(&10), 30), Some(10.0));
        assert_eq!(
            before.rate(now, Some(&40), 30),
            Some(0.0),
            "a topic made anew has no negative rate"
        );
        assert_eq!(before.rate(now, None, 30), None);
    }
}
