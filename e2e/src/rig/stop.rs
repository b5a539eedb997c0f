//! Taking a cluster down, whatever state it is in. Nothing of it is worth saving, so its processes are ended at once;
//! the kernel then ends a node's pods, mounts and links with the node's first process.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::process::{self, Records};
use super::{Progress, Rig, cgroup, leftovers, network};

impl Rig {
    /// Ends the cluster's processes and removes every trace but the cache. Fine when nothing is there.
    ///
    /// # Errors
    /// Another rig command runs, the state folder is not a rig's, or something withstands removal.
    pub fn down(&self, progress: Progress<'_>) -> Result<()> {
        let _lock = Self::lock()?;
        self.remove_all()?;
        if self.paths.default_state()
            && let Some(parent) = self.paths.state().parent()
        {
            // Ours as well when nothing else lies in it.
            fs::remove_dir(parent).ok();
        }
        let left = leftovers(&self.paths)?;
        ensure!(
            left.is_empty(),
            "the rig is down, but these were left: {}",
            left.join("; ")
        );
        progress("no process, mount, network or file of the rig is left");
        Ok(())
    }

    pub(super) fn remove_all(&self) -> Result<()> {
        let state = self.paths.state();
        let occupied = fs::read_dir(state).is_ok_and(|mut entries| entries.next().is_some());
        ensure!(
            !occupied || self.paths.marker().exists(),
            "{} is not empty and not a rig's: nothing in it is touched; choose another FERROMQ_RIG_DIR",
            state.display()
        );
        if !state.exists() && network::host_link_exists() {
            // The link goes with its switch, so somebody's switch runs.
            let mut signs = leftovers(&self.paths)?;
            signs.truncate(2);
            bail!(
                "a rig whose state lies elsewhere is up ({}, …); take it down with the FERROMQ_RIG_DIR or home folder \
                 that it was started with",
                signs.join("; ")
            );
        }
        // Pids of an earlier boot mean nothing now.
        let same_boot = match self.cluster()? {
            Some(cluster) => cluster.boot_id == process::boot_id()?,
            None => true,
        };
        if same_boot {
            let processes: Vec<_> = self.records.all()?.into_values().collect();
            // The first process of a node's pid namespace is a child of the recorded one, and is waited for as well.
            let mut all: Vec<_> = processes.iter().flat_map(|process| process.children()).collect();
            all.extend(processes);
            Records::kill(&all)?;
        }
        cgroup::remove(None)?;
        if network::host_link_exists() {
            network::remove_host_link()?;
        }
        for mount in leftovers::mounts_below(state)? {
            let status = Command::new("umount")
                .arg(&mount)
                .status()
                .context("run umount")?;
            ensure!(
                status.success(),
                "{} cannot be unmounted; close what uses it",
                mount.display()
            );
        }
        if state.exists() {
            fs::remove_dir_all(state).with_context(|| format!("remove {}", state.display()))?;
        }
        Ok(())
    }
}
