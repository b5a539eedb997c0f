//! Administration of RocketMQ clusters from the command line.

fn main() {}
