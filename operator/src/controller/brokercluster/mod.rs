//! Reconciles a `BrokerCluster`: dereference → validate → build → apply → status.

pub mod build;
pub mod dereference;
pub mod groups;
mod kv;
pub mod live;
mod retention;
pub mod roll;
mod secrets;
pub mod status;
pub mod validate;
mod volumes;

use crate::access::Means;
use crate::apply;
use crate::broker_status::{self, Expected, Report, ReportError};
use crate::context::Context;
use crate::controller::{changed_by_hand, finish, in_time};
use crate::crd::BrokerCluster;
use crate::crd::broker_cluster::Approval;
use crate::crd::condition::{CONSUMED, READY, RETENTION};
use crate::digest;
use crate::error::Error;
use crate::events::{Weight, tell};
use crate::names;
use dereference::{Observed, dereference};
use futures::StreamExt;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::{Action, Config};
use kube::runtime::{Controller, WatchStreamExt, reflector, watcher};
use kube::{Resource, ResourceExt};
use serde_json::json;
use status::{Applied, Outcome, Reports, status};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;
use validate::{ValidCluster, validate};

const KIND: &str = "BrokerCluster";
/// Brokers asked for their status at the same time.
const ASKED_AT_ONCE: usize = 16;
/// Pause after a step of a roll, before the next one is planned.
const AFTER_A_STEP: Duration = Duration::from_millis(500);

/// Runs until `stop`, then ends the passes that have begun.
pub async fn run(cx: Arc<Context>, namespace: String, stop: CancellationToken) {
    let (reader, writer) = reflector::store();
    let clusters = watcher(
        cx.watched::<BrokerCluster>(&namespace),
        watcher::Config::default(),
    )
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
        .owns(cx.watched::<Service>(&namespace), ours.clone())
        .owns(cx.watched::<ConfigMap>(&namespace), ours.clone())
        .owns(cx.watched::<Deployment>(&namespace), ours.clone())
        .owns(cx.watched::<StatefulSet>(&namespace), ours)
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
        cx.access.forget(&uid);
        cx.said.forget(&uid);
        return Ok(Action::await_change());
    }
    let mut observed = dereference(cx, &namespace, &name).await?;
    let mut reports = Reports::new();
    let (valid, outcome) = match validate(cluster, &observed.existing()) {
        Err(faults) => {
            cx.directory.looked_at(&uid);
            (None, Outcome::Invalid(faults.to_string()))
        }
        Ok(valid) => {
            let secrets = if cluster.spec.paused {
                secrets::look(cx, &valid).await
            } else {
                secrets::settle(cx, &valid).await
            };
            if let Ok(secrets) = &secrets {
                observed.trusted = secrets.trusted;
                let means = Means {
                    credentials: secrets.credentials.clone(),
                    encrypted: valid.tls.is_some(),
                };
                cx.access
                    .replace(&uid, observed.pods.values().filter_map(pod_ip), means);
            }
            let met;
            (reports, met) = ask_brokers(cx, &valid, &observed, &uid).await;
            let outcome = if cluster.spec.paused {
                Outcome::Paused
            } else if let Err(error) = secrets {
                refused(error)?
            } else {
                let token = secrets.map(|secrets| secrets.token).unwrap_or_default();
                let heard = Heard {
                    configs: live::read(cx, &reports, &met).await,
                    reports: &reports,
                    met,
                };
                let put = Box::pin(put_in_place(cx, cluster, &valid, &token, &mut observed, &heard));
                match put.await {
                    Ok(applied) => Outcome::Applied(Box::new(applied)),
                    Err(error) => refused(error)?,
                }
            };
            (Some(valid), outcome)
        }
    };
    say_outcome(cx, cluster, &outcome).await;
    let now = Time(jiff::Timestamp::now());
    let fresh = status(cluster, valid.as_ref(), &observed, &reports, &outcome, &now);
    let ready = fresh
        .conditions
        .iter()
        .any(|c| c.type_ == READY && c.status == "True");
    say_warnings(cx, cluster, &fresh.conditions).await;
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
    let again = match &outcome {
        Outcome::Applied(applied) if applied.acted => cx.settings.retry().min(AFTER_A_STEP),
        _ if ready || matches!(outcome, Outcome::Invalid(_)) => cx.settings.resync(),
        _ => cx.settings.retry(),
    };
    Ok(Action::requeue(again))
}

