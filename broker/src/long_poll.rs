//! Pulls that wait for a message.
//!
//! A pull that finds nothing parks here by topic and queue, looks at the store once more, and only then
//! waits; the store's dispatcher calls [`LongPoll::arrived`] for each message that has become readable.
//! What holds: a message that arrives after the pull parked leaves a wake-up behind, one that
//! arrived before is seen by the second look, so no wake-up is lost. A parked pull's place goes with its
//! ticket, whatever ends it. The number of parked pulls is bounded.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ferromq_store::{Arrival, ArrivalListener};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Says whether an arrived message may interest a waiting pull.
pub(crate) type Interest = Arc<dyn Fn(&Arrival<'_>) -> bool + Send + Sync>;

struct Waiter {
    id: u64,
    interest: Interest,
    wake: Notify,
}

type Queues = HashMap<i32, Vec<Arc<Waiter>>>;

const SHARDS: usize = 16;

/// The parked pulls of all queues.
pub(crate) struct LongPoll {
    hasher: RandomState,
    shards: [Mutex<HashMap<String, Queues>>; SHARDS],
    parked: AtomicUsize,
    limit: AtomicUsize,
    next_id: AtomicU64,
}

impl std::fmt::Debug for LongPoll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LongPoll")
            .field("parked", &self.parked())
            .finish_non_exhaustive()
    }
}

impl LongPoll {
    /// At most `limit` pulls wait at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            parked: AtomicUsize::new(0),
            limit: AtomicUsize::new(limit),
            next_id: AtomicU64::new(0),
        }
    }

    /// The number of waiting pulls.
    pub(crate) fn parked(&self) -> usize {
        self.parked.load(Ordering::Relaxed)
    }

    fn shard(&self, topic: &str) -> &Mutex<HashMap<String, Queues>> {
        &self.shards[self.hasher.hash_one(topic) as usize % SHARDS]
    }

    /// Takes a place. The caller looks at the store again after this and before it waits. None when full.
    pub(crate) fn park(self: &Arc<Self>, topic: &str, queue: i32, interest: Interest) -> Option<Ticket> {
        // SeqCst: `arrived` may skip the lock only if this count had not been raised yet, and then the
        // caller's second look sees the message.
        if self.parked.fetch_add(1, Ordering::SeqCst) >= self.limit.load(Ordering::Relaxed) {
            self.parked.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let waiter = Arc::new(Waiter {
            id,
            interest,
            wake: Notify::new(),
        });
        let mut shard = self.shard(topic).lock();
        if let Some(queues) = shard.get_mut(topic) {
            queues.entry(queue).or_default().push(waiter.clone());
        } else {
            shard.insert(topic.to_owned(), HashMap::from([(queue, vec![waiter.clone()])]));
        }
        drop(shard);
        Some(Ticket {
            table: self.clone(),
            topic: topic.to_owned(),
            queue,
            waiter,
        })
    }

    /// Wakes the pulls of the queue that may want the message.
    pub(crate) fn message_arrived(&self, arrival: &Arrival<'_>) {
        if self.parked.load(Ordering::SeqCst) == 0 {
            return;
        }
        let shard = self.shard(arrival.topic).lock();
        let queues = shard.get(arrival.topic);
        let Some(waiters) = queues.and_then(|queues| queues.get(&arrival.queue_id)) else {
            return;
        };
        for waiter in waiters {
            if (waiter.interest)(arrival) {
                waiter.wake.notify_one();
            }
        }
    }
}

impl ArrivalListener for LongPoll {
    fn arrived(&self, arrival: &Arrival<'_>) {
        self.message_arrived(arrival);
    }

    fn is_awaited(&self) -> bool {
        self.parked() > 0
    }
}

/// A pull's place among the waiting.
pub(crate) struct Ticket {
    table: Arc<LongPoll>,
    topic: String,
    queue: i32,
    waiter: Arc<Waiter>,
}

impl Ticket {
    /// Returns after a message has arrived since the ticket was taken or this returned last.
    pub(crate) async fn woken(&self) {
        self.waiter.wake.notified().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut shard = self.table.shard(&self.topic).lock();
        if let Some(queues) = shard.get_mut(&self.topic) {
            if let Some(waiters) = queues.get_mut(&self.queue) {
                waiters.retain(|w| w.id != self.waiter.id);
                if waiters.is_empty() {
                    queues.remove(&self.queue);
                }
            }
            if queues.is_empty() {
                shard.remove(&self.topic);
            }
        }
        self.table.parked.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn any() -> Interest {
        Arc::new(|_| true)
    }

    fn arrive(table: &LongPoll, topic: &str, queue_id: i32, tags_code: i64) {
        table.message_arrived(&Arrival {
            topic,
            queue_id,
            next_offset: 1,
            tags_code,
            store_timestamp: 0,
            properties: "",
            filter_bits: &[],
        });
    }

    fn empty(table: &LongPoll) -> bool {
        table.shards.iter().all(|s| s.lock().is_empty())
    }

    async fn is_woken(ticket: &Ticket) -> bool {
        tokio::time::timeout(Duration::ZERO, ticket.woken()).await.is_ok()
    }

    #[tokio::test]
    async fn an_arrival_before_the_wait_is_not_lost() {
        let table = Arc::new(LongPoll::new(10));
        let ticket = table.park("t", 0, any()).unwrap();
        arrive(&table, "t", 0, 0);
        assert!(is_woken(&ticket).await);
        assert!(!is_woken(&ticket).await);
    }

    #[tokio::test]
    async fn only_the_right_queue_and_tag_wake() {
        let table = Arc::new(LongPoll::new(10));
        let ticket = table
            .park("t", 0, Arc::new(|arrival| arrival.tags_code == 7))
            .unwrap();
        arrive(&table, "t", 1, 7);
        arrive(&table, "u", 0, 7);
        arrive(&table, "t", 0, 8);
        assert!(!is_woken(&ticket).await);
        arrive(&table, "t", 0, 7);
        assert!(is_woken(&ticket).await);
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let table = Arc::new(LongPoll::new(2));
        let one = table.park("t", 0, any()).unwrap();
        let two = table.park("t", 1, any()).unwrap();
        assert!(table.park("t", 2, any()).is_none());
        drop(one);
        assert_eq!(table.parked(), 1);
        let three = table.park("u", 0, any()).unwrap();
        drop((two, three));
        assert_eq!(table.parked(), 0);
        assert!(empty(&table));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_thousand_rounds_of_check_and_park_lose_no_message() {
        let table = Arc::new(LongPoll::new(10));
        let stored = Arc::new(AtomicU64::new(0));
        let rounds = 1000;
        let (ask, mut asked) = tokio::sync::mpsc::channel::<()>(1);
        let writer = {
            let (table, stored) = (table.clone(), stored.clone());
            tokio::task::spawn_blocking(move || {
                while asked.blocking_recv().is_some() {
                    stored.fetch_add(1, Ordering::SeqCst);
                    arrive(&table, "t", 0, 0);
                }
            })
        };
        for round in 0..rounds {
            ask.send(()).await.unwrap();
            let ticket = table.park("t", 0, any()).unwrap();
            if stored.load(Ordering::SeqCst) == round {
                tokio::time::timeout(Duration::from_secs(20), ticket.woken())
                    .await
                    .expect("a lost wake-up");
            }
            while stored.load(Ordering::SeqCst) == round {
                tokio::task::yield_now().await;
            }
        }
        drop(ask);
        writer.await.unwrap();
    }
}
