//! Topics.

use std::collections::BTreeSet;

use anyhow::Context as _;
use ferromq_client::admin::TopicConfig;
use ferromq_client::admin::name_server::ORDER_TOPIC_CONFIG;
use ferromq_client::rebalance::{Averagely, Strategy as _};
use ferromq_client::{ClientError, MessageQueue};
use ferromq_protocol::names;
use serde::Serialize;

use super::{namesrv, rates};
use crate::cli::{Format, Target, Topic, TopicShape};
use crate::context::{self, Context, Done, confirm};
use crate::failure::Failure;
use crate::output::{self, Table, permission, time};

pub(crate) async fn run(cx: &Context, command: Topic) -> anyhow::Result<()> {
    match command {
        Topic::List { cluster, all } => list(cx, cluster.as_deref(), all).await,
        Topic::Get { topic } => get(cx, &topic).await,
        Topic::Create { topic, target, shape } => create(cx, &topic, &target, &shape).await,
        Topic::Delete { topic, cluster, yes } => delete(cx, &topic, cluster.as_deref(), yes).await,
        Topic::Stats { topic } => stats(cx, &topic).await,
        Topic::Route { topic } => route(cx, &topic).await,
        Topic::Perm { topic, perm, target } => set_perm(cx, &topic, perm, &target).await,
        Topic::Clusters { topic } => clusters(cx, &topic).await,
        Topic::Order(command) => namesrv::order(cx, &command).await,
        Topic::Allocate { topic, clients } => allocate(cx, &topic, clients).await,
        Topic::Rates { topic, active } => rates::print(cx, topic.as_deref(), active).await,
    }
}

/// Names only, one a line: what scripts want.
pub(crate) async fn list(cx: &Context, cluster: Option<&str>, all: bool) -> anyhow::Result<()> {
    let info = cx
        .admin
        .cluster_info()
        .await
        .context("read the clusters from the name servers")?;
    let mut topics = match cluster {
        Some(cluster) => {
            if !info.cluster_addr_table.contains_key(cluster) {
                return Err(Failure::NotFound(format!("there is no cluster {cluster:?}")).into());
            }
            cx.admin.topics_of_cluster(cluster).await
        }
        None => cx.admin.topic_list().await,
    }
    .context("read the topics from the name servers")?;
    if !all {
        // Every cluster and broker has a topic of its own name.
        let own: BTreeSet<&String> = info
            .cluster_addr_table
            .keys()
            .chain(info.broker_addr_table.keys())
            .collect();
        topics.retain(|topic| is_users(topic) && !own.contains(topic));
    }
    output::print(cx.format, &topics, |topics| {
        let mut table = Table::new(&["topic"]);
        for topic in topics {
            table.row([topic]);
        }
        table
    })
}

fn is_users(topic: &str) -> bool {
    !names::is_system_topic(topic)
        && !names::is_retry_topic(topic)
        && !names::is_dlq_topic(topic)
        && !topic.ends_with(names::topics::REPLY_SUFFIX)
}

#[derive(Serialize)]
struct ClusterTopic {
    cluster: String,
    topic: String,
    groups: Vec<String>,
}

/// As mqadmin's `topicList -c`: with clusters and groups.
pub(crate) async fn list_by_cluster(cx: &Context) -> anyhow::Result<()> {
    let info = cx
        .admin
        .cluster_info()
        .await
        .context("read the clusters from the name servers")?;
    let mut rows = Vec::new();
    for cluster in info.cluster_addr_table.keys() {
        for topic in cx.admin.topics_of_cluster(cluster).await? {
            if names::is_retry_topic(&topic) || names::is_dlq_topic(&topic) {
                continue;
            }
            let route = cx.admin.route(&topic).await?;
            let mut groups = BTreeSet::new();
            for broker in route
                .broker_datas
                .iter()
                .filter(|broker| broker.cluster == *cluster)
            {
                if let Some(address) = broker.select_address() {
                    groups.extend(cx.admin.groups_of_topic(address, &topic).await?);
                }
            }
            rows.push(ClusterTopic {
                cluster: cluster.clone(),
                topic,
                groups: groups.into_iter().collect(),
            });
        }
    }
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["cluster", "topic", "groups"]);
        for row in rows {
            table.row([row.cluster.clone(), row.topic.clone(), row.groups.join(" ")]);
        }
        table
    })
}

