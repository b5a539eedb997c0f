//! The push consumer: messages come to the application's listener, the queues of a topic are shared by the group.
//!
//! Who does what, one task each:
//!
//! * `balance` looks at the group's members and the topic's queues, and takes and gives up queues;
//! * `pulling`, one for each queue held, asks the broker for messages while there is room in the queue's `cache`;
//! * `concurrent` workers, or `orderly` one for each queue, call the listener, send failures back (`retry`) and note
//!   in the offset store how far the queue is done.
//!
//! What holds: an offset is stored only when every message before it was dealt with, so each message is delivered at
//! least once; when queues move to another member some come twice. In order, a queue has one call of the listener at
//! a time in the whole group: it is consumed only under the broker's lock, which is given back after the last call.

mod balance;
mod cache;
mod concurrent;
mod config;
mod held;
mod listener;
mod orderly;
mod pulling;
mod report;
mod retry;
mod stream;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ferromq_protocol::body::{
    CheckClientRequestBody, ConsumeType, ConsumerData, MessageModel, SubscriptionData,
};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::fastjson;
use ferromq_protocol::names::{retry_topic, topics, validate_group, validate_topic};
use futures::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::MessageQueue;
use crate::client::Client;
use crate::clock::Versions;
use crate::error::{ClientError, Result};
use crate::fetch::Fetcher;
use crate::filter::Filter;
use crate::offset_store::OffsetStore;
use crate::producer::{Producer, ProducerConfig};
use crate::trace::Trace;

pub use config::{FlowLimits, PushConsumerConfig, StartFrom};
pub use listener::{Delivery, Outcome};
pub use report::ConsumerStats;
pub use stream::{ConsumerStream, Incoming};

use cache::{Bounds, Total};
use concurrent::Pool;
use held::Held;
use listener::Listener;
use report::Counters;

/// In which order a queue's messages may reach the listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Concurrent,
    PerQueue,
}

/// All that the tasks of one consumer share.
pub(crate) struct Core {
    client: Client,
    config: PushConsumerConfig,
    /// The group's name on the wire.
    group: String,
    order: Order,
    listener: Listener,
    fetcher: Fetcher,
    offsets: OffsetStore,
    /// Sends copies of failed messages.
    copies: Producer,
    subscriptions: RwLock<BTreeMap<String, (Filter, i64)>>,
    versions: Versions,
    held: Mutex<HashMap<MessageQueue, Arc<Held>>>,
    /// What all of them hold.
    cached: Arc<Total>,
    /// Queues given up whose last call of the listener is not over.
    leaving: Mutex<HashSet<MessageQueue>>,
    /// Queues that were started once by a rule that ignores what is stored.
    started: Mutex<HashSet<MessageQueue>>,
    pool: Pool,
    turns: Semaphore,
    wake: Notify,
    paused: watch::Sender<bool>,
    stats: Counters,
    trace: Option<Trace>,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// Ends what did not end by itself.
    abort: CancellationToken,
    ended: tokio::sync::Mutex<bool>,
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core")
            .field("group", &self.group)
            .field("order", &self.order)
            .finish_non_exhaustive()
    }
}

/// A consumer whose listener is called with messages. Cheap to clone.
///
/// End it with [`PushConsumer::shutdown`] (or [`Client::shutdown`]), which stores the offsets and leaves the group.
/// When the last clone is dropped without that, pulling ends, and messages since the last saving come again.
#[derive(Debug, Clone)]
pub struct PushConsumer {
    guard: Arc<Guard>,
}

#[derive(Debug)]
struct Guard(Arc<Core>);

impl Drop for Guard {
    fn drop(&mut self) {
        if self.0.stop.is_cancelled() {
            // It was shut down, and the group may have a new consumer here.
            return;
        }
        self.0.stop.cancel();
        self.0.client.drop_consumer(&self.0.group);
        self.0.client.inner().callbacks.remove_consumer(&self.0.group);
    }
}

