//! Queue locks of ordered consumers (41, 42).

use super::{MessageQueue, bodies};

bodies! {
    /// Body of 41 and 42.
    pub struct LockBatchRequestBody {
        client_id: String => "clientId",
        consumer_group: String => "consumerGroup",
        mq_set: Vec<MessageQueue> => "mqSet",
    }

    /// Answer to 41.
    pub struct LockBatchResponseBody {
        /// The queues that are now the client's.
        lock_ok_mq_set: Vec<MessageQueue> => "lockOKMQSet",
    }
}

/// Body of 42; the same as that of 41.
pub type UnlockBatchRequestBody = LockBatchRequestBody;
