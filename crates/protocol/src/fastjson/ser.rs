//! The writer: a serde serializer into bytes.

use std::fmt::{self, Write as _};

use serde::Serialize;
use serde::ser::{
    self, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum IntegerKeys {
    Quoted,
    Bare,
}

pub(super) fn write<T: Serialize + ?Sized>(value: &T, keys: IntegerKeys) -> Vec<u8> {
    let mut writer = Writer {
        out: String::with_capacity(256),
        keys,
    };
    match value.serialize(&mut writer) {
        Ok(()) => writer.out.into_bytes(),
        Err(Failed) => Vec::new(),
    }
}

/// A type's own `Serialize` gave up; the writer itself never fails.
#[derive(Debug)]
pub(super) struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the value cannot be written")
    }
}

impl std::error::Error for Failed {}

impl ser::Error for Failed {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

type Result<T = ()> = std::result::Result<T, Failed>;

struct Writer {
    out: String,
    keys: IntegerKeys,
}

impl Writer {
    fn show(&mut self, v: impl fmt::Display) -> Result {
        write!(self.out, "{v}").map_err(|_| Failed)
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        let mut from = 0;
        for (i, b) in text.bytes().enumerate() {
            if b >= 0x20 && b != b'"' && b != b'\\' {
                continue;
            }
            self.out.push_str(&text[from..i]);
            from = i + 1;
            match b {
                b'"' => self.out.push_str("\\\""),
                b'\\' => self.out.push_str("\\\\"),
                b'\n' => self.out.push_str("\\n"),
                b'\r' => self.out.push_str("\\r"),
                b'\t' => self.out.push_str("\\t"),
                _ => {
                    // Writing to a String cannot fail.
                    let _ok = write!(self.out, "\\u{b:04x}");
                }
            }
        }
        self.out.push_str(&text[from..]);
        self.out.push('"');
    }

    /// Ends a member; one whose value came out as null is taken back.
    fn close_member(&mut self, member: usize, value: usize) {
        if self.out[value..] == *"null" {
            self.out.truncate(member);
        }
    }

    /// Turns what was written from `at` on into a key: integers get their quotes, strings and objects stay.
    fn close_key(&mut self, at: usize) {
        let bare = !self.out[at..].starts_with(['"', '{', '[']);
        let integer = self.out[at..].starts_with(|c: char| c == '-' || c.is_ascii_digit());
        if bare && !(integer && self.keys == IntegerKeys::Bare) {
            self.out.insert(at, '"');
            self.out.push('"');
        }
    }
}

/// An open array or object.
pub(super) struct Open<'w> {
    writer: &'w mut Writer,
    start: usize,
    member: usize,
    close: &'static str,
}

impl<'w> Open<'w> {
    fn new(writer: &'w mut Writer, open: &str, close: &'static str) -> Self {
        writer.out.push_str(open);
        let start = writer.out.len();
        Self {
            writer,
            start,
            member: start,
            close,
        }
    }

    fn comma(&mut self) {
        self.member = self.writer.out.len();
        if self.member > self.start {
            self.writer.out.push(',');
        }
    }

    fn element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.comma();
        value.serialize(&mut *self.writer)
    }

    fn value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.writer.out.push(':');
        let at = self.writer.out.len();
        value.serialize(&mut *self.writer)?;
        self.writer.close_member(self.member, at);
        Ok(())
    }

    fn field<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result {
        self.comma();
        self.writer.string(name);
        self.value(value)
    }

    fn close(self) {
        self.writer.out.push_str(self.close);
    }
}

macro_rules! shown {
    ($($method:ident $t:ty,)*) => {$(
        fn $method(self, v: $t) -> Result {
            self.show(v)
        }
    )*};
}

impl<'w> Serializer for &'w mut Writer {
    type Ok = ();
    type Error = Failed;
    type SerializeSeq = Open<'w>;
    type SerializeTuple = Open<'w>;
    type SerializeTupleStruct = Open<'w>;
    type SerializeTupleVariant = Open<'w>;
    type SerializeMap = Open<'w>;
    type SerializeStruct = Open<'w>;
    type SerializeStructVariant = Open<'w>;

    shown! {
        serialize_bool bool,
        serialize_i8 i8,
        serialize_i16 i16,
        serialize_i32 i32,
        serialize_i64 i64,
        serialize_u8 u8,
        serialize_u16 u16,
        serialize_u32 u32,
        serialize_u64 u64,
    }

    fn serialize_f32(self, v: f32) -> Result {
        self.serialize_f64(v.into())
    }

    fn serialize_f64(self, v: f64) -> Result {
        // As Java: always with a fraction, and nothing where there is no number.
        if v.is_finite() {
            self.show(format_args!("{v:?}"))
        } else {
            self.serialize_unit()
        }
    }

    fn serialize_char(self, v: char) -> Result {
        self.serialize_str(v.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, v: &str) -> Result {
        self.string(v);
        Ok(())
    }

    fn serialize_bytes(self, v: &[u8]) -> Result {
        v.serialize(self)
    }

    fn serialize_none(self) -> Result {
        self.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result {
        self.out.push_str("null");
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result {
        self.serialize_unit()
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result {
        self.serialize_str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result {
        let mut open = Open::new(self, "{", "}");
        open.field(variant, value)?;
        open.close();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Open<'w>> {
        Ok(Open::new(self, "[", "]"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Open<'w>> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Open<'w>> {
        self.serialize_seq(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'w>> {
        self.out.push('{');
        self.string(variant);
        Ok(Open::new(self, ":[", "]}"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Open<'w>> {
        Ok(Open::new(self, "{", "}"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Open<'w>> {
        self.serialize_map(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Open<'w>> {
        self.out.push('{');
        self.string(variant);
        Ok(Open::new(self, ":{", "}}"))
    }
}

macro_rules! sequences {
    ($($trait:ident $method:ident,)*) => {$(
        impl $trait for Open<'_> {
            type Ok = ();
            type Error = Failed;
            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
                self.element(value)
            }
            fn end(self) -> Result {
                self.close();
                Ok(())
            }
        }
    )*};
}

sequences! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

macro_rules! structs {
    ($($trait:ident)*) => {$(
        impl $trait for Open<'_> {
            type Ok = ();
            type Error = Failed;
            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result {
                self.field(name, value)
            }
            fn end(self) -> Result {
                self.close();
                Ok(())
            }
        }
    )*};
}

structs!(SerializeStruct SerializeStructVariant);

impl SerializeMap for Open<'_> {
    type Ok = ();
    type Error = Failed;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result {
        self.comma();
        let at = self.writer.out.len();
        key.serialize(&mut *self.writer)?;
        self.writer.close_key(at);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result {
        self.value(value)
    }

    fn end(self) -> Result {
        self.close();
        Ok(())
    }
}
