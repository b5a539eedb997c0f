//! Replies of the request-reply pattern (324, 325): handed to the client that waits, over its own connection.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request as code, response};
use ferromq_protocol::header::{PushReplyMessage, SendMessage, SendMessageResponse};
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::{Command, names, properties};
use ferromq_remoting::{Outcome, RequestContext};
use ferromq_store::PutMessage;

use super::Refusal;
use super::send::{check_open, check_topic_name, push, stored_properties};
use crate::clock::now_ms;
use crate::core::Core;

/// How long the waiting client has to take the reply.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn handle(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: SendMessage<'_> = request.header()?;
    check_open(core)?;
    check_topic_name(header.topic)?;
    let waiting = properties::get(header.properties, prop::REPLY_TO_CLIENT).map(str::to_owned);
    let mut text = header.properties.trim_end_matches('\u{2}').to_owned();
    push(&mut text, prop::PUSH_REPLY_TIME, &now_ms().to_string());
    let (born, stored) = (cx.conn.peer().to_string(), core.identity.store_host.to_string());
    let command = Command::request(code::PUSH_REPLY_MESSAGE_TO_CLIENT)
        .with_header(&PushReplyMessage {
            producer_group: header.producer_group,
            topic: header.topic,
            default_topic: header.default_topic,
            default_topic_queue_nums: header.default_topic_queue_nums,
            queue_id: header.queue_id,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            flag: header.flag,
            properties: &text,
            reconsume_times: header.reconsume_times,
            unit_mode: header.unit_mode,
            born_host: &born,
            store_host: &stored,
            store_timestamp: now_ms(),
        })
        .with_body(request.body.clone());
    keep(core, cx, request, &header);
    let settings = core.settings();
    let head = request
        .reply(response::SUCCESS)
        .with_header(&SendMessageResponse {
            msg_id: "0",
            queue_id: header.queue_id,
            queue_offset: 0,
            transaction_id: None,
            msg_region: Some(&settings.region_id),
            trace_on: Some(settings.trace_on),
        });
    let link = waiting.as_deref().and_then(|client| core.clients.client(client));
    Ok(Outcome::Later(Box::pin(async move {
        let failure = match link {
            Some(link) => match link.call(command, PATIENCE).await {
                Ok(answer) if answer.code == response::SUCCESS => None,
                Ok(answer) => Some(format!(
                    "the waiting client answered code {}: {:?}",
                    answer.code, answer.remark
                )),
                Err(error) => Some(error.to_string()),
            },
            None => Some(format!("the client {waiting:?} is not connected here")),
        };
        // Peers read the failure from the remark; the code stays.
        match failure {
            Some(why) => head.with_remark(format!("push reply message fail: {why}")).into(),
            None => head.into(),
        }
    })))
}

/// Keeps the reply on the cluster's reply topic too, for those who look there.
fn keep(core: &Core, cx: &RequestContext, request: &Command, header: &SendMessage<'_>) {
    if !core.settings().store_reply_message_enable || request.body.is_empty() {
        return;
    }
    let topic = names::reply_topic(&core.identity.cluster);
    let properties = stored_properties(header.properties, &core.identity.cluster).text;
    let stored = core.store.put(PutMessage {
        topic: &topic,
        queue_id: 0,
        flag: header.flag,
        sys_flag: header.sys_flag,
        born_timestamp: header.born_timestamp,
        born_host: cx.conn.peer(),
        reconsume_times: header.reconsume_times,
        prepared_transaction_offset: 0,
        body: &request.body,
        properties: &properties,
        wait_store_ok: false,
    });
    if let Err(error) = stored {
        tracing::debug!(%error, topic, "a reply was handed over but not stored");
    }
}
