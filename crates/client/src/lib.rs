//! RocketMQ client in async Rust.
