//! Pull (11).

use super::headers;

headers! {
    /// Request 11.
    pub struct PullMessage<'a> {
        consumer_group: &'a str => "consumerGroup",
        topic: &'a str => "topic",
        queue_id: i32 => "queueId",
        /// Queue offset of the first wanted message.
        queue_offset: i64 => "queueOffset",
        max_msg_nums: i32 => "maxMsgNums",
        /// Bits of [`crate::sysflag::pull`].
        sys_flag: i32 => "sysFlag",
        commit_offset: i64 => "commitOffset" = 0,
        /// How long the broker may hold the request, in milliseconds.
        suspend_timeout_millis: i64 => "suspendTimeoutMillis" = 0,
        subscription: Option<&'a str> => "subscription",
        sub_version: i64 => "subVersion" = 0,
        /// `TAG` (also when absent) or `SQL92`.
        expression_type: Option<&'a str> => "expressionType",
    }

    /// Response to 11; all codes that a pull can end with carry it.
    pub struct PullMessageResponse {
        suggest_which_broker_id: i64 => "suggestWhichBrokerId",
        next_begin_offset: i64 => "nextBeginOffset",
        min_offset: i64 => "minOffset",
        max_offset: i64 => "maxOffset",
    }
}
