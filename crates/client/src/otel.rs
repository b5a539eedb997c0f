//! OpenTelemetry contexts in message properties (feature `otel`).
//!
//! The application sets the propagator and the subscriber once; then each `send` span goes along with its message and
//! is the parent of the span around the listener, in whatever language the other side is written:
//!
//! ```no_run
//! # use opentelemetry_sdk::{propagation::TraceContextPropagator, trace::SdkTracerProvider};
//! # use opentelemetry::trace::TracerProvider as _;
//! # use tracing_subscriber::layer::SubscriberExt as _;
//! # use tracing_subscriber::util::SubscriberInitExt as _;
//! opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
//! let provider = SdkTracerProvider::builder().build(); // and an exporter
//! let spans = tracing_opentelemetry::layer().with_tracer(provider.tracer("billing"));
//! tracing_subscriber::registry().with(spans).init();
//! ```
//!
//! Messages that are pulled or come as a stream have no span of ours around their processing, or one that ends when
//! they are settled: [`context_of`] gives their context.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_protocol::properties::{NAME_END, PAIR_END};
use opentelemetry::propagation::{Extractor, Injector};
use opentelemetry::trace::TraceContextExt as _;
use opentelemetry::{Context, global};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::message::{self, Message};
use crate::received::ReceivedMessage;

struct Fields(BTreeMap<String, String>);

impl Injector for Fields {
    fn set(&mut self, key: &str, value: String) {
        let sound = |text: &str| !text.is_empty() && !text.contains([NAME_END, PAIR_END]);
        if sound(key) && sound(&value) {
            self.0.insert(key.to_owned(), value);
        }
    }
}

struct Properties<'a>(&'a ReceivedMessage);

impl Extractor for Properties<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.property(key)
    }

    fn keys(&self) -> Vec<&str> {
        self.0.properties().map(|(name, _)| name).collect()
    }
}

/// The context that a message was sent in, read by the global propagator; an empty one if it carries none. Make it the
/// parent of a span with [`tracing_opentelemetry::OpenTelemetrySpanExt::set_parent`].
pub fn context_of(message: &ReceivedMessage) -> Context {
    global::get_text_map_propagator(|propagator| {
        propagator.extract_with_context(&Context::new(), &Properties(message))
    })
}

/// Puts the span's context into the message. One that it carries already stays: it is passed on. A context for which
/// the properties have no room is left out, so that a message that can be sent without can be sent.
pub(crate) fn stamp(span: &Span, message: &mut Message) {
    if span.is_disabled() {
        return;
    }
    let mut fields = Fields(BTreeMap::new());
    global::get_text_map_propagator(|propagator| {
        propagator.inject_context(&span.context(), &mut fields);
    });
    let carried = fields.0.keys().any(|name| message.get(name).is_some());
    if carried || !message::has_room(message, &fields.0) {
        return;
    }
    for (name, value) in fields.0 {
        message.set(name, value);
    }
}

/// Makes the span a child of the only message's context, or links it to those of all.
pub(crate) fn follow(span: &Span, messages: &[Arc<ReceivedMessage>]) {
    if span.is_disabled() {
        return;
    }
    if let [message] = messages {
        let context = context_of(message);
        if context.span().span_context().is_valid()
            && let Err(error) = span.set_parent(context)
        {
            tracing::debug!(%error, "a span did not take the context of its message");
        }
        return;
    }
    for message in messages {
        let context = context_of(message).span().span_context().clone();
        if context.is_valid() {
            span.add_link(context);
        }
    }
}
