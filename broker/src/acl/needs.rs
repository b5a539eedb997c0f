//! What each request needs: one row for each code that the broker answers.
//!
//! The rows follow Java's, and go further where Java leaves a hole that no client depends on: a batch needs what a single
//! send needs, changing or seeing accounts needs an administrator, and so does all that deletes or moves. A retry topic
//! counts as its group everywhere. A test fails when a code is served without a row.

use ferromq_protocol::Command;
use ferromq_protocol::body::{HeartbeatData, LockBatchRequestBody};
use ferromq_protocol::code::request as code;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::SendMessage;
use ferromq_protocol::names::topics;

use super::rules::{Perm, Resource};

/// What an account must be or have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) admin: bool,
    pub(crate) perms: Vec<(Resource, Perm)>,
}

impl Needs {
    pub(crate) fn admin() -> Self {
        Self {
            admin: true,
            perms: Vec::new(),
        }
    }

    pub(crate) fn topic(name: &str, perm: Perm) -> Self {
        Self {
            admin: false,
            perms: vec![(Resource::topic(name), perm)],
        }
    }

    pub(crate) fn group(name: &str, perm: Perm) -> Self {
        Self {
            admin: false,
            perms: vec![(Resource::group(name), perm)],
        }
    }
}

/// How the needs of a code are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Any account.
    Signed,
    /// An administrator's account.
    Admin,
    /// PUB on the topic; SUB on the group when it is a retry topic.
    Send,
    /// SUB on the group in the argument of this name.
    Group(&'static str),
    /// SUB on the topic in the argument `topic`.
    Topic,
    /// SUB on the group in the argument of this name, and on the topic.
    GroupAndTopic(&'static str),
    /// SUB on the groups and topics in a heartbeat.
    Heartbeat,
    /// SUB on the group in a lock's body.
    Lock,
}

/// The table.
pub(crate) const RULES: &[(i32, Rule)] = &[
    (code::SEND_MESSAGE, Rule::Send),
    (code::SEND_MESSAGE_V2, Rule::Send),
    (code::SEND_BATCH_MESSAGE, Rule::Send),
    (code::CONSUMER_SEND_MSG_BACK, Rule::Group("group")),
    // The topic is the cluster's reply topic, which accounts have no permissions for.
    (code::SEND_REPLY_MESSAGE, Rule::Signed),
    (code::SEND_REPLY_MESSAGE_V2, Rule::Signed),
    (code::END_TRANSACTION, Rule::Signed),
    (code::PULL_MESSAGE, Rule::GroupAndTopic("consumerGroup")),
    (code::QUERY_MESSAGE, Rule::Topic),
    (code::VIEW_MESSAGE_BY_ID, Rule::Signed),
    (code::HEART_BEAT, Rule::Heartbeat),
    (code::CHECK_CLIENT_CONFIG, Rule::Signed),
    (code::UNREGISTER_CLIENT, Rule::Group("consumerGroup")),
    (code::GET_CONSUMER_LIST_BY_GROUP, Rule::Group("consumerGroup")),
    (code::UPDATE_CONSUMER_OFFSET, Rule::GroupAndTopic("consumerGroup")),
    (code::QUERY_CONSUMER_OFFSET, Rule::GroupAndTopic("consumerGroup")),
    (code::LOCK_BATCH_MQ, Rule::Lock),
    (code::UNLOCK_BATCH_MQ, Rule::Lock),
    // Producers and consumers of any topic ask for these.
    (code::GET_MAX_OFFSET, Rule::Signed),
    (code::GET_MIN_OFFSET, Rule::Signed),
    (code::SEARCH_OFFSET_BY_TIMESTAMP, Rule::Signed),
    (code::GET_EARLIEST_MSG_STORETIME, Rule::Signed),
    // What administrators look at.
    (code::GET_ALL_TOPIC_CONFIG, Rule::Signed),
    (code::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, Rule::Signed),
    (code::GET_ALL_CONSUMER_OFFSET, Rule::Signed),
    (code::GET_ALL_DELAY_OFFSET, Rule::Signed),
    (code::GET_BROKER_CONFIG, Rule::Signed),
    (code::GET_BROKER_RUNTIME_INFO, Rule::Signed),
    (code::GET_TOPIC_STATS_INFO, Rule::Signed),
    (code::GET_CONSUMER_CONNECTION_LIST, Rule::Signed),
    (code::GET_PRODUCER_CONNECTION_LIST, Rule::Signed),
    (code::GET_ALL_PRODUCER_INFO, Rule::Signed),
    (code::GET_CONSUME_STATS, Rule::Signed),
    (code::GET_BROKER_CONSUME_STATS, Rule::Signed),
    (code::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Rule::Signed),
    (code::QUERY_TOPIC_CONSUME_BY_WHO, Rule::Signed),
    (code::QUERY_CONSUME_TIME_SPAN, Rule::Signed),
    (code::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Rule::Signed),
    (code::GET_CONSUMER_RUNNING_INFO, Rule::Signed),
    (code::QUERY_CORRECTION_OFFSET, Rule::Signed),
    (code::VIEW_BROKER_STATS_DATA, Rule::Signed),
    (code::QUERY_CONSUME_QUEUE, Rule::Topic),
    (code::GET_BROKER_CLUSTER_ACL_INFO, Rule::Signed),
    // What changes something.
    (code::UPDATE_AND_CREATE_TOPIC, Rule::Admin),
    (code::DELETE_TOPIC_IN_BROKER, Rule::Admin),
    (code::UPDATE_BROKER_CONFIG, Rule::Admin),
    (code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, Rule::Admin),
    (code::DELETE_SUBSCRIPTIONGROUP, Rule::Admin),
    (code::UPDATE_AND_CREATE_ACL_CONFIG, Rule::Admin),
    (code::DELETE_ACL_CONFIG, Rule::Admin),
    (code::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, Rule::Admin),
    // The answer holds every secret.
    (code::GET_BROKER_CLUSTER_ACL_CONFIG, Rule::Admin),
    (code::INVOKE_BROKER_TO_RESET_OFFSET, Rule::Admin),
    (code::CONSUME_MESSAGE_DIRECTLY, Rule::Admin),
    (code::CLONE_GROUP_OFFSET, Rule::Admin),
    (code::CLEAN_EXPIRED_CONSUMEQUEUE, Rule::Admin),
    (code::CLEAN_UNUSED_TOPIC, Rule::Admin),
    (code::DELETE_EXPIRED_COMMITLOG, Rule::Admin),
    (code::RESUME_CHECK_HALF_MESSAGE, Rule::Admin),
    (code::REGISTER_FILTER_SERVER, Rule::Admin),
    (code::REGISTER_MESSAGE_FILTER_CLASS, Rule::Admin),
];

/// The rule of a code; None for one that this broker does not answer.
pub(crate) fn rule(code: i32) -> Option<Rule> {
    RULES
        .iter()
        .find(|(known, _)| *known == code)
        .map(|(_, rule)| *rule)
}

/// What this request needs.
///
/// # Errors
/// It lacks what would tell.
pub(crate) fn of(request: &Command) -> Result<Needs, String> {
    let argument = |name: &'static str| {
        request
            .ext
            .get(name)
            .ok_or_else(|| format!("the request has no argument {name}"))
    };
    // A code without a row is not served either: whoever asks is told so, if it has an account.
    Ok(match rule(request.code).unwrap_or(Rule::Signed) {
        Rule::Signed => Needs::default(),
        Rule::Admin => Needs::admin(),
        Rule::Send => {
            let header: SendMessage<'_> = request.header().map_err(|error| error.to_string())?;
            send(header.topic)
        }
        // A producer that leaves names no consumer group.
        Rule::Group(name) if request.code == code::UNREGISTER_CLIENT => request
            .ext
            .get(name)
            .map_or_else(Needs::default, |group| Needs::group(group, Perm::SUB)),
        Rule::Group(name) => Needs::group(argument(name)?, Perm::SUB),
        Rule::Topic => Needs::topic(argument("topic")?, Perm::SUB),
        Rule::GroupAndTopic(name) => Needs {
            admin: false,
            perms: vec![
                (Resource::group(argument(name)?), Perm::SUB),
                (Resource::topic(argument("topic")?), Perm::SUB),
            ],
        },
        Rule::Heartbeat => heartbeat(&request.body)?,
        Rule::Lock => {
            let body: LockBatchRequestBody =
                fastjson::from_slice(&request.body).map_err(|error| error.to_string())?;
            Needs::group(&body.consumer_group, Perm::SUB)
        }
    })
}

