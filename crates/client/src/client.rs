//! One client: the connections, routes and heartbeats that its producers and consumers share.
//!
//! The client owns two tasks, one refreshing routes and one sending heartbeats, so that a slow name server never
//! delays a heartbeat. Heartbeats go to all brokers at once; one that hangs delays no other. [`Client::shutdown`]
//! ends both, takes the client's groups off the brokers and closes the connections.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ferromq_protocol::body::{ConsumerData, HeartbeatData, ProducerData};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::UnregisterClient;
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::Admin;
use crate::callbacks::Callbacks;
use crate::config::{self, ClientConfig};
use crate::error::Result;
use crate::link::Link;
use crate::lite_pull::{LitePullConfig, LitePullConsumer};
use crate::namespace::Namespace;
use crate::producer::{Decision, HalfMessage, Producer, ProducerConfig, TransactionalProducer};
use crate::pull_consumer::PullConsumer;
use crate::route_cache::RouteCache;
use crate::trace::{self, Trace};

/// A client of a RocketMQ cluster. Cheap to clone; all clones are the same client.
///
/// Must be started inside a tokio runtime. Without [`Client::shutdown`] its tasks end when the last clone, producer
/// and consumer are dropped; the brokers then notice by the closed connections.
#[derive(Debug, Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) id: String,
    pub(crate) local_address: std::net::IpAddr,
    /// What stays the same when the process starts anew: `ip@DEFAULT`, or the id that was given.
    pub(crate) instance: String,
    pub(crate) link: Link,
    pub(crate) routes: RouteCache,
    pub(crate) namespace: Namespace,
    pub(crate) callbacks: Arc<Callbacks>,
    pub(crate) trace: Option<Trace>,
    pub(crate) wall_clock: fn() -> i64,
    members: Arc<Mutex<Members>>,
    last_beat: Mutex<Option<Beat>>,
    tasks: TaskTracker,
    /// Sends that were accepted and whose outcome is not known yet.
    pub(crate) sends: TaskTracker,
    stop: CancellationToken,
    trace_stop: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop.cancel();
        self.trace_stop.cancel();
    }
}

/// A heartbeat out of turn: when it was, and which brokers it went to.
#[derive(Debug)]
struct Beat {
    at: Instant,
    brokers: BTreeSet<String>,
}

/// The groups this client is in, with how many of its producers or consumers are in each.
#[derive(Debug, Default)]
struct Members {
    producers: HashMap<String, usize>,
    consumers: HashMap<String, (usize, ConsumerData)>,
}

