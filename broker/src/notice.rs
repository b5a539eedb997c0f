//! Notices to consumers that their group's membership changed (request 40).
//!
//! Notices are coalesced: however many changes happen, a group is told at once and then at most once per
//! [`QUIET`], and the last change is always followed by a notice. What waits is a set of group names, so it is
//! bounded by the number of groups. A notice is one-way and never waits for a slow client.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::Command;
use ferromq_protocol::code::request;
use ferromq_protocol::header::ConsumerGroupHeader;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::core::Core;

/// The shortest time between two rounds of notices.
const QUIET: Duration = Duration::from_millis(100);

/// Groups whose members have to be told.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    waiting: Mutex<BTreeSet<String>>,
    wake: Notify,
}

impl Notices {
    /// The group's membership changed.
    pub(crate) fn changed(&self, group: &str) {
        let mut waiting = self.waiting.lock();
        if !waiting.contains(group) {
            waiting.insert(group.to_owned());
            self.wake.notify_one();
        }
    }

    fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.waiting.lock())
    }
}

/// Sends notices until told to stop.
pub(crate) async fn run(core: Arc<Core>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = core.notices.wake.notified() => {}
        }
        for group in core.notices.take() {
            let notice =
                Command::request(request::NOTIFY_CONSUMER_IDS_CHANGED).with_header(&ConsumerGroupHeader {
                    consumer_group: &group,
                });
            for conn in core.clients.to_notify(&group) {
                if let Err(error) = conn.oneway(notice.clone()) {
                    // It rebalances by itself within 20 s.
                    tracing::debug!(group, peer = %conn.peer(), %error, "a client was not told of its group's change");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(QUIET) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn many_changes_are_one_notice() {
        let notices = Notices::default();
        for _ in 0..100 {
            notices.changed("g");
            notices.changed("h");
        }
        notices.wake.notified().await;
        assert_eq!(notices.take().into_iter().collect::<Vec<_>>(), ["g", "h"]);
        assert!(notices.take().is_empty());
        notices.changed("g");
        notices.wake.notified().await;
        assert_eq!(notices.take().len(), 1);
    }
}
