//! Short digests of text, for annotations that tell whether something changed.

use sha2::{Digest, Sha256};

/// The first eight bytes of the text's SHA-256, in hexadecimal.
pub fn short(text: &str) -> String {
    hex(&Sha256::digest(text.as_bytes())[..8])
}

/// Bytes in lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes
        .iter()
        .flat_map(|b| [b >> 4, b & 15])
        .map(|nibble| char::from(DIGITS[usize::from(nibble)]))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn is_the_beginning_of_sha256() {
        assert_eq!(super::short("abc"), "ba7816bf8f01cfea");
    }
}
