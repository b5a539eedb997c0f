//! Finding messages by time and by key.

use bytes::Bytes;
use ferromq_protocol::{
    properties::{self, names},
    record::{Check, Entry, parse},
};

use crate::{KeyQuery, KeyQueryResult, consume_queue::Queue, core::Core};

impl Core {
    pub(crate) fn unit_store_time(&self, queue: &Queue, offset: i64) -> Option<i64> {
        let unit = queue.unit(&self.dispatch.queues.files, offset).ok()??;
        if unit.is_pre_blank() {
            return None;
        }
        self.log.store_time(unit.physical)
    }

    /// The message stored nearest to `timestamp`: of two equally near ones the earlier, of several at one time the first.
    pub(crate) fn offset_by_time(&self, queue: &Queue, timestamp: i64) -> i64 {
        let (min, max) = queue.range();
        if min >= max {
            return 0;
        }
        // The first message at or after the time. Records that are gone count as before it.
        let (mut low, mut high) = (min, max);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.unit_store_time(queue, middle) {
                Some(time) if time >= timestamp => high = middle,
                _ => low = middle + 1,
            }
        }
        if low == max {
            return max - 1;
        }
        let Some(after) = self.unit_store_time(queue, low) else {
            return low;
        };
        let before = (low > min)
            .then(|| self.unit_store_time(queue, low - 1))
            .flatten();
        match before {
            Some(before)
                if after != timestamp
                    && timestamp.saturating_sub(before) <= after.saturating_sub(timestamp) =>
            {
                low - 1
            }
            _ => low,
        }
    }

    pub(crate) fn query(&self, query: &KeyQuery<'_>) -> KeyQueryResult {
        let (time, offset) = self.dispatch.index.end();
        let mut found: Vec<(i64, Bytes)> = Vec::new();
        let most = query.max_messages.min(self.config.max_query_messages);
        if most == 0 || self.check_readable().is_err() {
            return KeyQueryResult {
                records: Vec::new(),
                last_update_timestamp: time,
                last_update_offset: offset,
            };
        }
        let result = self
            .dispatch
            .index
            .find(query.topic, query.key, query.begin, query.end, |physical| {
                if found.iter().all(|(p, _)| *p != physical)
                    && let Some(bytes) = self.log.look_up(physical)
                    && has_key(&bytes, query)
                {
                    found.push((physical, bytes));
                }
                found.len() >= most
            });
        if let Err(error) = result {
            tracing::warn!(%error, topic = query.topic, "cannot read the message index");
        }
        found.sort_by_key(|(physical, _)| *physical);
        KeyQueryResult {
            records: found.into_iter().map(|(_, bytes)| bytes).collect(),
            last_update_timestamp: time,
            last_update_offset: offset,
        }
    }
}

fn has_key(bytes: &[u8], query: &KeyQuery<'_>) -> bool {
    let Ok(Entry::Record(record)) = parse(bytes, Check::None) else {
        return false;
    };
    let text = record.properties_text();
    record.topic == query.topic
        && (query.begin..=query.end).contains(&record.store_timestamp)
        && (properties::get(&text, names::UNIQ_KEY) == Some(query.key)
            || properties::get(&text, names::KEYS).is_some_and(|k| k.split(' ').any(|k| k == query.key)))
}
