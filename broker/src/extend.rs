//! What a program that embeds the broker can hang onto it: looks at sends, and at the log as it is dispatched.
//!
//! Hooks are code of the embedding program; nothing is ever loaded from outside. See `examples/send_hook.rs` and
//! `examples/dispatch_hook.rs`.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use ferromq_store::Dispatcher;

/// A send as it came, after the broker's own checks.
#[derive(Debug, Clone, Copy)]
pub struct Sending<'a> {
    /// The topic that the client named.
    pub topic: &'a str,
    /// The queue it goes to.
    pub queue_id: i32,
    /// The producer's group.
    pub producer_group: &'a str,
    /// Where it came from.
    pub peer: SocketAddr,
    /// The body; of a batch all its messages.
    pub body: &'a [u8],
    /// Properties as the client sent them; of a batch those that all its messages share.
    pub properties: &'a str,
    /// Whether it is a batch.
    pub batch: bool,
}

/// Sees every send (10, 310, 320). Called on the connection's task: it must not wait.
pub trait SendHook: Send + Sync {
    /// Before the message is stored.
    ///
    /// # Errors
    /// The send is refused with code 1 and this text; nothing is stored.
    fn before(&self, sending: &Sending<'_>) -> Result<(), String> {
        let _ = sending;
        Ok(())
    }

    /// After it was stored, before it is answered: it may not be on disk or at a replica yet.
    fn stored(&self, sending: &Sending<'_>, queue_offset: i64, physical_offset: i64) {
        let _ = (sending, queue_offset, physical_offset);
    }
}

/// What is hung onto a broker.
#[derive(Clone, Default)]
pub struct Extensions {
    /// See every send, in this order.
    pub send: Vec<Arc<dyn SendHook>>,
    /// See every record of the log, before its queue does; after a crash the last ones come again.
    pub dispatch: Vec<Arc<dyn Dispatcher>>,
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extensions")
            .field("send", &self.send.len())
            .field("dispatch", &self.dispatch.len())
            .finish()
    }
}
