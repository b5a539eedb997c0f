//! Carries out the steps of a plan, one write each.

use super::plan::{Grant, Outcome, Plan, Step, Wait};
use crate::broker_status;
use crate::context::Context;
use crate::controller::brokercluster::build::ObjectKind;
use crate::controller::brokercluster::dereference::Observed;
use crate::controller::brokercluster::status::Reports;
use crate::controller::brokercluster::validate::ValidCluster;
use crate::crd::BrokerCluster;
use crate::error::Error;
use crate::events::{Weight, tell};
use crate::names;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

/// Seconds for which writes are stopped at a time.
const LEASE: u64 = 60;

/// What a pass knows.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The resource, for events.
    pub resource: &'a BrokerCluster,
    /// The valid form of it.
    pub valid: &'a ValidCluster,
    /// What was read.
    pub observed: &'a Observed,
    /// What brokers said.
    pub reports: &'a Reports,
    /// The token for PUT /writes.
    pub token: &'a str,
}

/// Carries out all steps but `Apply`, which belongs to the objects.
///
/// # Errors
/// The first failure; the next pass plans anew.
pub async fn act(cx: &Context, known: Known<'_>, plan: &Plan) -> Result<(), Error> {
    for step in &plan.steps {
        match step {
            Step::Apply(_) => {}
            Step::Grant(index, grant) => {
                keep(cx, known, *index, Some(grant)).await?;
                let text = format!(
                    "{} is restarted: {}",
                    pod_name(known, *index, grant.ordinal),
                    grant.why
                );
                tell(cx, known.resource, Weight::Normal, "RestartBegins", &text).await;
            }
            Step::StopWrites(index, ordinal) => writes(cx, known, *index, *ordinal, Some(LEASE)).await,
            Step::GiveWritesBack(index, ordinal) => writes(cx, known, *index, *ordinal, None).await,
            Step::Delete(index, ordinal, uid) => delete(cx, known, *index, *ordinal, uid).await?,
            Step::End(index, grant, outcome) => {
                keep(cx, known, *index, None).await?;
                ended(cx, known, *index, grant, outcome).await;
            }
        }
    }
    for wait in &plan.waits {
        deferred(cx, known, wait).await;
    }
    forget_waits(cx, known, plan);
    Ok(())
}

fn pod_name(known: Known<'_>, index: i32, ordinal: i32) -> String {
    names::broker(&known.valid.name, index, ordinal)
}

/// Writes or removes the grant, if the StatefulSet is still as it was read.
async fn keep(cx: &Context, known: Known<'_>, index: i32, grant: Option<&Grant>) -> Result<(), Error> {
    let name = names::group(&known.valid.name, index);
    let version = known
        .observed
        .live
        .get(&(ObjectKind::StatefulSet, name.clone()))
        .and_then(|set| set["metadata"]["resourceVersion"].as_str());
    let text = match grant {
        None => None,
        Some(grant) => Some(serde_json::to_string(grant).map_err(|source| Error::Json {
            action: "write a grant".to_owned(),
            source,
        })?),
    };
    let patch = json!({"metadata": {
        "resourceVersion": version,
        "annotations": {names::GRANT_ANNOTATION: text},
    }});
    let parameters = PatchParams {
        field_manager: Some(names::MEMORY.to_owned()),
        ..PatchParams::default()
    };
    cx.api::<StatefulSet>(&known.valid.namespace)
        .patch(&name, &parameters, &Patch::Merge(&patch))
        .await
        .map_err(Error::api(format!("write the grant of StatefulSet {name}")))?;
    cx.metrics.wrote("StatefulSet");
    Ok(())
}

/// A broker that cannot be told is asked again at the next pass: the plan waits for what it reports.
async fn writes(cx: &Context, known: Known<'_>, index: i32, ordinal: i32, stop_for: Option<u64>) {
    let pod = pod_name(known, index, ordinal);
    let address = known
        .observed
        .pods
        .get(&pod)
        .and_then(|p| p.status.as_ref()?.pod_ip.as_ref()?.parse().ok());
    let Some(ip) = address else { return };
    let told = broker_status::order_writes(ip, known.token, stop_for, cx.settings.broker_timeout()).await;
    match told {
        Ok(_) => {
            cx.metrics.wrote("BrokerWrites");
            let (reason, text) = match stop_for {
                Some(_) => (
                    "WritesStopped",
                    format!("{pod} takes no more writes before its restart"),
                ),
                None => ("WritesGivenBack", format!("{pod} takes writes again")),
            };
            if cx
                .said
                .is_news(&known.valid.owner.uid, &format!("writes {pod}"), reason)
            {
                tell(cx, known.resource, Weight::Normal, reason, &text).await;
            }
        }
        Err(error) => tracing::warn!(pod, error, "the broker was not told about writes"),
    }
}

async fn delete(cx: &Context, known: Known<'_>, index: i32, ordinal: i32, uid: &str) -> Result<(), Error> {
    let name = pod_name(known, index, ordinal);
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match cx
        .api::<Pod>(&known.valid.namespace)
        .delete(&name, &parameters)
        .await
    {
        Ok(_) => {
            cx.metrics.wrote("Pod");
            let text = format!("{name} is stopped, to be made anew");
            tell(cx, known.resource, Weight::Normal, "BrokerStopped", &text).await;
            Ok(())
        }
        // It is gone, or another one by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(e) => Err(Error::api(format!("delete pod {name}"))(e)),
    }
}

async fn ended(cx: &Context, known: Known<'_>, index: i32, grant: &Grant, outcome: &Outcome) {
    let name = pod_name(known, index, grant.ordinal);
    match outcome {
        Outcome::Done => {
            let clean = known
                .reports
                .get(&name)
                .and_then(|r| r.as_ref().ok())
                .is_some_and(|r| r.last_stop_clean);
            let (weight, how) = if clean {
                (Weight::Normal, "its last stop was clean")
            } else {
                (
                    Weight::Warning,
                    "its last stop was not clean: the log was checked record by record; a longer spec.rollout.graceSeconds may help",
                )
            };
            let text = format!("{name} serves again; {how}");
            tell(cx, known.resource, weight, "RestartDone", &text).await;
        }
        Outcome::GivenUp(why) => {
            let text = format!("{name} is not restarted: {why}");
            tell(cx, known.resource, Weight::Normal, "RestartGivenUp", &text).await;
        }
    }
}

async fn deferred(cx: &Context, known: Known<'_>, wait: &Wait) {
    let what = match wait.ordinal {
        Some(ordinal) => pod_name(known, wait.group, ordinal),
        None => names::group(&known.valid.name, wait.group),
    };
    // Progress changes at each look; it stands in status. Here only the kind of the wait is news.
    let kind: String = wait.why.chars().filter(|c| !c.is_ascii_digit()).collect();
    if cx
        .said
        .is_news(&known.valid.owner.uid, &format!("wait {}", wait.group), &kind)
    {
        let text = format!("{what} waits: {}", wait.why);
        tell(cx, known.resource, Weight::Normal, "RestartDeferred", &text).await;
    }
}

fn forget_waits(cx: &Context, known: Known<'_>, plan: &Plan) {
    for group in &known.valid.groups {
        if !plan.waits.iter().any(|w| w.group == group.index) {
            cx.said
                .is_news(&known.valid.owner.uid, &format!("wait {}", group.index), "");
        }
    }
}
