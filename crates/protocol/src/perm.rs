//! Permission bits of topics and brokers.

use std::fmt;

/// Settings are inherited by topics made on first use.
pub const INHERIT: i32 = 1;
/// Messages may be sent.
pub const WRITE: i32 = 1 << 1;
/// Messages may be received.
pub const READ: i32 = 1 << 2;
/// Reserved by RocketMQ for priorities.
pub const PRIORITY: i32 = 1 << 3;

/// True if messages may be received.
pub fn readable(perm: i32) -> bool {
    perm & READ != 0
}

/// True if messages may be sent.
pub fn writable(perm: i32) -> bool {
    perm & WRITE != 0
}

/// True if new topics may inherit from one with this permission.
pub fn inheritable(perm: i32) -> bool {
    perm & INHERIT != 0
}

/// Shows a permission as RocketMQ's tools do: `RWX`, dashes for missing bits.
#[derive(Debug, Clone, Copy)]
pub struct Shown(pub i32);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bit = |on: bool, c: char| if on { c } else { '-' };
        write!(
            f,
            "{}{}{}",
            bit(readable(self.0), 'R'),
            bit(writable(self.0), 'W'),
            bit(inheritable(self.0), 'X')
        )
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn shown() {
        assert_eq!(super::Shown(6).to_string(), "RW-");
        assert_eq!(super::Shown(1).to_string(), "--X");
    }
}
