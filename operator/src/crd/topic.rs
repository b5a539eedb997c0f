//! `Topic`: one RocketMQ topic on every broker group of a cluster.

use super::{condition::conditions_schema, keyed_list, rules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A RocketMQ topic on every broker group of a cluster in the same namespace.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "ferromq.io",
    version = "v1alpha1",
    kind = "Topic",
    plural = "topics",
    namespaced,
    shortname = "mqt",
    category = "mq",
    status = "TopicStatus",
    derive = "PartialEq",
    doc = "A RocketMQ topic on every broker group of a cluster in the same namespace",
    validation = Rule::new(rules::TOPIC_NAME_USABLE).message(rules::TOPIC_NAME_USABLE_MESSAGE),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Topic", type_ = "string", json_path = ".status.topicName"),
    printcolumn(name = "Read", type_ = "integer", json_path = ".spec.readQueues"),
    printcolumn(name = "Write", type_ = "integer", json_path = ".spec.writeQueues"),
    printcolumn(name = "Perm", type_ = "string", json_path = ".spec.perm"),
    printcolumn(name = "Brokers", type_ = "string", json_path = ".status.readyBrokers", description = "Masters that have the topic as asked, of all masters"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new(rules::TOPIC_NAME_FIXED).message("topicName cannot be changed: make another Topic"))]
#[serde(rename_all = "camelCase")]
pub struct TopicSpec {
    /// Name of the BrokerCluster in the same namespace. Cannot be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("cluster cannot be changed: make another Topic"))]
    pub cluster: String,
    /// RocketMQ's name of the topic. Default: the name of this resource. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 127), regex(pattern = "^[%|a-zA-Z0-9_-]+$"))]
    pub topic_name: Option<String>,
    /// Queues that consumers read, in each broker group. Made fewer, the queues that go are closed for writing first, and
    /// go when every consumer group has read them.
    #[serde(default = "eight")]
    #[schemars(range(min = 1, max = 65_535))]
    pub read_queues: i32,
    /// Queues that producers write, in each broker group.
    #[serde(default = "eight")]
    #[schemars(range(min = 1, max = 65_535))]
    pub write_queues: i32,
    /// What clients may do.
    #[serde(default)]
    pub perm: Perm,
    /// Whether clients treat the topic as ordered over the whole cluster.
    #[serde(default)]
    pub order: bool,
    /// Seconds after which queues go although they were not read to the end. Not set: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub shrink_deadline_seconds: Option<i64>,
    /// What becomes of the topic and its messages when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

fn eight() -> i32 {
    8
}

/// What clients may do with a topic.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Perm {
    /// Read and write.
    #[default]
    #[serde(rename = "RW")]
    ReadWrite,
    /// Read only.
    #[serde(rename = "R")]
    Read,
    /// Write only.
    #[serde(rename = "W")]
    Write,
}

impl Perm {
    /// RocketMQ's bits: 4 read, 2 write.
    pub fn bits(self) -> i32 {
        match self {
            Self::ReadWrite => 6,
            Self::Read => 4,
            Self::Write => 2,
        }
    }
}

/// What becomes of a topic when its resource is deleted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionPolicy {
    /// It stays on the brokers with its messages.
    #[default]
    Retain,
    /// It is deleted on the brokers with its messages.
    Delete,
}

impl Topic {
    /// RocketMQ's name of the topic.
    pub fn topic_name(&self) -> &str {
        self.spec
            .topic_name
            .as_deref()
            .or(self.metadata.name.as_deref())
            .unwrap_or_default()
    }
}

/// What the operator saw.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct TopicStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling and Stalled.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// RocketMQ's name of the topic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic_name: Option<String>,
    /// Masters that have the topic as asked, of all masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_brokers: Option<String>,
    /// A row per master.
    #[serde(default)]
    #[schemars(schema_with = "topic_rows_schema")]
    pub brokers: Vec<TopicRow>,
}

/// The topic on one master.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TopicRow {
    /// RocketMQ's name of the group.
    pub broker_name: String,
    /// Synced, Shrinking or Unreachable.
    pub state: String,
    /// Since when queues are closed for writing and wait to be read, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrinking_since: Option<String>,
    /// Read queues on the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_queues: Option<i32>,
    /// Write queues on the broker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_queues: Option<i32>,
    /// Permission bits on the broker: 4 read, 2 write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perm: Option<i32>,
    /// Why the broker does not have the topic as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn topic_rows_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    keyed_list::<TopicRow>(generator, "brokerName")
}
