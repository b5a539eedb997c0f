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
//! * [`producer`]: sends, with retries at other brokers
//! * [`pull_consumer`]: receives by asking; [`group_consumer`] keeps asking all queues of a topic
//! * [`admin`]: typed administrative calls
//! * [`route`], [`choice`]: which queues there are and which one is taken: pure
//! * [`error`]: what can go wrong, in terms a caller can act on

#![forbid(unsafe_code)]

pub mod admin;
pub mod choice;
pub mod client;
pub mod config;
pub mod error;
pub mod group_consumer;
mod link;
pub mod message;
pub mod producer;
pub mod pull_consumer;
pub mod received;
pub mod route;
mod route_cache;

pub use ferromq_protocol::body::MessageQueue;

pub use client::Client;
pub use config::ClientConfig;
pub use error::{ClientError, Refusal};
pub use group_consumer::{Batch, GroupConsumer, GroupConsumerConfig, StartFrom};
pub use message::Message;
pub use producer::{Producer, ProducerConfig, SendReceipt, SendStatus};
pub use pull_consumer::{PullConsumer, PullRequest, PullStatus, Pulled};
pub use received::ReceivedMessage;
