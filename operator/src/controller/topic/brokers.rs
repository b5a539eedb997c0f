//! Calls to the masters of a cluster on behalf of one topic.
//!
//! A master is called only where it has proved who it is (see `context::Directory`), and is asked once more before
//! anything is written: an address may belong to another broker by now.

use super::build::change;
use super::status::{SYNCED, UNREACHABLE};
use super::validate::{ClusterRef, ValidTopic};
use crate::broker_status::{self, Expected};
use crate::context::Context;
use crate::controller::brokercluster::validate::Group;
use crate::crd::topic::TopicRow;
use crate::names;
use futures::StreamExt;
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
    match on_master(cx, want, group).await {
        Ok(()) => {
            SYNCED.clone_into(&mut row.state);
            row.read_queues = Some(want.read_queues);
            row.write_queues = Some(want.write_queues);
            row.perm = Some(want.perm);
        }
        Err(why) => {
            UNREACHABLE.clone_into(&mut row.state);
            row.message = Some(why);
        }
    }
    row
}

async fn on_master(cx: &Context, want: &ValidTopic, group: &Group) -> Result<(), String> {
    let ip = known(cx, &want.cluster, group)?;
    let address = remoting(ip);
    let table = cx.admin.topics(&address).await.map_err(|e| e.to_string())?;
    let have = table.topic_config_table.get(&want.name);
    let Some(config) = change(have, want) else {
        return Ok(());
    };
    prove(cx, &want.cluster, group, ip).await?;
    cx.admin
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
        match cx.admin.delete_topic_in_broker(&remoting(ip), topic).await {
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
        match cx.admin.delete_topic_in_name_server(&address, topic, None).await {
            Ok(()) => {}
            // One that cannot be reached forgets the route with the brokers' next registrations.
            Err(e) => {
                tracing::warn!(topic, address, error = %e, "a name server was not told of a deleted topic");
            }
        }
    }
    Ok(())
}

fn known(cx: &Context, cluster: &ClusterRef, group: &Group) -> Result<IpAddr, String> {
    let pod = names::broker(&cluster.name, group.index, 0);
    cx.directory.find(&cluster.uid, &pod).ok_or_else(|| {
        format!(
            "broker {pod} is not running, or was not reached by the last look at BrokerCluster {}",
            cluster.name
        )
    })
}

async fn prove(cx: &Context, cluster: &ClusterRef, group: &Group, ip: IpAddr) -> Result<(), String> {
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

fn remoting(ip: IpAddr) -> String {
    SocketAddr::new(ip, names::BROKER_PORT).to_string()
}
