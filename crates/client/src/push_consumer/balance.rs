//! Which queues this consumer holds: looks at the group and the routes, takes what is its share, gives up the rest.

use std::collections::{BTreeMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferromq_protocol::body::{LockBatchRequestBody, LockBatchResponseBody};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::fastjson;
use ferromq_protocol::names::is_retry_topic;
use futures::{StreamExt, stream};

use super::held::Held;
use super::{Core, Order, StartFrom, orderly, pulling};
use crate::MessageQueue;
use crate::config::random;
use crate::error::{ClientError, Result};
use crate::link;

/// First pause before a look that did not go well is repeated; it doubles.
const SOON: Duration = Duration::from_secs(1);
/// Pause between two renewals of locks, which brokers keep for 60 s.
const RENEW_LOCKS: Duration = Duration::from_secs(20);
/// Queues started at the same time.
const AT_ONCE: usize = 32;

/// Looks when told, when a route changes, and regularly. Many reasons at once are one look.
pub(super) async fn keep(core: Arc<Core>) {
    let mut routes = core.client.inner().routes.changes();
    let mut again = SOON;
    loop {
        let complete = tokio::select! {
            complete = core.balance() => complete,
            () = core.stop.cancelled() => return,
        };
        let pause = if complete {
            again = SOON;
            core.config.balance_every
        } else {
            let pause = again.min(core.config.balance_every);
            again = (again * 2).min(core.config.balance_every);
            pause
        };
        tokio::select! {
            () = core.wake.notified() => {}
            changed = routes.changed() => if changed.is_ok() {
                // A broker that is new in the route must hear of the group first.
                core.client.beat().await;
            },
            () = tokio::time::sleep(pause) => {}
            () = core.stop.cancelled() => return,
        }
    }
}

pub(super) async fn save_offsets(core: Arc<Core>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(core.config.save_every) => {}
            () = core.stop.cancelled() => return,
        }
        if let Err(error) = core.offsets.persist().await {
            tracing::warn!(group = core.group, %error, "offsets could not be stored; they are tried again");
        }
    }
}

pub(super) async fn keep_locks(core: Arc<Core>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEW_LOCKS) => {}
            () = core.stop.cancelled() => return,
        }
        core.renew_locks().await;
    }
}

impl Core {
    /// One look at everything. False if some of it could not be seen or taken.
    async fn balance(self: &Arc<Self>) -> bool {
        let topics: Vec<String> = self.subscriptions.read().keys().cloned().collect();
        let unwanted: Vec<MessageQueue> = {
            let held = self.held.lock();
            held.keys()
                .filter(|queue| !topics.contains(&queue.topic))
                .cloned()
                .collect()
        };
        for queue in unwanted {
            self.give_up(&queue, true).await;
        }
        let mut complete = true;
        for topic in &topics {
            match self.balance_topic(topic).await {
                Ok(all) => complete &= all,
                Err(error) => {
                    if !(is_retry_topic(topic) && matches!(error, ClientError::NoRoute { .. })) {
                        tracing::warn!(group = self.group, topic, %error, "queues could not be shared out; what is held stays");
                    }
                    complete = false;
                }
            }
        }
        complete
    }

    async fn balance_topic(self: &Arc<Self>, topic: &str) -> Result<bool> {
        let route = self.client.inner().routes.get(topic).await?;
        let mine: HashSet<MessageQueue> = if self.is_clustering() {
            let members = self.members(topic).await?;
            let strategy = Arc::clone(&self.config.strategy);
            let (me, queues) = (self.client.id().to_owned(), route.subscribe.clone());
            let shared =
                std::panic::catch_unwind(AssertUnwindSafe(|| strategy.allocate(&me, &queues, &members)));
            let Ok(shared) = shared else {
                tracing::error!(
                    group = self.group,
                    topic,
                    "the strategy panicked; what is held stays"
                );
                return Ok(false);
            };
            shared.into_iter().collect()
        } else {
            route.subscribe.iter().cloned().collect()
        };
        let (lost, new): (Vec<MessageQueue>, Vec<MessageQueue>) = {
            let held = self.held.lock();
            let lost = held
                .keys()
                .filter(|queue| queue.topic == topic && !mine.contains(*queue));
            let lost = lost.cloned().collect();
            (
                lost,
                mine.iter()
                    .filter(|queue| !held.contains_key(*queue))
                    .cloned()
                    .collect(),
            )
        };
        for queue in &lost {
            self.give_up(queue, true).await;
        }
        let free = |queue: &MessageQueue| !self.leaving.lock().contains(queue);
        let (new, waiting): (Vec<_>, Vec<_>) = new.into_iter().partition(free);
        let complete = self.take(new).await;
        Ok(complete && waiting.is_empty())
    }

