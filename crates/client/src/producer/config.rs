//! Settings of a producer.

use std::time::Duration;

use ferromq_protocol::compress::Kind as Compression;

/// Settings of a [`super::Producer`].
#[derive(Debug, Clone)]
pub struct ProducerConfig {
    /// Producer group; brokers ask its members about unfinished transactions. Default `ferromq_producer`.
    pub group: String,
    /// Time for one send with all its attempts. Default 3 s.
    pub send_timeout: Duration,
    /// Attempts after the first, at other brokers if there are any. Default 2.
    pub retries: u32,
    /// Longest body in bytes. Default 4 MiB, which is the broker's.
    pub max_message_size: usize,
    /// Single messages with at least so many bytes are compressed; `None` sends all as they are. Default 4096.
    pub compress_from: Option<usize>,
    /// How bodies are compressed. Default zlib, which every release reads; LZ4 and zstd need 4.9.4.
    pub compression: Compression,
    /// Passes over brokers that answer slowly, by Java's table (`sendLatencyFaultEnable`), not only those that cannot
    /// be reached. Default false.
    pub avoid_slow_brokers: bool,
    /// Tries another broker when a message is stored but not yet as safely as it should be; it is then stored twice.
    /// Java's `retryAnotherBrokerWhenNotStoreOK`. Default false.
    pub retry_when_not_safe: bool,
    /// Sends that [`super::Producer::send_later`] may have under way. Default 1024.
    pub max_pending: usize,
    /// Most queues for each broker of a topic that the first message creates. Default 4.
    pub new_topic_queues: i32,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        Self {
            group: "ferromq_producer".into(),
            send_timeout: Duration::from_secs(3),
            retries: 2,
            max_message_size: 4 * 1024 * 1024,
            compress_from: Some(4096),
            compression: Compression::Zlib,
            avoid_slow_brokers: false,
            retry_when_not_safe: false,
            max_pending: 1024,
            new_topic_queues: 4,
        }
    }
}

impl ProducerConfig {
    /// Default settings for a group.
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            group: group.into(),
            ..Self::default()
        }
    }

    /// Sets the time for one send.
    #[must_use]
    pub fn with_send_timeout(mut self, timeout: Duration) -> Self {
        self.send_timeout = timeout;
        self
    }

    /// Sets the number of attempts after the first.
    #[must_use]
    pub fn with_retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Sets from what size on bodies are compressed.
    #[must_use]
    pub fn with_compress_from(mut self, size: Option<usize>) -> Self {
        self.compress_from = size;
        self
    }
}
