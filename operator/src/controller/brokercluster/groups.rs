//! Groups that come and groups that go.
//!
//! A new group is *Joining* until it has every topic and every consumer group of the group with the lowest index that
//! serves, so that clients find there what they find elsewhere. Only what is missing is made, consumer groups first;
//! a source that cannot be read is waited for, never taken for an empty one.
//!
//! A group that is no longer asked for is *Leaving*: its brokers become read-only (brokerPermission 4, which they keep
//! over restarts), clients are given time to learn it, every consumer group has to read to the end, and then its
//! StatefulSet goes, and with it pods, Services and the rest; volumes follow the retention policy. Asked for again
//! before that, it serves again. Once its pods are gone, name servers that list a broker of it still (one that was not stopped
//! in order) are told.
//!
//! The stage is persisted in `status.groupStates`. A stage that was lost begins anew; everything here may be done twice.

use super::build::ObjectKind;
use super::dereference::Observed;
use super::live::{Configs, remoting};
use super::validate::{Group, ValidCluster};
use crate::context::Context;
use crate::crd::BrokerCluster;
use crate::crd::broker_cluster::{AfterDeadline, BrokerClusterStatus, GroupRow, Removal};
use crate::error::Error;
use crate::events::{Weight, tell};
use crate::names;
use ferromq_protocol::header::BrokerIdentity;
use ferromq_protocol::names::{is_system_group, is_system_topic, topics};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::api::{DeleteParams, Preconditions};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Topics and groups are being copied to it.
pub const JOINING: &str = "Joining";
/// It does its work.
pub const SERVING: &str = "Serving";
/// It is no longer asked for.
pub const LEAVING: &str = "Leaving";
/// Key and value with which brokers take no messages of clients.
const PERMISSION: &str = "brokerPermission";
const READ_ONLY: &str = "4";

/// What a pass knows.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The resource, for events.
    pub resource: &'a BrokerCluster,
    /// The valid form of it.
    pub valid: &'a ValidCluster,
    /// What was read.
    pub observed: &'a Observed,
    /// Settings of brokers.
    pub configs: &'a Configs,
    /// Where brokers were met.
    pub met: &'a BTreeMap<String, IpAddr>,
}

/// Stages of the groups that are asked for, as the last status has them. In a status that knows no stages yet, every
/// group of which a broker was seen serves; in a new cluster the first one does.
fn stages(valid: &ValidCluster, status: &BrokerClusterStatus) -> BTreeMap<i32, String> {
    let known: BTreeMap<i32, String> = if status.group_states.is_empty() {
        let seen: BTreeSet<i32> = status.brokers.iter().map(|b| b.group).collect();
        seen.into_iter()
            .map(|index| (index, SERVING.to_owned()))
            .collect()
    } else {
        status
            .group_states
            .iter()
            .map(|g| (g.index, g.stage.clone()))
            .collect()
    };
    let first = valid.groups.first().map(|g| g.index);
    let none_serves = !known.values().any(|stage| stage == SERVING);
    valid
        .groups
        .iter()
        .map(|group| {
            let stage = match known.get(&group.index) {
                Some(stage) => stage.clone(),
                None if none_serves && Some(group.index) == first => SERVING.to_owned(),
                None => JOINING.to_owned(),
            };
            (group.index, stage)
        })
        .collect()
}

/// Takes every group one step further and tells where it is.
///
/// # Errors
/// A write to Kubernetes failed.
pub async fn settle(cx: &Context, known: Known<'_>) -> Result<Vec<GroupRow>, Error> {
    let status = known.resource.status.clone().unwrap_or_default();
    let stages = stages(known.valid, &status);
    let source = known
        .valid
        .groups
        .iter()
        .find(|g| stages.get(&g.index).map(String::as_str) == Some(SERVING));
    let mut rows = Vec::new();
    for group in &known.valid.groups {
        let stage = stages.get(&group.index).map_or(JOINING, String::as_str);
        rows.push(if stage == SERVING {
            row(group, SERVING, None)
        } else {
            come(cx, known, group, stage, source).await
        });
    }
    for group in &known.valid.leaving {
        let old = status
            .group_states
            .iter()
            .find(|g| g.index == group.index && g.stage == LEAVING);
        rows.push(go(cx, known, group, old).await?);
    }
    for old in gone(known.valid, &status) {
        if let Err(why) = forget(cx, known, &old.broker_name).await {
            rows.push(GroupRow {
                message: Some(why),
                ..old.clone()
            });
        }
    }
    Ok(rows)
}

