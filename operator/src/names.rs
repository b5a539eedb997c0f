//! Names, labels and ports of everything that the operator makes.
//!
//! All names derive from the resource's name and the group's index, so that two passes, two versions and the e2e suite
//! agree on them. Lengths: the resource's name has at most 40 characters and an index at most two, so that the longest
//! name (`NAME-namesrv-headless`) has 57 and the longest label value (`NAME-99` and the revision's 11) 54 of 63.

use std::collections::BTreeMap;

/// Field manager of every server-side apply.
pub const MANAGER: &str = "ferromq-operator";
/// Label that binds an object to its BrokerCluster.
pub const CLUSTER_LABEL: &str = "ferromq.io/cluster";
/// Label with the index of the broker group.
pub const GROUP_LABEL: &str = "ferromq.io/group";
/// Label that tells name servers and brokers apart.
pub const COMPONENT_LABEL: &str = "app.kubernetes.io/component";
/// Annotation with the digest of what was applied, to skip writes that would change nothing.
pub const APPLIED_ANNOTATION: &str = "ferromq.io/applied";
/// Annotation of the pod template with the digest of the configuration, so that a change of it replaces pods.
pub const CONFIG_ANNOTATION: &str = "ferromq.io/config";
/// Annotation of the pod template with the digest of that template: a pod with another one is to be restarted.
pub const FORM_ANNOTATION: &str = "ferromq.io/form";
/// Annotation of a StatefulSet: which of its pods may be taken out.
pub const GRANT_ANNOTATION: &str = "ferromq.io/grant";
/// Annotation of a broker's pod: it is restarted now, whatever its value.
pub const RESTART_NOW_ANNOTATION: &str = "ferromq.io/restart-now";
/// Annotation of a BrokerCluster: when its value changes, all brokers are restarted.
pub const RESTART_ANNOTATION: &str = "ferromq.io/restart";
/// Annotation of a BrokerCluster: the id of the rollout in which masters may be restarted.
pub const APPROVE_ANNOTATION: &str = "ferromq.io/approve";
/// Field manager of the annotations that the operator keeps for itself, apart from what it applies.
pub const MEMORY: &str = "ferromq-operator-memory";
/// Finalizer of a Topic whose deletion policy is Delete.
pub const TOPIC_FINALIZER: &str = "ferromq.io/topic";

/// Finalizer of a ConsumerGroup whose deletion policy is Delete.
pub const GROUP_FINALIZER: &str = "ferromq.io/consumer-group";

/// Port of the name servers.
pub const NAMESRV_PORT: u16 = 9876;
/// Port of a broker (listenPort).
pub const BROKER_PORT: u16 = 10911;
/// Second port of a broker (listenPort − 2), which clients use for sends when told to.
pub const FAST_PORT: u16 = 10909;
/// Replication port of a broker (listenPort + 1).
pub const HA_PORT: u16 = 10912;
/// Port of probes, metrics and status.
pub const HTTP_PORT: u16 = 8080;

/// User and group of every process.
pub const USER: i64 = 65_532;
/// Where the store's volume is mounted.
pub const STORE_PATH: &str = "/var/lib/ferromq/store";
/// Where the name server may write.
pub const NAMESRV_PATH: &str = "/var/lib/ferromq/namesrv";
/// Where configuration files are mounted.
pub const CONFIG_PATH: &str = "/etc/ferromq";
/// Where the HTTP token is mounted.
pub const SECRET_PATH: &str = "/etc/ferromq-secret";
/// What is rocketmqHome where there are accounts.
pub const HOME_PATH: &str = "/etc/ferromq-home";
/// Where certificates are mounted.
pub const TLS_PATH: &str = "/etc/ferromq-tls";
/// Name of the volume claim template.
pub const STORE_VOLUME: &str = "store";

/// Deployment, Service, ConfigMap and budget of the name servers.
pub fn namesrv(cluster: &str) -> String {
    format!("{cluster}-namesrv")
}

/// Headless Service of the name servers.
pub fn namesrv_headless(cluster: &str) -> String {
    format!("{cluster}-namesrv-headless")
}

