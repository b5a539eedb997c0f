//! Message filters, as consumers state them when they subscribe.
//!
//! * [`TagSet`]: some tags, compared by their hash, which a consume queue holds with each message. A hash can stand for
//!   several tags, so that clients compare the text once more.
//! * [`Sql92`]: a condition on a message's properties, which needs the message itself.
//!
//! * [`bloom`]: bits beside a consume queue's unit that say to which groups' conditions a message may matter.
//!
//! All are pure: expressions come from clients, so parsing is bounded in depth and never panics.
#![forbid(unsafe_code)]

pub mod bloom;
pub mod sql92;
pub mod tag;

pub use bloom::BloomFilter;
pub use sql92::{ParseError, Sql92};
pub use tag::TagSet;