/// Groups that were leaving and of which nothing is left.
fn gone<'a>(valid: &'a ValidCluster, status: &'a BrokerClusterStatus) -> impl Iterator<Item = &'a GroupRow> {
    status.group_states.iter().filter(|row| {
        let mut known = valid.groups.iter().chain(&valid.leaving);
        row.stage == LEAVING && !known.any(|group| group.index == row.index)
    })
}

/// Takes what is left of a broker out of the routes of every name server.
async fn forget(cx: &Context, known: Known<'_>, broker_name: &str) -> Result<(), String> {
    for server in super::roll::observe::name_servers(known.observed) {
        let told = async {
            let listed = cx.admin(&server).cluster_info_at(&server).await?;
            let Some(broker) = listed.broker_addr_table.get(broker_name) else {
                return Ok(());
            };
            for (id, address) in &broker.broker_addrs {
                let identity = BrokerIdentity {
                    broker_name,
                    broker_addr: address,
                    cluster_name: &known.valid.cluster_name,
                    broker_id: *id,
                };
                cx.admin(&server).unregister_broker(&server, &identity).await?;
                cx.metrics.wrote("NameServerRoutes");
            }
            Ok::<(), ferromq_client::ClientError>(())
        };
        told.await
            .map_err(|e| format!("name server {server} could not be told that it is gone: {e}"))?;
    }
    Ok(())
}

fn row(group: &Group, stage: &str, message: Option<String>) -> GroupRow {
    GroupRow {
        index: group.index,
        broker_name: group.broker_name.clone(),
        stage: stage.to_owned(),
        leaving_since: None,
        message,
    }
}

fn master(known: Known<'_>, group: &Group) -> Option<(String, IpAddr)> {
    let pod = names::broker(&known.valid.name, group.index, 0);
    let ip = known.met.get(&pod)?;
    Some((pod, *ip))
}

/// A group that joins, or comes back after it was told to leave.
async fn come(
    cx: &Context,
    known: Known<'_>,
    group: &Group,
    stage: &str,
    source: Option<&Group>,
) -> GroupRow {
    match welcome(cx, known, group, source).await {
        Ok(text) => {
            tell(cx, known.resource, Weight::Normal, "GroupServes", &text).await;
            row(group, SERVING, None)
        }
        Err(why) => {
            let stage = if stage == LEAVING { LEAVING } else { JOINING };
            row(group, stage, Some(why))
        }
    }
}

async fn welcome(
    cx: &Context,
    known: Known<'_>,
    group: &Group,
    source: Option<&Group>,
) -> Result<String, String> {
    let (pod, to) = master(known, group).ok_or("its master does not run yet")?;
    let mut made = (0, 0);
    if let Some(source) = source {
        let (from_pod, from) = master(known, source).ok_or_else(|| {
            format!(
                "group {} cannot be asked for topics and consumer groups",
                source.index
            )
        })?;
        made = copy(cx, from, to)
            .await
            .map_err(|e| format!("copying from {from_pod}: {e}"))?;
    }
    let wanted = known.valid.config.get(PERMISSION).map_or("6", String::as_str);
    permit(cx, known, &pod, to, wanted).await?;
    Ok(format!(
        "group {} serves; {} consumer groups and {} topics were copied to it",
        group.index, made.0, made.1
    ))
}

