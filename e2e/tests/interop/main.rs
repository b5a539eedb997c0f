//! FerroMQ and the official Java programs, on loopback: clients and tools 4.9 against our servers, our broker next to
//! Java's in one cluster, and stores that change hands in both directions, after clean stops and after kill -9.
//!
//! Needs a JDK with Maven, and our binaries: `cargo build -p ferromq-broker -p ferromq-namesrv` first.

mod acl;
mod common;
mod ferroctl;
mod go;
mod golden;
mod light;
mod mqadmin;
mod registration;
mod replication;
mod rust_client;
mod rust_exchange;
mod rust_secured;
mod stores;
mod suites;
#[path = "../support/mod.rs"]
mod support;
mod tls;
