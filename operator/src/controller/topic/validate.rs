//! From a `Topic` and its surroundings to what shall stand on which brokers, or why not.

use crate::controller::brokercluster::validate::Group;
use crate::crd::{BrokerCluster, Topic};
use crate::names;
use ferromq_protocol::names::{is_system_topic, validate_topic};
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A topic that makes sense, on a cluster that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidTopic {
    /// RocketMQ's name of the topic.
    pub name: String,
    /// Queues for reading, in each group.
    pub read_queues: i32,
    /// Queues for writing, in each group.
    pub write_queues: i32,
    /// Permission bits.
    pub perm: i32,
    /// Whether the topic is ordered over the cluster.
    pub order: bool,
    /// Seconds after which queues go unread.
    pub shrink_deadline: Option<i64>,
    /// Since when each group's queues wait to be read, by RocketMQ's name of the group.
    pub shrinking: BTreeMap<String, String>,
    /// Groups that do not have the other groups' topics and consumer groups yet.
    pub joining: BTreeSet<i32>,
    /// The cluster's groups.
    pub groups: Vec<Group>,
    /// The cluster that the brokers belong to.
    pub cluster: ClusterRef,
}

/// A BrokerCluster as Topics see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRef {
    /// Name of the resource.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// RocketMQ's cluster name.
    pub cluster_name: String,
}

/// Why a Topic cannot be made now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Obstacle {
    /// The brokers would refuse the name.
    #[error("{0}")]
    BadName(String),
    /// An older Topic has the name.
    #[error("Topic {0} is older and manages the same topic of the same cluster; delete one of the two")]
    NameTaken(String),
    /// The cluster does not exist.
    #[error("there is no BrokerCluster {0} in this namespace; make it, or delete this Topic")]
    ClusterMissing(String),
    /// The cluster is going.
    #[error("BrokerCluster {0} is being deleted")]
    ClusterLeaving(String),
}

impl Obstacle {
    /// Reason for conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BadName(_) => "InvalidName",
            Self::NameTaken(_) => "NameTaken",
            Self::ClusterMissing(_) => "ClusterMissing",
            Self::ClusterLeaving(_) => "ClusterLeaving",
        }
    }

    /// Whether only a change of this Topic, or of another, helps.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::BadName(_) | Self::NameTaken(_))
    }
}

/// Judges a Topic. `others` are all Topics of the namespace, this one possibly among them.
///
/// # Errors
/// The obstacle that comes first.
pub fn validate(
    topic: &Topic,
    cluster: Option<&BrokerCluster>,
    others: &[Arc<Topic>],
) -> Result<ValidTopic, Obstacle> {
    let name = topic.topic_name();
    validate_topic(name).map_err(|e| Obstacle::BadName(format!("{name:?} cannot be a topic name: {e}")))?;
    if is_system_topic(name) {
        return Err(Obstacle::BadName(format!(
            "{name:?} is a topic of the system itself; choose another topicName"
        )));
    }
    if let Some(older) = older_claimant(topic, others) {
        return Err(Obstacle::NameTaken(older));
    }
    let Some(cluster) = cluster else {
        return Err(Obstacle::ClusterMissing(topic.spec.cluster.clone()));
    };
    if cluster.metadata.deletion_timestamp.is_some() {
        return Err(Obstacle::ClusterLeaving(topic.spec.cluster.clone()));
    }
    Ok(ValidTopic {
        name: name.to_owned(),
        read_queues: topic.spec.read_queues,
        write_queues: topic.spec.write_queues,
        perm: topic.spec.perm.bits(),
        order: topic.spec.order,
        shrink_deadline: topic.spec.shrink_deadline_seconds,
        shrinking: topic
            .status
            .iter()
            .flat_map(|s| &s.brokers)
            .filter_map(|row| Some((row.broker_name.clone(), row.shrinking_since.clone()?)))
            .collect(),
        joining: cluster
            .status
            .iter()
            .flat_map(|s| &s.group_states)
            .filter(|g| g.stage == crate::controller::brokercluster::groups::JOINING)
            .map(|g| g.index)
            .collect(),
        groups: groups(cluster),
        cluster: cluster_ref(cluster),
    })
}

/// The groups of a cluster with their RocketMQ names.
pub fn groups(cluster: &BrokerCluster) -> Vec<Group> {
    let name = cluster.name_any();
    let given = &cluster.spec.brokers.names;
    (0..cluster.spec.brokers.groups.clamp(0, 100))
        .map(|index| Group {
            index,
            broker_name: given
                .get(index as usize)
                .cloned()
                .unwrap_or_else(|| names::group(&name, index)),
        })
        .collect()
}

