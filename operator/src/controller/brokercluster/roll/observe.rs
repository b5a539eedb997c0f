//! From what a pass read to what the plan is about.

use super::plan::{Broker, Form, Group, Health, Pod};
use crate::apply::{Step as ApplyStep, decide, with_digest};
use crate::broker_status::{Report, ReportError};
use crate::controller::brokercluster::build::{self, ObjectKind, address_service};
use crate::controller::brokercluster::dereference::Observed;
use crate::controller::brokercluster::status::{Reports, is_ready, pod_problem, progress, stuck_for};
use crate::controller::brokercluster::validate::{Group as ValidGroup, ValidCluster};
use crate::names;
use k8s_openapi::api::core::v1;
use serde_json::Value;
use std::collections::BTreeMap;

/// A replica that lacks more than this is not caught up, bytes.
const CAUGHT_UP: i64 = 1 << 20;

/// The groups as they are. Groups that cannot be built yet are not among them.
pub fn groups(
    valid: &ValidCluster,
    wanted: &build::Plan,
    observed: &Observed,
    reports: &Reports,
    configs: &BTreeMap<String, BTreeMap<String, String>>,
) -> Vec<Group> {
    let servers = name_servers(observed);
    let addresses = observed.facts(valid).addresses;
    valid
        .groups
        .iter()
        .filter_map(|group| {
            let name = names::group(&valid.name, group.index);
            let set = wanted
                .objects
                .iter()
                .find(|o| o.kind == ObjectKind::StatefulSet && o.name == name)?;
            let live = observed.live.get(&(ObjectKind::StatefulSet, name.clone()));
            let form = match live {
                None => Form::Missing,
                Some(live) if decide(Some(live), &with_digest(set), &valid.owner.uid) != ApplyStep::Leave => {
                    Form::Behind
                }
                Some(live) if !is_seen(live) => Form::Unseen,
                Some(_) => Form::Current,
            };
            let grant = live
                .and_then(|l| l["metadata"]["annotations"][names::GRANT_ANNOTATION].as_str())
                .and_then(|text| serde_json::from_str(text).ok());
            let master_end = reports
                .get(&names::broker(&valid.name, group.index, 0))
                .and_then(|r| r.as_ref().ok())
                .map(|r| r.log.max);
            // Brokers that the living set still has too many are not waited for.
            let brokers = (0..valid.replicas)
                .map(|ordinal| {
                    let name = names::broker(&valid.name, group.index, ordinal);
                    let template = &set.value["spec"]["template"];
                    let pod = observed.pods.get(&name).map(|pod| {
                        let moved = moved(valid, group, ordinal, &addresses, configs.get(&name));
                        pod_of(pod, template, moved, reports.get(&name), &servers, master_end)
                    });
                    Broker { pod }
                })
                .collect();
            Some(Group {
                index: group.index,
                form,
                grant,
                brokers,
            })
        })
        .collect()
}

fn is_seen(set: &Value) -> bool {
    set["status"]["observedGeneration"].as_i64() >= set["metadata"]["generation"].as_i64()
}

/// Addresses of the name servers that are ready.
pub fn name_servers(observed: &Observed) -> Vec<String> {
    observed
        .pods
        .values()
        .filter(|p| {
            let labels = p.metadata.labels.as_ref();
            labels
                .and_then(|l| l.get(names::COMPONENT_LABEL))
                .map(String::as_str)
                == Some("namesrv")
        })
        .filter(|p| is_ready(p) && p.metadata.deletion_timestamp.is_none())
        .filter_map(|p| p.status.as_ref()?.pod_ip.clone())
        .map(|ip| format!("{ip}:{}", names::NAMESRV_PORT))
        .collect()
}