impl Client {
    /// Starts a client. No connection is made until one is needed.
    ///
    /// # Errors
    /// [`crate::ClientError::NoNameServers`] or [`crate::ClientError::BadAddress`] if the name server list is empty
    /// or cannot be read.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(config: ClientConfig) -> Result<Self> {
        if config.name_servers.trim().is_empty() && config.address_server.is_none() {
            return Err(crate::ClientError::NoNameServers);
        }
        let callbacks = Arc::<Callbacks>::default();
        let link = Link::new(&config, callbacks.dispatch())?;
        let (list, instance_of_endpoint) = config::endpoint(&config.name_servers);
        let local_address = config::local_address(list);
        let namespace = config.namespace.as_deref().or(instance_of_endpoint);
        let namespace = Namespace::new(namespace);
        let instance = config
            .client_id
            .clone()
            .unwrap_or_else(|| format!("{local_address}@DEFAULT"));
        let id = config
            .client_id
            .unwrap_or_else(|| config::make_client_id(local_address));
        let (trace, collector) = config.trace.map(trace::channel).unzip();
        let inner = Inner {
            id: id.clone(),
            local_address,
            instance,
            routes: RouteCache::new(link.clone()),
            link: link.clone(),
            namespace,
            callbacks,
            trace,
            wall_clock: config.wall_clock,
            members: Arc::default(),
            last_beat: Mutex::default(),
            tasks: TaskTracker::new(),
            sends: TaskTracker::new(),
            stop: CancellationToken::new(),
            trace_stop: CancellationToken::new(),
        };
        if let Some(refresh) = link.address_server() {
            let stop = inner.stop.clone();
            inner.tasks.spawn(async move {
                tokio::select! {
                    () = refresh.keep() => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        let (routes, stop) = (inner.routes.clone(), inner.stop.clone());
        inner.tasks.spawn(every(config.route_refresh, stop, move || {
            let routes = routes.clone();
            async move { routes.refresh_all().await }
        }));
        let (routes, members, stop) = (
            inner.routes.clone(),
            Arc::clone(&inner.members),
            inner.stop.clone(),
        );
        inner.tasks.spawn(every(config.heartbeat, stop, move || {
            let beat = Heart {
                id: id.clone(),
                link: link.clone(),
                routes: routes.clone(),
            };
            let data = members.lock().heartbeat(&beat.id);
            async move { beat.beat(data).await }
        }));
        let inner = Arc::new(inner);
        if let Some(collector) = collector {
            let (client, stop) = (Arc::downgrade(&inner), inner.trace_stop.clone());
            inner.tasks.spawn(collector.run(client, stop));
        }
        inner.tasks.close();
        Ok(Self { inner })
    }

    /// The client's identity at the brokers.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Administrative calls over this client's connections.
    pub fn admin(&self) -> Admin {
        Admin::with_link(self.inner.link.clone())
    }

    /// A producer over this client's connections.
    pub fn producer(&self, config: ProducerConfig) -> Producer {
        Producer::new(self.clone(), config)
    }

    /// A producer of messages that are delivered only if local work succeeds. `check` is asked about messages whose
    /// decision a broker did not hear of; it may be asked about those of other processes of the group. A panic in it
    /// counts as [`crate::Decision::Unknown`].
    pub fn transactional_producer<C, F>(&self, config: ProducerConfig, check: C) -> TransactionalProducer
    where
        C: Fn(HalfMessage) -> F + Send + Sync + 'static,
        F: Future<Output = Decision> + Send + 'static,
    {
        TransactionalProducer::new(self.clone(), config, check)
    }

    /// A pull consumer of a group over this client's connections.
    pub fn pull_consumer(&self, group: impl AsRef<str>) -> PullConsumer {
        PullConsumer::new(self.clone(), group.as_ref())
    }

    /// A consumer that takes messages from queues of its choice when it likes.
    pub fn lite_pull_consumer(&self, config: LitePullConfig) -> LitePullConsumer {
        LitePullConsumer::new(self.clone(), config)
    }

    /// Ends everything in good order: push consumers as by [`crate::PushConsumer::shutdown`], then sends that are under
    /// way are waited for (they end by their own time-outs), then traces are sent, the client's groups are taken off
    /// the brokers and the connections closed. Calls after this fail with [`crate::ClientError::Closed`]. Waits at most
    /// about 3 s for brokers that do not answer a farewell.
    pub async fn shutdown(&self) {
        let consumers = self.inner.callbacks.consumers();
        let ended = consumers.iter().map(|core| core.shut_down());
        for error in join_all(ended).await.into_iter().filter_map(Result::err) {
            tracing::warn!(%error, "offsets could not be stored; messages will come again");
        }
        self.inner.sends.close();
        self.inner.sends.wait().await;
        self.inner.trace_stop.cancel();
        self.inner.stop.cancel();
        self.inner.tasks.wait().await;
        let (producers, consumers) = {
            let mut members = self.inner.members.lock();
            let producers: Vec<String> = members.producers.drain().map(|(group, _)| group).collect();
            let consumers: Vec<String> = members.consumers.drain().map(|(group, _)| group).collect();
            (producers, consumers)
        };
        let mut farewells = Vec::new();
        for broker in self.inner.routes.brokers(consumers.is_empty()) {
            for group in &producers {
                farewells.push(self.unregister(broker.clone(), Some(group), None));
            }
            for group in &consumers {
                farewells.push(self.unregister(broker.clone(), None, Some(group)));
            }
        }
        join_all(farewells).await;
        self.inner.link.close().await;
    }

    async fn unregister(&self, broker: String, producer: Option<&str>, consumer: Option<&str>) {
        let header = UnregisterClient {
            client_id: &self.inner.id,
            producer_group: producer,
            consumer_group: consumer,
        };
        let request = Command::request(request::UNREGISTER_CLIENT).with_header(&header);
        if let Err(error) = self.inner.link.ask(&broker, request).await {
            tracing::debug!(broker, %error, "the broker could not be told that this client leaves");
        }
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.inner)
    }

    pub(crate) fn upgrade(inner: &Weak<Inner>) -> Option<Self> {
        inner.upgrade().map(|inner| Self { inner })
    }

    /// A heartbeat to all brokers out of turn, unless all of them heard the same within the last second.
    pub(crate) async fn beat(&self) {
        let brokers = self.inner.routes.brokers(false);
        let heard =
            |last: &Beat| last.at.elapsed() < Duration::from_secs(1) && brokers.is_subset(&last.brokers);
        if !self.inner.last_beat.lock().as_ref().is_some_and(heard) {
            self.beat_now().await;
        }
    }

    /// There is something new to tell: no earlier heartbeat will do.
    fn has_news(&self) {
        *self.inner.last_beat.lock() = None;
    }

    pub(crate) async fn beat_now(&self) {
        *self.inner.last_beat.lock() = Some(Beat {
            at: Instant::now(),
            brokers: self.inner.routes.brokers(false),
        });
        let heartbeat = self.inner.members.lock().heartbeat(&self.inner.id);
        let heart = Heart {
            id: self.inner.id.clone(),
            link: self.inner.link.clone(),
            routes: self.inner.routes.clone(),
        };
        let patience = self.inner.link.call_timeout();
        if tokio::time::timeout(patience, heart.beat(heartbeat))
            .await
            .is_err()
        {
            tracing::debug!(
                client = self.inner.id,
                ?patience,
                "not all brokers answered a heartbeat in time"
            );
        }
    }

    pub(crate) fn join_producers(&self, group: &str) {
        *self
            .inner
            .members
            .lock()
            .producers
            .entry(group.to_owned())
            .or_default() += 1;
        self.has_news();
    }

    pub(crate) fn leave_producers(&self, group: &str) {
        let mut members = self.inner.members.lock();
        if let Some(count) = members.producers.get_mut(group) {
            *count -= 1;
            if *count == 0 {
                members.producers.remove(group);
            }
        }
    }

    /// Makes the group known to the brokers of the cached routes, now and with each heartbeat.
    pub(crate) async fn join_consumers(&self, data: ConsumerData) {
        {
            let mut members = self.inner.members.lock();
            let entry = members
                .consumers
                .entry(data.group_name.clone())
                .or_insert((0, data));
            entry.0 += 1;
        }
        self.beat_now().await;
    }

    /// Tells other things of a group from the next heartbeat on.
    pub(crate) fn change_consumer(&self, data: ConsumerData) {
        if let Some(entry) = self.inner.members.lock().consumers.get_mut(&data.group_name) {
            entry.1 = data;
        }
        self.has_news();
    }

    /// Takes one consumer off the heartbeats; true if it was the group's last here.
    pub(crate) fn drop_consumer(&self, group: &str) -> bool {
        let mut members = self.inner.members.lock();
        let Some(entry) = members.consumers.get_mut(group) else {
            return false;
        };
        entry.0 -= 1;
        let last = entry.0 == 0;
        if last {
            members.consumers.remove(group);
        }
        last
    }

    /// Tells the brokers that this client has left a group.
    pub(crate) async fn unregister_consumer(&self, group: &str) {
        let brokers = self.inner.routes.brokers(false);
        let farewells = brokers
            .into_iter()
            .map(|broker| self.unregister(broker, None, Some(group)));
        join_all(farewells).await;
    }

    /// Runs something beside the caller, owned and ended by this client.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.inner.stop.clone();
        self.inner.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = stop.cancelled() => {}
            }
        });
    }
}

