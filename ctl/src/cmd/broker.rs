//! One broker: figures and configuration.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::Serialize;

use super::{connected, probe};
use crate::cli::{self, BrokerConfig, Clean, Target};
use crate::context::{Context, Done, names, print_pairs};
use crate::failure::Failure;
use crate::output::{self, Table};

pub(crate) async fn run(cx: &Context, command: cli::Broker) -> anyhow::Result<()> {
    match command {
        cli::Broker::Status { target } => status(cx, &target).await,
        cli::Broker::Config(BrokerConfig::Get { target, keys }) => get(cx, &target, &keys).await,
        cli::Broker::Config(BrokerConfig::Set { target, settings }) => set(cx, &target, &settings).await,
        cli::Broker::Clean { what, target } => clean(cx, what, &target).await,
        cli::Broker::Backlog { broker, level, order } => backlog(cx, &broker, level, order).await,
        cli::Broker::Producers { broker } => connected::producers_of_broker(cx, &broker).await,
        cli::Broker::Ping { broker, probe } => probe::send(cx, &broker, Some(&broker), &probe).await,
    }
}

/// All figures, by broker address when there is more than one.
pub(crate) async fn status(cx: &Context, target: &Target) -> anyhow::Result<()> {
    let mut figures = BTreeMap::new();
    for broker in cx.masters(target).await? {
        let info = cx.admin.runtime_info(&broker.address).await;
        let info = info.with_context(|| format!("read the figures of {}", broker.name))?;
        figures.insert(broker.address, info);
    }
    print_pairs(cx, &figures)
}

async fn get(cx: &Context, target: &Target, keys: &[String]) -> anyhow::Result<()> {
    let mut configs = BTreeMap::new();
    for broker in cx.masters(target).await? {
        let config = cx.admin.broker_config(&broker.address).await;
        let mut config = config.with_context(|| format!("read the configuration of {}", broker.name))?;
        if let Some(missing) = keys.iter().find(|key| !config.contains_key(*key)) {
            let text = format!("{} has no configuration key {missing:?}", broker.name);
            return Err(Failure::NotFound(text).into());
        }
        if !keys.is_empty() {
            config.retain(|key, _| keys.contains(key));
        }
        configs.insert(broker.address, config);
    }
    print_pairs(cx, &configs)
}

async fn set(cx: &Context, target: &Target, settings: &[(String, String)]) -> anyhow::Result<()> {
    if target.broker.is_none() && target.cluster.is_none() {
        let text = "say which broker with -b ADDR, or all masters of a cluster with -c NAME";
        return Err(Failure::Usage(text.into()).into());
    }
    let brokers = cx.masters(target).await?;
    for broker in &brokers {
        let pairs = settings.iter().map(|(key, value)| (key, value));
        let updated = cx.admin.update_broker_config(&broker.address, pairs).await;
        updated.with_context(|| format!("change the configuration of {}", broker.name))?;
        eprintln!(
            "{} ({}) has taken {} setting(s)",
            broker.name,
            broker.address,
            settings.len()
        );
    }
    output::print_done(
        cx.format,
        &Done {
            changed: "broker config",
            name: None,
            brokers: names(&brokers),
        },
    )
}

/// Asks brokers to clean up now.
pub(crate) async fn clean(cx: &Context, what: Clean, target: &Target) -> anyhow::Result<()> {
    let brokers = cx.masters(target).await?;
    for broker in &brokers {
        let cleaned = match what {
            Clean::Queues => cx.admin.clean_expired_queues(&broker.address).await,
            Clean::Topics => cx.admin.clean_unused_topics(&broker.address).await,
            Clean::Log => cx.admin.delete_expired_commit_log(&broker.address).await,
        };
        cleaned.with_context(|| format!("have {} clean up", broker.name))?;
        eprintln!("{} ({}) cleans up", broker.name, broker.address);
    }
    output::print_done(
        cx.format,
        &Done {
            changed: "cleaned",
            name: None,
            brokers: names(&brokers),
        },
    )
}

#[derive(Serialize)]
struct BacklogRow {
    topic: String,
    group: String,
    queue: i32,
    broker_offset: i64,
    consumer_offset: i64,
    behind: i64,
    last_consumed: i64,
}

/// How far every group is in every topic of a broker.
pub(crate) async fn backlog(cx: &Context, broker: &str, level: i64, order: bool) -> anyhow::Result<()> {
    let list = cx.admin.broker_consume_stats(broker, order).await;
    let list = list.with_context(|| format!("read the groups' progress from {broker}"))?;
    let mut rows = Vec::new();
    for (group, stats) in list.consume_stats_list.into_iter().flatten() {
        for (queue, offsets) in stats.into_iter().flat_map(|stats| stats.offset_table) {
            let behind = offsets.broker_offset - offsets.consumer_offset;
            if behind >= level {
                rows.push(BacklogRow {
                    topic: queue.topic,
                    group: group.clone(),
                    queue: queue.queue_id,
                    broker_offset: offsets.broker_offset,
                    consumer_offset: offsets.consumer_offset,
                    behind,
                    last_consumed: offsets.last_timestamp,
                });
            }
        }
    }
    eprintln!("{} message(s) behind in all", list.total_diff);
    output::print(cx.format, &rows, |rows| {
        let heading = [
            "topic",
            "group",
            "queue",
            "broker at",
            "group at",
            "behind",
            "last consumed",
        ];
        let mut table = Table::new(&heading).numbers(&[2, 3, 4, 5]);
        for row in rows {
            table.row([
                row.topic.clone(),
                row.group.clone(),
                row.queue.to_string(),
                row.broker_offset.to_string(),
                row.consumer_offset.to_string(),
                row.behind.to_string(),
                output::time(row.last_consumed),
            ]);
        }
        table
    })
}
