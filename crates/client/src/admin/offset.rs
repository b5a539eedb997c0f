//! Places in the queues of one broker.

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{
    EncodeHeader, OffsetResponse, QueryConsumerOffset, QueueHeader, SearchOffset, TimestampResponse,
    UpdateConsumerOffset,
};

use super::Admin;
use crate::error::Result;
use crate::link;

impl Admin {
    /// One past the last message of a queue.
    pub async fn max_offset(&self, broker: &str, topic: &str, queue_id: i32) -> Result<i64> {
        self.ask_offset(broker, request::GET_MAX_OFFSET, &QueueHeader { topic, queue_id })
            .await
    }

    /// The first message of a queue that is still there.
    pub async fn min_offset(&self, broker: &str, topic: &str, queue_id: i32) -> Result<i64> {
        self.ask_offset(broker, request::GET_MIN_OFFSET, &QueueHeader { topic, queue_id })
            .await
    }

    /// The message stored nearest to a time, in milliseconds since 1970.
    pub async fn offset_by_time(
        &self,
        broker: &str,
        topic: &str,
        queue_id: i32,
        timestamp: i64,
    ) -> Result<i64> {
        let header = SearchOffset {
            topic,
            queue_id,
            timestamp,
        };
        self.ask_offset(broker, request::SEARCH_OFFSET_BY_TIMESTAMP, &header)
            .await
    }

    /// When the first message of a queue was stored, in milliseconds since 1970; below 0 if there is none.
    pub async fn earliest_store_time(&self, broker: &str, topic: &str, queue_id: i32) -> Result<i64> {
        let request = Command::request(request::GET_EARLIEST_MSG_STORETIME)
            .with_header(&QueueHeader { topic, queue_id });
        let name = link::name_of(request.code);
        let answer = self.link.ask(broker, request).await?;
        let header = answer.header::<TimestampResponse>();
        Ok(header
            .map_err(|error| link::bad_answer(broker, name, error))?
            .timestamp)
    }

    /// The next offset that a group will consume from a queue; `None` if nothing is stored.
    pub async fn group_offset(
        &self,
        broker: &str,
        group: &str,
        topic: &str,
        queue_id: i32,
    ) -> Result<Option<i64>> {
        let header = QueryConsumerOffset {
            consumer_group: group,
            topic,
            queue_id,
        };
        match self
            .ask_offset(broker, request::QUERY_CONSUMER_OFFSET, &header)
            .await
        {
            Ok(offset) => Ok(Some(offset)),
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores a group's next offset of a queue.
    pub async fn set_group_offset(
        &self,
        broker: &str,
        group: &str,
        topic: &str,
        queue_id: i32,
        offset: i64,
    ) -> Result<()> {
        let header = UpdateConsumerOffset {
            consumer_group: group,
            topic,
            queue_id,
            commit_offset: offset,
        };
        self.tell(
            broker,
            Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&header),
        )
        .await
    }

    async fn ask_offset(&self, broker: &str, code: i32, header: &impl EncodeHeader) -> Result<i64> {
        let name = link::name_of(code);
        let answer = self
            .link
            .ask(broker, Command::request(code).with_header(header))
            .await?;
        let header = answer.header::<OffsetResponse>();
        Ok(header
            .map_err(|error| link::bad_answer(broker, name, error))?
            .offset)
    }
}
