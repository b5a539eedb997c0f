//! Time: as the protocol counts it, and as it passes. Decisions take the time as an argument; this is where the callers
//! get it from.
//!
//! What is stored or told is in wall-clock time. How long something has lasted (a lock, a client's silence) is counted by a
//! clock that nobody sets: when the machine's clock jumps by an hour, no lock may outlive its owner by that, and no
//! client be dropped.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01 UTC; 0 when the clock is set before that.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// Milliseconds that only ever grow, at the pace of time. Only differences mean something; they are never written.
pub(crate) fn steady_ms() -> i64 {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    // Not from zero, so that "a while ago" is never negative.
    const BASE: i64 = 1 << 40;
    BASE + BEGAN.get_or_init(Instant::now).elapsed().as_millis() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_steady_clock_never_goes_back() {
        let mut last = steady_ms();
        for _ in 0..1_000 {
            let now = steady_ms();
            assert!(now >= last && now > 0);
            last = now;
        }
    }
}