/// StatefulSet, ConfigMap and budget of a group.
pub fn group(cluster: &str, index: i32) -> String {
    format!("{cluster}-{index}")
}

/// Headless Service of a group.
pub fn group_headless(cluster: &str, index: i32) -> String {
    format!("{cluster}-{index}-headless")
}

/// Service that leads to the group's master.
pub fn master(cluster: &str, index: i32) -> String {
    format!("{cluster}-{index}-master")
}

/// Pod of a broker, and the Service of just that broker.
pub fn broker(cluster: &str, index: i32, ordinal: i32) -> String {
    format!("{cluster}-{index}-{ordinal}")
}

/// Volume claim of a broker.
pub fn claim(cluster: &str, index: i32, ordinal: i32) -> String {
    format!("{STORE_VOLUME}-{cluster}-{index}-{ordinal}")
}

/// Secret with the token for PUT /writes.
pub fn http_secret(cluster: &str) -> String {
    format!("{cluster}-http")
}

/// Secret with the operator's own account.
pub fn account_secret(cluster: &str) -> String {
    format!("{cluster}-account")
}

/// DNS name of a broker's pod, stable over restarts.
pub fn broker_host(cluster: &str, namespace: &str, index: i32, ordinal: i32) -> String {
    format!(
        "{}.{}.{namespace}.svc",
        broker(cluster, index, ordinal),
        group_headless(cluster, index)
    )
}

/// What brokers take as namesrvAddr: one DNS name for all name servers, ready or not.
pub fn namesrv_address(cluster: &str, namespace: &str) -> String {
    format!("{}.{namespace}.svc:{NAMESRV_PORT}", namesrv_headless(cluster))
}

/// What clients take as name server address.
pub fn client_address(cluster: &str, namespace: &str) -> String {
    format!("{}.{namespace}.svc:{NAMESRV_PORT}", namesrv(cluster))
}

/// The two kinds of program in a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Component {
    /// Name server.
    NameServer,
    /// Broker of the group with this index.
    Broker(i32),
}

/// Labels by which Services, budgets and workloads find their pods. Never change for a living object.
pub fn selector(cluster: &str, component: Component) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::from([(CLUSTER_LABEL.to_owned(), cluster.to_owned())]);
    match component {
        Component::NameServer => {
            labels.insert(COMPONENT_LABEL.to_owned(), "namesrv".to_owned());
        }
        Component::Broker(index) => {
            labels.insert(COMPONENT_LABEL.to_owned(), "broker".to_owned());
            labels.insert(GROUP_LABEL.to_owned(), index.to_string());
        }
    }
    labels
}

/// Labels of an object of a component.
pub fn labels(cluster: &str, component: Component) -> BTreeMap<String, String> {
    let mut labels = selector(cluster, component);
    labels.extend(common(cluster));
    labels
}

/// Labels of every object.
pub fn common(cluster: &str) -> BTreeMap<String, String> {
    BTreeMap::from([
        (CLUSTER_LABEL.to_owned(), cluster.to_owned()),
        ("app.kubernetes.io/name".to_owned(), "ferromq".to_owned()),
        ("app.kubernetes.io/instance".to_owned(), cluster.to_owned()),
        ("app.kubernetes.io/managed-by".to_owned(), MANAGER.to_owned()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_names_fit_a_label() {
        let name = "a".repeat(40);
        for derived in [
            namesrv_headless(&name),
            group_headless(&name, 99),
            master(&name, 99),
            broker(&name, 99, 9),
            // controller-revision-hash is the StatefulSet's name and 11 characters
            format!("{}-0123456789", group(&name, 99)),
        ] {
            assert!(derived.len() <= 63, "{derived} has {}", derived.len());
        }
    }

    #[test]
    fn names_of_one_cluster_and_of_its_namesake_do_not_meet() {
        let services = |c: &str| {
            let mut all = vec![namesrv(c), namesrv_headless(c)];
            for i in 0..12 {
                all.extend([group_headless(c, i), master(c, i), broker(c, i, 0)]);
            }
            all
        };
        let (one, other) = (services("a"), services("a-0"));
        assert!(one.iter().all(|n| !other.contains(n)));
    }
}