impl Members {
    fn heartbeat(&self, id: &str) -> HeartbeatData {
        let producers = self.producers.keys().map(|group| ProducerData {
            group_name: group.clone(),
        });
        HeartbeatData {
            client_id: id.to_owned(),
            producer_data_set: producers.collect(),
            consumer_data_set: self.consumers.values().map(|(_, data)| data.clone()).collect(),
        }
    }
}

struct Heart {
    id: String,
    link: Link,
    routes: RouteCache,
}

impl Heart {
    /// Sends one heartbeat to each broker: a client with producers only needs the masters.
    async fn beat(&self, data: HeartbeatData) {
        if data.producer_data_set.is_empty() && data.consumer_data_set.is_empty() {
            return;
        }
        let brokers = self.routes.brokers(data.consumer_data_set.is_empty());
        let patience = SLOW_BEAT.max(self.link.call_timeout());
        let request = Command::request(request::HEART_BEAT).with_body(fastjson::to_vec(&data));
        let beats = brokers.into_iter().map(|broker| {
            let request = request.clone();
            async move {
                if let Err(error) = self.link.ask_within(&broker, request, patience).await {
                    tracing::debug!(broker, client = self.id, %error, "a heartbeat was not accepted");
                }
            }
        });
        join_all(beats).await;
    }
}

/// How long a heartbeat may take. A broker that answers late is busy, not gone: to close its link for that would make every
/// member of its groups share the queues anew, which makes it busier still.
const SLOW_BEAT: Duration = Duration::from_secs(10);

/// The first heartbeat and route refresh come this soon, so that a new group is known at once.
const FIRST: Duration = Duration::from_secs(1);

/// Does something again and again until stopped, even in the middle of it.
async fn every<F, W>(period: Duration, stop: CancellationToken, mut work: F)
where
    F: FnMut() -> W,
    W: Future<Output = ()>,
{
    let period = period.max(Duration::from_millis(10));
    let mut ticks = interval_at(Instant::now() + period.min(FIRST), period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let round = async {
            ticks.tick().await;
            work().await;
        };
        tokio::select! {
            () = round => {}
            () = stop.cancelled() => return,
        }
    }
}
