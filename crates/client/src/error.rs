//! What can go wrong in a call, in terms a caller can act on.
//!
//! Each variant names the peer, the request and the next step. [`ClientError::is_unreachable`],
//! [`ClientError::is_not_found`] and [`ClientError::is_worth_another_broker`] sort them for callers
//! that only need to choose between "wait", "give up" and "try elsewhere".

use std::fmt;
use std::time::Duration;

use ferromq_protocol::code::response::{
    CONSUMER_NOT_ONLINE, FLOW_CONTROL, NO_BUYER_ID, NO_PERMISSION, NOT_IN_CURRENT_UNIT, QUERY_NOT_FOUND,
    SERVICE_NOT_AVAILABLE, SUBSCRIPTION_GROUP_NOT_EXIST, SYSTEM_BUSY, SYSTEM_ERROR, TOPIC_NOT_EXIST,
};
use ferromq_protocol::code::response_name;

/// Result of every fallible call of this crate.
pub type Result<T, E = ClientError> = std::result::Result<T, E>;

/// Failure of a call to a name server or broker.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// No name server address is known.
    #[error("no name server is configured; give a list such as \"host:9876;host2:9876\" or set NAMESRV_ADDR")]
    NoNameServers,
    /// The name server list or a broker address cannot be understood or resolved.
    #[error("the address {address:?} cannot be used: {reason}; write host:port, several separated by ';'")]
    BadAddress {
        /// The text as given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The connection could not be opened. The request was not sent.
    #[error(
        "cannot connect to {address}: {reason}; check that it is running and reachable from this machine"
    )]
    Connect {
        /// `host:port` of the peer.
        address: String,
        /// The operating system's reason.
        reason: String,
    },
    /// The connection ended before the answer came. The request may have been carried out.
    #[error("the connection to {address} was lost during {request}: {reason}")]
    Disconnected {
        /// `host:port` of the peer.
        address: String,
        /// Name of the request.
        request: &'static str,
        /// Why the connection ended.
        reason: String,
    },
    /// No answer within the time allowed. The request may have been carried out.
    #[error("{address} did not answer {request} within {after:?}; it may be overloaded or unreachable")]
    TimedOut {
        /// `host:port` of the peer.
        address: String,
        /// Name of the request.
        request: &'static str,
        /// The time allowed.
        after: Duration,
    },
    /// The peer answered with an error code.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The peer's answer does not hold what the protocol asks for.
    #[error("{address} sent an answer to {request} that cannot be read: {reason}")]
    BadAnswer {
        /// `host:port` of the peer.
        address: String,
        /// Name of the request.
        request: &'static str,
        /// What is missing or malformed.
        reason: String,
    },
    /// No name server knows a route for the topic.
    #[error(
        "no name server knows a route for topic {topic:?}; create it (ferroctl topic create {topic}), \
         or check that its brokers are up and registered"
    )]
    NoRoute {
        /// The topic asked for.
        topic: String,
    },
    /// The topic is routed, but no queue can be used for what was asked.
    #[error(
        "topic {topic:?} has no queue that is {need}; check its permission and that its brokers have a master"
    )]
    NoQueue {
        /// The topic asked for.
        topic: String,
        /// "writable" or "readable".
        need: &'static str,
    },
    /// No address is known for the broker of a queue.
    #[error("no address is known for broker {broker:?}; it may be stopped or not yet registered")]
    UnknownBroker {
        /// The broker's name.
        broker: String,
    },
    /// The message cannot be sent as it is. Nothing was sent.
    #[error("the message cannot be sent: {reason}")]
    InvalidMessage {
        /// What is wrong with it.
        reason: String,
    },
    /// An argument is not of the form it must have. Nothing was sent.
    #[error("{reason}")]
    InvalidArgument {
        /// What is wrong with which argument.
        reason: String,
    },
    /// Every attempt of a send failed.
    #[error("send to topic {topic:?} failed after {} attempt(s), the last at {}", attempts.len(), Attempts(attempts))]
    SendFailed {
        /// The topic.
        topic: String,
        /// The attempts in order, at least one.
        attempts: Vec<Attempt>,
    },
    /// Too much waits to be written to this peer already. The request was not sent.
    #[error("{address} does not keep up: {reason}")]
    Overloaded {
        /// `host:port` of the peer.
        address: String,
        /// How much waits.
        reason: String,
    },
    /// The request was stopped before it left, by its size or by a hook such as access control.
    #[error("{request} was not sent: {reason}")]
    NotSent {
        /// Name of the request.
        request: &'static str,
        /// What stopped it.
        reason: String,
    },
    /// The file of a broadcasting consumer's offsets cannot be written.
    #[error("the offsets cannot be saved to {}: {reason}; messages since the last save may come again", path.display())]
    Offsets {
        /// The file.
        path: std::path::PathBuf,
        /// The operating system's reason.
        reason: String,
    },
    /// The client, producer or consumer has been shut down.
    #[error("the client is shut down")]
    Closed,
}

/// One failed attempt of a send.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Name of the broker tried.
    pub broker: String,
    /// Time from the start of the attempt to its failure.
    pub took: Duration,
    /// Why it failed.
    pub error: Box<ClientError>,
}

struct Attempts<'a>(&'a [Attempt]);

