//! Names of topics and groups: reserved ones, derived ones, and what is allowed.

use thiserror::Error;

/// Topics with a meaning of their own.
pub mod topics {
    /// Whose settings topics made on first use inherit.
    pub const AUTO_CREATE: &str = "TBW102";
    /// Holds delayed messages until they are due.
    pub const SCHEDULE: &str = "SCHEDULE_TOPIC_XXXX";
    /// For benchmarks.
    pub const BENCHMARK: &str = "BenchmarkTest";
    /// Holds half messages.
    pub const TRANS_HALF: &str = "RMQ_SYS_TRANS_HALF_TOPIC";
    /// Says which half messages are decided.
    pub const TRANS_OP_HALF: &str = "RMQ_SYS_TRANS_OP_HALF_TOPIC";
    /// Holds half messages that were asked about too often.
    pub const TRANS_CHECK_MAX_TIME: &str = "TRANS_CHECK_MAX_TIME_TOPIC";
    /// Holds clients' traces.
    pub const TRACE: &str = "RMQ_SYS_TRACE_TOPIC";
    /// For self tests.
    pub const SELF_TEST: &str = "SELF_TEST_TOPIC";
    /// Tells of pulls whose offset was corrected.
    pub const OFFSET_MOVED: &str = "OFFSET_MOVED_EVENT";
    /// Every topic with this beginning belongs to the system.
    pub const SYSTEM_PREFIX: &str = "rmq_sys_";
    /// Beginning of a group's retry topic.
    pub const RETRY_PREFIX: &str = "%RETRY%";
    /// Beginning of a group's dead-letter topic.
    pub const DLQ_PREFIX: &str = "%DLQ%";
    /// Beginning of light queues.
    pub const LMQ_PREFIX: &str = "%LMQ%";
    /// End of a cluster's reply topic.
    pub const REPLY_SUFFIX: &str = "_REPLY_TOPIC";
}

/// Whether a topic or group is one of light queues.
pub fn is_light(name: &str) -> bool {
    name.starts_with(topics::LMQ_PREFIX)
}

/// Groups with a meaning of their own.
pub mod groups {
    /// Of the administration tools.
    pub const TOOLS_CONSUMER: &str = "TOOLS_CONSUMER";
    /// Of filter servers.
    pub const FILTERSRV_CONSUMER: &str = "FILTERSRV_CONSUMER";
    /// Of the delay service.
    pub const SCHEDULE_CONSUMER: &str = "SCHEDULE_CONSUMER";
    /// Of the monitor.
    pub const MONITOR_CONSUMER: &str = "__MONITOR_CONSUMER";
    /// The producer inside each client.
    pub const CLIENT_INNER_PRODUCER: &str = "CLIENT_INNER_PRODUCER";
    /// For self tests.
    pub const SELF_TEST_PRODUCER: &str = "SELF_TEST_P_GROUP";
    /// For self tests.
    pub const SELF_TEST_CONSUMER: &str = "SELF_TEST_C_GROUP";
    /// Of a hosted product.
    pub const ONS_HTTP_PROXY: &str = "CID_ONS-HTTP-PROXY";
    /// Of a hosted product.
    pub const ONSAPI_PERMISSION: &str = "CID_ONSAPI_PERMISSION";
    /// Of a hosted product.
    pub const ONSAPI_OWNER: &str = "CID_ONSAPI_OWNER";
    /// Of a hosted product.
    pub const ONSAPI_PULL: &str = "CID_ONSAPI_PULL";
    /// Of the transaction service.
    pub const TRANS: &str = "CID_RMQ_SYS_TRANS";
    /// Beginning of the system's groups.
    pub const SYSTEM_PREFIX: &str = "CID_RMQ_SYS_";
    /// A producer that was given no name.
    pub const DEFAULT_PRODUCER: &str = "DEFAULT_PRODUCER";
    /// A consumer that was given no name.
    pub const DEFAULT_CONSUMER: &str = "DEFAULT_CONSUMER";
    /// The groups that a broker makes when it starts.
    pub const AT_START: [&str; 7] = [
        TOOLS_CONSUMER,
        FILTERSRV_CONSUMER,
        SELF_TEST_CONSUMER,
        ONS_HTTP_PROXY,
        ONSAPI_PULL,
        ONSAPI_PERMISSION,
        ONSAPI_OWNER,
    ];
}

/// Most characters of a topic's name.
pub const MAX_TOPIC: usize = 127;
/// Most characters of a group's name.
pub const MAX_GROUP: usize = 255;

/// The topic to which a group's failed messages go.
pub fn retry_topic(group: &str) -> String {
    format!("{}{group}", topics::RETRY_PREFIX)
}

/// The topic to which a group's dead letters go.
pub fn dlq_topic(group: &str) -> String {
    format!("{}{group}", topics::DLQ_PREFIX)
}

/// The topic to which a cluster's replies go.
pub fn reply_topic(cluster: &str) -> String {
    format!("{cluster}{}", topics::REPLY_SUFFIX)
}

/// The group of a retry topic.
pub fn group_of_retry_topic(topic: &str) -> Option<&str> {
    topic.strip_prefix(topics::RETRY_PREFIX)
}

