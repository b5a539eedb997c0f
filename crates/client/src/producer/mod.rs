//! Sending messages.
//!
//! A send picks the next queue in turn, passing over brokers that lately could not be reached, and tries again at
//! another broker when the first is unreachable or answers 1, 14, 16, 17, 204 or 205. "Busy" (2, 215) is waited out
//! with growing pauses instead. All attempts together stay within [`ProducerConfig::send_timeout`]. A send to a given
//! queue, or to the queue of an ordering key, goes there and nowhere else: only "busy" is repeated.
//!
//! While other brokers are left, an attempt gets half of the time that is left, so that one broker that hangs does not
//! use all of it. A send that failed by time-out or lost connection may have been stored; repeating it may store the message twice,
//! with the same unique id.

mod config;
mod later;
mod parcel;
mod reply;
mod transaction;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ferromq_protocol::code::response;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{SendMessage, SendMessageResponse};
use ferromq_protocol::names::topics;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use crate::MessageQueue;
use crate::choice::{next_queue, queue_for_key};
use crate::client::Client;
use crate::clock::Ids;
use crate::config::random;
use crate::error::{Attempt, ClientError, Result};
use crate::fault::Faults;
use crate::link;
use crate::message::Message;
use crate::route::Route;
use crate::spans;
use crate::trace;

pub use config::ProducerConfig;
pub use later::PendingSend;
pub use transaction::{Decision, HalfMessage, Transaction, TransactionalProducer};

use parcel::Parcel;

/// First and longest pause before a busy broker is asked again.
const BUSY_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// How safely a message is stored. It is stored in every case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SendStatus {
    /// As safely as the broker is configured for.
    Stored,
    /// Not yet known to be on disk.
    FlushDiskTimeout,
    /// Not yet known to be at a slave.
    FlushSlaveTimeout,
    /// There was no slave to copy it to.
    SlaveNotAvailable,
}

/// What the broker says about a stored message or batch.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SendReceipt {
    /// How safely it is stored.
    pub status: SendStatus,
    /// Unique ids that this client gave: one for each message, in order.
    pub message_ids: Vec<String>,
    /// Ids that the broker gave: one for each message, in order.
    pub offset_ids: Vec<String>,
    /// The queue.
    pub queue: MessageQueue,
    /// Place of the (first) message in its queue.
    pub queue_offset: i64,
    /// The transaction's id, if the broker gave one.
    pub transaction_id: Option<String>,
}

impl SendReceipt {
    /// The unique id of the first message.
    pub fn message_id(&self) -> &str {
        self.message_ids.first().map_or("", String::as_str)
    }
}

/// Sends messages. Cheap to clone; clones share the group's place at the brokers.
///
/// Dropping the future of a send before it is done gives up waiting: the message may be stored all the same.
#[derive(Debug, Clone)]
pub struct Producer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    config: ProducerConfig,
    /// The group's name on the wire.
    group: String,
    ids: Ids,
    turn: AtomicUsize,
    faults: Faults,
    /// The group is told to brokers, and what is sent is traced.
    public: bool,
    /// Sends under way.
    sends: TaskTracker,
    /// Room for sends that nobody waits for.
    room: Arc<Semaphore>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.public {
            self.client.leave_producers(&self.group);
        }
    }
}

impl Producer {
    pub(crate) fn new(client: Client, config: ProducerConfig) -> Self {
        let group = client.inner().namespace.group(&config.group);
        client.join_producers(&group);
        Self::make(client, config, group, true)
    }

    /// A producer for the client's own messages, of which brokers hear nothing.
    pub(crate) fn without_group(client: Client, config: ProducerConfig) -> Self {
        let group = config.group.clone();
        Self::make(client, config, group, false)
    }

    fn make(client: Client, config: ProducerConfig, group: String, public: bool) -> Self {
        let ids = Ids::new(client.inner().local_address, client.inner().wall_clock);
        Self {
            inner: Arc::new(Inner {
                faults: Faults::new(config.avoid_slow_brokers),
                room: Arc::new(Semaphore::new(
                    config.max_pending.clamp(1, Semaphore::MAX_PERMITS),
                )),
                turn: AtomicUsize::new(random() as usize),
                sends: TaskTracker::new(),
                client,
                config,
                group,
                ids,
                public,
            }),
        }
    }

    /// Sends a message to the next queue in turn.
    ///
    /// # Errors
    /// [`ClientError::InvalidMessage`] before anything is sent, [`ClientError::NoRoute`] or [`ClientError::NoQueue`]
    /// without a place to send to, [`ClientError::SendFailed`] with all attempts, [`ClientError::Closed`].
    pub async fn send(&self, message: Message) -> Result<SendReceipt> {
        let _under_way = self.begin()?;
        let parcel = self.pack(message)?;
        self.send_anywhere(&parcel).await
    }

