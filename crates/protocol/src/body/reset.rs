//! Offset resets and the offset event.

use std::collections::BTreeMap;

use super::{MessageQueue, bodies};

bodies! {
    /// Body of 220 and answer to 222.
    pub struct ResetOffsetBody {
        offset_table: BTreeMap<MessageQueue, i64> => "offsetTable",
    }

    /// Body of 220 for C++ clients.
    pub struct ResetOffsetBodyForC {
        offset_table: Vec<MessageQueueForC> => "offsetTable",
    }

    /// One queue's new offset.
    pub struct MessageQueueForC {
        broker_name: String => "brokerName",
        offset: i64 => "offset",
        queue_id: i32 => "queueId",
        topic: String => "topic",
    }

    /// Answers to 221 (the queue table) and 223 (the consumer table).
    pub struct GetConsumerStatusBody {
        /// Offsets by client id.
        consumer_table: BTreeMap<String, BTreeMap<MessageQueue, i64>> => "consumerTable",
        /// Java may send a reference to the other table here, which reads as empty.
        message_queue_table: BTreeMap<MessageQueue, i64> => "messageQueueTable",
    }

    /// A message body on the topic OFFSET_MOVED_EVENT.
    pub struct OffsetMovedEvent {
        consumer_group: String => "consumerGroup",
        message_queue: Option<MessageQueue> => "messageQueue",
        offset_new: i64 => "offsetNew",
        offset_request: i64 => "offsetRequest",
    }
}
