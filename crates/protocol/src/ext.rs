//! Header arguments: the `extFields` map of a command.
//!
//! All keys and values of one header lie in one string, entries are ranges into it. A frame's arguments therefore cost
//! two allocations however many there are, and typed headers borrow from here. Entries keep the order in which they were
//! first set; setting a key again replaces its value (a peer may write a key twice, then the last one counts).

use std::fmt::{self, Display, Write};

/// Most arguments that one header may carry; the largest genuine header has about twenty.
pub const MAX_FIELDS: usize = 1024;

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    value: u32,
    end: u32,
}

/// An ordered map of header arguments. See the module's documentation.
#[derive(Clone, Default)]
pub struct Ext {
    text: String,
    spans: Vec<Span>,
}

impl Ext {
    /// An empty map; allocates nothing.
    pub const fn new() -> Self {
        Self {
            text: String::new(),
            spans: Vec::new(),
        }
    }

    /// An empty map with room for `bytes` bytes of text. `bytes` must be known to be real, not a length from the wire.
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            spans: Vec::with_capacity(16),
        }
    }

    /// The value of `key`, if it is set.
    pub fn get(&self, key: &str) -> Option<&str> {
        // The last of equal keys counts, also while a decoder has not yet removed duplicates.
        self.spans
            .iter()
            .rev()
            .find(|s| self.key(s) == key)
            .map(|s| self.value(s))
    }

    /// Sets `key` to `value`, replacing an earlier value.
    pub fn set(&mut self, key: &str, value: impl AsRef<str>) {
        self.put(key, |text| text.push_str(value.as_ref()));
    }

    /// Sets `key` to the text of `value` without an intermediate string.
    pub fn set_display(&mut self, key: &str, value: impl Display) {
        self.put(key, |text| {
            // Writing to a String cannot fail.
            let _ok = write!(text, "{value}");
        });
    }

    /// Takes `key` out; true if it was set.
    pub fn remove(&mut self, key: &str) -> bool {
        let before = self.spans.len();
        let text = &self.text;
        self.spans
            .retain(|s| text[s.start as usize..s.value as usize] != *key);
        before != self.spans.len()
    }

    /// All entries, in the order of first setting.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, &str)> + ExactSizeIterator {
        self.spans.iter().map(|s| (self.key(s), self.value(s)))
    }

    /// True if no argument is set.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    /// Bytes of text behind the entries, for sizing buffers.
    pub(crate) fn text_len(&self) -> usize {
        self.text.len()
    }

    fn key(&self, s: &Span) -> &str {
        &self.text[s.start as usize..s.value as usize]
    }

    fn value(&self, s: &Span) -> &str {
        &self.text[s.value as usize..s.end as usize]
    }

    fn put(&mut self, key: &str, value: impl FnOnce(&mut String)) {
        let found = self.spans.iter().position(|s| self.key(s) == key);
        let span = self.append(key, value);
        match found {
            Some(i) => self.spans[i] = span,
            None => self.spans.push(span),
        }
    }

    /// Appends without looking for an equal key; decoders call [`Ext::keep_last`] once at the end.
    pub(crate) fn push(&mut self, key: &str, value: impl FnOnce(&mut String)) {
        let span = self.append(key, value);
        self.spans.push(span);
    }

    /// The place where the next key or value starts, for a decoder that writes them itself through [`Ext::text_mut`].
    pub(crate) fn mark(&self) -> u32 {
        self.text.len() as u32
    }

    /// Takes the text after the last mark.
    pub(crate) fn text_mut(&mut self) -> &mut String {
        &mut self.text
    }

    /// Ends an entry whose key and value were written at two marks; an absent value takes the entry back.
    pub(crate) fn finish(&mut self, start: u32, value: u32, present: bool) {
        if present {
            self.spans.push(Span {
                start,
                value,
                end: self.mark(),
            });
        } else {
            self.text.truncate(start as usize);
        }
    }

    fn append(&mut self, key: &str, value: impl FnOnce(&mut String)) -> Span {
        let start = self.text.len() as u32;
        self.text.push_str(key);
        let split = self.text.len() as u32;
        value(&mut self.text);
        Span {
            start,
            value: split,
            end: self.text.len() as u32,
        }
    }

    /// Leaves of equal keys only the last value, at the place of the first.
    pub(crate) fn keep_last(&mut self) {
        let mut kept = 0;
        for i in 0..self.spans.len() {
            let span = self.spans[i];
            let earlier = self.spans[..kept]
                .iter()
                .position(|s| self.key(s) == self.key(&span));
            if let Some(at) = earlier {
                self.spans[at] = span;
            } else {
                self.spans[kept] = span;
                kept += 1;
            }
        }
        self.spans.truncate(kept);
    }
}

impl fmt::Debug for Ext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Two maps are equal if they hold the same entries, in any order.
impl PartialEq for Ext {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().all(|(k, v)| other.get(k) == Some(v))
    }
}

impl Eq for Ext {}

impl<K: AsRef<str>, V: AsRef<str>> FromIterator<(K, V)> for Ext {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut ext = Self::new();
        for (k, v) in entries {
            ext.set(k.as_ref(), v);
        }
        ext
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_replaces_in_place() {
        let mut e = Ext::new();
        e.set("a", "1");
        e.set("b", "2");
        e.set_display("a", 33);
        assert_eq!(e.iter().collect::<Vec<_>>(), [("a", "33"), ("b", "2")]);
        assert!(e.remove("a"));
        assert!(!e.remove("a"));
        assert_eq!(e.get("a"), None);
        assert_eq!(e.len(), 1);
    }

    #[test]
    fn last_of_equal_keys_counts() {
        let mut e = Ext::new();
        for (k, v) in [
            ("a", "1"),
            ("b", "2"),
            ("a", "3"),
            ("a", "4"),
            ("", "x"),
            ("", ""),
        ] {
            e.push(k, |t| t.push_str(v));
        }
        assert_eq!(e.get("a"), Some("4"));
        e.keep_last();
        assert_eq!(e.iter().collect::<Vec<_>>(), [("a", "4"), ("b", "2"), ("", "")]);
    }
}
