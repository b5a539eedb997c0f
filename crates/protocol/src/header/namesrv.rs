//! The name server's requests (100 to 105, 205, 216, 219, 224, 322, 327).

use super::headers;

headers! {
    /// Request 100.
    pub struct PutKvConfig<'a> {
        namespace: &'a str => "namespace",
        key: &'a str => "key",
        value: &'a str => "value",
    }

    /// Requests 101 and 102.
    pub struct KvKey<'a> {
        namespace: &'a str => "namespace",
        key: &'a str => "key",
    }

    /// Response to 101.
    pub struct GetKvConfigResponse<'a> {
        value: Option<&'a str> => "value",
    }

    /// Request 219.
    pub struct KvNamespace<'a> {
        namespace: &'a str => "namespace",
    }

    /// Request 103.
    pub struct RegisterBroker<'a> {
        broker_name: &'a str => "brokerName",
        broker_addr: &'a str => "brokerAddr",
        cluster_name: &'a str => "clusterName",
        ha_server_addr: &'a str => "haServerAddr",
        /// 0 is the master.
        broker_id: i64 => "brokerId",
        compressed: bool => "compressed" = false,
        /// See [`crate::crc`]; 0 means unchecked.
        body_crc32: i32 => "bodyCrc32" = 0,
    }

    /// Response to 103.
    pub struct RegisterBrokerResponse<'a> {
        ha_server_addr: Option<&'a str> => "haServerAddr",
        master_addr: Option<&'a str> => "masterAddr",
    }

    /// Requests 104 and 322.
    pub struct BrokerIdentity<'a> {
        broker_name: &'a str => "brokerName",
        broker_addr: &'a str => "brokerAddr",
        cluster_name: &'a str => "clusterName",
        /// 0 is the master.
        broker_id: i64 => "brokerId",
    }

    /// Response to 322.
    pub struct QueryDataVersionResponse {
        changed: bool => "changed",
    }

    /// Request 105.
    pub struct GetRouteInfo<'a> {
        topic: &'a str => "topic",
        accept_standard_json_only: bool => "acceptStandardJsonOnly" = false,
    }

    /// Requests 205 and 327.
    pub struct BrokerNameHeader<'a> {
        broker_name: &'a str => "brokerName",
    }

    /// Response to 205.
    pub struct WipeWritePermResponse {
        wipe_topic_count: i32 => "wipeTopicCount",
    }

    /// Response to 327.
    pub struct AddWritePermResponse {
        add_topic_count: i32 => "addTopicCount",
    }

    /// Request 216.
    pub struct DeleteTopicInNamesrv<'a> {
        topic: &'a str => "topic",
        cluster_name: Option<&'a str> => "clusterName",
    }

    /// Request 224.
    pub struct ClusterHeader<'a> {
        cluster: &'a str => "cluster",
    }
}
