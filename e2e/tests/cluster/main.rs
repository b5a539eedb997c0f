//! End-to-end tests on a real Kubernetes, started by `make e2e`: the chart is installed, the images are loaded.
//!
//! Each test has a namespace of its own and removes it, so tests run in any order and beside each other.

mod chart;
mod growth;
mod life;
mod refusals;
mod removal;
mod rollouts;
mod secured;
mod support;
mod topics;