/// A cluster as Topics see it.
pub fn cluster_ref(cluster: &BrokerCluster) -> ClusterRef {
    let name = cluster.name_any();
    ClusterRef {
        uid: cluster.uid().unwrap_or_default(),
        cluster_name: cluster
            .spec
            .broker_cluster_name
            .clone()
            .unwrap_or_else(|| name.clone()),
        name,
    }
}

/// Other living Topics that claim the same topic of the same cluster.
pub fn claimants<'a>(topic: &'a Topic, others: &'a [Arc<Topic>]) -> impl Iterator<Item = &'a Arc<Topic>> {
    others.iter().filter(move |o| {
        o.metadata.uid != topic.metadata.uid
            && o.metadata.namespace == topic.metadata.namespace
            && o.metadata.deletion_timestamp.is_none()
            && o.spec.cluster == topic.spec.cluster
            && o.topic_name() == topic.topic_name()
    })
}

/// The oldest wins; of two made in the same second the one whose name comes first.
fn older_claimant(topic: &Topic, others: &[Arc<Topic>]) -> Option<String> {
    let age = |t: &Topic| {
        (
            t.metadata.creation_timestamp.as_ref().map(|c| c.0),
            t.metadata.name.clone(),
        )
    };
    let mine = age(topic);
    claimants(topic, others)
        .filter(|o| age(o) < mine)
        .min_by_key(|o| age(o))
        .map(|o| o.name_any())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// A Topic as the API server would give it.
    pub(crate) fn topic(name: &str, made: &str, spec: Value) -> Topic {
        let mut whole = json!({
            "apiVersion": "ferromq.io/v1alpha1",
            "kind": "Topic",
            "metadata": {"name": name, "namespace": "mq", "uid": name, "creationTimestamp": made, "generation": 1},
            "spec": {"cluster": "demo"},
        });
        if let (Some(base), Value::Object(more)) = (whole["spec"].as_object_mut(), spec) {
            base.extend(more);
        }
        serde_json::from_value(whole).unwrap()
    }

    fn cluster() -> BrokerCluster {
        crate::controller::brokercluster::validate::tests::cluster(
            json!({"brokers": {"groups": 2, "names": ["a"]}}),
        )
    }

    const T1: &str = "2026-01-01T00:00:01Z";
    const T2: &str = "2026-01-01T00:00:02Z";

    #[test]
    fn defaults_and_groups() {
        let valid = validate(&topic("orders", T1, json!({"perm": "R"})), Some(&cluster()), &[]).unwrap();
        assert_eq!(
            (
                valid.name.as_str(),
                valid.read_queues,
                valid.write_queues,
                valid.perm
            ),
            ("orders", 8, 8, 4)
        );
        let names: Vec<_> = valid.groups.iter().map(|g| g.broker_name.as_str()).collect();
        assert_eq!(names, ["a", "demo-1"]);
    }

    #[test]
    fn the_oldest_wins_and_the_other_names_it() {
        let first = Arc::new(topic("first", T1, json!({"topicName": "same"})));
        let second = Arc::new(topic("second", T2, json!({"topicName": "same"})));
        let all = [Arc::clone(&second), Arc::clone(&first)];
        assert!(validate(&first, Some(&cluster()), &all).is_ok());
        assert_eq!(
            validate(&second, Some(&cluster()), &all),
            Err(Obstacle::NameTaken("first".to_owned()))
        );
        let elsewhere = [Arc::new(topic(
            "first",
            T1,
            json!({"topicName": "same", "cluster": "x"}),
        ))];
        assert!(validate(&second, Some(&cluster()), &elsewhere).is_ok());
    }

    #[test]
    fn a_leaving_topic_claims_nothing() {
        let mut first = topic("first", T1, json!({"topicName": "same"}));
        first.metadata.deletion_timestamp = first.metadata.creation_timestamp.clone();
        let second = topic("second", T2, json!({"topicName": "same"}));
        assert!(validate(&second, Some(&cluster()), &[Arc::new(first)]).is_ok());
    }

    #[test]
    fn obstacles_are_named() {
        let orders = topic("orders", T1, json!({}));
        let missing = validate(&orders, None, &[]).unwrap_err();
        assert!(missing.to_string().contains("demo") && !missing.is_final());
        let system = topic("x", T1, json!({"topicName": "TBW102"}));
        assert!(validate(&system, Some(&cluster()), &[]).unwrap_err().is_final());
        let dots = topic("a.b", T1, json!({}));
        assert!(matches!(
            validate(&dots, Some(&cluster()), &[]),
            Err(Obstacle::BadName(_))
        ));
        let mut leaving = cluster();
        leaving.metadata.deletion_timestamp = orders.metadata.creation_timestamp.clone();
        assert!(matches!(
            validate(&orders, Some(&leaving), &[]),
            Err(Obstacle::ClusterLeaving(_))
        ));
    }
}
