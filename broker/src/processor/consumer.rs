//! Who is connected: 38 for consumers themselves, 203, 204, 300 and 328 for administrators.

use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::body::{
    Connection, ConsumerConnection, ConsumerIdList, GroupList, ProducerConnection, ProducerInfo,
    ProducerTable,
};
use ferromq_protocol::code::response;
use ferromq_protocol::header::{ConsumerGroupHeader, ProducerGroupHeader, TopicHeader};
use ferromq_remoting::{Conn, Outcome, RequestContext};

use super::{Refusal, json};
use crate::client_table::Member;
use crate::clock::{now_ms, steady_ms};
use crate::core::Core;

pub(crate) fn list(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: ConsumerGroupHeader<'_> = request.header()?;
    let consumer_id_list = core.clients.client_ids(header.consumer_group);
    if consumer_id_list.is_empty() {
        return Err(Refusal::system(format!(
            "no consumer for this group, {}",
            header.consumer_group
        )));
    }
    Ok(json(request, &ConsumerIdList { consumer_id_list }))
}

fn connection(member: Member<Conn>) -> Connection {
    Connection {
        client_addr: member.link.peer().to_string(),
        client_id: member.client_id,
        language: member.language,
        version: member.version,
    }
}

pub(crate) fn consumers(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: ConsumerGroupHeader<'_> = request.header()?;
    let Some(view) = core.clients.consumer_view(header.consumer_group) else {
        return Err(Refusal::new(
            response::CONSUMER_NOT_ONLINE,
            format!("the consumer group[{}] not online", header.consumer_group),
        ));
    };
    Ok(json(
        request,
        &ConsumerConnection {
            connection_set: view.members.into_iter().map(connection).collect(),
            consume_from_where: view.manner.consume_from_where,
            consume_type: view.manner.consume_type,
            message_model: view.manner.message_model,
            subscription_table: view
                .subscriptions
                .into_iter()
                .map(|(t, s)| (t, s.data.clone()))
                .collect(),
        },
    ))
}

pub(crate) fn producers(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: ProducerGroupHeader<'_> = request.header()?;
    let members = core.clients.producers(header.producer_group);
    if members.is_empty() {
        return Err(Refusal::system(format!(
            "the producer group[{}] not exist",
            header.producer_group
        )));
    }
    Ok(json(
        request,
        &ProducerConnection {
            connection_set: members.into_iter().map(connection).collect(),
        },
    ))
}

/// Groups that consume the topic now or have an offset in it.
pub(crate) fn groups_of_topic(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: TopicHeader<'_> = request.header()?;
    let mut group_list = core.clients.groups_of_topic(header.topic);
    group_list.extend(core.offsets.groups_of(header.topic));
    group_list.sort_unstable();
    group_list.dedup();
    Ok(json(request, &GroupList { group_list }))
}

/// Every producer by group.
pub(crate) fn all_producers(core: &Arc<Core>, request: &Command) -> Outcome {
    // What the table has is a steady clock's time; told is the wall clock's.
    let (now, steady) = (now_ms(), steady_ms());
    let info = |member: Member<Conn>| ProducerInfo {
        remote_ip: member.link.peer().to_string(),
        client_id: member.client_id,
        language: member.language,
        last_update_timestamp: now - (steady - member.seen),
        version: member.version,
    };
    let groups = core.clients.all_producers().into_iter();
    let data = groups
        .map(|(group, members)| (group, members.into_iter().map(info).collect()))
        .collect();
    json(request, &ProducerTable { data })
}
