//! Processes on loopback for the interop tests: our name server and broker, Java's, and the programs of `e2e/java`.
//!
//! What holds: every process is ended by its own handle when its value goes, also when a test fails; its output is kept
//! in a file of the test's directory and its end is printed on failure; ports lie below 32768, where no outgoing
//! connection takes them away; waiting is for a condition, with a bound that only a hang reaches.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;

pub(crate) mod cluster;
pub(crate) mod java;
pub(crate) mod ports;
pub(crate) mod process;

/// How long anything may take before a test gives up. A bound for hangs, not a measure of speed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(5);

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("e2e has a parent")
        .to_path_buf()
}

/// Waits until `check` is true.
pub(crate) fn wait_until(what: &str, mut check: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let started = Instant::now();
    while !check()? {
        anyhow::ensure!(
            started.elapsed() < PATIENCE,
            "still waiting for {what} after {PATIENCE:?}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Copies a store, so that a reader that writes to it leaves the original alone.
pub(crate) fn copy_dir(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("create {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_dir(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)
                .with_context(|| format!("copy {}", entry.path().display()))?;
        }
    }
    Ok(())
}
