//! What is done every few seconds while the broker runs: tables are saved, silent clients dropped, old locks forgotten, samples
//! taken.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::sync::CancellationToken;

use crate::clock::{now_ms, steady_ms};
use crate::core::Core;
use crate::stats::SAMPLE_EVERY_MS;
use crate::{expiring, transaction};

/// A client that sent no heartbeat for this long is dropped.
const CLIENT_LIFE_MS: i64 = 120_000;
/// How often clients and locks are looked over.
const LOOK_OVER: Duration = Duration::from_millis(SAMPLE_EVERY_MS);
/// How long a table that was marked as changed may wait for its save.
const SAVE_SOON: Duration = Duration::from_millis(500);

/// Saves progress, drops silent clients, forgets old locks, takes samples.
pub(crate) async fn run(core: Arc<Core>, stop: CancellationToken) {
    let mut offsets = interval(Duration::from_millis(
        core.settings().flush_consumer_offset_interval,
    ));
    offsets.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look_over = interval(LOOK_OVER);
    loop {
        let all = tokio::select! {
            () = stop.cancelled() => return,
            _ = offsets.tick() => false,
            () = core.unsaved.notified() => {
                // More changes are likely on their way.
                sleep(SAVE_SOON).await;
                true
            }
            _ = look_over.tick() => {
                let now = now_ms();
                core.stats.sample(now);
                core.items.sample(now);
                core.locks.expire(steady_ms());
                let keep = core.settings().filter_data_clean_time_span;
                core.filters.clean(now, i64::try_from(keep).unwrap_or(i64::MAX));
                let looking = core.clone();
                core.tasks.spawn_blocking(move || {
                    if let Err(error) = looking.save_filters() {
                        tracing::warn!(%error, "the filter data of consumers could not be saved; it is tried again");
                    }
                    let found = expiring::find(&looking, now_ms());
                    *looking.expiring.write() = found.into();
                });
                for conn in core.clients.silent_since(steady_ms() - CLIENT_LIFE_MS) {
                    tracing::info!(peer = %conn.peer(), "a client sent no heartbeat for 120 s; its connection is closed");
                    conn.close("no heartbeat for 120 s");
                }
                continue;
            }
        };
        let saving = core.clone();
        let saved = core.tasks.spawn_blocking(move || {
            if all {
                saving.save_topics()?;
                saving.save_groups()?;
            }
            transaction::save_progress(&saving);
            saving.save_offsets()
        });
        match saved.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::error!(%error, "a table could not be saved; it is tried again"),
            Err(error) => tracing::error!(%error, "the thread that saves tables failed"),
        }
    }
}
