//! One module per kind; each goes dereference → validate → build → apply → status.

pub mod brokercluster;
pub mod consumergroup;
pub mod topic;

use crate::context::Context;
use crate::crd::BrokerCluster;
use crate::error::Error;
use k8s_openapi::api::core::v1::Namespace;
use kube::Resource;
use kube::api::Api;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// Longest time of a pass.
const LONGEST_PASS: Duration = Duration::from_mins(2);

/// Hashes all of an object that people and controllers change, but not its status: a status that the operator
/// writes must not wake it. (The uid is part of the filter's own key.)
fn changed_by_hand<K: Resource>(object: &K) -> u64 {
    let meta = object.meta();
    let mut hasher = DefaultHasher::new();
    meta.generation.hash(&mut hasher);
    meta.labels.hash(&mut hasher);
    meta.annotations.hash(&mut hasher);
    meta.finalizers.hash(&mut hasher);
    meta.deletion_timestamp
        .as_ref()
        .map(|t| t.0.as_second())
        .hash(&mut hasher);
    hasher.finish()
}

/// Ends a pass that takes too long: calls to the API server have no time-out of their own, and a pass that hangs would
/// keep its resource from ever being looked at again.
async fn in_time(pass: impl Future<Output = Result<Action, Error>>) -> Result<Action, Error> {
    tokio::time::timeout(LONGEST_PASS, Box::pin(pass))
        .await
        .unwrap_or(Err(Error::TooLong(LONGEST_PASS)))
}

/// Counts a pass, and logs why it failed.
fn finish(cx: &Context, kind: &'static str, begun: Instant, result: &Result<Action, Error>) {
    let word = result.as_ref().err().map_or("ok", Error::word);
    cx.metrics.passed(kind, word, begun.elapsed());
}

/// What of a BrokerCluster changes the fate of Topics and ConsumerGroups: its existence, its groups, and which brokers
/// are ready.
fn matters_to_tables(cluster: &BrokerCluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.metadata.uid.hash(&mut hasher);
    cluster.metadata.generation.hash(&mut hasher);
    cluster.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    for row in cluster.status.iter().flat_map(|s| &s.brokers) {
        (&row.name, row.ready, &row.stage).hash(&mut hasher);
    }
    for row in cluster.status.iter().flat_map(|s| &s.group_states) {
        (row.index, &row.stage).hash(&mut hasher);
    }
    hasher.finish()
}

/// Whether the namespace is being deleted: then nothing may hold it up.
async fn is_leaving(cx: &Context, namespace: &str) -> Result<bool, Error> {
    let found = Api::<Namespace>::all(cx.client.clone())
        .get_opt(namespace)
        .await
        .map_err(Error::api(format!("look at namespace {namespace}")))?;
    Ok(found.is_none_or(|n| n.metadata.deletion_timestamp.is_some()))
}

/// Logs how a pass ended.
fn log_end<K: Resource>(
    kind: &str,
    ended: Result<(ObjectRef<K>, Action), kube::runtime::controller::Error<Error, watcher::Error>>,
) where
    K::DynamicType: std::fmt::Debug,
{
    use kube::runtime::controller::Error as Ended;
    match ended {
        Ok((object, _)) => tracing::debug!(
            kind,
            name = object.name,
            namespace = object.namespace,
            "pass ended"
        ),
        Err(Ended::ReconcilerFailed(error, object)) => {
            tracing::warn!(kind, name = object.name, namespace = object.namespace, %error, "pass failed and is tried again");
        }
        // The object went between the event and the pass.
        Err(Ended::ObjectNotFound(_)) => {}
        Err(error) => tracing::warn!(kind, %error, "watching failed and is tried again"),
    }
}
