//! Events: every action and every deferral, said once.
//!
//! A deferral is said when its text changes, not at each pass: what was said last is kept in memory, so a new operator
//! says it once more. An event that cannot be written is logged and not tried again; nothing depends on it.

use crate::context::Context;
use crate::names;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff;
use kube::Resource;
use kube::api::{ObjectMeta, PostParams};
use parking_lot::Mutex;
use std::collections::HashMap;

/// Most characters of an event's text that the API server takes.
const LONGEST: usize = 1_000;

/// What was said last, by object and subject.
#[derive(Debug, Default)]
pub struct Said(Mutex<HashMap<(String, String), String>>);

impl Said {
    /// Whether this is news; it is not the next time. An empty text forgets the subject.
    pub fn is_news(&self, uid: &str, subject: &str, text: &str) -> bool {
        let key = (uid.to_owned(), subject.to_owned());
        let mut said = self.0.lock();
        if text.is_empty() {
            said.remove(&key);
            return false;
        }
        said.insert(key, text.to_owned()).as_deref() != Some(text)
    }

    /// Forgets an object.
    pub fn forget(&self, uid: &str) {
        self.0.lock().retain(|(of, _), _| of != uid);
    }
}

/// How serious an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// As planned.
    Normal,
    /// A person may have to look.
    Warning,
}

/// Writes an event about a resource.
pub async fn tell<K>(cx: &Context, about: &K, weight: Weight, reason: &str, text: &str)
where
    K: Resource<DynamicType = ()>,
{
    let meta = about.meta();
    let now = jiff::Timestamp::now();
    let name = meta.name.clone().unwrap_or_default();
    let namespace = meta.namespace.clone().unwrap_or_default();
    tracing::info!(namespace, name, reason, "{text}");
    let event = Event {
        metadata: ObjectMeta {
            name: Some(format!("{name}.{:x}", now.as_nanosecond())),
            namespace: Some(namespace.clone()),
            ..ObjectMeta::default()
        },
        action: Some(reason.to_owned()),
        reason: Some(reason.to_owned()),
        note: Some(text.chars().take(LONGEST).collect()),
        event_time: Some(MicroTime(now)),
        type_: Some(
            match weight {
                Weight::Normal => "Normal",
                Weight::Warning => "Warning",
            }
            .to_owned(),
        ),
        regarding: Some(ObjectReference {
            api_version: Some(K::api_version(&()).into_owned()),
            kind: Some(K::kind(&()).into_owned()),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        }),
        reporting_controller: Some(names::MANAGER.to_owned()),
        reporting_instance: Some(cx.identity.clone()),
        ..Event::default()
    };
    let written = cx
        .api::<Event>(&namespace)
        .create(&PostParams::default(), &event)
        .await;
    if let Err(error) = written {
        tracing::debug!(%error, reason, "an event was not written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_news_once_until_it_changes() {
        let said = Said::default();
        assert!(said.is_news("u", "g0", "waits"));
        assert!(!said.is_news("u", "g0", "waits"));
        assert!(said.is_news("u", "g1", "waits"));
        assert!(said.is_news("u", "g0", "waits longer"));
        assert!(!said.is_news("u", "g0", ""));
        assert!(said.is_news("u", "g0", "waits longer"));
        said.forget("u");
        assert!(said.is_news("u", "g1", "waits"));
    }
}
