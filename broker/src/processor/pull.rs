//! Pull (11), with long polling.
//!
//! A pull near the end of its queue is read on the connection's task; one that has to go to the disk is read
//! on a blocking thread, of which only a few do this at a time, so that a consumer catching up on history
//! stalls nobody. A pull that finds nothing parks in [`crate::long_poll`] after its checks, and looks once
//! more before it waits. The body is made of the store's own slices.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{MessageQueue, OffsetMovedEvent, SubscriptionGroupConfig};
use ferromq_protocol::code::response;
use ferromq_protocol::header::{PullMessage, PullMessageResponse};
use ferromq_protocol::names::topics;
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::record::{self, Check, Entry};
use ferromq_protocol::sysflag::pull as flag;
use ferromq_protocol::{Command, fastjson, names, perm};
use ferromq_remoting::{Outcome, Reply, RequestContext};
use ferromq_store::{Arrival, GetRequest, GetResult, GetStatus, PutMessage, ReadError};
use tokio::time::{Instant, sleep_until};

use super::Refusal;
use super::send::push;
use crate::client_table::Lookup;
use crate::clock::now_ms;
use crate::core::Core;
use crate::item_stats::Got;
use crate::overload::Patience;
use crate::selector::{Selector, Wanted, is_tag_type};

/// The most messages one pull is given, whatever it asks for; the store has its own, smaller limits.
const MAX_MESSAGES: i32 = 1024;
/// The longest that a pull is held.
const MAX_HOLD: Duration = Duration::from_mins(5);

/// A pull that has passed its checks.
#[derive(Clone)]
struct Plan {
    group: Arc<SubscriptionGroupConfig>,
    topic: String,
    queue_id: i32,
    offset: i64,
    max_messages: usize,
    wanted: Wanted,
    /// Until when it may wait for a message.
    hold_until: Option<Instant>,
}

/// The end of one look at the store.
enum Look {
    Answer(Reply),
    /// Nothing there yet; the reply is what a pull that may not wait gets.
    Empty(Reply),
    /// Only unwanted messages up to that offset.
    Unwanted(Reply, i64),
}

pub(crate) fn handle(core: &Arc<Core>, cx: &RequestContext, request: Command) -> Outcome {
    let plan = match check(core, cx, &request) {
        Ok(plan) => plan,
        Err(refusal) => return request.reply(refusal.code).with_remark(refusal.remark).into(),
    };
    if is_hot(core, &plan) {
        return match look(core, &plan, &request) {
            Look::Answer(reply) | Look::Unwanted(reply, _) => reply.into(),
            Look::Empty(reply) if plan.hold_until.is_none() => reply.into(),
            Look::Empty(_) => Outcome::Later(Box::pin(hold(core.clone(), plan, request))),
        };
    }
    let core = core.clone();
    Outcome::Later(Box::pin(async move {
        let plan = Arc::new(plan);
        match look_cold(&core, &plan, &request).await {
            Look::Answer(reply) | Look::Unwanted(reply, _) => reply,
            Look::Empty(reply) if plan.hold_until.is_none() => reply,
            Look::Empty(reply) => match Arc::try_unwrap(plan) {
                Ok(plan) => hold(core, plan, request).await,
                // The blocking thread gives its share back before it answers; this never happens.
                Err(_) => reply,
            },
        }
    }))
}

