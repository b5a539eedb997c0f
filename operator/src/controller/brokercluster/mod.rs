//! Reconciles a `BrokerCluster`: dereference → validate → build → apply → status.

pub mod build;
pub mod dereference;
pub mod roll;
pub mod status;
pub mod validate;

use crate::apply;
use crate::broker_status::{self, Expected, Report, ReportError};
use crate::context::Context;
use crate::controller::{changed_by_hand, finish, in_time};
use crate::crd::BrokerCluster;
use crate::crd::condition::READY;
use crate::digest;
use crate::error::Error;
use crate::names;
use dereference::{Observed, claimed, dereference};
use futures::StreamExt;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use status::{Outcome, Reports, status};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio_util::sync::CancellationToken;
use validate::{ValidCluster, validate};

const KIND: &str = "BrokerCluster";
/// Brokers asked for their status at the same time.
const ASKED_AT_ONCE: usize = 16;

/// Runs until `stop`, then ends the passes that have begun.
pub async fn run(cx: Arc<Context>, stop: CancellationToken) {
    let (reader, writer) = reflector::store();
    let clusters = watcher(cx.watched::<BrokerCluster>(), watcher::Config::default())
        .default_backoff()
        .reflect(writer)
        .applied_objects()
        .predicate_filter(
            |c: &BrokerCluster| Some(changed_by_hand(c)),
            kube::runtime::PredicateConfig::default(),
        );
    let ours = watcher::Config::default().labels(&format!("app.kubernetes.io/managed-by={}", names::MANAGER));
    Controller::for_stream(clusters, reader)
        .with_config(Config::default().concurrency(cx.settings.concurrency))
        .owns(cx.watched::<Service>(), ours.clone())
        .owns(cx.watched::<ConfigMap>(), ours.clone())
        .owns(cx.watched::<Deployment>(), ours.clone())
        .owns(cx.watched::<StatefulSet>(), ours)
        .graceful_shutdown_on(stop.cancelled_owned())
        .run(
            pass,
            |_, _, cx| Action::requeue(cx.settings.retry()),
            Arc::clone(&cx),
        )
        .for_each(|ended| {
            crate::controller::log_end(KIND, ended);
            std::future::ready(())
        })
        .await;
}

async fn pass(cluster: Arc<BrokerCluster>, cx: Arc<Context>) -> Result<Action, Error> {
    let _under_way = cx.passes.token();
    let begun = Instant::now();
    let result = in_time(reconcile(&cluster, &cx)).await;
    finish(&cx, KIND, begun, &result);
    result
}

async fn reconcile(cluster: &BrokerCluster, cx: &Context) -> Result<Action, Error> {
    let name = cluster.name_any();
    let namespace = cluster.namespace().unwrap_or_default();
    let uid = cluster.uid().unwrap_or_default();
    if cluster.meta().deletion_timestamp.is_some() {
        // Everything made here carries an owner reference and goes with the resource.
        cx.directory.forget(&uid);
        return Ok(Action::await_change());
    }
    let mut observed = dereference(cx, &namespace, &name).await?;
    let (valid, outcome) = match validate(cluster, &observed.existing()) {
        Err(faults) => (None, Outcome::Invalid(faults.to_string())),
        Ok(valid) if cluster.spec.paused => (Some(valid), Outcome::Paused),
        Ok(valid) => {
            let outcome = match put_in_place(cx, &valid, &mut observed).await {
                Ok(outcome) => outcome,
                Err(error) if error.needs_a_person() => Outcome::Refused(error.to_string()),
                Err(error) => return Err(error),
            };
            (Some(valid), outcome)
        }
    };
    let reports = if let Some(valid) = &valid {
        ask_brokers(cx, valid, &observed, &uid).await
    } else {
        cx.directory.looked_at(&uid);
        Reports::new()
    };
    let now = Time(jiff::Timestamp::now());
    let fresh = status(cluster, valid.as_ref(), &observed, &reports, &outcome, &now);
    let ready = fresh
        .conditions
        .iter()
        .any(|c| c.type_ == READY && c.status == "True");
    if cluster.status.as_ref() != Some(&fresh) {
        let patch = json!({
            "apiVersion": BrokerCluster::api_version(&()),
            "kind": KIND,
            "metadata": {"name": name},
            "status": fresh,
        });
        let written = cx
            .api::<BrokerCluster>(&namespace)
            .patch_status(
                &name,
                &PatchParams::apply(names::MANAGER).force(),
                &Patch::Apply(&patch),
            )
            .await;
        match written {
            Ok(_) => {}
            // Deleted since.
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(Action::await_change()),
            Err(e) => return Err(Error::api(format!("write the status of {name}"))(e)),
        }
        cx.metrics.wrote("BrokerClusterStatus");
    }
    Ok(Action::requeue(
        if ready || matches!(outcome, Outcome::Invalid(_)) {
            cx.settings.resync()
        } else {
            cx.settings.retry()
        },
    ))
}