fn send(topic: &str) -> Needs {
    // Whoever may use the broker may tell how it went.
    if topic == topics::TRACE {
        return Needs::default();
    }
    match Resource::topic(topic) {
        group @ Resource::Group(_) => Needs {
            admin: false,
            perms: vec![(group, Perm::SUB)],
        },
        topic @ Resource::Topic(_) => Needs {
            admin: false,
            perms: vec![(topic, Perm::PUB)],
        },
    }
}

fn heartbeat(body: &[u8]) -> Result<Needs, String> {
    let beat: HeartbeatData =
        fastjson::from_slice(body).map_err(|error| format!("the heartbeat cannot be read: {error}"))?;
    let mut needs = Needs::default();
    for consumer in beat.consumer_data_set {
        needs
            .perms
            .push((Resource::group(&consumer.group_name), Perm::SUB));
        for subscription in consumer.subscription_data_set {
            needs
                .perms
                .push((Resource::topic(&subscription.topic), Perm::SUB));
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn send_of(code: i32, topic: &str) -> Command {
        Command::request(code).with_header(&SendMessage {
            producer_group: "PG",
            topic,
            default_topic: "TBW102",
            ..SendMessage::default()
        })
    }

    #[test]
    fn each_code_has_one_row() {
        let mut codes: Vec<i32> = RULES.iter().map(|(code, _)| *code).collect();
        codes.sort_unstable();
        let all = codes.len();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }

    #[test]
    fn sends_single_and_batch_need_to_publish() {
        for code in [
            code::SEND_MESSAGE,
            code::SEND_MESSAGE_V2,
            code::SEND_BATCH_MESSAGE,
        ] {
            assert_eq!(
                of(&send_of(code, "T")),
                Ok(Needs::topic("T", Perm::PUB)),
                "{code}"
            );
            assert_eq!(
                of(&send_of(code, "%RETRY%G")),
                Ok(Needs::group("G", Perm::SUB)),
                "{code}"
            );
            assert_eq!(of(&send_of(code, "RMQ_SYS_TRACE_TOPIC")), Ok(Needs::default()));
        }
        assert!(of(&Command::request(code::SEND_MESSAGE)).is_err());
    }

    #[test]
    fn reads_need_group_and_topic() {
        let pull = Command::request(code::PULL_MESSAGE)
            .with_ext("consumerGroup", "G")
            .with_ext("topic", "%RETRY%G");
        let group = (Resource::group("G"), Perm::SUB);
        assert_eq!(of(&pull).unwrap().perms, [group.clone(), group]);
        assert!(of(&Command::request(code::PULL_MESSAGE)).is_err());
        let leave = Command::request(code::UNREGISTER_CLIENT).with_ext("producerGroup", "PG");
        assert_eq!(of(&leave), Ok(Needs::default()));
    }

    #[test]
    fn a_heartbeat_needs_all_that_it_names() {
        let beat = Command::request(code::HEART_BEAT).with_body(
            r#"{"clientID":"c","consumerDataSet":[{"groupName":"G","subscriptionDataSet":[{"topic":"T"},{"topic":"%RETRY%G"}]}],
               "producerDataSet":[{"groupName":"PG"}]}"#,
        );
        let group = (Resource::group("G"), Perm::SUB);
        assert_eq!(
            of(&beat).unwrap().perms,
            [group.clone(), (Resource::topic("T"), Perm::SUB), group]
        );
        assert!(of(&Command::request(code::HEART_BEAT).with_body("{")).is_err());
    }
}
