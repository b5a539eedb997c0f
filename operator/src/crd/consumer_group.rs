//! `ConsumerGroup`: one RocketMQ subscription group on every broker group of a cluster.

use super::topic::DeletionPolicy;
use super::{condition::conditions_schema, keyed_list, rules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A RocketMQ consumer group (subscription group) on every broker group of a cluster in the same namespace.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "ferromq.io",
    version = "v1alpha1",
    kind = "ConsumerGroup",
    plural = "consumergroups",
    namespaced,
    shortname = "mqg",
    category = "mq",
    status = "ConsumerGroupStatus",
    derive = "PartialEq",
    doc = "A RocketMQ consumer group (subscription group) on every broker group of a cluster in the same namespace",
    validation = Rule::new(rules::GROUP_NAME_USABLE).message(rules::GROUP_NAME_USABLE_MESSAGE),
    printcolumn(name = "Cluster", type_ = "string", json_path = ".spec.cluster"),
    printcolumn(name = "Group", type_ = "string", json_path = ".status.groupName"),
    printcolumn(name = "Consume", type_ = "boolean", json_path = ".spec.consumeEnable"),
    printcolumn(name = "Retries", type_ = "integer", json_path = ".spec.maxRetries"),
    printcolumn(name = "Brokers", type_ = "string", json_path = ".status.readyBrokers", description = "Masters that have the group as asked, of all masters"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(validation = Rule::new(rules::GROUP_NAME_FIXED).message("groupName cannot be changed: make another ConsumerGroup"))]
#[serde(rename_all = "camelCase")]
pub struct ConsumerGroupSpec {
    /// Name of the BrokerCluster in the same namespace. Cannot be changed.
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = Rule::new("self == oldSelf").message("cluster cannot be changed: make another ConsumerGroup"))]
    pub cluster: String,
    /// RocketMQ's name of the group. Default: the name of this resource. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 120), regex(pattern = "^[%|a-zA-Z0-9_-]+$"))]
    pub group_name: Option<String>,
    /// Whether the group may consume at all.
    #[serde(default = "yes")]
    pub consume_enable: bool,
    /// Whether it may begin with the oldest message.
    #[serde(default = "yes")]
    pub consume_from_min_enable: bool,
    /// Whether its members may each read every message.
    #[serde(default = "yes")]
    pub consume_broadcast_enable: bool,
    /// Queues of its retry topic, in each broker group. 0 is no retries.
    #[serde(default = "one")]
    #[schemars(range(min = 0, max = 64))]
    pub retry_queues: i32,
    /// Tries before a message becomes a dead letter.
    #[serde(default = "sixteen")]
    #[schemars(range(min = -1, max = 1_000))]
    pub max_retries: i32,
    /// Broker id that its members read from: 0 is the master.
    #[serde(default)]
    #[schemars(range(min = 0, max = 9))]
    pub broker_id: i64,
    /// Broker id that they are sent to when they are far behind.
    #[serde(default = "one_long")]
    #[schemars(range(min = 0, max = 9))]
    pub slow_broker_id: i64,
    /// What becomes of the group and its offsets when this resource is deleted.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

fn yes() -> bool {
    true
}

fn one() -> i32 {
    1
}

fn one_long() -> i64 {
    1
}

fn sixteen() -> i32 {
    16
}

impl ConsumerGroup {
    /// RocketMQ's name of the group.
    pub fn group_name(&self) -> &str {
        self.spec
            .group_name
            .as_deref()
            .or(self.metadata.name.as_deref())
            .unwrap_or_default()
    }
}

/// What the operator saw.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConsumerGroupStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling and Stalled.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// RocketMQ's name of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_name: Option<String>,
    /// Masters that have the group as asked, of all masters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_brokers: Option<String>,
    /// A row per master.
    #[serde(default)]
    #[schemars(schema_with = "rows_schema")]
    pub brokers: Vec<GroupOnBroker>,
}

/// The group on one master.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GroupOnBroker {
    /// RocketMQ's name of the broker group.
    pub broker_name: String,
    /// Synced or Unreachable.
    pub state: String,
    /// Why the broker does not have the group as asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn rows_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    keyed_list::<GroupOnBroker>(generator, "brokerName")
}
