//! The client against name servers and brokers that the tests script.

#![expect(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod admin;
mod consuming;
mod deliver;
mod fake;
mod faults;
mod names;
#[cfg(feature = "otel")]
mod otel;
mod push;
mod receive;
mod send;

use std::time::Duration;

/// How long a condition may take before a test gives up: a bound for hangs, not a measure of speed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Waits until `check` holds.
pub(crate) async fn wait_for(what: &str, mut check: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    assert!(waited.await.is_ok(), "still waiting for: {what}");
}

/// Fails instead of hanging.
pub(crate) async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    assert!(done.is_ok(), "did not end: {what}");
    done.unwrap()
}
