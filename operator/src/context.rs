//! What all controllers share.

use crate::access::Access;
use crate::events::Said;
use crate::metrics::Metrics;
use crate::settings::Settings;
use ferromq_client::admin::Admin;
use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use tokio_util::task::TaskTracker;

/// What all controllers share.
pub struct Context {
    /// Connection to the API server.
    pub client: Client,
    /// Settings of this process.
    pub settings: Settings,
    /// Whether headless names are used.
    pub by_name: bool,
    /// Calls to brokers and name servers.
    pub access: Access,
    /// Figures.
    pub metrics: Metrics,
    /// Where brokers were last met.
    pub directory: Directory,
    /// Who this process is, for leases and events.
    pub identity: String,
    /// What events said last.
    pub said: Said,
    /// Passes under way: each holds a token, so that a stop can wait for them.
    pub passes: TaskTracker,
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Directory({} brokers)", self.known.lock().len())
    }
}

/// Addresses at which brokers have proved who they are, by the uid of their BrokerCluster and the pod's name.
///
/// The controller of BrokerClusters keeps it; the one of Topics reads it, so that a thousand Topics do not ask a
/// thousand times. A missing entry means "not met lately", never "does not exist"; and before a cluster has been looked
/// at once since the start, nothing may be concluded at all.
#[derive(Default)]
pub struct Directory {
    known: Mutex<HashMap<String, HashMap<String, IpAddr>>>,
}

impl Directory {
    /// Replaces what is known of a cluster.
    pub fn replace(&self, uid: &str, met: impl IntoIterator<Item = (String, IpAddr)>) {
        self.known
            .lock()
            .insert(uid.to_owned(), met.into_iter().collect());
    }

    /// Notes that a cluster was looked at, without news about its brokers.
    pub fn looked_at(&self, uid: &str) {
        self.known.lock().entry(uid.to_owned()).or_default();
    }

    /// Forgets a cluster.
    pub fn forget(&self, uid: &str) {
        self.known.lock().remove(uid);
    }

    /// Whether a cluster was looked at since the start.
    pub fn knows(&self, uid: &str) -> bool {
        self.known.lock().contains_key(uid)
    }

    /// Where a broker was last met.
    pub fn find(&self, uid: &str, pod: &str) -> Option<IpAddr> {
        self.known.lock().get(uid)?.get(pod).copied()
    }
}

impl Context {
    /// Calls for a broker or a name server, `ip:port`.
    pub fn admin(&self, address: &str) -> &Admin {
        self.access.admin(address)
    }

    /// The API of a kind in one namespace.
    pub fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The API of a kind in one watched namespace, or in all for an empty name.
    pub fn watched<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match namespace {
            "" => Api::all(self.client.clone()),
            one => Api::namespaced(self.client.clone(), one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_replaces_only_its_own_entries() {
        let directory = Directory::default();
        let ip = |n| IpAddr::from([10, 0, 0, n]);
        directory.replace("a", [("x-0-0".to_owned(), ip(1)), ("x-1-0".to_owned(), ip(2))]);
        directory.replace("b", [("x-0-0".to_owned(), ip(3))]);
        directory.replace("a", [("x-1-0".to_owned(), ip(4))]);
        assert_eq!(directory.find("a", "x-0-0"), None);
        assert_eq!(directory.find("a", "x-1-0"), Some(ip(4)));
        assert_eq!(directory.find("b", "x-0-0"), Some(ip(3)));
        directory.looked_at("a");
        assert_eq!(directory.find("a", "x-1-0"), Some(ip(4)));
        directory.forget("a");
        assert!(!directory.knows("a") && directory.knows("b"));
        directory.looked_at("c");
        assert!(directory.knows("c"));
    }
}
