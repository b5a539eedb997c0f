//! Receiving a whole topic alone: all its queues, from where the group left off.
//!
//! One task a queue pulls and hands batches over a bounded channel, so that a slow receiver slows the pulls. A queue
//! that appears later is taken up within seconds. A batch counts as done when the receiver says so; offsets of what
//! is done are stored every five seconds and at the end, so after a crash a message comes again but none is skipped.
//! Members of the group do not share the queues: every [`GroupConsumer`] of a topic receives all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{ConsumeFromWhere, ConsumeType, ConsumerData, MessageModel, SubscriptionData};
use futures::future::join_all;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::MessageQueue;
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::producer::now_millis;
use crate::pull_consumer::{PullConsumer, PullRequest, PullStatus};
use crate::received::ReceivedMessage;

const STORE_OFFSETS: Duration = Duration::from_secs(5);
const LOOK_FOR_QUEUES: Duration = Duration::from_secs(3);
const AFTER_ERROR: Duration = Duration::from_secs(1);
const AFTER_BUSY: Duration = Duration::from_millis(20);

/// Where to start in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartFrom {
    /// At the group's stored offset, else at the oldest message.
    #[default]
    Stored,
    /// At the oldest message, whatever is stored.
    Oldest,
}

/// Settings of a [`GroupConsumer`].
#[derive(Debug, Clone)]
pub struct GroupConsumerConfig {
    /// Consumer group; brokers create it if they may.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// Where to start. Default [`StartFrom::Stored`].
    pub start: StartFrom,
    /// What each pull asks for. Default 32 messages of any tag, held for 15 s.
    pub pull: PullRequest,
    /// Batches that may wait for the receiver. Default 64.
    pub buffer: usize,
}

impl GroupConsumerConfig {
    /// Default settings for a group and topic.
    pub fn new(group: impl Into<String>, topic: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            topic: topic.into(),
            start: StartFrom::default(),
            pull: PullRequest::default(),
            buffer: 64,
        }
    }

    /// Sets where to start.
    #[must_use]
    pub fn with_start(mut self, start: StartFrom) -> Self {
        self.start = start;
        self
    }

    /// Sets what each pull asks for.
    #[must_use]
    pub fn with_pull(mut self, pull: PullRequest) -> Self {
        self.pull = pull;
        self
    }
}

/// Messages of one queue, in order.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Batch {
    /// The queue.
    pub queue: MessageQueue,
    /// The messages, at least one.
    pub messages: Vec<ReceivedMessage>,
    next_offset: i64,
}

/// Receives all queues of a topic. End it with [`GroupConsumer::shutdown`] to store the last offsets.
#[derive(Debug)]
pub struct GroupConsumer {
    batches: mpsc::Receiver<Batch>,
    shared: Arc<Shared>,
    tasks: TaskTracker,
    stop: CancellationToken,
    left: bool,
}

#[derive(Debug)]
struct Shared {
    consumer: PullConsumer,
    config: GroupConsumerConfig,
    done: Mutex<HashMap<MessageQueue, i64>>,
}

impl Drop for GroupConsumer {
    fn drop(&mut self) {
        self.stop.cancel();
        if !self.left {
            self.shared
                .consumer
                .client()
                .drop_consumer(&self.shared.config.group);
        }
    }
}

impl GroupConsumer {
    /// Joins the group and starts to pull.
    ///
    /// # Errors
    /// [`ClientError::NoRoute`] if the topic does not exist, [`ClientError::NoQueue`] if it may not be read.
    pub async fn start(client: &Client, config: GroupConsumerConfig) -> Result<Self> {
        let consumer = client.pull_consumer(config.group.clone());
        let queues = consumer.queues(&config.topic).await?;
        client.join_consumers(membership(&config)).await;
        let (sender, batches) = mpsc::channel(config.buffer.max(1));
        let shared = Arc::new(Shared {
            consumer,
            config,
            done: Mutex::default(),
        });
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let keeper = keep(Arc::clone(&shared), queues, sender, tasks.clone(), stop.clone());
        tasks.spawn(until(stop.clone(), keeper));
        tasks.spawn(until(stop.clone(), store_regularly(Arc::clone(&shared))));
        Ok(Self {
            batches,
            shared,
            tasks,
            stop,
            left: false,
        })
    }

    /// The next batch of any queue. Waits until there is one. Cancel safe: no batch is lost.
    pub async fn next(&mut self) -> Option<Batch> {
        self.batches.recv().await
    }

    /// Says that a batch is dealt with, and all before it in its queue.
    pub fn done(&self, batch: &Batch) {
        self.shared
            .done
            .lock()
            .insert(batch.queue.clone(), batch.next_offset);
    }

