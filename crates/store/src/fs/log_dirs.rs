//! The directories that log files are made in: one, or several on different disks that take turns.

use std::path::{Path, PathBuf};

/// Used and available bytes of the file system that has `path`, or of what will have it.
pub(crate) fn disk_use(path: &Path) -> Option<(u64, u64)> {
    let existing = path.ancestors().find(|p| p.exists())?;
    let stat = rustix::fs::statvfs(existing).ok()?;
    Some((
        (stat.f_blocks.saturating_sub(stat.f_bfree)) * stat.f_frsize,
        stat.f_bavail * stat.f_frsize,
    ))
}

/// The directories, sorted, and from which percentage on a disk is left out while others have room.
#[derive(Debug)]
pub(crate) struct LogDirs {
    dirs: Vec<PathBuf>,
    full_from: u8,
}

impl LogDirs {
    /// `dirs` has at least one.
    pub(crate) fn new(mut dirs: Vec<PathBuf>, full_from: u8) -> Self {
        dirs.sort();
        Self { dirs, full_from }
    }

    /// Where the file of that number goes.
    pub(crate) fn choose(&self, number: u64) -> &Path {
        let is_full = |dir: &Path| {
            disk_use(dir).is_some_and(|(used, available)| {
                used.saturating_mul(100) > (used + available).saturating_mul(u64::from(self.full_from))
            })
        };
        self.turn(number, is_full)
    }

    fn turn(&self, number: u64, is_full: impl Fn(&Path) -> bool) -> &Path {
        if let [only] = self.dirs.as_slice() {
            return only;
        }
        let roomy: Vec<&PathBuf> = self.dirs.iter().filter(|dir| !is_full(dir)).collect();
        let from = if roomy.is_empty() {
            self.dirs.iter().collect()
        } else {
            roomy
        };
        from[(number % from.len().max(1) as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_take_turns_and_full_ones_are_left_out() {
        let dirs = LogDirs::new(vec!["/c".into(), "/a".into(), "/b".into()], 85);
        let turns = |is_full: &dyn Fn(&Path) -> bool| -> Vec<_> {
            (3..7)
                .map(|n| dirs.turn(n, is_full).to_str().unwrap().to_owned())
                .collect()
        };
        assert_eq!(turns(&|_| false), ["/a", "/b", "/c", "/a"]);
        assert_eq!(turns(&|d| d == Path::new("/b")), ["/c", "/a", "/c", "/a"]);
        assert_eq!(turns(&|_| true), ["/a", "/b", "/c", "/a"]);
    }
}
