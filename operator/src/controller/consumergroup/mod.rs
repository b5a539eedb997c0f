//! Reconciles a `ConsumerGroup`: one RocketMQ subscription group on the master of every group of a cluster.
//!
//! As with Topics, brokers are compared with the resource on every pass, the oldest of several claims wins, and a
//! finalizer exists only while the deletion policy is Delete.

pub mod decide;

use crate::context::Context;
use crate::controller::topic::brokers::{known, master_address, prove};
use crate::controller::topic::status::{SYNCED, UNREACHABLE};
use crate::controller::topic::validate::{cluster_ref, groups};
use crate::controller::{changed_by_hand, finish, in_time, is_leaving, matters_to_tables};
use crate::crd::consumer_group::{ConsumerGroupStatus, GroupOnBroker};
use crate::crd::topic::DeletionPolicy;
use crate::crd::{BrokerCluster, ConsumerGroup};
use crate::error::Error;
use crate::names;
use decide::{Outcome, ValidGroup, change, claimants, status, validate};
use futures::{FutureExt, StreamExt};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

const KIND: &str = "ConsumerGroup";
/// Pause while nothing is known of the clusters yet, right after a start.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// What a pass needs.
struct Shared {
    cx: Arc<Context>,
    all: Store<ConsumerGroup>,
    clusters: Store<BrokerCluster>,
}

