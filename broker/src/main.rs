//! The FerroMQ broker.

fn main() {}
