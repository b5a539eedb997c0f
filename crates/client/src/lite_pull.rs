//! Messages taken when the application likes, from queues that it chose itself: Java's lite pull consumer with `assign`.
//!
//! Each assigned queue is pulled ahead, within bounds. [`LitePullConsumer::poll`] hands messages out and moves the
//! queue's position past them; [`LitePullConsumer::commit`] stores the positions with the group's offsets. With
//! `auto_commit` a poll first commits what earlier polls handed out, so a crash repeats at most the last messages and
//! skips none that were dealt with before the next poll. For queues shared out by the group, see
//! [`crate::ConsumerStream`].

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::MessageQueue;
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::fetch::{Ask, Fetcher};
use crate::filter::Filter;
use crate::offset_store::OffsetStore;
use crate::pull_consumer::PullStatus;
use crate::push_consumer::StartFrom;
use crate::received::ReceivedMessage;

const AFTER_ERROR: Duration = Duration::from_secs(1);
const AFTER_BUSY: Duration = Duration::from_millis(20);
/// Questions where to start at the same time.
const AT_ONCE: usize = 32;

/// Settings of a [`LitePullConsumer`].
#[derive(Debug, Clone)]
pub struct LitePullConfig {
    /// Consumer group: whose offsets are read and stored.
    pub group: String,
    /// What is wanted of every queue. Default everything.
    pub filter: Filter,
    /// Where to start in a queue without a stored offset. Default [`StartFrom::Newest`].
    pub start: StartFrom,
    /// Most messages that one poll hands out and one pull asks for. Default 10.
    pub batch: usize,
    /// Messages pulled ahead for each queue. Default 1000.
    pub ahead: usize,
    /// Messages pulled ahead of all queues together; a queue with none may pull once all the same. Default 10,000.
    pub ahead_of_all: usize,
    /// How long a broker may hold a pull. Default 20 s.
    pub hold: Duration,
    /// Commit with each poll what earlier polls handed out, at most so often; `None`: only when told to.
    /// Default 5 s.
    pub auto_commit: Option<Duration>,
}

impl LitePullConfig {
    /// Default settings for a group.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            filter: Filter::All,
            start: StartFrom::default(),
            batch: 10,
            ahead: 1000,
            ahead_of_all: 10_000,
            hold: Duration::from_secs(20),
            auto_commit: Some(Duration::from_secs(5)),
        }
    }

    /// Sets where to start without a stored offset.
    #[must_use]
    pub fn with_start(mut self, start: StartFrom) -> Self {
        self.start = start;
        self
    }

    /// Commits only when told to.
    #[must_use]
    pub fn without_auto_commit(mut self) -> Self {
        self.auto_commit = None;
        self
    }
}

/// Takes messages from queues of its choice. Ends with its last clone; call [`LitePullConsumer::shutdown`] to commit.
#[derive(Debug, Clone)]
pub struct LitePullConsumer {
    shared: Arc<Shared>,
    _end: Arc<tokio_util::sync::DropGuard>,
}

#[derive(Debug)]
struct Shared {
    config: LitePullConfig,
    group: String,
    fetcher: Fetcher,
    offsets: OffsetStore,
    state: Mutex<State>,
    /// There are messages, or there is room again.
    changed: Notify,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct State {
    queues: HashMap<MessageQueue, Place>,
    ready: VecDeque<Arc<ReceivedMessage>>,
    /// Of each message in `ready`, its queue.
    ready_of: VecDeque<MessageQueue>,
    paused: HashSet<MessageQueue>,
    committed_at: Option<Instant>,
}

#[derive(Debug)]
struct Place {
    /// The next message to hand out.
    position: i64,
    /// The next message to pull.
    next: i64,
    /// Messages pulled and not handed out.
    ahead: usize,
    moved: Arc<Notify>,
    stop: CancellationToken,
}

impl LitePullConsumer {
    pub(crate) fn new(client: Client, config: LitePullConfig) -> Self {
        let group = client.inner().namespace.group(&config.group);
        let fetcher = Fetcher::new(client);
        let stop = CancellationToken::new();
        let shared = Shared {
            offsets: OffsetStore::at_broker(fetcher.clone(), group.clone()),
            config,
            group,
            fetcher,
            state: Mutex::default(),
            changed: Notify::new(),
            tasks: TaskTracker::new(),
            stop: stop.clone(),
        };
        Self {
            shared: Arc::new(shared),
            _end: Arc::new(stop.drop_guard()),
        }
    }