#[derive(Serialize)]
struct TopicRow {
    broker: String,
    read_queues: i32,
    write_queues: i32,
    perm: String,
    order: bool,
}

async fn get(cx: &Context, topic: &str) -> anyhow::Result<()> {
    let route = cx.admin.route(topic).await?;
    let mut rows = Vec::new();
    for broker in &route.broker_datas {
        let Some(address) = broker.select_address() else {
            continue;
        };
        let table = cx
            .admin
            .topics(address)
            .await
            .with_context(|| format!("read the topics of {address}"))?;
        if let Some(config) = table.topic_config_table.get(topic) {
            rows.push(TopicRow {
                broker: broker.broker_name.clone(),
                read_queues: config.read_queue_nums,
                write_queues: config.write_queue_nums,
                perm: permission(config.perm),
                order: config.order,
            });
        }
    }
    if rows.is_empty() {
        let text = format!("topic {topic:?} is routed, but no broker that could be asked has it");
        return Err(Failure::NotFound(text).into());
    }
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["broker", "read", "write", "perm", "order"]).numbers(&[1, 2]);
        for row in rows {
            let (read, write) = (row.read_queues.to_string(), row.write_queues.to_string());
            table.row([
                row.broker.clone(),
                read,
                write,
                row.perm.clone(),
                row.order.to_string(),
            ]);
        }
        table
    })
}

pub(crate) async fn create(
    cx: &Context,
    topic: &str,
    target: &Target,
    shape: &TopicShape,
) -> anyhow::Result<()> {
    if let Err(error) = names::validate_topic(topic) {
        return Err(Failure::Usage(format!("{topic:?} cannot be a topic: {error}")).into());
    }
    let brokers = cx.masters(target).await?;
    let config = TopicConfig {
        order: shape.order,
        ..TopicConfig::new(topic, shape.read_queues, shape.write_queues, shape.perm)
    };
    for broker in &brokers {
        let created = cx.admin.create_topic(&broker.address, &config).await;
        created.with_context(|| format!("create the topic on {} ({})", broker.name, broker.address))?;
        eprintln!("topic {topic} is on {} ({})", broker.name, broker.address);
    }
    if shape.order {
        let queues = brokers
            .iter()
            .map(|b| format!("{}:{}", b.name, shape.write_queues));
        let order = queues.collect::<Vec<_>>().join(";");
        for name_server in cx.admin.name_servers().await? {
            let put = cx
                .admin
                .put_kv(&name_server, ORDER_TOPIC_CONFIG, topic, &order)
                .await;
            put.with_context(|| format!("store the order of the queues at name server {name_server}"))?;
        }
    }
    let brokers = context::names(&brokers);
    output::print_done(
        cx.format,
        &Done {
            changed: "topic",
            name: Some(topic.to_owned()),
            brokers,
        },
    )
}

