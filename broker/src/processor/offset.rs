//! Offsets of groups (14, 15) and of queues (29 to 32).

use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::code::response;
use ferromq_protocol::header::{
    OffsetResponse, QueryConsumerOffset, QueueHeader, SearchOffset, TimestampResponse, UpdateConsumerOffset,
};
use ferromq_remoting::{Outcome, RequestContext};

use super::send::check_topic_name;
use super::send_back::check_group_name;
use super::{Refusal, ok};
use crate::core::Core;

fn answer(request: &Command, offset: i64) -> Outcome {
    request
        .reply(response::SUCCESS)
        .with_header(&OffsetResponse { offset })
        .into()
}

/// The group's offset. A group without one is sent to 0 on a queue whose first message is still in memory, whatever
/// it asked for; clients count on it. One that has progress in another queue of the topic is sent to 0 on a queue that still has its
/// first message: the queue came later, and what was sent to it before the group looked is not to be skipped.
pub(crate) fn query(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: QueryConsumerOffset<'_> = request.header()?;
    if let Some(offset) = core
        .offsets
        .get(header.consumer_group, header.topic, header.queue_id)
    {
        return Ok(answer(request, offset));
    }
    let known = || {
        let queues = core.offsets.queues(header.consumer_group, header.topic);
        queues.keys().any(|&queue| queue != header.queue_id)
    };
    if core.store.min_offset(header.topic, header.queue_id) <= 0
        && (known()
            || core.store.max_offset(header.topic, header.queue_id) <= 0
            || core.store.is_hot(header.topic, header.queue_id, 0))
    {
        return Ok(answer(request, 0));
    }
    Err(Refusal::new(
        response::QUERY_NOT_FOUND,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    ))
}

pub(crate) fn update(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: UpdateConsumerOffset<'_> = request.header()?;
    if header.commit_offset < 0 {
        tracing::debug!(
            group = header.consumer_group, topic = header.topic, queue = header.queue_id,
            offset = header.commit_offset, peer = %cx.conn.peer(), "a negative offset was not stored"
        );
        return Ok(ok(request));
    }
    check_topic_name(header.topic)?;
    check_group_name(header.consumer_group)?;
    if header.queue_id < 0 {
        return Err(Refusal::system(format!(
            "queueId is {}; queues are numbered from 0",
            header.queue_id
        )));
    }
    core.offsets.set(
        header.consumer_group,
        header.topic,
        header.queue_id,
        header.commit_offset,
    );
    if core.is_slave() {
        core.own_commits.lock().note(
            header.consumer_group,
            header.topic,
            header.queue_id,
            header.commit_offset,
        );
    }
    Ok(ok(request))
}

pub(crate) fn max(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: QueueHeader<'_> = request.header()?;
    Ok(answer(
        request,
        core.store.max_offset(header.topic, header.queue_id),
    ))
}

pub(crate) fn min(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: QueueHeader<'_> = request.header()?;
    Ok(answer(
        request,
        core.store.min_offset(header.topic, header.queue_id),
    ))
}

pub(crate) fn by_time(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: SearchOffset<'_> = request.header()?;
    Ok(answer(
        request,
        core.store
            .offset_by_time(header.topic, header.queue_id, header.timestamp),
    ))
}

pub(crate) fn earliest_time(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: QueueHeader<'_> = request.header()?;
    let timestamp = core
        .store
        .earliest_store_time(header.topic, header.queue_id)
        .unwrap_or(-1);
    Ok(request
        .reply(response::SUCCESS)
        .with_header(&TimestampResponse { timestamp })
        .into())
}
