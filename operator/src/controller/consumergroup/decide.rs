//! The pure half: whether a ConsumerGroup makes sense, what a broker shall be told, and the status.

use crate::controller::brokercluster::validate::Group;
use crate::controller::topic::status::SYNCED;
use crate::controller::topic::validate::{ClusterRef, cluster_ref, groups};
use crate::crd::condition::{READY, RECONCILING, STALLED, Verdict, merge};
use crate::crd::consumer_group::{ConsumerGroupStatus, GroupOnBroker};
use crate::crd::{BrokerCluster, ConsumerGroup};
use ferromq_client::admin::SubscriptionGroupConfig;
use ferromq_protocol::names::{is_system_group, validate_group};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::sync::Arc;

/// A group that makes sense, on a cluster that exists.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidGroup {
    /// What brokers shall have.
    pub config: SubscriptionGroupConfig,
    /// The cluster's broker groups.
    pub groups: Vec<Group>,
    /// The cluster.
    pub cluster: ClusterRef,
}

/// Why it cannot be made: a reason for conditions, a text, and whether only a change of a resource helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Reason for conditions.
    pub reason: &'static str,
    /// For people.
    pub text: String,
    /// Whether waiting does not help.
    pub is_final: bool,
}

/// How a pass went.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// It cannot be made now.
    Hindered(Obstacle),
    /// A row per master.
    Looked(Vec<GroupOnBroker>),
    /// The resource is going, and waits for this.
    Leaving(String),
}

/// Judges a resource. `others` are all of the namespace, this one possibly among them.
///
/// # Errors
/// The obstacle that comes first.
pub fn validate(
    group: &ConsumerGroup,
    cluster: Option<&BrokerCluster>,
    others: &[Arc<ConsumerGroup>],
) -> Result<ValidGroup, Obstacle> {
    let obstacle = |reason, text: String, is_final| Obstacle {
        reason,
        text,
        is_final,
    };
    let name = group.group_name();
    validate_group(name).map_err(|e| {
        obstacle(
            "InvalidName",
            format!("{name:?} cannot be a group name: {e}"),
            true,
        )
    })?;
    if is_system_group(name) {
        let text = format!("{name:?} is a group of the system itself; choose another groupName");
        return Err(obstacle("InvalidName", text, true));
    }
    if let Some(older) = older_claimant(group, others) {
        let text = format!(
            "ConsumerGroup {older} is older and manages the same group of the same cluster; delete one of the two"
        );
        return Err(obstacle("NameTaken", text, true));
    }
    let wanted = &group.spec.cluster;
    let Some(cluster) = cluster else {
        let text = format!(
            "there is no BrokerCluster {wanted} in this namespace; make it, or delete this ConsumerGroup"
        );
        return Err(obstacle("ClusterMissing", text, false));
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(obstacle(
            "ClusterLeaving",
            format!("BrokerCluster {wanted} is being deleted"),
            false,
        ));
    }
    let spec = &group.spec;
    Ok(ValidGroup {
        config: SubscriptionGroupConfig {
            group_name: name.to_owned(),
            consume_enable: spec.consume_enable,
            consume_from_min_enable: spec.consume_from_min_enable,
            consume_broadcast_enable: spec.consume_broadcast_enable,
            retry_queue_nums: spec.retry_queues,
            retry_max_times: spec.max_retries,
            broker_id: spec.broker_id,
            which_broker_when_consume_slowly: spec.slow_broker_id,
            ..SubscriptionGroupConfig::default()
        },
        groups: groups(cluster),
        cluster: cluster_ref(cluster),
    })
}

/// Other living resources that claim the same group of the same cluster.
pub fn claimants<'a>(
    group: &'a ConsumerGroup,
    others: &'a [Arc<ConsumerGroup>],
) -> impl Iterator<Item = &'a Arc<ConsumerGroup>> {
    others.iter().filter(move |o| {
        o.metadata.uid != group.metadata.uid
            && o.metadata.namespace == group.metadata.namespace
            && o.metadata.deletion_timestamp.is_none()
            && o.spec.cluster == group.spec.cluster
            && o.group_name() == group.group_name()
    })
}

fn older_claimant(group: &ConsumerGroup, others: &[Arc<ConsumerGroup>]) -> Option<String> {
    let age = |g: &ConsumerGroup| {
        (
            g.metadata.creation_timestamp.as_ref().map(|c| c.0),
            g.metadata.name.clone(),
        )
    };
    let mine = age(group);
    claimants(group, others)
        .filter(|o| age(o) < mine)
        .min_by_key(|o| age(o))
        .map(|o| o.name_any())
}

/// The configuration to send, or nothing if the broker has the group as asked. What no field sets stays.
pub fn change(
    have: Option<&SubscriptionGroupConfig>,
    want: &SubscriptionGroupConfig,
) -> Option<SubscriptionGroupConfig> {
    let mut config = want.clone();
    if let Some(have) = have {
        config.notify_consumer_ids_changed_enable = have.notify_consumer_ids_changed_enable;
    }
    (have != Some(&config)).then_some(config)
}

