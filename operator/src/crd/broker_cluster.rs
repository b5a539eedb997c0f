//! `BrokerCluster`: name servers and broker groups as one thing.

use super::{condition::conditions_schema, keyed_list, rules};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A RocketMQ cluster: name servers and one or more broker groups.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "ferromq.io",
    version = "v1alpha1",
    kind = "BrokerCluster",
    plural = "brokerclusters",
    namespaced,
    shortname = "mqc",
    category = "mq",
    status = "BrokerClusterStatus",
    derive = "PartialEq",
    doc = "A RocketMQ cluster: name servers and one or more broker groups",
    validation = Rule::new(rules::NAME_FITS).message(rules::NAME_FITS_MESSAGE),
    printcolumn(name = "Groups", type_ = "integer", json_path = ".spec.brokers.groups"),
    printcolumn(name = "Brokers", type_ = "string", json_path = ".status.readyBrokers", description = "Ready brokers of all brokers"),
    printcolumn(name = "NameServers", type_ = "string", json_path = ".status.readyNameServers", description = "Ready name servers of all name servers"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason"),
    printcolumn(name = "Address", type_ = "string", json_path = ".status.nameServerAddress", priority = 1, description = "What clients take as name server address"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = Rule::new(rules::CLUSTER_NAME_FIXED).message("brokerClusterName cannot be changed: brokers and clients know the cluster by it"),
    validation = Rule::new(rules::STORAGE_CLASS_FIXED).message("storage.storageClassName cannot be changed: existing volumes stay in their class"),
    validation = Rule::new(rules::STORAGE_NOT_SHRUNK).message("storage.size cannot be made smaller: volumes do not shrink"),
    validation = Rule::new(rules::STORAGE_HOLDS_LOG).message("storage.size must hold at least 4 commit log files (config.mappedFileSizeCommitLog, by default 1 GiB each) and 1 GiB more"),
    validation = Rule::new(rules::SYNC_NEEDS_REPLICAS).message("brokers.replication Sync needs replicasPerGroup of at least 2"),
)]
#[serde(rename_all = "camelCase")]
pub struct BrokerClusterSpec {
    /// Container image that holds the broker, the name server and ferroctl.
    #[schemars(length(min = 1, max = 512))]
    pub image: String,

    /// When the kubelet pulls the image.
    #[serde(default)]
    pub image_pull_policy: PullPolicy,

    /// Names of Secrets in this namespace with registry credentials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub image_pull_secrets: Vec<SecretName>,

    /// RocketMQ's name of the cluster (brokerClusterName). Default: the name of this resource. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9_-]+$"))]
    pub broker_cluster_name: Option<String>,

    /// While true the operator changes nothing and only reports.
    #[serde(default)]
    pub paused: bool,

    /// The name servers.
    #[serde(default)]
    pub name_servers: NameServers,

    /// The broker groups.
    #[serde(default)]
    pub brokers: Brokers,

    /// The volume of each broker.
    pub storage: Storage,

    /// When and why old messages are deleted.
    #[serde(default)]
    pub retention: Retention,

    /// Any other key of broker.conf. Unknown keys are refused, and so are keys that a field or the operator sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "config_schema")]
    pub config: BTreeMap<String, String>,
}

/// When the kubelet pulls an image.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// At every start.
    Always,
    /// When the node does not have it.
    #[default]
    IfNotPresent,
    /// Never: the image was put on the nodes.
    Never,
}

impl PullPolicy {
    /// The Kubernetes word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "Always",
            Self::IfNotPresent => "IfNotPresent",
            Self::Never => "Never",
        }
    }
}

/// A Secret of the same namespace.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
pub struct SecretName {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Compute resources of one container.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Resources {
    /// What the scheduler sets aside.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, IntOrString>,
    /// What the container may not exceed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, IntOrString>,
}

/// The name servers.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NameServers {
    /// How many name servers, 1 to 9.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 9))]
    pub replicas: i32,
    /// Compute resources of each name server.
    #[serde(default)]
    pub resources: Resources,
}

impl Default for NameServers {
    fn default() -> Self {
        Self {
            replicas: 1,
            resources: Resources::default(),
        }
    }
}

/// How a master treats its replicas.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replication {
    /// A send is answered when a replica has it too.
    Sync,
    /// A send does not wait for replicas.
    #[default]
    Async,
}

/// When a message counts as written.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flush {
    /// When the disk has it.
    Sync,
    /// When the page cache has it.
    #[default]
    Async,
}

/// The broker groups.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[x_kube(
    validation = Rule::new(rules::GROUPS_NOT_REMOVED).message("brokers.groups cannot be made smaller in this version: a group may hold unread messages"),
    validation = Rule::new(rules::BROKER_NAMES_FIXED).message("brokers.names cannot be changed: clients and stored offsets know the groups by name"),
)]
#[serde(rename_all = "camelCase")]
pub struct Brokers {
    /// Number of broker groups, 1 to 100. Topics are spread over all groups.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub groups: i32,
    /// Brokers in each group, the master included. Replication is not available in this version: only 1 is accepted.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    #[x_kube(validation = Rule::new(rules::ONE_BROKER_PER_GROUP).message("replication is not available in this version: brokers.replicasPerGroup must be 1"))]
    pub replicas_per_group: i32,
    /// Whether a send waits for a replica. Sync needs replicasPerGroup of at least 2.
    #[serde(default)]
    pub replication: Replication,
    /// Whether a send waits for the disk.
    #[serde(default)]
    pub flush: Flush,
    /// Compute resources of each broker.
    #[serde(default)]
    pub resources: Resources,
    /// RocketMQ's names of the groups (brokerName), by index. A group beyond the list is named NAME-INDEX, with NAME of
    /// this resource. Cannot be changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "broker_names_schema")]
    pub names: Vec<String>,
}

