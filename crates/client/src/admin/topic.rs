//! Topics of one broker.

use ferromq_protocol::body::{TopicConfig, TopicConfigTable, TopicFilterType, TopicStatsTable};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{CreateTopic, TopicHeader};
use ferromq_protocol::names::topics;

use super::Admin;
use crate::error::Result;

impl Admin {
    /// Creates a topic on a broker, or changes it to be as given. The broker tells the name servers.
    ///
    /// # Errors
    /// Code 1 if the name is not allowed or the system's own.
    pub async fn create_topic(&self, broker: &str, topic: &TopicConfig) -> Result<()> {
        let header = CreateTopic {
            topic: &topic.topic_name,
            default_topic: topics::AUTO_CREATE,
            read_queue_nums: topic.read_queue_nums,
            write_queue_nums: topic.write_queue_nums,
            perm: topic.perm,
            topic_filter_type: topic
                .topic_filter_type
                .unwrap_or(TopicFilterType::SingleTag)
                .name(),
            topic_sys_flag: Some(topic.topic_sys_flag),
            order: topic.order,
        };
        self.tell(
            broker,
            Command::request(request::UPDATE_AND_CREATE_TOPIC).with_header(&header),
        )
        .await
    }

    /// All topics of a broker and the version of that table.
    pub async fn topics(&self, broker: &str) -> Result<TopicConfigTable> {
        self.ask_json(broker, Command::request(request::GET_ALL_TOPIC_CONFIG))
            .await
    }

    /// Deletes a topic and its messages from a broker. The name servers must be told besides, see
    /// [`Admin::delete_topic_in_name_server`].
    pub async fn delete_topic_in_broker(&self, broker: &str, topic: &str) -> Result<()> {
        let request = Command::request(request::DELETE_TOPIC_IN_BROKER).with_header(&TopicHeader { topic });
        self.tell(broker, request).await
    }

    /// Offsets of each of the topic's queues on a broker.
    ///
    /// # Errors
    /// Code 17 if the broker does not have the topic.
    pub async fn topic_stats(&self, broker: &str, topic: &str) -> Result<TopicStatsTable> {
        let request = Command::request(request::GET_TOPIC_STATS_INFO).with_header(&TopicHeader { topic });
        self.ask_json(broker, request).await
    }
}
