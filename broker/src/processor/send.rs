//! Sends: single (10, 310) and batch (320).
//!
//! The checks come in the order of the protocol's reference, so that a message wrong in two ways is refused
//! as peers expect. Everything runs on the connection's task; only a topic that has to be made first takes
//! a detour over a blocking thread, because it must be on disk before a message in it is acknowledged.

use std::sync::Arc;
use std::time::Instant;

use ferromq_protocol::body::TopicConfig;
use ferromq_protocol::code::response;
use ferromq_protocol::header::{SendMessage, SendMessageResponse};
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::{Command, message_id, names, perm, properties, sysflag};
use ferromq_remoting::{Outcome, Reply, RequestContext};
use ferromq_store::{Ack, Put, PutBatch, PutError, PutMessage, PutStatus, WriteRefusal};

use super::{Refusal, Step};
use crate::clock::now_ms;
use crate::config::BrokerSettings;
use crate::core::Core;
use crate::extend::Sending;
use crate::overload::Patience;
use crate::topic_table::{PERM_RW, Wish};
use crate::transaction;

/// A client from this version on says how often a message may be retried (3.4.9).
const KNOWS_MAX_RECONSUME: i32 = 121;

pub(crate) fn handle(core: &Arc<Core>, cx: &RequestContext, request: Command) -> Outcome {
    if let Err(refusal) = super::in_time(core, cx, Patience::Send) {
        return refused(core, &request, refusal).into();
    }
    match accept(core, cx, &request) {
        Ok(Step::Done(outcome)) => outcome,
        Ok(Step::Blocking) => {
            let (core, cx) = (core.clone(), cx.clone());
            Outcome::Later(Box::pin(async move {
                let worker = core.clone();
                let head = request.reply(response::SYSTEM_ERROR);
                let done = core.tasks.spawn_blocking(move || {
                    let made = make_topics(&worker, &request);
                    (request, cx, made)
                });
                let (request, cx, made) = match done.await {
                    Ok(done) => done,
                    Err(error) => return head.with_remark(format!("cannot make the topic: {error}")).into(),
                };
                let step = made.and_then(|()| accept(&core, &cx, &request));
                match step {
                    Ok(Step::Done(Outcome::Reply(reply))) => reply,
                    Ok(Step::Done(Outcome::Later(later))) => later.await,
                    Ok(Step::Done(Outcome::Silent) | Step::Blocking) => refused(
                        &core,
                        &request,
                        Refusal::system("the topic was deleted while it was being made; send again"),
                    ),
                    Err(refusal) => refused(&core, &request, refusal),
                }
            }))
        }
        Err(refusal) => refused(core, &request, refusal).into(),
    }
}

fn refused(core: &Core, request: &Command, refusal: Refusal) -> Reply {
    core.stats.put_refused();
    if refusal.code == response::SYSTEM_BUSY {
        core.stats.answered_busy();
    }
    dress(core, request.reply(refusal.code).with_remark(refusal.remark)).into()
}

/// Every answer to a send tells the region and whether traces are wanted.
fn dress(core: &Core, head: Command) -> Command {
    let settings = core.settings();
    let trace = if settings.trace_on { "true" } else { "false" };
    head.with_ext(prop::MSG_REGION, &settings.region_id)
        .with_ext(prop::TRACE_ON, trace)
}

/// Whether this broker takes writes of clients now at all.
pub(crate) fn check_open(core: &Core) -> Result<(), Refusal> {
    if core.gate.stopped(Instant::now) {
        return Err(Refusal::new(
            response::SERVICE_NOT_AVAILABLE,
            "writes to this broker are stopped for maintenance; send to another broker",
        ));
    }
    if core.is_slave() {
        return Err(Refusal::new(
            response::SERVICE_NOT_AVAILABLE,
            "this broker is a slave; send to the master",
        ));
    }
    if core.store.page_cache_busy() {
        return Err(Refusal::new(
            response::SYSTEM_BUSY,
            "[REJECTREQUEST]system busy, start flow control for a while: the disk is slow, an append is waiting",
        ));
    }
    Ok(())
}

pub(crate) fn check_topic_name(topic: &str) -> Result<(), Refusal> {
    names::validate_topic(topic).map_err(|error| Refusal::system(error.to_string()))
}

