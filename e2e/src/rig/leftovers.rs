//! What of a rig exists on the machine: after `down`, nothing may.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::config::NODE_TOOLS;
use super::{Paths, cgroup, network, process};

/// Processes, mounts, links, cgroups and files of a rig, each as a phrase for people.
///
/// # Errors
/// `/proc` cannot be read.
pub fn leftovers(paths: &Paths) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let state = paths.state();
    for (pid, command) in processes(paths)? {
        all.push(format!("process {pid} ({command})"));
    }
    all.extend(
        mounts_below(state)?
            .iter()
            .map(|mount| format!("mount {}", mount.display())),
    );
    if network::host_link_exists() {
        all.push(format!("network link {}", super::plan::HOST_LINK));
    }
    all.extend(
        cgroup::present()?
            .iter()
            .map(|folder| format!("cgroup {}", folder.display())),
    );
    if state.exists() {
        all.push(format!("folder {}", state.display()));
    }
    Ok(all)
}

/// Processes whose command line names the rig's state or a node's tools, and those in its cgroups. Only ever listed, never
/// ended: a command line proves nothing.
fn processes(paths: &Paths) -> Result<Vec<(i32, String)>> {
    let in_cgroups = cgroup::processes()?;
    let own = i32::try_from(std::process::id()).context("own pid")?;
    let state = paths.state().display().to_string();
    let pause = paths.tool("pause", "pause").display().to_string();
    let marks = [state.as_str(), pause.as_str(), NODE_TOOLS];
    let mut found = Vec::new();
    for stat in process::all() {
        let pid = stat.identity.pid;
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let first: String = command.chars().take(120).collect();
        let named = marks.iter().any(|mark| program_names(&command, mark));
        if pid != own && stat.identity.alive() && (named || in_cgroups.contains(&pid)) {
            found.push((pid, first.trim_end().to_owned()));
        }
    }
    Ok(found)
}

/// Whether one of the first words of a command line lies in or names a folder. Later words may be anything, such as
/// the text of a script that mentions it.
fn program_names(command: &str, folder: &str) -> bool {
    command.split(' ').take(12).any(|word| {
        let value = word.rsplit_once('=').map_or(word, |(_, value)| value);
        Path::new(value).starts_with(folder)
    })
}

/// Mount points at or below a folder, the innermost first.
pub(super) fn mounts_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string("/proc/self/mountinfo").context("read /proc/self/mountinfo")?;
    Ok(mounts_in(&text, folder))
}

fn mounts_in(mountinfo: &str, folder: &Path) -> Vec<PathBuf> {
    let points = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape);
    let mut below: Vec<PathBuf> = points.filter(|point| point.starts_with(folder)).collect();
    below.reverse();
    below
}

/// The kernel writes blanks and backslashes of a path as a backslash and three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) if byte == b'\\' => {
                bytes.push(code);
                rest = &after[3..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_listed_innermost_first() {
        let text = "1 0 8:1 / / rw - ext4 /dev/vda rw\n\
            2 1 8:1 / /rig/a rw - ext4 x rw\n\
            3 2 8:1 / /rig/a/b\\040c rw - ext4 x rw\n\
            4 1 8:1 / /rigging rw - ext4 x rw\n";
        assert_eq!(
            mounts_in(text, Path::new("/rig")),
            [PathBuf::from("/rig/a/b c"), PathBuf::from("/rig/a")]
        );
    }

    #[test]
    fn a_command_line_belongs_to_a_rig_by_its_words() {
        assert!(program_names(
            "/run/rig/tools/kubernetes/kubelet --x",
            "/run/rig/tools"
        ));
        assert!(program_names("etcd --data-dir=/state/rig/etcd", "/state/rig"));
        assert!(!program_names("vi /state/rigging", "/state/rig"));
        assert!(!program_names("grep state/rig", "/state/rig"));
    }
}
