//! The FerroMQ broker: stores messages and hands them to consumers, speaking RocketMQ 4.9's protocol.
//!
//! [`Broker::start`] opens the store, loads the tables, listens, registers; [`Running::shutdown`] undoes
//! that in the order in which clients notice least. Between the two, `processor` answers requests from the shared
//! state in `core`.

#![forbid(unsafe_code)]

mod acl;
mod broker;
mod client_table;
mod clock;
pub mod config;
mod core;
mod expiring;
mod extend;
mod filter_table;
mod group_table;

mod housekeeping;
mod http;
mod item_stats;
mod last_times;
mod long_poll;
mod metrics;
mod notice;
mod offset_table;
mod overload;
mod own_address;
mod persist;
mod processor;
mod rebalance_lock;
mod register;
mod replication;
mod runtime_info;
mod selector;
#[cfg(test)]
mod settings_doc;
mod slow_readers;
mod stats;
mod tables;
mod topic_table;
mod transaction;
mod versioned;

pub use broker::{Broker, Running, StartOptions};
pub use config::BrokerSettings;
pub use extend::{Extensions, SendHook, Sending};
