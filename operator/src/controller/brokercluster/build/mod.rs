//! Every object of a BrokerCluster, as a pure function of the valid resource and a few facts.
//!
//! ```text
//! all     ConfigMap, Deployment, Service, headless Service, budget  NAME-namesrv…
//! group   headless Service, Service per broker, master Service, budget
//!         ConfigMap, StatefulSet                                    once the Services' addresses are known
//! ```
//! The Secret with the HTTP token is not here: it is made once, from random bytes, and never written again.
//! Objects are JSON values because that is what server-side apply sends: a field that is not named is not owned. The
//! tests read each one back through its typed form, so a misspelt field does not pass.

mod broker;
mod budget;
mod config;
mod merge;
mod namesrv;
mod secured;
mod service;

use super::validate::{Group, ValidCluster};
use crate::names;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Kinds that a BrokerCluster is made of, in the order in which they are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectKind {
    /// Addresses come first: the configuration needs them.
    Service,
    /// Configuration comes before what mounts it.
    ConfigMap,
    /// Protection comes before what it protects.
    PodDisruptionBudget,
    /// Name servers.
    Deployment,
    /// Brokers, last.
    StatefulSet,
}

impl ObjectKind {
    /// All kinds in the order of application.
    pub const ALL: [Self; 5] = [
        Self::Service,
        Self::ConfigMap,
        Self::PodDisruptionBudget,
        Self::Deployment,
        Self::StatefulSet,
    ];

    /// apiVersion and kind.
    pub fn version_and_kind(self) -> (&'static str, &'static str) {
        match self {
            Self::Service => ("v1", "Service"),
            Self::ConfigMap => ("v1", "ConfigMap"),
            Self::PodDisruptionBudget => ("policy/v1", "PodDisruptionBudget"),
            Self::Deployment => ("apps/v1", "Deployment"),
            Self::StatefulSet => ("apps/v1", "StatefulSet"),
        }
    }
}

/// An object that shall exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// Its kind.
    pub kind: ObjectKind,
    /// Its name.
    pub name: String,
    /// The whole of it, without status.
    pub value: Value,
}

/// What building needs to know about the world.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Cluster address of Services, by name.
    pub addresses: BTreeMap<String, String>,
    /// Size in the claim template of each group's living StatefulSet: it cannot be changed there.
    pub template_sizes: BTreeMap<i32, String>,
    /// Bytes that the claims of each group ask for, the smallest of them.
    pub claimed_bytes: BTreeMap<i32, i64>,
    /// Whether the Secret with certificates says whom to trust.
    pub trusted: bool,
}

/// What shall exist, and which groups cannot be built yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Objects in the order of application.
    pub objects: Vec<Wanted>,
    /// Groups whose Services have no address yet; their ConfigMap and StatefulSet are missing in `objects`.
    pub waiting: Vec<i32>,
    /// Objects that were taken out of `objects` for now and shall stay as they are.
    pub held: Vec<(ObjectKind, String)>,
}

/// Builds everything.
pub fn build(cluster: &ValidCluster, facts: &Facts) -> Plan {
    let mut objects = service::namesrv(cluster);
    objects.extend(namesrv::objects(cluster, facts));
    objects.push(budget::namesrv(cluster));
    let mut waiting = Vec::new();
    for group in &cluster.groups {
        objects.extend(service::group(cluster, group));
        objects.push(budget::group(cluster, group));
        match broker::objects(cluster, group, facts) {
            Some(more) => objects.extend(more),
            None => waiting.push(group.index),
        }
    }
    objects.sort_by_key(|o| o.kind);
    Plan {
        objects,
        waiting,
        held: Vec::new(),
    }
}

/// Name of the Service whose address a broker registers: the group's master Service for the first one.
pub fn address_service(cluster: &str, group: &Group, ordinal: i32) -> String {
    if ordinal == 0 {
        names::master(cluster, group.index)
    } else {
        names::broker(cluster, group.index, ordinal)
    }
}

fn wanted(
    cluster: &ValidCluster,
    kind: ObjectKind,
    name: String,
    component: names::Component,
    body: Value,
) -> Wanted {
    let (version, word) = kind.version_and_kind();
    let mut value = json!({
        "apiVersion": version,
        "kind": word,
        "metadata": {
            "name": name,
            "namespace": cluster.namespace,
            "labels": names::labels(&cluster.name, component),
            "ownerReferences": [cluster.owner],
        },
    });
    if let (Value::Object(whole), Value::Object(body)) = (&mut value, body) {
        whole.extend(body);
    }
    Wanted { kind, name, value }
}

/// A pod template with the user's changes, our own labels, and the digest of the whole.
fn finish_template(
    mut template: Value,
    overrides: Option<&Value>,
    selector: &BTreeMap<String, String>,
) -> Value {
    if let Some(overrides) = overrides {
        merge::strategic(&mut template, overrides);
        // Services and the StatefulSet find the pod by these; an override of one is without effect.
        for (label, value) in selector {
            template["metadata"]["labels"][label] = json!(value);
        }
    }
    let form = crate::digest::short(&template.to_string());
    template["metadata"]["annotations"][names::FORM_ANNOTATION] = json!(form);
    template
}

/// Security of a pod under the restricted standard.
fn pod_security() -> Value {
    json!({
        "runAsNonRoot": true,
        "runAsUser": names::USER,
        "runAsGroup": names::USER,
        "fsGroup": names::USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}

/// Security of a container under the restricted standard.
fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

fn http_probe(path: &str, period: i32, timeout: i32, failures: i32) -> Value {
    json!({
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    })
}

fn port(name: &str, number: u16) -> Value {
    json!({"name": name, "containerPort": number, "protocol": "TCP"})
}

/// Prefers other nodes, and zones, for pods of one component.
fn placement(cluster: &ValidCluster, component: names::Component) -> (Value, Value) {
    // Brokers of all groups keep apart from each other, not only those of one group.
    let mut apart = names::selector(&cluster.name, component);
    apart.remove(names::GROUP_LABEL);
    let affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": apart}}},
    ]}});
    let spread = json!([{
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": apart},
    }]);
    (affinity, spread)
}

fn pull_secrets(cluster: &ValidCluster) -> Vec<Value> {
    cluster
        .pull_secrets
        .iter()
        .map(|name| json!({"name": name}))
        .collect()
}

#[cfg(test)]
mod tests;
