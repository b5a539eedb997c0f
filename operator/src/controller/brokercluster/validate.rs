//! From what a user wrote to what the rest of the operator may rely on.
//!
//! The API server has refused most mistakes already. They are judged here again, together with what it cannot judge,
//! because a resource may be older than the rules. All faults are reported at once. Nothing later looks at the spec.

use super::roll::window;
use crate::crd::BrokerCluster;
use crate::crd::broker_cluster::{Flush, Removal, Replication, Resources, Rollout, Tls};
use crate::crd::storage::RetentionPolicy;
use crate::keys;
use crate::names;
use crate::quantity::Quantity;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Bytes of one commit log file when `spec.config` does not say.
const DEFAULT_LOG_FILE: i64 = 1 << 30;
/// Files of the log that a volume must hold.
const LOG_FILES: i64 = 4;
/// What a volume must hold beside the log, bytes.
const REST: i64 = 1 << 30;

/// A BrokerCluster that makes sense.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidCluster {
    /// Name of the resource.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Reference that objects carry so that they go with the resource.
    pub owner: OwnerReference,
    /// RocketMQ's cluster name.
    pub cluster_name: String,
    /// Image of brokers and name servers.
    pub image: String,
    /// The kubelet's word for when to pull.
    pub pull_policy: &'static str,
    /// Secrets with registry credentials.
    pub pull_secrets: Vec<String>,
    /// Number of name servers.
    pub name_servers: i32,
    /// Compute resources of a name server.
    pub namesrv_resources: Value,
    /// The groups in order of index.
    pub groups: Vec<Group>,
    /// Brokers in a group.
    pub replicas: i32,
    /// brokerRole of a group's master.
    pub master_role: &'static str,
    /// flushDiskType.
    pub flush: &'static str,
    /// Compute resources of a broker.
    pub broker_resources: Value,
    /// Size asked for each volume.
    pub storage: StorageSize,
    /// Whether volumes grow by themselves.
    pub auto_grow: Option<AutoGrow>,
    /// Storage class, or the default one.
    pub storage_class: Option<String>,
    /// Whether claims go with the StatefulSet.
    pub delete_claims: bool,
    /// Keys of broker.conf that fields and `spec.config` give.
    pub config: BTreeMap<String, String>,
    /// Groups that exist and are no longer asked for.
    pub leaving: Vec<Group>,
    /// How changes reach brokers.
    pub rollout: Rollout,
    /// How groups leave.
    pub removal: Removal,
    /// Value of the annotation that asks for a restart of all brokers.
    pub restart: Option<String>,
    /// Value of the annotation that lets masters be restarted.
    pub approved: Option<String>,
    /// The user's changes to the brokers' pods.
    pub broker_template: Option<Value>,
    /// The user's changes to the name servers' pods.
    pub namesrv_template: Option<Value>,
    /// Secret with the accounts.
    pub acl_secret: Option<String>,
    /// Encrypted connections.
    pub tls: Option<Tls>,
    /// Name servers outside.
    pub external_name_servers: Vec<String>,
    /// Entries for every name server, by namespace and key.
    pub kv: BTreeMap<String, BTreeMap<String, String>>,
}

/// A size as text and in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageSize {
    /// As the user wrote it.
    pub text: String,
    /// In bytes.
    pub bytes: i64,
}

/// When and how far a volume grows by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AutoGrow {
    /// Percentage that must be used.
    pub above_percent: i32,
    /// Percentage of its size that it grows by.
    pub step_percent: i32,
    /// What it does not grow beyond.
    pub maximum_bytes: i64,
}

/// One broker group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Index from 0.
    pub index: i32,
    /// RocketMQ's brokerName.
    pub broker_name: String,
}

/// What already exists and limits what may be asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Existing {
    /// Size in the claim template of each group's StatefulSet, by index.
    pub template_sizes: BTreeMap<i32, String>,
    /// Groups of which a StatefulSet or a pod exists.
    pub groups: BTreeSet<i32>,
}

/// Everything that is wrong with a resource.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Faults(pub Vec<String>);