/// Sets what clients may do on a broker, if it is not so.
async fn permit(cx: &Context, known: Known<'_>, pod: &str, ip: IpAddr, wanted: &str) -> Result<(), String> {
    let has = known
        .configs
        .get(pod)
        .ok_or_else(|| format!("the settings of {pod} could not be read"))?;
    if has.get(PERMISSION).map(String::as_str) == Some(wanted) {
        return Ok(());
    }
    cx.admin(&remoting(ip))
        .update_broker_config(&remoting(ip), [(PERMISSION, wanted)])
        .await
        .map_err(|e| format!("{PERMISSION} of {pod}: {e}"))?;
    cx.metrics.wrote("BrokerSettings");
    Ok(())
}

/// Makes what the one has and the other lacks. Gives the numbers of consumer groups and topics.
async fn copy(cx: &Context, from: IpAddr, to: IpAddr) -> Result<(usize, usize), String> {
    let (from, to) = (remoting(from), remoting(to));
    let text = |e: ferromq_client::ClientError| e.to_string();
    let their_groups = cx
        .admin(&from)
        .groups(&from)
        .await
        .map_err(text)?
        .subscription_group_table;
    let our_groups = cx
        .admin(&to)
        .groups(&to)
        .await
        .map_err(text)?
        .subscription_group_table;
    let mut made = (0, 0);
    for (name, group) in their_groups {
        if !is_system_group(&name) && !our_groups.contains_key(&name) {
            cx.admin(&to).upsert_group(&to, &group).await.map_err(text)?;
            cx.metrics.wrote("BrokerGroup");
            made.0 += 1;
        }
    }
    let their_topics = cx
        .admin(&from)
        .topics(&from)
        .await
        .map_err(text)?
        .topic_config_table;
    let our_topics = cx.admin(&to).topics(&to).await.map_err(text)?.topic_config_table;
    for (name, topic) in their_topics {
        // Topics of the system, and those named after a cluster or a broker, are the broker's own business.
        let own = is_system_topic(&name) || name == topics::AUTO_CREATE || topic.perm & 1 != 0;
        if !own && !our_topics.contains_key(&name) && !is_of_a_broker(&name, &from, cx).await {
            cx.admin(&to).create_topic(&to, &topic).await.map_err(text)?;
            cx.metrics.wrote("BrokerTopic");
            made.1 += 1;
        }
    }
    Ok(made)
}

/// Whether a topic is the one that a broker makes under its own or its cluster's name.
async fn is_of_a_broker(topic: &str, broker: &str, cx: &Context) -> bool {
    match cx.admin(broker).broker_config(broker).await {
        Ok(config) => ["brokerName", "brokerClusterName"]
            .iter()
            .any(|key| config.get(*key).map(String::as_str) == Some(topic)),
        Err(_) => false,
    }
}

/// What to do about a group that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leave {
    /// Not yet: why.
    Wait(String),
    /// Now: why.
    Remove(String),
}

/// Decides about a group that leaves. `unread` is what consumer groups have not read, or why that is not known.
pub fn decide(unread: &Result<i64, String>, waited: i64, refresh: i64, removal: &Removal) -> Leave {
    let late = removal.deadline_seconds.is_some_and(|limit| waited >= limit);
    let end = |why: &str| {
        if late && removal.after_deadline == AfterDeadline::Remove {
            Leave::Remove(format!("{why}, and spec.brokers.removal.deadlineSeconds is over"))
        } else {
            let late = if late {
                "; the deadline is over, and it stays"
            } else {
                ""
            };
            Leave::Wait(format!("{why}{late}"))
        }
    };
    match unread {
        Err(why) => end(why),
        Ok(0) if waited < refresh => {
            Leave::Wait("clients are given time to learn that it takes no more messages".to_owned())
        }
        Ok(0) => Leave::Remove("every consumer group has read all of it".to_owned()),
        Ok(n) => end(&format!("{n} messages are not read by every consumer group yet")),
    }
}

