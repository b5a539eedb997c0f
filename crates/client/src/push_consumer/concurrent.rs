//! Consuming many messages of a queue at once, in no order: a number of workers take from one list.
//!
//! The list needs no bound of its own: the bounds of each queue's cache stop the pulls.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::held::Held;
use super::{Core, Outcome};
use crate::received::ReceivedMessage;

/// A message that could neither be retried at a broker nor sent anew is delivered again here after this time.
const HERE_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Work {
    held: Arc<Held>,
    messages: Vec<Arc<ReceivedMessage>>,
}

#[derive(Debug)]
pub(super) struct Pool {
    list: Mutex<VecDeque<Work>>,
    ready: Semaphore,
}

impl Pool {
    pub(super) fn new() -> Self {
        Self {
            list: Mutex::default(),
            ready: Semaphore::new(0),
        }
    }

    pub(super) fn add(&self, held: &Arc<Held>, messages: &[Arc<ReceivedMessage>], batch: usize) {
        let mut list = self.list.lock();
        let mut works = 0;
        for chunk in messages.chunks(batch.max(1)) {
            list.push_back(Work {
                held: Arc::clone(held),
                messages: chunk.to_vec(),
            });
            works += 1;
        }
        drop(list);
        self.ready.add_permits(works);
    }

    async fn take(&self) -> Option<Work> {
        self.ready.acquire().await.ok()?.forget();
        self.list.lock().pop_front()
    }
}

/// One of the workers. Ends between two calls of the listener.
pub(super) async fn work(core: Arc<Core>) {
    loop {
        let work = tokio::select! {
            () = core.stop.cancelled() => return,
            work = core.pool.take() => work,
        };
        let Some(Work { held, messages }) = work else {
            continue;
        };
        core.until_resumed().await;
        if core.stop.is_cancelled() {
            return;
        }
        if held.cache.lock().is_dropped() {
            continue;
        }
        Held::touch(&held.last_consume);
        let ended = core.call(&held.queue, &messages).await;
        settle(&core, &held, messages, ended.outcome()).await;
    }
}

/// Sends back what failed, and notes what is done.
async fn settle(core: &Arc<Core>, held: &Arc<Held>, messages: Vec<Arc<ReceivedMessage>>, outcome: Outcome) {
    let good = match outcome {
        Outcome::Done => messages.len(),
        Outcome::DoneUpTo(count) => count.min(messages.len()),
        _ => 0,
    };
    let level = match outcome {
        Outcome::RetryAtLevel(level) => i32::from(level),
        Outcome::DeadLetter => -1,
        _ => 0,
    };
    let mut done: Vec<i64> = messages[..good]
        .iter()
        .map(|message| message.queue_offset)
        .collect();
    let mut left = Vec::new();
    for message in messages.into_iter().skip(good) {
        if held.cache.lock().is_dropped() {
            // Another member has the queue and will get the message.
            return;
        }
        if core.stop.is_cancelled() {
            // The next member starts with it, at once and uncounted.
            break;
        }
        if !core.is_clustering() {
            tracing::warn!(
                id = message.message_id(),
                "a message failed; broadcasting groups do not retry"
            );
            done.push(message.queue_offset);
        } else if core.send_back(&held.queue, &message, level).await {
            done.push(message.queue_offset);
        } else {
            left.push(message);
        }
    }
    if !left.is_empty() {
        let mut cache = held.cache.lock();
        for message in &mut left {
            let mut again = ReceivedMessage::clone(message);
            again.reconsume_times += 1;
            *message = Arc::new(again);
            cache.replace(Arc::clone(message));
        }
        drop(cache);
        let (core, held) = (Arc::clone(core), Arc::clone(held));
        let stop = held.stop.clone();
        let tasks = core.tasks.clone();
        tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(HERE_AGAIN) => core.pool.add(&held, &left, core.config.batch),
                () = stop.cancelled() => {}
            }
        });
    }
    core.note_done(held, done);
}
