//! `BrokerCluster`: name servers and broker groups as one thing.

use super::{condition::conditions_schema, keyed_list, rules, storage::Storage};
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
    scale(spec_replicas_path = ".spec.brokers.groups", status_replicas_path = ".status.groups"),
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
    validation = Rule::new(rules::TLS_BY_PERMISSIVE).message("tls is turned on and off with mode Permissive: with Enforcing, brokers and name servers that are restarted later would be cut off from the others"),
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

    /// How a change that needs restarts reaches the brokers.
    #[serde(default)]
    pub rollout: Rollout,

    /// Accounts: brokers refuse requests that are not signed by one that may make them. Default: no accounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub acl: Option<Acl>,

    /// Encrypted connections. Default: plain ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Tls>,

    /// Any other key of broker.conf. Unknown keys are refused, and so are keys that a field or the operator sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "config_schema")]
    pub config: BTreeMap<String, String>,
}

/// Accounts of brokers.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Acl {
    /// A Secret of this namespace whose key plain_acl.yml holds the accounts, in RocketMQ's form. Brokers follow changes of
    /// it within about a minute, without a restart. The operator adds an account of its own, ferromq-internal.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// Encrypted connections.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Tls {
    /// A Secret of this namespace of type kubernetes.io/tls: tls.crt, tls.key, and ca.crt if brokers are to check each
    /// other's certificates. New connections use a changed certificate within about a minute, without a restart.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
    /// Whether plain connections are taken too. Begin and end with Permissive, so that no broker is cut off while others
    /// are restarted.
    #[serde(default)]
    pub mode: TlsMode,
}

/// Which connections are taken.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsMode {
    /// Plain and encrypted ones.
    #[default]
    Permissive,
    /// Encrypted ones only.
    Enforcing,
}

impl TlsMode {
    /// tls.server.mode.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Permissive => "permissive",
            Self::Enforcing => "enforcing",
        }
    }
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
    /// Changes to the pods of the name servers, merged strategically: affinity, tolerations, priority, side cars and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_template_schema")]
    pub pod_template: Option<serde_json::Value>,
    /// Entries of the key-value store, by namespace and key, kept on every name server. ORDER_TOPIC_CONFIG is the
    /// namespace of ordered topics.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 32))]
    pub kv: BTreeMap<String, BTreeMap<String, String>>,
    /// Name servers outside, `host:port`, that the brokers join as well: for a migration from another cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "external_schema")]
    pub external: Vec<String>,
}

impl Default for NameServers {
    fn default() -> Self {
        Self {
            replicas: 1,
            resources: Resources::default(),
            pod_template: None,
            kv: BTreeMap::new(),
            external: Vec::new(),
        }
    }
}

/// How a change that needs restarts reaches the brokers.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// While true no pod is restarted; a restart that has not begun is given up.
    #[serde(default)]
    pub paused: bool,
    /// Groups that may have a broker down at the same time, 1 to 100.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub max_parallel_groups: i32,
    /// Whether masters are restarted without being asked. Manual waits for the annotation ferromq.io/approve with the
    /// value of status.rollout.id.
    #[serde(default)]
    pub masters: Approval,
    /// When restarts may begin. Empty: at any time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,
    /// Seconds that a broker has for a clean stop, 30 to 3600: the grace time of its pod.
    #[serde(default = "two_minutes")]
    #[schemars(range(min = 30, max = 3_600))]
    pub grace_seconds: i64,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            paused: false,
            max_parallel_groups: 1,
            masters: Approval::default(),
            windows: Vec::new(),
            grace_seconds: two_minutes(),
        }
    }
}

fn two_minutes() -> i64 {
    120
}

/// Whether a person is asked.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// Nobody is asked.
    #[default]
    Automatic,
    /// A person says when.
    Manual,
}

