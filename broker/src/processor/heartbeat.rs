//! Heartbeats (34), leaving (35), and the check of a subscription before it is used (46).

use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::body::{CheckClientRequestBody, ConsumerData, HeartbeatData};
use ferromq_protocol::code::response;
use ferromq_protocol::header::UnregisterClient;
use ferromq_protocol::names;
use ferromq_remoting::{Conn, Outcome, RequestContext};

use super::send::unit_flags;
use super::send_back::check_group_name;
use super::{Refusal, ok, parse};
use crate::client_table::{Manner, Member};
use crate::clock::{now_ms, steady_ms};
use crate::core::Core;
use crate::overload::Patience;
use crate::selector::Selector;
use crate::topic_table::PERM_RW;

pub(crate) fn beat(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    super::still_in_time(core, cx, Patience::Heartbeat)?;
    let beat: HeartbeatData = parse(request, "heartbeat")?;
    if beat.client_id.is_empty() {
        return Err(Refusal::system("a heartbeat must name its clientID"));
    }
    let now = now_ms();
    let member = Member {
        link: cx.conn.clone(),
        client_id: beat.client_id,
        language: request.language,
        version: request.version,
        seen: steady_ms(),
    };
    for consumer in beat.consumer_data_set {
        consume(core, member.clone(), consumer, now)?;
    }
    for producer in beat.producer_data_set {
        core.clients.producer_seen(&producer.group_name, member.clone());
    }
    // The connection may have closed while this waited for its turn; its close event has been then.
    if !cx.conn.is_open() {
        core.client_gone(&cx.conn);
    }
    Ok(ok(request))
}

fn consume(core: &Arc<Core>, member: Member<Conn>, data: ConsumerData, now: i64) -> Result<(), Refusal> {
    check_group_name(&data.group_name)?;
    let auto_create = core.settings().auto_create_subscription_group;
    let config = match core.groups.get_or_create(&data.group_name, auto_create, now) {
        Some((config, new)) => {
            if new {
                core.save_groups()?;
            }
            Some(config)
        }
        None => None,
    };
    let mut notify = core.settings().notify_consumer_ids_changed_enable;
    if let Some(config) = &config {
        notify &= config.notify_consumer_ids_changed_enable;
        let retry = names::retry_topic(&data.group_name);
        let sys_flag = if data.unit_mode {
            unit_flags(false, true)
        } else {
            0
        };
        if config.retry_queue_nums > 0
            && core
                .topics
                .get_or_create(&retry, config.retry_queue_nums, PERM_RW, sys_flag, now)
                .1
        {
            core.save_topics()?;
            core.registrar.changed();
        }
    }
    let manner = Manner {
        consume_type: data.consume_type,
        message_model: data.message_model,
        consume_from_where: data.consume_from_where,
    };
    core.filters
        .register(&data.group_name, &data.subscription_data_set, now_ms);
    let changed = core
        .clients
        .consumer_seen(&data.group_name, member, manner, data.subscription_data_set);
    if changed {
        let differing = core.clients.differing(&data.group_name);
        if !differing.is_empty() {
            tracing::warn!(
                group = data.group_name,
                clients = ?differing,
                "members of a consumer group have different subscriptions: some messages will reach nobody who wants them"
            );
        }
    }
    if changed && notify {
        core.notices.changed(&data.group_name);
    }
    Ok(())
}

pub(crate) fn unregister(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: UnregisterClient<'_> = request.header()?;
    if let Some(group) = header.producer_group {
        core.clients.producer_left(group, cx.conn.id());
    }
    if let Some(group) = header.consumer_group
        && core.clients.consumer_left(group, cx.conn.id())
    {
        core.left(group);
    }
    Ok(ok(request))
}

pub(crate) fn check_client(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let body: CheckClientRequestBody = parse(request, "subscription check")?;
    let Some(subscription) = body.subscription_data.filter(|s| !s.is_tag_type()) else {
        return Ok(ok(request));
    };
    if !core.settings().enable_property_filter {
        return Err(Refusal::system(format!(
            "The broker does not support consumer to filter message by {}; set enablePropertyFilter=true",
            subscription.expression_type.as_deref().unwrap_or_default()
        )));
    }
    Selector::compile(subscription.expression_type.as_deref(), &subscription.sub_string)
        .map_err(|why| Refusal::new(response::SUBSCRIPTION_PARSE_FAILED, why))?;
    Ok(ok(request))
}