    /// Takes these queues and gives up all others, whose positions are committed if they are by themselves. A queue
    /// that stays keeps its position; a new one starts at the group's offset, else by [`LitePullConfig::start`].
    ///
    /// # Errors
    /// Where to start in a queue could not be learnt; nothing is changed then.
    pub async fn assign(&self, queues: &[MessageQueue]) -> Result<()> {
        let shared = &self.shared;
        let new: Vec<MessageQueue> = {
            let state = shared.state.lock();
            queues
                .iter()
                .filter(|queue| !state.queues.contains_key(*queue))
                .cloned()
                .collect()
        };
        let first = new
            .into_iter()
            .map(|queue| async move { Ok((shared.first_offset(&queue).await?, queue)) });
        let starts: Vec<(i64, MessageQueue)> = stream::iter(first.collect::<Vec<_>>())
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        let wanted: HashSet<&MessageQueue> = queues.iter().collect();
        {
            let mut state = shared.state.lock();
            let gone: Vec<MessageQueue> = state
                .queues
                .keys()
                .filter(|queue| !wanted.contains(queue))
                .cloned()
                .collect();
            for queue in gone {
                if let Some(place) = state.queues.remove(&queue) {
                    place.stop.cancel();
                }
                state.forget_ready(&queue);
            }
        }
        for (offset, queue) in starts {
            let place = Place {
                position: offset,
                next: offset,
                ahead: 0,
                moved: Arc::default(),
                stop: shared.stop.child_token(),
            };
            let (moved, stop) = (Arc::clone(&place.moved), place.stop.clone());
            shared.state.lock().queues.insert(queue.clone(), place);
            let work = pull(Arc::clone(shared), queue, moved);
            shared.tasks.spawn(async move {
                tokio::select! {
                    () = work => {}
                    () = stop.cancelled() => {}
                }
            });
        }
        if shared.config.auto_commit.is_some() {
            shared.offsets.persist().await?;
        }
        Ok(())
    }

    /// Up to [`LitePullConfig::batch`] messages of one queue, in order; empty if none came in time. Cancel safe:
    /// dropped before it returns, nothing was handed out.
    ///
    /// # Errors
    /// [`ClientError::Closed`] after the shutdown. A commit that fails is logged and tried again.
    pub async fn poll(&self, timeout: Duration) -> Result<Vec<Arc<ReceivedMessage>>> {
        let until = Instant::now() + timeout;
        self.auto_commit().await;
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.shared.stop.is_cancelled() {
                return Err(ClientError::Closed);
            }
            let messages = self.shared.state.lock().take(self.shared.config.batch.max(1));
            if !messages.is_empty() {
                self.shared.changed.notify_waiters();
                return Ok(messages);
            }
            if tokio::time::timeout_at(until, changed).await.is_err() {
                return Ok(Vec::new());
            }
        }
    }

    /// Goes on elsewhere in an assigned queue; what was pulled ahead is forgotten.
    ///
    /// # Errors
    /// [`ClientError::InvalidArgument`] if the queue is not assigned or the offset lies outside of it.
    pub async fn seek(&self, queue: &MessageQueue, offset: i64) -> Result<()> {
        let bad = |reason: String| ClientError::InvalidArgument { reason };
        let (first, end) = (self.min_offset(queue).await?, self.max_offset(queue).await?);
        if !(first..=end).contains(&offset) {
            return Err(bad(format!(
                "offset {offset} lies outside of {queue:?}, which has {first} to {end}"
            )));
        }
        {
            let mut state = self.shared.state.lock();
            state.forget_ready(queue);
            let Some(place) = state.queues.get_mut(queue) else {
                return Err(bad(format!("{queue:?} is not assigned")));
            };
            (place.position, place.next, place.ahead) = (offset, offset, 0);
            place.moved.notify_waiters();
        }
        self.shared.changed.notify_waiters();
        Ok(())
    }