/// Whether sends are served now at all.
fn check_serving(core: &Core, settings: &BrokerSettings) -> Result<(), Refusal> {
    let start = settings.start_accept_send_request_time_stamp;
    if start > 0 && now_ms() < start {
        return Err(Refusal::system(format!(
            "broker unable to service, until {start} (milliseconds since 1970, startAcceptSendRequestTimeStamp)"
        )));
    }
    check_open(core)
}

/// Whether another send to the topic may wait for the disk or a replica: they hold memory until these answer.
fn check_place(core: &Core, settings: &BrokerSettings, topic: &str) -> Result<(), Refusal> {
    let (most, share) = (
        settings.send_thread_pool_queue_capacity,
        settings.hot_topic_send_percent,
    );
    let Some(own) = core.sends_waiting.too_many(topic, most, share) else {
        return Ok(());
    };
    let waiting = core.sends_waiting.now();
    Err(Refusal::new(
        response::SYSTEM_BUSY,
        format!(
            "[OVERLOAD]system busy, start flow control for a while: {waiting} sends wait for the disk or a replica, \
             {own} of them to topic {topic} (sendThreadPoolQueueCapacity={most}, hotTopicSendPercent={share})"
        ),
    ))
}

/// The topic, if it may be written; None if it has to be made first.
fn writable_topic(
    core: &Core,
    settings: &BrokerSettings,
    name: &str,
) -> Result<Option<Arc<TopicConfig>>, Refusal> {
    let denied = |remark: String| Refusal::new(response::NO_PERMISSION, remark);
    let known = core.topics.get(name);
    if settings.broker_permission & perm::WRITE == 0 && known.as_ref().is_some_and(|t| t.order) {
        return Err(denied(format!(
            "the broker[{}] sending message is forbidden",
            core.identity.advertised
        )));
    }
    check_topic_name(name)?;
    if names::is_send_forbidden(name) {
        return Err(denied(format!("Sending message to topic[{name}] is forbidden.")));
    }
    match known {
        Some(topic) if topic.perm & perm::WRITE == 0 => Err(denied(format!(
            "the topic[{name}] on broker {} is not writable (perm {})",
            core.identity.name, topic.perm
        ))),
        known => Ok(known),
    }
}

/// Where a retry goes that has had its tries: a retry that a consumer sends as an ordinary message counts like one
/// that it sends back.
fn dead_letter(core: &Core, header: &SendMessage<'_>, version: i32) -> Result<Option<String>, Refusal> {
    let Some(group) = names::group_of_retry_topic(header.topic).filter(|_| !header.batch) else {
        return Ok(None);
    };
    let config = core.groups.get(group).ok_or_else(|| no_group(group))?;
    let limit = header
        .max_reconsume_times
        .filter(|_| version >= KNOWS_MAX_RECONSUME)
        .unwrap_or(config.retry_max_times);
    Ok((header.reconsume_times >= limit).then(|| names::dlq_topic(group)))
}

pub(super) fn no_group(group: &str) -> Refusal {
    Refusal::new(
        response::SUBSCRIPTION_GROUP_NOT_EXIST,
        format!("subscription group not exist, {group}; create it, or have a consumer of it connect first"),
    )
}

fn check_transactional(core: &Core, settings: &BrokerSettings) -> Result<(), Refusal> {
    if settings.reject_transaction_message {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "the broker[{}] sending transaction message is forbidden",
                core.identity.advertised
            ),
        ));
    }
    Ok(())
}

