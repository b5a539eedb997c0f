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

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ferromq_protocol::batch::{self, BatchMessage};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{SendMessage, SendMessageResponse};
use ferromq_protocol::message_id::UniqueIds;
use ferromq_protocol::names::topics;
use ferromq_protocol::properties::names;
use ferromq_protocol::{compress, sysflag};

use crate::MessageQueue;
use crate::choice::{Shunned, next_queue, queue_for_key};
use crate::client::Client;
use crate::config::random;
use crate::error::{Attempt, ClientError, Result};
use crate::link;
use crate::message::{Message, invalid};
use crate::route::Route;

/// First and longest pause before a busy broker is asked again.
const BUSY_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));

/// Settings of a [`Producer`].
#[derive(Debug, Clone)]
pub struct ProducerConfig {
    /// Producer group; brokers ask its members about unfinished transactions. Default `ferromq_producer`.
    pub group: String,
    /// Time for one send with all its attempts. Default 3 s.
    pub send_timeout: Duration,
    /// Attempts after the first, at other brokers if there are any. Default 2.
    pub retries: u32,
    /// Longest body in bytes. Default 4 MiB, which is the broker's.
    pub max_message_size: usize,
    /// Single messages with at least so many bytes are compressed; `None` sends all as they are. Default 4096.
    pub compress_from: Option<usize>,
    /// Most queues for each broker of a topic that the first message creates. Default 4.
    pub new_topic_queues: i32,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            group: "ferromq_producer".into(),
            send_timeout: Duration::from_secs(3),
            retries: 2,
            max_message_size: 4 * 1024 * 1024,
            compress_from: Some(4096),
            new_topic_queues: 4,
        }
    }
}

impl ProducerConfig {
    /// Default settings for a group.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            ..Self::default()
        }
    }

    /// Sets the time for one send.
    #[must_use]
    pub fn with_send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = timeout;
        self
    }

    /// Sets the number of attempts after the first.
    #[must_use]
    pub fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets from what size on bodies are compressed.
    #[must_use]
    pub fn with_compress_from(mut self, size: Option<usize>) -> Self {
        self.compress_from = size;
        self
    }
}

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
    ids: UniqueIds,
    turn: AtomicUsize,
    shunned: Shunned,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.client.leave_producers(&self.config.group);
    }
}

/// A message or batch made ready: everything but the queue.
struct Parcel {
    topic: String,
    code: i32,
    properties: String,
    sys_flag: i32,
    flag: i32,
    body: Bytes,
    message_ids: Vec<String>,
    born: i64,
}

impl Producer {
    pub(crate) fn new(client: Client, config: ProducerConfig) -> Self {
        let ids = UniqueIds::new(client.inner().local_address, std::process::id(), random() as u32);
        let turn = AtomicUsize::new(random() as usize);
        Self {
            inner: Arc::new(Inner {
                client,
                config,
                ids,
                turn,
                shunned: Shunned::default(),
            }),
        }
    }

    /// Sends a message to the next queue in turn.
    pub async fn send(&self, message: Message) -> Result<SendReceipt> {
        let parcel = self.pack(message)?;
        self.send_anywhere(&parcel).await
    }

    /// Sends messages of one topic as one request, to the next queue in turn. Either all are stored or none.
    ///
    /// # Errors
    /// [`ClientError::InvalidMessage`] if there are none, the topics differ, or one is delayed.
    pub async fn send_batch(&self, messages: Vec<Message>) -> Result<SendReceipt> {
        let parcel = self.pack_batch(messages)?;
        self.send_anywhere(&parcel).await
    }

    /// Sends a message to a queue, see [`Producer::queues`].
    pub async fn send_to(&self, queue: &MessageQueue, message: Message) -> Result<SendReceipt> {
        let parcel = self.pack(message)?;
        self.send_to_queue(&parcel, queue).await
    }

    /// Sends a message to the queue of an ordering key: messages with one key stay in order. Java producers with the
    /// built-in hash selector choose the same queue.
    pub async fn send_ordered(&self, key: &str, message: Message) -> Result<SendReceipt> {
        let parcel = self.pack(message)?;
        let route = self.route(&parcel.topic).await?;
        let queue = queue_for_key(&route.publish, key).ok_or_else(|| no_queue(&parcel.topic))?;
        self.send_to_queue(&parcel, queue).await
    }

    /// Hands a message to the connection of the next broker in turn and does not wait for an answer: it may be lost.
    pub async fn send_oneway(&self, message: Message) -> Result<()> {
        let parcel = self.pack(message)?;
        let route = self.route(&parcel.topic).await?;
        let queue = self.next(&route, None).ok_or_else(|| no_queue(&parcel.topic))?;
        let address = master(&route, queue)?;
        let request = self.request(&parcel, queue.queue_id);
        self.inner.client.inner().link.oneway(address, request).await
    }