/// Waits until there is a message or the time is up.
async fn hold(core: Arc<Core>, plan: Plan, request: Command) -> Reply {
    let deadline = plan.hold_until.unwrap_or_else(Instant::now);
    let interest = {
        let wanted = plan.wanted.clone();
        Arc::new(move |arrival: &Arrival<'_>| wanted.may_want(arrival))
    };
    let ticket = core.held.park(&plan.topic, plan.queue_id, interest);
    let mut plan = Arc::new(plan);
    loop {
        // The look after parking: what arrived before is seen here, what arrives later wakes the ticket.
        let found = if is_hot(&core, &plan) {
            look(&core, &plan, &request)
        } else {
            look_cold(&core, &plan, &request).await
        };
        let empty = match found {
            Look::Answer(reply) => return reply,
            Look::Unwanted(_, next) if next > plan.offset => {
                // Its client would only ask again from there.
                Arc::make_mut(&mut plan).offset = next;
                continue;
            }
            Look::Empty(reply) | Look::Unwanted(reply, _) => reply,
        };
        let Some(ticket) = &ticket else { return empty };
        if Instant::now() >= deadline {
            return empty;
        }
        tokio::select! {
            biased;
            () = core.stopping.cancelled() => return empty,
            () = ticket.woken() => {}
            () = sleep_until(deadline) => {}
        }
    }
}

/// Whether reading there needs no disk. At and behind the end there is nothing to read.
fn is_hot(core: &Core, plan: &Plan) -> bool {
    plan.offset >= core.store.max_offset(&plan.topic, plan.queue_id)
        || core.store.is_hot(&plan.topic, plan.queue_id, plan.offset)
}

/// A look that may block on the disk. At most a few run at a time.
async fn look_cold(core: &Arc<Core>, plan: &Arc<Plan>, request: &Command) -> Look {
    let Ok(permit) = core.cold_reads.clone().acquire_owned().await else {
        return Look::Answer(not_read(core, request, &ReadError::ShutDown));
    };
    let (core_, plan, head) = (core.clone(), plan.clone(), request.reply(response::SUCCESS));
    let read = core.tasks.spawn_blocking(move || {
        let got = core_.store.get(&get_request(&plan), &plan.wanted);
        // Touch the pages here, on a thread that may wait for them, rather than when they are sent.
        let touched = got.as_ref().map_or(0, |got| touch(&got.chunks));
        drop(permit);
        let end = interpret(&core_, &plan, head, got, true);
        drop(plan);
        std::hint::black_box(touched);
        end
    });
    match read.await {
        Ok(end) => end,
        Err(error) => Look::Answer(
            request
                .reply(response::SYSTEM_ERROR)
                .with_remark(format!("the read failed: {error}"))
                .into(),
        ),
    }
}

fn touch(chunks: &[bytes::Bytes]) -> u64 {
    chunks
        .iter()
        .flat_map(|chunk| chunk.iter().step_by(4096))
        .map(|&byte| u64::from(byte))
        .sum()
}

fn look(core: &Arc<Core>, plan: &Plan, request: &Command) -> Look {
    let began = Instant::now();
    let got = core.store.get(&get_request(plan), &plan.wanted);
    core.stats.get_took(began.elapsed());
    interpret(core, plan, request.reply(response::SUCCESS), got, false)
}

fn get_request(plan: &Plan) -> GetRequest<'_> {
    GetRequest {
        topic: &plan.topic,
        queue_id: plan.queue_id,
        offset: plan.offset,
        max_messages: plan.max_messages,
    }
}

fn not_read(core: &Core, request: &Command, error: &ReadError) -> Reply {
    request
        .reply(response::SYSTEM_ERROR)
        .with_remark(format!(
            "store getMessage failed on broker {}: {error}",
            core.identity.name
        ))
        .into()
}

/// Java's name of a status, which is also the remark of the answer.
fn name(status: GetStatus) -> &'static str {
    match status {
        GetStatus::Found => "FOUND",
        GetStatus::NoMatchedMessage => "NO_MATCHED_MESSAGE",
        GetStatus::MessageWasRemoving => "MESSAGE_WAS_REMOVING",
        GetStatus::OffsetFoundNull => "OFFSET_FOUND_NULL",
        GetStatus::OffsetOverflowBadly => "OFFSET_OVERFLOW_BADLY",
        GetStatus::OffsetOverflowOne => "OFFSET_OVERFLOW_ONE",
        GetStatus::OffsetTooSmall => "OFFSET_TOO_SMALL",
        GetStatus::NoMatchedLogicQueue => "NO_MATCHED_LOGIC_QUEUE",
        GetStatus::NoMessageInQueue => "NO_MESSAGE_IN_QUEUE",
    }
}

