//! The queues that a record is in: that of its topic, and those that it lists.
//!
//! A message may list further queues in the property INNER_MULTI_DISPATCH, parted by commas. The append gives it an offset
//! in each and writes these down in INNER_MULTI_QUEUE_OFFSET, in the same order. A listed queue has the number of the
//! message's own queue; light queues, whose names begin with `%LMQ%`, have number 0.

use ferromq_protocol::{
    names::topics,
    properties::{self, names},
    record::Record,
};

const COMMA: char = ',';

/// Whether this is the name of a light queue.
pub(crate) fn is_light(name: &str) -> bool {
    name.starts_with(topics::LMQ_PREFIX)
}

/// The queue that a name in the list stands for.
fn listed(name: &str, own_queue: i32) -> (&str, i32) {
    (name, if is_light(name) { 0 } else { own_queue })
}

/// The queues that a message about to be appended lists.
pub(crate) fn wanted(properties: &str, own_queue: i32) -> impl Iterator<Item = (&str, i32)> {
    properties::get(properties, names::INNER_MULTI_DISPATCH)
        .into_iter()
        .flat_map(|list| list.split(COMMA))
        .filter(|name| !name.is_empty())
        .map(move |name| listed(name, own_queue))
}

/// The properties of a message with the offsets that it gets in the queues that it lists.
pub(crate) fn with_offsets(properties: &str, offsets: impl Iterator<Item = i64>) -> String {
    let mut text = String::new();
    for offset in offsets {
        if !text.is_empty() {
            text.push(COMMA);
        }
        text.push_str(&offset.to_string());
    }
    let mut changed = properties::Builder::parse(properties);
    changed.put(names::INNER_MULTI_QUEUE_OFFSET, text);
    changed.build()
}

/// Queues, with offsets, that a stored record lists. Nothing if it doesn't list as many of one as of the other.
pub(crate) fn of_record<'p>(properties: &'p str, own_queue: i32) -> Vec<(&'p str, i32, i64)> {
    let Some(queues) = properties::get(properties, names::INNER_MULTI_DISPATCH) else {
        return Vec::new();
    };
    let Some(offsets) = properties::get(properties, names::INNER_MULTI_QUEUE_OFFSET) else {
        return Vec::new();
    };
    let (queues, offsets) = (
        queues
            .split(COMMA)
            .filter(|name| !name.is_empty())
            .collect::<Vec<&'p str>>(),
        offsets
            .split(COMMA)
            .map_while(|o| o.parse::<i64>().ok())
            .collect::<Vec<_>>(),
    );
    if queues.len() != offsets.len() {
        return Vec::new();
    }
    let places = queues.into_iter().zip(offsets);
    places
        .map(|(name, offset)| {
            let (topic, queue) = listed(name, own_queue);
            (topic, queue, offset)
        })
        .collect()
}

/// The offset that a record has in a queue, if it's in it.
pub(crate) fn offset_in(record: &Record<'_>, topic: &str, queue: i32) -> Option<i64> {
    if record.topic == topic && record.queue_id == queue {
        return Some(record.queue_offset);
    }
    let text = record.properties_text();
    of_record(&text, record.queue_id)
        .into_iter()
        .find(|(t, q, _)| *t == topic && *q == queue)
        .map(|(_, _, offset)| offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_and_offsets_go_together() {
        let list = "A\u{1}1\u{2}INNER_MULTI_DISPATCH\u{1}%LMQ%a,other";
        let queues: Vec<_> = wanted(list, 3).collect();
        assert_eq!(queues, [("%LMQ%a", 0), ("other", 3)]);
        let stored = with_offsets(list, [7, 12].into_iter());
        assert!(stored.contains("INNER_MULTI_QUEUE_OFFSET\u{1}7,12"));
        assert_eq!(of_record(&stored, 3), [("%LMQ%a", 0, 7), ("other", 3, 12)]);
        let again = with_offsets(&stored, [8, 13].into_iter());
        assert_eq!(of_record(&again, 3), [("%LMQ%a", 0, 8), ("other", 3, 13)]);
        assert!(of_record(list, 3).is_empty());
        assert!(of_record(&with_offsets(list, [7].into_iter()), 3).is_empty());
    }
}
