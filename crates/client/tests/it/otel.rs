//! Contexts of OpenTelemetry go from the sender's span through the message to the receiver's.

use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{Delivery, Message, Outcome, ProducerConfig, PushConsumer, ReceivedMessage};
use ferromq_protocol::code::request;
use opentelemetry::trace::{SpanKind, Status, TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use parking_lot::Mutex;
use tracing::Instrument as _;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::consuming::config;
use crate::fake::Cluster;
use crate::wait_for;

/// Spans of this test's thread, on which its runtime lives.
struct Spans {
    exporter: InMemorySpanExporter,
    _provider: SdkTracerProvider,
    _guard: DefaultGuard,
}

impl Spans {
    fn collect() -> Self {
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        let guard = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        Self {
            exporter,
            _provider: provider,
            _guard: guard,
        }
    }

    fn named(&self, name: &str) -> Vec<SpanData> {
        let mut spans = self.exporter.get_finished_spans().unwrap();
        spans.retain(|span| span.name == name);
        spans
    }
}

fn text(span: &SpanData, field: &str) -> String {
    let found = span.attributes.iter().find(|pair| pair.key.as_str() == field);
    found.map(|pair| pair.value.to_string()).unwrap_or_default()
}

#[tokio::test]
async fn a_listener_runs_in_the_trace_of_the_sender() {
    let spans = Spans::collect();
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(ProducerConfig::new("PG"));
    let received: Arc<Mutex<Vec<Arc<ReceivedMessage>>>> = Arc::default();
    let noted = Arc::clone(&received);
    let consumer = PushConsumer::start(&client, config("G"), move |delivery: Delivery| {
        noted.lock().extend(delivery.messages.clone());
        async {
            tracing::info_span!("of the application").in_scope(|| ());
            Outcome::Done
        }
    })
    .await
    .unwrap();
    let order = tracing::info_span!("order");
    let receipt = producer
        .send(Message::new("T", "x"))
        .instrument(order.clone())
        .await
        .unwrap();
    drop(order);
    wait_for("the listener's span", || !spans.named("process T").is_empty()).await;
    let (order, send) = (spans.named("order").remove(0), spans.named("send T").remove(0));
    let (process, inner) = (
        spans.named("process T").remove(0),
        spans.named("of the application").remove(0),
    );
    assert_eq!(
        (send.span_kind.clone(), process.span_kind.clone()),
        (SpanKind::Producer, SpanKind::Consumer)
    );
    assert_eq!(send.parent_span_id, order.span_context.span_id());
    assert_eq!(process.parent_span_id, send.span_context.span_id());
    assert_eq!(inner.parent_span_id, process.span_context.span_id());
    for span in [&send, &process, &inner] {
        assert_eq!(span.span_context.trace_id(), order.span_context.trace_id());
    }
    for span in [&send, &process] {
        assert_eq!(text(span, "messaging.message.id"), receipt.message_id());
        assert_eq!(text(span, "messaging.destination.name"), "T");
        assert_eq!(text(span, "messaging.destination.partition.id"), "a/0");
        assert_eq!(span.status, Status::Unset);
    }
    // Whoever pulls by himself finds the context too.
    let message = received.lock()[0].clone();
    let context = ferromq_client::otel::context_of(&message);
    assert_eq!(
        context.span().span_context().span_id(),
        send.span_context.span_id()
    );
    consumer.shutdown().await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn a_call_with_several_messages_is_linked_to_all_of_their_sends() {
    let spans = Spans::collect();
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(ProducerConfig::new("PG"));
    let batch = (0..2).map(|n| Message::new("T", n.to_string())).collect();
    producer.send_batch(batch).await.unwrap();
    producer.send(Message::new("T", "2")).await.unwrap();
    let listener = |_| async { Outcome::Done };
    let consumer = PushConsumer::start(&client, config("G").with_batch(8), listener)
        .await
        .unwrap();
    wait_for("the listener's span", || !spans.named("process T").is_empty()).await;
    let process = spans.named("process T").remove(0);
    let sends: Vec<_> = spans
        .named("send T")
        .iter()
        .map(|s| s.span_context.span_id())
        .collect();
    let links: Vec<_> = process
        .links
        .iter()
        .map(|link| link.span_context.span_id())
        .collect();
    assert_eq!(links, [sends[0], sends[0], sends[1]]);
    consumer.shutdown().await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn failures_are_marked_and_what_carries_a_context_keeps_it() {
    let spans = Spans::collect();
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let mut once = ProducerConfig::new("PG").with_retries(0);
    once.send_timeout = Duration::from_secs(30);
    let producer = client.producer(once);
    let broker = cluster.broker("a");
    broker.refuse_sends(&[(13, "no")]);
    producer.send(Message::new("T", "refused")).await.unwrap_err();
    let refused = spans.named("send T").remove(0);
    assert!(matches!(&refused.status, Status::Error { description } if description.contains("no")));
    let passed_on = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let message = Message::new("T", "passed on").property("traceparent", passed_on);
    producer.send(message).await.unwrap();
    let listener = |_| async { panic!("as listeners do") };
    let consumer = PushConsumer::start(&client, config("G"), listener).await.unwrap();
    wait_for("the listener's span", || !spans.named("process T").is_empty()).await;
    let process = spans.named("process T").remove(0);
    assert_eq!(process.parent_span_id.to_string(), "b7ad6b7169203331");
    assert!(
        matches!(&process.status, Status::Error { description } if description.contains("as listeners do"))
    );
    // One whose properties are full goes without.
    let full = Message::new("T", "full").property("p", "v".repeat(32_767 - 512 - 60));
    producer.send(full).await.unwrap();
    let sent = broker.asked(request::SEND_MESSAGE_V2).pop().unwrap();
    assert!(!sent.ext.get("i").unwrap().contains("traceparent"));
    consumer.shutdown().await.unwrap();
    client.shutdown().await;
}
