//! How many files a process may hold open, and how they are shared out.
//!
//! Connections and store files come from one budget. A burst of connections must never take the descriptors that the
//! store needs to roll its files, so each side gets a bound of its own when the program starts.

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

#[cfg(test)]
mod tests {
    use super::*;

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
