//! Bits of a message's system flag, and those of pulls.

use crate::compress::Kind;

/// The body is compressed.
pub const COMPRESSED: i32 = 1;
/// The message has several tags.
pub const MULTI_TAGS: i32 = 1 << 1;
/// The bits of [`TRANSACTION_PREPARED`], [`TRANSACTION_COMMIT`] and [`TRANSACTION_ROLLBACK`].
pub const TRANSACTION_MASK: i32 = 3 << 2;
/// A half message, waiting for its decision.
pub const TRANSACTION_PREPARED: i32 = 1 << 2;
/// A committed message.
pub const TRANSACTION_COMMIT: i32 = 2 << 2;
/// A rolled back message.
pub const TRANSACTION_ROLLBACK: i32 = 3 << 2;
/// The born host is an IPv6 address.
pub const BORN_HOST_V6: i32 = 1 << 4;
/// The store host is an IPv6 address.
pub const STORE_HOST_V6: i32 = 1 << 5;
/// The bits that name the compression.
pub const COMPRESSION_MASK: i32 = 7 << 8;

/// The transaction bits of a flag.
pub fn transaction(sys_flag: i32) -> i32 {
    sys_flag & TRANSACTION_MASK
}

/// A flag with other transaction bits.
pub fn with_transaction(sys_flag: i32, transaction: i32) -> i32 {
    sys_flag & !TRANSACTION_MASK | transaction & TRANSACTION_MASK
}

/// How the body is compressed, `None` if it is not or in an unknown way.
pub fn compression(sys_flag: i32) -> Option<Kind> {
    if sys_flag & COMPRESSED == 0 {
        return None;
    }
    match (sys_flag & COMPRESSION_MASK) >> 8 {
        0 | 3 => Some(Kind::Zlib),
        1 => Some(Kind::Lz4),
        2 => Some(Kind::Zstd),
        _ => None,
    }
}

/// A flag that says the body is compressed in this way.
///
/// zlib is written without its type bits, as releases before 4.9.4 do not know them.
pub fn with_compression(sys_flag: i32, kind: Kind) -> i32 {
    let kind = match kind {
        Kind::Zlib => 0,
        Kind::Lz4 => 1 << 8,
        Kind::Zstd => 2 << 8,
    };
    sys_flag & !COMPRESSION_MASK | COMPRESSED | kind
}

/// Bits of a pull request's system flag.
pub mod pull {
    /// The request's commit offset is to be stored.
    pub const COMMIT_OFFSET: i32 = 1;
    /// The broker may hold the request until there is something.
    pub const SUSPEND: i32 = 1 << 1;
    /// The subscription is in the request.
    pub const SUBSCRIPTION: i32 = 1 << 2;
    /// Filtered by a class; obsolete.
    pub const CLASS_FILTER: i32 = 1 << 3;
    /// From a lite pull consumer.
    pub const LITE_PULL: i32 = 1 << 4;
}

/// Bits of a topic's system flag.
pub mod topic {
    /// A unit topic.
    pub const UNIT: i32 = 1;
    /// A topic with unit subscriptions.
    pub const UNIT_SUB: i32 = 1 << 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compression_kinds() {
        assert_eq!(compression(0), None);
        assert_eq!(compression(1), Some(Kind::Zlib));
        assert_eq!(compression(0x301), Some(Kind::Zlib));
        assert_eq!(compression(0x401), None);
        assert_eq!(with_compression(0x730, Kind::Zlib), 0x31);
        for kind in [Kind::Zlib, Kind::Lz4, Kind::Zstd] {
            assert_eq!(compression(with_compression(0x30, kind)), Some(kind));
        }
        assert_eq!(with_transaction(0x1F, TRANSACTION_COMMIT), 0x1B);
        assert_eq!(transaction(0x1F), TRANSACTION_ROLLBACK);
    }
}
