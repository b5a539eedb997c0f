//! Message traces: where a message was sent, by whom it was consumed, how long that took. In Java's format and topic,
//! so that `mqadmin queryMsgTraceById` and dashboards find them.
//!
//! A trace message holds many records. Fields are separated by 0x01, records end with 0x02:
//!
//! ```text
//! Pub            time region group topic id tags keys storeHost bodyLength cost type offsetId success
//! SubBefore      time region group request id retries keys
//! SubAfter       request id cost success keys code time group
//! EndTransaction time region group topic id tags keys storeHost type transactionId state fromCheck
//! ```
//!
//! Its keys are the ids and keys of the messages it tells of. Tracing never holds up what it traces: when 1024 records
//! wait, more are dropped and counted.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use ferromq_protocol::names::topics;
use ferromq_protocol::properties::names;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::client::{self, Client};
use crate::clock::now_millis;
use crate::message::Message;
use crate::producer::{Producer, ProducerConfig};
use crate::received::ReceivedMessage;

/// Records that may wait.
const WAITING: usize = 1024;
/// Most records in one message.
const RECORDS: usize = 100;
/// Most bytes of one message.
const BYTES: usize = 118_000;
/// How long records wait for company.
const GATHER: Duration = Duration::from_millis(500);

/// Where traces go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceConfig {
    /// The topic. Default `RMQ_SYS_TRACE_TOPIC`, which a broker has with `traceTopicEnable`.
    pub topic: String,
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self {
            topic: topics::TRACE.to_owned(),
        }
    }
}

#[derive(Debug)]
struct Record {
    text: String,
    keys: Vec<String>,
}

/// Takes records. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    records: mpsc::Sender<Record>,
    dropped: Arc<AtomicU64>,
}

/// How consuming ended; the numbers are Java's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumed {
    Success = 0,
    TimeOut = 1,
    Exception = 2,
    Failed = 4,
}

/// Ties the record after consuming to the one before.
#[derive(Debug)]
pub(crate) struct Before {
    request: String,
    messages: Vec<(String, String)>,
}

/// What a sent message was; the numbers are Java's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    Normal = 0,
    Half = 1,
    Commit = 2,
    Delay = 3,
}

/// A message that was sent, or not.
#[derive(Debug)]
pub(crate) struct Sent<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) id: &'a str,
    pub(crate) tags: Option<&'a str>,
    pub(crate) keys: Option<&'a str>,
    pub(crate) broker: &'a str,
    pub(crate) body: usize,
    pub(crate) cost: Duration,
    pub(crate) sort: Sort,
    pub(crate) offset_id: &'a str,
    pub(crate) good: bool,
}

/// A decision about a transaction.
#[derive(Debug)]
pub(crate) struct EndedTransaction<'a> {
    pub(crate) group: &'a str,
    pub(crate) topic: &'a str,
    pub(crate) id: &'a str,
    pub(crate) tags: Option<&'a str>,
    pub(crate) keys: Option<&'a str>,
    pub(crate) broker: &'a str,
    pub(crate) transaction_id: &'a str,
    pub(crate) state: &'a str,
    pub(crate) from_check: bool,
}

const REGION: &str = "DefaultRegion";
/// As Java writes what is not there; its reader counts fields, and empty ones at the end would be missing.
const NOTHING: &str = "null";

fn record(fields: &[&dyn Display]) -> String {
    let mut text = String::new();
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            text.push('\u{1}');
        }
        text.push_str(&field.to_string());
    }
    text.push('\u{2}');
    text
}

fn millis(time: Duration) -> u128 {
    time.as_millis()
}

impl Trace {
    pub(crate) fn sent(&self, sent: &Sent<'_>) {
        let text = record(&[
            &"Pub",
            &now_millis(),
            &REGION,
            &sent.group,
            &sent.topic,
            &sent.id,
            &sent.tags.unwrap_or(NOTHING),
            &sent.keys.unwrap_or(NOTHING),
            &sent.broker,
            &sent.body,
            &millis(sent.cost),
            &(sent.sort as i32),
            &if sent.offset_id.is_empty() {
                NOTHING
            } else {
                sent.offset_id
            },
            &sent.good,
        ]);
        self.put(text, &[sent.id], sent.keys);
    }

    pub(crate) fn ended_transaction(&self, ended: &EndedTransaction<'_>) {
        let text = record(&[
            &"EndTransaction",
            &now_millis(),
            &REGION,
            &ended.group,
            &ended.topic,
            &ended.id,
            &ended.tags.unwrap_or(NOTHING),
            &ended.keys.unwrap_or(NOTHING),
            &ended.broker,
            &(Sort::Commit as i32),
            &ended.transaction_id,
            &ended.state,
            &ended.from_check,
        ]);
        self.put(text, &[ended.id], ended.keys);
    }

    pub(crate) fn before_consume(&self, group: &str, messages: &[Arc<ReceivedMessage>]) -> Before {
        let request = format!("{:016X}{:016X}", crate::config::random(), crate::config::random());
        let mut traced = Vec::with_capacity(messages.len());
        for message in messages {
            if message.property(names::TRACE_ON) == Some("false") {
                continue;
            }
            let (id, keys) = (message.message_id(), message.keys().unwrap_or(NOTHING));
            let region = message.property(names::MSG_REGION).unwrap_or(REGION);
            let text = record(&[
                &"SubBefore",
                &now_millis(),
                &region,
                &group,
                &request,
                &id,
                &message.reconsume_times,
                &keys,
            ]);
            self.put(text, &[&id], message.keys());
            traced.push((id, keys.to_owned()));
        }
        Before {
            request,
            messages: traced,
        }
    }

