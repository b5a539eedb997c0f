//! Administration of brokers.

use super::headers;

headers! {
    /// Response to 26.
    pub struct BrokerConfigResponse<'a> {
        /// A DataVersion in JSON.
        version: &'a str => "version",
    }

    /// Request 207.
    pub struct DeleteSubscriptionGroup<'a> {
        group_name: &'a str => "groupName",
        remove_offset: bool => "removeOffset" = false,
    }

    /// Request 208.
    pub struct GetConsumeStats<'a> {
        consumer_group: &'a str => "consumerGroup",
        topic: Option<&'a str> => "topic",
    }

    /// Request 301.
    pub struct RegisterFilterServer<'a> {
        filter_server_addr: &'a str => "filterServerAddr",
    }

    /// Response to 301.
    pub struct RegisterFilterServerResponse<'a> {
        broker_name: &'a str => "brokerName",
        broker_id: i64 => "brokerId",
    }

    /// Request 302.
    pub struct RegisterFilterClass<'a> {
        consumer_group: &'a str => "consumerGroup",
        topic: &'a str => "topic",
        class_name: &'a str => "className",
        /// CRC-32 of the source that is the body.
        class_crc: i32 => "classCRC",
    }

    /// Request 308.
    pub struct QueryCorrectionOffset<'a> {
        /// Groups joined by commas.
        filter_groups: Option<&'a str> => "filterGroups",
        compare_group: &'a str => "compareGroup",
        topic: &'a str => "topic",
    }

    /// Request 314.
    pub struct CloneGroupOffset<'a> {
        src_group: &'a str => "srcGroup",
        dest_group: &'a str => "destGroup",
        topic: Option<&'a str> => "topic",
        offline: bool => "offline" = false,
    }

    /// Request 315.
    pub struct ViewBrokerStats<'a> {
        stats_name: &'a str => "statsName",
        stats_key: &'a str => "statsKey",
    }

    /// Request 317.
    pub struct GetBrokerConsumeStats {
        is_order: bool => "isOrder",
    }

    /// Request 321.
    pub struct QueryConsumeQueue<'a> {
        topic: &'a str => "topic",
        queue_id: i32 => "queueId",
        /// The first wanted unit.
        index: i64 => "index",
        count: i32 => "count",
        consumer_group: Option<&'a str> => "consumerGroup",
    }
}
