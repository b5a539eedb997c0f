//! Who is connected to a broker.

use std::collections::BTreeMap;

use super::{ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData, bodies};
use crate::command::Language;
use crate::fastjson::optional_enum;

bodies! {
    /// One client's connection.
    pub struct Connection {
        client_addr: String => "clientAddr",
        client_id: String => "clientId",
        language: Language => "language",
        version: i32 => "version",
    }

    /// Answer to 203.
    pub struct ConsumerConnection {
        connection_set: Vec<Connection> => "connectionSet",
        #[serde(deserialize_with = "optional_enum")]
        consume_from_where: Option<ConsumeFromWhere> => "consumeFromWhere",
        #[serde(deserialize_with = "optional_enum")]
        consume_type: Option<ConsumeType> => "consumeType",
        #[serde(deserialize_with = "optional_enum")]
        message_model: Option<MessageModel> => "messageModel",
        subscription_table: BTreeMap<String, SubscriptionData> => "subscriptionTable",
    }

    /// Answer to 204.
    pub struct ProducerConnection {
        connection_set: Vec<Connection> => "connectionSet",
    }

    /// Answer to 38.
    pub struct ConsumerIdList {
        consumer_id_list: Vec<String> => "consumerIdList",
    }

    /// Answer to 328.
    pub struct ProducerTable {
        /// Producers by group.
        data: BTreeMap<String, Vec<ProducerInfo>> => "data",
    }

    /// One producer of [`ProducerTable`].
    pub struct ProducerInfo {
        client_id: String => "clientId",
        language: Language => "language",
        last_update_timestamp: i64 => "lastUpdateTimestamp",
        remote_ip: String => "remoteIP",
        version: i32 => "version",
    }
}