    pub(crate) fn after_consume(&self, group: &str, before: &Before, code: Consumed, took: Duration) {
        let each = millis(took) / before.messages.len().max(1) as u128;
        for (id, keys) in &before.messages {
            let text = record(&[
                &"SubAfter",
                &before.request,
                id,
                &each,
                &(code == Consumed::Success),
                keys,
                &(code as i32),
                &now_millis(),
                &group,
            ]);
            let keys = (keys != NOTHING).then_some(keys.as_str());
            self.put(text, &[id], keys);
        }
    }

    fn put(&self, text: String, ids: &[&str], keys: Option<&str>) {
        let keys = keys.into_iter().flat_map(str::split_whitespace);
        let keys = ids.iter().copied().chain(keys).map(str::to_owned).collect();
        if self.records.try_send(Record { text, keys }).is_err() {
            let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            if dropped.is_power_of_two() {
                tracing::warn!(dropped, "traces are dropped: more come than can be sent");
            }
        }
    }
}

/// The receiving end, until it is run.
#[derive(Debug)]
pub(crate) struct Collector {
    records: mpsc::Receiver<Record>,
    config: TraceConfig,
}

pub(crate) fn channel(config: TraceConfig) -> (Trace, Collector) {
    let (sender, records) = mpsc::channel(WAITING);
    let trace = Trace {
        records: sender,
        dropped: Arc::default(),
    };
    (trace, Collector { records, config })
}

impl Collector {
    /// Sends what comes until stopped, and then what is left.
    pub(crate) async fn run(mut self, client: Weak<client::Inner>, stop: CancellationToken) {
        loop {
            let first = tokio::select! {
                record = self.records.recv() => record,
                () = stop.cancelled() => break,
            };
            let Some(first) = first else { return };
            let mut batch = Batch::default();
            batch.add(first);
            let gathered = tokio::time::sleep(GATHER);
            tokio::pin!(gathered);
            while !batch.is_full() {
                tokio::select! {
                    record = self.records.recv() => match record {
                        Some(record) => batch.add(record),
                        None => break,
                    },
                    () = &mut gathered => break,
                    () = stop.cancelled() => break,
                }
            }
            self.send(batch, &client).await;
        }
        let mut batch = Batch::default();
        while let Ok(record) = self.records.try_recv() {
            batch.add(record);
            if batch.is_full() {
                self.send(std::mem::take(&mut batch), &client).await;
            }
        }
        if batch.records > 0 {
            self.send(batch, &client).await;
        }
    }

    async fn send(&self, batch: Batch, client: &Weak<client::Inner>) {
        let Some(client) = Client::upgrade(client) else {
            return;
        };
        let producer = Producer::without_group(client, ProducerConfig::new("_INNER_TRACE_PRODUCER"));
        let keys: Vec<&str> = batch.keys.iter().map(String::as_str).collect();
        let message = Message::new(&self.config.topic, batch.text).property(names::KEYS, keys.join(" "));
        if let Err(error) = producer.send(message).await {
            tracing::debug!(%error, "traces could not be sent and are lost");
        }
    }
}

#[derive(Debug, Default)]
struct Batch {
    text: String,
    keys: BTreeSet<String>,
    records: usize,
    key_bytes: usize,
}

impl Batch {
    fn add(&mut self, record: Record) {
        self.text.push_str(&record.text);
        for key in record.keys {
            self.key_bytes += key.len() + 1;
            self.keys.insert(key);
        }
        self.records += 1;
    }

    /// The keys must fit the properties.
    fn is_full(&self) -> bool {
        self.records >= RECORDS || self.text.len() >= BYTES || self.key_bytes >= 16_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::received::test_message;

    fn fields(record: &Record) -> Vec<&str> {
        record
            .text
            .strip_suffix('\u{2}')
            .unwrap()
            .split('\u{1}')
            .collect()
    }

    #[test]
    fn records_have_javas_fields() {
        let (trace, mut collector) = channel(TraceConfig::default());
        trace.sent(&Sent {
            group: "PG",
            topic: "T",
            id: "ID",
            tags: None,
            keys: Some("k1 k2"),
            broker: "10.0.0.1:10911",
            body: 3,
            cost: Duration::from_millis(7),
            sort: Sort::Normal,
            offset_id: "OFF",
            good: true,
        });
        let record = collector.records.try_recv().unwrap();
        let found = fields(&record);
        assert_eq!((found[0], found.len()), ("Pub", 14));
        assert_eq!(
            found[2..],
            [
                "DefaultRegion",
                "PG",
                "T",
                "ID",
                "null",
                "k1 k2",
                "10.0.0.1:10911",
                "3",
                "7",
                "0",
                "OFF",
                "true"
            ]
        );
        assert_eq!(record.keys, ["ID", "k1", "k2"]);
        let before = trace.before_consume("G", &[Arc::new(test_message(4, b"x"))]);
        let record = collector.records.try_recv().unwrap();
        assert_eq!((fields(&record)[0], fields(&record).len()), ("SubBefore", 8));
        trace.after_consume("G", &before, Consumed::Exception, Duration::from_millis(9));
        let record = collector.records.try_recv().unwrap();
        let found = fields(&record);
        assert_eq!((found[0], found.len()), ("SubAfter", 9));
        assert_eq!(
            (found[1], found[3], found[4], found[6]),
            (before.request.as_str(), "9", "false", "2")
        );
        assert_eq!(found[8], "G");
    }

    #[test]
    fn what_cannot_wait_is_dropped_and_counted() {
        let (trace, _collector) = channel(TraceConfig::default());
        for n in 0..WAITING + 3 {
            trace.put(n.to_string(), &[], None);
        }
        assert_eq!(trace.dropped.load(Ordering::Relaxed), 3);
    }
}
