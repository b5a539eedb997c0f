//! Disruption budgets: one pod of a kind at a time, and never a drain that cannot end.

use super::super::validate::{Group, ValidCluster};
use super::{ObjectKind, Wanted, wanted};
use crate::names::{self, Component};
use serde_json::json;

/// Budget of the name servers.
pub(super) fn namesrv(cluster: &ValidCluster) -> Wanted {
    budget(cluster, names::namesrv(&cluster.name), Component::NameServer)
}

/// Budget of a broker group.
pub(super) fn group(cluster: &ValidCluster, group: &Group) -> Wanted {
    budget(
        cluster,
        names::group(&cluster.name, group.index),
        Component::Broker(group.index),
    )
}

fn budget(cluster: &ValidCluster, name: String, component: Component) -> Wanted {
    // A broker that never becomes ready must not hold its node: unhealthy pods may always go.
    let body = json!({"spec": {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": names::selector(&cluster.name, component)},
    }});
    wanted(cluster, ObjectKind::PodDisruptionBudget, name, component, body)
}
