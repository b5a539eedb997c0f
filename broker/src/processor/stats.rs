//! Positions of queues (202) and of groups in them (208, 317, 303), statistics of items (315), and what is done
//! to offsets (308, 314).

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::body::{
    ConsumeStats, ConsumeStatsList, ConsumeTimeSpans, CorrectionOffsets, MessageQueue, OffsetWrapper,
    QueueTimeSpan, TopicOffset, TopicStatsTable,
};
use ferromq_protocol::code::response;
use ferromq_protocol::header::{
    CloneGroupOffset, GetBrokerConsumeStats, GetConsumeStats, QueryConsumeTimeSpan, QueryCorrectionOffset,
    TopicHeader, ViewBrokerStats,
};
use ferromq_protocol::names;
use ferromq_remoting::{Outcome, RequestContext};

use super::send_back::check_group_name;
use super::{Refusal, json, ok};
use crate::client_table::Lookup;
use crate::clock::now_ms;
use crate::core::Core;

/// When the message at an offset was stored, of which the queue or the group has not got beyond yet.
fn stored_at(core: &Core, topic: &str, queue_id: i32, group: &str, offset: i64) -> Option<i64> {
    let read = || core.store.store_time(topic, queue_id, offset);
    core.last_times.of(topic, queue_id, group, offset, read)
}

pub(crate) fn topic(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: TopicHeader<'_> = request.header()?;
    let Some(topic) = core.topics.get(header.topic) else {
        return Err(Refusal::new(
            response::TOPIC_NOT_EXIST,
            format!("topic[{}] not exist", header.topic),
        ));
    };
    let mut offset_table = BTreeMap::new();
    for queue_id in 0..topic.write_queue_nums {
        let min_offset = core.store.min_offset(header.topic, queue_id).max(0);
        let max_offset = core.store.max_offset(header.topic, queue_id).max(0);
        let last_update_timestamp = if max_offset > 0 {
            stored_at(core, header.topic, queue_id, "", max_offset - 1).unwrap_or(0)
        } else {
            0
        };
        offset_table.insert(
            MessageQueue::new(header.topic, &core.identity.name, queue_id),
            TopicOffset {
                last_update_timestamp,
                max_offset,
                min_offset,
            },
        );
    }
    Ok(json(request, &TopicStatsTable { offset_table }))
}

pub(crate) fn group(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: GetConsumeStats<'_> = request.header()?;
    let group = header.consumer_group;
    let topics = match header.topic.filter(|t| !t.is_empty()) {
        Some(topic) => vec![topic.to_owned()],
        None => core.offsets.topics_of(group),
    };
    let retry = names::retry_topic(group);
    let mut stats = ConsumeStats::default();
    for topic in topics {
        // A topic that the connected group has given up is left out; its retry topic never is.
        if topic != retry && matches!(core.clients.look_up(group, &topic), Lookup::NoTopic { .. }) {
            continue;
        }
        stats.consume_tps += core.items.get_rate(&topic, group);
        stats.offset_table.extend(progress(core, group, &topic));
    }
    Ok(json(request, &stats))
}

/// How far a group is in each queue of a topic; nothing for a topic that does not exist.
fn progress(core: &Core, group: &str, topic: &str) -> BTreeMap<MessageQueue, OffsetWrapper> {
    let Some(config) = core.topics.get(topic) else {
        return BTreeMap::new();
    };
    let consumed = core.offsets.queues(group, topic);
    let rows = (0..config.read_queue_nums).map(|queue_id| {
        let broker_offset = core.store.max_offset(topic, queue_id).max(0);
        let consumer_offset = consumed.get(&queue_id).copied().unwrap_or(0);
        let last = if consumer_offset > 0 {
            stored_at(core, topic, queue_id, group, consumer_offset - 1)
        } else {
            None
        };
        let row = OffsetWrapper {
            broker_offset,
            consumer_offset,
            last_timestamp: last.unwrap_or(0),
        };
        (MessageQueue::new(topic, &core.identity.name, queue_id), row)
    });
    rows.collect()
}

