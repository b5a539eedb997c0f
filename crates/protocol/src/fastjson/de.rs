//! The reader: a serde deserializer straight over the text.

use std::borrow::Cow;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use super::key::MapKey;
use super::{FastjsonError, MAX_DEPTH, MAX_OBJECTS};

type Result<T> = std::result::Result<T, FastjsonError>;

pub(super) struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    objects: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a [u8], depth: usize) -> Self {
        Self {
            text,
            at: 0,
            depth,
            objects: 0,
        }
    }

    /// Only white space may be left.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.peek() {
            None => Ok(()),
            Some(b) => Err(self.error(format_args!(
                "expected the end of the document, found {:?}",
                char::from(b)
            ))),
        }
    }

    /// An error of serde's has no place; give it the present one.
    pub(super) fn placed(&self, mut e: FastjsonError) -> FastjsonError {
        if e.at == 0 {
            e.at = self.at;
        }
        e
    }

    fn error(&self, message: impl std::fmt::Display) -> FastjsonError {
        FastjsonError::new(message.to_string(), self.at)
    }

    /// The next byte that is not white space, not consumed.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b) = self.text.get(self.at) {
            if !matches!(b, b' ' | b'\t' | b'\n' | b'\r' | 0x0C) {
                return Some(*b);
            }
            self.at += 1;
        }
        None
    }

    fn expect(&mut self, want: u8, what: &str) -> Result<()> {
        match self.peek() {
            Some(b) if b == want => {
                self.at += 1;
                Ok(())
            }
            Some(b) => Err(self.error(format_args!("expected {what}, found {:?}", char::from(b)))),
            None => Err(self.error(format_args!("expected {what}, found the end"))),
        }
    }

    /// Takes `word` if it comes next.
    fn word(&mut self, word: &str) -> bool {
        self.peek();
        let found = self
            .text
            .get(self.at..)
            .is_some_and(|t| t.starts_with(word.as_bytes()));
        if found {
            self.at += word.len();
        }
        found
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format_args!("more than {MAX_DEPTH} levels of nesting")));
        }
        Ok(())
    }

    fn utf8(&self, bytes: &'a [u8]) -> Result<&'a str> {
        std::str::from_utf8(bytes).map_err(|_| self.error("the text is not UTF-8"))
    }

    /// A string whose opening quote comes next.
    fn string(&mut self) -> Result<Cow<'a, str>> {
        self.expect(b'"', "a string")?;
        let mut owned: Option<String> = None;
        let mut from = self.at;
        loop {
            match self.text.get(self.at) {
                None => return Err(self.error("a string is not closed")),
                Some(b'"') => {
                    let tail = self.utf8(&self.text[from..self.at])?;
                    self.at += 1;
                    return Ok(match owned {
                        None => tail.into(),
                        Some(s) => (s + tail).into(),
                    });
                }
                Some(b'\\') => {
                    let part = self.utf8(&self.text[from..self.at])?;
                    let s = owned.get_or_insert_with(String::new);
                    s.push_str(part);
                    self.at += 1;
                    let c = self.escape()?;
                    s.push(c);
                    from = self.at;
                }
                Some(_) => self.at += 1,
            }
        }
    }

    /// The character of an escape whose backslash is consumed.
    fn escape(&mut self) -> Result<char> {
        let b = self.text.get(self.at).copied();
        self.at += 1;
        Ok(match b {
            Some(b @ (b'"' | b'\\' | b'/' | b'\'')) => b.into(),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'v') => '\u{B}',
            Some(b'u') => {
                let high = self.hex4()?;
                if (0xD800..0xDC00).contains(&high)
                    && self.text.get(self.at..).is_some_and(|t| t.starts_with(b"\\u"))
                {
                    let after = self.at;
                    self.at += 2;
                    let low = self.hex4()?;
                    if (0xDC00..0xE000).contains(&low) {
                        let c = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                        return Ok(char::from_u32(c).unwrap_or(char::REPLACEMENT_CHARACTER));
                    }
                    self.at = after;
                }
                // Half a pair alone is no character.
                char::from_u32(high).unwrap_or(char::REPLACEMENT_CHARACTER)
            }
            _ => return Err(self.error("unknown escape in a string")),
        })
    }

    fn hex4(&mut self) -> Result<u32> {
        let digits = self
            .text
            .get(self.at..self.at + 4)
            .filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let Some(digits) = digits else {
            return Err(self.error("expected four hexadecimal digits after \\u"));
        };
        self.at += 4;
        Ok(digits
            .iter()
            .fold(0, |n, d| n << 4 | char::from(*d).to_digit(16).unwrap_or(0)))
    }

    /// The text of a number.
    fn number(&mut self) -> Result<&'a str> {
        self.peek();
        let from = self.at;
        while matches!(
            self.text.get(self.at),
            Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
        ) {
            self.at += 1;
        }
        let digits = self.utf8(&self.text[from..self.at])?;
        if !digits.bytes().any(|b| b.is_ascii_digit()) {
            let found = self
                .text
                .get(self.at)
                .map_or_else(|| "the end".to_owned(), |b| format!("{:?}", char::from(*b)));
            return Err(self.error(format_args!("expected a value, found {found}")));
        }
        Ok(digits)
    }

    /// Passes over any value.
    fn skip(&mut self) -> Result<()> {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'{') => {
                self.at += 1;
                self.enter()?;
                let mut first = true;
                while self.more(b'}', &mut first)? {
                    self.skip_key()?;
                    self.expect(b':', "':'")?;
                    self.skip()?;
                }
                self.depth -= 1;
                Ok(())
            }
            Some(b'[') => {
                self.at += 1;
                self.enter()?;
                let mut first = true;
                while self.more(b']', &mut first)? {
                    self.skip()?;
                }
                self.depth -= 1;
                Ok(())
            }
            _ if self.word("true") || self.word("false") || self.word("null") => Ok(()),
            _ => self.number().map(drop),
        }
    }

    fn skip_string(&mut self) -> Result<()> {
        self.at += 1;
        loop {
            match self.text.get(self.at) {
                None => return Err(self.error("a string is not closed")),
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
    }

    /// True if another entry follows, false after the closing byte, which is consumed.
    fn more(&mut self, close: u8, first: &mut bool) -> Result<bool> {
        let first = std::mem::take(first);
        match self.peek() {
            Some(b) if b == close => {
                self.at += 1;
                Ok(false)
            }
            Some(b',') if !first => {
                self.at += 1;
                Ok(true)
            }
            Some(_) if first => Ok(true),
            Some(b) => Err(self.error(format_args!(
                "expected ',' or {:?}, found {:?}",
                char::from(close),
                char::from(b)
            ))),
            None => Err(self.error(format_args!(
                "expected ',' or {:?}, found the end",
                char::from(close)
            ))),
        }
    }

    /// A bare key that is no object: up to the colon.
    fn bare_key(&mut self) -> Result<&'a str> {
        let from = self.at;
        while matches!(
            self.text.get(self.at),
            Some(b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | b'-' | b'+' | b'.' | 0x80..)
        ) {
            self.at += 1;
        }
        if from == self.at {
            return Err(self.error("expected a key"));
        }
        self.utf8(&self.text[from..self.at])
    }

    fn skip_key(&mut self) -> Result<()> {
        match self.peek() {
            Some(b'"' | b'{' | b'[') => self.skip(),
            _ => self.bare_key().map(drop),
        }
    }

    fn key(&mut self) -> Result<Cow<'a, str>> {
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{' | b'[') => {
                let from = self.at;
                self.skip()?;
                self.utf8(&self.text[from..self.at]).map(Cow::Borrowed)
            }
            _ => self.bare_key().map(Cow::Borrowed),
        }
    }

    /// The next value as text, whatever it is.
    fn as_text(&mut self) -> Result<Cow<'a, str>> {
        match self.peek() {
            Some(b'"') => self.string(),
            _ if self.word("null") => Ok("".into()),
            _ => {
                let from = self.at;
                self.skip()?;
                self.utf8(&self.text[from..self.at]).map(Cow::Borrowed)
            }
        }
    }

    fn integer(&mut self) -> Result<i64> {
        let text = self.as_text()?;
        whole(&text).ok_or_else(|| {
            self.error(format_args!(
                "expected a whole number, found {:?}",
                shortened(&text)
            ))
        })
    }

    fn float(&mut self) -> Result<f64> {
        let text = self.as_text()?;
        if text.is_empty() {
            return Ok(0.0);
        }
        text.trim()
            .parse()
            .map_err(|_| self.error(format_args!("expected a number, found {:?}", shortened(&text))))
    }
}