impl PushConsumer {
    /// Joins the group and calls `listener` with messages, up to [`PushConsumerConfig::concurrency`] calls at a time.
    ///
    /// A panic in the listener is caught and counts as [`Outcome::Retry`]. A topic that does not exist yet is taken
    /// up when it appears.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] for settings that cannot be, or a group that this client consumes already;
    /// an error when no name server answers; the broker's when it refuses an SQL92 filter.
    pub async fn start<L, F>(client: &Client, config: PushConsumerConfig, listener: L) -> Result<Self>
    where
        L: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self::begin(client, config, Order::Concurrent, listener).await
    }

    /// As [`PushConsumer::start`], but each queue's messages come in order, one call at a time in the whole group. A
    /// message that fails holds up its queue; by default for as long as it fails.
    pub async fn start_ordered<L, F>(client: &Client, config: PushConsumerConfig, listener: L) -> Result<Self>
    where
        L: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        Self::begin(client, config, Order::PerQueue, listener).await
    }

    async fn begin<L, F>(
        client: &Client,
        config: PushConsumerConfig,
        order: Order,
        listener: L,
    ) -> Result<Self>
    where
        L: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Outcome> + Send + 'static,
    {
        check(&config)?;
        let listener: Listener = Box::new(move |delivery| Box::pin(listener(delivery)));
        let core = Arc::new(Core::new(client.clone(), config, order, listener));
        if !client.inner().callbacks.add_consumer(&core.group, &core) {
            return Err(argument(format!(
                "this client has a push consumer of group {:?} already; one member of a group is one client",
                core.config.group
            )));
        }
        let this = Self {
            guard: Arc::new(Guard(Arc::clone(&core))),
        };
        core.learn_routes().await?;
        client.join_consumers(core.membership()).await;
        core.check_filters().await?;
        core.spawn(balance::keep(Arc::clone(&core)));
        core.spawn(balance::save_offsets(Arc::clone(&core)));
        match order {
            Order::Concurrent => {
                for _ in 0..core.config.concurrency.max(1) {
                    core.spawn(concurrent::work(Arc::clone(&core)));
                }
            }
            Order::PerQueue => core.spawn(balance::keep_locks(Arc::clone(&core))),
        }
        Ok(this)
    }

    /// The group.
    pub fn group(&self) -> &str {
        &self.core().config.group
    }

    /// Stops calling the listener, and soon pulling. Queues stay with this consumer.
    pub fn pause(&self) {
        self.core().paused.send_replace(true);
    }

    /// Goes on after [`PushConsumer::pause`].
    pub fn resume(&self) {
        self.core().paused.send_replace(false);
        for held in self.core().held.lock().values() {
            held.arrived.notify_one();
        }
    }

    /// Adds a topic, or changes what is wanted of it. All members of the group must do the same.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] if the topic's name cannot be.
    pub async fn subscribe(&self, topic: &str, filter: Filter) -> Result<()> {
        validate_topic(topic).map_err(|error| argument(error.to_string()))?;
        let core = self.core();
        let topic = core.client.inner().namespace.topic(topic);
        {
            let mut subscriptions = core.subscriptions.write();
            subscriptions.insert(topic, (filter, core.versions.next()));
        }
        core.learn_routes().await?;
        core.tell_subscriptions().await;
        Ok(())
    }

    /// Gives a topic up. The others, and the group's retries, go on.
    pub async fn unsubscribe(&self, topic: &str) {
        let core = self.core();
        let topic = core.client.inner().namespace.topic(topic);
        core.subscriptions.write().remove(&topic);
        core.tell_subscriptions().await;
    }

    /// The queues that this consumer holds now, those of the group's retry topic included.
    pub fn queues(&self) -> Vec<MessageQueue> {
        let mut queues: Vec<MessageQueue> = self.core().held.lock().keys().cloned().collect();
        queues.sort();
        queues
    }

    /// Counters since the start.
    pub fn stats(&self) -> ConsumerStats {
        self.core().stats.total()
    }

    /// Stops pulling, waits for the calls of the listener that are under way
    /// ([`PushConsumerConfig::shutdown_wait`] at most, then drops them), stores the offsets, gives back locks and
    /// leaves the group. Messages not yet given to the listener are left to the others.
    ///
    /// # Errors
    /// That some offsets could not be stored: messages will come again. The group is left all the same.
    pub async fn shutdown(&self) -> Result<()> {
        self.core().shut_down().await
    }

    fn core(&self) -> &Arc<Core> {
        &self.guard.0
    }
}