fn accept(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Step, Refusal> {
    let settings = core.settings();
    let header: SendMessage<'_> = request.header()?;
    check_serving(core, &settings)?;
    check_place(core, &settings, header.topic)?;
    let Some(topic) = writable_topic(core, &settings, header.topic)? else {
        return Ok(Step::Blocking);
    };
    let queue_id = pick_queue(header.queue_id, &topic, cx)?;
    if request.body.is_empty() {
        return Err(Refusal::new(response::MESSAGE_ILLEGAL, "the message has no body"));
    }
    let dead_letter = dead_letter(core, &header, request.version)?;
    let (topic_name, queue_id) = match &dead_letter {
        Some(name) if !core.topics.contains(name) => return Ok(Step::Blocking),
        Some(name) => (name.as_str(), 0),
        None => (header.topic, queue_id),
    };
    let mut sys_flag = header.sys_flag;
    if topic.is_multi_tag() {
        sys_flag |= sysflag::MULTI_TAGS;
    }
    let mut stored = stored_properties(header.properties, &core.identity.cluster);
    let half = !header.batch && stored.transactional && !(header.reconsume_times > 0 && stored.delay > 0);
    if half {
        check_transactional(core, &settings)?;
        if !core.topics.contains(names::topics::TRANS_HALF) {
            return Ok(Step::Blocking);
        }
        sys_flag = sysflag::with_transaction(sys_flag, 0);
        stored.text = transaction::half_properties(&stored.text, topic_name, queue_id);
    }
    // The answer names the queue that was asked for; a half message waits in one of its own.
    let (put_topic, put_queue) = if half {
        (names::topics::TRANS_HALF, transaction::QUEUE)
    } else {
        (topic_name, queue_id)
    };
    let born_host = cx.conn.peer();
    let sending = Sending {
        topic: header.topic,
        queue_id,
        producer_group: header.producer_group,
        peer: born_host,
        body: &request.body,
        properties: header.properties,
        batch: header.batch,
    };
    for hook in &core.send_hooks {
        hook.before(&sending).map_err(Refusal::system)?;
    }
    let began = Instant::now();
    let put = if header.batch {
        core.store.put_batch(PutBatch {
            topic: put_topic,
            queue_id: put_queue,
            sys_flag,
            born_timestamp: header.born_timestamp,
            born_host,
            reconsume_times: header.reconsume_times,
            body: &request.body,
            properties: &stored.text,
            wait_store_ok: stored.wait,
        })
    } else {
        core.store.put(PutMessage {
            topic: put_topic,
            queue_id: put_queue,
            flag: header.flag,
            sys_flag,
            born_timestamp: header.born_timestamp,
            born_host,
            reconsume_times: header.reconsume_times,
            prepared_transaction_offset: 0,
            body: &request.body,
            properties: &stored.text,
            wait_store_ok: stored.wait,
        })
    };
    core.stats.put_took(began.elapsed());
    let put = put.map_err(|error| put_refusal(core, &error))?;
    core.items.put(
        put_topic,
        put_queue,
        put.message_ids.len().max(1) as u64,
        put.size as u64,
        settings.enable_detail_stat,
    );
    for hook in &core.send_hooks {
        hook.stored(&sending, put.queue_offset, put.physical_offset);
    }
    let unique = properties::get(header.properties, prop::UNIQ_KEY);
    Ok(Step::Done(acknowledge(
        core,
        request,
        header.topic,
        queue_id,
        put,
        unique,
    )))
}

/// The answer to a stored message: now, or when it is as safe as was asked.
fn acknowledge(
    core: &Arc<Core>,
    request: &Command,
    topic: &str,
    queue_id: i32,
    put: Put,
    unique: Option<&str>,
) -> Outcome {
    let host = core.identity.store_host;
    core.stats
        .stored(put.message_ids.len().max(1) as u64, put.size as u64);
    let id = match put.message_ids.as_slice() {
        [] | [_] => message_id::offset_id(host, put.physical_offset),
        many => many
            .iter()
            .map(|&at| message_id::offset_id(host, at))
            .collect::<Vec<_>>()
            .join(","),
    };
    let settings = core.settings();
    let head = request
        .reply(response::SUCCESS)
        .with_header(&SendMessageResponse {
            msg_id: &id,
            queue_id,
            queue_offset: put.queue_offset,
            transaction_id: unique,
            msg_region: Some(&settings.region_id),
            trace_on: Some(settings.trace_on),
        });
    if put.ack.ready().is_some() {
        return when_safe(head, put.ack);
    }
    let (ack, place) = (put.ack, core.sends_waiting.take(topic));
    Outcome::Later(Box::pin(async move {
        let answer = with_status(head, ack.await).into();
        drop(place);
        answer
    }))
}

/// Turns the answer for success into the one for the status that the append ends with.
pub(crate) fn when_safe(head: Command, ack: Ack) -> Outcome {
    match ack.ready() {
        Some(status) => with_status(head, status).into(),
        None => Outcome::Later(Box::pin(async move { with_status(head, ack.await).into() })),
    }
}

fn with_status(mut head: Command, status: PutStatus) -> Command {
    let (code, remark) = match status {
        PutStatus::Ok => return head,
        PutStatus::FlushDiskTimeout => (
            response::FLUSH_DISK_TIMEOUT,
            "stored, but not on disk within syncFlushTimeout",
        ),
        PutStatus::FlushSlaveTimeout => (
            response::FLUSH_SLAVE_TIMEOUT,
            "stored, but no slave confirmed it within slaveTimeout",
        ),
        PutStatus::SlaveNotAvailable => (
            response::SLAVE_NOT_AVAILABLE,
            "stored, but there is no slave near enough to confirm it",
        ),
        // The record may be gone after a restart: not a success of any kind.
        _ => (
            response::SYSTEM_ERROR,
            "the disk refused to store the message; look at the broker's log and its disk",
        ),
    };
    head.code = code;
    head.remark = Some(remark.to_owned());
    head
}

/// Nothing was stored: which code and words say so.
pub(crate) fn put_refusal(core: &Core, error: &PutError) -> Refusal {
    match error {
        PutError::NotWritable(WriteRefusal::DiskFull) => {
            let figures = core.store.figures();
            let config = core.store.config();
            Refusal::new(
                response::SERVICE_NOT_AVAILABLE,
                format!(
                    "service not available now: the disk is full. CL: {:.2} of {}, CQ: {:.2} of {}, INDEX: {:.2}; \
                     free space, or wait until old files are deleted",
                    figures.log_disk_ratio,
                    config.commit_log_dir().display(),
                    figures.queue_disk_ratio,
                    config.consume_queue_dir().display(),
                    figures.queue_disk_ratio,
                ),
            )
        }
        PutError::NotWritable(why) => Refusal::new(
            response::SERVICE_NOT_AVAILABLE,
            format!("service not available now: {why}"),
        ),
        PutError::PageCacheBusy(_) => Refusal::system(format!("[PC_SYNCHRONIZED]broker busy, {error}")),
        PutError::Illegal(_) | PutError::PropertiesTooLong(_) => {
            Refusal::new(response::MESSAGE_ILLEGAL, error.to_string())
        }
        _ => Refusal::system(error.to_string()),
    }
}

fn pick_queue(asked: i32, topic: &TopicConfig, cx: &RequestContext) -> Result<i32, Refusal> {
    let queues = topic.write_queue_nums.max(topic.read_queue_nums);
    if asked >= queues {
        return Err(Refusal::system(format!(
            "request queueId[{asked}] is illegal, topic [{}] has {} write and {} read queues, producer: {}",
            topic.topic_name,
            topic.write_queue_nums,
            topic.read_queue_nums,
            cx.conn.peer()
        )));
    }
    if asked >= 0 {
        return Ok(asked);
    }
    Ok(random_queue(topic.write_queue_nums))
}

pub(crate) fn random_queue(queues: i32) -> i32 {
    use std::hash::{BuildHasher, RandomState};
    if queues <= 1 {
        return 0;
    }
    let random = RandomState::new().hash_one(now_ms());
    i32::try_from(random % u64::from(queues.unsigned_abs())).unwrap_or(0)
}

/// Makes the topics that the send needs, on disk and soon at the name servers. Blocks.
fn make_topics(core: &Arc<Core>, request: &Command) -> Result<(), Refusal> {
    let header: SendMessage<'_> = request.header()?;
    let now = now_ms();
    let sys_flag = if header.unit_mode {
        unit_flags(true, names::is_retry_topic(header.topic))
    } else {
        0
    };
    if !core.topics.contains(header.topic) {
        if let Some(group) = names::group_of_retry_topic(header.topic) {
            if core.groups.get(group).is_none() {
                return Err(no_group(group));
            }
            core.topics.get_or_create(header.topic, 1, PERM_RW, sys_flag, now);
        } else {
            if !core.settings().auto_create_topic_enable {
                return Err(no_topic(
                    core,
                    header.topic,
                    "automatic creation is off (autoCreateTopicEnable=false)",
                ));
            }
            let wish = Wish {
                topic: header.topic,
                template: header.default_topic,
                queues: header.default_topic_queue_nums,
                sys_flag,
            };
            let (_, new) = core
                .topics
                .create_from_template(wish, now)
                .map_err(|why| no_topic(core, header.topic, &why.to_string()))?;
            if new {
                tracing::info!(
                    topic = header.topic,
                    template = header.default_topic,
                    "topic made on first send"
                );
            }
        }
    }
    if let Some(group) = names::group_of_retry_topic(header.topic) {
        core.topics
            .get_or_create(&names::dlq_topic(group), 1, PERM_RW, 0, now);
    }
    if properties::get(header.properties, prop::TRAN_MSG).is_some() {
        transaction::make_topics(core)?;
    }
    core.save_topics()?;
    core.registrar.changed();
    Ok(())
}

/// The system flag of a topic for units.
pub(crate) fn unit_flags(unit: bool, subscription: bool) -> i32 {
    (if unit { sysflag::topic::UNIT } else { 0 }) | (if subscription { sysflag::topic::UNIT_SUB } else { 0 })
}

fn no_topic(core: &Core, topic: &str, why: &str) -> Refusal {
    Refusal::new(
        response::TOPIC_NOT_EXIST,
        format!(
            "topic[{topic}] not exist on broker {}: {why}; create it first",
            core.identity.name
        ),
    )
}

/// Properties as they go into the record, and what the broker read from them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct StoredProperties {
    pub(crate) text: String,
    pub(crate) wait: bool,
    pub(crate) transactional: bool,
    pub(crate) delay: i32,
}

