//! The files that the official classes wrote for the protocol's tests.

use crate::common::test;
use crate::support::{self, java};

/// What the protocol's tests read is what the generator writes today.
#[test]
fn golden_files_are_up_to_date() {
    test(|dir| {
        let status = java::program("golden")?.arg("--out").arg(dir).status()?;
        anyhow::ensure!(status.success(), "the generator ended with {status}");
        let committed = support::root().join("e2e/java/golden");
        for entry in std::fs::read_dir(&committed)? {
            let name = entry?.file_name();
            anyhow::ensure!(
                std::fs::read(committed.join(&name))? == std::fs::read(dir.join(&name))?,
                "{} is stale: run e2e/java/run.sh golden --out e2e/java/golden",
                name.display()
            );
        }
        Ok(())
    });
}
