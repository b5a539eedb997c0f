//! Offsets of groups and queues (14, 15, 29 to 32).

use super::headers;

headers! {
    /// Request 14.
    pub struct QueryConsumerOffset<'a> {
        consumer_group: &'a str => "consumerGroup",
        topic: &'a str => "topic",
        queue_id: i32 => "queueId",
    }

    /// Request 15.
    pub struct UpdateConsumerOffset<'a> {
        consumer_group: &'a str => "consumerGroup",
        topic: &'a str => "topic",
        queue_id: i32 => "queueId",
        commit_offset: i64 => "commitOffset",
    }

    /// Request 29.
    pub struct SearchOffset<'a> {
        topic: &'a str => "topic",
        queue_id: i32 => "queueId",
        /// Milliseconds since 1970.
        timestamp: i64 => "timestamp",
    }

    /// Requests 30 (max offset), 31 (min offset) and 32 (earliest store time).
    pub struct QueueHeader<'a> {
        topic: &'a str => "topic",
        queue_id: i32 => "queueId",
    }

    /// Response to 14, 29, 30 and 31.
    pub struct OffsetResponse {
        offset: i64 => "offset",
    }

    /// Response to 32.
    pub struct TimestampResponse {
        /// Milliseconds since 1970.
        timestamp: i64 => "timestamp",
    }
}
