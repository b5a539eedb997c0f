//! When the messages at the ends of queues, and before groups' offsets, were stored.
//!
//! Tools and exporters ask for these times of every queue every few seconds, and each is a read of the log, for idle queues one of the
//! disk. Most offsets have not moved since the last question. What holds: an answer is of the very offset that is
//! asked for; the number of those kept is bounded.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The most times that are kept.
const MOST: usize = 50_000;

/// Topic, queue and group; no group for the end of the queue.
type Place = (String, i32, String);

/// The last answers.
#[derive(Debug, Default)]
pub(crate) struct LastTimes {
    /// Offset and time.
    known: Mutex<HashMap<Place, (i64, i64)>>,
}

impl LastTimes {
    /// The time at an offset, read only if another one was asked for last.
    pub(crate) fn of(
        &self,
        topic: &str,
        queue: i32,
        group: &str,
        offset: i64,
        read: impl FnOnce() -> Option<i64>,
    ) -> Option<i64> {
        let place = (topic.to_owned(), queue, group.to_owned());
        if let Some(&(known, time)) = self.known.lock().get(&place)
            && known == offset
        {
            return Some(time);
        }
        let time = read()?;
        let mut known = self.known.lock();
        if known.len() >= MOST && !known.contains_key(&place) {
            known.clear();
        }
        known.insert(place, (offset, time));
        Some(time)
    }

    /// A topic was deleted: its offsets start anew.
    pub(crate) fn forget_topic(&self, topic: &str) {
        self.known.lock().retain(|(of, _, _), _| of != topic);
    }

    /// A group was deleted.
    pub(crate) fn forget_group(&self, group: &str) {
        self.known.lock().retain(|(_, _, of), _| of != group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_that_has_not_moved_is_read_once() {
        let times = LastTimes::default();
        let never = || -> Option<i64> { panic!("read again") };
        assert_eq!(times.of("t", 0, "", 7, || Some(100)), Some(100));
        assert_eq!(times.of("t", 0, "", 7, never), Some(100));
        assert_eq!(times.of("t", 0, "g", 7, || Some(101)), Some(101));
        assert_eq!(times.of("t", 0, "", 8, || Some(102)), Some(102));
        // What cannot be read now may be later.
        assert_eq!(times.of("t", 1, "", 0, || None), None);
        assert_eq!(times.of("t", 1, "", 0, || Some(103)), Some(103));
        times.forget_topic("t");
        assert_eq!(times.of("t", 0, "", 8, || Some(104)), Some(104));
        assert_eq!(times.of("t", 0, "g", 8, || Some(105)), Some(105));
        times.forget_group("g");
        assert_eq!(times.of("t", 0, "g", 8, || Some(106)), Some(106));
        assert_eq!(times.of("t", 0, "", 8, never), Some(104));
    }

    #[test]
    fn their_number_is_bounded() {
        let times = LastTimes::default();
        for queue in 0..=MOST as i32 {
            times.of("t", queue, "", 0, || Some(1));
        }
        assert!(times.known.lock().len() <= MOST);
    }
}
