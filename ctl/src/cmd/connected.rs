//! Clients that are connected: producers and consumers, and what consumers tell of themselves.

use std::collections::BTreeMap;

use anyhow::Context as _;
use ferromq_client::admin::{ConsumerConnection, ConsumerRunningInfo};
use ferromq_protocol::body::{Connection, MessageQueue, ProcessQueueInfo};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::cli::Target;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Table, time};

#[derive(Serialize)]
struct ClientRow {
    client: String,
    address: String,
    language: String,
    version: i32,
    brokers: Vec<String>,
}

/// One row a client, whatever the number of brokers that it is connected to.
fn merge(rows: &mut BTreeMap<String, ClientRow>, broker: &str, connection: &Connection) {
    let row = rows
        .entry(connection.client_id.clone())
        .or_insert_with(|| ClientRow {
            client: connection.client_id.clone(),
            address: connection.client_addr.clone(),
            language: format!("{:?}", connection.language),
            version: connection.version,
            brokers: Vec::new(),
        });
    row.brokers.push(broker.to_owned());
}

fn print(cx: &Context, rows: BTreeMap<String, ClientRow>) -> anyhow::Result<()> {
    let rows: Vec<ClientRow> = rows.into_values().collect();
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["client", "address", "language", "version", "brokers"]).numbers(&[3]);
        for row in rows {
            table.row([
                row.client.clone(),
                row.address.clone(),
                row.language.clone(),
                row.version.to_string(),
                row.brokers.join(" "),
            ]);
        }
        table
    })
}

/// The group's connections by broker. Not one is an error.
async fn connections(cx: &Context, group: &str) -> anyhow::Result<Vec<(String, String, ConsumerConnection)>> {
    let mut found = Vec::new();
    for broker in cx.masters(&Target::default()).await? {
        match cx.admin.consumer_connections(&broker.address, group).await {
            Err(error) if error.is_not_found() || error.code() == Some(206) => {}
            connected => {
                let connected =
                    connected.with_context(|| format!("read the consumers from {}", broker.name))?;
                found.push((broker.name, broker.address, connected));
            }
        }
    }
    if found.is_empty() {
        return Err(Failure::NotFound(format!("no consumer of group {group:?} is connected")).into());
    }
    Ok(found)
}

pub(crate) async fn consumers(cx: &Context, group: &str) -> anyhow::Result<()> {
    let mut rows = BTreeMap::new();
    for (broker, _, connected) in connections(cx, group).await? {
        for connection in &connected.connection_set {
            merge(&mut rows, &broker, connection);
        }
        for subscription in connected.subscription_table.values() {
            eprintln!("{broker}: {} {}", subscription.topic, subscription.sub_string);
        }
    }
    print(cx, rows)
}

pub(crate) async fn producers_of_group(cx: &Context, group: &str, topic: Option<&str>) -> anyhow::Result<()> {
    let mut rows = BTreeMap::new();
    let brokers: Vec<(String, String)> = match topic {
        Some(topic) => {
            let route = cx.admin.route(topic).await?;
            let of = |b: &ferromq_client::admin::BrokerData| {
                Some((b.broker_name.clone(), b.select_address()?.to_owned()))
            };
            route.broker_datas.iter().filter_map(of).collect()
        }
        None => cx
            .masters(&Target::default())
            .await?
            .into_iter()
            .map(|broker| (broker.name, broker.address))
            .collect(),
    };
    for (name, address) in brokers {
        match cx.admin.producer_connections(&address, group).await {
            // Brokers answer 1 when no producer of the group is connected.
            Err(error) if error.code() == Some(1) => {}
            connected => {
                let connected = connected.with_context(|| format!("read the producers from {name}"))?;
                for connection in &connected.connection_set {
                    merge(&mut rows, &name, connection);
                }
            }
        }
    }
    if rows.is_empty() {
        return Err(Failure::NotFound(format!("no producer of group {group:?} is connected")).into());
    }
    print(cx, rows)
}

#[derive(Serialize)]
struct ProducerRow {
    group: String,
    client: String,
    address: String,
    version: i32,
    last_seen: i64,
}

