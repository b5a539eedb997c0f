//! RocketMQ's checksum: CRC-32 (the zlib polynomial) without its highest bit, so that it is never negative in Java.

/// The checksum of some bytes, 0 to 2^31 - 1.
pub fn crc31(bytes: &[u8]) -> i32 {
    (crc32fast::hash(bytes) & 0x7FFF_FFFF) as i32
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_values() {
        assert_eq!(super::crc31(b"a"), 0x68B7_BE43);
        assert_eq!(super::crc31(b"hello"), 0x3610_A686);
        assert_eq!(super::crc31(b""), 0);
    }
}