/// What a person has to see to; anything else ends the pass.
fn refused(error: Error) -> Result<Outcome, Error> {
    if error.needs_a_person() {
        Ok(Outcome::Refused(error.to_string()))
    } else {
        Err(error)
    }
}

/// What brokers told.
#[derive(Debug)]
struct Heard<'a> {
    reports: &'a Reports,
    met: BTreeMap<String, IpAddr>,
    configs: live::Configs,
}

/// A spec that cannot be put in place is said once.
async fn say_outcome(cx: &Context, cluster: &BrokerCluster, outcome: &Outcome) {
    let (reason, text) = match outcome {
        Outcome::Invalid(text) => ("InvalidSpec", text.as_str()),
        Outcome::Refused(text) => ("ApplyRefused", text.as_str()),
        Outcome::Paused | Outcome::Applied(_) => ("", ""),
    };
    let uid = cluster.uid().unwrap_or_default();
    if cx.said.is_news(&uid, "outcome", text) {
        tell(cx, cluster, Weight::Warning, reason, text).await;
    }
}

/// What consumers and volumes are warned of is said once.
async fn say_warnings(cx: &Context, cluster: &BrokerCluster, conditions: &[Condition]) {
    let uid = cluster.uid().unwrap_or_default();
    for kind in [RETENTION, CONSUMED] {
        let failing = conditions.iter().find(|c| c.type_ == kind && c.status == "False");
        let text = failing.map_or("", |c| c.message.as_str());
        if cx.said.is_news(&uid, kind, text)
            && let Some(condition) = failing
        {
            tell(cx, cluster, Weight::Warning, &condition.reason, text).await;
        }
    }
}

/// Writes what differs: larger volumes, all objects, one step of the roll, settings, and groups on their way.
async fn put_in_place(
    cx: &Context,
    cluster: &BrokerCluster,
    valid: &ValidCluster,
    token: &str,
    observed: &mut Observed,
    heard: &Heard<'_>,
) -> Result<Applied, Error> {
    let storage_notes = volumes::grow(cx, cluster, valid, observed, heard.reports).await?;
    let uid = &valid.owner.uid;
    let (mut wanted, mut roll, rules, id) = decide(valid, observed, heard);
    apply::apply(cx, &valid.namespace, uid, &wanted, &mut observed.live).await?;
    if !wanted.waiting.is_empty() {
        // The Services were just made; the answers to that hold their addresses.
        (wanted, roll, _, _) = decide(valid, observed, heard);
        apply::apply(cx, &valid.namespace, uid, &wanted, &mut observed.live).await?;
    }
    let known = roll::act::Known {
        resource: cluster,
        valid,
        observed,
        reports: heard.reports,
        token,
    };
    roll::act::act(cx, known, &roll).await?;
    let capacity = observed.facts(valid).claimed_bytes;
    let settled = live::settle(cx, valid, &heard.configs, &heard.met, &capacity).await;
    for (pod, keys) in &settled.sent {
        let text = format!("{pod} was told, while it runs: {}", keys.join(", "));
        tell(cx, cluster, Weight::Normal, "SettingsChanged", &text).await;
    }
    let mut faults = settled.faults;
    faults.extend(kv::settle(cx, valid, &roll::observe::name_servers(observed)).await);
    let group_rows = groups::settle(
        cx,
        groups::Known {
            resource: cluster,
            valid,
            observed,
            configs: &heard.configs,
            met: &heard.met,
        },
    )
    .await?;
    let seen = roll::observe::groups(
        valid,
        &unheld(valid, observed),
        observed,
        heard.reports,
        &heard.configs,
    );
    Ok(Applied {
        waiting: wanted.waiting,
        storage_notes,
        rollout: status::rollout(valid, &seen, &roll, &rules, &id),
        groups: group_rows,
        drift: settled.drift,
        faults,
        acted: roll.steps.iter().any(|s| !matches!(s, roll::Step::Apply(_))),
    })
}

fn unheld(valid: &ValidCluster, observed: &Observed) -> build::Plan {
    build::build(valid, &observed.facts(valid))
}

