//! Hooks see every request and its answer: on a server before it is handled and before the answer leaves, on a
//! client before it is sent and when the answer came.
//!
//! Access control checks signatures in one, a client signs in one, audits and traces are written in one. Hooks run
//! on the connection's task (on a client: on the caller's) and must not block. One that panics costs that request
//! only.
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! use ferromq_remoting::{Dispatch, HookRefusal, RpcHook};
//! use ferromq_protocol::Command;
//!
//! /// Takes no request of a topic that is being moved, and counts what fails.
//! #[derive(Default)]
//! struct Moving {
//!     topic: String,
//!     failed: AtomicU64,
//! }
//!
//! impl RpcHook for Moving {
//!     fn before(&self, peer: &str, request: &mut Command) -> Result<(), HookRefusal> {
//!         if request.ext.get("topic").is_some_and(|topic| topic == self.topic) {
//!             let remark = format!("{} is being moved, {peer}: try again in a minute", self.topic);
//!             return Err(HookRefusal { code: 2, remark });
//!         }
//!         Ok(())
//!     }
//!
//!     fn after(&self, _peer: &str, _request: &Command, answer: &mut Command) {
//!         if answer.code != 0 {
//!             self.failed.fetch_add(1, Ordering::Relaxed);
//!         }
//!     }
//! }
//!
//! let mut table = Dispatch::builder();
//! table.hook(Arc::new(Moving { topic: "Orders".to_owned(), ..Moving::default() }));
//! let _table = table.build();
//! ```

use bytes::Bytes;
use ferromq_protocol::command::Command;

/// A hook's refusal, as the peer sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HookRefusal {
    /// Response code, usually 1 (system error).
    pub code: i32,
    /// Remark of the response.
    pub remark: String,
}

/// Looks at requests on their way, may change or refuse them; looks at answers, may change them.
pub trait RpcHook: Send + Sync + 'static {
    /// Called with each request; `peer` is `ip:port` of the other end (on a client: the address called).
    ///
    /// # Errors
    /// A refusal: a server answers with it, a client's call fails with
    /// [`CallError::Refused`](crate::CallError::Refused).
    fn before(&self, peer: &str, request: &mut Command) -> Result<(), HookRefusal>;

    /// Called with each answer that is sent (on a client: that came), refusals among them, in the order in which the
    /// hooks were added. `request` is what `before` left, without its body. What a one-way request gets is no answer.
    fn after(&self, _peer: &str, _request: &Command, _answer: &mut Command) {}
}

/// What `after` sees of a request.
pub(crate) fn without_body(request: &Command) -> Command {
    Command {
        body: Bytes::new(),
        ext: request.ext.clone(),
        remark: request.remark.clone(),
        ..*request
    }
}