impl fmt::Display for Attempts<'_> {
    /// The last attempt in full; of those before it, what differs, without hints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((last, before)) = self.0.split_last() else {
            return Ok(());
        };
        write!(
            f,
            "{} after {} ms: {}",
            last.broker,
            last.took.as_millis(),
            last.error
        )?;
        let told = last.error.to_string();
        for attempt in before {
            let text = attempt.error.to_string();
            if text != told {
                let first_line = text.lines().next().unwrap_or_default();
                let millis = attempt.took.as_millis();
                write!(
                    f,
                    "\n  before that, {} after {millis} ms: {first_line}",
                    attempt.broker
                )?;
            }
        }
        Ok(())
    }
}

/// An answer with an error code.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// `host:port` of the peer.
    pub address: String,
    /// Name of the request.
    pub request: &'static str,
    /// The response code, see [`code_name`].
    pub code: i32,
    /// The peer's own words; may be empty.
    pub remark: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = code_name(self.code);
        write!(
            f,
            "{} answered {} with code {} {name}",
            self.address, self.request, self.code
        )?;
        let remark = self.remark.trim();
        if !remark.is_empty() {
            write!(f, ": {remark}")?;
        }
        match hint(self.code) {
            Some(hint) => write!(f, "\n  hint: {hint}"),
            None => Ok(()),
        }
    }
}

impl ClientError {
    /// The peer's response code, of the last attempt for [`ClientError::SendFailed`].
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            Self::SendFailed { attempts, .. } => attempts.last().and_then(|a| a.error.code()),
            _ => None,
        }
    }

    /// True if the peer could not be reached or did not answer: waiting may help.
    pub fn is_unreachable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Disconnected { .. } | Self::TimedOut { .. } => true,
            Self::SendFailed { attempts, .. } => attempts.last().is_some_and(|a| a.error.is_unreachable()),
            _ => false,
        }
    }

    /// True if what was asked for does not exist.
    pub fn is_not_found(&self) -> bool {
        match self {
            Self::NoRoute { .. } | Self::UnknownBroker { .. } => true,
            _ => matches!(
                self.code(),
                Some(TOPIC_NOT_EXIST | QUERY_NOT_FOUND | SUBSCRIPTION_GROUP_NOT_EXIST | CONSUMER_NOT_ONLINE)
            ),
        }
    }

    /// True if the same send may succeed at another broker.
    pub fn is_worth_another_broker(&self) -> bool {
        self.is_unreachable()
            || matches!(self, Self::UnknownBroker { .. } | Self::BadAnswer { .. })
            || matches!(
                self.code(),
                Some(
                    SYSTEM_ERROR
                        | SERVICE_NOT_AVAILABLE
                        | NO_PERMISSION
                        | TOPIC_NOT_EXIST
                        | NO_BUYER_ID
                        | NOT_IN_CURRENT_UNIT
                )
            )
    }

    /// True if the peer is only busy: the same call may succeed after a pause.
    pub fn is_busy(&self) -> bool {
        matches!(self, Self::Overloaded { .. }) || matches!(self.code(), Some(SYSTEM_BUSY | FLOW_CONTROL))
    }
}

/// RocketMQ's name of a response code, `UNKNOWN` for one that is not in 4.9.
pub fn code_name(code: i32) -> &'static str {
    response_name(code).unwrap_or("UNKNOWN")
}

fn hint(code: i32) -> Option<&'static str> {
    Some(match code {
        2 | 215 => "the broker is busy; send more slowly or try again in a moment",
        3 => {
            "the peer does not know this request; check that the address is a broker's or a name server's, as needed"
        }
        13 => {
            "check the message size (maxMessageSize), the topic's length (127) and the properties (32767 bytes)"
        }
        14 => "the broker takes no writes now: it is stopping, a slave, or its disk is full",
        16 => "check the permission of the topic and of the broker, and that the group may consume",
        17 => "create the topic first, or allow automatic creation (autoCreateTopicEnable)",
        26 => "create the consumer group first, or allow automatic creation (autoCreateSubscriptionGroup)",
        206 => "no consumer of the group is connected",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: i32) -> ClientError {
        ClientError::Refused(Box::new(Refusal {
            address: "10.0.0.1:10911".into(),
            request: "SEND_MESSAGE",
            code,
            remark: "because".into(),
        }))
    }

    #[test]
    fn sorts_codes_as_the_java_producer_does() {
        for code in [1, 14, 16, 17, 204, 205] {
            assert!(refused(code).is_worth_another_broker(), "{code}");
        }
        for code in [2, 13, 26] {
            assert!(!refused(code).is_worth_another_broker(), "{code}");
        }
        assert!(refused(2).is_busy());
        assert!(refused(17).is_not_found());
        assert!(!refused(1).is_unreachable());
    }

    #[test]
    fn says_who_what_and_what_to_do() {
        let text = refused(17).to_string();
        assert!(text.contains("10.0.0.1:10911 answered SEND_MESSAGE with code 17 TOPIC_NOT_EXIST: because"));
        assert!(text.contains("hint: create the topic first"));
    }

    #[test]
    fn a_failed_send_speaks_for_its_last_attempt() {
        let attempt = |error| Attempt {
            broker: "broker-a".into(),
            took: Duration::from_millis(7),
            error: Box::new(error),
        };
        let error = ClientError::SendFailed {
            topic: "T".into(),
            attempts: vec![
                attempt(refused(1)),
                attempt(ClientError::Connect {
                    address: "a:1".into(),
                    reason: "refused".into(),
                }),
            ],
        };
        assert!(error.is_unreachable());
        assert_eq!(error.code(), None);
        let text = error.to_string();
        assert!(
            text.contains("2 attempt(s), the last at broker-a after 7 ms: cannot connect to a:1"),
            "{text}"
        );
    }
}
