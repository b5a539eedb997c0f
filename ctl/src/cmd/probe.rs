//! How long single messages take, one after the other.

use std::time::Instant;

use anyhow::Context as _;
use ferromq_client::{Message, ProducerConfig};
use serde::Serialize;

use crate::cli::Probe;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Table};

#[derive(Serialize)]
struct Try {
    broker: String,
    queue: i32,
    /// Absent when the send failed.
    milliseconds: Option<f64>,
    error: Option<String>,
}

/// Sends one message after the other to a topic, over its queues in turn, or only to those of one broker.
pub(crate) async fn send(
    cx: &Context,
    topic: &str,
    broker: Option<&str>,
    probe: &Probe,
) -> anyhow::Result<()> {
    let client = cx.client()?;
    let config = ProducerConfig::new("ferroctl_probe").with_send_timeout(cx.timeout());
    let producer = client.producer(config);
    let mut queues = producer
        .queues(topic)
        .await
        .with_context(|| format!("find the queues of {topic}"))?;
    queues.retain(|queue| broker.is_none_or(|broker| broker == queue.broker_name));
    if queues.is_empty() {
        return Err(Failure::NotFound(format!("topic {topic:?} has no writable queue there")).into());
    }
    let body = vec![b'a'; probe.size as usize];
    let mut tries = Vec::new();
    for n in 0..probe.count as usize {
        let queue = &queues[n % queues.len()];
        let begun = Instant::now();
        let sent = producer.send_to(queue, Message::new(topic, body.clone())).await;
        let millis = (begun.elapsed().as_secs_f64() * 1e6).round() / 1e3;
        tries.push(Try {
            broker: queue.broker_name.clone(),
            queue: queue.queue_id,
            milliseconds: sent.is_ok().then_some(millis),
            error: sent.err().map(|error| error.to_string()),
        });
    }
    client.shutdown().await;
    // The first pays for the connection.
    let good: Vec<f64> = tries.iter().skip(1).filter_map(|t| t.milliseconds).collect();
    if !good.is_empty() {
        let mean = good.iter().sum::<f64>() / good.len() as f64;
        eprintln!("{mean:.3} ms on average without the first");
    }
    output::print(cx.format, &tries, |tries| {
        let mut table = Table::new(&["broker", "queue", "ms", "result"]).numbers(&[1, 2]);
        for one in tries {
            table.row([
                one.broker.clone(),
                one.queue.to_string(),
                one.milliseconds
                    .map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}")),
                one.error.clone().unwrap_or_else(|| "stored".to_owned()),
            ]);
        }
        table
    })?;
    let failed = tries.iter().filter(|t| t.error.is_some()).count();
    anyhow::ensure!(
        failed == 0,
        "{failed} of {} messages were not stored",
        tries.len()
    );
    Ok(())
}
