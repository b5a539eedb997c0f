//! Receiving by asking: queues, pulls, offsets.
//!
//! The caller says which queue and from where; nothing is stored unless it calls [`PullConsumer::commit`]. A pull of
//! a queue without new messages is held by the broker until one comes or the time is over.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{PullMessage, PullMessageResponse};
use ferromq_protocol::sysflag::pull as flags;
use parking_lot::Mutex;

use crate::MessageQueue;
use crate::admin::Admin;
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::link;
use crate::received::{self, ReceivedMessage};
use crate::route::Route;

/// Time for the answer beyond the time that the broker may hold a pull.
const BEYOND_HOLD: Duration = Duration::from_secs(5);

/// What to ask a queue for.
#[derive(Debug, Clone)]
pub struct PullRequest {
    /// At most so many messages; the broker caps it as well. Default 32.
    pub max: i32,
    /// How long the broker may wait for a message; zero asks for what is there. Default 15 s.
    pub hold: Duration,
    /// Tags to receive, `A || B`, or `*` for all. Default `*`.
    pub tags: String,
}

impl Default for PullRequest {
    fn default() -> Self {
        Self {
            max: 32,
            hold: Duration::from_secs(15),
            tags: "*".into(),
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

    /// Sets the tags to receive.
    #[must_use]
    pub fn with_tags(mut self, tags: impl Into<String>) -> Self {
        self.tags = tags.into();
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
    client: Client,
    group: Arc<str>,
    /// The broker id that each queue is to be read from, where it is not the master.
    readers: Arc<Mutex<std::collections::HashMap<MessageQueue, i64>>>,
}

impl PullConsumer {
    pub(crate) fn new(client: Client, group: String) -> Self {
        Self {
            client,
            group: group.into(),
            readers: Arc::default(),
        }
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The queues of a topic that can be read.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if the topic is unknown, [`ClientError::NoQueue`] if it may not be read.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>> {
        let route = self.route(topic).await?;
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
        let route = self.route(&queue.topic).await?;
        let reader = self.readers.lock().get(queue).copied().unwrap_or(0);
        let address = route
            .reader(&queue.broker_name, reader)
            .ok_or_else(|| unknown(queue))?;
        let suspend = if ask.hold.is_zero() { 0 } else { flags::SUSPEND };
        let header = PullMessage {
            consumer_group: &self.group,
            topic: &queue.topic,
            queue_id: queue.queue_id,
            queue_offset: offset,
            max_msg_nums: ask.max,
            sys_flag: flags::SUBSCRIPTION | suspend,
            commit_offset: 0,
            suspend_timeout_millis: i64::try_from(ask.hold.as_millis()).unwrap_or(i64::MAX),
            subscription: Some(&ask.tags),
            sub_version: 0,
            expression_type: Some("TAG"),
        };
        let request = Command::request(request::PULL_MESSAGE).with_header(&header);
        let name = link::name_of(request.code);
        let link = &self.client.inner().link;
        let answer = link
            .call(address, request, ask.hold + BEYOND_HOLD.max(link.call_timeout()))
            .await?;
        let status = match answer.code {
            response::SUCCESS => PullStatus::Found,
            response::PULL_NOT_FOUND => PullStatus::NoNewMessage,
            response::PULL_RETRY_IMMEDIATELY => PullStatus::NoMatch,
            response::PULL_OFFSET_MOVED => PullStatus::OffsetMoved,
            _ => return Err(link::refusal(address, name, answer)),
        };
        let header: PullMessageResponse = answer
            .header()
            .map_err(|error| link::bad_answer(address, name, error))?;
        self.remember_reader(queue, header.suggest_which_broker_id);
        let mut messages = match status {
            PullStatus::Found => received::parse_all(&answer.body, Some(&Arc::from(queue.topic.as_str())))
                .map_err(|error| link::bad_answer(address, name, error))?,
            _ => Vec::new(),
        };
        // The broker compares hashes of tags, which different tags can share.
        if ask.tags != "*" && !ask.tags.is_empty() {
            let wanted: Vec<&str> = ask.tags.split("||").map(str::trim).collect();
            messages.retain(|message| message.tag().is_some_and(|tag| wanted.contains(&tag)));
        }
        Ok(Pulled {
            status,
            messages,
            next_offset: header.next_begin_offset,
            min_offset: header.min_offset,
            max_offset: header.max_offset,
        })
    }

    /// The group's stored offset of a queue: the next to consume. `None` if nothing is stored.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<i64>> {
        let address = self.master(queue).await?;
        self.admin()
            .group_offset(&address, &self.group, &queue.topic, queue.queue_id)
            .await
    }

    /// Stores the group's offset of a queue, the next to consume, and waits for the broker's word.
    pub async fn commit(&self, queue: &MessageQueue, offset: i64) -> Result<()> {
        let address = self.master(queue).await?;
        self.admin()
            .set_group_offset(&address, &self.group, &queue.topic, queue.queue_id, offset)
            .await
    }

    /// First offset of a queue.
    pub async fn min_offset(&self, queue: &MessageQueue) -> Result<i64> {
        let address = self.master(queue).await?;
        self.admin()
            .min_offset(&address, &queue.topic, queue.queue_id)
            .await
    }

    /// One past the last offset of a queue.
    pub async fn max_offset(&self, queue: &MessageQueue) -> Result<i64> {
        let address = self.master(queue).await?;
        self.admin()
            .max_offset(&address, &queue.topic, queue.queue_id)
            .await
    }

    /// The offset of the message stored nearest to a time, in milliseconds since 1970.
    pub async fn offset_by_time(&self, queue: &MessageQueue, timestamp: i64) -> Result<i64> {
        let address = self.master(queue).await?;
        self.admin()
            .offset_by_time(&address, &queue.topic, queue.queue_id, timestamp)
            .await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    fn admin(&self) -> Admin {
        self.client.admin()
    }

    async fn route(&self, topic: &str) -> Result<Arc<Route>> {
        self.client.inner().routes.get(topic).await
    }

    /// The master's address, else that of any broker of the group: slaves answer questions about offsets too.
    async fn master(&self, queue: &MessageQueue) -> Result<String> {
        let route = self.route(&queue.topic).await?;
        route
            .reader(&queue.broker_name, 0)
            .map(str::to_owned)
            .ok_or_else(|| unknown(queue))
    }

    fn remember_reader(&self, queue: &MessageQueue, id: i64) {
        let mut readers = self.readers.lock();
        if id == 0 {
            readers.remove(queue);
        } else {
            readers.insert(queue.clone(), id);
        }
    }
}

fn unknown(queue: &MessageQueue) -> ClientError {
    ClientError::UnknownBroker {
        broker: queue.broker_name.clone(),
    }
}
