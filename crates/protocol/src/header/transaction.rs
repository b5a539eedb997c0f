//! Transactions (37, 39, 323).

use super::headers;

headers! {
    /// Request 37.
    pub struct EndTransaction<'a> {
        producer_group: &'a str => "producerGroup",
        /// Queue offset of the half message.
        tran_state_table_offset: i64 => "tranStateTableOffset",
        /// Physical offset of the half message.
        commit_log_offset: i64 => "commitLogOffset",
        /// 0 unknown, 8 commit, 12 roll back.
        commit_or_rollback: i32 => "commitOrRollback",
        from_transaction_check: bool => "fromTransactionCheck" = false,
        msg_id: &'a str => "msgId",
        transaction_id: Option<&'a str> => "transactionId",
    }

    /// Request 39, from broker to producer.
    pub struct CheckTransactionState<'a> {
        tran_state_table_offset: i64 => "tranStateTableOffset",
        commit_log_offset: i64 => "commitLogOffset",
        msg_id: Option<&'a str> => "msgId",
        transaction_id: Option<&'a str> => "transactionId",
        offset_msg_id: Option<&'a str> => "offsetMsgId",
    }

    /// Request 323.
    pub struct ResumeCheckHalfMessage<'a> {
        /// An offset id.
        msg_id: Option<&'a str> => "msgId",
    }
}