/// Takes WAIT out and puts CLUSTER in, with exactly one separator between any two. Of equal names the
/// last counts, as it does for every reader.
pub(crate) fn stored_properties(sent: &str, cluster: &str) -> StoredProperties {
    let mut out = StoredProperties {
        text: String::with_capacity(sent.len() + prop::CLUSTER.len() + cluster.len() + 2),
        wait: true,
        transactional: false,
        delay: 0,
    };
    for (name, value) in properties::iter(sent) {
        match name {
            prop::WAIT => {
                out.wait = !value.eq_ignore_ascii_case("false");
                continue;
            }
            prop::CLUSTER => continue,
            prop::TRAN_MSG => out.transactional = value.eq_ignore_ascii_case("true"),
            prop::DELAY => out.delay = value.parse().unwrap_or(0),
            _ => {}
        }
        push(&mut out.text, name, value);
    }
    push(&mut out.text, prop::CLUSTER, cluster);
    out
}

/// Appends one property.
pub(crate) fn push(text: &mut String, name: &str, value: &str) {
    if value.is_empty() || name.is_empty() {
        return;
    }
    if !text.is_empty() {
        text.push('\u{2}');
    }
    text.push_str(name);
    text.push('\u{1}');
    text.push_str(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_is_added_with_exactly_one_separator() {
        for sent in ["TAGS\u{1}a", "TAGS\u{1}a\u{2}"] {
            assert_eq!(stored_properties(sent, "C").text, "TAGS\u{1}a\u{2}CLUSTER\u{1}C");
        }
        assert_eq!(stored_properties("", "C").text, "CLUSTER\u{1}C");
    }

    #[test]
    fn wait_is_used_and_taken_out() {
        let stored = stored_properties("WAIT\u{1}false\u{2}KEYS\u{1}k\u{2}", "C");
        assert_eq!(stored.text, "KEYS\u{1}k\u{2}CLUSTER\u{1}C");
        assert!(!stored.wait);
        assert!(stored_properties("KEYS\u{1}k", "C").wait);
    }

    #[test]
    fn a_clients_cluster_and_empty_pairs_do_not_survive() {
        let stored = stored_properties("CLUSTER\u{1}evil\u{2}A\u{1}\u{2}\u{1}x\u{2}DELAY\u{1}3", "C");
        assert_eq!(stored.text, "DELAY\u{1}3\u{2}CLUSTER\u{1}C");
        assert_eq!(stored.delay, 3);
    }

    #[test]
    fn half_messages_are_told() {
        assert!(stored_properties("TRAN_MSG\u{1}true", "C").transactional);
        assert!(!stored_properties("TRAN_MSG\u{1}no", "C").transactional);
    }
}