/// Judges a resource.
///
/// # Errors
/// All faults found, each naming the field and what to do.
pub fn validate(cluster: &BrokerCluster, existing: &Existing) -> Result<ValidCluster, Faults> {
    let mut faults = Vec::new();
    let spec = &cluster.spec;
    let name = cluster.name_any();
    if name.len() > 40 || name.contains('.') || !name.starts_with(|c: char| c.is_ascii_lowercase()) {
        faults.push(crate::crd::rules::NAME_FITS_MESSAGE.to_owned());
    }
    let Some(owner) = cluster.controller_owner_ref(&()) else {
        return Err(Faults(vec!["the resource has no uid yet".to_owned()]));
    };
    if spec.image.trim().is_empty() {
        faults.push("spec.image is empty: name the image that holds the broker".to_owned());
    }
    in_range(
        &mut faults,
        "spec.nameServers.replicas",
        spec.name_servers.replicas,
        1,
        9,
    );
    in_range(&mut faults, "spec.brokers.groups", spec.brokers.groups, 1, 100);
    shape(cluster, &mut faults);
    if spec.brokers.replication == Replication::Sync && spec.brokers.replicas_per_group < 2 {
        faults.push("spec.brokers.replication Sync needs replicasPerGroup of at least 2".to_owned());
    }
    let groups = groups(cluster, &name, &mut faults);
    let leaving = existing
        .groups
        .iter()
        .filter(|index| **index >= spec.brokers.groups)
        .map(|index| Group {
            index: *index,
            broker_name: broker_name(cluster, &name, *index),
        })
        .collect();
    let config = config(cluster, &mut faults);
    let storage = storage(cluster, existing, &mut faults);
    let auto_grow = auto_grow(cluster, &mut faults);
    retention(cluster, &mut faults);
    let namesrv_resources = resources(
        "spec.nameServers.resources",
        &spec.name_servers.resources,
        &mut faults,
    );
    let broker_resources = resources("spec.brokers.resources", &spec.brokers.resources, &mut faults);
    let (Some(storage), true) = (storage, faults.is_empty()) else {
        return Err(Faults(faults));
    };
    let annotation = |name: &str| cluster.annotations().get(name).cloned();
    Ok(ValidCluster {
        namespace: cluster.namespace().unwrap_or_default(),
        owner,
        cluster_name: spec.broker_cluster_name.clone().unwrap_or_else(|| name.clone()),
        image: spec.image.clone(),
        pull_policy: spec.image_pull_policy.as_str(),
        pull_secrets: spec.image_pull_secrets.iter().map(|s| s.name.clone()).collect(),
        name_servers: spec.name_servers.replicas,
        namesrv_resources,
        groups,
        replicas: spec.brokers.replicas_per_group,
        master_role: match spec.brokers.replication {
            Replication::Sync => "SYNC_MASTER",
            Replication::Async => "ASYNC_MASTER",
        },
        flush: match spec.brokers.flush {
            Flush::Sync => "SYNC_FLUSH",
            Flush::Async => "ASYNC_FLUSH",
        },
        broker_resources,
        storage,
        auto_grow,
        storage_class: spec.storage.storage_class_name.clone(),
        delete_claims: spec.storage.retention_policy == RetentionPolicy::Delete,
        config,
        leaving,
        rollout: spec.rollout.clone(),
        removal: spec.brokers.removal.clone(),
        restart: annotation(names::RESTART_ANNOTATION),
        approved: annotation(names::APPROVE_ANNOTATION),
        broker_template: spec.brokers.pod_template.clone(),
        namesrv_template: spec.name_servers.pod_template.clone(),
        acl_secret: spec.acl.as_ref().map(|acl| acl.secret_name.clone()),
        tls: spec.tls.clone(),
        external_name_servers: spec.name_servers.external.clone(),
        kv: spec.name_servers.kv.clone(),
        name,
    })
}

/// Numbers, windows and pod templates.
fn shape(cluster: &BrokerCluster, faults: &mut Vec<String>) {
    let spec = &cluster.spec;
    in_range(
        faults,
        "spec.brokers.replicasPerGroup",
        spec.brokers.replicas_per_group,
        1,
        10,
    );
    in_range(
        faults,
        "spec.rollout.maxParallelGroups",
        spec.rollout.max_parallel_groups,
        1,
        100,
    );
    faults.extend(spec.rollout.windows.iter().filter_map(window::fault));
    template(
        "spec.brokers.podTemplate",
        spec.brokers.pod_template.as_ref(),
        faults,
    );
    template(
        "spec.nameServers.podTemplate",
        spec.name_servers.pod_template.as_ref(),
        faults,
    );
}

fn in_range(faults: &mut Vec<String>, field: &str, value: i32, least: i32, most: i32) {
    if !(least..=most).contains(&value) {
        faults.push(format!("{field} is {value} but must be from {least} to {most}"));
    }
}

