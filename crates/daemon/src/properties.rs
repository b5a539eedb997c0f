//! Java's `.properties` format, as `java.util.Properties` reads and writes it.
//!
//! ```text
//! # or ! starts a comment line          a natural line ends with \n, \r or \r\n
//! key = value     key : value     key value      blanks around the separator do not count
//! a line that ends with an odd number of \ goes on with the next, whose leading blanks do not count
//! \t \n \r \f \uXXXX are that character; any other \c is c itself
//! ```
//!
//! Files are ISO-8859-1: every byte is one character, everything else needs `\uXXXX`. (A surrogate pair
//! written as two escapes is one character here, a lone surrogate becomes U+FFFD.) Order of first appearance
//! is kept; the last value of a key counts.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// Keys and values in order of first appearance.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Properties {
    entries: Vec<(String, String)>,
    index: HashMap<String, usize>,
}

/// A text that Java would refuse too.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: '{text}' is not \\u and four hexadecimal digits; write a backslash as \\\\")]
pub struct PropertiesError {
    /// Line number from 1.
    pub line: usize,
    /// What stands there.
    pub text: String,
}

impl Properties {
    /// An empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads a text.
    ///
    /// # Errors
    /// A malformed `\u` escape, with its line.
    pub fn parse(text: &str) -> Result<Self, PropertiesError> {
        let mut properties = Self::new();
        for (line, logical) in logical_lines(text) {
            let (key, value) = split(&logical);
            properties.set(unescape(key, line)?, unescape(value, line)?);
        }
        Ok(properties)
    }

    /// Reads the bytes of a file, ISO-8859-1.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_latin1(bytes: &[u8]) -> Result<Self, PropertiesError> {
        Self::parse(&bytes.iter().map(|b| char::from(*b)).collect::<String>())
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read or is malformed; the text names it.
    pub fn load(path: &Path) -> io::Result<Self> {
        let bytes = std::fs::read(path)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot read {}: {e}", path.display())))?;
        Self::parse_latin1(&bytes).map_err(|e| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("cannot read {}: {e}", path.display()),
            )
        })
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.index.get(key).map(|at| self.entries[*at].1.as_str())
    }

    /// Sets a key; its place stays where it first appeared.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<String>) {
        let (key, value) = (key.into(), value.into());
        if let Some(at) = self.index.get(&key) {
            self.entries[*at].1 = value;
        } else {
            self.index.insert(key.clone(), self.entries.len());
            self.entries.push((key, value));
        }
    }

    /// Removes a key; gives its value.
    pub fn remove(&mut self, key: &str) -> Option<String> {
        let at = self.index.remove(key)?;
        let (_, value) = self.entries.remove(at);
        self.index.values_mut().filter(|i| **i > at).for_each(|i| *i -= 1);
        Some(value)
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets all pairs of `other`.
    pub fn extend(&mut self, other: &Self) {
        other.iter().for_each(|(k, v)| self.set(k, v));
    }

    /// `key=value` lines with escapes, pure ASCII; reads back to the same pairs here and in Java.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.iter() {
            escape(key, true, &mut text);
            text.push('=');
            escape(value, false, &mut text);
            text.push('\n');
        }
        text
    }

    /// `key=value` lines without any escape, as Java's programs print and answer their configuration.
    pub fn to_plain_text(&self) -> String {
        let mut text = String::new();
        for (key, value) in self.iter() {
            text.push_str(key);
            text.push('=');
            text.push_str(value);
            text.push('\n');
        }
        text
    }
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\x0c')
}

/// Joined lines without comments and blank lines, each with the number of its first line.
///
/// As in Java, what counts as the start of a line is that nothing of it was kept yet: after a line that holds
/// only the backslash that continues it, a comment is a comment still. A backslash that ends the whole text
/// counts as a line even if nothing else is on it.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let (mut line, mut started) = (String::new(), 1);
    let (mut skip_blanks, mut continued, mut backslash) = (true, false, false);
    let mut number = 1;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let ends_line = c == '\n' || (c == '\r' && chars.peek() != Some(&'\n'));
        number += usize::from(ends_line);
        if skip_blanks {
            if is_blank(c) || (!continued && matches!(c, '\r' | '\n')) {
                continue;
            }
            (skip_blanks, continued) = (false, false);
        }
        if line.is_empty() && matches!(c, '#' | '!') {
            while chars.next_if(|c| !matches!(c, '\r' | '\n')).is_some() {}
            skip_blanks = true;
        } else if !matches!(c, '\r' | '\n') {
            if line.is_empty() {
                started = number;
            }
            line.push(c);
            backslash = c == '\\' && !backslash;
        } else if line.is_empty() {
            skip_blanks = true;
        } else if backslash && chars.peek().is_some() {
            line.pop();
            (skip_blanks, continued, backslash) = (true, true, false);
            if c == '\r' && chars.next_if_eq(&'\n').is_some() {
                number += 1;
            }
        } else {
            if backslash {
                line.pop();
            }
            lines.push((started, std::mem::take(&mut line)));
            (skip_blanks, backslash) = (true, false);
        }
    }
    if !line.is_empty() {
        if backslash {
            line.pop();
        }
        lines.push((started, line));
    }
    lines
}

/// Cuts at the first separator that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let mut key_end = line.len();
    for (at, c) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if is_blank(c) || c == '=' || c == ':' {
            key_end = at;
            break;
        }
    }
    let rest = line[key_end..].trim_start_matches(is_blank);
    let value = rest
        .strip_prefix(['=', ':'])
        .unwrap_or(rest)
        .trim_start_matches(is_blank);
    (&line[..key_end], value)
}

