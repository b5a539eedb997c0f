//! RocketMQ 4.9 wire and record formats: pure, no I/O.