/// Computes the status.
pub fn status(group: &ConsumerGroup, outcome: &Outcome, now: &Time) -> ConsumerGroupStatus {
    let previous = group.status.clone().unwrap_or_default();
    let (verdicts, rows) = match outcome {
        Outcome::Hindered(o) => (
            vec![
                Verdict::new(READY, false, o.reason, o.text.clone()),
                Verdict::new(RECONCILING, !o.is_final, o.reason, o.text.clone()),
                Verdict::new(STALLED, o.is_final, o.reason, o.text.clone()),
            ],
            Vec::new(),
        ),
        Outcome::Leaving(text) => (
            vec![
                Verdict::new(READY, false, "Deleting", text.clone()),
                Verdict::new(RECONCILING, true, "Deleting", text.clone()),
                Verdict::new(STALLED, false, "Deleting", ""),
            ],
            previous.brokers.clone(),
        ),
        Outcome::Looked(rows) => (looked(rows), rows.clone()),
    };
    let synced = rows.iter().filter(|r| r.state == SYNCED).count();
    ConsumerGroupStatus {
        observed_generation: group.metadata.generation,
        conditions: merge(&previous.conditions, &verdicts, group.metadata.generation, now),
        group_name: Some(group.group_name().to_owned()),
        ready_brokers: (!rows.is_empty()).then(|| format!("{synced}/{}", rows.len())),
        brokers: rows,
    }
}

fn looked(rows: &[GroupOnBroker]) -> Vec<Verdict> {
    match rows.iter().find(|r| r.state != SYNCED) {
        None => vec![
            Verdict::new(
                READY,
                true,
                SYNCED,
                "every broker group has the consumer group as asked",
            ),
            Verdict::new(RECONCILING, false, SYNCED, ""),
            Verdict::new(STALLED, false, SYNCED, ""),
        ],
        Some(row) => {
            let text = format!(
                "{}: {}",
                row.broker_name,
                row.message.as_deref().unwrap_or("not as asked")
            );
            vec![
                Verdict::new(READY, false, "BrokersNotReady", text.clone()),
                Verdict::new(RECONCILING, true, "BrokersNotReady", text),
                Verdict::new(STALLED, false, "AsExpected", ""),
            ]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::brokercluster::validate::tests::cluster;
    use serde_json::{Value, json};

    fn group(name: &str, made: &str, spec: Value) -> ConsumerGroup {
        let mut whole = json!({
            "apiVersion": "ferromq.io/v1alpha1", "kind": "ConsumerGroup",
            "metadata": {"name": name, "namespace": "mq", "uid": name, "creationTimestamp": made, "generation": 1},
            "spec": {"cluster": "demo"},
        });
        if let (Some(base), Value::Object(more)) = (whole["spec"].as_object_mut(), spec) {
            base.extend(more);
        }
        serde_json::from_value(whole).unwrap()
    }

    #[test]
    fn defaults_are_those_of_rocketmq_and_only_differences_are_sent() {
        let valid = validate(
            &group("readers", "2026-01-01T00:00:00Z", json!({})),
            Some(&cluster(json!({}))),
            &[],
        )
        .unwrap();
        let plain = SubscriptionGroupConfig {
            group_name: "readers".to_owned(),
            ..SubscriptionGroupConfig::default()
        };
        assert_eq!(valid.config, plain);
        assert_eq!(change(Some(&plain), &valid.config), None);
        let drifted = SubscriptionGroupConfig {
            retry_max_times: 3,
            notify_consumer_ids_changed_enable: false,
            ..plain.clone()
        };
        let sent = change(Some(&drifted), &valid.config).unwrap();
        assert_eq!(sent.retry_max_times, 16);
        assert!(
            !sent.notify_consumer_ids_changed_enable,
            "what no field sets stays"
        );
        assert!(change(None, &valid.config).is_some());
    }

    #[test]
    fn the_oldest_claim_wins_and_system_groups_are_refused() {
        let old = Arc::new(group("a", "2026-01-01T00:00:00Z", json!({"groupName": "g"})));
        let young = group("b", "2026-01-02T00:00:00Z", json!({"groupName": "g"}));
        let demo = cluster(json!({}));
        let refused = validate(&young, Some(&demo), &[Arc::clone(&old)]).unwrap_err();
        assert_eq!(refused.reason, "NameTaken");
        assert!(validate(&old, Some(&demo), &[Arc::new(young)]).is_ok());
        let system = group(
            "c",
            "2026-01-01T00:00:00Z",
            json!({"groupName": "TOOLS_CONSUMER"}),
        );
        assert_eq!(
            validate(&system, Some(&demo), &[]).unwrap_err().reason,
            "InvalidName"
        );
        let lonely = group("d", "2026-01-01T00:00:00Z", json!({}));
        assert_eq!(validate(&lonely, None, &[]).unwrap_err().reason, "ClusterMissing");
    }
}
