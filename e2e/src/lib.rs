//! Clusters and end-to-end tests: a real Kubernetes on this machine without a container engine ([`rig`]), and
//! container images written without one ([`image`]).

#![forbid(unsafe_code)]

pub mod image;
pub mod rig;
