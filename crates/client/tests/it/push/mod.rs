//! The push consumer: who gets what, what is retried, what is stored.

mod broadcast;
mod many;
mod offsets;
mod order;
mod retry;
mod sharing;
mod steady;
mod stream;
mod tools;
