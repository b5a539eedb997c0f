//! Settings that running brokers take without a restart.
//!
//! What the resource sets is compared with what each broker has (request 26) at every pass, sent where it differs (request
//! 25) and read again. A broker keeps such a change over its restarts, in front of broker.conf, so this is also what
//! makes the resource win over what an administrator changed. What it does not set is left alone, and listed as drift when
//! it differs from the default.

use super::status::Reports;
use super::validate::ValidCluster;
use crate::context::Context;
use crate::crd::broker_cluster::DriftRow;
use crate::keys;
use crate::names;
use futures::StreamExt;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Settings of brokers, by pod and key.
pub type Configs = BTreeMap<String, BTreeMap<String, String>>;

/// Brokers spoken to at the same time.
const AT_ONCE: usize = 16;

/// What a broker has against what it should have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Difference {
    /// Keys to send, with their values.
    pub send: BTreeMap<String, String>,
    /// Keys that somebody else set.
    pub drift: BTreeMap<String, String>,
}

/// Compares. Keys that the broker does not name are those of another version; they are left to its configuration file.
pub fn difference(want: &BTreeMap<String, String>, has: &BTreeMap<String, String>) -> Difference {
    let mut difference = Difference::default();
    for (key, default) in keys::LIVE {
        let Some(value) = has.get(*key) else { continue };
        match want.get(*key) {
            Some(wanted) if wanted.trim() != value.trim() => {
                difference.send.insert((*key).to_owned(), wanted.clone());
            }
            None if value.trim() != *default => {
                difference.drift.insert((*key).to_owned(), value.clone());
            }
            Some(_) | None => {}
        }
    }
    difference
}

/// What came of a look at all brokers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settled {
    /// Settings that somebody else made.
    pub drift: Vec<DriftRow>,
    /// Settings that a broker has not taken, for people.
    pub faults: Vec<String>,
    /// What was sent: pod and keys.
    pub sent: Vec<(String, Vec<String>)>,
}

/// Reads the settings of every broker that runs.
pub async fn read(cx: &Context, reports: &Reports, met: &BTreeMap<String, IpAddr>) -> Configs {
    let running: Vec<(String, IpAddr)> = reports
        .iter()
        .filter(|(_, r)| r.as_ref().is_ok_and(|r| r.stage == "running"))
        .filter_map(|(pod, _)| Some((pod.clone(), *met.get(pod)?)))
        .collect();
    let read: Vec<Option<(String, BTreeMap<String, String>)>> = futures::stream::iter(running)
        .map(|(pod, ip)| async move {
            match cx.admin(&remoting(ip)).broker_config(&remoting(ip)).await {
                Ok(config) => Some((pod, config)),
                Err(error) => {
                    tracing::debug!(pod, %error, "settings were not read");
                    None
                }
            }
        })
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    read.into_iter().flatten().collect()
}

/// Sends what differs, and checks that it was taken.
pub async fn settle(
    cx: &Context,
    valid: &ValidCluster,
    configs: &Configs,
    met: &BTreeMap<String, IpAddr>,
    capacity: &BTreeMap<i32, i64>,
) -> Settled {
    let mut settled = Settled::default();
    for group in &valid.groups {
        for ordinal in 0..valid.replicas {
            let pod = names::broker(&valid.name, group.index, ordinal);
            let (Some(has), Some(ip)) = (configs.get(&pod), met.get(&pod)) else {
                continue;
            };
            let mut want = valid.config.clone();
            let bytes = capacity.get(&group.index).copied().unwrap_or(valid.storage.bytes);
            want.insert("storeCapacityBytes".to_owned(), bytes.to_string());
            let difference = difference(&want, has);
            settled
                .drift
                .extend(difference.drift.into_iter().map(|(key, value)| DriftRow {
                    broker: pod.clone(),
                    key,
                    value,
                }));
            if difference.send.is_empty() {
                continue;
            }
            match send(cx, *ip, &difference.send).await {
                Ok(()) => settled.sent.push((pod, difference.send.into_keys().collect())),
                Err(why) => settled.faults.push(format!("{pod}: {why}")),
            }
        }
    }
    settled
}

async fn send(cx: &Context, ip: IpAddr, changes: &BTreeMap<String, String>) -> Result<(), String> {
    let address = remoting(ip);
    cx.admin(&address)
        .update_broker_config(&address, changes)
        .await
        .map_err(|e| format!("settings were not taken: {e}"))?;
    cx.metrics.wrote("BrokerSettings");
    let now = cx
        .admin(&address)
        .broker_config(&address)
        .await
        .map_err(|e| e.to_string())?;
    let left = changes
        .iter()
        .find(|(k, v)| now.get(*k).map(|n| n.trim()) != Some(v.trim()));
    match left {
        None => Ok(()),
        Some((key, value)) => Err(format!("{key} was set to {value} but reads {:?}", now.get(key))),
    }
}

/// Address of a broker's protocol.
pub fn remoting(ip: IpAddr) -> String {
    SocketAddr::new(ip, names::BROKER_PORT).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn what_is_set_is_sent_and_what_is_not_is_drift() {
        let want = map(&[
            ("fileReservedTime", "24"),
            ("deleteWhen", "04"),
            ("maxMessageSize", "1"),
        ]);
        let has = map(&[
            ("fileReservedTime", "72"),
            ("deleteWhen", "04"),
            ("maxMessageSize", "4194304"),
            ("brokerPermission", "4"),
            ("traceOn", "true"),
        ]);
        let found = difference(&want, &has);
        assert_eq!(
            found.send,
            map(&[("fileReservedTime", "24")]),
            "what needs a restart is not sent"
        );
        assert_eq!(found.drift, map(&[("brokerPermission", "4")]));
        assert_eq!(
            difference(&want, &map(&[])),
            Difference::default(),
            "an older broker"
        );
    }
}
