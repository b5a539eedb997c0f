//! Volumes that grow: because the spec asks for more, or because they fill up and the spec allows it.
//!
//! What a claim asks for is the only memory: a growth that was asked for is over when the claim has it and the broker
//! counts with it, and not before that is the next one thought of. So an operator that dies in between asks for nothing twice.

use super::dereference::{Observed, claimed};
use super::status::Reports;
use super::validate::{AutoGrow, ValidCluster};
use crate::broker_status::Disk;
use crate::context::Context;
use crate::crd::BrokerCluster;
use crate::error::Error;
use crate::events::{Weight, tell};
use crate::names;
use crate::quantity::Quantity;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Patch, PatchParams};
use serde_json::json;

const GIB: i64 = 1 << 30;

/// A size to ask for, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wish {
    /// As the claim gets it.
    text: String,
    why: String,
}

/// What a volume should be asked to become, if it isn't asked for that already.
fn wish(valid: &ValidCluster, claim: &PersistentVolumeClaim, disk: Option<&Disk>) -> Option<Wish> {
    let asked = claimed(claim)?;
    if asked < valid.storage.bytes {
        return Some(Wish {
            text: valid.storage.text.clone(),
            why: "spec.storage.size".to_owned(),
        });
    }
    let rule = valid.auto_grow.as_ref()?;
    let has = capacity(claim)?;
    let bytes = grown(rule, asked, has, disk?)?;
    Some(Wish {
        text: format!("{}Gi", bytes / GIB),
        why: format!(
            "it is more than {} % full (spec.storage.autoGrow)",
            rule.above_percent
        ),
    })
}

/// The next size of a volume of which so many bytes were asked for, and which has so many, if it is to grow by itself. Sizes are
/// whole GiB.
fn grown(rule: &AutoGrow, asked: i64, has: i64, disk: &Disk) -> Option<i64> {
    let used = disk.used_ratio?;
    // Before the last growth is there, and the broker counts with it, the figure is of the old size.
    let settled = has >= asked && disk.capacity_bytes == asked;
    if !settled || asked >= rule.maximum_bytes || used * 100.0 <= f64::from(rule.above_percent) {
        return None;
    }
    let step = (asked / 100).saturating_mul(i64::from(rule.step_percent));
    let next = whole_gib(asked.saturating_add(step.max(1)));
    let bytes = next.min(rule.maximum_bytes / GIB * GIB);
    (bytes > asked).then_some(bytes)
}

fn whole_gib(bytes: i64) -> i64 {
    (bytes / GIB + i64::from(bytes % GIB > 0)).saturating_mul(GIB)
}

/// Bytes that the volume of a claim has.
fn capacity(claim: &PersistentVolumeClaim) -> Option<i64> {
    let has = claim.status.as_ref()?.capacity.as_ref()?.get("storage")?;
    Quantity::parse(&has.0).and_then(Quantity::bytes)
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Bound")
}

/// Asks for larger volumes. A refusal is told and does not hold up the rest.
///
/// # Errors
/// A write to Kubernetes failed for another reason.
pub(super) async fn grow(
    cx: &Context,
    cluster: &BrokerCluster,
    valid: &ValidCluster,
    observed: &mut Observed,
    reports: &Reports,
) -> Result<Vec<String>, Error> {
    let api = cx.api::<PersistentVolumeClaim>(&valid.namespace);
    let mut notes = Vec::new();
    for group in &valid.groups {
        for ordinal in 0..valid.replicas {
            let name = names::claim(&valid.name, group.index, ordinal);
            // One that has no volume yet cannot be changed; it is looked at again.
            let Some(claim) = observed.claims.get(&name).filter(|claim| is_bound(claim)) else {
                continue;
            };
            let report = reports.get(&names::broker(&valid.name, group.index, ordinal));
            let disk = report.and_then(|report| report.as_ref().ok()?.disk.as_ref());
            let Some(wish) = wish(valid, claim, disk) else {
                continue;
            };
            let patch = json!({"spec": {"resources": {"requests": {"storage": wish.text}}}});
            let parameters = PatchParams {
                field_manager: Some(names::MANAGER.to_owned()),
                ..PatchParams::default()
            };
            match api.patch(&name, &parameters, &Patch::Merge(&patch)).await {
                Ok(grown) => {
                    cx.metrics.wrote("PersistentVolumeClaim");
                    let text = format!("volume {name} is asked to grow to {}: {}", wish.text, wish.why);
                    tell(cx, cluster, Weight::Normal, "VolumeGrows", &text).await;
                    observed.claims.insert(name, grown);
                }
                Err(kube::Error::Api(status)) if matches!(status.code, 403 | 422) => {
                    // The API server adds a dump of the whole claim on further lines.
                    let why = status.message.lines().next().unwrap_or_default();
                    notes.push(format!("volume {name} cannot grow to {}: {why}", wish.text));
                }
                Err(e) => return Err(Error::api(format!("grow volume {name}"))(e)),
            }
        }
    }
    Ok(notes)
}

