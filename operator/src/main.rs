//! Kubernetes operator for FerroMQ.

fn main() {}