/// The response code for a store's status.
fn code_of(status: GetStatus, offset: i64) -> i32 {
    match status {
        GetStatus::Found => response::SUCCESS,
        GetStatus::NoMatchedMessage | GetStatus::MessageWasRemoving => response::PULL_RETRY_IMMEDIATELY,
        GetStatus::NoMatchedLogicQueue | GetStatus::NoMessageInQueue if offset != 0 => {
            response::PULL_OFFSET_MOVED
        }
        GetStatus::NoMatchedLogicQueue
        | GetStatus::NoMessageInQueue
        | GetStatus::OffsetFoundNull
        | GetStatus::OffsetOverflowOne => response::PULL_NOT_FOUND,
        GetStatus::OffsetOverflowBadly | GetStatus::OffsetTooSmall => response::PULL_OFFSET_MOVED,
    }
}

fn interpret(
    core: &Arc<Core>,
    plan: &Plan,
    mut head: Command,
    got: Result<GetResult, ReadError>,
    cold: bool,
) -> Look {
    let got = match got {
        Ok(got) => got,
        Err(error) => {
            head.code = response::SYSTEM_ERROR;
            let remark = format!(
                "store getMessage failed on broker {}: {error}",
                core.identity.name
            );
            return Look::Answer(head.with_remark(remark).into());
        }
    };
    head.code = code_of(got.status, plan.offset);
    let settings = core.settings();
    let suggest = if !settings.slave_read_enable {
        0
    } else if got.suggest_slave {
        plan.group.which_broker_when_consume_slowly
    } else {
        plan.group.broker_id
    };
    let head = head
        .with_remark(name(got.status))
        .with_header(&PullMessageResponse {
            suggest_which_broker_id: suggest,
            next_begin_offset: got.next_offset,
            min_offset: got.min_offset,
            max_offset: got.max_offset,
        });
    match head.code {
        response::SUCCESS => {
            core.stats.pulled(got.count as u64, got.bytes as u64);
            let detail = settings.enable_detail_stat;
            let guarded = settings.disable_consume_if_consumer_read_slowly;
            let newest = got
                .chunks
                .last()
                .filter(|_| detail || guarded)
                .and_then(|chunk| last_record(chunk));
            if let Some((_, at)) = newest.filter(|_| guarded) {
                let behind = core.store.figures().log_max.saturating_sub(at);
                let behind = u64::try_from(behind).unwrap_or(0);
                let group = &plan.group.group_name;
                core.slow_readers.read(group, &plan.topic, plan.queue_id, behind);
            }
            core.items.got(
                Got {
                    topic: &plan.topic,
                    queue_id: plan.queue_id,
                    group: &plan.group.group_name,
                    messages: got.count as u64,
                    bytes: got.bytes as u64,
                    cold,
                    latency: newest.map(|(at, _)| now_ms().saturating_sub(at).max(0) as u64),
                },
                detail,
            );
            Look::Answer(Reply {
                head,
                chunks: got.chunks,
            })
        }
        response::PULL_NOT_FOUND => Look::Empty(head.into()),
        response::PULL_RETRY_IMMEDIATELY => {
            core.stats.pulled_nothing();
            Look::Unwanted(head.into(), got.next_offset)
        }
        other => {
            core.stats.pulled_nothing();
            if other == response::PULL_OFFSET_MOVED {
                report_moved(core, plan, got.next_offset);
            }
            Look::Answer(head.into())
        }
    }
}

/// When and where in the log the last record of a chunk was stored.
fn last_record(chunk: &[u8]) -> Option<(i64, i64)> {
    let mut last = chunk;
    loop {
        let size = u32::from_be_bytes(last.first_chunk::<4>().copied()?) as usize;
        match last.get(size..) {
            Some(rest) if size > 0 && !rest.is_empty() => last = rest,
            _ => break,
        }
    }
    match record::parse(last, Check::None) {
        Ok(Entry::Record(found)) => Some((found.store_timestamp, found.physical_offset)),
        _ => None,
    }
}

