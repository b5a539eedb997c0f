//! Typed header arguments, one struct for each request and response that has any.
//!
//! Structs borrow their texts from the command's [`Ext`], so reading one allocates nothing. A struct is made by
//! [`macro@headers`] from lines of `field: type => "javaName"`:
//!
//! * `&str`, numbers and `bool` must be there; `= value` behind the name makes them optional with that default;
//! * `Option<…>` may be absent, and is not written when `None`;
//! * extra arguments are ignored; for numbers and booleans an empty value counts as absent.
//!
//! Java logs a bad argument and goes on with 0 or null; here reading fails and names the field, which a server
//! answers with code 1.

use std::fmt::Display;

use thiserror::Error;

use crate::ext::Ext;

mod acl;
mod admin;
mod client;
mod namesrv;
mod offset;
mod pull;
mod query;
mod send;
mod topic;
mod transaction;

pub use acl::*;
pub use admin::*;
pub use client::*;
pub use namesrv::*;
pub use offset::*;
pub use pull::*;
pub use query::*;
pub use send::*;
pub use topic::*;
pub use transaction::*;

/// Why header arguments cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// A mandatory argument is absent.
    #[error("the header argument {0} is missing")]
    Missing(&'static str),
    /// An argument is not of its type.
    #[error("the header argument {field} is {value:?}, expected {expected}")]
    Bad {
        /// The argument's name.
        field: &'static str,
        /// What was sent, at most its first 64 characters.
        value: String,
        /// What should have been sent.
        expected: &'static str,
    },
}

/// Header arguments that can be read.
pub trait DecodeHeader<'a>: Sized {
    /// Reads the arguments of a command with this code.
    ///
    /// # Errors
    /// Names the first field that is missing or cannot be read.
    fn decode(code: i32, ext: &'a Ext) -> Result<Self, HeaderError>;
}

/// Header arguments that can be written.
pub trait EncodeHeader {
    /// Sets the arguments of a command with this code.
    fn encode(&self, code: i32, ext: &mut Ext);
}

/// A type that one argument can have.
pub(crate) trait Field<'a>: Sized {
    fn read(name: &'static str, value: Option<&'a str>) -> Result<Self, HeaderError>;
    fn write(&self, name: &str, ext: &mut Ext);
}

pub(crate) fn bad(field: &'static str, value: &str, expected: &'static str) -> HeaderError {
    HeaderError::Bad {
        field,
        value: value.chars().take(64).collect(),
        expected,
    }
}

impl<'a> Field<'a> for &'a str {
    fn read(name: &'static str, value: Option<&'a str>) -> Result<Self, HeaderError> {
        value.ok_or(HeaderError::Missing(name))
    }
    fn write(&self, name: &str, ext: &mut Ext) {
        ext.set(name, self);
    }
}

impl<'a> Field<'a> for Option<&'a str> {
    fn read(_: &'static str, value: Option<&'a str>) -> Result<Self, HeaderError> {
        Ok(value)
    }
    fn write(&self, name: &str, ext: &mut Ext) {
        if let Some(v) = self {
            ext.set(name, v);
        }
    }
}

/// Types that come and go as `Display` text.
trait Plain: Display + Copy {
    const EXPECTED: &'static str;
    fn parse(text: &str) -> Option<Self>;
}

impl Plain for i32 {
    const EXPECTED: &'static str = "a whole number of 32 bits";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Plain for i64 {
    const EXPECTED: &'static str = "a whole number of 64 bits";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Plain for bool {
    const EXPECTED: &'static str = "true or false";
    fn parse(text: &str) -> Option<Self> {
        // As Java: whatever is not "true" is false.
        Some(text.eq_ignore_ascii_case("true"))
    }
}

macro_rules! plain_fields {
    ($($t:ty)*) => {$(
        impl<'a> Field<'a> for $t {
            fn read(name: &'static str, value: Option<&'a str>) -> Result<Self, HeaderError> {
                <Option<$t>>::read(name, value)?.ok_or(HeaderError::Missing(name))
            }
            fn write(&self, name: &str, ext: &mut Ext) {
                ext.set_display(name, self);
            }
        }
        impl<'a> Field<'a> for Option<$t> {
            fn read(name: &'static str, value: Option<&'a str>) -> Result<Self, HeaderError> {
                match value {
                    None | Some("") => Ok(None),
                    Some(v) => <$t as Plain>::parse(v).map(Some).ok_or_else(|| bad(name, v, <$t as Plain>::EXPECTED)),
                }
            }
            fn write(&self, name: &str, ext: &mut Ext) {
                if let Some(v) = self {
                    ext.set_display(name, v);
                }
            }
        }
    )*};
}

plain_fields!(i32 i64 bool);

/// Declares header structs; see the module's documentation.
macro_rules! headers {
    ($($(#[$meta:meta])* pub struct $name:ident $(<$lt:lifetime>)? {
        $($(#[$fmeta:meta])* $field:ident: $ty:ty => $java:literal $(= $default:expr)?,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name $(<$lt>)? {
            $($(#[$fmeta])* #[doc = concat!("Argument `", $java, "`.")] pub $field: $ty,)*
        }

        $crate::header::impl_header!($name $(<$lt>)? { $($field: $ty => $java $(= $default)?,)* });
    )*};
}

macro_rules! impl_header {
    ($name:ident { $($body:tt)* }) => {
        impl<'a> $crate::header::DecodeHeader<'a> for $name {
            $crate::header::header_decode!('a { $($body)* });
        }
        $crate::header::header_encode!([] $name { $($body)* });
    };
    ($name:ident <$lt:lifetime> { $($body:tt)* }) => {
        impl<$lt> $crate::header::DecodeHeader<$lt> for $name<$lt> {
            $crate::header::header_decode!($lt { $($body)* });
        }
        $crate::header::header_encode!([<'_>] $name { $($body)* });
    };
}

macro_rules! header_decode {
    ($lt:lifetime { $($field:ident: $ty:ty => $java:literal $(= $default:expr)?,)* }) => {
        fn decode(_code: i32, ext: &$lt $crate::ext::Ext) -> Result<Self, $crate::header::HeaderError> {
            // One walk over the arguments; the last of equal keys counts.
            $(let mut $field: Option<&$lt str> = None;)*
            for (key, value) in ext.iter() {
                match key {
                    $($java => $field = Some(value),)*
                    _ => {}
                }
            }
            Ok(Self { $($field: $crate::header::read_field!($ty, $java, $field $(, $default)?),)* })
        }
    };
}

macro_rules! read_field {
    ($ty:ty, $java:literal, $value:expr) => {
        <$ty as $crate::header::Field<'_>>::read($java, $value)?
    };
    ($ty:ty, $java:literal, $value:expr, $default:expr) => {
        <Option<$ty> as $crate::header::Field<'_>>::read($java, $value)?.unwrap_or($default)
    };
}

macro_rules! header_encode {
    ([$($lt:tt)*] $name:ident { $($field:ident: $ty:ty => $java:literal $(= $default:expr)?,)* }) => {
        impl $crate::header::EncodeHeader for $name $($lt)* {
            fn encode(&self, _code: i32, ext: &mut $crate::ext::Ext) {
                $($crate::header::Field::write(&self.$field, $java, ext);)*
            }
        }
    };
}

pub(crate) use {header_decode, header_encode, headers, impl_header, read_field};

#[cfg(test)]
mod tests;
