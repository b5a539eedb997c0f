//! Settings of a push consumer.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{ConsumeFromWhere, MessageModel};

use crate::filter::Filter;
use crate::rebalance::{Averagely, Strategy};

/// Where to start in a queue of which the group has no offset yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartFrom {
    /// At the end: messages sent before are not consumed. The default, as Java's.
    #[default]
    Newest,
    /// At the oldest message that is still there.
    Oldest,
    /// At the first message stored at or after a time, in milliseconds since 1970.
    Time(i64),
}

impl StartFrom {
    pub(crate) fn on_wire(self) -> ConsumeFromWhere {
        match self {
            Self::Newest => ConsumeFromWhere::LastOffset,
            Self::Oldest => ConsumeFromWhere::FirstOffset,
            Self::Time(_) => ConsumeFromWhere::Timestamp,
        }
    }
}

/// How much a consumer holds before it stops to pull, per queue unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowLimits {
    /// Messages. Default 1000.
    pub messages: usize,
    /// Bytes of bodies. Default 100 MiB.
    pub bytes: usize,
    /// Offsets between the first message that is not done and the last one, for concurrent consumption. Default 2000.
    pub span: i64,
    /// Messages of one topic together, shared evenly by the queues held. Default: no such limit.
    pub topic_messages: Option<usize>,
    /// Bytes of one topic together, shared evenly by the queues held. Default: no such limit.
    pub topic_bytes: Option<usize>,
    /// Messages of all queues together. One pull of each queue may come on top, so that no queue waits for others that
    /// stand still. Default 100,000.
    pub all_messages: usize,
    /// Bytes of all queues together, as [`FlowLimits::all_messages`]. Default 1 GiB.
    pub all_bytes: usize,
}

impl Default for FlowLimits {
    fn default() -> Self {
        Self {
            messages: 1000,
            bytes: 100 * 1024 * 1024,
            span: 2000,
            topic_messages: None,
            topic_bytes: None,
            all_messages: 100_000,
            all_bytes: 1 << 30,
        }
    }
}

/// Settings of a push consumer.
///
/// ```
/// use ferromq_client::{Filter, PushConsumerConfig};
/// let config = PushConsumerConfig::new("billing")
///     .subscribe("orders", Filter::tags("paid || refunded"))
///     .with_concurrency(8);
/// assert_eq!(config.batch, 1);
/// ```
#[derive(Debug, Clone)]
pub struct PushConsumerConfig {
    /// Consumer group; all its members must subscribe to the same topics with the same filters.
    pub group: String,
    /// Topics with what is wanted of each.
    pub subscriptions: BTreeMap<String, Filter>,
    /// Whether members share the messages (the default) or each gets all.
    pub model: MessageModel,
    /// Where to start without a stored offset. Default [`StartFrom::Newest`].
    pub start: StartFrom,
    /// Start by [`PushConsumerConfig::start`] even where an offset is stored, the first time that this consumer gets a
    /// queue. Default false.
    pub ignore_stored: bool,
    /// How members share queues; all must use the same. Default [`Averagely`].
    pub strategy: Arc<dyn Strategy>,
    /// Most calls of the listener at the same time. Default 20.
    pub concurrency: usize,
    /// Most messages for one call of the listener, 1 to 1024. Default 1.
    pub batch: usize,
    /// Most messages that one pull asks for, 1 to 1024. Default 32.
    pub pull_batch: i32,
    /// Pause after each pull that brought messages. Default none.
    pub pull_interval: Duration,
    /// How long a broker may hold a pull. Default 15 s.
    pub hold: Duration,
    /// When to stop pulling. See [`FlowLimits`].
    pub limits: FlowLimits,
    /// Deliveries after the first before a message goes to the dead letters. Default: 16, unlimited in order.
    pub max_retries: Option<i32>,
    /// Pause of a queue after a failure in order, 10 ms to 30 s. Default 1 s.
    pub suspend: Duration,
    /// A call of the listener that takes longer is given up (its future is dropped) and counts as a failure.
    /// Default 15 min.
    pub consume_timeout: Duration,
    /// Pause between two savings of offsets. Default 5 s.
    pub save_every: Duration,
    /// Pause between two looks at the group's members; changes that brokers tell of are acted on at once.
    /// Default 20 s.
    pub balance_every: Duration,
    /// How long [`super::PushConsumer::shutdown`] waits for calls of the listener that are under way. Default 10 s.
    pub shutdown_wait: Duration,
    /// Directory for the offsets of broadcasting groups. Default `.rocketmq_offsets` in the home directory, Java's.
    pub offsets_dir: Option<PathBuf>,
}

impl PushConsumerConfig {
    /// Default settings for a group, without subscriptions.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            subscriptions: BTreeMap::new(),
            model: MessageModel::Clustering,
            start: StartFrom::default(),
            ignore_stored: false,
            strategy: Arc::new(Averagely),
            concurrency: 20,
            batch: 1,
            pull_batch: 32,
            pull_interval: Duration::ZERO,
            hold: Duration::from_secs(15),
            limits: FlowLimits::default(),
            max_retries: None,
            suspend: Duration::from_secs(1),
            consume_timeout: Duration::from_mins(15),
            save_every: Duration::from_secs(5),
            balance_every: Duration::from_secs(20),
            shutdown_wait: Duration::from_secs(10),
            offsets_dir: None,
        }
    }

    /// Adds a topic, or changes what is wanted of it.
    #[must_use]
    pub fn subscribe(mut self, topic: impl Into<String>, filter: Filter) -> Self {
        self.subscriptions.insert(topic.into(), filter);
        self
    }

    /// Every member gets every message, and keeps its offsets in a file of its own. Failed messages are not retried.
    #[must_use]
    pub fn broadcasting(mut self) -> Self {
        self.model = MessageModel::Broadcasting;
        self
    }

    /// Sets where to start without a stored offset.
    #[must_use]
    pub fn with_start(mut self, start: StartFrom) -> Self {
        self.start = start;
        self
    }

    /// Starts there even where an offset is stored.
    #[must_use]
    pub fn ignoring_stored(mut self) -> Self {
        self.ignore_stored = true;
        self
    }

    /// Sets how members share queues.
    #[must_use]
    pub fn with_strategy(mut self, strategy: impl Strategy) -> Self {
        self.strategy = Arc::new(strategy);
        self
    }

    /// Sets the most calls of the listener at the same time.
    #[must_use]
    pub fn with_concurrency(mut self, calls: usize) -> Self {
        self.concurrency = calls;
        self
    }

    /// Sets the most messages for one call of the listener.
    #[must_use]
    pub fn with_batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// Sets the deliveries after the first before a message goes to the dead letters.
    #[must_use]
    pub fn with_max_retries(mut self, retries: i32) -> Self {
        self.max_retries = Some(retries);
        self
    }
}
