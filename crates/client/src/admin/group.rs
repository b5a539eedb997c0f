//! Consumer groups of one broker.

use ferromq_protocol::body::{
    ConsumeStats, ConsumerConnection, ConsumerIdList, GroupList, SubscriptionGroupConfig,
    SubscriptionGroupTable,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{
    CloneGroupOffset, ConsumerGroupHeader, DeleteSubscriptionGroup, GetConsumeStats, TopicHeader,
};

use super::Admin;
use crate::error::Result;

impl Admin {
    /// Creates a consumer group on a broker, or changes it to be as given.
    pub async fn upsert_group(&self, broker: &str, group: &SubscriptionGroupConfig) -> Result<()> {
        let request =
            Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP).with_body(fastjson::to_vec(group));
        self.tell(broker, request).await
    }

    /// All consumer groups of a broker and the version of that table.
    pub async fn groups(&self, broker: &str) -> Result<SubscriptionGroupTable> {
        self.ask_json(
            broker,
            Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
        )
        .await
    }

    /// Deletes a consumer group from a broker, on wish with its offsets.
    pub async fn delete_group(&self, broker: &str, group: &str, remove_offset: bool) -> Result<()> {
        let request =
            Command::request(request::DELETE_SUBSCRIPTIONGROUP).with_header(&DeleteSubscriptionGroup {
                group_name: group,
                remove_offset,
            });
        self.tell(broker, request).await
    }

    /// How far a group has come in each queue of a broker, of one topic or of all that it consumes.
    pub async fn consume_stats(
        &self,
        broker: &str,
        group: &str,
        topic: Option<&str>,
    ) -> Result<ConsumeStats> {
        let request = Command::request(request::GET_CONSUME_STATS).with_header(&GetConsumeStats {
            consumer_group: group,
            topic,
        });
        self.ask_json(broker, request).await
    }

    /// The group's consumers connected to a broker and what they subscribe to.
    ///
    /// # Errors
    /// Code 206 if none is connected.
    pub async fn consumer_connections(&self, broker: &str, group: &str) -> Result<ConsumerConnection> {
        let request =
            Command::request(request::GET_CONSUMER_CONNECTION_LIST).with_header(&ConsumerGroupHeader {
                consumer_group: group,
            });
        self.ask_json(broker, request).await
    }

    /// Copies a group's offsets to another group, of one topic or of all. Offsets that the other group has are overwritten.
    pub async fn clone_group_offsets(
        &self,
        broker: &str,
        from: &str,
        to: &str,
        topic: Option<&str>,
        offline: bool,
    ) -> Result<()> {
        let header = CloneGroupOffset {
            src_group: from,
            dest_group: to,
            topic,
            offline,
        };
        self.tell(
            broker,
            Command::request(request::CLONE_GROUP_OFFSET).with_header(&header),
        )
        .await
    }

    /// The client ids of the group's members that a broker knows, sorted.
    ///
    /// # Errors
    /// Code 1 if there is none.
    pub async fn group_members(&self, broker: &str, group: &str) -> Result<Vec<String>> {
        let request =
            Command::request(request::GET_CONSUMER_LIST_BY_GROUP).with_header(&ConsumerGroupHeader {
                consumer_group: group,
            });
        let list: ConsumerIdList = self.ask_json(broker, request).await?;
        let mut members = list.consumer_id_list;
        members.sort();
        Ok(members)
    }

    /// Groups that consume a topic on a broker: those connected and those with offsets stored.
    pub async fn groups_of_topic(&self, broker: &str, topic: &str) -> Result<Vec<String>> {
        let request =
            Command::request(request::QUERY_TOPIC_CONSUME_BY_WHO).with_header(&TopicHeader { topic });
        let list: GroupList = self.ask_json(broker, request).await?;
        let mut groups: Vec<String> = list.group_list.into_iter().collect();
        groups.sort();
        Ok(groups)
    }
}
