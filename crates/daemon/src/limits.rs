//! What a process may use, and how it is shared out: open files, memory.
//!
//! Connections and store files come from one budget. A burst of connections must never take the descriptors that the
//! store needs to roll its files, so each side gets a bound of its own when the program starts.
//!
//! Memory that connections buffer comes out of the container's limit: a quarter of it, unless the settings say
//! otherwise.

use std::path::Path;

use rustix::process::{Resource, getrlimit, setrlimit};

/// Raises the soft limit of open files to the hard one, as far as that is allowed, and returns what holds then.
pub fn raise_open_files() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = rustix::process::Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit = raised,
            Err(error) => tracing::warn!(%error, "cannot raise the limit of open files; it stays as it is"),
        }
    }
    limit
        .current
        .map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX))
}

/// The parts of a broker's open files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shares {
    /// Queue files that the store keeps open.
    pub queue_files: usize,
    /// Connections on the main port.
    pub main: usize,
    /// Connections on the port two below it, which few clients use.
    pub vip: usize,
}

/// Descriptors for everything else: log and index segments, tables, sockets to name servers, the HTTP port.
const RESERVE: usize = 96;
/// More queue files than this are not worth holding open.
const QUEUE_FILES: usize = 512;

/// Shares out `limit` open files. Each part is at least 8, however low the limit.
pub fn shares(limit: usize) -> Shares {
    let queue_files = (limit / 4).clamp(8, QUEUE_FILES);
    let connections = limit.saturating_sub(queue_files + RESERVE);
    let vip = (connections / 8).max(8);
    Shares {
        queue_files,
        main: connections.saturating_sub(vip).max(8),
        vip,
    }
}

/// Least and most memory for connections that is taken by default, bytes.
const BUFFERS: (u64, u64) = (32 << 20, 4 << 30);

/// Memory that this process may use, bytes: the least limit of its cgroups, or all that the machine has.
pub fn memory() -> u64 {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let machine = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    least_memory(&own, &machine, |file| {
        std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(file)).ok()
    })
}

/// The bound of what connections buffer together, bytes: `given`, or with 0 a quarter of the memory, at least
/// 32 MiB and at most 4 GiB.
pub fn connection_buffers(given: u64) -> usize {
    let bytes = match given {
        0 => (memory() / 4).clamp(BUFFERS.0, BUFFERS.1),
        given => given,
    };
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// `own` is /proc/self/cgroup, `machine` /proc/meminfo; `read` reads a file below /sys/fs/cgroup.
fn least_memory(own: &str, machine: &str, read: impl Fn(&str) -> Option<String>) -> u64 {
    let total = machine.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let total = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    let mut least = total.map_or(u64::MAX, |kib| kib * 1024);
    for line in own.lines() {
        let mut parts = line.splitn(3, ':');
        let (folder, file) = match (parts.next(), parts.next()) {
            (Some("0"), Some("")) => ("", "memory.max"),
            (_, Some(controllers)) if controllers.split(',').any(|c| c == "memory") => {
                ("memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // A limit of any group above holds as well. In a container the path may be the host's: then only the last
        // one, the root of what can be seen, exists.
        let mut path = parts.next().unwrap_or_default().trim_matches('/');
        loop {
            let file = [folder, path, file].into_iter().filter(|part| !part.is_empty());
            let limit = read(&file.collect::<Vec<_>>().join("/"));
            if let Some(limit) = limit.and_then(|text| text.trim().parse().ok()) {
                least = least.min(limit);
            }
            if path.is_empty() {
                break;
            }
            path = path.rsplit_once('/').map_or("", |(above, _)| above);
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "MemTotal:       16384 kB\nMemFree: 1 kB\n";

    fn read<'a>(files: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |file| files.iter().find(|f| f.0 == file).map(|f| f.1.to_owned())
    }

    #[test]
    fn the_least_limit_of_all_groups_above_holds() {
        let two = [
            ("a/b/memory.max", "max\n"),
            ("a/memory.max", "5000\n"),
            ("memory.max", "9000\n"),
        ];
        assert_eq!(least_memory("0::/a/b\n", MACHINE, read(&two)), 5000);
        let one = [
            ("memory/x/memory.limit_in_bytes", "7000\n"),
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        assert_eq!(
            least_memory("3:cpu,memory:/x\n2:cpuset:/\n", MACHINE, read(&one)),
            7000
        );
    }

    #[test]
    fn a_container_that_sees_only_its_own_root_reads_that() {
        let files = [("memory.max", "4000\n")];
        assert_eq!(
            least_memory("0::/kubepods/pod1/c1\n", MACHINE, read(&files)),
            4000
        );
    }

    #[test]
    fn without_a_limit_the_machine_counts() {
        assert_eq!(
            least_memory("0::/\n", MACHINE, read(&[("memory.max", "max")])),
            16 << 20
        );
        assert!(memory() > 0);
        assert_eq!(connection_buffers(12_345), 12_345);
        assert!(connection_buffers(0) >= 32 << 20);
    }

    #[test]
    fn shares_leave_a_reserve_whatever_the_limit() {
        for limit in [256, 1_024, 20_000, 1 << 20] {
            let s = shares(limit);
            assert!(
                s.queue_files + s.main + s.vip + RESERVE <= limit,
                "{limit}: {s:?}"
            );
        }
        assert_eq!(shares(20_000).queue_files, QUEUE_FILES);
        assert_eq!(
            shares(0),
            Shares {
                queue_files: 8,
                main: 8,
                vip: 8
            }
        );
    }

    #[test]
    fn raising_gives_the_hard_limit() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(Some(raise_open_files() as u64), hard.or(Some(u64::MAX)));
    }
}
