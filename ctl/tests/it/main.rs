//! ferroctl as a program, against a real name server and broker.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod admin;
mod bench;
mod cluster;
mod messages;
mod mqadmin;
mod plugin;
mod security;
mod store;
mod usage;
