//! What administrators ask of a connected client through the broker: its running info (307), to consume one
//! message now (309), its offsets (223); and offset resets (222).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::body::{
    GetConsumerStatusBody, MessageQueue, MessageQueueForC, ResetOffsetBody, ResetOffsetBodyForC,
};
use ferromq_protocol::code::{request as code, response};
use ferromq_protocol::header::{
    ConsumeMessageDirectly, GetConsumerRunningInfo, GetConsumerStatus, ResetOffset,
};
use ferromq_protocol::{Command, Language, fastjson, message_id};
use ferromq_remoting::{CallError, Conn, Outcome, RequestContext};

use super::Refusal;
use crate::client_table::Member;
use crate::core::Core;

/// How long a client has to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long each of a group's clients has to tell its offsets: the tools wait 5 s for what those say who answer.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);
/// Clients from these versions on know the requests.
const KNOWS_RUNNING_INFO: i32 = 62;
const KNOWS_RESET: i32 = 28;

fn not_online(group: &str, client: &str) -> Refusal {
    Refusal::new(
        response::CONSUMER_NOT_ONLINE,
        format!("The Consumer <{group}> <{client}> not online"),
    )
}

/// Hands the request to the client and its answer back.
fn forward(
    core: &Arc<Core>,
    group: &str,
    client_id: &str,
    request: &Command,
    command: Command,
) -> Result<Outcome, Refusal> {
    let view = core
        .clients
        .consumer_view(group)
        .ok_or_else(|| not_online(group, client_id))?;
    let member = view
        .members
        .into_iter()
        .find(|m| m.client_id == client_id)
        .ok_or_else(|| not_online(group, client_id))?;
    if member.version < KNOWS_RUNNING_INFO {
        return Err(Refusal::system(format!(
            "The Consumer <{client_id}> Version <{}> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
            ferromq_protocol::version_name(member.version)
        )));
    }
    let mut head = request.reply(response::SUCCESS);
    let (group, client_id) = (group.to_owned(), client_id.to_owned());
    Ok(Outcome::Later(Box::pin(async move {
        match member.link.call(command, PATIENCE).await {
            Ok(answer) => {
                head.code = answer.code;
                head.remark = answer.remark;
                head.body = answer.body;
            }
            Err(error) => {
                head.code = match &error {
                    CallError::Timeout { .. } => response::CONSUME_MSG_TIMEOUT,
                    _ => response::SYSTEM_ERROR,
                };
                head.remark = Some(format!("consumer <{group}> <{client_id}>: {error}"));
            }
        }
        head.into()
    })))
}

pub(super) fn running_info(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: GetConsumerRunningInfo<'_> = request.header()?;
    let command = Command::request(code::GET_CONSUMER_RUNNING_INFO).with_header(&header);
    forward(core, header.consumer_group, header.client_id, request, command)
}

pub(super) fn consume_directly(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: ConsumeMessageDirectly<'_> = request.header()?;
    let client_id = header
        .client_id
        .ok_or_else(|| Refusal::system("the request does not name its clientId"))?;
    let record = header
        .msg_id
        .and_then(message_id::parse_offset_id)
        .and_then(|(_, offset)| core.store.look_up(offset))
        .ok_or_else(|| Refusal::system(format!("there is no message with the id {:?}", header.msg_id)))?;
    let asked = ConsumeMessageDirectly {
        broker_name: Some(&core.identity.name),
        ..header
    };
    let command = Command::request(code::CONSUME_MESSAGE_DIRECTLY)
        .with_header(&asked)
        .with_body(record);
    forward(core, header.consumer_group, client_id, request, command)
}

/// The offsets that a reset leads to, for each queue of the topic.
fn new_offsets(core: &Core, header: &ResetOffset<'_>) -> Result<BTreeMap<MessageQueue, i64>, Refusal> {
    let topic = core.topics.get(header.topic).ok_or_else(|| {
        Refusal::system(format!(
            "[reset-offset] reset offset failed, no topic in this broker. topic={}",
            header.topic
        ))
    })?;
    let mut table = BTreeMap::new();
    for queue_id in 0..topic.write_queue_nums {
        let Some(stored) = core.offsets.get(header.group, header.topic, queue_id) else {
            return Err(Refusal::system(format!(
                "THe consumer group <{}> not exist",
                header.group
            )));
        };
        let wanted = if header.timestamp == -1 {
            core.store.max_offset(header.topic, queue_id)
        } else {
            core.store
                .offset_by_time(header.topic, queue_id, header.timestamp)
        }
        .max(0);
        // Without force nobody is moved forwards.
        let offset = if header.is_force {
            wanted
        } else {
            wanted.min(stored)
        };
        table.insert(
            MessageQueue::new(header.topic, &core.identity.name, queue_id),
            offset,
        );
    }
    Ok(table)
}

