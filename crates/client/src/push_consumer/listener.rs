//! What the application's code is given, and what it says about it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use ferromq_protocol::body::MessageQueue;
use futures::FutureExt;
use futures::future::BoxFuture;
use tracing::Instrument as _;

use super::Core;
use crate::received::ReceivedMessage;
use crate::spans;

/// Messages for one call of the listener: neighbours of one queue, in order.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Delivery {
    /// The queue they came from. For a retried message that is a queue of the retry topic;
    /// [`ReceivedMessage::topic`] names the topic it was sent to.
    pub queue: MessageQueue,
    /// The messages, at least one.
    pub messages: Vec<Arc<ReceivedMessage>>,
}

/// What became of a [`Delivery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// All is dealt with.
    Done,
    /// Only the first so many messages are dealt with; the others are to be [`Outcome::Retry`]-ed.
    DoneUpTo(usize),
    /// Nothing is dealt with. Concurrently: the messages come again after the broker's growing delay, and after
    /// [`super::PushConsumerConfig::max_retries`] go to the dead letters. In order: the queue stands still for
    /// [`super::PushConsumerConfig::suspend`], then the same messages come again. Broadcasting: they are dropped.
    Retry,
    /// As [`Outcome::Retry`], but come again after the broker's delay level 1–18 (1 s … 2 h by default). In order it
    /// is the same as [`Outcome::Retry`].
    RetryAtLevel(u8),
    /// Nothing is dealt with and nothing will be: the messages go to the dead letters now.
    DeadLetter,
}

impl<E> From<Result<(), E>> for Outcome {
    /// `Ok` is done, an error is to be retried; say what the error was before.
    fn from(result: Result<(), E>) -> Self {
        if result.is_ok() { Self::Done } else { Self::Retry }
    }
}

pub(super) type Listener = Box<dyn Fn(Delivery) -> BoxFuture<'static, Outcome> + Send + Sync>;

/// How a call of the listener ended, beyond what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ended {
    Said(Outcome),
    Panicked(String),
    TimedOut,
}

impl Ended {
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Said(outcome) => *outcome,
            Self::Panicked(_) | Self::TimedOut => Outcome::Retry,
        }
    }
}

impl Core {
    /// Calls the listener; neither its panic nor its silence reaches further than this.
    pub(super) async fn call(&self, queue: &MessageQueue, messages: &[Arc<ReceivedMessage>]) -> Ended {
        let delivery = Delivery {
            queue: self.bare(queue),
            messages: messages.iter().map(|message| self.presented(message)).collect(),
        };
        let span = spans::process(&delivery, &self.config.group, self.client.id());
        let started = std::time::Instant::now();
        let traced = self
            .trace
            .as_ref()
            .map(|trace| trace.before_consume(&self.config.group, &delivery.messages));
        let call = AssertUnwindSafe(async { (self.listener)(delivery).await })
            .catch_unwind()
            .instrument(span.clone());
        let ended = match tokio::time::timeout(self.config.consume_timeout, call).await {
            Ok(Ok(outcome)) => Ended::Said(outcome),
            Ok(Err(panic)) => {
                let text = panic_text(&*panic);
                tracing::error!(
                    group = self.group,
                    ?queue,
                    panic = text,
                    "the listener panicked; its messages are retried"
                );
                Ended::Panicked(text)
            }
            Err(_) => {
                let after = self.config.consume_timeout;
                tracing::warn!(
                    group = self.group,
                    ?queue,
                    ?after,
                    "the listener took too long; its messages are retried"
                );
                Ended::TimedOut
            }
        };
        match &ended {
            Ended::Said(Outcome::Done) => {}
            Ended::Said(outcome) => spans::fail(&span, &format_args!("{outcome:?}")),
            Ended::Panicked(text) => spans::fail(&span, &format_args!("the listener panicked: {text}")),
            Ended::TimedOut => spans::fail(&span, &"the listener took too long"),
        }
        self.stats.consumed(
            messages.len(),
            matches!(ended, Ended::Said(Outcome::Done)),
            started.elapsed(),
        );
        if let (Some(trace), Some(traced)) = (&self.trace, traced) {
            trace.after_consume(&self.config.group, &traced, ended_code(&ended), started.elapsed());
        }
        ended
    }

    /// The message under the topic that it was sent to, without the namespace.
    fn presented(&self, message: &Arc<ReceivedMessage>) -> Arc<ReceivedMessage> {
        let namespace = &self.client.inner().namespace;
        let original = crate::callbacks::original_topic(message);
        if original.is_none() && namespace.is_empty() {
            return Arc::clone(message);
        }
        let topic = namespace.strip(original.unwrap_or(&message.topic));
        let mut presented = ReceivedMessage::clone(message);
        presented.topic = topic.into();
        Arc::new(presented)
    }

    fn bare(&self, queue: &MessageQueue) -> MessageQueue {
        let namespace = &self.client.inner().namespace;
        let mut queue = queue.clone();
        if !namespace.is_empty() {
            queue.topic = namespace.strip(&queue.topic);
        }
        queue
    }
}

/// Java's numbers: 0 consumed, 1 timed out, 2 threw, 4 failed.
fn ended_code(ended: &Ended) -> crate::trace::Consumed {
    use crate::trace::Consumed;
    match ended {
        Ended::Said(Outcome::Done) => Consumed::Success,
        Ended::Said(_) => Consumed::Failed,
        Ended::Panicked(_) => Consumed::Exception,
        Ended::TimedOut => Consumed::TimeOut,
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no text".to_owned())
}
