//! Consuming a queue in order: one task a queue, one call of the listener at a time, and only while the broker's lock
//! says that the queue is ours. What fails stays in front and the queue stands still for a while.

use std::sync::Arc;
use std::time::Duration;

use super::held::Held;
use super::{Core, Outcome};
use crate::received::ReceivedMessage;

/// Bounds of the pause after a failure, as in Java.
const SUSPEND: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(30));

pub(super) async fn consume(core: Arc<Core>, held: Arc<Held>) {
    while let Some(messages) = next(&core, &held).await {
        let Ok(turn) = core.turns.acquire().await else {
            return;
        };
        if held.stop.is_cancelled() || !held.is_locked() {
            continue;
        }
        Held::touch(&held.last_consume);
        let outcome = core.call(&held.queue, &messages).await.outcome();
        drop(turn);
        if settle(&core, &held, &messages, outcome).await {
            continue;
        }
        let pause = core.config.suspend.clamp(SUSPEND.0, SUSPEND.1);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = held.stop.cancelled() => return,
        }
    }
}

/// The messages in front, once there are some and they may be consumed. `None` when the queue is given up.
async fn next(core: &Core, held: &Held) -> Option<Vec<Arc<ReceivedMessage>>> {
    loop {
        if held.stop.is_cancelled() {
            return None;
        }
        tokio::select! {
            () = core.until_resumed() => {}
            () = held.stop.cancelled() => return None,
        }
        if held.is_locked() {
            let messages = held.cache.lock().front(core.config.batch.max(1));
            if !messages.is_empty() {
                return Some(messages);
            }
        }
        tokio::select! {
            () = held.arrived.notified() => {}
            () = held.stop.cancelled() => return None,
        }
    }
}

/// True if the queue may go on at once.
async fn settle(core: &Core, held: &Held, messages: &[Arc<ReceivedMessage>], outcome: Outcome) -> bool {
    let good = match outcome {
        Outcome::Done => messages.len(),
        Outcome::DoneUpTo(count) => count.min(messages.len()),
        _ => 0,
    };
    let mut done: Vec<i64> = messages[..good]
        .iter()
        .map(|message| message.queue_offset)
        .collect();
    let mut goes_on = true;
    for message in &messages[good..] {
        if !core.is_clustering() && outcome == Outcome::DeadLetter {
            done.push(message.queue_offset);
            continue;
        }
        let spent = core
            .config
            .max_retries
            .is_some_and(|most| message.reconsume_times >= most);
        let away = spent || outcome == Outcome::DeadLetter;
        if core.is_clustering() && away && core.send_to_dead_letters(message).await {
            done.push(message.queue_offset);
            continue;
        }
        goes_on = false;
        let mut again = ReceivedMessage::clone(message);
        again.reconsume_times = again.reconsume_times.saturating_add(1);
        held.cache.lock().replace(Arc::new(again));
    }
    if !done.is_empty() {
        core.note_done(held, done);
    }
    goes_on
}
