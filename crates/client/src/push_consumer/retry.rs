//! Giving back messages that failed.

use std::sync::Arc;

use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::ConsumerSendMsgBack;
use ferromq_protocol::names::retry_topic;
use ferromq_protocol::properties::names;

use super::Core;
use crate::MessageQueue;
use crate::message::Message;
use crate::received::ReceivedMessage;

/// Deliveries after the first before a message is dead, if nothing else is said.
const MAX_RETRIES: i32 = 16;

impl Core {
    fn max_retries(&self) -> i32 {
        self.config.max_retries.unwrap_or(MAX_RETRIES)
    }

    /// Asks the broker to deliver a message again: level 0 by its own growing delay, above 0 by that level, -1 to the
    /// dead letters. Should the broker not do it, a copy is sent to the retry topic. True if either worked.
    pub(super) async fn send_back(
        &self,
        queue: &MessageQueue,
        message: &Arc<ReceivedMessage>,
        level: i32,
    ) -> bool {
        let original = crate::callbacks::original_topic(message);
        let unique = message.message_id();
        let header = ConsumerSendMsgBack {
            offset: message.physical_offset,
            group: &self.group,
            delay_level: level,
            origin_msg_id: Some(&unique),
            origin_topic: Some(original.unwrap_or(&message.topic)),
            unit_mode: false,
            max_reconsume_times: Some(self.max_retries()),
        };
        let request = Command::request(request::CONSUMER_SEND_MSG_BACK).with_header(&header);
        let asked = match self.fetcher.master(queue).await {
            Ok(broker) => self.client.inner().link.ask(&broker, request).await,
            Err(error) => Err(error),
        };
        let Err(error) = asked else { return true };
        tracing::debug!(id = unique, %error, "the broker did not take a message back; a copy is sent");
        let copy = self.copy(message, message.reconsume_times + 1);
        let copy = copy.delay_level((3 + message.reconsume_times).clamp(1, 18) as u8);
        self.send_copy(copy, message.reconsume_times + 1).await
    }

    /// Sends a message that failed too often in order. Its count makes the broker put it to the dead letters.
    pub(super) async fn send_to_dead_letters(&self, message: &ReceivedMessage) -> bool {
        let times = message.reconsume_times.max(self.max_retries());
        self.send_copy(self.copy(message, times), times).await
    }

    fn copy(&self, message: &ReceivedMessage, times: i32) -> Message {
        let mut copy = Message::new(
            retry_topic(&self.group),
            // What does not inflate was flagged wrongly: it goes on as plain bytes, so that flag and bytes agree.
            message.body().unwrap_or_else(|_| message.stored_body().clone()),
        );
        copy.flag = message.flag;
        for (name, value) in message.properties().filter(|(name, value)| {
            // What brokers add anew, and what belongs to the place where the message lay.
            let left_out = [
                names::TRAN_MSG,
                names::DELAY,
                names::CLUSTER,
                names::MIN_OFFSET,
                names::MAX_OFFSET,
                names::REAL_TOPIC,
                names::REAL_QID,
            ];
            !left_out.contains(name) && !value.is_empty()
        }) {
            copy.set(name, value);
        }
        if copy.get(names::RETRY_TOPIC).is_none() {
            copy.set(names::RETRY_TOPIC, &*message.topic);
        }
        if copy.get(names::ORIGIN_MESSAGE_ID).is_none() {
            copy.set(names::ORIGIN_MESSAGE_ID, message.message_id());
        }
        copy.set(names::RECONSUME_TIME, times.to_string());
        copy.set(names::MAX_RECONSUME_TIMES, self.max_retries().to_string());
        copy
    }

    async fn send_copy(&self, copy: Message, times: i32) -> bool {
        let sent = self.copies.send_retry(copy, times, self.max_retries()).await;
        if let Err(error) = &sent {
            tracing::warn!(group = self.group, %error, "a failed message could not be given to any broker; it stays here");
        }
        sent.is_ok()
    }
}
