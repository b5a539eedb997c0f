//! The text of broker.conf and namesrv.conf.
//!
//! Java's properties format: `key=value`, with backslash escapes and `\uXXXX` for what is not printable ASCII. Keys are
//! sorted, so that equal settings make equal text and nothing is rolled without a reason.

use super::super::validate::{Group, ValidCluster};
use crate::digest;
use crate::keys;
use crate::names;
use std::collections::BTreeMap;

/// A clean stop takes this much less than the grace time of the pod, seconds.
const SPARE: i64 = 20;

/// broker.conf of one broker.
pub(super) fn broker(
    cluster: &ValidCluster,
    group: &Group,
    ordinal: i32,
    address: &str,
    capacity: i64,
) -> String {
    let mut keys = common(cluster, group);
    let role = if ordinal == 0 {
        cluster.master_role
    } else {
        "SLAVE"
    };
    for (key, value) in [
        ("brokerId", ordinal.to_string()),
        ("brokerRole", role.to_owned()),
        ("brokerIP1", address.to_owned()),
        ("brokerIP2", address.to_owned()),
        ("storeCapacityBytes", capacity.to_string()),
    ] {
        keys.insert(key.to_owned(), value);
    }
    text(&keys)
}

/// What all brokers of a group have in common.
fn common(cluster: &ValidCluster, group: &Group) -> BTreeMap<String, String> {
    let mut keys = cluster.config.clone();
    let mut servers = vec![names::namesrv_address(&cluster.name, &cluster.namespace)];
    servers.extend(cluster.external_name_servers.iter().cloned());
    for (key, value) in [
        ("brokerClusterName", cluster.cluster_name.clone()),
        ("brokerName", group.broker_name.clone()),
        ("flushDiskType", cluster.flush.to_owned()),
        ("namesrvAddr", servers.join(";")),
        ("listenPort", names::BROKER_PORT.to_string()),
        ("storePathRootDir", names::STORE_PATH.to_owned()),
        ("storePathCommitLog", format!("{}/commitlog", names::STORE_PATH)),
        (
            "shutdownTimeoutMillis",
            ((cluster.rollout.grace_seconds - SPARE) * 1_000).to_string(),
        ),
        ("httpPort", names::HTTP_PORT.to_string()),
        ("httpTokenFile", format!("{}/token", names::SECRET_PATH)),
    ] {
        keys.insert(key.to_owned(), value);
    }
    if cluster.acl_secret.is_some() {
        keys.insert("aclEnable".to_owned(), "true".to_owned());
        keys.insert("rocketmqHome".to_owned(), names::HOME_PATH.to_owned());
    }
    keys
}

/// The settings that only a restart brings to a broker. What differs from broker to broker is not among them, so that
/// one broker more changes nothing for the others, and neither are those that are changed while a broker runs.
pub(super) fn needs_restart(cluster: &ValidCluster, group: &Group) -> String {
    let mut keys = common(cluster, group);
    keys.retain(|key, _| !keys::is_live(key));
    keys.insert("brokerRole".to_owned(), cluster.master_role.to_owned());
    text(&keys)
}

/// namesrv.conf.
pub(super) fn namesrv(cluster: &ValidCluster) -> String {
    let mut keys = namesrv_keys();
    let brokers: Vec<&str> = cluster.groups.iter().map(|g| g.broker_name.as_str()).collect();
    keys.insert("expectedBrokers".to_owned(), brokers.join(";"));
    text(&keys)
}

/// The settings for which name servers are replaced. Which brokers there are is read at a start, for that start.
pub(super) fn namesrv_needs_restart() -> String {
    text(&namesrv_keys())
}

fn namesrv_keys() -> BTreeMap<String, String> {
    [
        ("listenPort", names::NAMESRV_PORT.to_string()),
        ("httpPort", names::HTTP_PORT.to_string()),
        // Brokers find a new name server within ten seconds; until then it lacks routes. It waits no longer once all
        // expected brokers are there.
        ("warmUpMillis", "12000".to_owned()),
        ("kvConfigPath", format!("{}/kvConfig.json", names::NAMESRV_PATH)),
        (
            "configStorePath",
            format!("{}/namesrv.properties", names::NAMESRV_PATH),
        ),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}

fn text(keys: &BTreeMap<String, String>) -> String {
    let mut out = String::from("# Written by ferromq-operator; changes are overwritten.\n");
    for (key, value) in keys {
        out.push_str(key);
        out.push('=');
        for (i, c) in value.chars().enumerate() {
            match c {
                '\\' => out.push_str("\\\\"),
                ' ' if i == 0 => out.push_str("\\ "),
                '\t' => out.push_str("\\t"),
                ' '..='~' => out.push(c),
                _ => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str("\\u");
                        out.push_str(&digest::hex(&unit.to_be_bytes()).to_uppercase());
                    }
                }
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_as_java_reads_them() {
        let keys = BTreeMap::from([("a".to_owned(), " x\\y é😀".to_owned())]);
        assert!(
            text(&keys).ends_with("a=\\ x\\\\y \\u00E9\\uD83D\\uDE00\n"),
            "{}",
            text(&keys)
        );
    }
}
