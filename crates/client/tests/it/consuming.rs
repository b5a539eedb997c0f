//! What tests of consumers share: settings that make them quick, messages that tell apart, and a note of what came.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{
    Client, Delivery, Filter, Message, MessageQueue, Outcome, ProducerConfig, PushConsumerConfig, StartFrom,
};
use parking_lot::Mutex;

/// What came, in the order in which it came: queue, offset, body.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<(MessageQueue, i64, String)>>>);

impl Seen {
    pub(crate) fn note(&self, delivery: &Delivery) {
        for message in &delivery.messages {
            let body = String::from_utf8(message.body().unwrap().to_vec()).unwrap();
            self.0
                .lock()
                .push((delivery.queue.clone(), message.queue_offset, body));
        }
    }

    /// A listener that notes everything and is content.
    pub(crate) fn listener(
        &self,
    ) -> impl Fn(Delivery) -> std::future::Ready<Outcome> + Send + Sync + 'static {
        let seen = self.clone();
        move |delivery| {
            seen.note(&delivery);
            std::future::ready(Outcome::Done)
        }
    }

    pub(crate) fn all(&self) -> Vec<(MessageQueue, i64, String)> {
        self.0.lock().clone()
    }

    pub(crate) fn bodies(&self) -> BTreeSet<String> {
        self.0.lock().iter().map(|(_, _, body)| body.clone()).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A member of a group that reads topic `T` from its beginning.
pub(crate) fn config(group: &str) -> PushConsumerConfig {
    let mut config = PushConsumerConfig::new(group)
        .subscribe("T", Filter::All)
        .with_start(StartFrom::Oldest);
    config.save_every = Duration::from_millis(50);
    config.balance_every = Duration::from_millis(200);
    config.hold = Duration::from_millis(500);
    config
}

/// Sends the numbers to topic `T`, with tags `even` and `odd`.
pub(crate) async fn send(client: &Client, numbers: std::ops::Range<u32>) {
    let producer = client.producer(ProducerConfig::new("PG"));
    for n in numbers {
        let tag = if n % 2 == 0 { "even" } else { "odd" };
        producer
            .send(Message::new("T", n.to_string()).tag(tag))
            .await
            .unwrap();
    }
}

pub(crate) fn texts(numbers: std::ops::Range<u32>) -> BTreeSet<String> {
    numbers.map(|n| n.to_string()).collect()
}