    /// The queues that a topic can be sent to.
    pub async fn queues(&self, topic: &str) -> Result<Vec<MessageQueue>> {
        Ok(self.route(topic).await?.publish.clone())
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
        next_queue(&route.publish, turn, &|broker| {
            last == Some(broker) || self.inner.shunned.contains(broker, now)
        })
    }

    async fn send_anywhere(&self, parcel: &Parcel) -> Result<SendReceipt> {
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
                Ok(receipt) => return Ok(receipt),
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

    async fn send_to_queue(&self, parcel: &Parcel, queue: &MessageQueue) -> Result<SendReceipt> {
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
        let request = self.request(parcel, queue.queue_id);
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
        self.inner.shunned.succeeded(&queue.broker_name);
        Ok(SendReceipt {
            status,
            message_ids: parcel.message_ids.clone(),
            offset_ids: header.msg_id.split(',').map(str::to_owned).collect(),
            queue: MessageQueue {
                queue_id: header.queue_id,
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
            self.inner.shunned.failed(&queue.broker_name, Instant::now());
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

    fn request(&self, parcel: &Parcel, queue_id: i32) -> Command {
        let header = SendMessage {
            producer_group: &self.inner.config.group,
            topic: &parcel.topic,
            default_topic: topics::AUTO_CREATE,
            default_topic_queue_nums: self.inner.config.new_topic_queues,
            queue_id,
            sys_flag: parcel.sys_flag,
            born_timestamp: parcel.born,
            flag: parcel.flag,
            properties: &parcel.properties,
            reconsume_times: 0,
            unit_mode: false,
            max_reconsume_times: None,
            batch: parcel.code == request::SEND_BATCH_MESSAGE,
        };
        Command::request(parcel.code)
            .with_header(&header)
            .with_body(parcel.body.clone())
    }

    fn pack(&self, mut message: Message) -> Result<Parcel> {
        let config = &self.inner.config;
        message.check(config.max_message_size)?;
        let id = self.identify(&mut message);
        let mut sys_flag = 0;
        let mut body = message.body.clone();
        if config.compress_from.is_some_and(|from| body.len() >= from)
            && let Ok(smaller) = compress::compress(compress::Kind::Zlib, &body)
            && smaller.len() < body.len()
        {
            body = smaller.into();
            sys_flag |= sysflag::COMPRESSED;
        }
        Ok(Parcel {
            code: request::SEND_MESSAGE_V2,
            properties: message.joined_properties(),
            flag: message.flag,
            topic: message.topic,
            sys_flag,
            body,
            message_ids: vec![id],
            born: now_millis(),
        })
    }

    fn pack_batch(&self, mut messages: Vec<Message>) -> Result<Parcel> {
        let topic = match messages.first() {
            Some(first) => first.topic.clone(),
            None => return Err(invalid("the batch is empty")),
        };
        if topic.starts_with(topics::RETRY_PREFIX) {
            return Err(invalid("messages to a retry topic cannot be sent in a batch"));
        }
        let wait = messages[0].get(names::WAIT).map(str::to_owned);
        let mut ids = Vec::with_capacity(messages.len());
        let mut body = Vec::new();
        for message in &mut messages {
            message.check(self.inner.config.max_message_size)?;
            if message.topic != topic {
                return Err(invalid("the messages of a batch must have the same topic"));
            }
            if message.get(names::DELAY).is_some() {
                return Err(invalid("a delayed message cannot be sent in a batch"));
            }
            if message.get(names::WAIT) != wait.as_deref() {
                return Err(invalid("the messages of a batch must agree on WAIT"));
            }
            ids.push(self.identify(message));
            let properties = message.joined_properties();
            let (flag, properties) = (message.flag, properties.as_bytes());
            batch::encode(
                [BatchMessage {
                    flag,
                    body: &message.body,
                    properties,
                }],
                &mut body,
            );
        }
        if body.len() > self.inner.config.max_message_size {
            let limit = self.inner.config.max_message_size;
            let reason = format!(
                "the batch takes {} bytes, the limit is {limit}; send fewer at a time",
                body.len()
            );
            return Err(invalid(reason));
        }
        let properties = wait
            .map(|value| format!("{}\u{1}{value}", names::WAIT))
            .unwrap_or_default();
        Ok(Parcel {
            code: request::SEND_BATCH_MESSAGE,
            topic,
            properties,
            sys_flag: 0,
            flag: 0,
            body: body.into(),
            message_ids: ids,
            born: now_millis(),
        })
    }

    /// Gives the message its unique id, unless the caller did.
    fn identify(&self, message: &mut Message) -> String {
        if let Some(id) = message.get(names::UNIQ_KEY) {
            return id.to_owned();
        }
        let id = self.inner.ids.next(now_millis());
        message.set(names::UNIQ_KEY, id.clone());
        id
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

pub(crate) fn now_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
