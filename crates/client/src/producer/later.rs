//! Sends that go on by themselves.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use super::{Producer, SendReceipt};
use crate::error::{ClientError, Result};
use crate::message::Message;

/// The outcome to come of a send that was accepted. Dropping it changes nothing: the message is sent all the same.
#[derive(Debug)]
pub struct PendingSend {
    outcome: oneshot::Receiver<Result<SendReceipt>>,
}

impl Future for PendingSend {
    type Output = Result<SendReceipt>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let outcome = Pin::new(&mut self.outcome).poll(cx);
        outcome.map(|sent| sent.unwrap_or(Err(ClientError::Closed)))
    }
}

impl Producer {
    /// Accepts a message and sends it beside the caller, as [`Producer::send`] would. Waits only while
    /// [`super::ProducerConfig::max_pending`] sends are under way. What was accepted is sent even when the
    /// [`PendingSend`] is dropped and the producer or client shut down.
    ///
    /// Cancel safe: dropped before it returns, nothing is sent.
    ///
    /// # Errors
    /// [`ClientError::InvalidMessage`], or [`ClientError::Closed`] after the shutdown; all else is told by the
    /// [`PendingSend`].
    pub async fn send_later(&self, message: Message) -> Result<PendingSend> {
        let room = Arc::clone(&self.inner.room);
        let room = room.acquire_owned().await.map_err(|_| ClientError::Closed)?;
        let under_way = self.begin()?;
        let parcel = self.pack(message)?;
        let (sender, outcome) = oneshot::channel();
        let producer = self.clone();
        self.inner.client.inner().sends.spawn(async move {
            let sent = producer.send_anywhere(&parcel).await;
            // Whoever does not want to know has dropped the other end.
            drop(sender.send(sent));
            drop((room, under_way));
        });
        Ok(PendingSend { outcome })
    }
}