/// Leaves a message about a corrected offset on OFFSET_MOVED_EVENT, as monitoring tools expect.
fn report_moved(core: &Core, plan: &Plan, offset_new: i64) {
    let group = plan.group.group_name.as_str();
    tracing::info!(
        group,
        topic = plan.topic,
        queue = plan.queue_id,
        asked = plan.offset,
        corrected = offset_new,
        "a pull's offset was corrected"
    );
    let body = fastjson::to_vec(&OffsetMovedEvent {
        consumer_group: group.to_owned(),
        message_queue: Some(MessageQueue::new(&plan.topic, &core.identity.name, plan.queue_id)),
        offset_new,
        offset_request: plan.offset,
    });
    let mut properties = String::new();
    push(&mut properties, prop::TAGS, group);
    push(&mut properties, prop::KEYS, group);
    let stored = core.store.put(PutMessage {
        topic: topics::OFFSET_MOVED,
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: now_ms(),
        born_host: core.identity.store_host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: &body,
        properties: &properties,
        wait_store_ok: false,
    });
    if let Err(error) = stored {
        tracing::debug!(%error, "the event of a corrected offset was not stored");
    }
}

/// The checks of a pull, in the order of the protocol's reference, and the offset commit that rides on it.
fn check(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Plan, Refusal> {
    super::still_in_time(core, cx, Patience::Pull)?;
    let settings = core.settings();
    let header: PullMessage<'_> = request.header()?;
    if settings.broker_permission & perm::READ == 0 {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "the broker[{}] pulling message is forbidden",
                core.identity.advertised
            ),
        ));
    }
    let group = consumer_group(core, header.consumer_group)?;
    if !group.consume_enable {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "subscription group no permission, {}: its consumeEnable is off",
                header.consumer_group
            ),
        ));
    }
    let Some(topic) = core.topics.get(header.topic) else {
        return Err(Refusal::new(
            response::TOPIC_NOT_EXIST,
            format!(
                "topic[{}] not exist on broker {}, apply first please!",
                header.topic, core.identity.name
            ),
        ));
    };
    if topic.perm & perm::READ == 0 {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!("the topic[{}] pulling message is forbidden", header.topic),
        ));
    }
    if header.queue_id < 0 || header.queue_id >= topic.read_queue_nums {
        return Err(Refusal::system(format!(
            "queueId[{}] is illegal, topic:[{}] topicConfig.readQueueNums:[{}] consumer:[{}]",
            header.queue_id,
            header.topic,
            topic.read_queue_nums,
            cx.conn.peer()
        )));
    }
    let by_request = header.sys_flag & flag::SUBSCRIPTION != 0;
    let selector = if by_request {
        let text = header.subscription.unwrap_or("*");
        Selector::compile(header.expression_type, text).map_err(|why| {
            Refusal::new(
                response::SUBSCRIPTION_PARSE_FAILED,
                format!("parse the consumer's subscription failed: {why}"),
            )
        })?
    } else {
        subscribed(core, &header, &group)?
    };
    if matches!(selector, Selector::Sql(_)) && !settings.enable_property_filter {
        return Err(Refusal::system(
            "The broker does not support consumer to filter message by SQL92; set enablePropertyFilter=true",
        ));
    }
    // A slave's progress is its master's.
    if header.sys_flag & flag::COMMIT_OFFSET != 0 && !core.is_slave() {
        core.offsets.advance(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
        );
    }
    let hold_until = (header.sys_flag & flag::SUSPEND != 0).then(|| {
        let wait = if settings.long_polling_enable {
            Duration::from_millis(u64::try_from(header.suspend_timeout_millis).unwrap_or(0))
        } else {
            Duration::from_millis(settings.short_polling_time_mills)
        };
        Instant::now() + wait.min(MAX_HOLD)
    });
    Ok(Plan {
        group,
        topic: header.topic.to_owned(),
        queue_id: header.queue_id,
        offset: header.queue_offset,
        max_messages: header.max_msg_nums.clamp(1, MAX_MESSAGES) as usize,
        wanted: Wanted {
            bits: match &selector {
                Selector::Sql(sql) if !by_request => {
                    core.filters
                        .bits_of(header.consumer_group, header.topic, sql.text())
                }
                _ => None,
            },
            retry: (settings.filter_support_retry && names::is_retry_topic(header.topic))
                .then(|| (core.filters.clone(), header.consumer_group.to_owned())),
            selector,
        },
        hold_until,
    })
}

