//! Which queue a message goes to: pure choice over a list.

use ferromq_protocol::java_hash::string_hash;

use crate::MessageQueue;

/// The next queue from `turn` on, going round, whose broker is not to be avoided; any queue if all are.
pub(crate) fn next_queue<'a>(
    queues: &'a [MessageQueue],
    turn: usize,
    avoid: &dyn Fn(&str) -> bool,
) -> Option<&'a MessageQueue> {
    if queues.is_empty() {
        return None;
    }
    let start = turn % queues.len();
    let round = || queues[start..].iter().chain(&queues[..start]);
    round()
        .find(|queue| !avoid(&queue.broker_name))
        .or_else(|| round().next())
}

/// The queue of an ordering key: Java's string hash, so that Java and Rust producers agree.
pub fn queue_for_key<'a>(queues: &'a [MessageQueue], key: &str) -> Option<&'a MessageQueue> {
    if queues.is_empty() {
        return None;
    }
    queues.get(string_hash(key).unsigned_abs() as usize % queues.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queues() -> Vec<MessageQueue> {
        let queue = |broker: &str, id| MessageQueue {
            topic: "T".into(),
            broker_name: broker.into(),
            queue_id: id,
        };
        vec![queue("a", 0), queue("a", 1), queue("b", 0), queue("b", 1)]
    }

    #[test]
    fn turns_go_round_all_queues() {
        let queues = queues();
        let picked: Vec<_> = (0..8)
            .filter_map(|t| next_queue(&queues, t, &|_| false))
            .collect();
        assert_eq!(picked[..4], queues.iter().collect::<Vec<_>>()[..]);
        assert_eq!(picked[..4], picked[4..]);
        assert_eq!(next_queue(&[], 3, &|_| false), None);
        assert!(next_queue(&queues, usize::MAX, &|_| false).is_some());
    }

    #[test]
    fn an_avoided_broker_is_taken_only_when_there_is_no_other() {
        let queues = queues();
        for turn in 0..4 {
            let queue = next_queue(&queues, turn, &|b| b == "a").map(|q| q.broker_name.as_str());
            assert_eq!(queue, Some("b"));
            assert!(next_queue(&queues, turn, &|_| true).is_some());
        }
    }

    #[test]
    fn keys_land_where_java_puts_them() {
        let queues = queues();
        // "TagA".hashCode() = 2598919, mod 4 = 3.
        assert_eq!(queue_for_key(&queues, "TagA"), Some(&queues[3]));
        // A string whose hash is the smallest number.
        assert_eq!(string_hash("polygenelubricants"), i32::MIN);
        assert_eq!(queue_for_key(&queues, "polygenelubricants"), Some(&queues[0]));
        assert_eq!(queue_for_key(&[], "x"), None);
    }
}
