//! Counters of a server or a client, for its metrics page.

use std::sync::atomic::{AtomicU64, Ordering};

/// Totals since start, and connections open now. All are updated without order; read them for metrics only.
#[derive(Debug, Default)]
pub struct Stats {
    pub(crate) opened: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) frames_in: AtomicU64,
    pub(crate) frames_out: AtomicU64,
    pub(crate) bytes_in: AtomicU64,
    pub(crate) bytes_out: AtomicU64,
    pub(crate) bad_frames: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) tls_opened: AtomicU64,
    pub(crate) tls_errors: AtomicU64,
    pub(crate) shed: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Stats {
    /// Connections opened since start.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
    /// Connections open now.
    pub fn open(&self) -> u64 {
        let closed = self.closed.load(Ordering::Relaxed);
        self.opened().saturating_sub(closed)
    }
    /// Frames received, requests and responses.
    pub fn frames_in(&self) -> u64 {
        self.frames_in.load(Ordering::Relaxed)
    }
    /// Frames queued for writing.
    pub fn frames_out(&self) -> u64 {
        self.frames_out.load(Ordering::Relaxed)
    }
    /// Bytes read from sockets.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }
    /// Bytes written to sockets.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load(Ordering::Relaxed)
    }
    /// Connections closed because of a malformed frame.
    pub fn bad_frames(&self) -> u64 {
        self.bad_frames.load(Ordering::Relaxed)
    }
    /// Failed accepts, mostly for lack of file descriptors.
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }
    /// TLS handshakes that succeeded.
    pub fn tls_opened(&self) -> u64 {
        self.tls_opened.load(Ordering::Relaxed)
    }
    /// TLS handshakes that failed, and connections that were refused for their form (plain in enforcing mode).
    pub fn tls_errors(&self) -> u64 {
        self.tls_errors.load(Ordering::Relaxed)
    }
    /// Connections closed since they hoarded memory while it was short.
    pub fn shed(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }
}