/// Whether a broker registers an address that its Service no longer has.
fn moved(
    valid: &ValidCluster,
    group: &ValidGroup,
    ordinal: i32,
    addresses: &BTreeMap<String, String>,
    config: Option<&BTreeMap<String, String>>,
) -> Option<String> {
    let has = config?.get("brokerIP1")?;
    let wanted = addresses.get(&address_service(&valid.name, group, ordinal))?;
    (has != wanted).then(|| format!("address {has} is now {wanted}"))
}

fn annotation<'a>(pod: &'a v1::Pod, name: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// What of a pod differs from what is wanted.
fn stale(pod: &v1::Pod, template: &Value, moved: Option<String>) -> Option<String> {
    let wanted = |name: &str| template["metadata"]["annotations"][name].as_str();
    if annotation(pod, names::FORM_ANNOTATION) == wanted(names::FORM_ANNOTATION) {
        return moved.or_else(|| asked(pod).then(|| "asked for by annotation".to_owned()));
    }
    let mut what = Vec::new();
    let container = pod
        .spec
        .as_ref()
        .and_then(|s| s.containers.iter().find(|c| c.name == "broker"));
    let image = container.and_then(|c| c.image.as_deref());
    let new_image = template["spec"]["containers"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["name"] == "broker"))
        .and_then(|c| c["image"].as_str());
    if image != new_image {
        what.push("image");
    }
    if annotation(pod, names::CONFIG_ANNOTATION) != wanted(names::CONFIG_ANNOTATION) {
        what.push("configuration");
    }
    if annotation(pod, names::RESTART_ANNOTATION) != wanted(names::RESTART_ANNOTATION) {
        what.push("restart asked for");
    }
    if what.is_empty() {
        what.push("pod template");
    }
    Some(what.join(", "))
}

fn asked(pod: &v1::Pod) -> bool {
    annotation(pod, names::RESTART_NOW_ANNOTATION).is_some()
}

fn pod_of(
    pod: &v1::Pod,
    template: &Value,
    moved: Option<String>,
    report: Option<&Result<Report, ReportError>>,
    servers: &[String],
    master_end: Option<i64>,
) -> Pod {
    let said = report.and_then(|r| r.as_ref().ok());
    let stopped = said.map(|r| r.writes_stopped).unwrap_or_default();
    Pod {
        uid: pod.metadata.uid.clone().unwrap_or_default(),
        stale: stale(pod, template, moved),
        urgent: asked(pod),
        leaving: pod.metadata.deletion_timestamp.is_some(),
        health: health(pod, report, servers),
        stopped_for: if stopped.active {
            stopped.lease_seconds_left.max(1)
        } else {
            0
        },
        behind: said.and_then(|r| r.dispatch_behind_bytes),
        has_all: said.is_some_and(|r| master_end.is_some_and(|end| r.log.max >= end)),
    }
}

/// What a broker does, from its own report and, without one, from its pod.
pub fn health(pod: &v1::Pod, report: Option<&Result<Report, ReportError>>, servers: &[String]) -> Health {
    let coming = |text: String| Health::Coming(text);
    match report {
        Some(Ok(report)) => match report.stage.as_str() {
            "running" => running(pod, report, servers),
            "recovering" => coming(format!("recovering {}", progress(report))),
            other => coming(other.to_owned()),
        },
        Some(Err(error)) => match stuck_for(pod) {
            Some(why) => Health::Broken(why),
            None => coming(pod_problem(pod).unwrap_or_else(|| error.to_string())),
        },
        None => match stuck_for(pod) {
            Some(why) => Health::Broken(why),
            None => coming("the pod is being started".to_owned()),
        },
    }
}

