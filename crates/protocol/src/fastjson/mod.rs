//! The JSON of fastjson, Java RocketMQ's library, with its departures from the standard. They are known here only.
//!
//! **Reading** ([`from_slice`]) takes standard JSON and besides
//! * keys without quotes: integers (`{0:"a"}`), names, and objects (`{{"queueId":0}:5}`), also an object's text as a
//!   quoted key;
//! * numbers and booleans as strings and the other way round, where the type asks for it;
//! * null members and elements, as if they were not there; a null object, as an empty one;
//! * unknown names of an enum, as `None`; names without regard to case, and ordinals;
//! * `{"$ref":…}`, by which Java shortens a second mention of an instance, as an empty object;
//! * the older name `topicSynFlag` of `topicSysFlag`; of a member given twice, the first.
//!
//! Nesting is limited to [`MAX_DEPTH`], and so is the number of objects ([`MAX_OBJECTS`]): two bytes can stand for a
//! struct of hundreds. Anything but white space behind the document is an error. Nothing is allocated by numbers found.
//!
//! **Writing** ([`to_vec`]) gives compact text: null members are left out, integer keys are quoted (Java and Go take
//! them, and it is valid JSON), object keys are their bare compact text, as only that form is understood by all.
//! [`to_vec_java`] leaves integer keys bare, exactly as Java writes them.

mod de;
mod key;
mod ser;

use std::fmt;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::{DeserializeOwned, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Most levels of arrays and objects inside one another.
pub const MAX_DEPTH: usize = 64;

/// Most objects in one document.
pub const MAX_OBJECTS: usize = 1_000_000;

/// Why a text cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (at byte {at})")]
pub struct FastjsonError {
    message: String,
    at: usize,
}

impl FastjsonError {
    fn new(message: impl Into<String>, at: usize) -> Self {
        Self {
            message: message.into(),
            at,
        }
    }

    /// Where reading stopped, in bytes from the start.
    pub fn position(&self) -> usize {
        self.at
    }
}

impl Error for FastjsonError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), 0)
    }
}

/// Reads a document.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FastjsonError> {
    let mut parser = de::Parser::new(bytes, 0);
    let value = T::deserialize(&mut parser).map_err(|e| parser.placed(e))?;
    parser.end()?;
    Ok(value)
}

/// Writes a document. Map keys that are integers are quoted.
///
/// Never fails for this crate's types; a type whose own `Serialize` fails gives an empty text.
pub fn to_vec<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    ser::write(value, ser::IntegerKeys::Quoted)
}

/// As [`to_vec`], as text.
pub fn to_string<T: Serialize + ?Sized>(value: &T) -> String {
    // The writer takes whole strings only, so that this is always UTF-8.
    String::from_utf8(to_vec(value)).unwrap_or_default()
}

/// As [`to_vec`], but with integer keys bare, as Java does.
pub fn to_vec_java<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    ser::write(value, ser::IntegerKeys::Bare)
}

/// A Java enum: constants that go by name or by ordinal.
pub(crate) trait JavaEnum: Copy + 'static {
    /// All, by ordinal.
    const CONSTANTS: &'static [Self];
    /// The constant of a name, without regard to case.
    fn parse(name: &str) -> Option<Self>;
}

/// Reads an enum constant; whatever is none gives `None`.
pub(crate) fn optional_enum<'de, D: Deserializer<'de>, E: JavaEnum>(d: D) -> Result<Option<E>, D::Error> {
    d.deserialize_any(EnumVisitor(PhantomData))
}

struct EnumVisitor<E>(PhantomData<E>);

impl<'de, E: JavaEnum> Visitor<'de> for EnumVisitor<E> {
    type Value = Option<E>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of an enum constant")
    }
    fn visit_str<F>(self, name: &str) -> Result<Self::Value, F> {
        Ok(E::parse(name))
    }
    fn visit_u64<F>(self, ordinal: u64) -> Result<Self::Value, F> {
        Ok(usize::try_from(ordinal)
            .ok()
            .and_then(|i| E::CONSTANTS.get(i))
            .copied())
    }
    fn visit_i64<F>(self, ordinal: i64) -> Result<Self::Value, F> {
        Ok(usize::try_from(ordinal)
            .ok()
            .and_then(|i| E::CONSTANTS.get(i))
            .copied())
    }
    fn visit_f64<F>(self, _: f64) -> Result<Self::Value, F> {
        Ok(None)
    }
    fn visit_bool<F>(self, _: bool) -> Result<Self::Value, F> {
        Ok(None)
    }
    fn visit_unit<F>(self) -> Result<Self::Value, F> {
        Ok(None)
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