impl Core {
    fn new(client: Client, config: PushConsumerConfig, order: Order, listener: Listener) -> Self {
        let inner = client.inner();
        let group = inner.namespace.group(&config.group);
        let versions = Versions::new(inner.wall_clock);
        let now = versions.next();
        let mut subscriptions: BTreeMap<String, (Filter, i64)> = config
            .subscriptions
            .iter()
            .map(|(topic, filter)| (inner.namespace.topic(topic), (filter.clone(), now)))
            .collect();
        let clustering = config.model == MessageModel::Clustering;
        let fetcher = Fetcher::new(client.clone());
        let offsets = if clustering {
            subscriptions.insert(retry_topic(&group), (Filter::All, now));
            OffsetStore::at_broker(fetcher.clone(), group.clone())
        } else {
            let dir = config.offsets_dir.clone().unwrap_or_else(default_offsets_dir);
            let path = dir.join(&inner.instance).join(&config.group).join("offsets.json");
            OffsetStore::in_file(path)
        };
        let stop = CancellationToken::new();
        Self {
            copies: Producer::without_group(client.clone(), ProducerConfig::new("CLIENT_INNER_PRODUCER")),
            turns: Semaphore::new(config.concurrency.max(1)),
            trace: inner.trace.clone(),
            group,
            order,
            listener,
            fetcher,
            offsets,
            subscriptions: RwLock::new(subscriptions),
            versions,
            held: Mutex::default(),
            cached: Arc::default(),
            leaving: Mutex::default(),
            started: Mutex::default(),
            pool: Pool::new(),
            wake: Notify::new(),
            paused: watch::Sender::new(false),
            stats: Counters::default(),
            tasks: TaskTracker::new(),
            abort: CancellationToken::new(),
            stop,
            ended: tokio::sync::Mutex::new(false),
            client,
            config,
        }
    }

