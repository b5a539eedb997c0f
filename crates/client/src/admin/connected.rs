//! Clients connected to one broker: who they are, what they do, and orders passed on to them.

use std::time::Duration;

use ferromq_protocol::body::{
    ConsumeMessageDirectlyResult, ConsumerRunningInfo, ProducerConnection, ProducerTable, ResetOffsetBody,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{
    ConsumeMessageDirectly, GetConsumerRunningInfo, ProducerGroupHeader, ResetOffset,
};

use super::Admin;
use crate::error::Result;
use crate::link;

/// What the broker passes on to a client takes a call more than others.
const PASSED_ON: Duration = Duration::from_secs(15);

impl Admin {
    /// The connections of a group of producers.
    ///
    /// # Errors
    /// Code 1 if none is connected.
    pub async fn producer_connections(&self, broker: &str, group: &str) -> Result<ProducerConnection> {
        let header = ProducerGroupHeader {
            producer_group: group,
        };
        let request = Command::request(request::GET_PRODUCER_CONNECTION_LIST).with_header(&header);
        self.ask_json(broker, request).await
    }

    /// All producers of a broker by group. Brokers before 4.9.4 do not know the request.
    pub async fn producers(&self, broker: &str) -> Result<ProducerTable> {
        self.ask_json(broker, Command::request(request::GET_ALL_PRODUCER_INFO))
            .await
    }

    /// What a consumer tells of itself, through the broker that it is connected to; with the stacks of its threads on
    /// wish. Waits up to 15 s.
    pub async fn consumer_running_info(
        &self,
        broker: &str,
        group: &str,
        client_id: &str,
        stacks: bool,
    ) -> Result<ConsumerRunningInfo> {
        let header = GetConsumerRunningInfo {
            consumer_group: group,
            client_id,
            jstack_enable: stacks,
        };
        let request = Command::request(request::GET_CONSUMER_RUNNING_INFO).with_header(&header);
        let name = link::name_of(request.code);
        let answer = self.link.ask_within(broker, request, PASSED_ON).await?;
        link::body(broker, name, &answer)
    }

    /// Has a consumer consume one stored message at once, through the broker. Waits up to 15 s.
    pub async fn consume_directly(
        &self,
        broker: &str,
        group: &str,
        client_id: &str,
        offset_id: &str,
        broker_name: Option<&str>,
    ) -> Result<ConsumeMessageDirectlyResult> {
        let header = ConsumeMessageDirectly {
            consumer_group: group,
            client_id: Some(client_id),
            msg_id: Some(offset_id),
            broker_name,
        };
        let request = Command::request(request::CONSUME_MESSAGE_DIRECTLY).with_header(&header);
        let name = link::name_of(request.code);
        let answer = self.link.ask_within(broker, request, PASSED_ON).await?;
        link::body(broker, name, &answer)
    }

    /// Sets a group's offsets of a topic to those of a time (milliseconds since 1970; -1 stands for the end), and tells
    /// the consumers that are connected. Without `force` offsets only go back. Waits up to 15 s.
    ///
    /// # Errors
    /// Code 206 if no consumer of the group is connected.
    pub async fn reset_group_offsets(
        &self,
        broker: &str,
        group: &str,
        topic: &str,
        timestamp: i64,
        force: bool,
    ) -> Result<ResetOffsetBody> {
        let header = ResetOffset {
            topic,
            group,
            timestamp,
            is_force: force,
        };
        let request = Command::request(request::INVOKE_BROKER_TO_RESET_OFFSET).with_header(&header);
        let name = link::name_of(request.code);
        let answer = self.link.ask_within(broker, request, PASSED_ON).await?;
        link::body(broker, name, &answer)
    }
}