pub(crate) async fn producers_of_broker(cx: &Context, broker: &str) -> anyhow::Result<()> {
    let table = cx.admin.producers(broker).await;
    let table = table.with_context(|| format!("read the producers from {broker}"))?;
    let mut rows = Vec::new();
    for (group, producers) in table.data {
        for producer in producers {
            rows.push(ProducerRow {
                group: group.clone(),
                client: producer.client_id,
                address: producer.remote_ip,
                version: producer.version,
                last_seen: producer.last_update_timestamp,
            });
        }
    }
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["group", "client", "address", "version", "last seen"]).numbers(&[3]);
        for row in rows {
            table.row([
                row.group.clone(),
                row.client.clone(),
                row.address.clone(),
                row.version.to_string(),
                time(row.last_seen),
            ]);
        }
        table
    })
}

#[derive(Serialize)]
struct ConsumerStatus {
    client: String,
    broker: String,
    #[serde(serialize_with = "with_queues_listed")]
    info: ConsumerRunningInfo,
}

/// JSON has no queues for keys, as the wire's own form does: each state stands beside its queue.
fn with_queues_listed<S: Serializer>(info: &ConsumerRunningInfo, to: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct QueueState<'a> {
        #[serde(flatten)]
        queue: &'a MessageQueue,
        #[serde(flatten)]
        state: &'a ProcessQueueInfo,
    }
    let queues: Vec<_> = info
        .mq_table
        .iter()
        .map(|(queue, state)| QueueState { queue, state })
        .collect();
    let mut fields = to.serialize_struct("ConsumerRunningInfo", 5)?;
    fields.serialize_field("jstack", &info.jstack)?;
    fields.serialize_field("mqTable", &queues)?;
    fields.serialize_field("properties", &info.properties)?;
    fields.serialize_field("statusTable", &info.status_table)?;
    fields.serialize_field("subscriptionSet", &info.subscription_set)?;
    fields.end()
}

/// What each consumer tells of itself, and a warning when they do not subscribe alike: then messages go missing.
pub(crate) async fn status(
    cx: &Context,
    group: &str,
    only: Option<&str>,
    stacks: bool,
) -> anyhow::Result<()> {
    let mut all: BTreeMap<String, ConsumerStatus> = BTreeMap::new();
    for (broker, address, connected) in connections(cx, group).await? {
        for connection in &connected.connection_set {
            let client = &connection.client_id;
            if all.contains_key(client) || only.is_some_and(|only| only != client) {
                continue;
            }
            match cx
                .admin
                .consumer_running_info(&address, group, client, stacks)
                .await
            {
                Ok(info) => {
                    let status = ConsumerStatus {
                        client: client.clone(),
                        broker: broker.clone(),
                        info,
                    };
                    all.insert(client.clone(), status);
                }
                Err(error) => eprintln!("{client} does not answer: {error}"),
            }
        }
    }
    if all.is_empty() {
        return Err(Failure::NotFound(format!("no consumer of group {group:?} answered")).into());
    }
    warn_of_differences(&all);
    let all: Vec<ConsumerStatus> = all.into_values().collect();
    output::print(cx.format, &all, |all| {
        let heading = [
            "client",
            "topic",
            "broker",
            "queue",
            "cached",
            "commit",
            "last pull",
        ];
        let mut table = Table::new(&heading).numbers(&[3, 4, 5]);
        for status in all {
            for (queue, state) in &status.info.mq_table {
                table.row([
                    status.client.clone(),
                    queue.topic.clone(),
                    queue.broker_name.clone(),
                    queue.queue_id.to_string(),
                    state.cached_msg_count.to_string(),
                    state.commit_offset.to_string(),
                    time(state.last_pull_timestamp),
                ]);
            }
        }
        table
    })
}

fn warn_of_differences(all: &BTreeMap<String, ConsumerStatus>) {
    let subscribed = |status: &ConsumerStatus| -> Vec<(String, String)> {
        let mut topics: Vec<_> = status
            .info
            .subscription_set
            .iter()
            .map(|s| (s.topic.clone(), s.sub_string.clone()))
            .collect();
        topics.sort();
        topics
    };
    let mut clients = all.values();
    let Some(first) = clients.next() else { return };
    for other in clients.filter(|other| subscribed(other) != subscribed(first)) {
        eprintln!(
            "warning: {} and {} subscribe differently; messages of the group get lost until they are alike",
            first.client, other.client
        );
    }
    let mut holders: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for status in all.values() {
        for queue in status.info.mq_table.keys() {
            let name = format!("{}/{}/{}", queue.topic, queue.broker_name, queue.queue_id);
            holders.entry(name).or_default().push(&status.client);
        }
    }
    for (queue, clients) in holders.iter().filter(|(_, clients)| clients.len() > 1) {
        eprintln!("note: {queue} is held by {}", clients.join(" and "));
    }
}
