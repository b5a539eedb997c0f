//! What accounts and certificates add to pods: volumes that follow their Secrets, and arguments.

use super::super::secrets::ACCOUNTS;
use super::super::validate::ValidCluster;
use super::Facts;
use crate::names;
use serde_json::{Value, json};

/// Mounts the accounts under rocketmqHome: a broker reads `conf/acl/*.yml` and signs with `conf/tools.yml`.
pub(super) fn accounts(cluster: &ValidCluster, pod: &mut Value) {
    let Some(secret) = &cluster.acl_secret else { return };
    let own = names::account_secret(&cluster.name);
    let volume = json!({"name": "accounts", "projected": {"sources": [
        {"secret": {"name": secret, "items": [{"key": ACCOUNTS, "path": format!("acl/{ACCOUNTS}")}]}},
        {"secret": {"name": own, "items": [
            {"key": "account.yml", "path": "acl/ferromq-internal.yml"},
            {"key": "tools.yml", "path": "tools.yml"},
        ]}},
    ]}});
    add(pod, "/spec/volumes", volume);
    let path = format!("{}/conf", names::HOME_PATH);
    let mount = json!({"name": "accounts", "mountPath": path, "readOnly": true});
    add(pod, "/spec/containers/0/volumeMounts", mount);
}

/// Mounts the certificates and says how they are used.
pub(super) fn certificates(cluster: &ValidCluster, facts: &Facts, pod: &mut Value) {
    let Some(tls) = &cluster.tls else { return };
    let volume = json!({"name": "tls", "secret": {"secretName": tls.secret_name}});
    add(pod, "/spec/volumes", volume);
    let mount = json!({"name": "tls", "mountPath": names::TLS_PATH, "readOnly": true});
    add(pod, "/spec/containers/0/volumeMounts", mount);
    let trust = if facts.trusted {
        format!("-Dtls.client.trustCertPath={}/ca.crt", names::TLS_PATH)
    } else {
        "-Dtls.client.authServer=false".to_owned()
    };
    for argument in [
        format!("-Dtls.server.mode={}", tls.mode.as_str()),
        format!("-Dtls.server.certPath={}/tls.crt", names::TLS_PATH),
        format!("-Dtls.server.keyPath={}/tls.key", names::TLS_PATH),
        "-Dtls.enable=true".to_owned(),
        trust,
    ] {
        add(pod, "/spec/containers/0/args", json!(argument));
    }
}

fn add(pod: &mut Value, list: &str, item: Value) {
    if let Some(list) = pod.pointer_mut(list).and_then(Value::as_array_mut) {
        list.push(item);
    }
}
