//! Consumer groups.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use ferromq_client::admin::SubscriptionGroupConfig;
use ferromq_protocol::names;
use serde::Serialize;

use super::{connected, offsets};
use crate::cli::{Group, Target};
use crate::context::{self, Context, Done, confirm};
use crate::failure::Failure;
use crate::output::{self, Table, time};

pub(crate) async fn run(cx: &Context, command: Group) -> anyhow::Result<()> {
    match command {
        Group::List { target, all } => list(cx, &target, all).await,
        Group::Create {
            group,
            target,
            retry_max,
            retry_queues,
            disabled,
            no_broadcast,
        } => {
            let config = SubscriptionGroupConfig {
                retry_max_times: retry_max,
                retry_queue_nums: retry_queues,
                consume_enable: !disabled,
                consume_broadcast_enable: !no_broadcast,
                ..SubscriptionGroupConfig::new(group)
            };
            create(cx, &config, &target).await
        }
        Group::Delete {
            group,
            target,
            offsets,
            yes,
        } => delete(cx, &group, &target, offsets, yes).await,
        Group::Config { group } => config(cx, &group).await,
        Group::Connections { group } => connected::consumers(cx, &group).await,
        Group::Status { group, client } => connected::status(cx, &group, client.as_deref(), false).await,
        Group::Reset {
            group,
            topic,
            to,
            no_force,
            yes,
        } => offsets::reset(cx, &group, &topic, to, !no_force, yes).await,
        Group::CloneOffsets { from, to, topic, yes } => {
            offsets::clone(cx, &from, &to, topic.as_deref(), yes).await
        }
        Group::Progress { group, topic } => progress(cx, group.as_deref(), topic.as_deref()).await,
    }
}

#[derive(Serialize)]
struct GroupRow {
    group: String,
    brokers: Vec<String>,
    enabled: bool,
    retry_max: i32,
}

async fn list(cx: &Context, target: &Target, all: bool) -> anyhow::Result<()> {
    let mut rows: BTreeMap<String, GroupRow> = BTreeMap::new();
    for broker in cx.masters(target).await? {
        let table = cx.admin.groups(&broker.address).await;
        let table = table.with_context(|| format!("read the groups of {}", broker.name))?;
        let table = table.subscription_group_table.into_iter();
        for (group, config) in table.filter(|(group, _)| all || !names::is_system_group(group)) {
            let row = rows.entry(group.clone()).or_insert_with(|| GroupRow {
                group,
                brokers: Vec::new(),
                enabled: config.consume_enable,
                retry_max: config.retry_max_times,
            });
            row.brokers.push(broker.name.clone());
        }
    }
    let rows: Vec<GroupRow> = rows.into_values().collect();
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["group", "brokers", "enabled", "retries"]).numbers(&[3]);
        for row in rows {
            let brokers = row.brokers.join(" ");
            table.row([
                row.group.clone(),
                brokers,
                row.enabled.to_string(),
                row.retry_max.to_string(),
            ]);
        }
        table
    })
}

/// A group's configuration by broker.
pub(crate) async fn config(cx: &Context, group: &str) -> anyhow::Result<()> {
    let mut configs = BTreeMap::new();
    for broker in cx.masters(&Target::default()).await? {
        let table = cx.admin.groups(&broker.address).await;
        let mut table = table.with_context(|| format!("read the groups of {}", broker.name))?;
        if let Some(config) = table.subscription_group_table.remove(group) {
            configs.insert(broker.name, config);
        }
    }
    if configs.is_empty() {
        return Err(Failure::NotFound(format!("no broker has the group {group:?}")).into());
    }
    output::print(cx.format, &configs, |configs| {
        let heading = [
            "broker",
            "consume",
            "broadcast",
            "from min",
            "retries",
            "retry queues",
        ];
        let mut table = Table::new(&heading).numbers(&[4, 5]);
        for (broker, config) in configs {
            table.row([
                broker.clone(),
                config.consume_enable.to_string(),
                config.consume_broadcast_enable.to_string(),
                config.consume_from_min_enable.to_string(),
                config.retry_max_times.to_string(),
                config.retry_queue_nums.to_string(),
            ]);
        }
        table
    })
}

pub(crate) async fn create(
    cx: &Context,
    config: &SubscriptionGroupConfig,
    target: &Target,
) -> anyhow::Result<()> {
    let group = &config.group_name;
    if let Err(error) = names::validate_group(group) {
        return Err(Failure::Usage(format!("{group:?} cannot be a group: {error}")).into());
    }
    let brokers = cx.masters(target).await?;
    for broker in &brokers {
        let created = cx.admin.upsert_group(&broker.address, config).await;
        created.with_context(|| format!("create the group on {} ({})", broker.name, broker.address))?;
        eprintln!("group {group} is on {} ({})", broker.name, broker.address);
    }
    let brokers = context::names(&brokers);
    output::print_done(
        cx.format,
        &Done {
            changed: "group",
            name: Some(group.clone()),
            brokers,
        },
    )
}

