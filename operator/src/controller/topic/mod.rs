//! Reconciles a `Topic`: one RocketMQ topic on the master of every group of a cluster.
//!
//! Brokers are compared with the resource on every pass, so a topic that was changed or deleted by hand comes back
//! within the resync period. A finalizer exists only while the deletion policy is Delete, and gives way when the
//! cluster or the namespace is going anyway.

pub(crate) mod brokers;
pub mod build;
pub mod status;
pub mod validate;

use crate::context::Context;
use crate::controller::{changed_by_hand, finish, in_time, is_leaving, matters_to_tables};
use crate::crd::condition::READY;
use crate::crd::topic::DeletionPolicy;
use crate::crd::{BrokerCluster, Topic};
use crate::error::Error;
use crate::names;
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use status::{Outcome, status};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use validate::{claimants, cluster_ref, groups, validate};

const KIND: &str = "Topic";
/// Pause while nothing is known of the clusters yet, right after a start.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// What a pass over a Topic needs.
struct Shared {
    cx: Arc<Context>,
    topics: Store<Topic>,
    clusters: Store<BrokerCluster>,
}

/// Runs until `stop`, then ends the passes that have begun.
pub async fn run(cx: Arc<Context>, namespace: String, stop: CancellationToken) {
    let (topics, topic_writer) = reflector::store();
    let (clusters, cluster_writer) = reflector::store();
    let topic_events = watcher(cx.watched::<Topic>(&namespace), watcher::Config::default())
        .default_backoff()
        .reflect(topic_writer)
        .applied_objects()
        .predicate_filter(
            |t: &Topic| Some(changed_by_hand(t)),
            kube::runtime::PredicateConfig::default(),
        );
    let cluster_events = watcher(
        cx.watched::<BrokerCluster>(&namespace),
        watcher::Config::default(),
    )
    .default_backoff()
    .reflect(cluster_writer)
    .touched_objects()
    .predicate_filter(
        |c: &BrokerCluster| Some(matters_to_tables(c)),
        kube::runtime::PredicateConfig::default(),
    );
    let known = topics.clone();
    let of_cluster = move |cluster: BrokerCluster| {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        known
            .state_filter(|t: &Topic| t.metadata.namespace == namespace && t.spec.cluster == name)
            .iter()
            .map(|t| ObjectRef::from_obj(t.as_ref()))
            .collect::<Vec<_>>()
    };
    let shared = Arc::new(Shared {
        cx: Arc::clone(&cx),
        topics: topics.clone(),
        clusters,
    });
    Controller::for_stream(topic_events, topics)
        .with_config(Config::default().concurrency(cx.settings.concurrency))
        .watches_stream(cluster_events, of_cluster)
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            pass,
            |_, _, shared| Action::requeue(shared.cx.settings.retry()),
            shared,
        )
        .for_each(|ended| {
            crate::controller::log_end(KIND, ended);
            std::future::ready(())
        })
        .await;
}

async fn pass(topic: Arc<Topic>, shared: Arc<Shared>) -> Result<Action, Error> {
    let _under_way = shared.cx.passes.token();
    let begun = Instant::now();
    let result = in_time(reconcile(&topic, &shared)).await;
    finish(&shared.cx, KIND, begun, &result);
    result
}

async fn reconcile(topic: &Topic, shared: &Shared) -> Result<Action, Error> {
    let cx = &shared.cx;
    let namespace = topic.namespace().unwrap_or_default();
    // An empty store before the first list would read as "there is no cluster". Not awaited: of several passes that wait
    // for one store only the last is woken.
    if !matches!(shared.clusters.wait_until_ready().now_or_never(), Some(Ok(()))) {
        return Ok(Action::requeue(FIRST_LOOK));
    }
    let cluster = shared
        .clusters
        .get(&ObjectRef::new(&topic.spec.cluster).within(&namespace));
    let others = shared.topics.state();
    if topic.metadata.deletion_timestamp.is_some() {
        return leave(cx, topic, &namespace, cluster.as_deref(), &others).await;
    }
    let wants_finalizer = topic.spec.deletion_policy == DeletionPolicy::Delete;
    if wants_finalizer != has_finalizer(topic) {
        set_finalizer(cx, topic, &namespace, wants_finalizer).await?;
    }
    let outcome = match validate(topic, cluster.as_deref(), &others) {
        Err(obstacle) => Outcome::Hindered(obstacle),
        // Right after a start nothing is known of the brokers yet; that must not read as "they are gone".
        Ok(want) if !cx.directory.knows(&want.cluster.uid) => return Ok(Action::requeue(FIRST_LOOK)),
        Ok(want) => Outcome::Looked(brokers::sync(cx, &want).await),
    };
    let fresh = write_status(cx, topic, &namespace, &outcome).await?;
    let settled = fresh || matches!(&outcome, Outcome::Hindered(_));
    Ok(Action::requeue(if settled {
        cx.settings.resync()
    } else {
        cx.settings.retry()
    }))
}

