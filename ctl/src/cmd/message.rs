//! Single messages: send one, look one up.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::Context as _;
use ferromq_client::admin::KeyQuery;
use ferromq_client::{Message, ProducerConfig, ReceivedMessage, SendReceipt};
use serde::Serialize;

use super::{read, trace};
use crate::cli::{self, Format, MessageExtra};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Table, time};

pub(crate) async fn run(cx: &Context, command: cli::Message) -> anyhow::Result<()> {
    match command {
        cli::Message::At {
            topic,
            broker,
            queue,
            offset,
        } => read::at(cx, &topic, &broker, queue, offset).await,
        cli::Message::Print { topic, range } => read::print(cx, &topic, &range).await,
        cli::Message::Trace { id, topic } => trace::run(cx, &id, &topic).await,
        cli::Message::Send { topic, body, extra } => send(cx, &topic, &body, &extra).await,
        cli::Message::Get { id, body } => get(cx, &id, body).await,
        cli::Message::ByKey {
            topic,
            key,
            max,
            unique,
        } => by_key(cx, &topic, &key, max, unique).await,
    }
}

#[derive(Serialize)]
struct Sent {
    broker: String,
    queue: i32,
    queue_offset: i64,
    status: String,
    message_id: String,
    offset_id: String,
}

pub(crate) async fn send(cx: &Context, topic: &str, body: &str, extra: &MessageExtra) -> anyhow::Result<()> {
    let body = if body == "-" {
        let mut bytes = Vec::new();
        std::io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .context("read the body from standard input")?;
        bytes
    } else {
        body.as_bytes().to_vec()
    };
    let mut message = Message::new(topic, body);
    if let Some(tag) = &extra.tag {
        message = message.tag(tag);
    }
    for key in &extra.keys {
        message = message.key(key);
    }
    for (name, value) in &extra.properties {
        message = message.property(name, value);
    }
    let client = cx.client()?;
    let producer = client.producer(ProducerConfig::new("ferroctl_producer").with_send_timeout(cx.timeout()));
    let receipt = if extra.broker.is_some() || extra.queue.is_some() {
        let mut queues = producer.queues(topic).await?;
        queues.retain(|queue| {
            extra
                .broker
                .as_ref()
                .is_none_or(|broker| *broker == queue.broker_name)
        });
        queues.retain(|queue| extra.queue.is_none_or(|id| id == queue.queue_id));
        let Some(queue) = queues.first() else {
            return Err(Failure::NotFound(format!("topic {topic:?} has no such writable queue")).into());
        };
        producer.send_to(queue, message).await
    } else {
        producer.send(message).await
    };
    let sent = receipt.map(Sent::from);
    drop(producer);
    client.shutdown().await;
    output::print(cx.format, &sent?, |sent| {
        let mut table = Table::new(&["field", "value"]);
        table.row(["broker", &sent.broker]);
        table.row(["queue", &sent.queue.to_string()]);
        table.row(["queue offset", &sent.queue_offset.to_string()]);
        table.row(["status", &sent.status]);
        table.row(["message id", &sent.message_id]);
        table.row(["offset id", &sent.offset_id]);
        table
    })
}

impl From<SendReceipt> for Sent {
    fn from(receipt: SendReceipt) -> Self {
        Self {
            message_id: receipt.message_id().to_owned(),
            offset_id: receipt.offset_ids.first().cloned().unwrap_or_default(),
            broker: receipt.queue.broker_name,
            queue: receipt.queue.queue_id,
            queue_offset: receipt.queue_offset,
            status: format!("{:?}", receipt.status),
        }
    }
}

#[derive(Serialize)]
pub(super) struct Shown {
    topic: String,
    pub(super) queue: i32,
    pub(super) queue_offset: i64,
    message_id: String,
    offset_id: String,
    tag: Option<String>,
    keys: Option<String>,
    properties: BTreeMap<String, String>,
    born: i64,
    born_host: String,
    pub(super) stored: i64,
    store_host: String,
    reconsume_times: i32,
    stored_size: i32,
    body_size: usize,
    /// The body as text; absent if it is not UTF-8.
    pub(super) body: Option<String>,
    body_error: Option<String>,
}