/// A time at which restarts may begin.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// Days on which it begins. Empty: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// When it begins, as "02:30".
    #[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub start: String,
    /// How long it lasts, 1 minute to a day.
    #[schemars(range(min = 1, max = 1_440))]
    pub minutes: i32,
    /// Time zone of start, as "UTC" or "Europe/Berlin".
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[A-Za-z0-9_+/-]+$"))]
    pub time_zone: String,
}

/// A day of the week.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// What becomes of a group that leaves and is not consumed in time.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterDeadline {
    /// It stays, readable, until it is consumed.
    #[default]
    Wait,
    /// It is removed with what is unread; its volumes follow storage.retentionPolicy.
    Remove,
}

/// How a group leaves when `groups` is made smaller.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Removal {
    /// Seconds after which afterDeadline applies. Not set: there is no deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub deadline_seconds: Option<i64>,
    /// What is done then.
    #[serde(default)]
    pub after_deadline: AfterDeadline,
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
    validation = Rule::new(rules::BROKER_NAMES_FIXED).message("brokers.names cannot be changed: clients and stored offsets know the groups by name"),
)]
#[serde(rename_all = "camelCase")]
pub struct Brokers {
    /// Number of broker groups, 1 to 100. Topics are spread over all groups. Made smaller, the last groups take no more
    /// messages, wait until every consumer group has read them, and go.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 100))]
    pub groups: i32,
    /// Brokers in each group, the master included: the first is the master, the others are its replicas.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
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
    /// How a group leaves when groups is made smaller.
    #[serde(default)]
    pub removal: Removal,
    /// Changes to the pods of the brokers, merged strategically: affinity, tolerations, priority, side cars and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "pod_template_schema")]
    pub pod_template: Option<serde_json::Value>,
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
            removal: Removal::default(),
            pod_template: None,
        }
    }
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

fn pod_template_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

fn external_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": { "type": "string", "minLength": 3, "maxLength": 261, "pattern": "^[A-Za-z0-9._-]+:[0-9]{1,5}$" },
    })
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
    /// Ready, Reconciling, Stalled, SettingsApplied, RetentionFits and ConsumedInTime.
    #[serde(default)]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
    /// Broker groups that exist, those that leave included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<i32>,
    /// A row per broker group.
    #[serde(default)]
    #[schemars(schema_with = "group_rows_schema")]
    pub group_states: Vec<GroupRow>,
    /// What is changed, and how far that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,
    /// Settings that brokers have from somewhere else than this resource, and that differ from their defaults.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drift: Vec<DriftRow>,
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

/// One broker group as last seen.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct GroupRow {
    /// Index of the group, from 0.
    pub index: i32,
    /// RocketMQ's name of the group.
    pub broker_name: String,
    /// Joining (topics and consumer groups are being copied to it), Serving or Leaving.
    pub stage: String,
    /// When a group that leaves stopped taking messages, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving_since: Option<String>,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What is changed, and how far that is.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// Names what is rolled out: the value of the annotation ferromq.io/approve that lets masters be restarted.
    pub id: String,
    /// Why nothing more is begun now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// A row per broker that is still to be changed.
    #[serde(default)]
    #[schemars(schema_with = "plan_rows_schema")]
    pub plan: Vec<PlanRow>,
}

/// One broker that is still to be changed.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PlanRow {
    /// Name of the pod.
    pub name: String,
    /// Restart or Live.
    pub how: String,
    /// What differs.
    pub why: String,
    /// Pending, Granted (its turn has come) or Restarted (it is on its way back).
    pub state: String,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A setting that a broker has from somewhere else.
#[derive(Serialize, Deserialize, JsonSchema, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DriftRow {
    /// Name of the pod.
    pub broker: String,
    /// Key of broker.conf.
    pub key: String,
    /// Value on the broker.
    pub value: String,
}

fn group_rows_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    keyed_list::<GroupRow>(generator, "index")
}

fn plan_rows_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    keyed_list::<PlanRow>(generator, "name")
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
    /// Bytes of the master's log that a replica does not have yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind_bytes: Option<i64>,
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
