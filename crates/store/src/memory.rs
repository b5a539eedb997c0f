//! How much memory the process may count on.
//!
//! In a container the machine's memory is the wrong number: what counts is the least limit of the control groups from the
//! process's own up to the root, of version 1 or 2. Inside a container the root of the mounted tree usually is the
//! container's own group.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where control groups are mounted.
const MOUNT: &str = "/sys/fs/cgroup";

/// Bytes of memory: the machine's, or the control groups' limit if that is less.
pub(crate) fn total() -> u64 {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    least(machine(), &limit_files(Path::new(MOUNT), &own), &|path| {
        fs::read_to_string(path).ok()
    })
}

fn machine() -> u64 {
    fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("MemTotal:"))?.to_owned();
            line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(4 << 30, |kib| kib * 1024)
}

/// The files that may hold a limit, by the lines `number:controllers:path` of `/proc/self/cgroup`.
fn limit_files(mount: &Path, own: &str) -> Vec<PathBuf> {
    let mut files = vec![
        mount.join("memory.max"),
        mount.join("memory/memory.limit_in_bytes"),
    ];
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let (root, name) = if controllers.is_empty() {
            (mount.to_path_buf(), "memory.max")
        } else if controllers.split(',').any(|c| c == "memory") {
            (mount.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        // The group's own limit and those of all above it hold.
        let group = Path::new(group.trim_start_matches('/'));
        files.extend(
            group
                .ancestors()
                .filter(|part| !part.as_os_str().is_empty())
                .map(|part| root.join(part).join(name)),
        );
    }
    files
}

/// The least of the machine's memory and the limits; `max` and what cannot be read are none.
fn least(machine: u64, files: &[PathBuf], read: &dyn Fn(&Path) -> Option<String>) -> u64 {
    files
        .iter()
        .filter_map(|path| read(path)?.trim().parse::<u64>().ok())
        .filter(|&limit| limit > 0)
        .fold(machine, u64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: u64 = 64 << 30;

    fn total_of(own: &str, limits: &[(&str, &str)]) -> u64 {
        let files = limit_files(Path::new("/cg"), own);
        least(MACHINE, &files, &|path| {
            let found = limits.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn a_containers_limit_counts_in_both_versions() {
        assert_eq!(total_of("0::/\n", &[("/cg/memory.max", "1073741824\n")]), 1 << 30);
        assert_eq!(total_of("0::/\n", &[("/cg/memory.max", "max\n")]), MACHINE);
        let v1 = "12:cpu,cpuacct:/a\n5:memory:/docker/abc\n";
        let root = "/cg/memory/memory.limit_in_bytes";
        assert_eq!(total_of(v1, &[(root, "2147483648")]), 2 << 30);
        // Version 1 says "no limit" by a number larger than any machine.
        assert_eq!(total_of(v1, &[(root, "9223372036854771712")]), MACHINE);
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let own = "0::/kubepods/burstable/pod1/c1\n";
        let limits = [
            ("/cg/kubepods/memory.max", "34359738368"),
            ("/cg/kubepods/burstable/pod1/memory.max", "536870912"),
            ("/cg/kubepods/burstable/pod1/c1/memory.max", "max"),
        ];
        assert_eq!(total_of(own, &limits), 512 << 20);
        let own = "7:memory:/kubepods/pod1/c1\n0::/\n";
        let limits = [("/cg/memory/kubepods/pod1/memory.limit_in_bytes", "268435456")];
        assert_eq!(total_of(own, &limits), 256 << 20);
    }

    #[test]
    fn without_control_groups_the_machine_counts() {
        assert_eq!(total_of("", &[]), MACHINE);
        assert_eq!(total_of("nonsense", &[("/cg/memory.max", "0")]), MACHINE);
    }
}