#[cfg(test)]
mod tests {
    use super::super::validate::{Existing, tests::cluster, validate};
    use super::*;
    use serde_json::Value;

    fn valid(storage: &Value) -> ValidCluster {
        validate(&cluster(json!({"storage": storage})), &Existing::default()).unwrap()
    }

    fn claim(asked: &str, has: &str) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"spec": {"resources": {"requests": {"storage": asked}}},
            "status": {"phase": "Bound", "capacity": {"storage": has}}}))
        .unwrap()
    }

    fn disk(used: f64, gib: i64) -> Disk {
        Disk {
            used_ratio: Some(used),
            capacity_bytes: gib * GIB,
            ..Disk::default()
        }
    }

    fn wished(valid: &ValidCluster, claim: &PersistentVolumeClaim, disk: &Disk) -> Option<String> {
        wish(valid, claim, Some(disk)).map(|wish| wish.text)
    }

    #[test]
    fn a_volume_becomes_what_the_spec_asks_for() {
        let valid = valid(&json!({"size": "15Gi"}));
        assert_eq!(
            wished(&valid, &claim("10Gi", "10Gi"), &disk(0.1, 10)).as_deref(),
            Some("15Gi")
        );
        assert_eq!(
            wish(&valid, &claim("15Gi", "10Gi"), None),
            None,
            "asked for already"
        );
        assert_eq!(
            wished(&valid, &claim("20Gi", "20Gi"), &disk(0.99, 20)),
            None,
            "by itself only where it is allowed"
        );
    }

    #[test]
    fn a_full_volume_grows_by_steps_up_to_its_maximum() {
        let valid = valid(&json!({"size": "10Gi",
            "autoGrow": {"abovePercent": 80, "stepPercent": 25, "maximum": "16Gi"}}));
        for (asked, used, next) in [
            (10, 0.80, None),
            (10, 0.81, Some("13Gi")),
            (13, 0.81, Some("16Gi")),
            (16, 0.99, None),
            (20, 0.99, None),
        ] {
            let size = format!("{asked}Gi");
            assert_eq!(
                wished(&valid, &claim(&size, &size), &disk(used, asked)).as_deref(),
                next,
                "{asked} {used}"
            );
        }
        assert_eq!(
            wish(&valid, &claim("10Gi", "10Gi"), None),
            None,
            "a broker that says nothing"
        );
    }

    #[test]
    fn nothing_grows_before_the_last_growth_is_there_and_counted() {
        let valid = valid(&json!({"size": "10Gi", "autoGrow": {"maximum": "100Gi"}}));
        assert_eq!(wished(&valid, &claim("12Gi", "10Gi"), &disk(0.9, 10)), None);
        assert_eq!(
            wished(&valid, &claim("12Gi", "12Gi"), &disk(0.9, 10)),
            None,
            "the broker counts with the old size"
        );
        assert_eq!(
            wished(&valid, &claim("12Gi", "12Gi"), &disk(0.9, 12)).as_deref(),
            Some("15Gi")
        );
    }

    #[test]
    fn sizes_are_whole_gib_and_always_more() {
        let rule = AutoGrow {
            above_percent: 50,
            step_percent: 5,
            maximum_bytes: i64::MAX,
        };
        let of = |asked| grown(&rule, asked, asked, &disk_of(0.6, asked));
        assert_eq!(of(GIB), Some(2 * GIB));
        assert_eq!(of(3 * GIB / 2), Some(2 * GIB));
        assert_eq!(of(100 * GIB), Some(105 * GIB));
        let tight = AutoGrow {
            maximum_bytes: GIB * 5 / 2,
            ..rule
        };
        assert_eq!(grown(&tight, 2 * GIB, 2 * GIB, &disk_of(0.6, 2 * GIB)), None);
    }

    fn disk_of(used: f64, bytes: i64) -> Disk {
        Disk {
            capacity_bytes: bytes,
            ..disk(used, 0)
        }
    }
}
