//! Transactions: a half message is stored but not delivered until its producer says that the local work is done.
//!
//! The decision goes to the broker that has the half message. Should it get lost, or the process die, the broker asks
//! any producer of the group later; the check function then decides from what the application has stored.

use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;

use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::EndTransaction;
use ferromq_protocol::message_id::parse_offset_id;
use ferromq_protocol::properties::names;
use ferromq_protocol::sysflag;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Parcel, Producer, ProducerConfig, SendReceipt, SendStatus};
use crate::callbacks::Check;
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::link;
use crate::message::Message;
use crate::received::ReceivedMessage;
use crate::trace::{EndedTransaction, Sort};

/// Questions of brokers that may wait; what does not fit is asked again.
const WAITING: usize = 2000;

/// What becomes of a half message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It is delivered.
    Commit,
    /// It is never delivered.
    Rollback,
    /// Not known yet: the broker asks again later, a limited number of times.
    Unknown,
}

impl Decision {
    fn flag(self) -> i32 {
        match self {
            Self::Commit => sysflag::TRANSACTION_COMMIT,
            Self::Rollback => sysflag::TRANSACTION_ROLLBACK,
            Self::Unknown => 0,
        }
    }

    fn java_name(self) -> &'static str {
        match self {
            Self::Commit => "COMMIT_MESSAGE",
            Self::Rollback => "ROLLBACK_MESSAGE",
            Self::Unknown => "UNKNOW",
        }
    }
}

/// A half message about which a broker asks.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HalfMessage {
    /// The message as it was sent.
    pub message: ReceivedMessage,
}

type Checker = Box<dyn Fn(HalfMessage) -> BoxFuture<'static, Decision> + Send + Sync>;

/// Sends messages in transactions. Cheap to clone.
///
/// ```no_run
/// # async fn example(client: ferromq_client::Client) -> Result<(), ferromq_client::ClientError> {
/// use ferromq_client::{Decision, Message, ProducerConfig};
/// let producer = client.transactional_producer(ProducerConfig::new("billing"), |half| async move {
///     // Was the order stored? Look it up by a property of the message.
///     if half.message.keys() == Some("order-17") { Decision::Commit } else { Decision::Unknown }
/// });
/// let transaction = producer.prepare(Message::new("orders", "paid").key("order-17")).await?;
/// // ... the local transaction ...
/// transaction.commit().await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct TransactionalProducer {
    producer: Producer,
    _checks: std::sync::Arc<Checks>,
}

/// Ends the answering of checks with the last clone.
#[derive(Debug)]
struct Checks {
    client: Client,
    group: String,
    _stop: DropGuard,
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.client.inner().callbacks.remove_checker(&self.group);
    }
}

impl TransactionalProducer {
    pub(crate) fn new<C, F>(client: Client, config: ProducerConfig, check: C) -> Self
    where
        C: Fn(HalfMessage) -> F + Send + Sync + 'static,
        F: Future<Output = Decision> + Send + 'static,
    {
        let producer = Producer::new(client.clone(), config);
        let group = producer.inner.group.clone();
        let (sender, checks) = mpsc::channel(WAITING);
        client.inner().callbacks.add_checker(&group, sender);
        let stop = CancellationToken::new();
        let checker: Checker = Box::new(move |half| Box::pin(check(half)));
        // Without the producer: a task that held it would keep the client alive.
        let answers = answer(client.downgrade(), group.clone(), checker, checks);
        let stopped = stop.clone();
        client.spawn(async move {
            tokio::select! {
                () = answers => {}
                () = stopped.cancelled() => {}
            }
        });
        Self {
            producer,
            _checks: std::sync::Arc::new(Checks {
                client,
                group,
                _stop: stop.drop_guard(),
            }),
        }
    }

    /// For messages outside transactions.
    pub fn producer(&self) -> &Producer {
        &self.producer
    }

    /// Stores a half message. It is delivered after [`Transaction::commit`]. A delay level is taken off.
    ///
    /// # Errors
    /// As [`Producer::send`]. A half message that is not stored as safely as the broker is configured for is rolled
    /// back and counts as refused.
    pub async fn prepare(&self, mut message: Message) -> Result<Transaction> {
        let _under_way = self.producer.begin()?;
        message.remove(names::DELAY);
        message.set(names::TRAN_MSG, "true");
        message.set(names::PGROUP, &*self.producer.inner.group);
        let (tags, keys) = (
            message.get(names::TAGS).map(str::to_owned),
            message.get(names::KEYS).map(str::to_owned),
        );
        let parcel = self.producer.pack(message)?;
        let parcel = Parcel {
            sys_flag: sysflag::with_transaction(parcel.sys_flag, sysflag::TRANSACTION_PREPARED),
            sort: Sort::Half,
            ..parcel
        };
        let receipt = self.producer.send_anywhere(&parcel).await?;
        let status = receipt.status;
        let transaction = Transaction {
            producer: self.producer.clone(),
            topic: parcel.topic.clone(),
            tags,
            keys,
            receipt,
        };
        if status == SendStatus::Stored {
            return Ok(transaction);
        }
        transaction.end(Decision::Rollback).await?;
        Err(ClientError::InvalidArgument {
            reason: format!(
                "the half message is only stored with status {status:?} and was rolled back; try again"
            ),
        })
    }

