//! The name server: which broker serves which topic at which address.
//!
//! Brokers register over remoting every half minute; clients ask for routes. Name servers know nothing of each
//! other, and all they know but the key-value configuration lives in memory only.
//!
//! * [`route_table`]: the tables and every rule about them, pure
//! * [`kv_config`]: key-value configuration, saved durably
//! * [`config`], the settings
//! * [`processor`]: the request codes
//! * `other_environment`: routes that are asked for elsewhere
//! * [`server`]: start, liveness scan, stop

#![forbid(unsafe_code)]

pub mod config;
pub mod kv_config;
mod other_environment;
pub mod processor;
pub mod route_table;
pub mod server;

pub use config::NamesrvSettings;
pub use server::{NameServer, Running, StartError, run, start};
