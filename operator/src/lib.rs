//! The Kubernetes operator of FerroMQ.
//!
//! It watches two kinds, `BrokerCluster` and `Topic`, and for each runs the same steps: *dereference* (all reads),
//! *validate* (into a type nothing later goes behind), *build* (pure: every object or call that is wanted), *apply*
//! (server-side apply under one field manager, and only what differs), *status* (pure, written only when changed).
//! Every step is level-triggered and writes nothing that the next pass could not make again, so the process may die at
//! any point.

#![forbid(unsafe_code)]

pub mod access;
pub mod apply;
pub mod broker_status;
pub mod context;
pub mod controller;
pub mod covers;
pub mod crd;
pub mod digest;
pub mod error;
pub mod events;
pub mod keys;
pub mod lease;
pub mod metrics;
pub mod names;
pub mod quantity;
pub mod run;
pub mod settings;
