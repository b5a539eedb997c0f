//! All reads of a pass, before anything is judged or written.

use super::build::{Facts, ObjectKind};
use super::validate::{Existing, ValidCluster};
use crate::apply::{self, Live};
use crate::context::Context;
use crate::error::Error;
use crate::names;
use crate::quantity::Quantity;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The world as one pass sees it.
#[derive(Debug, Clone, Default)]
pub struct Observed {
    /// Objects that the operator makes.
    pub live: Live,
    /// Pods, by name.
    pub pods: BTreeMap<String, Pod>,
    /// Volume claims, by name.
    pub claims: BTreeMap<String, PersistentVolumeClaim>,
    /// Whether the Secret with certificates says whom to trust.
    pub trusted: bool,
}

/// Reads everything.
///
/// # Errors
/// Any failure to read: it never stands for "there is none".
pub async fn dereference(cx: &Context, namespace: &str, cluster: &str) -> Result<Observed, Error> {
    let live = apply::read(cx, namespace, cluster).await?;
    let mine = ListParams::default().labels(&format!("{}={cluster}", names::CLUSTER_LABEL));
    let pods = cx
        .api::<Pod>(namespace)
        .list(&mine)
        .await
        .map_err(Error::api(format!("list the pods of {cluster}")))?;
    let claims = cx
        .api::<PersistentVolumeClaim>(namespace)
        .list(&mine)
        .await
        .map_err(Error::api(format!("list the volume claims of {cluster}")))?;
    Ok(Observed {
        live,
        pods: pods.into_iter().map(|p| (p.name_any(), p)).collect(),
        claims: claims.into_iter().map(|c| (c.name_any(), c)).collect(),
        trusted: false,
    })
}

impl Observed {
    /// What limits a changed spec.
    pub fn existing(&self) -> Existing {
        Existing {
            template_sizes: template_sizes(&self.live),
            groups: self.groups(),
        }
    }

    /// Groups of which a StatefulSet or a pod exists.
    fn groups(&self) -> BTreeSet<i32> {
        let sets = self
            .live
            .iter()
            .filter(|((kind, _), _)| *kind == ObjectKind::StatefulSet)
            .filter_map(|(_, set)| set["metadata"]["labels"][names::GROUP_LABEL].as_str());
        let pods = self
            .pods
            .values()
            .filter_map(|p| p.metadata.labels.as_ref()?.get(names::GROUP_LABEL))
            .map(String::as_str);
        sets.chain(pods).filter_map(|text| text.parse().ok()).collect()
    }

    /// What building needs.
    pub fn facts(&self, cluster: &ValidCluster) -> Facts {
        let mut claimed_bytes = BTreeMap::new();
        for group in &cluster.groups {
            let asked = (0..cluster.replicas)
                .filter_map(|ordinal| {
                    self.claims
                        .get(&names::claim(&cluster.name, group.index, ordinal))
                })
                .filter_map(claimed)
                .min();
            if let Some(bytes) = asked {
                claimed_bytes.insert(group.index, bytes);
            }
        }
        Facts {
            addresses: addresses(&self.live),
            template_sizes: template_sizes(&self.live),
            claimed_bytes,
            trusted: self.trusted,
        }
    }
}

/// Bytes that a claim asks for.
pub fn claimed(claim: &PersistentVolumeClaim) -> Option<i64> {
    let asked = claim
        .spec
        .as_ref()?
        .resources
        .as_ref()?
        .requests
        .as_ref()?
        .get("storage")?;
    Quantity::parse(&asked.0).and_then(Quantity::bytes)
}

fn addresses(live: &Live) -> BTreeMap<String, String> {
    live.iter()
        .filter(|((kind, _), _)| *kind == ObjectKind::Service)
        .filter_map(|((_, name), value)| {
            let address = value["spec"]["clusterIP"].as_str()?;
            (!address.is_empty() && address != "None").then(|| (name.clone(), address.to_owned()))
        })
        .collect()
}

fn template_sizes(live: &Live) -> BTreeMap<i32, String> {
    live.iter()
        .filter(|((kind, _), _)| *kind == ObjectKind::StatefulSet)
        .filter_map(|(_, value)| {
            let index = value["metadata"]["labels"][names::GROUP_LABEL]
                .as_str()?
                .parse()
                .ok()?;
            Some((index, template_size(value)?.to_owned()))
        })
        .collect()
}

fn template_size(set: &Value) -> Option<&str> {
    set.pointer("/spec/volumeClaimTemplates/0/spec/resources/requests/storage")?
        .as_str()
}
