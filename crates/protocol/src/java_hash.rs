//! Java's string hash, by which tags and index keys are stored.

/// Java's `String.hashCode`: `h = 31 h + unit` over the UTF-16 units, wrapping.
pub fn string_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0_i32, |h, unit| h.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

/// The code of a tag in a consume queue: its hash, sign-extended; 0 for no tag.
pub fn tag_code(tag: &str) -> i64 {
    string_hash(tag).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let table = [
            ("", 0),
            ("TagA", 2_598_919),
            ("TagB", 2_598_920),
            ("中文", 646_394),
            ("aVeryLongTagNameForOverflow", -1_610_755_303),
        ];
        for (text, hash) in &table {
            assert_eq!(string_hash(text), *hash, "{text}");
            assert_eq!(tag_code(text), i64::from(*hash), "{text}");
        }
    }
}
