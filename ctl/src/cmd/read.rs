//! Messages as they lie in their queues. Nothing is committed for any group.

use std::time::Duration;

use anyhow::Context as _;
use ferromq_client::{MessageQueue, PullConsumer, PullRequest, PullStatus, ReceivedMessage};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::QueryConsumeQueue;

use super::message::{self, Shown};
use crate::cli::Range;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Table, time};

const GROUP: &str = "TOOLS_CONSUMER";

fn pull(tags: Option<&str>, max: i32) -> PullRequest {
    let ask = PullRequest::new(max).with_hold(Duration::ZERO);
    match tags {
        Some(tags) => ask.with_tags(tags),
        None => ask,
    }
}

pub(crate) async fn at(
    cx: &Context,
    topic: &str,
    broker: &str,
    queue: i32,
    offset: i64,
) -> anyhow::Result<()> {
    let client = cx.client()?;
    let consumer = client.pull_consumer(GROUP);
    let queue = MessageQueue::new(topic, broker, queue);
    let pulled = consumer.pull(&queue, offset, &pull(None, 1)).await;
    client.shutdown().await;
    let pulled = pulled.with_context(|| format!("read offset {offset}"))?;
    match pulled.messages.first().filter(|m| m.queue_offset == offset) {
        Some(found) => message::print_one(cx.format, &Shown::from(found)),
        None => Err(Failure::NotFound(format!(
            "there is no message at offset {offset}; the queue has {} to {}",
            pulled.min_offset,
            pulled.max_offset - 1
        ))
        .into()),
    }
}

pub(crate) async fn print(cx: &Context, topic: &str, range: &Range) -> anyhow::Result<()> {
    let client = cx.client()?;
    let consumer = client.pull_consumer(GROUP);
    let mut queues = consumer.queues(topic).await?;
    queues.retain(|queue| {
        range
            .broker
            .as_ref()
            .is_none_or(|name| *name == queue.broker_name)
    });
    queues.retain(|queue| range.queue.is_none_or(|id| id == queue.queue_id));
    if queues.is_empty() {
        return Err(Failure::NotFound(format!("topic {topic:?} has no such readable queue")).into());
    }
    let mut shown = Vec::new();
    for queue in &queues {
        let found = of_queue(&consumer, queue, range).await;
        let found = found.with_context(|| format!("read {} of {}", queue.queue_id, queue.broker_name))?;
        shown.extend(found.iter().map(Shown::from));
    }
    client.shutdown().await;
    if !range.bodies {
        return message::print_list(cx.format, &shown);
    }
    output::print(cx.format, &shown, |shown| {
        let mut table = Table::new(&["queue", "offset", "stored", "body"]).numbers(&[0, 1]);
        for message in shown {
            table.row([
                message.queue.to_string(),
                message.queue_offset.to_string(),
                time(message.stored),
                message.body.clone().unwrap_or_else(|| "(not text)".to_owned()),
            ]);
        }
        table
    })
}

async fn of_queue(
    consumer: &PullConsumer,
    queue: &MessageQueue,
    range: &Range,
) -> anyhow::Result<Vec<ReceivedMessage>> {
    let most = range.count as usize;
    let mut offset = match (range.from, range.begin) {
        (Some(from), _) => from,
        (None, Some(begin)) => consumer.offset_by_time(queue, begin).await?,
        (None, None) => consumer.min_offset(queue).await?,
    };
    let end = match range.end {
        Some(end) => consumer.offset_by_time(queue, end).await?,
        None => i64::MAX,
    };
    let ask = pull(range.tags.as_deref(), 32);
    let mut found = Vec::new();
    while found.len() < most && offset < end {
        let pulled = consumer.pull(queue, offset, &ask).await?;
        let nothing_more = pulled.status == PullStatus::NoNewMessage || pulled.next_offset <= offset;
        found.extend(pulled.messages.into_iter().filter(|m| m.queue_offset < end));
        if nothing_more {
            break;
        }
        offset = pulled.next_offset;
    }
    found.truncate(most);
    Ok(found)
}

/// Units of a consume queue, as the broker shows them.
pub(crate) async fn units(
    cx: &Context,
    topic: &str,
    queue: i32,
    index: i64,
    count: i32,
    broker: Option<&str>,
    group: Option<&str>,
) -> anyhow::Result<()> {
    let address = if let Some(address) = broker {
        address.to_owned()
    } else {
        let route = cx.admin.route(topic).await?;
        let address = route.broker_datas.iter().find_map(|b| b.select_address());
        address
            .with_context(|| format!("topic {topic} is on no broker"))?
            .to_owned()
    };
    let header = QueryConsumeQueue {
        topic,
        queue_id: queue,
        index,
        count,
        consumer_group: group,
    };
    let request = Command::request(request::QUERY_CONSUME_QUEUE).with_header(&header);
    let answer = cx.admin.call(&address, request, cx.timeout()).await?;
    anyhow::ensure!(
        answer.code == 0,
        "{address} refused: code {}, {}",
        answer.code,
        answer.remark.as_deref().unwrap_or("no reason given")
    );
    let value: serde_json::Value = serde_json::from_slice(&answer.body).context("read the units as JSON")?;
    output::print(crate::cli::Format::Json, &value, |_| Table::default())
}
