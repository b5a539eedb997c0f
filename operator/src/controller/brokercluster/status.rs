//! The status of a BrokerCluster, as a pure function of what a pass saw and did.
//!
//! Equal facts give an equal status, so it is written only when something changed. `Ready` means that the spec of the
//! observed generation is in place and works: all name servers and brokers are ready and every broker is registered.

use super::build::ObjectKind;
use super::dereference::Observed;
use super::retention;
use super::roll::{Group, Health, Plan, Rules};
use super::validate::ValidCluster;
use crate::apply::Live;
use crate::broker_status::{Report, ReportError};
use crate::crd::broker_cluster::{
    BrokerCluster, BrokerClusterStatus, BrokerRow, DriftRow, GroupRow, PlanRow, RolloutStatus,
};
use crate::crd::condition::{READY, RECONCILING, SETTINGS, STALLED, Verdict, merge};
use crate::names;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;
use std::collections::BTreeMap;

/// What brokers answered, by pod name.
pub type Reports = BTreeMap<String, Result<Report, ReportError>>;

/// A replica that lacks less is not told apart from one that lacks nothing: the figure would change at every look.
const NOTED: i64 = 1 << 20;

/// How a pass went.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The spec makes no sense.
    Invalid(String),
    /// A person must act before the spec can be put in place.
    Refused(String),
    /// The spec is in place or on its way.
    Applied(Box<Applied>),
    /// The operator was told to change nothing.
    Paused,
}

/// What a pass did.
#[derive(Debug, Clone, Default)]
pub struct Applied {
    /// Groups without addresses.
    pub waiting: Vec<i32>,
    /// Volumes that could not be made larger.
    pub storage_notes: Vec<String>,
    /// What is still to be changed.
    pub rollout: Option<RolloutStatus>,
    /// Where each group is.
    pub groups: Vec<GroupRow>,
    /// Settings that somebody else made.
    pub drift: Vec<DriftRow>,
    /// Settings and entries that were not taken.
    pub faults: Vec<String>,
    /// A step of the roll was taken: the next is planned soon.
    pub acted: bool,
}

/// What is still to be changed, for people; nothing if all is in place.
pub fn rollout(
    valid: &ValidCluster,
    groups: &[Group],
    plan: &Plan,
    rules: &Rules,
    id: &str,
) -> Option<RolloutStatus> {
    let mut rows = Vec::new();
    for group in groups {
        for (ordinal, broker) in (0..).zip(&group.brokers) {
            let grant = group.grant.as_ref().filter(|g| g.ordinal == ordinal);
            let stale = broker.pod.as_ref().and_then(|p| p.stale.as_deref());
            let (why, place) = match (grant, stale) {
                (Some(grant), _) if broker.pod.as_ref().is_some_and(|p| p.uid == grant.uid) => {
                    (grant.why.as_str(), "Granted")
                }
                (Some(grant), _) => (grant.why.as_str(), "Restarted"),
                (None, Some(why)) => (why, "Pending"),
                (None, None) => continue,
            };
            let wait = plan
                .waits
                .iter()
                .find(|w| w.group == group.index && w.ordinal.is_none_or(|o| o == ordinal));
            rows.push(PlanRow {
                name: names::broker(&valid.name, group.index, ordinal),
                how: "Restart".to_owned(),
                why: why.to_owned(),
                state: place.to_owned(),
                message: wait.map(|w| w.why.clone()),
            });
        }
    }
    if rows.is_empty() {
        return None;
    }
    let waiting_for = if rules.paused {
        Some("spec.rollout.paused is set".to_owned())
    } else {
        rules.closed.clone().or_else(|| rules.masters_wait.clone())
    };
    Some(RolloutStatus {
        id: id.to_owned(),
        waiting_for,
        plan: rows,
    })
}