fn groups(cluster: &BrokerCluster, name: &str, faults: &mut Vec<String>) -> Vec<Group> {
    let groups: Vec<Group> = (0..cluster.spec.brokers.groups.clamp(0, 100))
        .map(|index| Group {
            index,
            broker_name: broker_name(cluster, name, index),
        })
        .collect();
    let mut seen = BTreeSet::new();
    for group in &groups {
        if !seen.insert(&group.broker_name) {
            faults.push(format!(
                "spec.brokers.names: two groups would have the name {}, and clients could not tell them apart",
                group.broker_name
            ));
        }
    }
    groups
}

/// RocketMQ's name of a group.
pub fn broker_name(cluster: &BrokerCluster, name: &str, index: i32) -> String {
    usize::try_from(index)
        .ok()
        .and_then(|at| cluster.spec.brokers.names.get(at).cloned())
        .unwrap_or_else(|| names::group(name, index))
}

/// A pod template must be one that Kubernetes knows: a misspelt field would be lost without a word.
fn template(field: &str, given: Option<&Value>, faults: &mut Vec<String>) {
    let Some(given) = given else { return };
    let typed = serde_json::from_value::<PodTemplateSpec>(with_names(given));
    let back = match typed {
        Ok(typed) => serde_json::to_value(typed).unwrap_or_default(),
        Err(error) => {
            faults.push(format!("{field} is not a pod template: {error}"));
            return;
        }
    };
    if let Some(path) = lost(given, &back, "") {
        faults.push(format!("{field}{path} is not a field of a pod template"));
    }
    if given.pointer("/spec/restartPolicy").is_some() {
        faults.push(format!(
            "{field}.spec.restartPolicy cannot be changed: brokers run always"
        ));
    }
}

/// Fields that Kubernetes requires and a change may leave out.
fn with_names(given: &Value) -> Value {
    let mut whole = given.clone();
    if let Some(spec) = whole.get_mut("spec").and_then(Value::as_object_mut) {
        spec.entry("containers").or_insert_with(|| json!([]));
    }
    whole
}

fn lost(given: &Value, back: &Value, path: &str) -> Option<String> {
    match (given, back) {
        (Value::Object(given), back) => given.iter().find_map(|(key, value)| {
            let here = format!("{path}.{key}");
            if value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) {
                None
            } else if let Some(found) = back.get(key) {
                lost(value, found, &here)
            } else {
                Some(here)
            }
        }),
        (Value::Array(given), Value::Array(back)) => given
            .iter()
            .zip(back)
            .find_map(|(value, found)| lost(value, found, &format!("{path}[]"))),
        _ => None,
    }
}

fn config(cluster: &BrokerCluster, faults: &mut Vec<String>) -> BTreeMap<String, String> {
    let spec = &cluster.spec;
    for (key, value) in &spec.config {
        let Some(known) = keys::find(key) else {
            faults.push(format!("spec.config.{key}: the broker knows no key of this name"));
            continue;
        };
        if let Some(instead) = known.owner.instead() {
            faults.push(format!("spec.config.{key} cannot stand there: {instead}"));
        } else if let Err(fault) = keys::check(known, value) {
            faults.push(format!("spec.{fault}"));
        }
    }
    let mut all = spec.config.clone();
    let r = &spec.retention;
    all.insert("deleteWhen".to_owned(), r.delete_when.clone());
    all.insert("deleteWhenTimeZone".to_owned(), r.time_zone.clone());
    all.insert("fileReservedTime".to_owned(), r.file_reserved_time.to_string());
    all.insert(
        "diskMaxUsedSpaceRatio".to_owned(),
        r.disk_max_used_space_ratio.to_string(),
    );
    all
}

