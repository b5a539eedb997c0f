//! The cgroup folders below which a node's pods are counted and limited. Works on cgroup v1, where every controller
//! is a tree of its own, and on v2.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::plan::{CGROUP, Node};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The mounted trees, from the text of `/proc/self/mounts`.
fn trees(mounts: &str) -> Vec<(PathBuf, Version)> {
    let tree = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let folder = PathBuf::from(fields.next()?);
        match fields.next()? {
            "cgroup" => Some((folder, Version::V1)),
            "cgroup2" => Some((folder, Version::V2)),
            _ => None,
        }
    };
    mounts.lines().filter_map(tree).collect()
}

fn mounted_trees() -> Result<Vec<(PathBuf, Version)>> {
    Ok(trees(
        &fs::read_to_string("/proc/self/mounts").context("read /proc/self/mounts")?,
    ))
}

/// Makes a node's folder in every tree.
pub(crate) fn create(node: Node) -> Result<()> {
    for (tree, version) in mounted_trees()? {
        let parent = tree.join(CGROUP);
        let child = tree.join(node.cgroup());
        for (above, folder) in [
            (tree.as_path(), parent.as_path()),
            (parent.as_path(), child.as_path()),
        ] {
            if version == Version::V2 {
                hand_down_controllers(above)?;
            }
            match fs::create_dir(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(error).with_context(|| format!("create cgroup {}", folder.display()));
                }
                _ => {}
            }
            if version == Version::V1 {
                inherit_cpuset(above, folder)?;
            }
        }
    }
    Ok(())
}

/// A new v1 cpuset is empty, and an empty one takes no process.
fn inherit_cpuset(above: &Path, folder: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let from = above.join(file);
        if from.exists() {
            let value = fs::read_to_string(&from).with_context(|| format!("read {}", from.display()))?;
            fs::write(folder.join(file), value.trim())
                .with_context(|| format!("set {file} of {}", folder.display()))?;
        }
    }
    Ok(())
}

/// In v2 a folder's children have only the controllers that it names.
fn hand_down_controllers(folder: &Path) -> Result<()> {
    let available = fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_ascii_whitespace() {
        fs::write(folder.join("cgroup.subtree_control"), format!("+{controller}"))
            .with_context(|| format!("hand the {controller} controller down from {}", folder.display()))?;
    }
    Ok(())
}

/// The rig's folders that exist now.
pub(crate) fn present() -> Result<Vec<PathBuf>> {
    Ok(mounted_trees()?
        .into_iter()
        .map(|(tree, _)| tree.join(CGROUP))
        .filter(|folder| folder.exists())
        .collect())
}

/// Processes in the rig's cgroups now.
pub(crate) fn processes() -> Result<Vec<i32>> {
    let mut pids = Vec::new();
    for folder in present()? {
        collect_processes(&folder, &mut pids);
    }
    pids.sort_unstable();
    pids.dedup();
    Ok(pids)
}

fn collect_processes(folder: &Path, pids: &mut Vec<i32>) {
    let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for child in folders_in(folder) {
        collect_processes(&child, pids);
    }
}

/// Removes the folders of all nodes, or of one; the processes in them have been ended.
pub(crate) fn remove(node: Option<Node>) -> Result<()> {
    let deadline = Instant::now() + Duration::from_secs(20);
    for folder in present()? {
        let folder = node.map_or_else(|| folder.clone(), |node| folder.join(node.name()));
        // The kernel counts a process out of its cgroup a moment after it has ended.
        while let Err(error) = remove_tree(&folder) {
            if Instant::now() > deadline {
                bail!("cgroup {} cannot be removed: {error}", folder.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

fn remove_tree(folder: &Path) -> std::io::Result<()> {
    for child in folders_in(folder) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_both_versions_are_found() {
        let mounts = "proc /proc proc rw 0 0\n\
            cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n\
            cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            tmpfs /sys/fs/cgroup tmpfs rw 0 0\n";
        assert_eq!(
            trees(mounts),
            [
                (PathBuf::from("/sys/fs/cgroup/cpu"), Version::V1),
                (PathBuf::from("/sys/fs/cgroup/unified"), Version::V2)
            ]
        );
    }

    #[test]
    fn nested_folders_are_removed_from_the_inside() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().join("a");
        fs::create_dir_all(top.join("b/c")).unwrap();
        remove_tree(&top).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }
}
