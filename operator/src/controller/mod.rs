//! One module per kind; each goes dereference → validate → build → apply → status.

pub mod brokercluster;
pub mod topic;
