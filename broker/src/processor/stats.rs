//! Positions of queues (202) and of groups in them (208).

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::body::{ConsumeStats, MessageQueue, OffsetWrapper, TopicOffset, TopicStatsTable};
use ferromq_protocol::code::response;
use ferromq_protocol::header::{GetConsumeStats, TopicHeader};
use ferromq_protocol::names;
use ferromq_remoting::{Outcome, RequestContext};

use super::{Refusal, json};
use crate::client_table::Lookup;
use crate::core::Core;

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
            core.store
                .store_time(header.topic, queue_id, max_offset - 1)
                .unwrap_or(0)
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
        let Some(config) = core.topics.get(&topic) else {
            tracing::debug!(topic, group, "a group has offsets on a topic that does not exist");
            continue;
        };
        // A topic that the connected group has given up is left out; its retry topic never is.
        if topic != retry && matches!(core.clients.look_up(group, &topic), Lookup::NoTopic { .. }) {
            continue;
        }
        let consumed = core.offsets.queues(group, &topic);
        for queue_id in 0..config.read_queue_nums {
            let broker_offset = core.store.max_offset(&topic, queue_id).max(0);
            let consumer_offset = consumed.get(&queue_id).copied().unwrap_or(0);
            let last_timestamp = if consumer_offset > 0 {
                core.store
                    .store_time(&topic, queue_id, consumer_offset - 1)
                    .unwrap_or(0)
            } else {
                0
            };
            stats.offset_table.insert(
                MessageQueue::new(&topic, &core.identity.name, queue_id),
                OffsetWrapper {
                    broker_offset,
                    consumer_offset,
                    last_timestamp,
                },
            );
        }
    }
    Ok(json(request, &stats))
}