    /// Sends messages of one topic as one request, to the next queue in turn. Either all are stored or none.
    ///
    /// # Errors
    /// [`ClientError::InvalidMessage`] if there are none, the topics differ, or one is delayed.
    pub async fn send_batch(&self, messages: Vec<Message>) -> Result<SendReceipt> {
        let _under_way = self.begin()?;
        let parcel = self.pack_batch(messages)?;
        self.send_anywhere(&parcel).await
    }

    /// Sends any number of messages of one topic, as few batches as fit [`ProducerConfig::max_message_size`], in their
    /// order. Each batch is stored whole or not at all.
    ///
    /// # Errors
    /// Of the first batch that failed; those before it are stored, those after it not sent.
    pub async fn send_batches(&self, messages: Vec<Message>) -> Result<Vec<SendReceipt>> {
        let mut receipts = Vec::new();
        for batch in parcel::split(messages, self.inner.config.max_message_size) {
            receipts.push(self.send_batch(batch).await?);
        }
        Ok(receipts)
    }

    /// Sends a message to a queue, see [`Producer::queues`].
    pub async fn send_to(&self, queue: &MessageQueue, message: Message) -> Result<SendReceipt> {
        let _under_way = self.begin()?;
        let parcel = self.pack(message)?;
        self.send_to_queue(&parcel, queue).await
    }

    /// Sends a message to the queue whose place in the list `choose` gives; a place beyond the end counts on from the
    /// start. The list is that of [`Producer::queues`]. Java's `MessageQueueSelector`.
    pub async fn send_chosen(
        &self,
        message: Message,
        choose: impl FnOnce(&[MessageQueue], &Message) -> usize,
    ) -> Result<SendReceipt> {
        let _under_way = self.begin()?;
        let route = self
            .route(&self.inner.client.inner().namespace.topic(&message.topic))
            .await?;
        if route.publish.is_empty() {
            return Err(no_queue(&message.topic));
        }
        let queue = &route.publish[choose(&route.publish, &message) % route.publish.len()];
        let parcel = self.pack(message)?;
        self.send_to_queue(&parcel, queue).await
    }

    /// Sends a message to the queue of an ordering key: messages with one key stay in order. Java producers with the
    /// built-in hash selector choose the same queue.
    pub async fn send_ordered(&self, key: &str, message: Message) -> Result<SendReceipt> {
        let _under_way = self.begin()?;
        let parcel = self.pack(message)?;
        let route = self.route(&parcel.topic).await?;
        let queue = queue_for_key(&route.publish, key).ok_or_else(|| no_queue(&parcel.topic))?;
        self.send_to_queue(&parcel, queue).await
    }

    /// Hands a message to the connection of the next broker in turn and does not wait for an answer: it may be lost.
    pub async fn send_oneway(&self, message: Message) -> Result<()> {
        let _under_way = self.begin()?;
        let parcel = self.pack(message)?;
        let route = self.route(&parcel.topic).await?;
        let queue = self.next(&route, None).ok_or_else(|| no_queue(&parcel.topic))?;
        let address = master(&route, queue)?;
        let request = self.envelope(&parcel, queue.queue_id);
        let link = &self.inner.client.inner().link;
        let sent = link
            .oneway(address, request)
            .instrument(parcel.span.clone())
            .await;
        if let Err(error) = &sent {
            spans::fail(&parcel.span, error);
        }
        sent
    }

    /// Sends a copy of a message that a consumer failed to consume.
    pub(crate) async fn send_retry(&self, message: Message, times: i32, max: i32) -> Result<SendReceipt> {
        let parcel = Parcel {
            reconsume_times: times,
            max_reconsume_times: Some(max),
            ..self.pack(message)?
        };
        self.send_anywhere(&parcel).await
    }

