//! Namespaces: several tenants' topics and groups on one cluster, told apart by `namespace%name`.
//!
//! The prefix stands behind `%RETRY%` and `%DLQ%`; topics and groups of the system never have one.

use ferromq_protocol::names::{is_system_group, is_system_topic, topics};

/// Puts a namespace before names and takes it off again; without one, leaves them alone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespace {
    prefix: String,
}

impl Namespace {
    pub(crate) fn new(name: Option<&str>) -> Self {
        let name = name.map(str::trim).filter(|name| !name.is_empty());
        Self {
            prefix: name.map(|name| format!("{name}%")).unwrap_or_default(),
        }
    }

    pub(crate) fn topic(&self, topic: &str) -> String {
        if self.prefix.is_empty() || is_system_topic(topic) {
            return topic.to_owned();
        }
        self.put(topic)
    }

    pub(crate) fn group(&self, group: &str) -> String {
        if self.prefix.is_empty() || is_system_group(group) {
            return group.to_owned();
        }
        self.put(group)
    }

    fn put(&self, name: &str) -> String {
        let (kind, bare) = split_kind(name);
        if bare.starts_with(&self.prefix) {
            return name.to_owned();
        }
        format!("{kind}{}{bare}", self.prefix)
    }

    /// The name without the namespace.
    pub(crate) fn strip(&self, name: &str) -> String {
        let (kind, bare) = split_kind(name);
        match bare.strip_prefix(self.prefix.as_str()) {
            Some(rest) if !self.prefix.is_empty() => format!("{kind}{rest}"),
            _ => name.to_owned(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.prefix.is_empty()
    }
}

fn split_kind(name: &str) -> (&str, &str) {
    for kind in [topics::RETRY_PREFIX, topics::DLQ_PREFIX] {
        if let Some(bare) = name.strip_prefix(kind) {
            return (kind, bare);
        }
    }
    ("", name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_namespace_once_and_lose_it_again() {
        let ns = Namespace::new(Some("INST"));
        for (bare, full) in [
            ("T", "INST%T"),
            ("%RETRY%G", "%RETRY%INST%G"),
            ("%DLQ%G", "%DLQ%INST%G"),
            ("RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRACE_TOPIC"),
            ("TBW102", "TBW102"),
        ] {
            assert_eq!(ns.topic(bare), full);
            assert_eq!(ns.topic(full), full);
            assert_eq!(ns.strip(full), bare);
        }
        assert_eq!(ns.group("G"), "INST%G");
        assert_eq!(ns.group("CID_RMQ_SYS_TRANS"), "CID_RMQ_SYS_TRANS");
        let none = Namespace::new(Some(" "));
        assert_eq!(
            (none.topic("T"), none.strip("INST%T")),
            ("T".into(), "INST%T".into())
        );
    }
}