/// True for a group's retry topic.
pub fn is_retry_topic(topic: &str) -> bool {
    topic.starts_with(topics::RETRY_PREFIX)
}

/// True for a group's dead-letter topic.
pub fn is_dlq_topic(topic: &str) -> bool {
    topic.starts_with(topics::DLQ_PREFIX)
}

/// True for topics that nobody may create or delete. A broker adds its cluster's, its own and the reply topic's names.
pub fn is_system_topic(topic: &str) -> bool {
    matches!(
        topic,
        topics::AUTO_CREATE
            | topics::SCHEDULE
            | topics::BENCHMARK
            | topics::TRANS_HALF
            | topics::TRACE
            | topics::TRANS_OP_HALF
            | topics::TRANS_CHECK_MAX_TIME
            | topics::SELF_TEST
            | topics::OFFSET_MOVED
    ) || topic.starts_with(topics::SYSTEM_PREFIX)
}

/// True for topics to which clients may not send.
pub fn is_send_forbidden(topic: &str) -> bool {
    matches!(
        topic,
        topics::SCHEDULE
            | topics::TRANS_HALF
            | topics::TRANS_OP_HALF
            | topics::TRANS_CHECK_MAX_TIME
            | topics::SELF_TEST
            | topics::OFFSET_MOVED
    )
}

/// True for groups that belong to the system.
pub fn is_system_group(group: &str) -> bool {
    group.starts_with(groups::SYSTEM_PREFIX)
        || groups::AT_START.contains(&group)
        || matches!(
            group,
            groups::DEFAULT_PRODUCER
                | groups::DEFAULT_CONSUMER
                | groups::SCHEDULE_CONSUMER
                | groups::MONITOR_CONSUMER
                | groups::CLIENT_INNER_PRODUCER
                | groups::SELF_TEST_PRODUCER
        )
}

/// Why a name is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NameError {
    /// Nothing but blanks.
    #[error("The specified {kind} is blank")]
    Blank {
        /// `topic` or `group`.
        kind: &'static str,
    },
    /// Longer than allowed.
    #[error("The specified {kind} is longer than {kind} max length {max}.")]
    TooLong {
        /// `topic` or `group`.
        kind: &'static str,
        /// Most characters.
        max: usize,
    },
    /// A character that is not allowed.
    #[error(
        "The specified {kind}[{name}] contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$ (found {found:?})"
    )]
    Character {
        /// `topic` or `group`.
        kind: &'static str,
        /// The name, at most its first 255 characters.
        name: String,
        /// The first offending character.
        found: char,
    },
}

/// Checks a topic's name: 1 to 127 letters, digits, `%`, `|`, `_` and `-`.
pub fn validate_topic(topic: &str) -> Result<(), NameError> {
    validate("topic", topic, MAX_TOPIC)
}

/// Checks a group's name: 1 to 255 letters, digits, `%`, `|`, `_` and `-`.
///
/// The group's retry topic must be a legal topic as well, so 120 is the practical limit.
pub fn validate_group(group: &str) -> Result<(), NameError> {
    validate("group", group, MAX_GROUP)
}

fn validate(kind: &'static str, name: &str, max: usize) -> Result<(), NameError> {
    if name.trim().is_empty() {
        return Err(NameError::Blank { kind });
    }
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '%' | '|' | '_' | '-');
    if let Some(found) = name.chars().find(|c| !allowed(*c)) {
        return Err(NameError::Character {
            kind,
            name: name.chars().take(MAX_GROUP).collect(),
            found,
        });
    }
    if name.len() > max {
        return Err(NameError::TooLong { kind, max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks() {
        assert!(validate_topic("%RETRY%a|b_c-D9").is_ok());
        assert!(validate_topic(&"t".repeat(127)).is_ok());
        assert_eq!(
            validate_topic(&"t".repeat(128)),
            Err(NameError::TooLong {
                kind: "topic",
                max: 127
            })
        );
        assert!(validate_group(&"t".repeat(255)).is_ok());
        assert!(validate_group(&"t".repeat(256)).is_err());
        assert_eq!(validate_group(" "), Err(NameError::Blank { kind: "group" }));
        let bad = validate_topic("a/b").unwrap_err();
        assert_eq!(
            bad,
            NameError::Character {
                kind: "topic",
                name: "a/b".into(),
                found: '/'
            }
        );
        assert!(validate_topic("../../etc").is_err());
    }

    #[test]
    fn derived() {
        assert_eq!(retry_topic("g"), "%RETRY%g");
        assert_eq!(group_of_retry_topic("%RETRY%g"), Some("g"));
        assert_eq!(dlq_topic("g"), "%DLQ%g");
        assert_eq!(reply_topic("C"), "C_REPLY_TOPIC");
        assert!(is_system_topic("TBW102") && is_system_topic("rmq_sys_x") && !is_system_topic("T"));
        assert!(is_send_forbidden("SCHEDULE_TOPIC_XXXX") && !is_send_forbidden("TBW102"));
        assert!(is_system_group("CID_RMQ_SYS_TRANS") && !is_system_group("G"));
    }
}