    /// The ids of the group's members, sorted, this one among them if the broker knows it.
    async fn members(&self, topic: &str) -> Result<Vec<String>> {
        let me = self.client.id();
        let members = self.ask_members(topic).await?;
        if members.iter().any(|member| member == me) {
            return Ok(members);
        }
        // A broker that has just started does not know us yet.
        self.client.beat_now().await;
        self.ask_members(topic).await
    }

    async fn ask_members(&self, topic: &str) -> Result<Vec<String>> {
        let route = self.client.inner().routes.get(topic).await?;
        let mut brokers: Vec<&String> = route
            .brokers
            .values()
            .filter_map(|ids| ids.values().next())
            .collect();
        if !brokers.is_empty() {
            let first = random() as usize % brokers.len();
            brokers.rotate_left(first);
        }
        let mut failed = ClientError::NoRoute {
            topic: topic.to_owned(),
        };
        for broker in brokers {
            match self.client.admin().group_members(broker, &self.group).await {
                Ok(members) => return Ok(members),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Starts to consume queues. False if some could not be locked or their offset not be read.
    async fn take(self: &Arc<Self>, queues: Vec<MessageQueue>) -> bool {
        if queues.is_empty() {
            return true;
        }
        let wanted = queues.len();
        let lockable = self.order == Order::PerQueue && self.is_clustering();
        let queues = if lockable { self.lock(queues).await } else { queues };
        let starts: Vec<_> = queues
            .into_iter()
            .map(|queue| self.start_queue(queue, lockable))
            .collect();
        let mut starts = stream::iter(starts).buffer_unordered(AT_ONCE);
        let mut taken = 0;
        while let Some(started) = starts.next().await {
            taken += usize::from(started);
        }
        taken == wanted
    }

    async fn start_queue(self: &Arc<Self>, queue: MessageQueue, locked: bool) -> bool {
        match self.first_offset(&queue).await {
            Ok(offset) => {
                self.add(queue, offset);
                true
            }
            Err(error) => {
                tracing::warn!(group = self.group, ?queue, %error, "where to start is not known; asked again soon");
                if locked {
                    self.unlock(&[queue]).await;
                }
                false
            }
        }
    }

    fn add(self: &Arc<Self>, queue: MessageQueue, offset: i64) {
        let held = Arc::new(Held::new(
            queue.clone(),
            offset,
            Arc::clone(&self.cached),
            self.stop.child_token(),
        ));
        tracing::info!(group = self.group, ?queue, offset, "the queue is taken");
        self.held.lock().insert(queue, Arc::clone(&held));
        self.spawn(pulling::pull(Arc::clone(self), Arc::clone(&held)));
        if self.order == Order::PerQueue {
            held.set_locked(true);
            if self.is_clustering() {
                self.leaving.lock().remove(&held.queue);
            }
            let core = Arc::clone(self);
            self.spawn(async move {
                orderly::consume(Arc::clone(&core), Arc::clone(&held)).await;
                if held.stop.is_cancelled() && !core.stop.is_cancelled() {
                    core.left(&held).await;
                }
            });
        }
    }

    /// The stored offset, else by the consumer's rule.
    async fn first_offset(&self, queue: &MessageQueue) -> Result<i64> {
        let by_rule = self.config.ignore_stored
            && !is_retry_topic(&queue.topic)
            && self.started.lock().insert(queue.clone());
        if !by_rule && let Some(offset) = self.offsets.read(queue).await? {
            self.offsets.advance(queue, offset);
            return Ok(offset);
        }
        let broker = self.fetcher.master(queue).await?;
        let admin = self.client.admin();
        let (topic, id) = (&queue.topic, queue.queue_id);
        let offset = match self.config.start {
            // A retried message must not be passed over because the group is young.
            StartFrom::Newest if is_retry_topic(topic) => 0,
            StartFrom::Newest => admin.max_offset(&broker, topic, id).await?,
            StartFrom::Oldest => admin.min_offset(&broker, topic, id).await?,
            StartFrom::Time(_) if is_retry_topic(topic) => admin.max_offset(&broker, topic, id).await?,
            StartFrom::Time(time) => admin.offset_by_time(&broker, topic, id, time).await?,
        };
        self.offsets.set(queue, offset);
        Ok(offset)
    }

    /// Stops to consume a queue and stores its offset. In order, a call of the listener that is under way ends first,
    /// beside the caller.
    async fn give_up(&self, queue: &MessageQueue, ours: bool) {
        let Some(held) = self.held.lock().remove(queue) else {
            return;
        };
        tracing::info!(group = self.group, ?queue, "the queue is given up");
        if !ours {
            held.set_locked(false);
            held.lost.store(true, Ordering::SeqCst);
        }
        if self.order == Order::PerQueue {
            self.leaving.lock().insert(queue.clone());
            // Its task sees this, ends, and calls `left`.
            held.stop.cancel();
            return;
        }
        held.stop.cancel();
        held.cache.lock().drop_all();
        self.store_and_forget(queue).await;
    }

    /// The last call of the listener for a queue in order is over.
    async fn left(&self, held: &Held) {
        held.cache.lock().drop_all();
        if held.lost.load(Ordering::SeqCst) {
            self.offsets.forget(&held.queue);
        } else {
            self.store_and_forget(&held.queue).await;
            if self.is_clustering() {
                self.unlock(std::slice::from_ref(&held.queue)).await;
            }
        }
        self.leaving.lock().remove(&held.queue);
        self.wake.notify_one();
    }

    async fn store_and_forget(&self, queue: &MessageQueue) {
        if let Err(error) = self.offsets.persist_queues(std::slice::from_ref(queue)).await {
            tracing::warn!(group = self.group, ?queue, %error, "the offset of a queue that goes to another member was not stored; messages come again");
        }
        self.offsets.forget(queue);
    }

    /// Asks the brokers for queues; gives those that are now ours.
    async fn lock(&self, queues: Vec<MessageQueue>) -> Vec<MessageQueue> {
        let mut ours = Vec::new();
        for (broker, queues) in self.by_master(queues).await {
            match self.ask_locks(request::LOCK_BATCH_MQ, &broker, &queues).await {
                Ok(locked) => ours.extend(queues.into_iter().filter(|queue| locked.contains(queue))),
                Err(error) => {
                    tracing::warn!(group = self.group, broker, %error, "queues could not be locked; asked again soon");
                }
            }
        }
        ours
    }

    pub(super) async fn unlock(&self, queues: &[MessageQueue]) {
        for (broker, queues) in self.by_master(queues.to_vec()).await {
            if let Err(error) = self.ask_locks(request::UNLOCK_BATCH_MQ, &broker, &queues).await {
                tracing::debug!(group = self.group, broker, %error, "queues could not be unlocked; the locks end by themselves");
            }
        }
    }

    /// A lock that the broker gave to another is lost: the queue is given up, and taken again when it is free.
    async fn renew_locks(self: &Arc<Self>) {
        if !self.is_clustering() {
            self.held.lock().values().for_each(|held| held.set_locked(true));
            return;
        }
        let held: Vec<MessageQueue> = self.held.lock().keys().cloned().collect();
        for (broker, queues) in self.by_master(held).await {
            let locked = match self.ask_locks(request::LOCK_BATCH_MQ, &broker, &queues).await {
                Ok(locked) => locked,
                Err(error) => {
                    tracing::warn!(group = self.group, broker, %error, "locks could not be renewed");
                    continue;
                }
            };
            for queue in &queues {
                let held = self.held.lock().get(queue).cloned();
                let Some(held) = held else { continue };
                if locked.contains(queue) {
                    held.set_locked(true);
                } else {
                    tracing::warn!(
                        group = self.group,
                        ?queue,
                        "the broker gave the queue's lock to another member"
                    );
                    self.give_up(queue, false).await;
                    self.wake.notify_one();
                }
            }
        }
    }

    async fn by_master(&self, queues: Vec<MessageQueue>) -> BTreeMap<String, Vec<MessageQueue>> {
        let mut by_master: BTreeMap<String, Vec<MessageQueue>> = BTreeMap::new();
        for queue in queues {
            if let Ok(broker) = self.fetcher.master(&queue).await {
                by_master.entry(broker).or_default().push(queue);
            }
        }
        by_master
    }

    async fn ask_locks(
        &self,
        code: i32,
        broker: &str,
        queues: &[MessageQueue],
    ) -> Result<HashSet<MessageQueue>> {
        let body = LockBatchRequestBody {
            client_id: self.client.id().to_owned(),
            consumer_group: self.group.clone(),
            mq_set: queues.to_vec(),
        };
        let request = Command::request(code).with_body(fastjson::to_vec(&body));
        let answer = self.client.inner().link.ask(broker, request).await?;
        if answer.body.is_empty() {
            return Ok(HashSet::new());
        }
        let body: LockBatchResponseBody = link::body(broker, link::name_of(code), &answer)?;
        Ok(body.lock_ok_mq_set.into_iter().collect())
    }
}
