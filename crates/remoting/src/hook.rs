//! Hooks see every request: on a server before it is handled, on a client before it is sent.
//!
//! Access control checks signatures in one, a client signs in one. Hooks run on the connection's task and
//! must not block.

use ferromq_protocol::command::Command;

/// A hook's refusal, as the peer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRefusal {
    /// Response code, usually 1 (system error).
    pub code: i32,
    /// Remark of the response.
    pub remark: String,
}

/// Looks at requests on their way, may change or refuse them.
pub trait RpcHook: Send + Sync + 'static {
    /// Called with each request; `peer` is `ip:port` of the other end (on a client: the address called).
    ///
    /// # Errors
    /// A refusal: a server answers with it, a client's call fails with
    /// [`CallError::Refused`](crate::CallError::Refused).
    fn before(&self, peer: &str, request: &mut Command) -> Result<(), HookRefusal>;
}