/// Writes the status if it changed; tells whether the Topic is ready.
async fn write_status(
    cx: &Context,
    topic: &Topic,
    namespace: &str,
    outcome: &Outcome,
) -> Result<bool, Error> {
    let name = topic.name_any();
    let fresh = status(topic, outcome, &Time(jiff::Timestamp::now()));
    let ready = fresh
        .conditions
        .iter()
        .any(|c| c.type_ == READY && c.status == "True");
    if topic.status.as_ref() != Some(&fresh) {
        let patch = json!({
            "apiVersion": Topic::api_version(&()),
            "kind": KIND,
            "metadata": {"name": name},
            "status": fresh,
        });
        let written = cx
            .api::<Topic>(namespace)
            .patch_status(
                &name,
                &PatchParams::apply(names::MANAGER).force(),
                &Patch::Apply(&patch),
            )
            .await;
        match written {
            Ok(_) => cx.metrics.wrote("TopicStatus"),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(e) => return Err(Error::api(format!("write the status of {name}"))(e)),
        }
    }
    Ok(ready)
}

fn has_finalizer(topic: &Topic) -> bool {
    topic.finalizers().iter().any(|f| f == names::TOPIC_FINALIZER)
}

async fn set_finalizer(cx: &Context, topic: &Topic, namespace: &str, wanted: bool) -> Result<(), Error> {
    let mut finalizers: Vec<&str> = topic
        .finalizers()
        .iter()
        .map(String::as_str)
        .filter(|f| *f != names::TOPIC_FINALIZER)
        .collect();
    if wanted {
        finalizers.push(names::TOPIC_FINALIZER);
    }
    // The version guards the finalizers of others: a change in between is a conflict, and the next pass sees it.
    let patch = json!({"metadata": {
        "resourceVersion": topic.resource_version(),
        "finalizers": finalizers,
    }});
    let name = topic.name_any();
    let parameters = PatchParams {
        field_manager: Some(names::MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match cx
        .api::<Topic>(namespace)
        .patch(&name, &parameters, &Patch::Merge(&patch))
        .await
    {
        Ok(_) => {
            cx.metrics.wrote("Topic");
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(e) => Err(Error::api(format!("write the finalizers of {name}"))(e)),
    }
}

/// Deletes the topic from the brokers if that is wanted and still possible, then lets the resource go.
async fn leave(
    cx: &Context,
    topic: &Topic,
    namespace: &str,
    cluster: Option<&BrokerCluster>,
    others: &[Arc<Topic>],
) -> Result<Action, Error> {
    if !has_finalizer(topic) {
        return Ok(Action::await_change());
    }
    let claimed = claimants(topic, others).next().is_some();
    let living = cluster.filter(|c| c.metadata.deletion_timestamp.is_none());
    let delete = topic.spec.deletion_policy == DeletionPolicy::Delete && !claimed;
    if let (true, Some(cluster)) = (delete, living)
        && !is_leaving(cx, namespace).await?
    {
        let gone = brokers::delete(
            cx,
            namespace,
            &cluster_ref(cluster),
            &groups(cluster),
            topic.topic_name(),
        )
        .await;
        if let Err(why) = gone {
            let text = format!(
                "waiting to delete the topic on {why}; it is tried again, and deletionPolicy Retain lets the resource go without it"
            );
            write_status(cx, topic, namespace, &Outcome::Leaving(text)).await?;
            return Ok(Action::requeue(cx.settings.retry()));
        }
        tracing::info!(
            topic = topic.topic_name(),
            namespace,
            "topic deleted from its brokers"
        );
    }
    set_finalizer(cx, topic, namespace, false).await?;
    Ok(Action::await_change())
}