/// A whole number out of text; an empty text counts as 0, a fraction is cut.
fn whole(text: &str) -> Option<i64> {
    let text = text.trim();
    match text {
        "" | "false" => return Some(0),
        "true" => return Some(1),
        _ => {}
    }
    if let Ok(n) = text.parse() {
        return Some(n);
    }
    if !text.contains(['.', 'e', 'E']) {
        return None;
    }
    let f: f64 = text.parse().ok()?;
    (f.abs() < 9.2e18).then_some(f as i64)
}

pub(super) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

macro_rules! integers {
    ($($method:ident $visit:ident $t:ty,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            let n = self.integer()?;
            let n = <$t>::try_from(n).map_err(|_| self.error(format_args!("{n} is out of range")))?;
            visitor.$visit(n)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Parser<'_> {
    type Error = FastjsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.peek() {
            None => Err(self.error("expected a value, found the end")),
            Some(b'{') => self.deserialize_map(visitor),
            Some(b'[') => self.deserialize_seq(visitor),
            Some(b'"') => visitor.visit_str(&self.string()?),
            _ if self.word("null") => visitor.visit_unit(),
            _ if self.word("true") => visitor.visit_bool(true),
            _ if self.word("false") => visitor.visit_bool(false),
            _ => {
                let text = self.number()?;
                if let Ok(n) = text.parse() {
                    return visitor.visit_i64(n);
                }
                match text.parse() {
                    Ok(f) => visitor.visit_f64(f),
                    Err(_) => Err(self.error(format_args!("expected a number, found {:?}", shortened(text)))),
                }
            }
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let text = self.as_text()?;
        let on =
            text.trim().eq_ignore_ascii_case("true") || matches!(text.trim().parse::<i64>(), Ok(n) if n != 0);
        visitor.visit_bool(on)
    }

    integers! {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let f = self.float()?;
        visitor.visit_f32(f as f32)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let f = self.float()?;
        visitor.visit_f64(f)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.as_text()? {
            Cow::Borrowed(s) => visitor.visit_str(s),
            Cow::Owned(s) => visitor.visit_string(s),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_any(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.word("null") {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip()?;
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        if self.word("null") {
            return visitor.visit_seq(Nothing);
        }
        self.expect(b'[', "an array")?;
        self.enter()?;
        let mut entries = Entries::new(self, None);
        let value = visitor.visit_seq(&mut entries)?;
        entries.finish(b']')?;
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.object(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        self.object(Some(fields), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let name = self.as_text()?;
        visitor.visit_enum(StrDeserializer::<FastjsonError>::new(&name))
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        self.skip()?;
        visitor.visit_unit()
    }
}

impl Parser<'_> {
    fn object<'de, V: Visitor<'de>>(
        &mut self,
        fields: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value> {
        if self.word("null") {
            return visitor.visit_map(Nothing);
        }
        self.expect(b'{', "an object")?;
        self.enter()?;
        self.objects += 1;
        if self.objects > MAX_OBJECTS {
            return Err(self.error(format_args!("more than {MAX_OBJECTS} objects")));
        }
        let mut entries = Entries::new(self, fields);
        let value = visitor.visit_map(&mut entries)?;
        entries.finish(b'}')?;
        Ok(value)
    }
}

/// A null where an array or object could be.
struct Nothing;

impl<'de> SeqAccess<'de> for Nothing {
    type Error = FastjsonError;
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, _: T) -> Result<Option<T::Value>> {
        Ok(None)
    }
}

impl<'de> MapAccess<'de> for Nothing {
    type Error = FastjsonError;
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, _: K) -> Result<Option<K::Value>> {
        Ok(None)
    }
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, _: T) -> Result<T::Value> {
        Err(FastjsonError::custom("no value"))
    }
}

/// Entries of an array or object whose opening byte is consumed.
struct Entries<'p, 'a> {
    parser: &'p mut Parser<'a>,
    first: bool,
    ended: bool,
    /// Members of the struct that is being filled, and which of them were there already.
    fields: Option<&'static [&'static str]>,
    seen: u64,
}

impl<'p, 'a> Entries<'p, 'a> {
    fn new(parser: &'p mut Parser<'a>, fields: Option<&'static [&'static str]>) -> Self {
        Self {
            parser,
            first: true,
            ended: false,
            fields,
            seen: 0,
        }
    }

    fn more(&mut self, close: u8) -> Result<bool> {
        if !self.ended {
            self.ended = !self.parser.more(close, &mut self.first)?;
        }
        Ok(!self.ended)
    }

    /// Leaves the array or object; entries that the visitor did not ask for are an error, as for any other type.
    fn finish(mut self, close: u8) -> Result<()> {
        if self.more(close)? {
            return Err(self.parser.error("more entries than expected"));
        }
        self.parser.depth -= 1;
        Ok(())
    }

    /// True if the member is to be passed over: it was there already.
    fn repeated(&mut self, key: &str) -> bool {
        let Some(i) = self.fields.and_then(|f| f.iter().position(|name| *name == key)) else {
            return false;
        };
        let bit = 1_u64.checked_shl(i as u32).unwrap_or(0);
        let repeated = self.seen & bit != 0;
        self.seen |= bit;
        repeated
    }
}

impl<'de> SeqAccess<'de> for &mut Entries<'_, '_> {
    type Error = FastjsonError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        while self.more(b']')? {
            if !self.parser.word("null") {
                return seed.deserialize(&mut *self.parser).map(Some);
            }
        }
        Ok(None)
    }
}

impl<'de> MapAccess<'de> for &mut Entries<'_, '_> {
    type Error = FastjsonError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        while self.more(b'}')? {
            let mut key = self.parser.key()?;
            self.parser.expect(b':', "':'")?;
            if self.parser.word("null") {
                continue;
            }
            if self.fields.is_some() && key == "topicSynFlag" {
                key = "topicSysFlag".into();
            }
            if key == "$ref" || self.repeated(&key) {
                self.parser.skip()?;
                continue;
            }
            let depth = self.parser.depth;
            return seed.deserialize(MapKey { key, depth }).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value> {
        seed.deserialize(&mut *self.parser)
    }
}
