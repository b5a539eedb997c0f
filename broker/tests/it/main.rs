//! The broker over real connections: each test starts one on ports of its own.

#![allow(clippy::unwrap_used, reason = "a test stops where it fails")]

mod acl;
mod addresses;
mod admin;
mod bad_input;
mod better;
mod busy;
mod cases;
mod clients;
mod clock;
mod crowds;
mod damage;
mod figures;
mod filters;
mod hostile;
mod kill_loop;
mod light;
mod many;
mod mutated;
mod offsets;
mod process;
mod protocol_doc;
mod pull;
mod register;
mod replication;
mod replication_faults;
mod restart;
mod send;
mod support;
mod tls;
mod transactions;
