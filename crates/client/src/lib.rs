//! RocketMQ client in async Rust.
//!
//! A [`Client`] holds what its parts share: connections, routes, heartbeats. From it come producers and consumers;
//! [`admin::Admin`] makes administrative calls with or without one. All need a tokio runtime.
//!
//! ```no_run
//! # async fn example() -> Result<(), ferromq_client::ClientError> {
//! use ferromq_client::{Client, ClientConfig, Message, ProducerConfig};
//!
//! let client = Client::start(ClientConfig::new("mq-namesrv:9876"))?;
//! let producer = client.producer(ProducerConfig::new("billing"));
//! let receipt = producer.send(Message::new("orders", "hello").tag("paid")).await?;
//! println!("stored as {}", receipt.message_id());
//! client.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! * [`producer`]: sends, with retries at other brokers; requests with replies; transactions
//! * [`push_consumer`]: messages come to a listener or a stream, the group shares the queues
//! * [`lite_pull`]: messages are taken when the application likes; [`pull_consumer`]: one pull at a time
//! * [`rebalance`]: how a group shares queues, as Java does: pure
//! * [`admin`]: typed administrative calls
//! * [`route`], [`choice`]: which queues there are and which one is taken: pure
//! * spans of `tracing` around sends and calls of listeners; with the feature `otel` their OpenTelemetry contexts travel in
//!   the messages
//! * [`error`]: what can go wrong, in terms a caller can act on

#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod address_server;
pub mod admin;
mod callbacks;
pub mod choice;
pub mod client;
mod clock;
pub mod config;
pub mod error;
mod fault;
mod fetch;
pub mod filter;
mod link;
pub mod lite_pull;
pub mod message;
mod namespace;
mod offset_store;
#[cfg(feature = "otel")]
pub mod otel;
pub mod producer;
pub mod pull_consumer;
pub mod push_consumer;
pub mod rebalance;
pub mod received;
pub mod route;
mod route_cache;
mod spans;
pub mod trace;

pub use ferromq_protocol::acl::Credentials;
pub use ferromq_protocol::body::{MessageModel, MessageQueue};
pub use ferromq_protocol::compress::Kind as Compression;

pub use ferromq_remoting::{ClientTls, ClientTlsSettings, HookRefusal, RpcHook};

pub use client::Client;
pub use config::ClientConfig;
pub use error::{ClientError, Refusal};
pub use filter::Filter;
pub use lite_pull::{LitePullConfig, LitePullConsumer};
pub use message::Message;
pub use producer::{
    Decision, HalfMessage, PendingSend, Producer, ProducerConfig, SendReceipt, SendStatus, Transaction,
    TransactionalProducer,
};
pub use pull_consumer::{PullConsumer, PullRequest, PullStatus, Pulled};
pub use push_consumer::{
    ConsumerStream, Delivery, FlowLimits, Incoming, Outcome, PushConsumer, PushConsumerConfig, StartFrom,
};
pub use received::ReceivedMessage;
pub use trace::TraceConfig;
