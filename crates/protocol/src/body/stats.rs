//! Statistics of topics, groups and brokers.

use std::collections::BTreeMap;

use super::{MessageQueue, SubscriptionData, bodies};

bodies! {
    /// Answer to 321.
    pub struct QueryConsumeQueueResponseBody {
        /// Text about the group's filter, or that it is not online.
        filter_data: Option<String> => "filterData",
        max_queue_index: i64 => "maxQueueIndex",
        min_queue_index: i64 => "minQueueIndex",
        queue_data: Vec<ConsumeQueueData> => "queueData",
        subscription_data: Option<SubscriptionData> => "subscriptionData",
    }

    /// One unit of a consume queue.
    pub struct ConsumeQueueData {
        bit_map: Option<String> => "bitMap",
        /// Whether the group's subscription would take the message, as far as the unit tells.
        eval: bool => "eval",
        extend_data_json: Option<String> => "extendDataJson",
        msg: Option<String> => "msg",
        physic_offset: i64 => "physicOffset",
        physic_size: i32 => "physicSize",
        tags_code: i64 => "tagsCode",
    }

    /// Answer to 202.
    pub struct TopicStatsTable {
        offset_table: BTreeMap<MessageQueue, TopicOffset> => "offsetTable",
    }

    /// One queue's range.
    pub struct TopicOffset {
        last_update_timestamp: i64 => "lastUpdateTimestamp",
        max_offset: i64 => "maxOffset",
        min_offset: i64 => "minOffset",
    }

    /// Answer to 208.
    pub struct ConsumeStats {
        consume_tps: f64 => "consumeTps",
        offset_table: BTreeMap<MessageQueue, OffsetWrapper> => "offsetTable",
    }

    /// How far a group is in one queue.
    pub struct OffsetWrapper {
        broker_offset: i64 => "brokerOffset",
        consumer_offset: i64 => "consumerOffset",
        last_timestamp: i64 => "lastTimestamp",
    }

    /// Answer to 317.
    pub struct ConsumeStatsList {
        broker_addr: Option<String> => "brokerAddr",
        /// One map a group.
        consume_stats_list: Vec<BTreeMap<String, Vec<ConsumeStats>>> => "consumeStatsList",
        total_diff: i64 => "totalDiff",
    }

    /// Answer to 315.
    pub struct BrokerStatsData {
        stats_day: BrokerStatsItem => "statsDay",
        stats_hour: BrokerStatsItem => "statsHour",
        stats_minute: BrokerStatsItem => "statsMinute",
    }

    /// One span of a statistic.
    pub struct BrokerStatsItem {
        avgpt: f64 => "avgpt",
        sum: i64 => "sum",
        tps: f64 => "tps",
    }

    /// Answer to 303.
    pub struct ConsumeTimeSpans {
        consume_time_span_set: Vec<QueueTimeSpan> => "consumeTimeSpanSet",
    }

    /// Times of one queue, milliseconds since 1970.
    pub struct QueueTimeSpan {
        consume_time_stamp: i64 => "consumeTimeStamp",
        delay_time: i64 => "delayTime",
        max_time_stamp: i64 => "maxTimeStamp",
        message_queue: Option<MessageQueue> => "messageQueue",
        min_time_stamp: i64 => "minTimeStamp",
    }

    /// Answer to 308.
    pub struct CorrectionOffsets {
        /// Offset by queue.
        correction_offsets: BTreeMap<i32, i64> => "correctionOffsets",
    }

    /// Answer to 300.
    pub struct GroupList {
        group_list: Vec<String> => "groupList",
    }
}