fn storage(cluster: &BrokerCluster, existing: &Existing, faults: &mut Vec<String>) -> Option<StorageSize> {
    let text = cluster.spec.storage.size.clone();
    let Some(bytes) = Quantity::parse(&text).and_then(Quantity::bytes) else {
        faults.push(format!(
            "spec.storage.size {text:?} is not a quantity such as \"100Gi\""
        ));
        return None;
    };
    let file = cluster
        .spec
        .config
        .get("mappedFileSizeCommitLog")
        .and_then(|v| v.parse().ok())
        .unwrap_or(DEFAULT_LOG_FILE);
    let least = LOG_FILES.saturating_mul(file).saturating_add(REST);
    if bytes < least {
        faults.push(format!(
            "spec.storage.size {text} is too small: {LOG_FILES} commit log files of {file} bytes and 1 GiB more need {least} bytes; ask for more or make spec.config.mappedFileSizeCommitLog smaller"
        ));
    }
    for (index, size) in &existing.template_sizes {
        if let Some(had) = Quantity::parse(size).and_then(Quantity::bytes)
            && bytes < had
        {
            faults.push(format!(
                "spec.storage.size {text} is smaller than the {size} that group {index} has: volumes do not shrink"
            ));
        }
    }
    Some(StorageSize { text, bytes })
}

fn auto_grow(cluster: &BrokerCluster, faults: &mut Vec<String>) -> Option<AutoGrow> {
    let rule = cluster.spec.storage.auto_grow.as_ref()?;
    in_range(
        faults,
        "spec.storage.autoGrow.abovePercent",
        rule.above_percent,
        50,
        95,
    );
    in_range(
        faults,
        "spec.storage.autoGrow.stepPercent",
        rule.step_percent,
        5,
        100,
    );
    let maximum = Quantity::parse(&rule.maximum).and_then(Quantity::bytes);
    let Some(maximum_bytes) = maximum else {
        faults.push(format!(
            "spec.storage.autoGrow.maximum {:?} is not a quantity such as \"2Ti\"",
            rule.maximum
        ));
        return None;
    };
    Some(AutoGrow {
        above_percent: rule.above_percent,
        step_percent: rule.step_percent,
        maximum_bytes,
    })
}

fn retention(cluster: &BrokerCluster, faults: &mut Vec<String>) {
    let r = &cluster.spec.retention;
    let hours = r
        .delete_when
        .split(';')
        .all(|h| h.len() <= 2 && h.parse::<u8>().is_ok_and(|h| h < 24));
    if !hours {
        faults.push(format!(
            "spec.retention.deleteWhen {:?} takes hours from 0 to 23, separated by \";\"",
            r.delete_when
        ));
    }
    if jiff::tz::TimeZone::get(&r.time_zone).is_err() {
        faults.push(format!(
            "spec.retention.timeZone {:?} is not a time zone of the IANA database, such as \"Europe/Berlin\"",
            r.time_zone
        ));
    }
    in_range(
        faults,
        "spec.retention.diskMaxUsedSpaceRatio",
        r.disk_max_used_space_ratio,
        10,
        95,
    );
    in_range(
        faults,
        "spec.retention.fileReservedTime",
        r.file_reserved_time,
        1,
        876_000,
    );
}

