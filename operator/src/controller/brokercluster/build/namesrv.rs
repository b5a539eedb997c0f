//! ConfigMap and Deployment of the name servers.

use super::super::validate::ValidCluster;
use super::{
    Facts, ObjectKind, Wanted, config, container_security, finish_template, http_probe, placement,
    pod_security, port, pull_secrets, secured, wanted,
};
use crate::digest;
use crate::names::{self, Component};
use serde_json::json;

pub(super) fn objects(cluster: &ValidCluster, facts: &Facts) -> Vec<Wanted> {
    let name = names::namesrv(&cluster.name);
    let component = Component::NameServer;
    let text = config::namesrv(cluster);
    let (affinity, spread) = placement(cluster, component);
    let mut pod = json!({
        "metadata": {
            "labels": names::labels(&cluster.name, component),
            "annotations": {
                names::CONFIG_ANNOTATION: digest::short(&config::namesrv_needs_restart()),
            },
        },
        "spec": {
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 30,
            "securityContext": pod_security(),
            "imagePullSecrets": pull_secrets(cluster),
            "affinity": affinity,
            "topologySpreadConstraints": spread,
            "containers": [{
                "name": "namesrv",
                "image": cluster.image,
                "imagePullPolicy": cluster.pull_policy,
                "command": ["/ferromq-namesrv"],
                "args": ["-c", format!("{}/namesrv.conf", names::CONFIG_PATH)],
                "ports": [port("remoting", names::NAMESRV_PORT), port("http", names::HTTP_PORT)],
                "resources": cluster.namesrv_resources,
                "securityContext": container_security(),
                "startupProbe": http_probe("/livez", 1, 2, 120),
                "livenessProbe": http_probe("/livez", 10, 5, 3),
                "readinessProbe": http_probe("/readyz", 3, 3, 2),
                "volumeMounts": [
                    {"name": "config", "mountPath": names::CONFIG_PATH, "readOnly": true},
                    {"name": "data", "mountPath": names::NAMESRV_PATH},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }],
            "volumes": [
                {"name": "config", "configMap": {"name": name}},
                {"name": "data", "emptyDir": {}},
                {"name": "tmp", "emptyDir": {}},
            ],
        },
    });
    secured::certificates(cluster, facts, &mut pod);
    let pod = finish_template(
        pod,
        cluster.namesrv_template.as_ref(),
        &names::selector(&cluster.name, component),
    );
    let deployment = json!({"spec": {
        "replicas": cluster.name_servers,
        "selector": {"matchLabels": names::selector(&cluster.name, component)},
        // The old one stays until the new one is ready, so that there is a name server at every moment.
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": pod,
    }});
    let files = json!({"data": {"namesrv.conf": text}});
    vec![
        wanted(cluster, ObjectKind::ConfigMap, name.clone(), component, files),
        wanted(cluster, ObjectKind::Deployment, name, component, deployment),
    ]
}
