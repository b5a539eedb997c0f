//! Topics at brokers (17, 202, 215, 300, 303).

use super::headers;

headers! {
    /// Request 17.
    pub struct CreateTopic<'a> {
        topic: &'a str => "topic",
        default_topic: &'a str => "defaultTopic",
        read_queue_nums: i32 => "readQueueNums",
        write_queue_nums: i32 => "writeQueueNums",
        /// Bits of [`crate::perm`].
        perm: i32 => "perm",
        /// `SINGLE_TAG` or `MULTI_TAG`.
        topic_filter_type: &'a str => "topicFilterType" = "SINGLE_TAG",
        topic_sys_flag: Option<i32> => "topicSysFlag",
        order: bool => "order" = false,
    }

    /// Requests that name just a topic: 202, 215 and 300.
    pub struct TopicHeader<'a> {
        topic: &'a str => "topic",
    }

    /// Request 303.
    pub struct QueryConsumeTimeSpan<'a> {
        topic: &'a str => "topic",
        group: &'a str => "group",
    }
}