fn resources(field: &str, given: &Resources, faults: &mut Vec<String>) -> Value {
    let mut out = serde_json::Map::new();
    for (what, amounts) in [("requests", &given.requests), ("limits", &given.limits)] {
        let mut map = serde_json::Map::new();
        for (name, amount) in amounts {
            let text = match amount {
                IntOrString::Int(n) => n.to_string(),
                IntOrString::String(s) => s.clone(),
            };
            if Quantity::parse(&text).is_none() {
                faults.push(format!("{field}.{what}.{name} {text:?} is not a quantity"));
            }
            map.insert(name.clone(), json!(text));
        }
        if !map.is_empty() {
            out.insert(what.to_owned(), Value::Object(map));
        }
    }
    Value::Object(out)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small cluster as the API server would give it.
    pub(crate) fn cluster(spec: Value) -> BrokerCluster {
        let mut whole = json!({
            "apiVersion": "ferromq.io/v1alpha1",
            "kind": "BrokerCluster",
            "metadata": {"name": "demo", "namespace": "mq", "uid": "u-1", "generation": 3},
            "spec": {
                "image": "ferromq:test",
                "storage": {"size": "2Gi"},
                "config": {"mappedFileSizeCommitLog": "67108864"},
            },
        });
        if let (Some(base), Value::Object(more)) = (whole["spec"].as_object_mut(), spec) {
            base.extend(more);
        }
        serde_json::from_value(whole).unwrap()
    }

    fn faults(spec: Value) -> String {
        validate(&cluster(spec), &Existing::default())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn defaults_are_those_of_the_documentation() {
        let valid = validate(&cluster(json!({})), &Existing::default()).unwrap();
        assert_eq!(valid.cluster_name, "demo");
        assert_eq!(
            valid.groups,
            vec![Group {
                index: 0,
                broker_name: "demo-0".to_owned()
            }]
        );
        assert_eq!((valid.master_role, valid.flush), ("ASYNC_MASTER", "ASYNC_FLUSH"));
        assert_eq!(valid.config["deleteWhen"], "04");
        assert_eq!(valid.config["deleteWhenTimeZone"], "UTC");
        assert_eq!(valid.config["fileReservedTime"], "72");
        assert_eq!(valid.config["diskMaxUsedSpaceRatio"], "75");
        assert!(!valid.delete_claims);
    }

    #[test]
    fn every_bad_value_is_named() {
        for (spec, word) in [
            (json!({"retention": {"deleteWhen": "25"}}), "deleteWhen"),
            (json!({"retention": {"deleteWhen": "4,16"}}), "deleteWhen"),
            (json!({"retention": {"deleteWhen": ""}}), "deleteWhen"),
            (json!({"retention": {"timeZone": "Mars/Olympus"}}), "Mars/Olympus"),
            (
                json!({"retention": {"diskMaxUsedSpaceRatio": 5}}),
                "diskMaxUsedSpaceRatio",
            ),
            (
                json!({"retention": {"diskMaxUsedSpaceRatio": 99}}),
                "diskMaxUsedSpaceRatio",
            ),
            (json!({"config": {"noSuchKey": "1"}}), "noSuchKey"),
            (json!({"config": {"listenPort": "1"}}), "listenPort"),
            (
                json!({"config": {"deleteWhen": "05"}}),
                "spec.retention.deleteWhen",
            ),
            (
                json!({"config": {"mappedFileSizeCommitLog": "big"}}),
                "mappedFileSizeCommitLog",
            ),
            (json!({"storage": {"size": "1Gi"}}), "storage.size"),
            (json!({"storage": {"size": "2Gi"}, "config": {}}), "storage.size"),
            (json!({"storage": {"size": "much"}}), "storage.size"),
            (json!({"brokers": {"replicasPerGroup": 11}}), "replicasPerGroup"),
            (
                json!({"brokers": {"podTemplate": {"spec": {"tolerationz": [{"key": "a"}]}}}}),
                "tolerationz",
            ),
            (
                json!({"brokers": {"podTemplate": {"spec": {"tolerations": "all"}}}}),
                "podTemplate",
            ),
            (
                json!({"rollout": {"windows": [{"start": "02:00", "minutes": 5, "timeZone": "Mars/X"}]}}),
                "Mars/X",
            ),
            (json!({"brokers": {"replication": "Sync"}}), "replicasPerGroup"),
            (json!({"brokers": {"groups": 2, "names": ["demo-1"]}}), "demo-1"),
            (
                json!({"brokers": {"resources": {"requests": {"cpu": "lots"}}}}),
                "cpu",
            ),
            (json!({"image": " "}), "image"),
        ] {
            let said = faults(spec.clone());
            assert!(said.contains(word), "{spec} gave {said}");
        }
    }

    #[test]
    fn all_faults_are_told_at_once() {
        let said = faults(json!({"retention": {"deleteWhen": "25", "diskMaxUsedSpaceRatio": 5}}));
        assert!(said.contains("deleteWhen") && said.contains("diskMaxUsedSpaceRatio"));
    }

    #[test]
    fn what_exists_is_never_made_smaller() {
        let existing = Existing {
            template_sizes: BTreeMap::from([(0, "3Gi".to_owned())]),
            ..Existing::default()
        };
        let said = validate(&cluster(json!({})), &existing).unwrap_err().to_string();
        assert!(said.contains("do not shrink"), "{said}");
    }

    #[test]
    fn groups_that_are_no_longer_asked_for_leave() {
        let existing = Existing {
            groups: BTreeSet::from([0, 1, 2]),
            ..Existing::default()
        };
        let valid = validate(
            &cluster(json!({"brokers": {"names": ["a", "b", "c"]}})),
            &existing,
        )
        .unwrap();
        let leaving: Vec<_> = valid
            .leaving
            .iter()
            .map(|g| (g.index, g.broker_name.as_str()))
            .collect();
        assert_eq!(leaving, [(1, "b"), (2, "c")]);
    }

    #[test]
    fn four_files_of_a_gigabyte_and_one_more_are_enough() {
        let spec = json!({"storage": {"size": "5Gi"}, "config": {}});
        assert!(validate(&cluster(spec), &Existing::default()).is_ok());
    }
}
