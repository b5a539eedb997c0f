//! Keys of maps: integers, names, and objects.

use std::borrow::Cow;

use serde::de::value::StringDeserializer;
use serde::de::{Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use super::FastjsonError;
use super::de::{Parser, shortened};

type Result<T> = std::result::Result<T, FastjsonError>;

/// A map's key as its text; objects as keys are read anew out of it.
pub(super) struct MapKey<'a> {
    pub(super) key: Cow<'a, str>,
    pub(super) depth: usize,
}

macro_rules! key_integers {
    ($($method:ident $visit:ident $t:ty,)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
            let n = self.key.trim().parse::<$t>();
            let n = n.map_err(|_| FastjsonError::custom(format_args!("expected a whole number as key, found {:?}", shortened(&self.key))))?;
            visitor.$visit(n)
        }
    )*};
}

impl<'de> Deserializer<'de> for MapKey<'_> {
    type Error = FastjsonError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.key {
            Cow::Borrowed(s) => visitor.visit_str(s),
            Cow::Owned(s) => visitor.visit_string(s),
        }
    }

    key_integers! {
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let mut parser = Parser::new(self.key.as_bytes(), self.depth);
        let value = parser.deserialize_struct(name, fields, visitor)?;
        parser.end()?;
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let mut parser = Parser::new(self.key.as_bytes(), self.depth);
        let value = parser.deserialize_map(visitor)?;
        parser.end()?;
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let name: StringDeserializer<FastjsonError> = self.key.into_owned().into_deserializer();
        visitor.visit_enum(name)
    }

    forward_to_deserialize_any! {
        bool f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct identifier ignored_any
    }
}