/// Runs until `stop`, then ends the passes that have begun.
pub async fn run(cx: Arc<Context>, namespace: String, stop: CancellationToken) {
    let (all, writer) = reflector::store();
    let (clusters, cluster_writer) = reflector::store();
    let events = watcher(
        cx.watched::<ConsumerGroup>(&namespace),
        watcher::Config::default(),
    )
    .default_backoff()
    .reflect(writer)
    .applied_objects()
    .predicate_filter(
        |g: &ConsumerGroup| Some(changed_by_hand(g)),
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
    let seen = all.clone();
    let of_cluster = move |cluster: BrokerCluster| {
        let (namespace, name) = (cluster.namespace(), cluster.name_any());
        seen.state_filter(|g: &ConsumerGroup| g.metadata.namespace == namespace && g.spec.cluster == name)
            .iter()
            .map(|g| ObjectRef::from_obj(g.as_ref()))
            .collect::<Vec<_>>()
    };
    let shared = Arc::new(Shared {
        cx: Arc::clone(&cx),
        all: all.clone(),
        clusters,
    });
    Controller::for_stream(events, all)
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

async fn pass(group: Arc<ConsumerGroup>, shared: Arc<Shared>) -> Result<Action, Error> {
    let _under_way = shared.cx.passes.token();
    let begun = Instant::now();
    let result = in_time(reconcile(&group, &shared)).await;
    finish(&shared.cx, KIND, begun, &result);
    result
}

async fn reconcile(group: &ConsumerGroup, shared: &Shared) -> Result<Action, Error> {
    let cx = &shared.cx;
    let namespace = group.namespace().unwrap_or_default();
    // An empty store before the first list would read as "there is no cluster".
    if !matches!(shared.clusters.wait_until_ready().now_or_never(), Some(Ok(()))) {
        return Ok(Action::requeue(FIRST_LOOK));
    }
    let cluster = shared
        .clusters
        .get(&ObjectRef::new(&group.spec.cluster).within(&namespace));
    let others = shared.all.state();
    if group.metadata.deletion_timestamp.is_some() {
        return leave(cx, group, &namespace, cluster.as_deref(), &others).await;
    }
    let wants_finalizer = group.spec.deletion_policy == DeletionPolicy::Delete;
    if wants_finalizer != has_finalizer(group) {
        set_finalizer(cx, group, &namespace, wants_finalizer).await?;
    }
    let outcome = match validate(group, cluster.as_deref(), &others) {
        Err(obstacle) => Outcome::Hindered(obstacle),
        Ok(want) if !cx.directory.knows(&want.cluster.uid) => return Ok(Action::requeue(FIRST_LOOK)),
        Ok(want) => Outcome::Looked(sync(cx, &want).await),
    };
    let ready = write_status(cx, group, &namespace, &outcome).await?;
    let settled = ready || matches!(&outcome, Outcome::Hindered(_));
    Ok(Action::requeue(if settled {
        cx.settings.resync()
    } else {
        cx.settings.retry()
    }))
}

async fn sync(cx: &Context, want: &ValidGroup) -> Vec<GroupOnBroker> {
    let mut rows = Vec::new();
    for on in &want.groups {
        let put = put_right(cx, want, on).await;
        rows.push(GroupOnBroker {
            broker_name: on.broker_name.clone(),
            state: if put.is_ok() { SYNCED } else { UNREACHABLE }.to_owned(),
            message: put.err(),
        });
    }
    rows
}

async fn put_right(
    cx: &Context,
    want: &ValidGroup,
    on: &crate::controller::brokercluster::validate::Group,
) -> Result<(), String> {
    let ip = known(cx, &want.cluster, on)?;
    let address = master_address(ip);
    let table = cx
        .admin(&address)
        .groups(&address)
        .await
        .map_err(|e| e.to_string())?;
    let Some(config) = change(
        table.subscription_group_table.get(&want.config.group_name),
        &want.config,
    ) else {
        return Ok(());
    };
    prove(cx, &want.cluster, on, ip).await?;
    cx.admin(&address)
        .upsert_group(&address, &config)
        .await
        .map_err(|e| e.to_string())?;
    cx.metrics.wrote("BrokerGroup");
    tracing::info!(
        group = config.group_name,
        broker = on.broker_name,
        "consumer group put right on a broker"
    );
    Ok(())
}

async fn write_status(
    cx: &Context,
    group: &ConsumerGroup,
    namespace: &str,
    outcome: &Outcome,
) -> Result<bool, Error> {
    let name = group.name_any();
    let fresh: ConsumerGroupStatus = status(group, outcome, &Time(jiff::Timestamp::now()));
    let ready = fresh
        .conditions
        .iter()
        .any(|c| c.type_ == crate::crd::condition::READY && c.status == "True");
    if group.status.as_ref() != Some(&fresh) {
        let patch = json!({
            "apiVersion": ConsumerGroup::api_version(&()),
            "kind": KIND,
            "metadata": {"name": name},
            "status": fresh,
        });
        let written = cx
            .api::<ConsumerGroup>(namespace)
            .patch_status(
                &name,
                &PatchParams::apply(names::MANAGER).force(),
                &Patch::Apply(&patch),
            )
            .await;
        match written {
            Ok(_) => cx.metrics.wrote("ConsumerGroupStatus"),
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(e) => return Err(Error::api(format!("write the status of {name}"))(e)),
        }
    }
    Ok(ready)
}

fn has_finalizer(group: &ConsumerGroup) -> bool {
    group.finalizers().iter().any(|f| f == names::GROUP_FINALIZER)
}

async fn set_finalizer(
    cx: &Context,
    group: &ConsumerGroup,
    namespace: &str,
    wanted: bool,
) -> Result<(), Error> {
    let mut finalizers: Vec<&str> = group
        .finalizers()
        .iter()
        .map(String::as_str)
        .filter(|f| *f != names::GROUP_FINALIZER)
        .collect();
    if wanted {
        finalizers.push(names::GROUP_FINALIZER);
    }
    // The version guards the finalizers of others.
    let patch = json!({"metadata": {
        "resourceVersion": group.resource_version(),
        "finalizers": finalizers,
    }});
    let name = group.name_any();
    let parameters = PatchParams {
        field_manager: Some(names::MANAGER.to_owned()),
        ..PatchParams::default()
    };
    match cx
        .api::<ConsumerGroup>(namespace)
        .patch(&name, &parameters, &Patch::Merge(&patch))
        .await
    {
        Ok(_) => {
            cx.metrics.wrote(KIND);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(e) => Err(Error::api(format!("write the finalizers of {name}"))(e)),
    }
}

/// Deletes the group from the brokers if that is wanted and still possible, then lets the resource go.
async fn leave(
    cx: &Context,
    group: &ConsumerGroup,
    namespace: &str,
    cluster: Option<&BrokerCluster>,
    others: &[Arc<ConsumerGroup>],
) -> Result<Action, Error> {
    if !has_finalizer(group) {
        return Ok(Action::await_change());
    }
    let claimed = claimants(group, others).next().is_some();
    let living = cluster.filter(|c| c.metadata.deletion_timestamp.is_none());
    let delete = group.spec.deletion_policy == DeletionPolicy::Delete && !claimed;
    if let (true, Some(cluster)) = (delete, living)
        && !is_leaving(cx, namespace).await?
        && let Err(why) = delete_everywhere(cx, cluster, group.group_name()).await
    {
        let text = format!(
            "waiting to delete the group on {why}; it is tried again, and deletionPolicy Retain lets the resource go without it"
        );
        write_status(cx, group, namespace, &Outcome::Leaving(text)).await?;
        return Ok(Action::requeue(cx.settings.retry()));
    }
    set_finalizer(cx, group, namespace, false).await?;
    Ok(Action::await_change())
}

async fn delete_everywhere(cx: &Context, cluster: &BrokerCluster, name: &str) -> Result<(), String> {
    let of = cluster_ref(cluster);
    for on in groups(cluster) {
        let named = |why: String| format!("{}: {why}", on.broker_name);
        let ip = known(cx, &of, &on).map_err(named)?;
        prove(cx, &of, &on, ip).await.map_err(named)?;
        match cx
            .admin(&master_address(ip))
            .delete_group(&master_address(ip), name, true)
            .await
        {
            Ok(()) => cx.metrics.wrote("BrokerGroup"),
            Err(e) if e.is_not_found() => {}
            Err(e) => return Err(named(e.to_string())),
        }
    }
    Ok(())
}