/// Builds all objects, plans the roll, and takes out of the former what has to wait for the latter.
fn decide(
    valid: &ValidCluster,
    observed: &Observed,
    heard: &Heard<'_>,
) -> (build::Plan, roll::Plan, roll::Rules, String) {
    let mut wanted = unheld(valid, observed);
    let seen = roll::observe::groups(valid, &wanted, observed, heard.reports, &heard.configs);
    let id = rollout_id(&wanted);
    let rules = rules(valid, observed, &id);
    let roll = roll::plan(&rules, &seen);
    let held: Vec<i32> = seen
        .iter()
        .filter(|g| g.form == roll::Form::Behind && !roll.steps.contains(&roll::Step::Apply(g.index)))
        .map(|g| g.index)
        .collect();
    hold_back(&mut wanted, observed, valid, &held);
    (wanted, roll, rules, id)
}

/// Names what is rolled out.
fn rollout_id(wanted: &build::Plan) -> String {
    let forms: String = wanted
        .objects
        .iter()
        .filter(|o| o.kind == build::ObjectKind::StatefulSet)
        .filter_map(|o| {
            o.value["spec"]["template"]["metadata"]["annotations"][names::FORM_ANNOTATION].as_str()
        })
        .collect();
    digest::short(&forms)
}

fn rules(valid: &ValidCluster, observed: &Observed, id: &str) -> roll::Rules {
    let windows = &valid.rollout.windows;
    let closed = if !roll::window::is_open(windows, jiff::Timestamp::now()) {
        Some(roll::window::closed_text(windows))
    } else if status::name_servers_change(valid, &observed.live) {
        Some("the name servers are being replaced first".to_owned())
    } else {
        None
    };
    let asks = valid.rollout.masters == Approval::Manual && valid.approved.as_deref() != Some(id);
    roll::Rules {
        parallel: usize::try_from(valid.rollout.max_parallel_groups).unwrap_or(1),
        paused: valid.rollout.paused,
        closed,
        masters_wait: asks.then(|| {
            format!(
                "masters are restarted when a person says so: kubectl annotate --overwrite mqc {} {}={id}",
                valid.name,
                names::APPROVE_ANNOTATION
            )
        }),
    }
}

/// Takes the ConfigMap and StatefulSet of groups that wait out of the plan, so that a pod that restarts meanwhile comes
/// back as it was; and keeps whatever belongs to a group that leaves.
fn hold_back(plan: &mut build::Plan, observed: &Observed, valid: &ValidCluster, held: &[i32]) {
    let group_of = |value: &serde_json::Value| -> Option<i32> {
        value["metadata"]["labels"][names::GROUP_LABEL]
            .as_str()?
            .parse()
            .ok()
    };
    let waits = |kind: build::ObjectKind, value: &serde_json::Value| {
        matches!(
            kind,
            build::ObjectKind::StatefulSet | build::ObjectKind::ConfigMap
        ) && group_of(value).is_some_and(|g| held.contains(&g))
    };
    plan.held = plan
        .objects
        .iter()
        .filter(|w| waits(w.kind, &w.value))
        .map(|w| (w.kind, w.name.clone()))
        .collect();
    plan.objects.retain(|w| !waits(w.kind, &w.value));
    let leaving: Vec<i32> = valid.leaving.iter().map(|g| g.index).collect();
    plan.held.extend(
        observed
            .live
            .iter()
            .filter(|(_, value)| group_of(value).is_some_and(|g| leaving.contains(&g)))
            .map(|(key, _)| key.clone()),
    );
}

/// Where a broker was met and what it said.
type Answer = Result<(IpAddr, Report), ReportError>;

/// Asks every running broker for its status and notes where each one was met.
async fn ask_brokers(
    cx: &Context,
    valid: &ValidCluster,
    observed: &Observed,
    uid: &str,
) -> (Reports, BTreeMap<String, IpAddr>) {
    let mut questions = Vec::new();
    for group in valid.groups.iter().chain(&valid.leaving) {
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
    let met: BTreeMap<String, IpAddr> = answers
        .iter()
        .filter_map(|(pod, answer)| {
            let (ip, report) = answer.as_ref().ok()?;
            (report.stage == "running").then(|| (pod.clone(), *ip))
        })
        .collect();
    cx.directory.replace(uid, met.clone());
    let reports = answers
        .into_iter()
        .map(|(pod, answer)| (pod, answer.map(|(_, report)| report)))
        .collect();
    (reports, met)
}

fn pod_ip(pod: &Pod) -> Option<IpAddr> {
    pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()
}

#[cfg(test)]
mod pass_tests;
#[cfg(test)]
mod roll_crash_tests;
