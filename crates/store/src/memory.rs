//! How much memory the process may count on.

use std::fs;

/// Bytes of memory: the machine's, or the control group's limit if that is less.
pub(crate) fn total() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|l| l.starts_with("MemTotal:"))?.to_owned();
            line.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
        })
        .map_or(4 << 30, |kib| kib * 1024);
    [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .iter()
    .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok())
    .fold(machine, u64::min)
}
