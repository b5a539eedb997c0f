//! What a consumer tells about itself: to the application, and to tools over the broker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferromq_protocol::body::{
    ConsumeMessageDirectlyResult, ConsumeResult, ConsumerRunningInfo, ProcessQueueInfo,
};

use super::listener::Ended;
use super::{Core, Order, Outcome};
use crate::MessageQueue;
use crate::clock::now_millis;
use crate::received::ReceivedMessage;

/// What a consumer has done since it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Pulls that were answered.
    pub pulls: u64,
    /// Messages that came.
    pub pulled: u64,
    /// Messages that the listener dealt with.
    pub consumed: u64,
    /// Messages of calls that failed, timed out or panicked.
    pub failed: u64,
    /// Time spent in the listener, all calls together.
    pub listening: Duration,
    /// How often a full cache stopped the pulls.
    pub flow_controlled: u64,
}

#[derive(Debug)]
pub(super) struct Counters {
    since: Instant,
    started: i64,
    pulls: AtomicU64,
    pulled: AtomicU64,
    consumed: AtomicU64,
    failed: AtomicU64,
    micros: AtomicU64,
    flow_controlled: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            since: Instant::now(),
            started: now_millis(),
            pulls: AtomicU64::default(),
            pulled: AtomicU64::default(),
            consumed: AtomicU64::default(),
            failed: AtomicU64::default(),
            micros: AtomicU64::default(),
            flow_controlled: AtomicU64::default(),
        }
    }
}

impl Counters {
    pub(super) fn pulled(&self, messages: usize) {
        self.pulls.fetch_add(1, Ordering::Relaxed);
        self.pulled.fetch_add(messages as u64, Ordering::Relaxed);
    }

    pub(super) fn consumed(&self, messages: usize, good: bool, took: Duration) {
        let counter = if good { &self.consumed } else { &self.failed };
        counter.fetch_add(messages as u64, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    pub(super) fn flow_controlled(&self) {
        self.flow_controlled.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> ConsumerStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConsumerStats {
            pulls: get(&self.pulls),
            pulled: get(&self.pulled),
            consumed: get(&self.consumed),
            failed: get(&self.failed),
            listening: Duration::from_micros(get(&self.micros)),
            flow_controlled: get(&self.flow_controlled),
        }
    }
}

impl Core {
    /// Answer to 307. Rates are those since the start, of all topics together, and stand with each topic.
    pub(crate) fn running_info(&self) -> ConsumerRunningInfo {
        let held: Vec<_> = self.held.lock().values().cloned().collect();
        let mut mq_table: BTreeMap<MessageQueue, ProcessQueueInfo> = BTreeMap::new();
        for held in held {
            let cache = held.cache.lock();
            let (first, last) = cache.range().unwrap_or_default();
            let info = ProcessQueueInfo {
                commit_offset: self.offsets.get(&held.queue).unwrap_or(-1),
                cached_msg_count: i32::try_from(cache.len()).unwrap_or(i32::MAX),
                cached_msg_min_offset: first,
                cached_msg_max_offset: last,
                cached_msg_size_in_mib: i32::try_from(cache.bytes() >> 20).unwrap_or(i32::MAX),
                droped: cache.is_dropped(),
                locked: self.order == Order::PerQueue && held.is_locked(),
                last_pull_timestamp: held.last_pull.load(Ordering::Relaxed),
                last_consume_timestamp: held.last_consume.load(Ordering::Relaxed),
                ..ProcessQueueInfo::default()
            };
            mq_table.insert(held.queue.clone(), info);
        }
        let properties = [
            (
                "PROP_CONSUME_ORDERLY",
                (self.order == Order::PerQueue).to_string(),
            ),
            ("PROP_CONSUME_TYPE", "CONSUME_PASSIVELY".to_owned()),
            ("PROP_CONSUMER_START_TIMESTAMP", self.stats.started.to_string()),
            ("PROP_THREADPOOL_CORE_SIZE", self.config.concurrency.to_string()),
            ("PROP_CLIENT_VERSION", "V4_9_7".to_owned()),
            (
                "PROP_NAMESERVER_ADDR",
                self.client.inner().link.name_server_text(),
            ),
            (
                "allocateMessageQueueStrategy",
                self.config.strategy.name().to_owned(),
            ),
        ];
        let (total, seconds) = (
            self.stats.total(),
            self.stats.since.elapsed().as_secs_f64().max(0.001),
        );
        let calls = (total.consumed + total.failed).max(1) as f64;
        let status = ferromq_protocol::body::ConsumeStatus {
            consume_failed_msgs: i64::try_from(total.failed).unwrap_or(i64::MAX),
            consume_failed_tps: total.failed as f64 / seconds,
            consume_ok_tps: total.consumed as f64 / seconds,
            consume_rt: total.listening.as_secs_f64() * 1000.0 / calls,
            pull_tps: total.pulled as f64 / seconds,
            ..Default::default()
        };
        let subscriptions = self.membership().subscription_data_set;
        ConsumerRunningInfo {
            jstack: None,
            mq_table,
            properties: properties.map(|(name, value)| (name.to_owned(), value)).into(),
            status_table: subscriptions
                .iter()
                .map(|data| (data.topic.clone(), status.clone()))
                .collect(),
            subscription_set: subscriptions,
        }
    }

    /// Answer to 309: the listener is called with one message, beside all others, and nothing is stored.
    pub(crate) async fn consume_directly(
        &self,
        message: ReceivedMessage,
        broker: &str,
    ) -> ConsumeMessageDirectlyResult {
        let queue = MessageQueue::new(&*message.topic, broker, message.queue_id);
        let started = Instant::now();
        let ended = self.call(&queue, &[Arc::new(message)]).await;
        let (result, remark) = match ended {
            Ended::Said(Outcome::Done | Outcome::DoneUpTo(1..)) => (ConsumeResult::Success, None),
            Ended::Said(_) => (ConsumeResult::Later, None),
            Ended::Panicked(text) => (
                ConsumeResult::ThrowException,
                Some(format!("the listener panicked: {text}")),
            ),
            Ended::TimedOut => (
                ConsumeResult::Later,
                Some("the listener took too long".to_owned()),
            ),
        };
        ConsumeMessageDirectlyResult {
            order: self.order == Order::PerQueue,
            auto_commit: true,
            consume_result: Some(result),
            remark,
            spent_time_mills: i64::try_from(started.elapsed().as_millis()).unwrap_or(i64::MAX),
        }
    }
}
