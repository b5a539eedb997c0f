//! What can go wrong with a call, in variants that a caller can act on.

use std::sync::Arc;
use std::time::Duration;

/// Why a frame was not queued on a connection. Nothing was sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection is closed or closing.
    #[error("the connection to {peer} is closed: {reason}")]
    Closed {
        /// The other end.
        peer: String,
        /// Why it was closed.
        reason: Arc<str>,
    },
    /// The peer reads too slowly: the write queue is at its limit.
    #[error("{peer} does not read fast enough: {queued} bytes wait to be written to it; try again later")]
    Full {
        /// The other end.
        peer: String,
        /// Bytes that wait now.
        queued: usize,
    },
    /// Too many calls wait for an answer on this connection.
    #[error("{waiting} calls to {peer} wait for an answer already; try again later")]
    TooManyCalls {
        /// The other end.
        peer: String,
        /// Calls that wait now.
        waiting: usize,
    },
    /// The frame is longer than any peer accepts.
    #[error("a frame of {size} bytes for {peer} is above the limit of {limit} bytes; send less at a time")]
    TooLarge {
        /// The other end.
        peer: String,
        /// Bytes of the frame.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The address is not `host:port`.
    #[error("'{addr}' is not an address: {reason}; write host:port, an IPv6 address in brackets")]
    Address {
        /// What was given.
        addr: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No connection could be made. Nothing was sent.
    #[error("cannot connect to {addr}: {reason}")]
    Connect {
        /// The address asked for.
        addr: String,
        /// The last error.
        reason: Arc<str>,
    },
    /// The request was not queued. Nothing was sent.
    #[error(transparent)]
    Send(#[from] SendError),
    /// A hook refused the request. Nothing was sent.
    #[error("the request was refused before it was sent: {remark}")]
    Refused {
        /// The hook's reason.
        remark: String,
    },
    /// No answer came in time; the request may have been handled.
    #[error("{addr} did not answer within {} ms", after.as_millis())]
    Timeout {
        /// The other end.
        addr: String,
        /// The time that was given.
        after: Duration,
    },
    /// The connection broke while the call waited; the request may have been handled.
    #[error("the connection to {addr} was lost while waiting for the answer: {reason}")]
    Lost {
        /// The other end.
        addr: String,
        /// Why it was closed.
        reason: Arc<str>,
    },
    /// The client was closed.
    #[error("the client is closed")]
    ClientClosed,
}

impl CallError {
    /// Whether the peer may have seen the request: if so, repeating it can do the work twice.
    pub fn may_have_been_sent(&self) -> bool {
        matches!(self, Self::Timeout { .. } | Self::Lost { .. })
    }
}
