//! Filters by tag.

use ferromq_protocol::java_hash::string_hash;

/// Wanted tags, or all messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TagSet {
    /// Sorted hashes; `None` wants everything.
    codes: Option<Vec<i32>>,
}

impl TagSet {
    /// A set that wants everything, also messages without a tag.
    pub const fn all() -> Self {
        Self { codes: None }
    }

    /// Reads `A || B`: tags joined by `||`, blanks around them ignored. `*` and an empty text want everything.
    ///
    /// Every text is a legal expression. One made of separators only wants everything too, as it names no tag.
    pub fn parse(expression: &str) -> Self {
        if expression.trim() == "*" {
            return Self::all();
        }
        let tags = expression.split("||").map(str::trim).filter(|t| !t.is_empty());
        Self::from_codes(tags.map(string_hash))
    }

    /// The set of these hashes; without any it wants everything. Heartbeats carry hashes ready made.
    pub fn from_codes(codes: impl IntoIterator<Item = i32>) -> Self {
        let mut codes: Vec<i32> = codes.into_iter().collect();
        codes.sort_unstable();
        codes.dedup();
        Self {
            codes: (!codes.is_empty()).then_some(codes),
        }
    }

    /// True if the set wants everything.
    pub fn is_all(&self) -> bool {
        self.codes.is_none()
    }

    /// The hashes in ascending order; empty if the set wants everything.
    pub fn codes(&self) -> &[i32] {
        self.codes.as_deref().unwrap_or(&[])
    }

    /// True if a message with this tag code, from a consume queue, may be wanted. Only the low 32 bits are compared.
    pub fn matches_code(&self, code: i64) -> bool {
        self.codes
            .as_ref()
            .is_none_or(|codes| codes.binary_search(&(code as i32)).is_ok())
    }

    /// True if a message with this tag may be wanted.
    pub fn matches(&self, tag: Option<&str>) -> bool {
        self.matches_code(tag.map_or(0, string_hash).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything() {
        for expression in ["*", " * ", "", "  ", "||", " || || "] {
            let set = TagSet::parse(expression);
            assert!(set.is_all(), "{expression:?}");
            assert!(set.matches(None) && set.matches(Some("x")) && set.matches_code(i64::MIN));
            assert!(set.codes().is_empty());
        }
    }

    #[test]
    fn some_tags() {
        let set = TagSet::parse(" TagA||TagB ||  || TagA");
        assert_eq!(set.codes(), [2_598_919, 2_598_920]);
        assert!(set.matches(Some("TagA")) && set.matches(Some("TagB")));
        assert!(!set.matches(Some("TagC")) && !set.matches(None) && !set.matches_code(0));
        // Codes are stored sign-extended.
        let set = TagSet::parse("aVeryLongTagNameForOverflow");
        assert!(set.matches_code(-1_610_755_303));
        // `*` among others is a tag like any.
        assert!(!TagSet::parse("* || A").is_all());
    }

    #[test]
    fn hashes_collide() {
        assert!(TagSet::parse("Aa").matches(Some("BB")));
    }
}
