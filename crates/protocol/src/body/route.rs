//! Routes and clusters, as name servers tell them.

use std::collections::BTreeMap;

use super::bodies;

bodies! {
    /// Answer to 105.
    pub struct TopicRouteData {
        broker_datas: Vec<BrokerData> => "brokerDatas",
        /// Filter servers by broker address.
        filter_server_table: BTreeMap<String, Vec<String>> => "filterServerTable",
        /// `name:count;name:count`; absent unless the topic is globally ordered.
        order_topic_conf: Option<String> => "orderTopicConf",
        queue_datas: Vec<QueueData> => "queueDatas",
    }

    /// One broker group.
    pub struct BrokerData {
        /// Addresses by broker id; 0 is the master.
        broker_addrs: BTreeMap<i64, String> => "brokerAddrs",
        broker_name: String => "brokerName",
        cluster: String => "cluster",
    }

    /// A topic's queues at one broker group.
    pub struct QueueData {
        broker_name: String => "brokerName",
        /// Bits of [`crate::perm`].
        perm: i32 => "perm",
        read_queue_nums: i32 => "readQueueNums",
        topic_sys_flag: i32 => "topicSysFlag",
        write_queue_nums: i32 => "writeQueueNums",
    }

    /// Answer to 106.
    pub struct ClusterInfo {
        broker_addr_table: BTreeMap<String, BrokerData> => "brokerAddrTable",
        /// Broker names by cluster.
        cluster_addr_table: BTreeMap<String, Vec<String>> => "clusterAddrTable",
    }
}

impl BrokerData {
    /// The address to ask: the master's, else that of the slave with the lowest id.
    pub fn select_address(&self) -> Option<&str> {
        self.broker_addrs.values().next().map(String::as_str)
    }
}
