//! What a consumer tells about itself (307, 309).

use std::collections::BTreeMap;

use super::{MessageQueue, SubscriptionData, bodies, java_enum};
use crate::fastjson::optional_enum;

java_enum! {
    /// The outcome of consuming one message on demand.
    pub enum ConsumeResult {
        /// Consumed.
        Success = "CR_SUCCESS",
        /// To be tried again.
        Later = "CR_LATER",
        /// Rolled back.
        Rollback = "CR_ROLLBACK",
        /// Committed.
        Commit = "CR_COMMIT",
        /// The listener threw.
        ThrowException = "CR_THROW_EXCEPTION",
        /// The listener gave null.
        ReturnNull = "CR_RETURN_NULL",
    }
}

bodies! {
    /// Answer to 307.
    pub struct ConsumerRunningInfo {
        jstack: Option<String> => "jstack",
        mq_table: BTreeMap<MessageQueue, ProcessQueueInfo> => "mqTable",
        properties: BTreeMap<String, String> => "properties",
        status_table: BTreeMap<String, ConsumeStatus> => "statusTable",
        subscription_set: Vec<SubscriptionData> => "subscriptionSet",
    }

    /// A client's state of one queue.
    pub struct ProcessQueueInfo {
        cached_msg_count: i32 => "cachedMsgCount",
        cached_msg_max_offset: i64 => "cachedMsgMaxOffset",
        cached_msg_min_offset: i64 => "cachedMsgMinOffset",
        cached_msg_size_in_mib: i32 => "cachedMsgSizeInMiB",
        commit_offset: i64 => "commitOffset",
        /// Dropped; the name on the wire is spelt this way.
        droped: bool => "droped",
        last_consume_timestamp: i64 => "lastConsumeTimestamp",
        last_lock_timestamp: i64 => "lastLockTimestamp",
        last_pull_timestamp: i64 => "lastPullTimestamp",
        locked: bool => "locked",
        transaction_msg_count: i32 => "transactionMsgCount",
        transaction_msg_max_offset: i64 => "transactionMsgMaxOffset",
        transaction_msg_min_offset: i64 => "transactionMsgMinOffset",
        try_unlock_times: i64 => "tryUnlockTimes",
    }

    /// A client's rates for one topic.
    pub struct ConsumeStatus {
        consume_failed_msgs: i64 => "consumeFailedMsgs",
        consume_failed_tps: f64 => "consumeFailedTPS",
        consume_ok_tps: f64 => "consumeOKTPS",
        consume_rt: f64 => "consumeRT",
        pull_rt: f64 => "pullRT",
        pull_tps: f64 => "pullTPS",
    }

    /// Answer to 309.
    pub struct ConsumeMessageDirectlyResult {
        auto_commit: bool => "autoCommit" = true,
        #[serde(deserialize_with = "optional_enum")]
        consume_result: Option<ConsumeResult> => "consumeResult",
        order: bool => "order",
        remark: Option<String> => "remark",
        spent_time_mills: i64 => "spentTimeMills",
    }
}
