//! Administration of topics, groups and files.
//!
//! A change is on disk before it is answered, and a change of topics is also at every name server that
//! answers, so that whoever asked can use the route at once.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::Command;
use ferromq_protocol::body::{
    DelayOffsetTable, SubscriptionGroupConfig, TopicConfig, TopicFilterType, TopicList,
};
use ferromq_protocol::code::response;
use ferromq_protocol::header::{CreateTopic, DeleteSubscriptionGroup, TopicHeader};
use ferromq_protocol::names;
use ferromq_remoting::{Outcome, RequestContext};

use super::send::check_topic_name;
use super::send_back::check_group_name;
use super::{Refusal, json, ok, parse};
use crate::clock::now_ms;
use crate::core::Core;

/// The most queues that a topic may have.
const MAX_QUEUES: i32 = 65_535;
/// How long an answer waits for the name servers.
const REGISTER_WAIT: Duration = Duration::from_secs(2);

pub(super) fn check_master(core: &Core) -> Result<(), Refusal> {
    if core.is_slave() {
        return Err(Refusal::system(
            "this broker is a slave: it copies its master's topics and groups; ask the master",
        ));
    }
    Ok(())
}

/// Answers when the name servers have heard of the change.
fn once_registered(core: &Arc<Core>, request: &Command) -> Outcome {
    let (core, head) = (core.clone(), request.reply(response::SUCCESS));
    Outcome::Later(Box::pin(async move {
        core.registrar.register_now(REGISTER_WAIT).await;
        head.into()
    }))
}

pub(crate) fn put_topic(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: CreateTopic<'_> = request.header()?;
    check_master(core)?;
    check_topic_name(header.topic)?;
    if core.system_topics().reserved(header.topic) {
        return Err(Refusal::system(format!(
            "The topic[{}] is conflict with system topic.",
            header.topic
        )));
    }
    for (what, queues) in [
        ("readQueueNums", header.read_queue_nums),
        ("writeQueueNums", header.write_queue_nums),
    ] {
        if !(0..=MAX_QUEUES).contains(&queues) {
            return Err(Refusal::system(format!(
                "{what} is {queues}; a topic has 0 to {MAX_QUEUES} queues"
            )));
        }
    }
    if !(0..=7).contains(&header.perm) {
        return Err(Refusal::system(format!(
            "perm is {}; use 2 (write), 4 (read) or 6 (both)",
            header.perm
        )));
    }
    let old = core.topics.get(header.topic);
    let config = TopicConfig {
        // Only the name servers' order configuration sets this.
        order: old.is_some_and(|old| old.order),
        topic_filter_type: Some(
            TopicFilterType::from_name(header.topic_filter_type).unwrap_or(TopicFilterType::SingleTag),
        ),
        topic_sys_flag: header.topic_sys_flag.unwrap_or(0),
        ..TopicConfig::new(
            header.topic,
            header.read_queue_nums,
            header.write_queue_nums,
            header.perm,
        )
    };
    if core.topics.put(config, now_ms()) {
        tracing::info!(
            topic = header.topic, read = header.read_queue_nums, write = header.write_queue_nums,
            perm = header.perm, by = %cx.conn.peer(), "topic made or changed"
        );
    }
    core.save_topics()?;
    Ok(once_registered(core, request))
}

pub(crate) fn delete_topic(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: TopicHeader<'_> = request.header()?;
    check_master(core)?;
    check_topic_name(header.topic)?;
    if core.system_topics().reserved(header.topic) {
        return Err(Refusal::system(format!(
            "The topic[{}] is conflict with system topic.",
            header.topic
        )));
    }
    if core.topics.remove(header.topic, now_ms()) {
        core.registrar.deleted(header.topic);
        tracing::info!(topic = header.topic, by = %cx.conn.peer(), "topic deleted");
    }
    core.save_topics()?;
    core.store.delete_topics(&|topic| topic != header.topic);
    // A topic made anew under the name starts at offset 0: old progress would point past its end.
    core.offsets.remove_topic(header.topic);
    core.items.forget_topic(header.topic);
    core.last_times.forget_topic(header.topic);
    core.save_offsets()?;
    Ok(once_registered(core, request))
}

pub(crate) fn all_topics(core: &Arc<Core>, request: &Command) -> Outcome {
    json(request, &core.topics.to_file())
}

pub(crate) fn system_topics(core: &Arc<Core>, request: &Command) -> Outcome {
    let system = core.system_topics();
    let mut topic_list: Vec<_> = core
        .topics
        .all()
        .iter()
        .map(|t| t.topic_name.clone())
        .filter(|t| system.reserved(t))
        .collect();
    topic_list.sort_unstable();
    json(
        request,
        &TopicList {
            topic_list,
            ..TopicList::default()
        },
    )
}

pub(crate) fn put_group(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    check_master(core)?;
    let config: SubscriptionGroupConfig = parse(request, "subscription group")?;
    check_group_name(&config.group_name)?;
    let name = config.group_name.clone();
    if core.groups.put(config, now_ms()) {
        tracing::info!(group = name, by = %cx.conn.peer(), "consumer group made or changed");
    }
    core.save_groups()?;
    Ok(ok(request))
}

pub(crate) fn delete_group(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: DeleteSubscriptionGroup<'_> = request.header()?;
    check_master(core)?;
    if core.groups.remove(header.group_name, now_ms()) {
        tracing::info!(group = header.group_name, by = %cx.conn.peer(), "consumer group deleted");
    }
    core.items.forget_group(header.group_name);
    core.last_times.forget_group(header.group_name);
    core.save_groups()?;
    if header.remove_offset {
        core.offsets.remove_group(header.group_name);
        core.save_offsets()?;
    }
    Ok(ok(request))
}

pub(crate) fn all_groups(core: &Arc<Core>, request: &Command) -> Outcome {
    json(request, &core.groups.to_file())
}

pub(crate) fn all_offsets(core: &Arc<Core>, request: &Command) -> Outcome {
    json(request, &core.offsets.to_file())
}

pub(crate) fn all_delay_offsets(core: &Arc<Core>, request: &Command) -> Outcome {
    json(
        request,
        &DelayOffsetTable {
            offset_table: core.store.delay_offsets(),
        },
    )
}

pub(crate) fn clean_expired_queues(core: &Arc<Core>, request: &Command) -> Outcome {
    core.store.clean_expired_queues();
    ok(request)
}

pub(crate) fn clean_unused_topics(core: &Arc<Core>, request: &Command) -> Outcome {
    let removed = core
        .store
        .delete_topics(&|topic| core.topics.contains(topic) || names::is_light(topic));
    if !removed.is_empty() {
        tracing::info!(topics = ?removed, "queues of unknown topics removed");
    }
    ok(request)
}

pub(crate) fn delete_expired_files(core: &Arc<Core>, request: &Command) -> Outcome {
    core.store.delete_expired_files();
    ok(request)
}