    /// The offset of the next message that a poll hands out; `None` if the queue is not assigned.
    pub fn position(&self, queue: &MessageQueue) -> Option<i64> {
        self.shared
            .state
            .lock()
            .queues
            .get(queue)
            .map(|place| place.position)
    }

    /// Stores the positions of all assigned queues as the group's offsets.
    ///
    /// # Errors
    /// The first that came; the others are tried all the same.
    pub async fn commit(&self) -> Result<()> {
        self.shared.note_positions();
        self.shared.offsets.persist().await
    }

    /// The group's stored offset of a queue; `None` if nothing is stored.
    pub async fn committed(&self, queue: &MessageQueue) -> Result<Option<i64>> {
        let broker = self.shared.fetcher.master(queue).await?;
        let admin = self.shared.fetcher.client().admin();
        admin
            .group_offset(&broker, &self.shared.group, &queue.topic, queue.queue_id)
            .await
    }

    /// Polls hand out nothing of these queues until [`LitePullConsumer::resume`].
    pub fn pause(&self, queues: &[MessageQueue]) {
        self.shared.state.lock().paused.extend(queues.iter().cloned());
    }

    /// Goes on after [`LitePullConsumer::pause`].
    pub fn resume(&self, queues: &[MessageQueue]) {
        self.shared
            .state
            .lock()
            .paused
            .retain(|queue| !queues.contains(queue));
        self.shared.changed.notify_waiters();
    }

    /// First offset of a queue.
    pub async fn min_offset(&self, queue: &MessageQueue) -> Result<i64> {
        let broker = self.shared.fetcher.master(queue).await?;
        let admin = self.shared.fetcher.client().admin();
        admin.min_offset(&broker, &queue.topic, queue.queue_id).await
    }

    /// One past the last offset of a queue.
    pub async fn max_offset(&self, queue: &MessageQueue) -> Result<i64> {
        let broker = self.shared.fetcher.master(queue).await?;
        let admin = self.shared.fetcher.client().admin();
        admin.max_offset(&broker, &queue.topic, queue.queue_id).await
    }

    /// Ends all pulls, and commits the positions unless that is left to the application.
    ///
    /// # Errors
    /// That they could not be stored.
    pub async fn shutdown(&self) -> Result<()> {
        self.shared.stop.cancel();
        self.shared.changed.notify_waiters();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        if self.shared.config.auto_commit.is_some() {
            return self.commit().await;
        }
        Ok(())
    }

    async fn auto_commit(&self) {
        let Some(every) = self.shared.config.auto_commit else {
            return;
        };
        self.shared.note_positions();
        let due = {
            let mut state = self.shared.state.lock();
            let due = state.committed_at.is_none_or(|at| at.elapsed() >= every);
            if due {
                state.committed_at = Some(Instant::now());
            }
            due
        };
        if due && let Err(error) = self.shared.offsets.persist().await {
            tracing::warn!(group = self.shared.group, %error, "positions could not be committed; they are tried again");
        }
    }
}

impl State {
    fn is_full(&self, place: &Place, config: &LitePullConfig) -> bool {
        place.ahead >= config.ahead || (place.ahead > 0 && self.ready.len() >= config.ahead_of_all)
    }

