//! Ports for servers: below the range of outgoing connections, never twice in one run.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 20_000;
const LAST: u16 = 32_000;

static NEXT: AtomicU16 = AtomicU16::new(0);

/// The lowest of `count` free ports that follow each other.
pub(crate) fn block(count: u16) -> u16 {
    loop {
        let base = claim(count);
        // Held all at once: each must be free at the same moment.
        let held: Vec<_> = (base..base + count)
            .filter_map(|port| TcpListener::bind(("0.0.0.0", port)).ok())
            .collect();
        if held.len() == usize::from(count) {
            return base;
        }
    }
}

/// Runs of the tests next to each other start at different places.
fn claim(count: u16) -> u16 {
    let span = LAST - FIRST;
    let start = (std::process::id() % u32::from(span)) as u16;
    let at = NEXT.fetch_add(count, Ordering::Relaxed);
    let base = FIRST + (start + at % span) % span;
    if base + count > LAST { claim(count) } else { base }
}