async fn go(
    cx: &Context,
    known: Known<'_>,
    group: &Group,
    old: Option<&GroupRow>,
) -> Result<GroupRow, Error> {
    let since = old.and_then(|o| o.leaving_since.clone()).unwrap_or_else(|| {
        Timestamp::from_second(Timestamp::now().as_second())
            .unwrap_or_default()
            .to_string()
    });
    let waited = since
        .parse::<Timestamp>()
        .map_or(0, |t| Timestamp::now().as_second() - t.as_second());
    if old.is_none() {
        let text = format!(
            "group {} ({}) is no longer asked for: it takes no more messages and goes when all is read",
            group.index, group.broker_name
        );
        tell(cx, known.resource, Weight::Normal, "GroupLeaves", &text).await;
    }
    let leaving = |message: String| GroupRow {
        leaving_since: Some(since.clone()),
        ..row(group, LEAVING, Some(message))
    };
    let key = (
        ObjectKind::StatefulSet,
        names::group(&known.valid.name, group.index),
    );
    let Some(set) = known.observed.live.get(&key) else {
        return Ok(leaving("its pods are stopping".to_owned()));
    };
    if !set["metadata"]["deletionTimestamp"].is_null() {
        return Ok(leaving("its pods are stopping".to_owned()));
    }
    let unread = unread(cx, known, group).await;
    match decide(&unread, waited, cx.settings.route_refresh(), &known.valid.removal) {
        Leave::Wait(why) => {
            let kind: String = why.chars().filter(|c| !c.is_ascii_digit()).collect();
            if cx
                .said
                .is_news(&known.valid.owner.uid, &format!("leave {}", group.index), &kind)
            {
                let text = format!("group {} stays for now: {why}", group.index);
                tell(cx, known.resource, Weight::Normal, "RemovalDeferred", &text).await;
            }
            Ok(leaving(why))
        }
        Leave::Remove(why) => {
            remove(cx, known, &key.1, set["metadata"]["uid"].as_str()).await?;
            let text = format!("group {} is removed: {why}", group.index);
            tell(cx, known.resource, Weight::Normal, "GroupRemoved", &text).await;
            Ok(leaving("its pods are stopping".to_owned()))
        }
    }
}