/// Writes what differs: the token, all objects, and larger volumes.
async fn put_in_place(cx: &Context, valid: &ValidCluster, observed: &mut Observed) -> Result<Outcome, Error> {
    make_token(cx, valid).await?;
    let storage_notes = grow_claims(cx, valid, observed).await?;
    let uid = &valid.owner.uid;
    let mut plan = build::build(valid, &observed.facts(valid));
    let mut held = roll::hold_back(&mut plan, &observed.live, uid);
    apply::apply(cx, &valid.namespace, uid, &plan, &mut observed.live).await?;
    if !plan.waiting.is_empty() {
        // The Services were just made; the answers to that hold their addresses.
        plan = build::build(valid, &observed.facts(valid));
        held = roll::hold_back(&mut plan, &observed.live, uid);
        apply::apply(cx, &valid.namespace, uid, &plan, &mut observed.live).await?;
    }
    Ok(Outcome::Applied {
        waiting: plan.waiting,
        held,
        storage_notes,
    })
}

/// Makes the Secret with the HTTP token if there is none. It is never written again: brokers hold the token.
async fn make_token(cx: &Context, valid: &ValidCluster) -> Result<(), Error> {
    let api = cx.api::<Secret>(&valid.namespace);
    let name = names::http_secret(&valid.name);
    let found = api
        .get_opt(&name)
        .await
        .map_err(Error::api(format!("look for Secret {name}")))?;
    if let Some(found) = found {
        let ours = found.owner_references().iter().any(|o| o.uid == valid.owner.uid);
        return if ours {
            Ok(())
        } else {
            Err(Error::NameTaken { kind: "Secret", name })
        };
    }
    let token = digest::hex(&rand::random::<[u8; 32]>());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(valid.namespace.clone()),
            labels: Some(names::common(&valid.name)),
            owner_references: Some(vec![valid.owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(
            "token".to_owned(),
            ByteString(token.into_bytes()),
        )])),
        ..Secret::default()
    };
    let parameters = PostParams {
        field_manager: Some(names::MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&parameters, &secret).await {
        Ok(_) => {
            cx.metrics.wrote("Secret");
            Ok(())
        }
        // Made since; the next pass looks whose it is.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(e) => Err(Error::api(format!("create Secret {name}"))(e)),
    }
}

/// Asks for larger volumes. A refusal is told and does not hold up the rest.
async fn grow_claims(
    cx: &Context,
    valid: &ValidCluster,
    observed: &mut Observed,
) -> Result<Vec<String>, Error> {
    let api = cx.api::<PersistentVolumeClaim>(&valid.namespace);
    let mut notes = Vec::new();
    for group in &valid.groups {
        for ordinal in 0..valid.replicas {
            let name = names::claim(&valid.name, group.index, ordinal);
            let Some(claim) = observed.claims.get(&name) else {
                continue;
            };
            // One that has no volume yet cannot be changed; it is looked at again.
            if !is_bound(claim) || claimed(claim).is_none_or(|bytes| bytes >= valid.storage.bytes) {
                continue;
            }
            let patch = json!({"spec": {"resources": {"requests": {"storage": valid.storage.text}}}});
            let parameters = PatchParams {
                field_manager: Some(names::MANAGER.to_owned()),
                ..PatchParams::default()
            };
            match api.patch(&name, &parameters, &Patch::Merge(&patch)).await {
                Ok(grown) => {
                    cx.metrics.wrote("PersistentVolumeClaim");
                    tracing::info!(
                        namespace = valid.namespace,
                        claim = name,
                        size = valid.storage.text,
                        "volume grows"
                    );
                    observed.claims.insert(name, grown);
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                    // The API server adds a dump of the whole claim on further lines.
                    let why = status.message.lines().next().unwrap_or_default();
                    notes.push(format!(
                        "volume {name} cannot grow to {}: {why}",
                        valid.storage.text
                    ));
                }
                Err(e) => return Err(Error::api(format!("grow volume {name}"))(e)),
            }
        }
    }
    Ok(notes)
}

/// Where a broker was met and what it said.
type Answer = Result<(IpAddr, Report), ReportError>;

/// Asks every running broker for its status and notes where each one was met.
async fn ask_brokers(cx: &Context, valid: &ValidCluster, observed: &Observed, uid: &str) -> Reports {
    let mut questions = Vec::new();
    for group in &valid.groups {
        for ordinal in 0..valid.replicas {
            let pod = names::broker(&valid.name, group.index, ordinal);
            let Some(pod_ip) = observed.pods.get(&pod).and_then(pod_ip) else {
                continue;
            };
            let host = names::broker_host(&valid.name, &valid.namespace, group.index, ordinal);
            let expected = Expected {
                cluster_name: valid.cluster_name.clone(),
                broker_name: group.broker_name.clone(),
                broker_id: i64::from(ordinal),
                host: cx.by_name.then_some(host),
                pod_ip: Some(pod_ip),
                port: names::HTTP_PORT,
            };
            questions.push((pod, expected));
        }
    }
    let within = cx.settings.broker_timeout();
    let answers: Vec<(String, Answer)> = futures::stream::iter(questions)
        .map(|(pod, expected)| async move {
            let answer = broker_status::ask(&expected, within).await;
            (pod, answer)
        })
        .buffer_unordered(ASKED_AT_ONCE)
        .collect()
        .await;
    let met = answers.iter().filter_map(|(pod, answer)| {
        let (ip, report) = answer.as_ref().ok()?;
        (report.stage == "running").then(|| (pod.clone(), *ip))
    });
    cx.directory.replace(uid, met);
    answers
        .into_iter()
        .map(|(pod, answer)| (pod, answer.map(|(_, report)| report)))
        .collect()
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
}

fn pod_ip(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

#[cfg(test)]
mod pass_tests;