impl Default for Brokers {
    fn default() -> Self {
        Self {
            groups: 1,
            replicas_per_group: 1,
            replication: Replication::default(),
            flush: Flush::default(),
            resources: Resources::default(),
            names: Vec::new(),
        }
    }
}

/// What becomes of the volumes when the resource is deleted.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetentionPolicy {
    /// They stay, and a resource of the same name finds them again.
    #[default]
    Retain,
    /// They go with it, and all messages too.
    Delete,
}

/// The volume of each broker.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Storage {
    /// Size of each broker's volume, as "100Gi". At least 4 commit log files and 1 GiB. May grow, never shrink.
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new("isQuantity(self)").message("storage.size must be a quantity, as \"100Gi\""))]
    pub size: String,
    /// Storage class of the volumes. Default: the default class of the Kubernetes cluster. Cannot be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub storage_class_name: Option<String>,
    /// Whether the volumes outlive this resource.
    #[serde(default)]
    pub retention_policy: RetentionPolicy,
}

/// When and why old messages are deleted.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// Hours of the day (0 to 23, separated by ";") in which expired files are deleted.
    #[serde(default = "four_o_clock")]
    #[schemars(length(min = 1, max = 80))]
    #[x_kube(validation = Rule::new(rules::HOURS).message("retention.deleteWhen takes hours from 0 to 23, separated by \";\", as \"04\" or \"04;16\""))]
    pub delete_when: String,
    /// Time zone of deleteWhen, as "UTC" or "Europe/Berlin".
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9_+/-]+$"))]
    pub time_zone: String,
    /// Hours after which a file of the log may be deleted, from its last write.
    #[serde(default = "three_days")]
    #[schemars(range(min = 1, max = 876_000))]
    pub file_reserved_time: i32,
    /// Percentage of the volume above which expired files are deleted at any hour, 10 to 95.
    #[serde(default = "three_quarters")]
    #[schemars(range(min = 10, max = 95))]
    pub disk_max_used_space_ratio: i32,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            delete_when: four_o_clock(),
            time_zone: utc(),
            file_reserved_time: three_days(),
            disk_max_used_space_ratio: three_quarters(),
        }
    }
}

fn one() -> i32 {
    1
}

fn four_o_clock() -> String {
    "04".to_owned()
}

fn utc() -> String {
    "UTC".to_owned()
}

fn three_days() -> i32 {
    72
}

fn three_quarters() -> i32 {
    75
}

fn config_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut checks = vec![serde_json::json!({
        "rule": rules::config_keys_known(),
        "messageExpression": rules::config_unknown_message(),
        "message": "config holds a key that the broker does not know",
    })];
    checks.extend(
        rules::config_owned()
            .into_iter()
            .map(|(rule, message)| serde_json::json!({ "rule": rule, "message": message })),
    );
    schemars::json_schema!({
        "type": "object",
        "maxProperties": 64,
        "additionalProperties": { "type": "string", "maxLength": 1024 },
        "x-kubernetes-validations": checks,
    })
}

fn broker_names_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 100,
        "x-kubernetes-list-type": "set",
        "items": { "type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9_-]+$" },
    })
}

/// What the operator saw.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BrokerClusterStatus {
    /// Generation of the spec that this status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Ready, Reconciling and Stalled.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// Ready brokers of all brokers, as "2/2".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_brokers: Option<String>,
    /// Ready name servers of all name servers, as "1/1".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_name_servers: Option<String>,
    /// What clients inside the Kubernetes cluster take as name server address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_server_address: Option<String>,
    /// A row per broker.
    #[serde(default)]
    #[schemars(schema_with = "broker_rows_schema")]
    pub brokers: Vec<BrokerRow>,
}

/// One broker as last seen.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct BrokerRow {
    /// Name of the pod.
    pub name: String,
    /// Index of the group, from 0.
    pub group: i32,
    /// RocketMQ's name of the group.
    pub broker_name: String,
    /// RocketMQ's broker id; 0 is the master.
    pub broker_id: i64,
    /// Role that the broker reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Whether the pod is ready.
    pub ready: bool,
    /// What the broker is doing: loading, recovering, starting, running, stopping; or Missing, Pending, Unreachable.
    pub stage: String,
    /// How far a recovery is, as "40% (abnormal stop)".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<String>,
    /// Address in routes and message ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Name servers that have the broker's registration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub registered_at: Vec<String>,
    /// End of the commit log, in bytes from its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_max_offset: Option<i64>,
    /// Whether the stop before the present run left the store clean.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_stop_clean: Option<bool>,
    /// Why the broker is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

fn broker_rows_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    keyed_list::<BrokerRow>(generator, "name")
}
