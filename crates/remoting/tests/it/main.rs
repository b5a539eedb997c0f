//! Servers and clients over real sockets.

#![allow(clippy::unwrap_used, reason = "the helpers of tests may panic")]

mod back_pressure;
mod client;
mod hostile;
mod lanes;
mod server;
mod support;
mod tls;