pub(crate) async fn delete(
    cx: &Context,
    topic: &str,
    cluster: Option<&str>,
    yes: bool,
) -> anyhow::Result<()> {
    let all = cx.all_brokers().await?;
    if let Some(cluster) = cluster
        && !all.iter().any(|broker| broker.cluster == cluster)
    {
        return Err(Failure::NotFound(format!("there is no cluster {cluster:?}")).into());
    }
    let route = match cx.admin.route(topic).await {
        // A topic that only some broker still has is cleaned up all the same when its cluster is named.
        Err(ClientError::NoRoute { .. }) if cluster.is_some() => None,
        route => Some(route?),
    };
    let routed: BTreeSet<String> = route
        .iter()
        .flat_map(|route| &route.broker_datas)
        .map(|b| b.broker_name.clone())
        .collect();
    let wanted = |name: &String, of: &str| match cluster {
        Some(cluster) => of == cluster,
        None => routed.contains(name),
    };
    let brokers: Vec<_> = all
        .iter()
        .filter(|b| b.id == 0 && wanted(&b.name, &b.cluster))
        .collect();
    let names: Vec<&str> = brokers.iter().map(|b| b.name.as_str()).collect();
    let question = format!(
        "Delete topic {topic} with all its messages from {}?",
        names.join(", ")
    );
    confirm(&question, yes)?;
    for broker in &brokers {
        let deleted = cx.admin.delete_topic_in_broker(&broker.address, topic).await;
        deleted.with_context(|| format!("delete the topic on {} ({})", broker.name, broker.address))?;
    }
    eprintln!("topic {topic} is deleted from {}", names.join(", "));
    for name_server in cx.admin.name_servers().await? {
        let deleted = cx
            .admin
            .delete_topic_in_name_server(&name_server, topic, cluster)
            .await;
        deleted.with_context(|| format!("take the topic out of name server {name_server}"))?;
        if cluster.is_none() {
            let deleted = cx.admin.delete_kv(&name_server, ORDER_TOPIC_CONFIG, topic).await;
            deleted.with_context(|| format!("take the topic's order out of name server {name_server}"))?;
        }
    }
    eprintln!("topic {topic} is deleted from the name servers");
    let brokers = brokers.iter().map(|broker| broker.name.clone()).collect();
    output::print_done(
        cx.format,
        &Done {
            changed: "topic",
            name: Some(topic.to_owned()),
            brokers,
        },
    )
}

#[derive(Serialize)]
struct QueueRow {
    broker: String,
    queue: i32,
    min_offset: i64,
    max_offset: i64,
    messages: i64,
    last_stored: i64,
}

pub(crate) async fn stats(cx: &Context, topic: &str) -> anyhow::Result<()> {
    let route = cx.admin.route(topic).await?;
    let mut rows = Vec::new();
    for broker in &route.broker_datas {
        let Some(address) = broker.select_address() else {
            continue;
        };
        let stats = cx.admin.topic_stats(address, topic).await;
        let stats = stats.with_context(|| format!("read the topic's figures from {address}"))?;
        for (queue, offsets) in stats.offset_table {
            rows.push(QueueRow {
                broker: queue.broker_name,
                queue: queue.queue_id,
                min_offset: offsets.min_offset,
                max_offset: offsets.max_offset,
                messages: (offsets.max_offset - offsets.min_offset).max(0),
                last_stored: offsets.last_update_timestamp,
            });
        }
    }
    rows.sort_by(|a, b| (&a.broker, a.queue).cmp(&(&b.broker, b.queue)));
    output::print(cx.format, &rows, |rows| {
        let mut table =
            Table::new(&["broker", "queue", "min", "max", "messages", "last stored"]).numbers(&[1, 2, 3, 4]);
        for row in rows {
            let numbers = [row.min_offset, row.max_offset, row.messages].map(|n| n.to_string());
            let [min, max, messages] = numbers;
            let last = time(row.last_stored);
            table.row([
                row.broker.clone(),
                row.queue.to_string(),
                min,
                max,
                messages,
                last,
            ]);
        }
        table
    })
}

