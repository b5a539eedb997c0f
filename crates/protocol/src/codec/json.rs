//! The JSON header form.
//!
//! One object: `code`, `extFields`, `flag`, `language`, `opaque`, `remark`, `serializeTypeCurrentRPC`, `version`, written in
//! this order and without nulls, as fastjson does. On input any order goes, unknown members are skipped,
//! `serializeTypeCurrentRPC` is ignored, numbers may be quoted, `language` may be a name or a number, and argument
//! values that are not strings become text. Arguments that are null are left out. What is no text in a string (bytes
//! that are not UTF-8, half a surrogate pair) becomes U+FFFD; control characters in strings need no escape.
//!
//! A code beyond 16 bits is a legal number here and does not wrap.

use std::borrow::Cow;
use std::fmt::{self, Write};

use bytes::{BufMut, BytesMut};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::command::{Command, Language};
use crate::ext::{Ext, MAX_FIELDS};

pub(crate) fn decode(header: &[u8]) -> Result<Command, serde_json::Error> {
    read(header).or_else(|error| match mended(header) {
        Some(mended) => read(&mended),
        None => Err(error),
    })
}

fn read(header: &[u8]) -> Result<Command, serde_json::Error> {
    let mut d = serde_json::Deserializer::from_slice(header);
    let cmd = d.deserialize_map(HeaderVisitor { room: header.len() })?;
    d.end()?;
    Ok(cmd)
}

