//! The messages of one queue that were pulled and are not yet dealt with: Java's process queue, as a plain value.
//!
//! Messages lie in the order of their offsets. What is done leaves a gap until all before it is done too; so the first
//! message left is the offset that may be stored, and a crash repeats messages but skips none. `next` is one past
//! everything that was looked at, messages that a filter took out included.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::received::ReceivedMessage;

#[derive(Debug)]
struct Entry {
    offset: i64,
    /// `None` once it is done.
    message: Option<Arc<ReceivedMessage>>,
}

/// What all queues of a consumer hold together.
#[derive(Debug, Default)]
pub(super) struct Total {
    messages: AtomicUsize,
    bytes: AtomicUsize,
}

impl Total {
    fn add(&self, messages: usize, bytes: usize) {
        self.messages.fetch_add(messages, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn take_off(&self, messages: usize, bytes: usize) {
        self.messages.fetch_sub(messages, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn is_over(&self, bounds: &Bounds) -> bool {
        self.messages.load(Ordering::Relaxed) >= bounds.all_messages
            || self.bytes.load(Ordering::Relaxed) >= bounds.all_bytes
    }
}

#[derive(Debug)]
pub(super) struct Cache {
    entries: VecDeque<Entry>,
    total: Arc<Total>,
    next: i64,
    count: usize,
    bytes: usize,
    dropped: bool,
}

/// When to stop pulling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) messages: usize,
    pub(super) bytes: usize,
    /// Offsets between the first and the last message; `None` where order keeps the span small by itself.
    pub(super) span: Option<i64>,
    /// Of all queues together.
    pub(super) all_messages: usize,
    pub(super) all_bytes: usize,
}

impl Drop for Cache {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Cache {
    pub(super) fn starting_at(next: i64, total: Arc<Total>) -> Self {
        Self {
            entries: VecDeque::new(),
            total,
            next,
            count: 0,
            bytes: 0,
            dropped: false,
        }
    }

    /// Where to pull next.
    pub(super) fn next(&self) -> i64 {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// First and last offset of what is here.
    pub(super) fn range(&self) -> Option<(i64, i64)> {
        Some((self.entries.front()?.offset, self.entries.back()?.offset))
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.dropped
    }

    /// The queue is no longer ours: nothing is given out or stored any more.
    pub(super) fn drop_all(&mut self) {
        self.dropped = true;
        self.clear();
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.total.take_off(self.count, self.bytes);
        (self.count, self.bytes) = (0, 0);
    }

    /// Whether to wait before the next pull. A queue that holds nothing may always pull once: no other can keep it from
    /// going on.
    pub(super) fn is_full(&self, bounds: &Bounds) -> bool {
        let span = self.range().map_or(0, |(first, last)| last - first);
        self.count >= bounds.messages
            || self.bytes >= bounds.bytes
            || bounds.span.is_some_and(|most| span > most)
            || (self.count > 0 && self.total.is_over(bounds))
    }

    /// Takes the answer to a pull at `asked`. False, and nothing taken, if the place to pull was moved meanwhile.
    pub(super) fn put(&mut self, asked: i64, messages: &[Arc<ReceivedMessage>], next: i64) -> bool {
        if self.dropped || asked != self.next {
            return false;
        }
        let bytes: usize = messages.iter().map(|message| weight(message)).sum();
        self.count += messages.len();
        self.bytes += bytes;
        self.total.add(messages.len(), bytes);
        for message in messages {
            self.entries.push_back(Entry {
                offset: message.queue_offset,
                message: Some(Arc::clone(message)),
            });
        }
        let last = self.entries.back().map_or(i64::MIN, |entry| entry.offset + 1);
        self.next = next.max(last);
        true
    }

    /// The first `most` messages, which stay.
    pub(super) fn front(&self, most: usize) -> Vec<Arc<ReceivedMessage>> {
        let messages = self.entries.iter().filter_map(|entry| entry.message.clone());
        messages.take(most).collect()
    }

    /// Replaces a message by one that was delivered once more.
    pub(super) fn replace(&mut self, message: Arc<ReceivedMessage>) {
        if let Some(entry) = self.find(message.queue_offset)
            && entry.message.is_some()
        {
            entry.message = Some(message);
        }
    }

    /// Deals with messages; gives the offset that may now be stored, `None` once dropped.
    pub(super) fn done(&mut self, offsets: impl IntoIterator<Item = i64>) -> Option<i64> {
        if self.dropped {
            return None;
        }
        for offset in offsets {
            if let Some(message) = self.find(offset).and_then(|entry| entry.message.take()) {
                let bytes = weight(&message);
                self.count -= 1;
                self.bytes -= bytes;
                self.total.take_off(1, bytes);
            }
        }
        while self.entries.front().is_some_and(|entry| entry.message.is_none()) {
            self.entries.pop_front();
        }
        Some(self.stored())
    }

    /// The offset before which everything is done.
    pub(super) fn stored(&self) -> i64 {
        self.entries.front().map_or(self.next, |entry| entry.offset)
    }

    /// Forgets everything and goes on elsewhere.
    pub(super) fn restart_at(&mut self, next: i64) {
        self.clear();
        self.next = next;
    }

    fn find(&mut self, offset: i64) -> Option<&mut Entry> {
        let at = self
            .entries
            .binary_search_by_key(&offset, |entry| entry.offset)
            .ok()?;
        self.entries.get_mut(at)
    }
}

fn weight(message: &ReceivedMessage) -> usize {
    message.stored_body().len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::received::test_message;

    fn messages(offsets: &[i64]) -> Vec<Arc<ReceivedMessage>> {
        offsets
            .iter()
            .map(|offset| Arc::new(test_message(*offset, b"12345")))
            .collect()
    }

    const WIDE: Bounds = Bounds {
        messages: 100,
        bytes: 1000,
        span: Some(100),
        all_messages: 100,
        all_bytes: 1000,
    };

    fn cache(next: i64) -> Cache {
        Cache::starting_at(next, Arc::default())
    }

    #[test]
    fn the_first_message_left_is_what_may_be_stored() {
        let mut cache = cache(10);
        assert!(cache.put(10, &messages(&[10, 12, 15]), 17));
        assert_eq!(
            (cache.next(), cache.stored(), cache.len(), cache.bytes()),
            (17, 10, 3, 15)
        );
        assert_eq!(cache.done([12]), Some(10));
        assert_eq!(cache.done([10]), Some(15));
        assert_eq!(cache.done([10, 99]), Some(15), "strangers change nothing");
        assert_eq!(cache.done([15]), Some(17), "past what a filter took out");
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    #[test]
    fn an_answer_to_a_question_of_before_is_not_taken() {
        let mut cache = cache(10);
        assert!(cache.put(10, &messages(&[10]), 11));
        cache.restart_at(3);
        assert!(!cache.put(11, &messages(&[11]), 12));
        assert_eq!(cache.done([10]), Some(3), "what was given out before the move");
        assert!(cache.put(3, &messages(&[3]), 4));
        cache.drop_all();
        assert!(!cache.put(4, &messages(&[4]), 5));
        assert_eq!(cache.done([3]), None);
    }

    #[test]
    fn each_bound_stops_the_pulls() {
        let mut cache = cache(0);
        assert!(cache.put(0, &messages(&[0, 1, 50]), 51));
        assert!(!cache.is_full(&WIDE));
        assert!(cache.is_full(&Bounds { messages: 3, ..WIDE }));
        assert!(cache.is_full(&Bounds { bytes: 15, ..WIDE }));
        assert!(cache.is_full(&Bounds {
            span: Some(49),
            ..WIDE
        }));
        assert!(!cache.is_full(&Bounds { span: None, ..WIDE }));
        cache.done([0, 1]);
        assert!(!cache.is_full(&Bounds {
            span: Some(49),
            ..WIDE
        }));
    }

    #[test]
    fn the_front_stays_until_it_is_done() {
        let mut cache = cache(0);
        cache.put(0, &messages(&[0, 1, 2]), 3);
        let two = |cache: &Cache| cache.front(2).iter().map(|m| m.queue_offset).collect::<Vec<_>>();
        assert_eq!(two(&cache), [0, 1]);
        let mut again = test_message(0, b"12345");
        again.reconsume_times = 1;
        cache.replace(Arc::new(again));
        assert_eq!(cache.front(1)[0].reconsume_times, 1);
        cache.done([0]);
        assert_eq!(two(&cache), [1, 2]);
    }

    #[test]
    fn all_queues_together_stop_those_that_hold_something() {
        let total: Arc<Total> = Arc::default();
        let mut caches = [0, 0, 0].map(|next| Cache::starting_at(next, Arc::clone(&total)));
        let few = Bounds {
            all_messages: 4,
            ..WIDE
        };
        let full = |caches: &[Cache; 3]| caches.each_ref().map(|cache| cache.is_full(&few));
        caches[0].put(0, &messages(&[0, 1]), 2);
        caches[1].put(0, &messages(&[0]), 1);
        assert_eq!(full(&caches), [false, false, false]);
        caches[1].put(1, &messages(&[1]), 2);
        assert_eq!(full(&caches), [true, true, false], "the empty one may pull once");
        caches[0].done([0]);
        assert_eq!(full(&caches), [false, false, false]);
        let bytes = Bounds {
            all_bytes: 15,
            ..WIDE
        };
        assert!(caches[0].is_full(&bytes));
        // However a queue ends, what it held counts no more.
        caches[1].drop_all();
        caches[2].put(0, &messages(&[0, 1, 2]), 3);
        caches[2].restart_at(9);
        drop(caches);
        assert_eq!(
            (
                total.messages.load(Ordering::SeqCst),
                total.bytes.load(Ordering::SeqCst)
            ),
            (0, 0)
        );
    }
}
