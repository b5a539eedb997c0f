//! A push consumer as a stream: the application takes deliveries when it likes and says what became of each.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::Stream;
use tokio::sync::{mpsc, oneshot};

use super::{Delivery, Outcome, PushConsumer, PushConsumerConfig};
use crate::client::Client;
use crate::error::Result;

/// A delivery that waits for a word about it. Dropped without one, it is [`Outcome::Retry`].
#[derive(Debug)]
pub struct Incoming {
    /// The messages and their queue.
    pub delivery: Delivery,
    answer: oneshot::Sender<Outcome>,
}

impl Incoming {
    /// Says that all messages are dealt with.
    pub fn done(self) {
        self.settle(Outcome::Done);
    }

    /// Says what became of the messages.
    pub fn settle(self, outcome: Outcome) {
        if self.answer.send(outcome).is_err() {
            tracing::debug!("a delivery was settled too late: its consumer has ended, or it took too long");
        }
    }
}

/// Deliveries of a push consumer. Up to [`PushConsumerConfig::concurrency`] may be out at the same time; in order, one
/// of each queue. Dropping it ends the consumer as dropping a [`PushConsumer`] does.
#[derive(Debug)]
pub struct ConsumerStream {
    consumer: PushConsumer,
    deliveries: mpsc::Receiver<Incoming>,
}

impl ConsumerStream {
    /// Joins the group; deliveries come in any order.
    ///
    /// # Errors
    /// As [`PushConsumer::start`].
    pub async fn start(client: &Client, config: PushConsumerConfig) -> Result<Self> {
        let (sender, deliveries) = mpsc::channel(1);
        let consumer = PushConsumer::start(client, config, move |delivery| {
            hand_over(sender.clone(), delivery)
        })
        .await?;
        Ok(Self { consumer, deliveries })
    }

    /// Joins the group; each queue's deliveries come in order, the next one when the last is settled.
    ///
    /// # Errors
    /// As [`PushConsumer::start`].
    pub async fn start_ordered(client: &Client, config: PushConsumerConfig) -> Result<Self> {
        let (sender, deliveries) = mpsc::channel(1);
        let listener = move |delivery| hand_over(sender.clone(), delivery);
        let consumer = PushConsumer::start_ordered(client, config, listener).await?;
        Ok(Self { consumer, deliveries })
    }

    /// The next delivery. Cancel safe: none is lost. `None` after the shutdown.
    pub async fn next(&mut self) -> Option<Incoming> {
        self.deliveries.recv().await
    }

    /// The consumer behind it: to pause, look at its queues, or shut it down.
    pub fn consumer(&self) -> &PushConsumer {
        &self.consumer
    }

    /// Ends the consumer in good order, see [`PushConsumer::shutdown`]. Deliveries that are out are waited for, those
    /// not yet taken go to others.
    pub async fn shutdown(mut self) -> Result<()> {
        self.deliveries.close();
        while let Ok(untaken) = self.deliveries.try_recv() {
            drop(untaken);
        }
        self.consumer.shutdown().await
    }
}

impl Stream for ConsumerStream {
    type Item = Incoming;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Incoming>> {
        self.deliveries.poll_recv(cx)
    }
}

async fn hand_over(sender: mpsc::Sender<Incoming>, delivery: Delivery) -> Outcome {
    let (answer, said) = oneshot::channel();
    if sender.send(Incoming { delivery, answer }).await.is_err() {
        return Outcome::Retry;
    }
    said.await.unwrap_or(Outcome::Retry)
}