/// Computes the status. Without a valid cluster the rows of the previous status stay.
pub fn status(
    resource: &BrokerCluster,
    valid: Option<&ValidCluster>,
    observed: &Observed,
    reports: &Reports,
    outcome: &Outcome,
    now: &Time,
) -> BrokerClusterStatus {
    let previous = resource.status.clone().unwrap_or_default();
    let mut status = BrokerClusterStatus {
        observed_generation: resource.metadata.generation,
        conditions: Vec::new(),
        ..previous.clone()
    };
    let mut problems = Vec::new();
    if let Some(valid) = valid {
        let addresses = observed.facts(valid).addresses;
        status.brokers = rows(valid, observed, reports, &addresses);
        let ready = status.brokers.iter().filter(|b| b.ready).count();
        status.ready_brokers = Some(format!("{ready}/{}", status.brokers.len()));
        let servers = name_servers(valid, &observed.live);
        status.ready_name_servers = Some(format!("{}/{}", servers.ready, valid.name_servers));
        status.name_server_address = Some(names::client_address(&valid.name, &valid.namespace));
        problems.extend(servers.problem(valid).map(|p| ("NameServersNotReady", p)));
        problems.extend(roll_problem(valid, &observed.live).map(|p| ("RollingOut", p)));
        problems.extend(broker_problem(&status.brokers).map(|p| ("BrokersNotReady", p)));
        if let Outcome::Applied(applied) = outcome {
            problems.extend(applied.rollout.as_ref().map(|r| ("RollingOut", roll_text(r))));
            problems.extend(group_problem(&applied.groups).map(|p| ("GroupsChange", p)));
            status.groups = i32::try_from(applied.groups.len()).ok();
            status.group_states.clone_from(&applied.groups);
            status.rollout.clone_from(&applied.rollout);
            status.drift.clone_from(&applied.drift);
        }
    }
    let mut verdicts = verdicts(outcome, &problems);
    if valid.is_some() {
        verdicts.extend([retention::retention(reports), retention::consumed(reports)]);
    }
    status.conditions = merge(&previous.conditions, &verdicts, resource.metadata.generation, now);
    status
}

fn roll_text(rollout: &RolloutStatus) -> String {
    let row = rollout
        .plan
        .iter()
        .find(|r| r.state != "Pending")
        .or_else(|| rollout.plan.first());
    let Some(row) = row else {
        return "brokers are being changed".to_owned();
    };
    let wait = row.message.as_deref().unwrap_or("its turn comes");
    format!(
        "{} of the brokers are still to be restarted; {} ({}): {wait}",
        rollout.plan.len(),
        row.name,
        row.why
    )
}

fn group_problem(rows: &[GroupRow]) -> Option<String> {
    let row = rows.iter().find(|r| r.stage != super::groups::SERVING)?;
    Some(format!(
        "group {} is {}: {}",
        row.index,
        row.stage,
        row.message.as_deref().unwrap_or("on its way")
    ))
}

/// Whether name servers are being replaced or are not all there.
pub fn name_servers_change(valid: &ValidCluster, live: &Live) -> bool {
    name_servers(valid, live).problem(valid).is_some()
}

