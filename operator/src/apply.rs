//! Server-side apply of built objects, without a write where nothing would change, and removal of what is not wanted.
//!
//! An object is written when it is missing, when the living one does not cover it, or when the digest of what was
//! last applied (kept in an annotation) differs: the digest tells of fields that are no longer wanted, covering tells
//! of changes by others. Objects of our names that belong to somebody else are never touched.

use crate::context::Context;
use crate::controller::brokercluster::build::{ObjectKind, Plan, Wanted};
use crate::covers::covers;
use crate::digest;
use crate::error::Error;
use crate::names;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    Preconditions,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Objects of one BrokerCluster as they are, by kind and name.
pub type Live = BTreeMap<(ObjectKind, String), Value>;

/// The API of a kind, for JSON values.
pub fn api(cx: &Context, kind: ObjectKind, namespace: &str) -> Api<DynamicObject> {
    let (version, word) = kind.version_and_kind();
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, word));
    Api::namespaced_with(cx.client.clone(), namespace, &resource)
}

/// Reads all objects of the kinds that a BrokerCluster is made of.
///
/// # Errors
/// Any failure to read: it never stands for "there is none".
pub async fn read(cx: &Context, namespace: &str, cluster: &str) -> Result<Live, Error> {
    let mine = ListParams::default().labels(&format!("{}={cluster}", names::CLUSTER_LABEL));
    let mut live = Live::new();
    for kind in ObjectKind::ALL {
        let (version, word) = kind.version_and_kind();
        let list = api(cx, kind, namespace)
            .list(&mine)
            .await
            .map_err(Error::api(format!("list the {word}s of {cluster}")))?;
        for object in list {
            let name = object.metadata.name.clone().unwrap_or_default();
            live.insert((kind, name), value(object, version, word)?);
        }
    }
    Ok(live)
}

fn value(object: DynamicObject, version: &str, word: &str) -> Result<Value, Error> {
    let mut value = serde_json::to_value(object).map_err(|source| Error::Json {
        action: format!("read a {word}"),
        source,
    })?;
    // Items of a list do not carry these.
    value["apiVersion"] = json!(version);
    value["kind"] = json!(word);
    Ok(value)
}

/// What has to be done about one wanted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// Apply it.
    Apply,
    /// It belongs to somebody else.
    Refuse,
}

/// Decides about a wanted object (with its digest annotation) and the living one of that name.
pub fn decide(live: Option<&Value>, wanted: &Value, owner_uid: &str) -> Step {
    let Some(live) = live else { return Step::Apply };
    if !belongs_to(live, owner_uid) {
        return Step::Refuse;
    }
    let applied = |v: &Value| v["metadata"]["annotations"][names::APPLIED_ANNOTATION].clone();
    if applied(live) == applied(wanted) && covers(live, wanted) {
        Step::Leave
    } else {
        Step::Apply
    }
}

fn belongs_to(live: &Value, owner_uid: &str) -> bool {
    live["metadata"]["ownerReferences"]
        .as_array()
        .is_some_and(|all| all.iter().any(|o| o["uid"] == owner_uid))
}

/// The object with the digest of itself as an annotation.
pub fn with_digest(wanted: &Wanted) -> Value {
    let mut value = wanted.value.clone();
    let digest = digest::short(&value.to_string());
    value["metadata"]["annotations"][names::APPLIED_ANNOTATION] = json!(digest);
    value
}

/// Makes the world as planned, in the plan's order, and keeps `live` up to date with what the server answered.
///
/// # Errors
/// The first failure; what comes after it may depend on what failed.
pub async fn apply(
    cx: &Context,
    namespace: &str,
    owner_uid: &str,
    plan: &Plan,
    live: &mut Live,
) -> Result<(), Error> {
    for wanted in &plan.objects {
        let (version, word) = wanted.kind.version_and_kind();
        let api = api(cx, wanted.kind, namespace);
        let key = (wanted.kind, wanted.name.clone());
        if !live.contains_key(&key) {
            // It may exist without our labels.
            let found = api
                .get_opt(&wanted.name)
                .await
                .map_err(Error::api(format!("look for {word} {}", wanted.name)))?;
            if let Some(found) = found {
                live.insert(key.clone(), value(found, version, word)?);
            }
        }
        let desired = with_digest(wanted);
        match decide(live.get(&key), &desired, owner_uid) {
            Step::Leave => {}
            Step::Refuse => {
                return Err(Error::NameTaken {
                    kind: word,
                    name: wanted.name.clone(),
                });
            }
            Step::Apply => {
                let parameters = PatchParams::apply(names::MANAGER).force();
                let answer = api
                    .patch(&wanted.name, &parameters, &Patch::Apply(&desired))
                    .await
                    .map_err(Error::api(format!("apply {word} {}", wanted.name)))?;
                cx.metrics.wrote(word);
                tracing::info!(namespace, kind = word, name = wanted.name, "applied");
                live.insert(key, value(answer, version, word)?);
            }
        }
    }
    prune(cx, namespace, owner_uid, plan, live).await
}