fn unescape(text: &str, line: usize) -> Result<String, PropertiesError> {
    if !text.contains('\\') {
        return Ok(text.to_owned());
    }
    let mut units: Vec<u16> = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        let c = if c == '\\' {
            let Some(escaped) = rest.chars().next() else { break };
            rest = &rest[escaped.len_utf8()..];
            match escaped {
                'u' => {
                    let digits = rest.get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()));
                    let unit = digits.and_then(|d| u16::from_str_radix(d, 16).ok());
                    let Some(unit) = unit else {
                        let text = format!("\\u{}", rest.chars().take(4).collect::<String>());
                        return Err(PropertiesError { line, text });
                    };
                    units.push(unit);
                    rest = &rest[4..];
                    continue;
                }
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                'f' => '\x0c',
                other => other,
            }
        } else {
            c
        };
        units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    }
    Ok(String::from_utf16_lossy(&units))
}

fn escape(text: &str, key: bool, out: &mut String) {
    for (at, c) in text.char_indices() {
        match c {
            // In a value only a leading blank would be lost.
            ' ' if key || at == 0 => out.push_str("\\ "),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\x0c' => out.push_str("\\f"),
            '\\' | '=' | ':' | '#' | '!' => {
                out.push('\\');
                out.push(c);
            }
            ' '..='~' => out.push(c),
            _ => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a String cannot fail.
                    let _ok = write!(out, "\\u{unit:04X}");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        let parsed = Properties::parse(text).unwrap();
        parsed.iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    fn one(text: &str) -> (String, String) {
        let all = pairs(text);
        assert_eq!(all.len(), 1, "{text:?} gave {all:?}");
        all[0].clone()
    }

    fn pair(k: &str, v: &str) -> (String, String) {
        (k.to_owned(), v.to_owned())
    }

    #[test]
    fn separators_and_blanks() {
        for text in ["k=v", "k:v", "k v", "k = v", "  k\t:\tv", "k \t v", "\x0ck=v"] {
            assert_eq!(one(text), pair("k", "v"), "{text:?}");
        }
        assert_eq!(one("k==v"), pair("k", "=v"));
        assert_eq!(one("k = : v"), pair("k", ": v"));
        assert_eq!(one("k v w "), pair("k", "v w "));
        assert_eq!(one("k"), pair("k", ""));
        assert_eq!(one("k="), pair("k", ""));
        assert_eq!(one("=v"), pair("", "v"));
    }

    #[test]
    fn comments_and_blank_lines_do_not_count() {
        assert_eq!(pairs("# a=b\n\n  ! c=d\r\n \t \rk=v#w\n"), [pair("k", "v#w")]);
        assert_eq!(pairs("#goes on\\\nk=v"), [pair("k", "v")]);
    }

    #[test]
    fn lines_go_on_after_an_odd_number_of_backslashes() {
        assert_eq!(
            one("fruits apple, \\\n   banana, \\\r\n   pear"),
            pair("fruits", "apple, banana, pear")
        );
        assert_eq!(pairs("a=b\\\\\nc=d"), [pair("a", "b\\"), pair("c", "d")]);
        assert_eq!(one("a=b\\"), pair("a", "b"));
        assert_eq!(one("a=b\\\n# no comment"), pair("a", "b# no comment"));
        // A continuation of nothing by nothing; Java sees a key in the first but not in the second.
        assert_eq!(pairs("\\\n"), [pair("", "")]);
        assert_eq!(pairs("\\\r\n"), []);
        assert_eq!(pairs("\\\n#comment\na=b"), [pair("a", "b")]);
    }

    #[test]
    fn escapes() {
        assert_eq!(one("a\\=b\\:c\\ d = e\\tf\\qg"), pair("a=b:c d", "e\tfqg"));
        assert_eq!(one("k=\\u4e2d\\u6587\\uD83D\\ude00"), pair("k", "中文😀"));
        assert_eq!(one("k=C:\\\\dir"), pair("k", "C:\\dir"));
        let error = Properties::parse("a=b\nk=\\u12G4").unwrap_err();
        assert_eq!(error.line, 2);
        assert!(Properties::parse("k=\\u12").is_err());
    }

    #[test]
    fn files_are_latin_1() {
        let parsed = Properties::parse_latin1(b"k=caf\xe9").unwrap();
        assert_eq!(parsed.get("k"), Some("café"));
    }

    #[test]
    fn the_last_value_counts_at_the_first_place() {
        let mut p = Properties::parse("a=1\nb=2\na=3").unwrap();
        assert_eq!(p.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "2")]);
        assert_eq!(p.remove("a").as_deref(), Some("3"));
        assert_eq!(p.get("b"), Some("2"));
        assert_eq!(p.len(), 1);
    }

    #[test]
    fn text_reads_back() {
        let mut p = Properties::new();
        for (k, v) in [
            ("a b=c:d#", " lead and trail "),
            ("k", "#!=:\\\t\n\r\x0c"),
            ("中", "😀é"),
            ("", ""),
        ] {
            p.set(k, v);
        }
        let text = p.to_text();
        assert!(text.is_ascii());
        assert_eq!(Properties::parse_latin1(text.as_bytes()).unwrap(), p);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Properties::load(Path::new("/nonexistent/x.conf")).unwrap_err();
        assert!(error.to_string().contains("/nonexistent/x.conf"));
    }
}
