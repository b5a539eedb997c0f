//! Receiving by asking: queues, pulls, offsets.
//!
//! The caller says which queue and from where; nothing is stored unless it calls [`PullConsumer::commit`]. A pull of
//! a queue without new messages is held by the broker until one comes or the time is over.

use std::sync::Arc;
use std::time::Duration;

use crate::MessageQueue;
use crate::admin::Admin;
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::fetch::{Ask, Fetcher};
use crate::filter::Filter;
use crate::received::ReceivedMessage;

/// What to ask a queue for.
#[derive(Debug, Clone)]
pub struct PullRequest {
    /// At most so many messages; the broker caps it as well. Default 32.
    pub max: i32,
    /// How long the broker may wait for a message; zero asks for what is there. Default 15 s.
    pub hold: Duration,
    /// What is wanted. Default everything.
    pub filter: Filter,
}

impl Default for PullRequest {
    fn default() -> Self {
        Self {
            max: 32,
            hold: Duration::from_secs(15),
            filter: Filter::All,
        }
    }
}

impl PullRequest {
    /// Asks for at most so many messages.
    pub fn new(max: i32) -> Self {
        Self {
            max,
            ..Self::default()
        }
    }

    /// Sets how long the broker may wait for a message.
    #[must_use]
    pub fn with_hold(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }

    /// Sets the tags that are wanted, `A || B`, or `*` for everything.
    #[must_use]
    pub fn with_tags(self, tags: impl AsRef<str>) -> Self {
        self.with_filter(Filter::tags(tags.as_ref()))
    }

    /// Sets what is wanted.
    #[must_use]
    pub fn with_filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }
}

/// How a pull ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PullStatus {
    /// There are messages.
    Found,
    /// Nothing new came in time.
    NoNewMessage,
    /// There are messages but none with these tags among those looked at.
    NoMatch,
    /// The offset was outside the queue; go on at [`Pulled::next_offset`].
    OffsetMoved,
}

/// A broker's answer to a pull.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Pulled {
    /// How it ended.
    pub status: PullStatus,
    /// The messages; empty unless found.
    pub messages: Vec<ReceivedMessage>,
    /// Where to pull next.
    pub next_offset: i64,
    /// First offset of the queue.
    pub min_offset: i64,
    /// One past the last offset of the queue.
    pub max_offset: i64,
}

/// Pulls messages for a consumer group. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PullConsumer {
    fetcher: Fetcher,
    group: Arc<str>,
}

impl PullConsumer {
    pub(crate) fn new(client: Client, group: &str) -> Self {
        let group = client.inner().namespace.group(group);
        Self {
            fetcher: Fetcher::new(client),
            group: group.into(),
        }
    }

    /// The group, by its name on the wire.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The queues of a topic that can be read.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if the topic is unknown, [`ClientError::NoQueue`] if it may not be read.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>> {
        let client = self.fetcher.client().inner();
        let route = client.routes.get(&client.namespace.topic(topic)).await?;
        if route.subscribe.is_empty() {
            return Err(ClientError::NoQueue {
                topic: topic.to_owned(),
                need: "readable",
            });
        }
        Ok(route.subscribe.clone())
    }

    /// Asks a queue for messages from an offset on. Dropping the future loses no message: nothing is committed.
    pub async fn pull(&self, queue: &MessageQueue, offset: i64, ask: &PullRequest) -> Result<Pulled> {
        let ask = Ask {
            group: &self.group,
            queue,
            offset,
            max: ask.max,
            hold: ask.hold,
            filter: &ask.filter,
            tell_filter: true,
            sub_version: 0,
            commit: None,
        };
        self.fetcher.pull(&ask).await
    }

    /// The group's stored offset of a queue: the next to consume. `None` if nothing is stored.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<i64>> {
        let address = self.fetcher.master(queue).await?;
        self.admin()
            .group_offset(&address, &self.group, &queue.topic, queue.queue_id)
            .await
    }

    /// Stores the group's offset of a queue, the next to consume, and waits for the broker's word.
    pub async fn commit(&self, queue: &MessageQueue, offset: i64) -> Result<()> {
        let address = self.fetcher.master(queue).await?;
        self.admin()
            .set_group_offset(&address, &self.group, &queue.topic, queue.queue_id, offset)
            .await
    }

    /// First offset of a queue.
    pub async fn min_offset(&self, queue: &MessageQueue) -> Result<i64> {
        let address = self.fetcher.master(queue).await?;
        self.admin()
            .min_offset(&address, &queue.topic, queue.queue_id)
            .await
    }

    /// One past the last offset of a queue.
    pub async fn max_offset(&self, queue: &MessageQueue) -> Result<i64> {
        let address = self.fetcher.master(queue).await?;
        self.admin()
            .max_offset(&address, &queue.topic, queue.queue_id)
            .await
    }

    /// The offset of the message stored nearest to a time, in milliseconds since 1970.
    pub async fn offset_by_time(&self, queue: &MessageQueue, timestamp: i64) -> Result<i64> {
        let address = self.fetcher.master(queue).await?;
        self.admin()
            .offset_by_time(&address, &queue.topic, queue.queue_id, timestamp)
            .await
    }

    fn admin(&self) -> Admin {
        self.fetcher.client().admin()
    }
}