fn running(pod: &v1::Pod, report: &Report, servers: &[String]) -> Health {
    if !is_ready(pod) {
        return Health::Coming("running, not ready yet".to_owned());
    }
    if report.registered_at.is_empty() {
        return Health::Coming("registered at no name server yet".to_owned());
    }
    if let Some(missing) = servers.iter().find(|s| !report.registered_at.contains(s)) {
        return Health::Coming(format!("not registered at name server {missing} yet"));
    }
    if let Some(following) = &report.following {
        let behind = following.behind_bytes;
        if !following.connected {
            let why = following.error.as_deref().unwrap_or("not connected");
            return Health::Coming(format!("does not follow its master: {why}"));
        }
        if behind.is_none_or(|b| b > CAUGHT_UP) {
            return Health::Coming(format!(
                "{} bytes behind its master",
                behind.map_or_else(|| "an unknown number of".to_owned(), |b| b.to_string())
            ));
        }
    }
    Health::Serving
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: Value) -> v1::Pod {
        serde_json::from_value(value).unwrap()
    }

    fn ready(annotations: &Value) -> v1::Pod {
        pod(json!({
            "metadata": {"name": "x", "uid": "u", "annotations": annotations},
            "spec": {"containers": [{"name": "broker", "image": "i:1"}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
    }

    fn template(image: &str, form: &str, config: &str) -> Value {
        json!({
            "metadata": {"annotations": {"ferromq.io/form": form, "ferromq.io/config": config}},
            "spec": {"containers": [{"name": "broker", "image": image}]},
        })
    }

    #[test]
    fn what_differs_is_named() {
        let have = ready(&json!({"ferromq.io/form": "f", "ferromq.io/config": "c"}));
        assert_eq!(stale(&have, &template("i:1", "f", "c"), None), None);
        let says = |t: Value| stale(&have, &t, None).unwrap();
        assert_eq!(says(template("i:2", "g", "d")), "image, configuration");
        assert_eq!(says(template("i:1", "g", "c")), "pod template");
        let by_hand = ready(
            &json!({"ferromq.io/form": "f", "ferromq.io/config": "c", "ferromq.io/restart-now": "yes"}),
        );
        assert!(
            stale(&by_hand, &template("i:1", "f", "c"), None)
                .unwrap()
                .contains("annotation")
        );
        assert!(asked(&by_hand));
    }

    #[test]
    fn only_a_broker_that_is_registered_everywhere_and_caught_up_serves() {
        let servers = ["10.0.0.1:9876".to_owned(), "10.0.0.2:9876".to_owned()];
        let mut report = Report {
            stage: "running".to_owned(),
            registered_at: servers.to_vec(),
            ..Report::default()
        };
        let of = |report: &Report| health(&ready(&json!({})), Some(&Ok(report.clone())), &servers);
        assert_eq!(of(&report), Health::Serving);
        report.following = Some(crate::broker_status::Following {
            connected: true,
            behind_bytes: Some(200 << 20),
            error: None,
        });
        assert!(matches!(of(&report), Health::Coming(why) if why.contains("behind")));
        report.following = None;
        report.registered_at.pop();
        assert!(matches!(of(&report), Health::Coming(why) if why.contains("10.0.0.2")));
        report.stage = "recovering".to_owned();
        assert!(matches!(of(&report), Health::Coming(why) if why.contains("recovering")));
    }

    #[test]
    fn a_slow_pull_is_waited_for_and_a_failed_one_is_not() {
        let waiting = |reason: &str| {
            pod(
                json!({"metadata": {"name": "x"}, "status": {"phase": "Pending", "containerStatuses": [{
                "name": "broker", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason}}}]}}),
            )
        };
        assert!(matches!(
            health(&waiting("ContainerCreating"), None, &[]),
            Health::Coming(_)
        ));
        for reason in [
            "ImagePullBackOff",
            "ErrImagePull",
            "CrashLoopBackOff",
            "CreateContainerConfigError",
        ] {
            assert!(
                matches!(health(&waiting(reason), None, &[]), Health::Broken(_)),
                "{reason}"
            );
        }
        let nowhere = pod(json!({"metadata": {"name": "x"}, "status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}}));
        assert!(matches!(health(&nowhere, None, &[]), Health::Broken(why) if why.contains("0/3")));
    }
}
