//! ConfigMap and StatefulSet of a broker group.

use super::super::validate::{Group, ValidCluster};
use super::{
    Facts, ObjectKind, Wanted, address_service, config, container_security, finish_template, http_probe,
    placement, pod_security, port, pull_secrets, secured, wanted,
};
use crate::digest;
use crate::names::{self, Component};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Nothing while an address is not known: a broker that registered a passing address would put it into message ids.
pub(super) fn objects(cluster: &ValidCluster, group: &Group, facts: &Facts) -> Option<Vec<Wanted>> {
    let capacity = facts
        .claimed_bytes
        .get(&group.index)
        .copied()
        .unwrap_or(cluster.storage.bytes);
    let mut files = BTreeMap::new();
    for ordinal in 0..cluster.replicas {
        let address = facts
            .addresses
            .get(&address_service(&cluster.name, group, ordinal))?;
        files.insert(
            format!("{}.conf", names::broker(&cluster.name, group.index, ordinal)),
            config::broker(cluster, group, ordinal, address, capacity),
        );
    }
    let name = names::group(&cluster.name, group.index);
    let component = Component::Broker(group.index);
    let size = facts
        .template_sizes
        .get(&group.index)
        .unwrap_or(&cluster.storage.text);
    let set = stateful_set(
        cluster,
        group,
        &digest::short(&config::needs_restart(cluster, group)),
        size,
        facts,
    );
    Some(vec![
        wanted(
            cluster,
            ObjectKind::ConfigMap,
            name.clone(),
            component,
            json!({"data": files}),
        ),
        wanted(cluster, ObjectKind::StatefulSet, name, component, set),
    ])
}

fn stateful_set(
    cluster: &ValidCluster,
    group: &Group,
    config_digest: &str,
    size: &str,
    facts: &Facts,
) -> Value {
    let component = Component::Broker(group.index);
    let when_deleted = if cluster.delete_claims { "Delete" } else { "Retain" };
    let mut claim = json!({
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "resources": {"requests": {"storage": size}},
    });
    if let Some(class) = &cluster.storage_class {
        claim["storageClassName"] = json!(class);
    }
    json!({"spec": {
        "serviceName": names::group_headless(&cluster.name, group.index),
        "replicas": cluster.replicas,
        "podManagementPolicy": "Parallel",
        // The operator takes the pods out itself: see `roll`.
        "updateStrategy": {"type": "OnDelete"},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": when_deleted, "whenScaled": when_deleted},
        "selector": {"matchLabels": names::selector(&cluster.name, component)},
        "template": pod(cluster, group, config_digest, facts),
        "volumeClaimTemplates": [{
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": names::STORE_VOLUME, "labels": names::labels(&cluster.name, component)},
            "spec": claim,
        }],
    }})
}

fn pod(cluster: &ValidCluster, group: &Group, config_digest: &str, facts: &Facts) -> Value {
    let component = Component::Broker(group.index);
    let (affinity, spread) = placement(cluster, component);
    let mut annotations = json!({names::CONFIG_ANNOTATION: config_digest});
    if let Some(restart) = &cluster.restart {
        annotations[names::RESTART_ANNOTATION] = json!(restart);
    }
    let mut template = json!({
        "metadata": {
            "labels": names::labels(&cluster.name, component),
            "annotations": annotations,
        },
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": cluster.rollout.grace_seconds,
            "securityContext": pod_security(),
            "imagePullSecrets": pull_secrets(cluster),
            "affinity": affinity,
            "topologySpreadConstraints": spread,
            "containers": [{
                "name": "broker",
                "image": cluster.image,
                "imagePullPolicy": cluster.pull_policy,
                "command": ["/ferromq-broker"],
                "args": ["-c", format!("{}/$(POD_NAME).conf", names::CONFIG_PATH)],
                "env": [{
                    "name": "POD_NAME",
                    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}},
                }],
                "ports": [
                    port("remoting", names::BROKER_PORT),
                    port("fast", names::FAST_PORT),
                    port("ha", names::HA_PORT),
                    port("http", names::HTTP_PORT),
                ],
                "resources": cluster.broker_resources,
                "securityContext": container_security(),
                // A broker that recovers is alive, however long it takes; it is only not ready.
                "startupProbe": http_probe("/livez", 2, 5, 150),
                "livenessProbe": http_probe("/livez", 10, 5, 6),
                "readinessProbe": http_probe("/readyz", 3, 3, 3),
                "volumeMounts": [
                    {"name": "config", "mountPath": names::CONFIG_PATH, "readOnly": true},
                    {"name": "http-token", "mountPath": names::SECRET_PATH, "readOnly": true},
                    {"name": names::STORE_VOLUME, "mountPath": names::STORE_PATH},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }],
            "volumes": [
                {"name": "config", "configMap": {"name": names::group(&cluster.name, group.index)}},
                {"name": "http-token", "secret": {"secretName": names::http_secret(&cluster.name)}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    });
    secured::accounts(cluster, &mut template);
    secured::certificates(cluster, facts, &mut template);
    finish_template(
        template,
        cluster.broker_template.as_ref(),
        &names::selector(&cluster.name, component),
    )
}
