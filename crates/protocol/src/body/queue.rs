//! The name of a queue, which is also the key of many maps.

use serde::{Deserialize, Serialize};

/// One queue of one topic at one broker group. As a map's key it is written as its compact object text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MessageQueue {
    /// Name of the broker group.
    pub broker_name: String,
    /// Number of the queue, from 0.
    pub queue_id: i32,
    /// Name of the topic.
    pub topic: String,
}

impl MessageQueue {
    /// The queue with these names.
    pub fn new(topic: impl Into<String>, broker_name: impl Into<String>, queue_id: i32) -> Self {
        Self {
            broker_name: broker_name.into(),
            queue_id,
            topic: topic.into(),
        }
    }
}
