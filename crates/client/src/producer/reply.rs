//! Requests and replies over topics: a message asks, the consumer that gets it answers to the asking client.
//!
//! The request carries an id (`CORRELATION_ID`), the asker's client id (`REPLY_TO_CLIENT`) and how long it waits
//! (`TTL`). The answer is a message of type `reply` to the cluster's reply topic, whose broker pushes it to the asker
//! instead of storing it (or stores it, if the asker is gone).

use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::names::reply_topic;
use ferromq_protocol::properties::names;

use super::Producer;
use crate::config::random;
use crate::error::{ClientError, Result};
use crate::message::Message;
use crate::received::ReceivedMessage;

/// The type of an answer.
pub(super) const REPLY: &str = "reply";

impl Message {
    /// The answer to a request that was received.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] if the message is no request.
    pub fn reply_to(request: &ReceivedMessage, body: impl Into<Bytes>) -> Result<Self> {
        let need = |name: &str| {
            request
                .property(name)
                .ok_or_else(|| ClientError::InvalidArgument {
                    reason: format!(
                        "message {} is no request: it has no property {name}",
                        request.message_id()
                    ),
                })
        };
        let cluster = need(names::CLUSTER)?;
        let reply = Self::new(reply_topic(cluster), body)
            .property(names::MSG_TYPE, REPLY)
            .property(names::CORRELATION_ID, need(names::CORRELATION_ID)?)
            .property(names::REPLY_TO_CLIENT, need(names::REPLY_TO_CLIENT)?);
        Ok(match request.property(names::TTL) {
            Some(ttl) => reply.property(names::TTL, ttl),
            None => reply,
        })
    }
}

/// Takes the id off the list of those waited for, however the wait ends.
struct Waiting<'a>(&'a Producer, &'a str);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.inner.client.inner().callbacks.give_up_reply(self.1);
    }
}

impl Producer {
    /// Sends a message and waits for the answer that its consumer sends with [`Message::reply_to`]. `timeout` is for
    /// both ways together. Dropping the future gives the wait up; the request may be dealt with all the same.
    ///
    /// # Errors
    /// As [`Producer::send`]; [`ClientError::TimedOut`] when no answer came in time.
    pub async fn request(&self, message: Message, timeout: Duration) -> Result<ReceivedMessage> {
        let client = &self.inner.client;
        let id = format!("{:016x}-{:016x}", random(), random());
        let ttl = timeout.as_millis().max(1).to_string();
        let topic = client.inner().namespace.topic(&message.topic);
        let asked = message
            .property(names::CORRELATION_ID, &id)
            .property(names::REPLY_TO_CLIENT, client.id())
            .property(names::TTL, ttl);
        let expected = client.inner().callbacks.expect_reply(&id);
        let _waiting = Waiting(self, &id);
        let work = async {
            // The brokers must know this client to push the answer to it.
            self.route(&topic).await?;
            client.beat().await;
            self.send(asked).await?;
            expected.await.map_err(|_| ClientError::Closed)
        };
        let late = || ClientError::TimedOut {
            address: format!("the consumer of topic {topic:?}"),
            request: "a request message",
            after: timeout,
        };
        tokio::time::timeout(timeout, work)
            .await
            .unwrap_or_else(|_| Err(late()))
    }
}