    /// The first messages that may go out: neighbours of one queue.
    fn take(&mut self, most: usize) -> Vec<Arc<ReceivedMessage>> {
        let Some(start) = self
            .ready_of
            .iter()
            .position(|queue| !self.paused.contains(queue))
        else {
            return Vec::new();
        };
        let queue = self.ready_of[start].clone();
        let same = self
            .ready_of
            .iter()
            .skip(start)
            .take(most)
            .take_while(|of| **of == queue)
            .count();
        self.ready_of.drain(start..start + same);
        let messages: Vec<_> = self.ready.drain(start..start + same).collect();
        if let (Some(place), Some(last)) = (self.queues.get_mut(&queue), messages.last()) {
            place.ahead = place.ahead.saturating_sub(messages.len());
            place.position = last.queue_offset + 1;
            if place.ahead == 0 {
                // What a filter took out behind it is dealt with too.
                place.position = place.next;
            }
        }
        messages
    }

    fn forget_ready(&mut self, queue: &MessageQueue) {
        let mut of = self.ready_of.iter();
        self.ready.retain(|_| of.next() != Some(queue));
        self.ready_of.retain(|of| of != queue);
    }
}

impl Shared {
    fn note_positions(&self) {
        for (queue, place) in &self.state.lock().queues {
            if self.offsets.get(queue) != Some(place.position) {
                self.offsets.set(queue, place.position);
            }
        }
    }

    async fn first_offset(&self, queue: &MessageQueue) -> Result<i64> {
        if let Some(offset) = self.offsets.read(queue).await? {
            return Ok(offset);
        }
        let broker = self.fetcher.master(queue).await?;
        let admin = self.fetcher.client().admin();
        match self.config.start {
            StartFrom::Newest => admin.max_offset(&broker, &queue.topic, queue.queue_id).await,
            StartFrom::Oldest => admin.min_offset(&broker, &queue.topic, queue.queue_id).await,
            StartFrom::Time(time) => {
                admin
                    .offset_by_time(&broker, &queue.topic, queue.queue_id, time)
                    .await
            }
        }
    }
}

/// Pulls one queue ahead for as long as it is assigned.
async fn pull(shared: Arc<Shared>, queue: MessageQueue, moved: Arc<Notify>) {
    loop {
        let seek = moved.notified();
        tokio::pin!(seek);
        seek.as_mut().enable();
        let look = || {
            let state = shared.state.lock();
            let place = state.queues.get(&queue)?;
            Some((place.next, state.is_full(place, &shared.config)))
        };
        let Some((mut offset, full)) = look() else { return };
        if full {
            // Only who waits is on the list of those to wake.
            let room = shared.changed.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            match look() {
                None => return,
                Some((_, true)) => {
                    room.await;
                    continue;
                }
                Some((next, false)) => offset = next,
            }
        }
        let ask = Ask {
            group: &shared.group,
            queue: &queue,
            offset,
            max: i32::try_from(shared.config.batch.clamp(1, 1024)).unwrap_or(1024),
            hold: shared.config.hold,
            filter: &shared.config.filter,
            tell_filter: true,
            sub_version: 0,
            commit: None,
        };
        let pulled = tokio::select! {
            pulled = shared.fetcher.pull(&ask) => pulled,
            () = seek => continue,
        };
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(error) => {
                tracing::warn!(?queue, %error, "a pull failed and is repeated");
                tokio::time::sleep(if error.is_busy() { AFTER_BUSY } else { AFTER_ERROR }).await;
                continue;
            }
        };
        {
            let mut state = shared.state.lock();
            let State {
                queues,
                ready,
                ready_of,
                ..
            } = &mut *state;
            let Some(place) = queues.get_mut(&queue) else {
                return;
            };
            if place.next != offset {
                // Moved meanwhile.
                continue;
            }
            place.next = pulled.next_offset;
            if place.ahead == 0 && pulled.messages.is_empty() {
                place.position = place.next;
            }
            place.ahead += pulled.messages.len();
            for message in pulled.messages {
                ready.push_back(Arc::new(message));
                ready_of.push_back(queue.clone());
            }
        }
        shared.changed.notify_waiters();
        if pulled.status == PullStatus::OffsetMoved {
            tokio::time::sleep(AFTER_BUSY).await;
        }
    }
}