/// The header as Java's peers read it: U+FFFD for what is no text (bytes that are not UTF-8, halves of surrogate
/// pairs), control characters in strings taken as they are. `None` when there is nothing of this kind.
fn mended(header: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(header);
    let mut changed = matches!(text, Cow::Owned(_));
    let mut rest = text.as_bytes();
    let mut out = Vec::with_capacity(rest.len());
    let mut in_string = false;
    while let Some(&byte) = rest.first() {
        let mut taken = 1;
        match byte {
            b'"' => in_string = !in_string,
            b'\\' if in_string => {
                let pair = rest.get(6..).and_then(utf16_unit);
                taken = match (utf16_unit(rest), pair) {
                    (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 12,
                    (Some(0xD800..=0xDFFF), _) => {
                        changed = true;
                        out.extend_from_slice(b"\\ufffd");
                        rest = &rest[6..];
                        continue;
                    }
                    _ => rest.len().min(2),
                };
            }
            0..0x20 if in_string => {
                changed = true;
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
                rest = &rest[1..];
                continue;
            }
            _ => {}
        }
        out.extend_from_slice(&rest[..taken]);
        rest = &rest[taken..];
    }
    changed.then_some(out)
}

/// The number of a `\u` escape at the front.
fn utf16_unit(escape: &[u8]) -> Option<u16> {
    let digits = escape.strip_prefix(b"\\u")?.get(..4)?;
    u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

struct HeaderVisitor {
    room: usize,
}

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Command;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a command header object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Command, A::Error> {
        let mut cmd = Command::default();
        let mut room = Some(self.room / 2);
        while let Some(key) = map.next_key_seed(KeySeed)? {
            match key {
                Key::Code => cmd.code = map.next_value_seed(Int("code"))?,
                Key::Flag => cmd.flag = map.next_value_seed(Int("flag"))?,
                Key::Opaque => cmd.opaque = map.next_value_seed(Int("opaque"))?,
                Key::Version => cmd.version = map.next_value_seed(Int("version"))?,
                Key::Language => cmd.language = map.next_value_seed(Lang)?,
                Key::Remark => {
                    let mut text = String::new();
                    let present = map.next_value_seed(Text(&mut text))?;
                    cmd.remark = present.then_some(text);
                }
                Key::Ext => {
                    // A second mention adds to the first.
                    if let Some(room) = room.take() {
                        cmd.ext = Ext::with_room(room);
                    }
                    map.next_value_seed(Fields(&mut cmd.ext))?;
                }
                Key::Other => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        cmd.ext.keep_last();
        Ok(cmd)
    }
}

enum Key {
    Code,
    Flag,
    Opaque,
    Version,
    Language,
    Remark,
    Ext,
    Other,
}

struct KeySeed;

impl<'de> DeserializeSeed<'de> for KeySeed {
    type Value = Key;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Key, D::Error> {
        d.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed {
    type Value = Key;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member name")
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<Key, E> {
        Ok(match v {
            "code" => Key::Code,
            "flag" => Key::Flag,
            "opaque" => Key::Opaque,
            "version" => Key::Version,
            "language" => Key::Language,
            "remark" => Key::Remark,
            "extFields" => Key::Ext,
            _ => Key::Other,
        })
    }
}

/// A 32-bit number, quoted or not; null counts as 0.
struct Int(&'static str);

impl<'de> DeserializeSeed<'de> for Int {
    type Value = i32;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<i32, D::Error> {
        d.deserialize_any(self)
    }
}

impl Visitor<'_> for Int {
    type Value = i32;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a 32-bit number for {}", self.0)
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<i32, E> {
        i32::try_from(v).map_err(|_| E::custom(format_args!("{} {v} is not a 32-bit number", self.0)))
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<i32, E> {
        i32::try_from(v).map_err(|_| E::custom(format_args!("{} {v} is not a 32-bit number", self.0)))
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<i32, E> {
        v.parse()
            .map_err(|_| E::custom(format_args!("{} {v:?} is not a 32-bit number", self.0)))
    }
    fn visit_unit<E: Error>(self) -> Result<i32, E> {
        Ok(0)
    }
}

struct Lang;

impl<'de> DeserializeSeed<'de> for Lang {
    type Value = Language;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<Language, D::Error> {
        d.deserialize_any(self)
    }
}

impl Visitor<'_> for Lang {
    type Value = Language;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a language's name or number")
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<Language, E> {
        Ok(Language::from_name(v))
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<Language, E> {
        Ok(Language::from_code(v))
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<Language, E> {
        Ok(Language::from_code(i64::try_from(v).unwrap_or(-1)))
    }
    fn visit_unit<E: Error>(self) -> Result<Language, E> {
        Ok(Language::Java)
    }
}

/// Appends any value as text; gives false for null.
struct Text<'s>(&'s mut String);

impl<'de> DeserializeSeed<'de> for Text<'_> {
    type Value = bool;
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<bool, D::Error> {
        d.deserialize_any(self)
    }
}

impl Text<'_> {
    fn show<E: Error>(self, v: impl fmt::Display) -> Result<bool, E> {
        write!(self.0, "{v}").map_err(E::custom)?;
        Ok(true)
    }
}

impl<'de> Visitor<'de> for Text<'_> {
    type Value = bool;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<bool, E> {
        self.0.push_str(v);
        Ok(true)
    }
    fn visit_bool<E: Error>(self, v: bool) -> Result<bool, E> {
        self.show(v)
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<bool, E> {
        self.show(v)
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<bool, E> {
        self.show(v)
    }
    fn visit_f64<E: Error>(self, v: f64) -> Result<bool, E> {
        self.show(format_args!("{v:?}"))
    }
    fn visit_unit<E: Error>(self) -> Result<bool, E> {
        Ok(false)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        self.0.push('{');
        let mut first = true;
        while let Some(key) = map.next_key::<String>()? {
            if !std::mem::take(&mut first) {
                self.0.push(',');
            }
            quote(&key, self.0);
            self.0.push(':');
            map.next_value_seed(Nested(self.0))?;
        }
        self.0.push('}');
        Ok(true)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<bool, A::Error> {
        self.0.push('[');
        let start = self.0.len();
        loop {
            let before = self.0.len();
            if before > start {
                self.0.push(',');
            }
            if seq.next_element_seed(Nested(self.0))?.is_none() {
                self.0.truncate(before);
                break;
            }
        }
        self.0.push(']');
        Ok(true)
    }
}

/// A value inside an object or array that became text: JSON again.
struct Nested<'s>(&'s mut String);

impl<'de> DeserializeSeed<'de> for Nested<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }
    fn visit_str<E: Error>(self, v: &str) -> Result<(), E> {
        quote(v, self.0);
        Ok(())
    }
    fn visit_bool<E: Error>(self, v: bool) -> Result<(), E> {
        Text(self.0).show(v).map(drop)
    }
    fn visit_i64<E: Error>(self, v: i64) -> Result<(), E> {
        Text(self.0).show(v).map(drop)
    }
    fn visit_u64<E: Error>(self, v: u64) -> Result<(), E> {
        Text(self.0).show(v).map(drop)
    }
    fn visit_f64<E: Error>(self, v: f64) -> Result<(), E> {
        Text(self.0).show(format_args!("{v:?}")).map(drop)
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.0.push_str("null");
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        Text(self.0).visit_map(map).map(drop)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        Text(self.0).visit_seq(seq).map(drop)
    }
}

fn quote(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

struct Fields<'e>(&'e mut Ext);

impl<'de> DeserializeSeed<'de> for Fields<'_> {
    type Value = ();
    fn deserialize<D: Deserializer<'de>>(self, d: D) -> Result<(), D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Fields<'_> {
    type Value = ();
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of header arguments")
    }
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        loop {
            if self.0.len() > MAX_FIELDS {
                return Err(A::Error::custom(format_args!(
                    "more than {MAX_FIELDS} header arguments"
                )));
            }
            let start = self.0.mark();
            if map.next_key_seed(Text(self.0.text_mut()))?.is_none() {
                return Ok(());
            }
            let value = self.0.mark();
            let present = map.next_value_seed(Text(self.0.text_mut()))?;
            self.0.finish(start, value, present);
        }
    }
}

/// Writes the header.
pub(crate) fn encode(cmd: &Command, out: &mut BytesMut) {
    let remark_len = cmd.remark.as_deref().map_or(0, str::len);
    out.reserve(128 + remark_len + cmd.ext.text_len() + cmd.ext.text_len() / 4 + 6 * cmd.ext.len());
    put_int(out, "{\"code\":", cmd.code);
    if !cmd.ext.is_empty() {
        out.put_slice(b",\"extFields\":{");
        for (i, (k, v)) in cmd.ext.iter().enumerate() {
            if i > 0 {
                out.put_u8(b',');
            }
            put_string(out, k);
            out.put_u8(b':');
            put_string(out, v);
        }
        out.put_u8(b'}');
    }
    put_int(out, ",\"flag\":", cmd.flag);
    out.put_slice(b",\"language\":\"");
    out.put_slice(cmd.language.name().as_bytes());
    put_int(out, "\",\"opaque\":", cmd.opaque);
    if let Some(remark) = &cmd.remark {
        out.put_slice(b",\"remark\":");
        put_string(out, remark);
    }
    out.put_slice(b",\"serializeTypeCurrentRPC\":\"JSON\"");
    put_int(out, ",\"version\":", cmd.version);
    out.put_u8(b'}');
}

fn put_int(out: &mut BytesMut, before: &str, n: i32) {
    // Writing to a growing buffer cannot fail.
    let _ok = write!(out, "{before}{n}");
}

/// Writes a JSON string, escaping quote, backslash and control characters.
fn put_string(out: &mut BytesMut, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.put_u8(b'"');
    let bytes = text.as_bytes();
    let mut from = 0;
    for (i, &b) in bytes.iter().enumerate() {
        if b >= 0x20 && b != b'"' && b != b'\\' {
            continue;
        }
        out.put_slice(&bytes[from..i]);
        from = i + 1;
        match b {
            b'"' => out.put_slice(b"\\\""),
            b'\\' => out.put_slice(b"\\\\"),
            b'\n' => out.put_slice(b"\\n"),
            b'\r' => out.put_slice(b"\\r"),
            b'\t' => out.put_slice(b"\\t"),
            _ => out.put_slice(&[
                b'\\',
                b'u',
                b'0',
                b'0',
                HEX[usize::from(b >> 4)],
                HEX[usize::from(b & 15)],
            ]),
        }
    }
    out.put_slice(&bytes[from..]);
    out.put_u8(b'"');
}
