//! Calls to the masters of a cluster on behalf of one topic.
//!
//! A master is called only where it has proved who it is (see `context::Directory`), and is asked once more before
//! anything is written: an address may belong to another broker by now.

use super::build::{Shrink, change, shrink};
use super::status::{SHRINKING, SYNCED, UNREACHABLE};
use super::validate::{ClusterRef, ValidTopic};
use crate::broker_status::{self, Expected};
use crate::context::Context;
use crate::controller::brokercluster::validate::Group;
use crate::crd::topic::TopicRow;
use crate::names;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use std::net::{IpAddr, SocketAddr};

/// Masters called at the same time for one topic.
const AT_ONCE: usize = 8;

/// Looks at the topic on every master and puts right what differs.
pub(super) async fn sync(cx: &Context, want: &ValidTopic) -> Vec<TopicRow> {
    let mut rows: Vec<(i32, TopicRow)> = futures::stream::iter(want.groups.clone())
        .map(|group| async move { (group.index, row(cx, want, &group).await) })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

async fn row(cx: &Context, want: &ValidTopic, group: &Group) -> TopicRow {
    let mut row = TopicRow {
        broker_name: group.broker_name.clone(),
        ..TopicRow::default()
    };
    match on_master(cx, want, group, &mut row).await {
        Ok(()) if row.shrinking_since.is_some() => SHRINKING.clone_into(&mut row.state),
        Ok(()) => {
            SYNCED.clone_into(&mut row.state);
            row.read_queues = Some(want.read_queues);
            row.write_queues = Some(want.write_queues);
            row.perm = Some(want.perm);
        }
        Err(why) => {
            UNREACHABLE.clone_into(&mut row.state);
            row.shrinking_since = want.shrinking.get(&group.broker_name).cloned();
            row.message = Some(why);
        }
    }
    row
}

async fn on_master(cx: &Context, want: &ValidTopic, group: &Group, row: &mut TopicRow) -> Result<(), String> {
    if want.joining.contains(&group.index) {
        return Err("the group is joining: it gets its consumer groups first".to_owned());
    }
    let ip = known(cx, &want.cluster, group)?;
    let address = master_address(ip);
    let table = cx
        .admin(&address)
        .topics(&address)
        .await
        .map_err(|e| e.to_string())?;
    let have = table.topic_config_table.get(&want.name);
    let mut now = want.clone();
    if let Some(have) = have.filter(|h| h.read_queue_nums > want.read_queues) {
        let unread = unread(cx, &address, &want.name, want.read_queues..have.read_queue_nums).await;
        let since = want.shrinking.get(&group.broker_name);
        let waited = since
            .and_then(|s| s.parse::<Timestamp>().ok())
            .map(|t| Timestamp::now().as_second() - t.as_second());
        if let Shrink::Wait(why) = shrink(Some(have), want, waited, cx.settings.route_refresh(), &unread) {
            now.read_queues = have.read_queue_nums;
            row.message = Some(why);
            row.shrinking_since = Some(since.cloned().unwrap_or_else(seconds_now));
            row.read_queues = Some(have.read_queue_nums);
            row.write_queues = Some(want.write_queues);
            row.perm = Some(want.perm);
        }
    }
    let Some(config) = change(have, &now) else {
        return Ok(());
    };
    prove(cx, &want.cluster, group, ip).await?;
    cx.admin(&address)
        .create_topic(&address, &config)
        .await
        .map_err(|e| e.to_string())?;
    cx.metrics.wrote("BrokerTopic");
    let what = if have.is_some() { "changed" } else { "created" };
    tracing::info!(
        topic = want.name,
        broker = group.broker_name,
        what,
        "topic put right on a broker"
    );
    Ok(())
}

fn seconds_now() -> String {
    Timestamp::from_second(Timestamp::now().as_second())
        .unwrap_or_default()
        .to_string()
}

/// Messages in these queues that some consumer group has not read; all of them if no group reads the topic.
async fn unread(
    cx: &Context,
    broker: &str,
    topic: &str,
    queues: std::ops::Range<i32>,
) -> Result<i64, String> {
    let text = |e: ferromq_client::ClientError| e.to_string();
    let goes = |queue_id: i32| queues.contains(&queue_id);
    let mut held = 0;
    // One by one: the topic's figures are those of the queues for writing, which these are no longer.
    for queue_id in queues.clone() {
        let last = cx
            .admin(broker)
            .max_offset(broker, topic, queue_id)
            .await
            .map_err(text)?;
        let first = cx
            .admin(broker)
            .min_offset(broker, topic, queue_id)
            .await
            .map_err(text)?;
        held += (last - first.max(0)).max(0);
    }
    if held == 0 {
        return Ok(0);
    }
    let groups = cx
        .admin(broker)
        .groups_of_topic(broker, topic)
        .await
        .map_err(text)?;
    if groups.is_empty() {
        return Ok(held);
    }
    let mut unread = 0_i64;
    for group in groups {
        let stats = cx
            .admin(broker)
            .consume_stats(broker, &group, Some(topic))
            .await
            .map_err(text)?;
        unread += stats
            .offset_table
            .iter()
            .filter(|(queue, _)| goes(queue.queue_id) && queue.topic == topic)
            .map(|(_, o)| (o.broker_offset - o.consumer_offset.max(0)).max(0))
            .sum::<i64>();
    }
    Ok(unread)
}

/// Deletes the topic from every master and then from every name server.
pub(super) async fn delete(
    cx: &Context,
    namespace: &str,
    cluster: &ClusterRef,
    groups: &[Group],
    topic: &str,
) -> Result<(), String> {
    for group in groups {
        let named = |why: String| format!("{}: {why}", group.broker_name);
        let ip = known(cx, cluster, group).map_err(named)?;
        prove(cx, cluster, group, ip).await.map_err(named)?;
        match cx
            .admin(&master_address(ip))
            .delete_topic_in_broker(&master_address(ip), topic)
            .await
        {
            Ok(()) => cx.metrics.wrote("BrokerTopic"),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(named(e.to_string())),
        }
    }
    let mut labels = names::selector(&cluster.name, names::Component::NameServer)
        .into_iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect::<Vec<_>>();
    labels.sort();
    let pods = cx
        .api::<Pod>(namespace)
        .list(&ListParams::default().labels(&labels.join(",")))
        .await
        .map_err(|e| format!("list the name servers: {e}"))?;
    for ip in pods
        .iter()
        .filter_map(|p| p.status.as_ref()?.pod_ip.as_ref()?.parse::<IpAddr>().ok())
    {
        let address = SocketAddr::new(ip, names::NAMESRV_PORT).to_string();
        match cx
            .admin(&address)
            .delete_topic_in_name_server(&address, topic, None)
            .await
        {
            Ok(()) => {}
            // One that cannot be reached forgets the route with the brokers' next registrations.
            Err(e) => {
                tracing::warn!(topic, address, error = %e, "a name server was not told of a deleted topic");
            }
        }
    }
    Ok(())
}

/// Where a group's master was last met.
pub(crate) fn known(cx: &Context, cluster: &ClusterRef, group: &Group) -> Result<IpAddr, String> {
    let pod = names::broker(&cluster.name, group.index, 0);
    cx.directory.find(&cluster.uid, &pod).ok_or_else(|| {
        format!(
            "broker {pod} is not running, or was not reached by the last look at BrokerCluster {}",
            cluster.name
        )
    })
}

/// Makes sure that a group's master is still at an address.
pub(crate) async fn prove(
    cx: &Context,
    cluster: &ClusterRef,
    group: &Group,
    ip: IpAddr,
) -> Result<(), String> {
    let expected = Expected {
        cluster_name: cluster.cluster_name.clone(),
        broker_name: group.broker_name.clone(),
        broker_id: 0,
        host: None,
        pod_ip: Some(ip),
        port: names::HTTP_PORT,
    };
    broker_status::ask(&expected, cx.settings.broker_timeout())
        .await
        .map(drop)
        .map_err(|e| e.to_string())
}

/// Address of a broker's protocol.
pub(crate) fn master_address(ip: IpAddr) -> String {
    SocketAddr::new(ip, names::BROKER_PORT).to_string()
}
