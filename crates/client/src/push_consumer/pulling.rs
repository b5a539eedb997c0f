//! The task that pulls one queue, for as long as it is held.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::response;

use super::held::Held;
use super::{Core, Order};
use crate::error::ClientError;
use crate::fetch::Ask;
use crate::filter::Filter;
use crate::pull_consumer::PullStatus;
use crate::received::ReceivedMessage;

const AFTER_ERROR: Duration = Duration::from_secs(1);
const AFTER_BUSY: Duration = Duration::from_millis(20);
/// A look at the bounds, should nobody say that there is room again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

pub(super) async fn pull(core: Arc<Core>, held: Arc<Held>) {
    let stop = held.stop.clone();
    tokio::select! {
        () = stop.cancelled() => {}
        () = for_ever(&core, &held) => {}
    }
}

async fn for_ever(core: &Arc<Core>, held: &Arc<Held>) {
    loop {
        core.until_resumed().await;
        while held.cache.lock().is_full(&core.bounds(&held.queue.topic)) {
            core.stats.flow_controlled();
            tokio::select! {
                () = held.freed.notified() => {}
                () = tokio::time::sleep(LOOK_AGAIN) => {}
            }
        }
        let moved = held.moved.notified();
        let offset = held.cache.lock().next();
        let (filter, version) = core.filter(&held.queue.topic);
        let asked = ask(core, held, offset, &filter, version);
        let pulled = tokio::select! {
            pulled = core.fetcher.pull(&asked) => pulled,
            () = moved => continue,
        };
        Held::touch(&held.last_pull);
        let pulled = match pulled {
            Ok(pulled) => pulled,
            Err(error) => {
                pause_after(core, held, &error).await;
                continue;
            }
        };
        if pulled.status == PullStatus::OffsetMoved {
            tracing::warn!(
                queue = ?held.queue,
                offset,
                next = pulled.next_offset,
                "the offset was outside the queue and is corrected"
            );
            core.move_to(held, pulled.next_offset);
            tokio::time::sleep(AFTER_BUSY).await;
            continue;
        }
        let messages: Vec<Arc<ReceivedMessage>> = pulled.messages.into_iter().map(Arc::new).collect();
        core.stats.pulled(messages.len());
        let stored = {
            let mut cache = held.cache.lock();
            if !cache.put(offset, &messages, pulled.next_offset) {
                continue;
            }
            // Messages that a filter took out are done.
            (cache.len() == 0).then(|| cache.stored())
        };
        if let Some(stored) = stored {
            core.offsets.advance(&held.queue, stored);
        }
        if messages.is_empty() {
            continue;
        }
        match core.order {
            Order::Concurrent => core.pool.add(held, &messages, core.config.batch),
            Order::PerQueue => held.arrived.notify_one(),
        }
        if !core.config.pull_interval.is_zero() {
            tokio::time::sleep(core.config.pull_interval).await;
        }
    }
}

fn ask<'a>(core: &'a Core, held: &'a Held, offset: i64, filter: &'a Filter, version: i64) -> Ask<'a> {
    Ask {
        group: &core.group,
        queue: &held.queue,
        offset,
        max: core.config.pull_batch,
        hold: core.config.hold,
        filter,
        tell_filter: false,
        sub_version: version,
        commit: core
            .is_clustering()
            .then(|| core.offsets.get(&held.queue))
            .flatten(),
    }
}

async fn pause_after(core: &Core, held: &Held, error: &ClientError) {
    let queue = &held.queue;
    // The broker has forgotten the group, or has not yet heard of its new filter.
    let forgotten = matches!(
        error.code(),
        Some(
            response::SUBSCRIPTION_NOT_EXIST
                | response::SUBSCRIPTION_NOT_LATEST
                | response::SUBSCRIPTION_GROUP_NOT_EXIST
        )
    );
    if forgotten {
        tracing::debug!(?queue, %error, "the broker does not know the subscription and is told again");
        core.client.beat().await;
    } else {
        tracing::warn!(?queue, %error, "a pull failed and is repeated");
    }
    let pause = if error.is_busy() { AFTER_BUSY } else { AFTER_ERROR };
    tokio::time::sleep(pause).await;
}