    /// The queues that a topic can be sent to.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>> {
        let topic = self.inner.client.inner().namespace.topic(topic);
        Ok(self.route(&topic).await?.publish.clone())
    }

    /// Takes no more sends, and waits for those that were accepted: each ends as it would have, by its own time-out at
    /// the latest. Other producers of the client go on.
    pub async fn shutdown(&self) {
        self.inner.sends.close();
        self.inner.sends.wait().await;
    }

    /// Counts a send as under way, unless the producer is shut down.
    fn begin(&self) -> Result<(impl Drop + use<>, impl Drop + use<>)> {
        let client = self.inner.client.inner();
        // The client's own messages, such as traces, go until its very end.
        if self.inner.sends.is_closed() || (self.inner.public && client.sends.is_closed()) {
            return Err(ClientError::Closed);
        }
        Ok((self.inner.sends.token(), client.sends.token()))
    }

    async fn route(&self, topic: &str) -> Result<Arc<Route>> {
        let most = self.inner.config.new_topic_queues;
        self.inner
            .client
            .inner()
            .routes
            .get_for_send(topic, topics::AUTO_CREATE, most)
            .await
    }

    fn next<'a>(&self, route: &'a Route, last: Option<&str>) -> Option<&'a MessageQueue> {
        let turn = self.inner.turn.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let avoided = |broker: &str| last == Some(broker) || self.inner.faults.avoids(broker, now);
        if route.publish.iter().all(|queue| avoided(&queue.broker_name))
            && let Some(best) = self.inner.faults.least_bad(turn, now)
            && route.publish.iter().any(|queue| queue.broker_name == best)
        {
            return next_queue(&route.publish, turn, &|broker| broker != best);
        }
        next_queue(&route.publish, turn, &avoided)
    }

    async fn send_anywhere(&self, parcel: &Parcel) -> Result<SendReceipt> {
        let sent = self.try_anywhere(parcel).instrument(parcel.span.clone()).await;
        spans::sent(&parcel.span, &sent);
        sent
    }

    async fn send_to_queue(&self, parcel: &Parcel, queue: &MessageQueue) -> Result<SendReceipt> {
        let sent = self
            .try_queue(parcel, queue)
            .instrument(parcel.span.clone())
            .await;
        spans::sent(&parcel.span, &sent);
        sent
    }

    async fn try_anywhere(&self, parcel: &Parcel) -> Result<SendReceipt> {
        let deadline = Instant::now() + self.inner.config.send_timeout;
        let mut attempts: Vec<Attempt> = Vec::new();
        let mut pause = BUSY_PAUSE.0;
        let mut retries = self.inner.config.retries;
        loop {
            let route = match self.route(&parcel.topic).await {
                Ok(route) => route,
                Err(error) if attempts.is_empty() => return Err(error),
                Err(_) => return Err(failed(parcel, attempts)),
            };
            let last = attempts.last().map(|attempt| attempt.broker.as_str());
            let Some(queue) = self.next(&route, last) else {
                return Err(no_queue(&parcel.topic));
            };
            let started = Instant::now();
            // One broker that hangs must leave time for another, if there is another.
            let others = retries > 0 && route.publish.iter().any(|q| q.broker_name != queue.broker_name);
            let until = if others {
                started + deadline.saturating_duration_since(started) / 2
            } else {
                deadline
            };
            let error = match self.attempt(parcel, &route, queue, until).await {
                Ok(receipt) => {
                    let unsafe_yet = receipt.status != SendStatus::Stored;
                    if unsafe_yet && self.inner.config.retry_when_not_safe && others {
                        retries -= 1;
                        continue;
                    }
                    return Ok(receipt);
                }
                Err(error) => error,
            };
            let (busy, elsewhere) = (error.is_busy(), error.is_worth_another_broker());
            self.note_failure(&parcel.topic, queue, &error);
            attempts.push(Attempt {
                broker: queue.broker_name.clone(),
                took: started.elapsed(),
                error: Box::new(error),
            });
            if !busy {
                if !elsewhere || retries == 0 {
                    return Err(failed(parcel, attempts));
                }
                retries -= 1;
            }
            // Another broker may be asked at once, the same one only after a pause.
            let wait = if others && !busy { Duration::ZERO } else { pause };
            if !wait.is_zero() {
                pause = (pause * 2).min(BUSY_PAUSE.1);
            }
            if Instant::now() + wait >= deadline {
                return Err(failed(parcel, attempts));
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn try_queue(&self, parcel: &Parcel, queue: &MessageQueue) -> Result<SendReceipt> {
        let deadline = Instant::now() + self.inner.config.send_timeout;
        let route = self.route(&parcel.topic).await?;
        let mut pause = BUSY_PAUSE.0;
        loop {
            match self.attempt(parcel, &route, queue, deadline).await {
                Err(error) if error.is_busy() && Instant::now() + pause < deadline => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(BUSY_PAUSE.1);
                }
                Err(error) => {
                    self.note_failure(&parcel.topic, queue, &error);
                    return Err(error);
                }
                Ok(receipt) => return Ok(receipt),
            }
        }
    }

    async fn attempt(
        &self,
        parcel: &Parcel,
        route: &Route,
        queue: &MessageQueue,
        deadline: Instant,
    ) -> Result<SendReceipt> {
        let address = master(route, queue)?;
        let started = Instant::now();
        let result = self.attempt_at(address, parcel, queue, deadline).await;
        let cost = started.elapsed();
        match &result {
            Ok(_) => self
                .inner
                .faults
                .answered(&queue.broker_name, cost, Instant::now()),
            Err(error) if error.code().is_some() => {
                self.inner
                    .faults
                    .answered(&queue.broker_name, cost, Instant::now());
            }
            Err(_) => {}
        }
        if let Some(trace) = self
            .inner
            .client
            .inner()
            .trace
            .as_ref()
            .filter(|_| self.inner.public)
        {
            let ids = result.as_ref().map(|receipt| receipt.offset_ids.join(","));
            trace.sent(&trace::Sent {
                group: &self.inner.config.group,
                topic: &self.inner.client.inner().namespace.strip(&parcel.topic),
                id: &parcel.message_ids.join(","),
                tags: parcel.tags.as_deref(),
                keys: parcel.keys.as_deref(),
                broker: address,
                body: parcel.body.len(),
                cost,
                sort: parcel.sort,
                offset_id: ids.as_deref().unwrap_or_default(),
                good: result.is_ok(),
            });
        }
        result
    }

    async fn attempt_at(
        &self,
        address: &str,
        parcel: &Parcel,
        queue: &MessageQueue,
        deadline: Instant,
    ) -> Result<SendReceipt> {
        let request = self.envelope(parcel, queue.queue_id);
        let name = link::name_of(request.code);
        let left = deadline
            .saturating_duration_since(Instant::now())
            .max(Duration::from_millis(1));
        let answer = self
            .inner
            .client
            .inner()
            .link
            .call(address, request, left)
            .await?;
        let status = match answer.code {
            response::SUCCESS => SendStatus::Stored,
            response::FLUSH_DISK_TIMEOUT => SendStatus::FlushDiskTimeout,
            response::FLUSH_SLAVE_TIMEOUT => SendStatus::FlushSlaveTimeout,
            response::SLAVE_NOT_AVAILABLE => SendStatus::SlaveNotAvailable,
            _ => return Err(link::refusal(address, name, answer)),
        };
        let header: SendMessageResponse<'_> = answer
            .header()
            .map_err(|error| link::bad_answer(address, name, error))?;
        Ok(SendReceipt {
            status,
            message_ids: parcel.message_ids.clone(),
            offset_ids: header.msg_id.split(',').map(str::to_owned).collect(),
            queue: MessageQueue {
                queue_id: header.queue_id,
                topic: self.inner.client.inner().namespace.strip(&queue.topic),
                ..queue.clone()
            },
            queue_offset: header.queue_offset,
            transaction_id: header.transaction_id.map(str::to_owned),
        })
    }

    /// Remembers an unreachable broker, and has the route looked up anew when the failure says it is out of date.
    fn note_failure(&self, topic: &str, queue: &MessageQueue, error: &ClientError) {
        let unreachable = error.is_unreachable();
        if unreachable {
            self.inner.faults.failed(&queue.broker_name, Instant::now());
        }
        let outdated = matches!(
            error.code(),
            Some(response::TOPIC_NOT_EXIST | response::NO_PERMISSION)
        );
        if unreachable || outdated {
            let routes = self.inner.client.inner().routes.clone();
            let (topic, gone) = (topic.to_owned(), error.code() == Some(response::TOPIC_NOT_EXIST));
            self.inner
                .client
                .spawn(async move { routes.refresh_after_failure(&topic, gone).await });
        }
    }

    fn envelope(&self, parcel: &Parcel, queue_id: i32) -> Command {
        let header = SendMessage {
            producer_group: &self.inner.group,
            topic: &parcel.topic,
            default_topic: topics::AUTO_CREATE,
            default_topic_queue_nums: self.inner.config.new_topic_queues,
            queue_id,
            sys_flag: parcel.sys_flag,
            born_timestamp: parcel.born,
            flag: parcel.flag,
            properties: &parcel.properties,
            reconsume_times: parcel.reconsume_times,
            unit_mode: false,
            max_reconsume_times: parcel.max_reconsume_times,
            batch: parcel.code == ferromq_protocol::code::request::SEND_BATCH_MESSAGE,
        };
        Command::request(parcel.code)
            .with_header(&header)
            .with_body(parcel.body.clone())
    }
}

fn master<'a>(route: &'a Route, queue: &MessageQueue) -> Result<&'a str> {
    let unknown = || ClientError::UnknownBroker {
        broker: queue.broker_name.clone(),
    };
    route.master(&queue.broker_name).ok_or_else(unknown)
}

fn no_queue(topic: &str) -> ClientError {
    ClientError::NoQueue {
        topic: topic.to_owned(),
        need: "writable",
    }
}

fn failed(parcel: &Parcel, attempts: Vec<Attempt>) -> ClientError {
    ClientError::SendFailed {
        topic: parcel.topic.clone(),
        attempts,
    }
}
