//! Messages that retention will delete before a group has consumed them.
//!
//! A log file goes `fileReservedTime` after its last write. So a message that was stored before *now − retention + look-ahead*
//! may be gone within the look-ahead, and whoever has not read it by then never will. The look-ahead is 24 hours, or
//! half the retention when that is less, since with a short retention everything would be near its end always. It
//! costs nothing while the oldest message of the log is younger than that; else a binary search for each queue
//! in which a group lags.

use ferromq_protocol::names;
use serde::Serialize;

use crate::core::Core;

/// The longest look ahead, in milliseconds.
const LOOK_AHEAD_MS: i64 = 24 * 3_600_000;
/// The most rows that are kept; those with the most messages.
const MOST_ROWS: usize = 1_000;

/// What one group will miss of one topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Expiring {
    pub(crate) group: String,
    pub(crate) topic: String,
    /// Messages that will be deleted within the look-ahead unless they are consumed before.
    pub(crate) messages: i64,
    /// Age of the oldest of them.
    pub(crate) oldest_age_seconds: i64,
    /// Until the oldest of them may be deleted; 0 when that may be now.
    pub(crate) deleted_in_seconds: i64,
}

/// How far ahead is looked with this retention; both in milliseconds.
pub(crate) fn look_ahead(retention: i64) -> i64 {
    LOOK_AHEAD_MS.min(retention / 2)
}

/// How many of the offsets from `from` to before `end` have messages stored before `cutoff`. Times grow with offsets; a
/// message that is gone counts as old.
fn stored_before(from: i64, end: i64, cutoff: i64, time: &dyn Fn(i64) -> Option<i64>) -> i64 {
    let (mut low, mut high) = (from, end);
    while low < high {
        let middle = low + (high - low) / 2;
        if time(middle).is_none_or(|at| at < cutoff) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low - from
}

/// All that is about to be lost, the most first. Blocks on the disk when there is any.
pub(crate) fn find(core: &Core, now: i64) -> Vec<Expiring> {
    let hours = i64::try_from(core.settings().file_reserved_time).unwrap_or(i64::MAX);
    let retention = hours.saturating_mul(3_600_000);
    let cutoff = now
        .saturating_sub(retention)
        .saturating_add(look_ahead(retention));
    let oldest = core.store.figures().earliest_store_time;
    if oldest < 0 || oldest >= cutoff {
        return Vec::new();
    }
    let mut rows = Vec::new();
    for group in core.groups.names() {
        if names::is_system_group(&group) {
            continue;
        }
        for topic in core.offsets.topics_of(&group) {
            if !core.topics.contains(&topic) {
                continue;
            }
            let mut messages = 0;
            let mut first: Option<i64> = None;
            for (queue, consumed) in core.offsets.queues(&group, &topic) {
                let from = consumed.max(core.store.min_offset(&topic, queue));
                let end = core.store.max_offset(&topic, queue);
                let time = |offset| core.store.store_time(&topic, queue, offset);
                let lost = stored_before(from, end, cutoff, &time);
                if lost > 0 {
                    messages += lost;
                    let at = time(from).unwrap_or(oldest);
                    first = Some(first.map_or(at, |known| known.min(at)));
                }
            }
            if let Some(first) = first {
                rows.push(Expiring {
                    group: group.clone(),
                    topic,
                    messages,
                    oldest_age_seconds: now.saturating_sub(first).max(0) / 1_000,
                    deleted_in_seconds: first.saturating_add(retention).saturating_sub(now).max(0) / 1_000,
                });
            }
        }
    }
    rows.sort_by(|a, b| (b.messages, &a.group, &a.topic).cmp(&(a.messages, &b.group, &b.topic)));
    rows.truncate(MOST_ROWS);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_than_the_cutoff_is_counted() {
        let times = [10, 20, 20, 30, 40];
        let time = |offset: i64| times.get(offset as usize).copied();
        for (from, cutoff, count) in [
            (0, 25, 3),
            (2, 25, 1),
            (3, 25, 0),
            (0, 100, 5),
            (0, 5, 0),
            (5, 100, 0),
        ] {
            assert_eq!(stored_before(from, 5, cutoff, &time), count, "{from} {cutoff}");
        }
        // What cannot be read any more is old.
        let gone = |offset: i64| (offset >= 3).then_some(30);
        assert_eq!(stored_before(0, 5, 25, &gone), 3);
    }

    #[test]
    fn the_look_ahead_is_a_day_or_half_the_retention() {
        assert_eq!(look_ahead(72 * 3_600_000), 24 * 3_600_000);
        assert_eq!(look_ahead(2 * 3_600_000), 3_600_000);
        assert_eq!(look_ahead(0), 0);
    }
}
