//! Messages by id and by key.

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{QueryMessage, ViewMessage};
use ferromq_protocol::message_id;

use super::Admin;
use crate::error::{ClientError, Result};
use crate::link;
use crate::received::{self, ReceivedMessage};

/// A question for messages by key.
#[derive(Debug, Clone)]
pub struct KeyQuery<'a> {
    /// The topic.
    pub topic: &'a str,
    /// A key (property `KEYS`) or, with `unique`, a unique message id.
    pub key: &'a str,
    /// At most so many messages. Default 64.
    pub max: i32,
    /// Stored at or after this time, milliseconds since 1970. Default 0.
    pub begin: i64,
    /// Stored at or before this time, milliseconds since 1970. Default: no limit.
    pub end: i64,
    /// The key is a unique message id. Default false.
    pub unique: bool,
}

impl<'a> KeyQuery<'a> {
    /// Up to 64 messages of any time.
    pub fn new(topic: &'a str, key: &'a str) -> Self {
        Self {
            topic,
            key,
            max: 64,
            begin: 0,
            end: i64::MAX,
            unique: false,
        }
    }
}

impl Admin {
    /// The message at a physical offset of a broker's log.
    ///
    /// # Errors
    /// Code 1 if there is none.
    pub async fn view_message(&self, broker: &str, physical: i64) -> Result<ReceivedMessage> {
        let request =
            Command::request(request::VIEW_MESSAGE_BY_ID).with_header(&ViewMessage { offset: physical });
        let name = link::name_of(request.code);
        let answer = self.link.ask(broker, request).await?;
        let mut messages =
            received::parse_all(&answer.body, None).map_err(|error| link::bad_answer(broker, name, error))?;
        messages
            .pop()
            .ok_or_else(|| link::bad_answer(broker, name, "it holds no message"))
    }

    /// The message with an offset id, which holds the address of the broker that stored it.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] if the text is no offset id, code 1 if the message is not there.
    pub async fn message_by_id(&self, offset_id: &str) -> Result<ReceivedMessage> {
        let Some((host, physical)) = message_id::parse_offset_id(offset_id) else {
            let reason = format!(
                "{offset_id:?} is no offset id, which has 32 or 56 hexadecimal digits and holds a broker's address; \
                 a unique id is looked up by key within its topic"
            );
            return Err(ClientError::InvalidArgument { reason });
        };
        self.view_message(&host.to_string(), physical).await
    }

    /// A broker's messages with a key; empty if there are none.
    pub async fn query_by_key(&self, broker: &str, query: &KeyQuery<'_>) -> Result<Vec<ReceivedMessage>> {
        let header = QueryMessage {
            topic: query.topic,
            key: query.key,
            max_num: query.max,
            begin_timestamp: query.begin,
            end_timestamp: query.end,
            unique_key: query.unique,
        };
        let request = Command::request(request::QUERY_MESSAGE).with_header(&header);
        let name = link::name_of(request.code);
        match self.link.ask(broker, request).await {
            Ok(answer) => {
                received::parse_all(&answer.body, None).map_err(|error| link::bad_answer(broker, name, error))
            }
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
