//! Tables of topics, groups and offsets that brokers keep and exchange.

use std::collections::BTreeMap;

use super::{bodies, java_enum};
use crate::fastjson::optional_enum;

java_enum! {
    /// Whether a topic's messages have one tag each.
    pub enum TopicFilterType {
        /// One.
        SingleTag = "SINGLE_TAG",
        /// Several.
        MultiTag = "MULTI_TAG",
    }
}

bodies! {
    /// Tells states of a table apart; equal only if both numbers are equal.
    #[derive(Copy, Eq)]
    pub struct DataVersion {
        /// Changes since the broker started.
        counter: i64 => "counter",
        /// Time of the last change, milliseconds since 1970.
        timestamp: i64 => "timestamp",
    }

    /// Settings of a topic at a broker.
    #[derive(Eq)]
    pub struct TopicConfig {
        order: bool => "order",
        /// Bits of [`crate::perm`]; default read and write.
        perm: i32 => "perm" = 6,
        read_queue_nums: i32 => "readQueueNums" = 16,
        #[serde(deserialize_with = "optional_enum")]
        topic_filter_type: Option<TopicFilterType> => "topicFilterType" = Some(TopicFilterType::SingleTag),
        topic_name: String => "topicName",
        /// Bit 0 unit, bit 1 unit subscription.
        topic_sys_flag: i32 => "topicSysFlag",
        write_queue_nums: i32 => "writeQueueNums" = 16,
    }

    /// Answer to 21, part of 103, and the file topics.json.
    pub struct TopicConfigTable {
        data_version: DataVersion => "dataVersion",
        topic_config_table: BTreeMap<String, TopicConfig> => "topicConfigTable",
    }

    /// Settings of a consumer group at a broker.
    #[derive(Eq)]
    pub struct SubscriptionGroupConfig {
        /// The broker id to read from, 0 the master.
        broker_id: i64 => "brokerId",
        consume_broadcast_enable: bool => "consumeBroadcastEnable" = true,
        consume_enable: bool => "consumeEnable" = true,
        consume_from_min_enable: bool => "consumeFromMinEnable" = true,
        group_name: String => "groupName",
        notify_consumer_ids_changed_enable: bool => "notifyConsumerIdsChangedEnable" = true,
        /// Tries before a message becomes a dead letter, default 16.
        retry_max_times: i32 => "retryMaxTimes" = 16,
        retry_queue_nums: i32 => "retryQueueNums" = 1,
        /// The broker id to read from when far behind, default 1.
        which_broker_when_consume_slowly: i64 => "whichBrokerWhenConsumeSlowly" = 1,
    }

    /// Answer to 201 and the file subscriptionGroup.json.
    pub struct SubscriptionGroupTable {
        data_version: DataVersion => "dataVersion",
        subscription_group_table: BTreeMap<String, SubscriptionGroupConfig> => "subscriptionGroupTable",
    }

    /// Answer to 43 and the files consumerOffset.json and, with light queues, lmqConsumerOffset.json.
    pub struct ConsumerOffsetTable {
        /// Offset by `topic@group` of groups of light queues, which have one queue a topic. Absent where there are none.
        #[serde(skip_serializing_if = "Option::is_none")]
        lmq_offset_table: Option<BTreeMap<String, i64>> => "lmqOffsetTable",
        /// Offset by queue, by `topic@group`.
        offset_table: BTreeMap<String, BTreeMap<i32, i64>> => "offsetTable",
    }

    /// Answer to 45 and the file delayOffset.json.
    pub struct DelayOffsetTable {
        /// The next queue offset to deliver, by delay level.
        offset_table: BTreeMap<i32, i64> => "offsetTable",
    }

    /// A flat table of texts: answers to 28, 103 and 219.
    pub struct KvTable {
        table: BTreeMap<String, String> => "table",
    }

    /// Several answers of name servers, and the broker's to 305.
    pub struct TopicList {
        broker_addr: Option<String> => "brokerAddr",
        topic_list: Vec<String> => "topicList",
    }

    /// The name server's file of key-value configuration.
    pub struct KvConfigFile {
        /// Values by key, by namespace.
        config_table: BTreeMap<String, BTreeMap<String, String>> => "configTable",
    }
}

impl DataVersion {
    /// The version after one more change at `now` (milliseconds since 1970).
    #[must_use]
    pub fn next(self, now: i64) -> Self {
        Self {
            counter: self.counter.wrapping_add(1),
            timestamp: now,
        }
    }
}

impl TopicConfig {
    /// A topic with these queues and permission bits, otherwise default.
    pub fn new(name: impl Into<String>, read_queues: i32, write_queues: i32, perm: i32) -> Self {
        Self {
            topic_name: name.into(),
            read_queue_nums: read_queues,
            write_queue_nums: write_queues,
            perm,
            ..Self::default()
        }
    }

    /// True if the topic is marked as having several tags a message.
    pub fn is_multi_tag(&self) -> bool {
        self.topic_filter_type == Some(TopicFilterType::MultiTag)
    }
}

impl SubscriptionGroupConfig {
    /// A group with default settings.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            group_name: name.into(),
            ..Self::default()
        }
    }
}
