//! Reconciles a `BrokerCluster`.

pub mod build;
pub mod validate;