/// The lag of every group in every topic that it has progress in.
pub(crate) fn all_groups(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: GetBrokerConsumeStats = request.header()?;
    let mut list = ConsumeStatsList {
        broker_addr: Some(core.identity.advertised.clone()),
        ..ConsumeStatsList::default()
    };
    for group in core.groups.names() {
        let mut of_group = Vec::new();
        for topic in core.offsets.topics_of(&group) {
            if core
                .topics
                .get(&topic)
                .is_none_or(|t| header.is_order && !t.order)
            {
                continue;
            }
            let offset_table = progress(core, &group, &topic);
            // Offsets are the clients' word: several of them may be anything up to the largest.
            list.total_diff = offset_table.values().fold(list.total_diff, |sum, o| {
                sum.saturating_add(o.broker_offset.saturating_sub(o.consumer_offset))
            });
            of_group.push(ConsumeStats {
                offset_table,
                ..ConsumeStats::default()
            });
        }
        if !of_group.is_empty() {
            list.consume_stats_list.push(BTreeMap::from([(group, of_group)]));
        }
    }
    Ok(json(request, &list))
}

/// From when to when the messages of a topic are, and where the group is between.
pub(crate) fn time_spans(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: QueryConsumeTimeSpan<'_> = request.header()?;
    let Some(topic) = core.topics.get(header.topic) else {
        return Err(Refusal::new(
            response::TOPIC_NOT_EXIST,
            format!("topic[{}] not exist", header.topic),
        ));
    };
    let time = |queue_id, offset: i64| core.store.store_time(header.topic, queue_id, offset).unwrap_or(0);
    let spans = (0..topic.write_queue_nums).map(|queue_id| {
        let min_time_stamp = core
            .store
            .earliest_store_time(header.topic, queue_id)
            .unwrap_or(0);
        let max = core.store.max_offset(header.topic, queue_id);
        let max_time_stamp = if max > 0 { time(queue_id, max - 1) } else { 0 };
        let consumed = core
            .offsets
            .get(header.group, header.topic, queue_id)
            .unwrap_or(0);
        let consume_time_stamp = if consumed > 0 {
            time(queue_id, consumed - 1)
        } else {
            min_time_stamp
        };
        let delay_time = if consumed < max {
            now_ms().saturating_sub(time(queue_id, consumed.max(0))).max(0)
        } else {
            0
        };
        QueueTimeSpan {
            consume_time_stamp,
            delay_time,
            max_time_stamp,
            message_queue: Some(MessageQueue::new(header.topic, &core.identity.name, queue_id)),
            min_time_stamp,
        }
    });
    Ok(json(
        request,
        &ConsumeTimeSpans {
            consume_time_span_set: spans.collect(),
        },
    ))
}

/// The least offset that any of some groups has, for each queue in which that is behind the group compared with.
pub(crate) fn correction(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: QueryCorrectionOffset<'_> = request.header()?;
    let own = core.offsets.queues(header.compare_group, header.topic);
    let mut correction_offsets: BTreeMap<i32, i64> = BTreeMap::new();
    for group in header
        .filter_groups
        .unwrap_or_default()
        .split(',')
        .map(str::trim)
        .filter(|g| !g.is_empty())
    {
        for (queue, offset) in core.offsets.queues(group, header.topic) {
            if own.get(&queue).is_some_and(|&own| offset < own) {
                correction_offsets
                    .entry(queue)
                    .and_modify(|least| *least = offset.min(*least))
                    .or_insert(offset);
            }
        }
    }
    Ok(json(request, &CorrectionOffsets { correction_offsets }))
}

/// Gives one group the progress of another.
pub(crate) fn clone_group(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: CloneGroupOffset<'_> = request.header()?;
    check_group_name(header.dest_group)?;
    let topics = match header.topic.filter(|t| !t.is_empty()) {
        Some(topic) => vec![topic.to_owned()],
        None => core.offsets.topics_of(header.src_group),
    };
    for topic in &topics {
        for (queue, offset) in core.offsets.queues(header.src_group, topic) {
            core.offsets.set(header.dest_group, topic, queue, offset);
        }
    }
    core.save_offsets()?;
    tracing::info!(from = header.src_group, to = header.dest_group, ?topics, by = %cx.conn.peer(), "offsets cloned");
    Ok(ok(request))
}

/// One statistic of a topic, a group, or the broker.
pub(crate) fn item(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: ViewBrokerStats<'_> = request.header()?;
    let found = core
        .items
        .find(header.stats_name, header.stats_key, &core.identity.cluster);
    found.map(|data| json(request, &data)).ok_or_else(|| {
        Refusal::system(format!(
            "The stats <{}> <{}> not exist",
            header.stats_name, header.stats_key
        ))
    })
}