impl From<&ReceivedMessage> for Shown {
    fn from(message: &ReceivedMessage) -> Self {
        let (body, body_error) = match message.body() {
            Ok(body) => (body, None),
            Err(error) => (message.stored_body().clone(), Some(error.to_string())),
        };
        let properties = message
            .properties()
            .map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            topic: message.topic.to_string(),
            queue: message.queue_id,
            queue_offset: message.queue_offset,
            message_id: message.message_id(),
            offset_id: message.offset_id(),
            tag: message.tag().map(str::to_owned),
            keys: message.keys().map(str::to_owned),
            properties: properties.collect(),
            born: message.born_timestamp,
            born_host: message.born_host.to_string(),
            stored: message.store_timestamp,
            store_host: message.store_host.to_string(),
            reconsume_times: message.reconsume_times,
            stored_size: message.stored_size,
            body_size: body.len(),
            body: String::from_utf8(body.to_vec())
                .ok()
                .filter(|_| body_error.is_none()),
            body_error,
        }
    }
}

/// One message. A comma-separated list is looked up one by one, as mqadmin does.
pub(crate) async fn get(cx: &Context, ids: &str, body_only: bool) -> anyhow::Result<()> {
    let mut shown = Vec::new();
    for id in ids.split(',').map(str::trim).filter(|id| !id.is_empty()) {
        let found = cx.admin.message_by_id(id).await;
        let message = match found {
            // Java's and our brokers answer 1 when there is no message at the offset.
            Err(error) if error.code() == Some(1) => {
                return Err(Failure::NotFound(format!("there is no message {id}: {error}")).into());
            }
            found => found.with_context(|| format!("look up message {id}"))?,
        };
        if body_only {
            output::write(&message.body()?)?;
        } else {
            shown.push(Shown::from(&message));
        }
    }
    if body_only {
        return Ok(());
    }
    let [one] = shown.as_slice() else {
        return print_list(cx.format, &shown);
    };
    print_one(cx.format, one)
}

pub(super) fn print_one(format: Format, one: &Shown) -> anyhow::Result<()> {
    output::print(format, one, |one| {
        let mut table = Table::new(&["field", "value"]);
        table.row(["topic", &one.topic]);
        table.row(["queue", &one.queue.to_string()]);
        table.row(["queue offset", &one.queue_offset.to_string()]);
        table.row(["message id", &one.message_id]);
        table.row(["offset id", &one.offset_id]);
        table.row(["tag", one.tag.as_deref().unwrap_or("-")]);
        table.row(["keys", one.keys.as_deref().unwrap_or("-")]);
        table.row(["born", &format!("{} at {}", time(one.born), one.born_host)]);
        table.row(["stored", &format!("{} at {}", time(one.stored), one.store_host)]);
        table.row(["deliveries", &(one.reconsume_times + 1).to_string()]);
        for (name, value) in &one.properties {
            table.row([&format!("property {name}"), value]);
        }
        table.row(["body size", &one.body_size.to_string()]);
        let unreadable = one
            .body_error
            .clone()
            .unwrap_or_else(|| "(not text; use --body)".into());
        table.row(["body", one.body.as_deref().unwrap_or(&unreadable)]);
        table
    })
}

pub(crate) async fn by_key(
    cx: &Context,
    topic: &str,
    key: &str,
    max: i32,
    unique: bool,
) -> anyhow::Result<()> {
    let route = cx.admin.route(topic).await?;
    let query = KeyQuery {
        max,
        unique,
        ..KeyQuery::new(topic, key)
    };
    let mut shown = Vec::new();
    for broker in &route.broker_datas {
        let Some(address) = broker.select_address() else {
            continue;
        };
        let found = cx.admin.query_by_key(address, &query).await;
        let found = found.with_context(|| format!("look the key up at {}", broker.broker_name))?;
        // Brokers compare hashes: another key can share one.
        let fits = |message: &&ReceivedMessage| {
            let keys = message.keys().unwrap_or_default();
            message.message_id() == key || keys.split_whitespace().any(|k| k == key)
        };
        shown.extend(found.iter().filter(fits).map(Shown::from));
    }
    if shown.is_empty() {
        return Err(Failure::NotFound(format!("topic {topic:?} has no message with key {key:?}")).into());
    }
    shown.sort_by_key(|message| message.stored);
    print_list(cx.format, &shown)
}

pub(super) fn print_list(format: Format, shown: &[Shown]) -> anyhow::Result<()> {
    output::print(format, &shown, |shown| {
        let mut table = Table::new(&["offset id", "queue", "offset", "stored"]).numbers(&[1, 2]);
        for message in *shown {
            table.row([
                message.offset_id.clone(),
                message.queue.to_string(),
                message.queue_offset.to_string(),
                time(message.stored),
            ]);
        }
        table
    })
}