/// For people a line a broker, for machines the name server's own JSON.
pub(crate) async fn route(cx: &Context, topic: &str) -> anyhow::Result<()> {
    let mut route = cx.admin.route(topic).await?;
    route
        .queue_datas
        .sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
    route
        .broker_datas
        .sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
    output::print(cx.format, &route, |route| {
        let mut table =
            Table::new(&["cluster", "broker", "addresses", "read", "write", "perm"]).numbers(&[3, 4]);
        for queues in &route.queue_datas {
            let broker = route
                .broker_datas
                .iter()
                .find(|b| b.broker_name == queues.broker_name);
            let addresses = broker.iter().flat_map(|b| &b.broker_addrs);
            let addresses = addresses.map(|(id, address)| format!("{id}={address}"));
            table.row([
                broker.map(|b| b.cluster.clone()).unwrap_or_default(),
                queues.broker_name.clone(),
                addresses.collect::<Vec<_>>().join(" "),
                queues.read_queue_nums.to_string(),
                queues.write_queue_nums.to_string(),
                permission(queues.perm),
            ]);
        }
        table
    })
}

/// As mqadmin's `topicRoute`: the name server's own JSON whatever the form asked for.
pub(crate) async fn route_json(cx: &Context, topic: &str) -> anyhow::Result<()> {
    let route = cx.admin.route(topic).await?;
    output::print(Format::Json, &route, |_| Table::default())
}

/// Changes the permission and nothing else.
pub(crate) async fn set_perm(cx: &Context, topic: &str, perm: i32, target: &Target) -> anyhow::Result<()> {
    let mut changed = Vec::new();
    for broker in cx.masters(target).await? {
        let table = cx.admin.topics(&broker.address).await;
        let mut table = table.with_context(|| format!("read the topics of {}", broker.name))?;
        let Some(config) = table.topic_config_table.remove(topic) else {
            continue;
        };
        let before = permission(config.perm);
        let config = TopicConfig { perm, ..config };
        let set = cx.admin.create_topic(&broker.address, &config).await;
        set.with_context(|| format!("change the topic on {} ({})", broker.name, broker.address))?;
        eprintln!("{}: {topic} was {before}, is {}", broker.name, permission(perm));
        changed.push(broker);
    }
    if changed.is_empty() {
        return Err(Failure::NotFound(format!("no broker asked has the topic {topic:?}")).into());
    }
    let brokers = context::names(&changed);
    output::print_done(
        cx.format,
        &Done {
            changed: "topic",
            name: Some(topic.to_owned()),
            brokers,
        },
    )
}

/// The clusters that a topic is in, one a line.
pub(crate) async fn clusters(cx: &Context, topic: &str) -> anyhow::Result<()> {
    let route = cx.admin.route(topic).await?;
    let clusters: BTreeSet<String> = route.broker_datas.into_iter().map(|b| b.cluster).collect();
    output::print(cx.format, &clusters, |clusters| {
        let mut table = Table::new(&["cluster"]);
        for cluster in clusters {
            table.row([cluster]);
        }
        table
    })
}

/// Which queues each client would get: as even as possible, in the order of client ids, as Java's default strategy does.
pub(crate) async fn allocate(cx: &Context, topic: &str, mut clients: Vec<String>) -> anyhow::Result<()> {
    let mut route = cx.admin.route(topic).await?;
    route
        .queue_datas
        .sort_by(|a, b| a.broker_name.cmp(&b.broker_name));
    let queues: Vec<MessageQueue> = route
        .queue_datas
        .iter()
        .flat_map(|of| (0..of.read_queue_nums).map(|id| MessageQueue::new(topic, &of.broker_name, id)))
        .collect();
    clients.sort();
    clients.dedup();
    let share = |client: &String| {
        let queues = Averagely.allocate(client, &queues, &clients);
        let name = |queue: MessageQueue| format!("{}/{}", queue.broker_name, queue.queue_id);
        (client.clone(), queues.into_iter().map(name).collect())
    };
    let shares: std::collections::BTreeMap<String, Vec<String>> = clients.iter().map(share).collect();
    output::print(cx.format, &shares, |shares| {
        let mut table = Table::new(&["client", "queues"]);
        for (client, queues) in shares {
            table.row([client.clone(), queues.join(" ")]);
        }
        table
    })
}
