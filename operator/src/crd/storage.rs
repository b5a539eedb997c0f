//! Volumes of brokers.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Lets each volume grow by itself when it fills up. Default: none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_grow: Option<AutoGrow>,
}

/// When and how far a volume grows by itself.
#[derive(Serialize, Deserialize, KubeSchema, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AutoGrow {
    /// Percentage of the volume that must be used, 50 to 95. Above retention.diskMaxUsedSpaceRatio expired files are deleted
    /// first.
    #[serde(default = "four_fifths")]
    #[schemars(range(min = 50, max = 95))]
    pub above_percent: i32,
    /// Percentage of its size that a volume grows by, rounded up to whole GiB, 5 to 100.
    #[serde(default = "a_fifth")]
    #[schemars(range(min = 5, max = 100))]
    pub step_percent: i32,
    /// Size that no volume grows beyond by itself, as "2Ti".
    #[schemars(length(min = 1, max = 32))]
    #[x_kube(validation = Rule::new("isQuantity(self)").message("storage.autoGrow.maximum must be a quantity, as \"2Ti\""))]
    pub maximum: String,
}

fn four_fifths() -> i32 {
    80
}

fn a_fifth() -> i32 {
    20
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
