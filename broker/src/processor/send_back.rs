//! Messages that a consumer could not handle (36): stored again for the group, later, or among its dead
//! letters once they have had their tries.

use std::sync::Arc;

use ferromq_protocol::body::TopicConfig;
use ferromq_protocol::code::response;
use ferromq_protocol::header::ConsumerSendMsgBack;
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::record::{self, Check, Entry};
use ferromq_protocol::{Command, names, perm, properties};
use ferromq_remoting::{Outcome, RequestContext};
use ferromq_store::{PutMessage, PutStatus};

use super::Refusal;
use super::send::{check_open, no_group, push, put_refusal, random_queue, unit_flags, when_safe};
use crate::clock::now_ms;
use crate::core::Core;
use crate::topic_table::PERM_RW;

/// A client from this version on says how often a message may be retried (3.4.9).
const KNOWS_MAX_RECONSUME: i32 = 121;

pub(crate) fn check_group_name(group: &str) -> Result<(), Refusal> {
    names::validate_group(group)
        .and_then(|()| names::validate_topic(&names::retry_topic(group)))
        .map_err(|error| Refusal::system(format!("the consumer group [{group}] cannot be: {error}")))
}

pub(crate) fn handle(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: ConsumerSendMsgBack<'_> = request.header()?;
    let group = core
        .groups
        .get(header.group)
        .ok_or_else(|| no_group(header.group))?;
    if core.settings().broker_permission & perm::WRITE == 0 {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "the broker[{}] sending message is forbidden",
                core.identity.advertised
            ),
        ));
    }
    if group.retry_queue_nums <= 0 {
        return Ok(super::ok(request));
    }
    check_open(core)?;
    let retry = retry_topic(core, &header, group.retry_queue_nums)?;

    let gone = || Refusal::system(format!("look message by offset failed, {}", header.offset));
    let bytes = core.store.look_up(header.offset).ok_or_else(gone)?;
    let Ok(Entry::Record(message)) = record::parse(&bytes, Check::None) else {
        return Err(gone());
    };

    let limit = header
        .max_reconsume_times
        .filter(|_| request.version >= KNOWS_MAX_RECONSUME)
        .unwrap_or(group.retry_max_times);
    let dead = message.reconsume_times >= limit || header.delay_level < 0;
    let (target, queue_id, delay) = if dead {
        (dead_letter_topic(core, header.group)?, 0, 0)
    } else {
        let own = message.reconsume_times.saturating_add(3);
        let delay = if header.delay_level == 0 {
            own
        } else {
            header.delay_level
        };
        (
            retry.topic_name.clone(),
            random_queue(retry.write_queue_nums),
            delay,
        )
    };
    let sent = message.properties_text();
    let origin =
        properties::get(&sent, prop::ORIGIN_MESSAGE_ID).map_or_else(|| message.offset_id(), str::to_owned);
    let origin_topic = properties::get(&sent, prop::RETRY_TOPIC).unwrap_or(message.topic);
    let text = retry_properties(&sent, origin_topic, &origin, delay);
    let put = core
        .store
        .put(PutMessage {
            topic: &target,
            queue_id,
            flag: message.flag,
            sys_flag: message.sys_flag,
            born_timestamp: message.born_timestamp,
            born_host: message.born_host,
            reconsume_times: message.reconsume_times.saturating_add(1),
            prepared_transaction_offset: 0,
            body: message.body,
            properties: &text,
            wait_store_ok: false,
        })
        .map_err(|error| put_refusal(core, &error))?;
    core.stats.sent_back();
    core.items.sent_back(origin_topic, header.group);
    if dead {
        tracing::info!(
            group = header.group,
            topic = origin_topic,
            times = message.reconsume_times,
            "a message went to the dead letters"
        );
    }
    match put.ack.ready() {
        // It is stored: an error would only make the client send it again.
        Some(
            PutStatus::Ok
            | PutStatus::FlushDiskTimeout
            | PutStatus::FlushSlaveTimeout
            | PutStatus::SlaveNotAvailable,
        ) => Ok(super::ok(request)),
        _ => Ok(when_safe(request.reply(response::SUCCESS), put.ack)),
    }
}

/// The group's retry topic, made when it is missing.
fn retry_topic(
    core: &Core,
    header: &ConsumerSendMsgBack<'_>,
    queues: i32,
) -> Result<Arc<TopicConfig>, Refusal> {
    let name = names::retry_topic(header.group);
    let sys_flag = if header.unit_mode {
        unit_flags(false, true)
    } else {
        0
    };
    let (topic, new) = core
        .topics
        .get_or_create(&name, queues, PERM_RW, sys_flag, now_ms());
    if new {
        core.save_topics()?;
        core.registrar.changed();
    }
    if topic.perm & perm::WRITE == 0 {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!("the topic[{name}] sending message is forbidden"),
        ));
    }
    Ok(topic)
}

/// The name of the group's dead-letter topic, which is there then.
fn dead_letter_topic(core: &Core, group: &str) -> Result<String, Refusal> {
    let name = names::dlq_topic(group);
    if core.topics.get_or_create(&name, 1, PERM_RW, 0, now_ms()).1 {
        core.save_topics()?;
        core.registrar.changed();
    }
    Ok(name)
}

/// The message's properties with those that steer its retry set anew.
fn retry_properties(sent: &str, retry_topic: &str, origin: &str, delay: i32) -> String {
    let mut text = String::with_capacity(sent.len() + 96);
    for (name, value) in properties::iter(sent) {
        if !matches!(
            name,
            prop::RETRY_TOPIC | prop::ORIGIN_MESSAGE_ID | prop::DELAY | prop::WAIT
        ) {
            push(&mut text, name, value);
        }
    }
    push(&mut text, prop::RETRY_TOPIC, retry_topic);
    push(&mut text, prop::ORIGIN_MESSAGE_ID, origin);
    if delay > 0 {
        push(&mut text, prop::DELAY, &delay.to_string());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_the_retry_is_set_anew_and_the_rest_kept() {
        let text = retry_properties("TAGS\u{1}a\u{2}DELAY\u{1}5\u{2}WAIT\u{1}true", "T", "ID", 3);
        assert_eq!(properties::get(&text, "TAGS"), Some("a"));
        assert_eq!(properties::get(&text, "DELAY"), Some("3"));
        assert_eq!(properties::get(&text, "RETRY_TOPIC"), Some("T"));
        assert_eq!(properties::get(&text, "ORIGIN_MESSAGE_ID"), Some("ID"));
        assert_eq!(properties::get(&text, "WAIT"), None);
        let dead = retry_properties(&text, "T", "ID", 0);
        assert_eq!(properties::get(&dead, "DELAY"), None);
    }
}