async fn remove(cx: &Context, known: Known<'_>, set: &str, uid: Option<&str>) -> Result<(), Error> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: uid.map(str::to_owned),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    match cx
        .api::<StatefulSet>(&known.valid.namespace)
        .delete(set, &parameters)
        .await
    {
        Ok(_) => {
            cx.metrics.wrote("StatefulSet");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(e) => Err(Error::api(format!("delete StatefulSet {set}"))(e)),
    }
}

/// Makes the group's master read-only and counts what consumer groups have not read there, delayed messages included.
async fn unread(cx: &Context, known: Known<'_>, group: &Group) -> Result<i64, String> {
    let (pod, ip) = master(known, group).ok_or_else(|| {
        format!(
            "broker {} cannot be asked",
            names::broker(&known.valid.name, group.index, 0)
        )
    })?;
    permit(cx, known, &pod, ip, READ_ONLY).await?;
    let address = remoting(ip);
    let text = |e: ferromq_client::ClientError| e.to_string();
    let groups = cx.admin(&address).groups(&address).await.map_err(text)?;
    let mut unread = 0;
    for name in groups.subscription_group_table.keys() {
        let stats = match cx.admin(&address).consume_stats(&address, name, None).await {
            Ok(stats) => stats,
            // A group that never read anything from this broker.
            Err(e) if e.is_not_found() => continue,
            Err(e) => return Err(format!("what {name} has read: {e}")),
        };
        unread += stats
            .offset_table
            .values()
            .map(|o| (o.broker_offset - o.consumer_offset.max(0)).max(0))
            .sum::<i64>();
    }
    let delayed = cx.admin(&address).runtime_info(&address).await.map_err(text)?;
    Ok(unread + delayed_left(&delayed))
}

/// Messages that wait for their time, from the broker's figures (`scheduleMessageOffset_LEVEL` = next,end).
fn delayed_left(figures: &BTreeMap<String, String>) -> i64 {
    figures
        .iter()
        .filter(|(key, _)| key.starts_with("scheduleMessageOffset_"))
        .filter_map(|(_, value)| {
            let (next, end) = value.split_once(',')?;
            Some(end.trim().parse::<i64>().ok()? - next.trim().parse::<i64>().ok()?)
        })
        .map(|n| n.max(0))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::validate::{Existing, tests::cluster, validate};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_group_goes_when_it_is_read_and_clients_know() {
        let none = Removal::default();
        assert!(matches!(decide(&Ok(0), 1, 30, &none), Leave::Wait(_)));
        assert!(matches!(decide(&Ok(0), 30, 30, &none), Leave::Remove(_)));
        assert!(matches!(decide(&Ok(5), 1_000_000, 30, &none), Leave::Wait(why) if why.contains('5')));
        assert!(matches!(
            decide(&Err("down".to_owned()), 1_000_000, 30, &none),
            Leave::Wait(_)
        ));
    }

    #[test]
    fn after_the_deadline_the_choice_counts() {
        let mut removal = Removal {
            deadline_seconds: Some(60),
            after_deadline: AfterDeadline::Wait,
        };
        assert!(matches!(decide(&Ok(5), 60, 30, &removal), Leave::Wait(why) if why.contains("deadline")));
        removal.after_deadline = AfterDeadline::Remove;
        assert!(matches!(decide(&Ok(5), 59, 30, &removal), Leave::Wait(_)));
        assert!(matches!(decide(&Ok(5), 60, 30, &removal), Leave::Remove(_)));
        assert!(matches!(
            decide(&Err("down".to_owned()), 60, 30, &removal),
            Leave::Remove(_)
        ));
    }

    #[test]
    fn the_first_group_serves_and_later_ones_join() {
        let valid = validate(&cluster(json!({"brokers": {"groups": 2}})), &Existing::default()).unwrap();
        let fresh = stages(&valid, &BrokerClusterStatus::default());
        assert_eq!((fresh[&0].as_str(), fresh[&1].as_str()), (SERVING, JOINING));
        let old: BrokerClusterStatus = serde_json::from_value(json!({"brokers": [
            {"name": "demo-0-0", "group": 0, "brokerName": "demo-0", "brokerId": 0, "ready": true, "stage": "running"},
            {"name": "demo-1-0", "group": 1, "brokerName": "demo-1", "brokerId": 0, "ready": true, "stage": "running"}]}))
        .unwrap();
        let kept = stages(&valid, &old);
        assert_eq!(
            (kept[&0].as_str(), kept[&1].as_str()),
            (SERVING, SERVING),
            "a cluster of an older version"
        );
        let back: BrokerClusterStatus = serde_json::from_value(json!({"groupStates": [
            {"index": 0, "brokerName": "demo-0", "stage": "Serving"},
            {"index": 1, "brokerName": "demo-1", "stage": "Leaving"}]}))
        .unwrap();
        assert_eq!(stages(&valid, &back)[&1], LEAVING);
    }

    #[test]
    fn a_group_is_gone_when_it_was_leaving_and_nothing_is_left() {
        let existing = Existing {
            groups: [0, 2].into(),
            ..Existing::default()
        };
        let valid = validate(&cluster(json!({})), &existing).unwrap();
        let row = |index: i32, stage: &str| json!({"index": index, "brokerName": format!("demo-{index}"), "stage": stage});
        let status: BrokerClusterStatus = serde_json::from_value(json!({"groupStates": [
            row(0, "Serving"), row(1, "Leaving"), row(2, "Leaving"), row(3, "Joining")]}))
        .unwrap();
        let indices: Vec<i32> = gone(&valid, &status).map(|row| row.index).collect();
        assert_eq!(indices, [1]);
    }

    #[test]
    fn delayed_messages_count() {
        let figures = BTreeMap::from([
            ("scheduleMessageOffset_1".to_owned(), "3,10".to_owned()),
            ("scheduleMessageOffset_2".to_owned(), "4,4".to_owned()),
            ("putTps".to_owned(), "1,9".to_owned()),
        ]);
        assert_eq!(delayed_left(&figures), 7);
    }
}
