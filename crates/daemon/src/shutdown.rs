//! Signals become a cancelled token.
//!
//! The first SIGTERM or SIGINT cancels; every later one is logged and changes nothing, so that an impatient
//! second signal cannot cut a clean stop short.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Listens for SIGTERM and SIGINT from now on, in a task of `tasks` that ends with `ended`.
///
/// # Errors
/// The handlers cannot be installed.
pub fn on_signals(tasks: &TaskTracker, stop: CancellationToken, ended: CancellationToken) -> io::Result<()> {
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    tasks.spawn(async move {
        loop {
            let name = tokio::select! {
                () = ended.cancelled() => return,
                _ = term.recv() => "SIGTERM",
                _ = int.recv() => "SIGINT",
            };
            if stop.is_cancelled() {
                tracing::info!(signal = name, "stopping already; the signal changes nothing");
            } else {
                tracing::info!(signal = name, "stopping");
                stop.cancel();
            }
        }
    });
    Ok(())
}