    /// Stores the offsets of all that is done, now.
    ///
    /// # Errors
    /// The first that came; the others are tried all the same.
    pub async fn store_offsets(&self) -> Result<()> {
        self.shared.store().await
    }

    /// Stops pulling, stores the offsets and leaves the group.
    ///
    /// # Errors
    /// That the offsets could not be stored; the group is left all the same.
    pub async fn shutdown(mut self) -> Result<()> {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        let stored = self.shared.store().await;
        let (client, group) = (self.shared.consumer.client(), &self.shared.config.group);
        self.left = true;
        if client.drop_consumer(group) {
            client.unregister_consumer(group).await;
        }
        stored
    }
}

impl Shared {
    async fn store(&self) -> Result<()> {
        let done: Vec<(MessageQueue, i64)> = self.done.lock().drain().collect();
        let stores = done
            .iter()
            .map(|(queue, offset)| self.consumer.commit(queue, *offset));
        let mut result = Ok(());
        for ((queue, offset), stored) in done.iter().zip(join_all(stores).await) {
            if let Err(error) = stored {
                // Stored with the next round unless more has been done meanwhile.
                self.done.lock().entry(queue.clone()).or_insert(*offset);
                if result.is_ok() {
                    result = Err(error);
                }
            }
        }
        result
    }

    async fn first_offset(&self, queue: &MessageQueue) -> Result<i64> {
        if self.config.start == StartFrom::Stored
            && let Some(offset) = self.consumer.committed(queue).await?
        {
            return Ok(offset);
        }
        self.consumer.min_offset(queue).await
    }
}

/// Starts a reader for each queue, and for queues that appear later.
async fn keep(
    shared: Arc<Shared>,
    mut queues: Vec<MessageQueue>,
    sender: mpsc::Sender<Batch>,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let mut have = BTreeSet::new();
    loop {
        for queue in queues {
            if have.insert(queue.clone()) {
                let reader = read(Arc::clone(&shared), queue, sender.clone());
                tasks.spawn(until(stop.clone(), reader));
            }
        }
        tokio::time::sleep(LOOK_FOR_QUEUES).await;
        queues = shared
            .consumer
            .queues(&shared.config.topic)
            .await
            .unwrap_or_default();
    }
}

/// Pulls one queue for ever.
async fn read(shared: Arc<Shared>, queue: MessageQueue, sender: mpsc::Sender<Batch>) {
    let mut offset = loop {
        match shared.first_offset(&queue).await {
            Ok(offset) => break offset,
            Err(error) => pause_after(&queue, &error).await,
        }
    };
    loop {
        let pulled = match shared.consumer.pull(&queue, offset, &shared.config.pull).await {
            Ok(pulled) => pulled,
            Err(error) => {
                pause_after(&queue, &error).await;
                continue;
            }
        };
        if pulled.status == PullStatus::OffsetMoved {
            tracing::warn!(
                ?queue,
                offset,
                next = pulled.next_offset,
                "the offset was outside the queue"
            );
        }
        offset = pulled.next_offset;
        if !pulled.messages.is_empty() {
            let batch = Batch {
                queue: queue.clone(),
                messages: pulled.messages,
                next_offset: offset,
            };
            if sender.send(batch).await.is_err() {
                return;
            }
        } else if pulled.status == PullStatus::OffsetMoved {
            // A queue that keeps moving must not be asked without a pause.
            tokio::time::sleep(AFTER_BUSY).await;
        }
    }
}

async fn pause_after(queue: &MessageQueue, error: &ClientError) {
    let pause = if error.is_busy() { AFTER_BUSY } else { AFTER_ERROR };
    tracing::warn!(broker = queue.broker_name, queue = queue.queue_id, %error, "a pull failed and is repeated");
    tokio::time::sleep(pause).await;
}

async fn store_regularly(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(STORE_OFFSETS).await;
        if let Err(error) = shared.store().await {
            tracing::warn!(%error, "offsets could not be stored; they are tried again");
        }
    }
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        () = stop.cancelled() => {}
    }
}

fn membership(config: &GroupConsumerConfig) -> ConsumerData {
    let subscription = SubscriptionData {
        sub_version: now_millis(),
        ..SubscriptionData::by_tags(&config.topic, &config.pull.tags)
    };
    ConsumerData {
        group_name: config.group.clone(),
        consume_type: Some(ConsumeType::Actively),
        message_model: Some(MessageModel::Clustering),
        consume_from_where: Some(ConsumeFromWhere::FirstOffset),
        subscription_data_set: vec![subscription],
        ..ConsumerData::default()
    }
}