/// Tells the group's clients to go to other offsets. They write the offsets themselves, since whatever the broker
/// wrote they would overwrite.
pub(super) fn reset(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: ResetOffset<'_> = request.header()?;
    let offset_table = new_offsets(core, &header)?;
    let members = core
        .clients
        .consumer_view(header.group)
        .map(|view| view.members)
        .unwrap_or_default();
    if members.is_empty() {
        return Err(Refusal::new(
            response::CONSUMER_NOT_ONLINE,
            format!(
                "Consumer not online, so can not reset offset, Group: {} Topic: {}",
                header.group, header.topic
            ),
        ));
    }
    if let Some(old) = members.iter().find(|m| m.version < KNOWS_RESET) {
        return Err(Refusal::system(format!(
            "the client does not support this feature. version={}",
            ferromq_protocol::version_name(old.version)
        )));
    }
    let body: Bytes = if request.language == Language::Cpp {
        let rows = offset_table.iter().map(|(queue, &offset)| MessageQueueForC {
            broker_name: queue.broker_name.clone(),
            offset,
            queue_id: queue.queue_id,
            topic: queue.topic.clone(),
        });
        fastjson::to_vec(&ResetOffsetBodyForC {
            offset_table: rows.collect(),
        })
        .into()
    } else {
        fastjson::to_vec(&ResetOffsetBody {
            offset_table: offset_table.clone(),
        })
        .into()
    };
    for member in &members {
        let command = Command::request(code::RESET_CONSUMER_CLIENT_OFFSET)
            .with_header(&header)
            .with_body(body.clone());
        if let Err(error) = member.link.oneway(command) {
            return Err(Refusal::system(format!(
                "the client {} could not be told: {error}",
                member.client_id
            )));
        }
    }
    tracing::info!(
        group = header.group, topic = header.topic, timestamp = header.timestamp, by = %cx.conn.peer(),
        clients = members.len(), "told a group's clients to reset their offsets"
    );
    Ok(super::json(request, &ResetOffsetBody { offset_table }))
}

/// Asks the group's clients, or one of them, for their offsets.
pub(super) fn consumer_status(
    core: &Arc<Core>,
    _: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: GetConsumerStatus<'_> = request.header()?;
    let wanted = header.client_addr.filter(|c| !c.is_empty());
    let members: Vec<Member<Conn>> = core
        .clients
        .consumer_view(header.group)
        .map(|view| view.members)
        .unwrap_or_default()
        .into_iter()
        .filter(|m| wanted.is_none_or(|w| m.client_id == w))
        .collect();
    if members.is_empty() {
        return Err(Refusal::system(format!(
            "No Any Consumer online in the consumer group: [{}]",
            header.group
        )));
    }
    let command = Command::request(code::GET_CONSUMER_STATUS_FROM_CLIENT).with_header(&header);
    let head = request.reply(response::SUCCESS);
    Ok(Outcome::Later(Box::pin(async move {
        let asked = members.into_iter().map(|member| {
            let command = command.clone();
            async move {
                let answer = member
                    .link
                    .call(command, STATUS_PATIENCE)
                    .await
                    .ok()
                    .filter(|a| a.code == response::SUCCESS)?;
                let body: GetConsumerStatusBody = fastjson::from_slice(&answer.body).ok()?;
                Some((member.client_id, body.message_queue_table))
            }
        });
        let consumer_table = futures::future::join_all(asked)
            .await
            .into_iter()
            .flatten()
            .collect();
        let body = GetConsumerStatusBody {
            consumer_table,
            ..GetConsumerStatusBody::default()
        };
        head.with_body(fastjson::to_vec(&body)).into()
    })))
}
