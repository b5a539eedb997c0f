//! Messages by key or by place (12, 33).

use super::headers;

headers! {
    /// Request 12.
    pub struct QueryMessage<'a> {
        topic: &'a str => "topic",
        key: &'a str => "key",
        max_num: i32 => "maxNum",
        begin_timestamp: i64 => "beginTimestamp",
        end_timestamp: i64 => "endTimestamp",
        /// The key is a unique id; the broker's default then replaces `max_num`.
        unique_key: bool => "_UNIQUE_KEY_QUERY" = false,
    }

    /// Response to 12.
    pub struct QueryMessageResponse {
        index_last_update_timestamp: i64 => "indexLastUpdateTimestamp",
        index_last_update_phyoffset: i64 => "indexLastUpdatePhyoffset",
    }

    /// Request 33.
    pub struct ViewMessage {
        /// Physical offset.
        offset: i64 => "offset",
    }
}
