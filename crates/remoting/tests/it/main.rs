//! Servers and clients over real sockets.

#![allow(clippy::unwrap_used, reason = "the helpers of tests may panic")]

mod back_pressure;
mod budget;
mod client;
mod hostile;
mod lanes;
mod observed;
mod server;
mod support;
mod tls;