fn consumer_group(core: &Core, name: &str) -> Result<Arc<SubscriptionGroupConfig>, Refusal> {
    if let Some(group) = core.groups.get(name) {
        return Ok(group);
    }
    super::send_back::check_group_name(name)?;
    let made = core
        .groups
        .get_or_create(name, core.settings().auto_create_subscription_group, now_ms());
    let Some((group, new)) = made else {
        return Err(Refusal::new(
            response::SUBSCRIPTION_GROUP_NOT_EXIST,
            format!("subscription group [{name}] does not exist, apply first please!"),
        ));
    };
    if new {
        // Written by the housekeeping task; until then a restart would make it anew.
        core.save_soon();
    }
    Ok(group)
}

/// The selector of the group's heartbeats.
fn subscribed(
    core: &Core,
    header: &PullMessage<'_>,
    group: &SubscriptionGroupConfig,
) -> Result<Selector, Refusal> {
    let not_exist = |what: &str| {
        Refusal::new(
            response::SUBSCRIPTION_NOT_EXIST,
            format!(
                "the consumer's subscription not exist: {what}, group: {}, topic: {}",
                header.consumer_group, header.topic
            ),
        )
    };
    let (subscription, broadcasting) = match core.clients.look_up(header.consumer_group, header.topic) {
        Lookup::NoGroup => return Err(not_exist("no consumer of the group is connected")),
        Lookup::NoTopic { broadcasting: true } if !group.consume_broadcast_enable => {
            return Err(no_broadcast(header));
        }
        Lookup::NoTopic { .. } => return Err(not_exist("no consumer of the group subscribed to the topic")),
        Lookup::Found {
            subscription,
            broadcasting,
        } => (subscription, broadcasting),
    };
    if broadcasting && !group.consume_broadcast_enable {
        return Err(no_broadcast(header));
    }
    if subscription.data.sub_version < header.sub_version {
        return Err(Refusal::new(
            response::SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription not latest: its heartbeat has not come yet",
        ));
    }
    if subscription.data.is_tag_type() != is_tag_type(header.expression_type)
        && header.expression_type.is_some()
    {
        return Err(Refusal::new(
            response::SUBSCRIPTION_NOT_LATEST,
            "the consumer's subscription is of another expression type than the pull says",
        ));
    }
    match &subscription.selector {
        Ok(selector) => Ok(selector.clone()),
        Err(why) => Err(Refusal::new(
            response::FILTER_DATA_NOT_EXIST,
            format!("the group's subscription has an expression that cannot be compiled: {why}"),
        )),
    }
}

fn no_broadcast(header: &PullMessage<'_>) -> Refusal {
    Refusal::new(
        response::NO_PERMISSION,
        format!(
            "the consumer group[{}] can not consume by broadcast way",
            header.consumer_group
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_become_the_codes_that_clients_know() {
        assert_eq!(code_of(GetStatus::Found, 3), 0);
        assert_eq!(code_of(GetStatus::NoMatchedMessage, 3), 20);
        assert_eq!(code_of(GetStatus::MessageWasRemoving, 3), 20);
        assert_eq!(code_of(GetStatus::NoMessageInQueue, 0), 19);
        assert_eq!(code_of(GetStatus::NoMessageInQueue, 3), 21);
        assert_eq!(code_of(GetStatus::NoMatchedLogicQueue, 0), 19);
        assert_eq!(code_of(GetStatus::OffsetFoundNull, 3), 19);
        assert_eq!(code_of(GetStatus::OffsetOverflowOne, 3), 19);
        assert_eq!(code_of(GetStatus::OffsetOverflowBadly, 3), 21);
        assert_eq!(code_of(GetStatus::OffsetTooSmall, 3), 21);
    }
}
