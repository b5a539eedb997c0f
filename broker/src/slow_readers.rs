//! Groups that read so far behind the log's end that they cost everyone else the disk's cache.
//!
//! With `disableConsumeIfConsumerReadSlowly` each pull that finds messages notes how far from the end of the log they were. Every
//! `consumerFallbehindCheckInterval` the latest note of each queue is looked at, and a group that is behind by more than
//! `consumerFallbehindThreshold` in any of them is no longer given messages until an administrator turns its
//! `consumeEnable` on again. What holds: only what was read since the last look counts, so that a group that has stopped
//! reading, or has caught up, is left alone; the table is empty after each look.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::SubscriptionGroupConfig;
use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::clock::now_ms;
use crate::core::Core;

/// Bytes behind, by group, topic and queue.
#[derive(Debug, Default)]
pub(crate) struct SlowReaders {
    behind: Mutex<HashMap<(String, String, i32), u64>>,
}

impl SlowReaders {
    /// A group was given messages of a queue whose last one was this far from the log's end.
    pub(crate) fn read(&self, group: &str, topic: &str, queue_id: i32, behind: u64) {
        let key = (group.to_owned(), topic.to_owned(), queue_id);
        self.behind.lock().insert(key, behind);
    }

    /// The groups that were too far behind where they read last, each with its worst; forgets everything.
    fn too_far(&self, threshold: u64) -> Vec<(String, u64)> {
        let mut worst: HashMap<String, u64> = HashMap::new();
        for ((group, _, _), behind) in self.behind.lock().drain() {
            if behind > threshold {
                let known = worst.entry(group).or_default();
                *known = behind.max(*known);
            }
        }
        worst.into_iter().collect()
    }
}

/// Turns such groups off, until told to stop.
pub(crate) async fn run(core: Arc<Core>, stop: CancellationToken) {
    let every = Duration::from_millis(core.settings().consumer_fallbehind_check_interval);
    let mut look = interval(every);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => {}
        }
        let settings = core.settings();
        let found = core.slow_readers.too_far(settings.consumer_fallbehind_threshold);
        if !settings.disable_consume_if_consumer_read_slowly {
            continue;
        }
        for (group, behind) in found {
            let Some(config) = core.groups.get(&group).filter(|g| g.consume_enable) else {
                continue;
            };
            let off = SubscriptionGroupConfig {
                consume_enable: false,
                ..(*config).clone()
            };
            if core.groups.put(off, now_ms()) {
                tracing::warn!(
                    group,
                    behind,
                    "a consumer group reads too far behind (consumerFallbehindThreshold) and gets no more messages; when \
                     that is mended, turn its consumeEnable on again"
                );
                core.save_soon();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_read_of_each_queue_counts_and_only_once() {
        let readers = SlowReaders::default();
        readers.read("slow", "T", 0, 500);
        readers.read("slow", "T", 1, 900);
        readers.read("caught-up", "T", 0, 5_000);
        readers.read("caught-up", "T", 0, 10);
        readers.read("near", "T", 0, 100);
        assert_eq!(readers.too_far(100), [("slow".to_owned(), 900)]);
        assert!(readers.too_far(0).is_empty());
    }
}