fn verdicts(outcome: &Outcome, problems: &[(&'static str, String)]) -> Vec<Verdict> {
    let first = problems.first();
    match outcome {
        Outcome::Invalid(faults) => stuck("InvalidSpec", faults),
        Outcome::Refused(error) => stuck("ApplyRefused", error),
        Outcome::Paused => {
            let ready = first.map_or_else(
                || {
                    Verdict::new(
                        READY,
                        true,
                        "Paused",
                        "all name servers and brokers are ready; spec.paused is set and nothing is changed",
                    )
                },
                |(reason, text)| {
                    Verdict::new(
                        READY,
                        false,
                        reason,
                        format!("{text}; spec.paused is set and nothing is changed"),
                    )
                },
            );
            vec![
                ready,
                Verdict::new(RECONCILING, false, "Paused", "spec.paused is set"),
                Verdict::new(STALLED, false, "Paused", "spec.paused is set"),
            ]
        }
        Outcome::Applied(applied) => {
            let waits = applied.waiting.first().map(|group| {
                (
                    "WaitingForAddress",
                    format!("the Services of group {group} have no cluster address yet"),
                )
            });
            let problem = waits.as_ref().or(first);
            let mut all = match problem {
                None => vec![
                    Verdict::new(READY, true, "AllReady", "all name servers and brokers are ready"),
                    Verdict::new(RECONCILING, false, "Done", "the spec is in place"),
                ],
                Some((reason, text)) => vec![
                    Verdict::new(READY, false, reason, text.clone()),
                    Verdict::new(RECONCILING, true, reason, text.clone()),
                ],
            };
            all.push(if applied.storage_notes.is_empty() {
                Verdict::new(STALLED, false, "AsExpected", "")
            } else {
                Verdict::new(
                    STALLED,
                    true,
                    "StorageNotResized",
                    applied.storage_notes.join("; "),
                )
            });
            all.push(if applied.faults.is_empty() {
                Verdict::new(
                    SETTINGS,
                    true,
                    "Taken",
                    "brokers that run have the settings of the spec",
                )
            } else {
                Verdict::new(SETTINGS, false, "NotTaken", applied.faults.join("; "))
            });
            all
        }
    }
}

fn stuck(reason: &'static str, text: &str) -> Vec<Verdict> {
    vec![
        Verdict::new(READY, false, reason, text),
        Verdict::new(
            RECONCILING,
            false,
            reason,
            "nothing is changed until the cause is removed",
        ),
        Verdict::new(STALLED, true, reason, text),
    ]
}

struct NameServers {
    ready: i64,
    settled: bool,
}

impl NameServers {
    fn problem(&self, valid: &ValidCluster) -> Option<String> {
        let all = i64::from(valid.name_servers);
        if self.ready < all {
            Some(format!("{} of {all} name servers are ready", self.ready))
        } else if !self.settled {
            Some("name servers of an older form are being replaced".to_owned())
        } else {
            None
        }
    }
}

fn name_servers(valid: &ValidCluster, live: &Live) -> NameServers {
    let Some(deployment) = live.get(&(ObjectKind::Deployment, names::namesrv(&valid.name))) else {
        return NameServers {
            ready: 0,
            settled: false,
        };
    };
    let all = i64::from(valid.name_servers);
    let figure = |name: &str| deployment["status"][name].as_i64().unwrap_or(0);
    let settled = is_observed(deployment)
        && figure("updatedReplicas") >= all
        && figure("replicas") == figure("updatedReplicas");
    NameServers {
        ready: figure("readyReplicas").min(all),
        settled,
    }
}

fn is_observed(object: &Value) -> bool {
    object["status"]["observedGeneration"].as_i64() >= object["metadata"]["generation"].as_i64()
}

fn roll_problem(valid: &ValidCluster, live: &Live) -> Option<String> {
    valid.groups.iter().find_map(|group| {
        let Some(set) = live.get(&(ObjectKind::StatefulSet, names::group(&valid.name, group.index))) else {
            return Some(format!("the brokers of group {} are not made yet", group.index));
        };
        let settled =
            is_observed(set) && set["status"]["replicas"].as_i64() == Some(i64::from(valid.replicas));
        (!settled).then(|| format!("the number of brokers in group {} changes", group.index))
    })
}

fn broker_problem(rows: &[BrokerRow]) -> Option<String> {
    let row = rows.iter().find(|r| !r.ready)?;
    let why = row
        .message
        .as_deref()
        .or(row.recovery.as_deref())
        .unwrap_or("not ready yet");
    Some(format!("broker {} is {}: {why}", row.name, row.stage))
}

fn rows(
    valid: &ValidCluster,
    observed: &Observed,
    reports: &Reports,
    addresses: &BTreeMap<String, String>,
) -> Vec<BrokerRow> {
    let mut rows = Vec::new();
    let servers = super::roll::observe::name_servers(observed);
    for group in &valid.groups {
        for ordinal in 0..valid.replicas {
            let name = names::broker(&valid.name, group.index, ordinal);
            let service = super::build::address_service(&valid.name, group, ordinal);
            let mut row = BrokerRow {
                group: group.index,
                broker_name: group.broker_name.clone(),
                broker_id: i64::from(ordinal),
                address: addresses
                    .get(&service)
                    .map(|ip| format!("{ip}:{}", names::BROKER_PORT)),
                ..BrokerRow::default()
            };
            describe(&mut row, observed.pods.get(&name), reports.get(&name), &servers);
            row.name = name;
            rows.push(row);
        }
    }
    rows
}

fn describe(
    row: &mut BrokerRow,
    pod: Option<&Pod>,
    report: Option<&Result<Report, ReportError>>,
    servers: &[String],
) {
    let Some(pod) = pod else {
        "Missing".clone_into(&mut row.stage);
        row.message = Some("the pod does not exist".to_owned());
        return;
    };
    let leaving = pod.metadata.deletion_timestamp.is_some();
    match report {
        Some(Ok(report)) => {
            row.stage.clone_from(&report.stage);
            row.role = Some(report.role.clone());
            row.registered_at.clone_from(&report.registered_at);
            row.registered_at.sort();
            row.log_max_offset = Some(report.log.max);
            row.last_stop_clean = Some(report.last_stop_clean);
            if report.stage == "recovering" {
                row.recovery = Some(progress(report));
            }
            row.behind_bytes = report
                .following
                .as_ref()
                .and_then(|f| f.behind_bytes)
                .filter(|b| *b > NOTED);
            let health = super::roll::observe::health(pod, Some(&Ok(report.clone())), servers);
            row.ready = !leaving && health == Health::Serving;
            row.message = match health {
                _ if leaving => Some("the pod is being deleted".to_owned()),
                Health::Serving => None,
                Health::Coming(_) if report.stage == "recovering" => None,
                Health::Coming(why) | Health::Broken(why) => Some(why),
            };
        }
        Some(Err(error)) => {
            "Unreachable".clone_into(&mut row.stage);
            row.message = Some(pod_problem(pod).unwrap_or_else(|| error.to_string()));
        }
        None => {
            "Pending".clone_into(&mut row.stage);
            row.message = Some(pod_problem(pod).unwrap_or_else(|| "the pod is being started".to_owned()));
        }
    }
}

/// How far a recovery is, as "40% (after an abnormal stop)".
pub fn progress(report: &Report) -> String {
    let r = report.recovery;
    let percent = if r.total > 0 {
        r.done.clamp(0, r.total) * 100 / r.total
    } else {
        0
    };
    let kind = if r.abnormal { "abnormal" } else { "clean" };
    format!("{percent}% (after an {kind} stop)").replace("an clean", "a clean")
}

/// Whether Kubernetes takes a pod for ready.
pub fn is_ready(pod: &Pod) -> bool {
    pod.status
        .as_ref()
        .and_then(|s| s.conditions.as_ref())
        .is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
}

/// Why a pod does not come up, in Kubernetes' own words.
pub fn pod_problem(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    containers.iter().find_map(container_problem).or_else(|| {
        let scheduled = status
            .conditions
            .as_ref()?
            .iter()
            .find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
        Some(format!(
            "not scheduled: {}",
            scheduled.message.as_deref().unwrap_or("no reason given")
        ))
    })
}

/// Why a pod will not come up without a change, if it is so: its container does not run, or it finds no node.
pub fn stuck_for(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let running = |c: &ContainerStatus| c.state.as_ref().is_some_and(|s| s.running.is_some());
    let containers = status.container_statuses.as_deref().unwrap_or_default();
    if containers.iter().any(|c| c.name == "broker" && running(c)) {
        return None;
    }
    let init = status.init_container_statuses.as_deref().unwrap_or_default();
    init.iter()
        .find_map(container_problem)
        .or_else(|| pod_problem(pod))
}

fn container_problem(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting
        .reason
        .as_deref()
        .filter(|r| !matches!(*r, "ContainerCreating" | "PodInitializing"))?;
    let last = container.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    Some(match (last, waiting.message.as_deref()) {
        (Some(ended), _) => format!("{reason}, ended with exit code {}", ended.exit_code),
        (None, Some(message)) => format!("{reason}: {message}"),
        (None, None) => reason.to_owned(),
    })
}

#[cfg(test)]
#[path = "status_tests.rs"]
mod tests;