/// Removes what belongs to the cluster but is no longer planned. StatefulSets stay: a group leaves by its own way.
async fn prune(
    cx: &Context,
    namespace: &str,
    owner_uid: &str,
    plan: &Plan,
    live: &mut Live,
) -> Result<(), Error> {
    for (kind, name) in superfluous(owner_uid, plan, live) {
        let (_, word) = kind.version_and_kind();
        let uid = live
            .get(&(kind, name.clone()))
            .and_then(|v| v["metadata"]["uid"].as_str())
            .map(str::to_owned);
        let parameters = DeleteParams {
            preconditions: Some(Preconditions {
                uid,
                resource_version: None,
            }),
            ..DeleteParams::background()
        };
        match api(cx, kind, namespace).delete(&name, &parameters).await {
            Ok(_) => {
                cx.metrics.wrote(word);
                tracing::info!(namespace, kind = word, name, "deleted, no longer wanted");
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            Err(e) => return Err(Error::api(format!("delete {word} {name}"))(e)),
        }
        live.remove(&(kind, name));
    }
    Ok(())
}

/// What `prune` would remove.
pub fn superfluous(owner_uid: &str, plan: &Plan, live: &Live) -> Vec<(ObjectKind, String)> {
    if !plan.waiting.is_empty() {
        return Vec::new();
    }
    live.iter()
        .filter(|((kind, name), value)| {
            *kind != ObjectKind::StatefulSet
                && belongs_to(value, owner_uid)
                && !plan.held.contains(&(*kind, name.clone()))
                && !plan.objects.iter().any(|w| w.kind == *kind && w.name == *name)
        })
        .map(|(key, _)| key.clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(spec: &Value) -> Wanted {
        let value = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "s", "ownerReferences": [{"uid": "u"}]},
            "spec": spec,
        });
        Wanted {
            kind: ObjectKind::Service,
            name: "s".to_owned(),
            value,
        }
    }

    #[test]
    fn what_was_applied_is_left_alone_until_it_differs() {
        let desired = with_digest(&wanted(&json!({"a": 1, "b": 2})));
        assert_eq!(decide(None, &desired, "u"), Step::Apply);
        let mut live = desired.clone();
        live["status"] = json!({"x": 1});
        live["spec"]["filled"] = json!("by the server");
        assert_eq!(decide(Some(&live), &desired, "u"), Step::Leave);
        let fewer = with_digest(&wanted(&json!({"a": 1})));
        assert_eq!(
            decide(Some(&live), &fewer, "u"),
            Step::Apply,
            "a field that is gone is seen by the digest"
        );
        live["spec"]["b"] = json!(3);
        assert_eq!(
            decide(Some(&live), &desired, "u"),
            Step::Apply,
            "a change by hand is seen by covering"
        );
    }

    #[test]
    fn objects_of_others_are_not_touched() {
        let desired = with_digest(&wanted(&json!({})));
        let mut live = desired.clone();
        live["metadata"]["ownerReferences"] = json!([{"uid": "somebody"}]);
        assert_eq!(decide(Some(&live), &desired, "u"), Step::Refuse);
        live["metadata"]["ownerReferences"] = Value::Null;
        assert_eq!(decide(Some(&live), &desired, "u"), Step::Refuse);
    }

    #[test]
    fn only_own_objects_that_nobody_wants_go_and_never_a_stateful_set() {
        let mine = json!({"metadata": {"ownerReferences": [{"uid": "u"}]}});
        let other = json!({"metadata": {}});
        let live = Live::from([
            ((ObjectKind::Service, "s".to_owned()), mine.clone()),
            ((ObjectKind::Service, "old".to_owned()), mine.clone()),
            ((ObjectKind::Service, "foreign".to_owned()), other),
            ((ObjectKind::StatefulSet, "old".to_owned()), mine),
        ]);
        let plan = Plan {
            objects: vec![wanted(&json!({}))],
            ..Plan::default()
        };
        assert_eq!(
            superfluous("u", &plan, &live),
            [(ObjectKind::Service, "old".to_owned())]
        );
        let waiting = Plan {
            waiting: vec![0],
            ..plan
        };
        assert!(superfluous("u", &waiting, &live).is_empty());
    }
}
