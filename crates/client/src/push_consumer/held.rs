//! One queue that a consumer holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cache::{Cache, Total};
use crate::MessageQueue;
use crate::clock::now_millis;

/// A lock that was not renewed for so long is not trusted: the broker gives it to others after 60 s.
const LOCK_GOOD_FOR: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Held {
    pub(super) queue: MessageQueue,
    pub(super) cache: Mutex<Cache>,
    /// There is room again.
    pub(super) freed: Notify,
    /// There are messages, or the lock is there again.
    pub(super) arrived: Notify,
    /// The place to pull was moved.
    pub(super) moved: Notify,
    /// The queue is to be given up.
    pub(super) stop: CancellationToken,
    locked: Mutex<Option<Instant>>,
    /// The broker gave the lock to another member, who may be further on.
    pub(super) lost: AtomicBool,
    pub(super) last_pull: AtomicI64,
    pub(super) last_consume: AtomicI64,
}

impl Held {
    pub(super) fn new(queue: MessageQueue, next: i64, total: Arc<Total>, stop: CancellationToken) -> Self {
        Self {
            queue,
            cache: Mutex::new(Cache::starting_at(next, total)),
            freed: Notify::new(),
            arrived: Notify::new(),
            moved: Notify::new(),
            stop,
            locked: Mutex::default(),
            lost: AtomicBool::new(false),
            last_pull: AtomicI64::new(now_millis()),
            last_consume: AtomicI64::new(now_millis()),
        }
    }

    /// The broker has just said that the queue is ours, or that it is not.
    pub(super) fn set_locked(&self, locked: bool) {
        *self.locked.lock() = locked.then(Instant::now);
        if locked {
            self.arrived.notify_one();
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.locked.lock().is_some_and(|at| at.elapsed() < LOCK_GOOD_FOR)
    }

    pub(super) fn touch(time: &AtomicI64) {
        time.store(now_millis(), Ordering::Relaxed);
    }
}