pub(crate) async fn delete(
    cx: &Context,
    group: &str,
    target: &Target,
    offsets: bool,
    yes: bool,
) -> anyhow::Result<()> {
    let mut having = Vec::new();
    for broker in cx.masters(target).await? {
        let groups = cx.admin.groups(&broker.address).await;
        let groups = groups.with_context(|| format!("read the groups of {}", broker.name))?;
        if groups.subscription_group_table.contains_key(group) {
            having.push(broker);
        }
    }
    if having.is_empty() {
        return Err(Failure::NotFound(format!("no broker asked has the group {group:?}")).into());
    }
    let names: Vec<&str> = having.iter().map(|b| b.name.as_str()).collect();
    let with = if offsets { " with its offsets" } else { "" };
    confirm(
        &format!("Delete group {group}{with} from {}?", names.join(", ")),
        yes,
    )?;
    for broker in &having {
        let deleted = cx.admin.delete_group(&broker.address, group, offsets).await;
        deleted.with_context(|| format!("delete the group on {} ({})", broker.name, broker.address))?;
        eprintln!(
            "group {group} is deleted from {} ({})",
            broker.name, broker.address
        );
    }
    let brokers = context::names(&having);
    output::print_done(
        cx.format,
        &Done {
            changed: "group",
            name: Some(group.to_owned()),
            brokers,
        },
    )
}

#[derive(Serialize)]
struct ProgressRow {
    topic: String,
    broker: String,
    queue: i32,
    broker_offset: i64,
    consumer_offset: i64,
    behind: i64,
    last_consumed: i64,
}

#[derive(Serialize)]
struct GroupSummary {
    group: String,
    members: usize,
    behind: i64,
}

pub(crate) async fn progress(cx: &Context, group: Option<&str>, topic: Option<&str>) -> anyhow::Result<()> {
    match group {
        Some(group) => progress_of(cx, group, topic).await,
        None => summary(cx).await,
    }
}

async fn progress_of(cx: &Context, group: &str, topic: Option<&str>) -> anyhow::Result<()> {
    let rows = read_progress(cx, group, topic).await?;
    if rows.is_empty() {
        let text =
            format!("group {group:?} has stored no offset; it may not exist or has consumed nothing yet");
        return Err(Failure::NotFound(text).into());
    }
    let behind: i64 = rows.iter().map(|row| row.behind).sum();
    eprintln!("{group} is {behind} message(s) behind");
    output::print(cx.format, &rows, |rows| {
        let heading = [
            "topic",
            "broker",
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
                row.broker.clone(),
                row.queue.to_string(),
                row.broker_offset.to_string(),
                row.consumer_offset.to_string(),
                row.behind.to_string(),
                time(row.last_consumed),
            ]);
        }
        table
    })
}

async fn read_progress(cx: &Context, group: &str, topic: Option<&str>) -> anyhow::Result<Vec<ProgressRow>> {
    let mut rows = Vec::new();
    for broker in cx.masters(&Target::default()).await? {
        let stats = match cx.admin.consume_stats(&broker.address, group, topic).await {
            Err(error) if error.is_not_found() => continue,
            stats => stats.with_context(|| format!("read the group's progress from {}", broker.name))?,
        };
        for (queue, offsets) in stats.offset_table {
            // Nothing was ever consumed from a queue whose offset is below 0: all of it is ahead.
            let behind = offsets.broker_offset - offsets.consumer_offset.max(0);
            rows.push(ProgressRow {
                topic: queue.topic,
                broker: queue.broker_name,
                queue: queue.queue_id,
                broker_offset: offsets.broker_offset,
                consumer_offset: offsets.consumer_offset,
                behind: behind.max(0),
                last_consumed: offsets.last_timestamp,
            });
        }
    }
    rows.sort_by(|a, b| (&a.topic, &a.broker, a.queue).cmp(&(&b.topic, &b.broker, b.queue)));
    Ok(rows)
}

async fn summary(cx: &Context) -> anyhow::Result<()> {
    let masters = cx.masters(&Target::default()).await?;
    let mut groups = BTreeSet::new();
    for broker in &masters {
        let table = cx.admin.groups(&broker.address).await;
        let table = table.with_context(|| format!("read the groups of {}", broker.name))?;
        groups.extend(table.subscription_group_table.into_keys());
    }
    groups.retain(|group| !names::is_system_group(group));
    let mut rows = Vec::new();
    for group in groups {
        let mut members = BTreeSet::new();
        for broker in &masters {
            if let Ok(connected) = cx.admin.consumer_connections(&broker.address, &group).await {
                members.extend(connected.connection_set.into_iter().map(|c| c.client_id));
            }
        }
        // A group that has consumed nothing is answered with an error: it is behind by nothing known.
        let progress = read_progress(cx, &group, None).await.unwrap_or_default();
        let behind = progress.iter().map(|row| row.behind).sum();
        rows.push(GroupSummary {
            group,
            members: members.len(),
            behind,
        });
    }
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["group", "members", "behind"]).numbers(&[1, 2]);
        for row in rows {
            table.row([row.group.clone(), row.members.to_string(), row.behind.to_string()]);
        }
        table
    })
}