    fn is_clustering(&self) -> bool {
        self.config.model == MessageModel::Clustering
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let abort = self.abort.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = abort.cancelled() => {}
            }
        });
    }

    pub(crate) fn balance_soon(&self) {
        self.wake.notify_one();
    }

    async fn until_resumed(&self) {
        if *self.paused.borrow() {
            // The sender lives as long as self.
            drop(self.paused.subscribe().wait_for(|paused| !paused).await);
        }
    }

    fn filter(&self, topic: &str) -> (Filter, i64) {
        self.subscriptions.read().get(topic).cloned().unwrap_or_default()
    }

    fn bounds(&self, topic: &str) -> Bounds {
        let limits = &self.config.limits;
        let mut bounds = Bounds {
            messages: limits.messages,
            bytes: limits.bytes,
            span: (self.order == Order::Concurrent).then_some(limits.span),
            all_messages: limits.all_messages,
            all_bytes: limits.all_bytes,
        };
        if limits.topic_messages.is_some() || limits.topic_bytes.is_some() {
            let queues = self
                .held
                .lock()
                .keys()
                .filter(|queue| queue.topic == topic)
                .count()
                .max(1);
            let share =
                |most: Option<usize>, own: usize| most.map_or(own, |most| own.min((most / queues).max(1)));
            bounds.messages = share(limits.topic_messages, bounds.messages);
            bounds.bytes = share(limits.topic_bytes, bounds.bytes);
        }
        bounds
    }

    /// Notes that messages are dealt with. Nothing happens if the queue was given up meanwhile.
    fn note_done(&self, held: &Held, offsets: Vec<i64>) {
        {
            let mut cache = held.cache.lock();
            if let Some(stored) = cache.done(offsets) {
                self.offsets.advance(&held.queue, stored);
            }
        }
        held.freed.notify_one();
    }

    fn move_to(&self, held: &Held, offset: i64) {
        {
            let mut cache = held.cache.lock();
            cache.restart_at(offset);
            self.offsets.set(&held.queue, offset);
        }
        held.moved.notify_waiters();
        held.freed.notify_one();
    }

    /// A broker says where to go on. Queues that this consumer does not hold are another's concern.
    pub(crate) fn reset(&self, topic: &str, table: &BTreeMap<MessageQueue, i64>) {
        let held: Vec<Arc<Held>> = self.held.lock().values().cloned().collect();
        for held in held.iter().filter(|held| held.queue.topic == topic) {
            if let Some(offset) = table.get(&held.queue) {
                tracing::info!(group = self.group, queue = ?held.queue, offset, "the offset is reset");
                self.move_to(held, *offset);
            }
        }
        self.wake.notify_one();
    }

    pub(crate) fn offsets_of(&self, topic: &str) -> BTreeMap<MessageQueue, i64> {
        self.offsets.of_topic(topic)
    }

    /// Topics without a route are left for later; that no name server answers is an error.
    async fn learn_routes(&self) -> Result<()> {
        let topics: Vec<String> = self.subscriptions.read().keys().cloned().collect();
        let routes = &self.client.inner().routes;
        let learnt = join_all(topics.iter().map(|topic| routes.get(topic))).await;
        for (topic, learnt) in topics.iter().zip(learnt) {
            match learnt {
                Err(ClientError::NoRoute { .. }) if topic.starts_with(topics::RETRY_PREFIX) => {}
                Err(error @ ClientError::NoRoute { .. }) => {
                    tracing::warn!(group = self.group, %error, "the topic is consumed when it appears");
                }
                Err(error) => return Err(error),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    fn membership(&self) -> ConsumerData {
        let subscriptions = self.subscriptions.read();
        let data =
            |(topic, (filter, version)): (&String, &(Filter, i64))| filter.subscription(topic, *version);
        ConsumerData {
            group_name: self.group.clone(),
            consume_type: Some(ConsumeType::Passively),
            message_model: Some(self.config.model),
            consume_from_where: Some(self.config.start.on_wire()),
            subscription_data_set: subscriptions.iter().map(data).collect(),
            ..ConsumerData::default()
        }
    }

    async fn tell_subscriptions(&self) {
        self.client.change_consumer(self.membership());
        self.client.beat().await;
        self.wake.notify_one();
    }

    /// Has a broker read the SQL92 filters, so that a wrong one is told at once.
    async fn check_filters(&self) -> Result<()> {
        let data: Vec<SubscriptionData> = self.membership().subscription_data_set;
        for data in data.into_iter().filter(|data| !data.is_tag_type()) {
            let route = match self.client.inner().routes.get(&data.topic).await {
                Ok(route) => route,
                Err(ClientError::NoRoute { .. }) => continue,
                Err(error) => return Err(error),
            };
            let Some(broker) = route.brokers.values().find_map(|ids| ids.values().next()) else {
                continue;
            };
            let body = CheckClientRequestBody {
                client_id: self.client.id().to_owned(),
                group: self.group.clone(),
                subscription_data: Some(data),
            };
            let request = Command::request(request::CHECK_CLIENT_CONFIG).with_body(fastjson::to_vec(&body));
            self.client.inner().link.ask(broker, request).await?;
        }
        Ok(())
    }

    pub(crate) async fn shut_down(&self) -> Result<()> {
        let mut ended = self.ended.lock().await;
        if *ended {
            return Ok(());
        }
        *ended = true;
        self.stop.cancel();
        self.paused.send_replace(false);
        self.tasks.close();
        if tokio::time::timeout(self.config.shutdown_wait, self.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!(
                group = self.group,
                "calls of the listener did not end in time and are dropped"
            );
            self.abort.cancel();
            self.tasks.wait().await;
        }
        let held: Vec<Arc<Held>> = self.held.lock().drain().map(|(_, held)| held).collect();
        for held in &held {
            held.cache.lock().drop_all();
        }
        let stored = self.offsets.persist().await;
        if self.order == Order::PerQueue && self.is_clustering() {
            self.unlock(&held.iter().map(|held| held.queue.clone()).collect::<Vec<_>>())
                .await;
        }
        self.client.inner().callbacks.remove_consumer(&self.group);
        if self.client.drop_consumer(&self.group) {
            self.client.unregister_consumer(&self.group).await;
        }
        stored
    }
}

fn argument(reason: String) -> ClientError {
    ClientError::InvalidArgument { reason }
}

fn check(config: &PushConsumerConfig) -> Result<()> {
    validate_group(&config.group).map_err(|error| argument(error.to_string()))?;
    if config.subscriptions.is_empty() {
        return Err(argument(format!(
            "group {:?} subscribes to no topic",
            config.group
        )));
    }
    for topic in config.subscriptions.keys() {
        validate_topic(topic).map_err(|error| argument(error.to_string()))?;
    }
    let in_range = |name: &str, value: i64, most: i64| {
        if (1..=most).contains(&value) {
            return Ok(());
        }
        Err(argument(format!("{name} is {value}, allowed is 1 to {most}")))
    };
    in_range("batch", config.batch as i64, 1024)?;
    in_range("pull_batch", config.pull_batch.into(), 1024)?;
    in_range("concurrency", config.concurrency as i64, 100_000)
}

fn default_offsets_dir() -> PathBuf {
    let home = std::env::var_os("HOME").map_or_else(std::env::temp_dir, PathBuf::from);
    home.join(".rocketmq_offsets")
}
