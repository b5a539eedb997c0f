//! Rates of topics and of the groups that consume them, from the brokers' own statistics.

use std::collections::BTreeSet;

use ferromq_client::admin::BrokerStatsData;
use ferromq_protocol::names;
use serde::Serialize;

use crate::context::Context;
use crate::output::{self, Table};

#[derive(Serialize)]
struct RateRow {
    topic: String,
    /// Absent for a topic that nobody consumes.
    group: Option<String>,
    in_per_second: f64,
    out_per_second: f64,
    in_last_day: i64,
    out_last_day: i64,
    behind: i64,
}

/// Messages of the last day: until a day is full the broker only knows the hour.
fn last_day(stats: &BrokerStatsData) -> i64 {
    stats
        .stats_day
        .sum
        .max(stats.stats_hour.sum)
        .max(stats.stats_minute.sum)
}

/// A row for each topic and group. `active` leaves out those without a message in the last day.
pub(crate) async fn print(cx: &Context, topic: Option<&str>, active: bool) -> anyhow::Result<()> {
    let topics = if let Some(topic) = topic {
        vec![topic.to_owned()]
    } else {
        let mut topics = cx.admin.topic_list().await?;
        topics.retain(|topic| !names::is_system_topic(topic) && !names::is_dlq_topic(topic));
        topics.sort();
        topics
    };
    let mut rows = Vec::new();
    for topic in topics {
        rows.extend(of_topic(cx, &topic).await?);
    }
    rows.retain(|row| !active || row.in_last_day > 0 || row.out_last_day > 0);
    output::print(cx.format, &rows, |rows| {
        let heading = ["topic", "group", "in/s", "out/s", "in 24h", "out 24h", "behind"];
        let mut table = Table::new(&heading).numbers(&[2, 3, 4, 5, 6]);
        for row in rows {
            table.row([
                row.topic.clone(),
                row.group.clone().unwrap_or_else(|| "-".to_owned()),
                format!("{:.1}", row.in_per_second),
                format!("{:.1}", row.out_per_second),
                row.in_last_day.to_string(),
                row.out_last_day.to_string(),
                row.behind.to_string(),
            ]);
        }
        table
    })
}

async fn of_topic(cx: &Context, topic: &str) -> anyhow::Result<Vec<RateRow>> {
    let route = cx.admin.route(topic).await?;
    let brokers: Vec<&str> = route
        .broker_datas
        .iter()
        .filter_map(|b| b.select_address())
        .collect();
    let mut groups = BTreeSet::new();
    let (mut in_per_second, mut in_last_day) = (0.0, 0);
    for address in &brokers {
        groups.extend(cx.admin.groups_of_topic(address, topic).await?);
        // A statistic that was never counted is answered with an error: it is zero.
        if let Ok(stats) = cx.admin.broker_stats(address, "TOPIC_PUT_NUMS", topic).await {
            in_per_second += stats.stats_minute.tps;
            in_last_day += last_day(&stats);
        }
    }
    let mut rows = Vec::new();
    for group in groups {
        let mut row = RateRow {
            topic: topic.to_owned(),
            group: Some(group.clone()),
            in_per_second,
            out_per_second: 0.0,
            in_last_day,
            out_last_day: 0,
            behind: 0,
        };
        for address in &brokers {
            let key = format!("{topic}@{group}");
            if let Ok(stats) = cx.admin.broker_stats(address, "GROUP_GET_NUMS", &key).await {
                row.out_per_second += stats.stats_minute.tps;
                row.out_last_day += last_day(&stats);
            }
            match cx.admin.consume_stats(address, &group, Some(topic)).await {
                Ok(stats) => {
                    let behind =
                        |o: &ferromq_client::admin::OffsetWrapper| o.broker_offset - o.consumer_offset.max(0);
                    row.behind += stats.offset_table.values().map(behind).sum::<i64>();
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    return Err(anyhow::Error::new(error)
                        .context(format!("read the progress of {group} on {address}")));
                }
            }
        }
        rows.push(row);
    }
    if rows.is_empty() {
        rows.push(RateRow {
            topic: topic.to_owned(),
            group: None,
            in_per_second,
            out_per_second: 0.0,
            in_last_day,
            out_last_day: 0,
            behind: 0,
        });
    }
    Ok(rows)
}