    /// Stores a half message, does the local work, and ends the transaction by its result. What `work` decided is
    /// returned even when the broker could not be told: it will ask.
    ///
    /// # Errors
    /// As [`TransactionalProducer::prepare`]; then `work` was not called.
    pub async fn send_in_transaction<W, F>(
        &self,
        message: Message,
        work: W,
    ) -> Result<(SendReceipt, Decision)>
    where
        W: FnOnce(SendReceipt) -> F,
        F: Future<Output = Decision>,
    {
        let transaction = self.prepare(message).await?;
        let receipt = transaction.receipt.clone();
        let decision = work(receipt.clone()).await;
        if let Err(error) = transaction.end(decision).await {
            tracing::warn!(%error, ?decision, "the broker was not told of a decision and will ask");
        }
        Ok((receipt, decision))
    }

    /// Takes no more sends and waits for those under way, see [`Producer::shutdown`].
    pub async fn shutdown(&self) {
        self.producer.shutdown().await;
    }
}

/// A half message that waits for its decision. Dropped without one, the broker asks later.
#[derive(Debug)]
pub struct Transaction {
    producer: Producer,
    topic: String,
    tags: Option<String>,
    keys: Option<String>,
    receipt: SendReceipt,
}

impl Transaction {
    /// What the broker said about the half message.
    pub fn receipt(&self) -> &SendReceipt {
        &self.receipt
    }

    /// Has the message delivered.
    ///
    /// # Errors
    /// The broker did not take the decision; it will ask.
    pub async fn commit(self) -> Result<()> {
        self.end(Decision::Commit).await
    }

    /// Has the message never delivered.
    ///
    /// # Errors
    /// The broker did not take the decision; it will ask.
    pub async fn rollback(self) -> Result<()> {
        self.end(Decision::Rollback).await
    }

    async fn end(self, decision: Decision) -> Result<()> {
        let queue = &self.receipt.queue;
        let client = self.producer.inner.client.inner();
        let route = client.routes.get(&self.topic).await?;
        let broker = route
            .master(&queue.broker_name)
            .ok_or_else(|| ClientError::UnknownBroker {
                broker: queue.broker_name.clone(),
            })?;
        let offset_id = self
            .receipt
            .offset_ids
            .first()
            .map(String::as_str)
            .unwrap_or_default();
        let (_, log_offset) = parse_offset_id(offset_id)
            .ok_or_else(|| link::bad_answer(broker, "SEND_MESSAGE", "its message id cannot be read"))?;
        let transaction_id = self
            .receipt
            .transaction_id
            .as_deref()
            .unwrap_or_else(|| self.receipt.message_id());
        let header = EndTransaction {
            producer_group: &self.producer.inner.group,
            tran_state_table_offset: self.receipt.queue_offset,
            commit_log_offset: log_offset,
            commit_or_rollback: decision.flag(),
            from_transaction_check: false,
            msg_id: self.receipt.message_id(),
            transaction_id: Some(transaction_id),
        };
        let request = Command::request(request::END_TRANSACTION).with_header(&header);
        let told = match decision {
            // A broker does not answer this one.
            Decision::Unknown => client.link.oneway(broker, request).await,
            _ => client.link.ask(broker, request).await.map(drop),
        };
        if let Some(trace) = &client.trace {
            trace.ended_transaction(&EndedTransaction {
                group: &self.producer.inner.config.group,
                topic: &client.namespace.strip(&self.topic),
                id: self.receipt.message_id(),
                tags: self.tags.as_deref(),
                keys: self.keys.as_deref(),
                broker,
                transaction_id,
                state: decision.java_name(),
                from_check: false,
            });
        }
        told
    }
}

/// Answers brokers' questions one after the other, as Java does.
async fn answer(
    client: std::sync::Weak<crate::client::Inner>,
    group: String,
    checker: Checker,
    mut checks: mpsc::Receiver<Check>,
) {
    while let Some(check) = checks.recv().await {
        let half = HalfMessage {
            message: check.message.clone(),
        };
        let decision = AssertUnwindSafe(async { checker(half).await })
            .catch_unwind()
            .await;
        let decision = decision.unwrap_or_else(|_| {
            tracing::error!(
                group,
                id = check.message.message_id(),
                "the check of a transaction panicked; it stays unknown"
            );
            Decision::Unknown
        });
        let Some(client) = Client::upgrade(&client) else {
            return;
        };
        decide(&client, &group, &check, decision, check.broker).await;
    }
}

async fn decide(client: &Client, group: &str, check: &Check, decision: Decision, broker: SocketAddr) {
    let id = check.message.message_id();
    let header = EndTransaction {
        producer_group: group,
        tran_state_table_offset: check.table_offset,
        commit_log_offset: check.log_offset,
        commit_or_rollback: decision.flag(),
        from_transaction_check: true,
        msg_id: &id,
        transaction_id: check.transaction_id.as_deref(),
    };
    let request = Command::request(request::END_TRANSACTION).with_header(&header);
    let broker = broker.to_string();
    if let Err(error) = client.inner().link.oneway(&broker, request).await {
        tracing::warn!(group, id, %error, "a broker was not told of a decision and will ask again");
    }
    if let Some(trace) = &client.inner().trace {
        trace.ended_transaction(&EndedTransaction {
            group,
            topic: &check.message.topic,
            id: &id,
            tags: check.message.tag(),
            keys: check.message.keys(),
            broker: &broker,
            transaction_id: check.transaction_id.as_deref().unwrap_or(&id),
            state: decision.java_name(),
            from_check: true,
        });
    }
}
