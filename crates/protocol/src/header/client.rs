//! Client life, consumer groups and what a broker asks its clients (35, 36, 38, 40, 220 to 223, 307, 309).

use super::headers;

headers! {
    /// Request 35.
    pub struct UnregisterClient<'a> {
        client_id: &'a str => "clientID",
        producer_group: Option<&'a str> => "producerGroup",
        consumer_group: Option<&'a str> => "consumerGroup",
    }

    /// Request 36.
    pub struct ConsumerSendMsgBack<'a> {
        /// Physical offset of the message.
        offset: i64 => "offset",
        group: &'a str => "group",
        /// -1 dead letter at once, 0 the broker chooses, above 0 a delay level.
        delay_level: i32 => "delayLevel",
        origin_msg_id: Option<&'a str> => "originMsgId",
        origin_topic: Option<&'a str> => "originTopic",
        unit_mode: bool => "unitMode" = false,
        max_reconsume_times: Option<i32> => "maxReconsumeTimes",
    }

    /// Requests that name just a consumer group: 38, 40 and 203.
    pub struct ConsumerGroupHeader<'a> {
        consumer_group: &'a str => "consumerGroup",
    }

    /// Request 204.
    pub struct ProducerGroupHeader<'a> {
        producer_group: &'a str => "producerGroup",
    }

    /// Requests 220 (to a client) and 222 (to a broker).
    pub struct ResetOffset<'a> {
        topic: &'a str => "topic",
        group: &'a str => "group",
        /// Milliseconds since 1970; -1 stands for the end.
        timestamp: i64 => "timestamp",
        is_force: bool => "isForce",
    }

    /// Requests 221 (to a client) and 223 (to a broker).
    pub struct GetConsumerStatus<'a> {
        topic: &'a str => "topic",
        group: &'a str => "group",
        /// A client id, despite its name; absent means all clients.
        client_addr: Option<&'a str> => "clientAddr",
    }

    /// Request 307.
    pub struct GetConsumerRunningInfo<'a> {
        consumer_group: &'a str => "consumerGroup",
        client_id: &'a str => "clientId",
        jstack_enable: bool => "jstackEnable" = false,
    }

    /// Request 309.
    pub struct ConsumeMessageDirectly<'a> {
        consumer_group: &'a str => "consumerGroup",
        client_id: Option<&'a str> => "clientId",
        /// An offset id.
        msg_id: Option<&'a str> => "msgId",
        broker_name: Option<&'a str> => "brokerName",
    }
}
