//! The spans of what an application follows through its system: `send`, from the call to the broker's answer with all
//! attempts, and `process`, one call of a listener. Fields have the names of OpenTelemetry's messaging conventions.
//!
//! With the feature `otel` the context of a `send` goes along in the message's properties, in the form of the global
//! propagator (W3C: `traceparent`, `tracestate`), and becomes the parent of `process`; a `process` of several messages
//! is linked to all of them. Without a subscriber that wants them spans cost next to nothing.

use tracing::field::{self, Empty};
use tracing::{Span, info_span};

use crate::error::Result;
use crate::producer::SendReceipt;
use crate::push_consumer::Delivery;

/// A send of `count` messages that is about to begin.
pub(crate) fn send(topic: &str, group: &str, client: &str, count: usize) -> Span {
    info_span!(
        "send",
        otel.name = format!("send {topic}"),
        otel.kind = "producer",
        otel.status_code = Empty,
        otel.status_description = Empty,
        messaging.system = "rocketmq",
        messaging.operation.name = "send",
        messaging.operation.type = "send",
        messaging.destination.name = topic,
        messaging.client.id = client,
        messaging.rocketmq.client_group = group,
        messaging.batch.message_count = (count > 1).then_some(count),
        messaging.message.id = Empty,
        messaging.destination.partition.id = Empty,
    )
}

/// Notes what a send came to.
pub(crate) fn sent(span: &Span, sent: &Result<SendReceipt>) {
    match sent {
        Ok(receipt) => {
            let (broker, queue) = (&receipt.queue.broker_name, receipt.queue.queue_id);
            let place = format_args!("{broker}/{queue}");
            span.record("messaging.destination.partition.id", field::display(place));
        }
        Err(error) => fail(span, error),
    }
}

/// A call of a listener that is about to begin.
pub(crate) fn process(delivery: &Delivery, group: &str, client: &str) -> Span {
    let count = delivery.messages.len();
    let topic = delivery.messages.first().map_or("", |message| &*message.topic);
    let span = info_span!(
        "process",
        otel.name = format!("process {topic}"),
        otel.kind = "consumer",
        otel.status_code = Empty,
        otel.status_description = Empty,
        messaging.system = "rocketmq",
        messaging.operation.name = "process",
        messaging.operation.type = "process",
        messaging.destination.name = topic,
        messaging.destination.partition.id =
            format!("{}/{}", delivery.queue.broker_name, delivery.queue.queue_id),
        messaging.client.id = client,
        messaging.consumer.group.name = group,
        messaging.batch.message_count = (count > 1).then_some(count),
        messaging.message.id = (count == 1).then(|| delivery.messages[0].message_id()),
    );
    #[cfg(feature = "otel")]
    crate::otel::follow(&span, &delivery.messages);
    span
}

/// Marks a span as failed.
pub(crate) fn fail(span: &Span, why: &dyn std::fmt::Display) {
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", field::display(why));
}
