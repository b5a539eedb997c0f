//! JSON bodies, by family.
//!
//! Every member may be absent on input and takes its default then; unknown members are skipped. Read and write them with
//! [`crate::fastjson`], which knows how Java's library departs from JSON: maps keyed by [`MessageQueue`] or by numbers go
//! through plain serde_json only by accident.

mod acl;
mod config;
mod connection;
mod heartbeat;
mod lock;
mod queue;
mod register;
mod reset;
mod route;
mod running;
mod stats;

pub use acl::*;
pub use config::*;
pub use connection::*;
pub use heartbeat::*;
pub use lock::*;
pub use queue::*;
pub use register::*;
pub use reset::*;
pub use route::*;
pub use running::*;
pub use stats::*;

/// Declares body structs from lines of `field: Type => "jsonName"`, with `= value` where the default is not the type's own.
macro_rules! bodies {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$fmeta:meta])* $field:ident: $ty:ty => $json:literal $(= $default:expr)?,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct $name {
            $($(#[$fmeta])* #[doc = concat!("Member `", $json, "`.")] #[serde(rename = $json)] pub $field: $ty,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: $crate::body::default_of!($($default)?),)* }
            }
        }
    )*};
}

macro_rules! default_of {
    () => {
        Default::default()
    };
    ($default:expr) => {
        $default
    };
}

/// Declares a Java enum: its constants in order with their names on the wire.
macro_rules! java_enum {
    ($($(#[$meta:meta])* pub enum $name:ident { $($(#[$vmeta:meta])* $variant:ident = $java:literal,)* })*) => {$(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vmeta])* #[doc = concat!("`", $java, "`.")] $variant,)*
        }

        impl $name {
            /// The constant's name in Java and on the wire.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $java,)* }
            }

            /// The constant of a name, without regard to case.
            pub fn from_name(name: &str) -> Option<Self> {
                $(if name.eq_ignore_ascii_case($java) { return Some(Self::$variant); })*
                None
            }
        }

        impl $crate::fastjson::JavaEnum for $name {
            const CONSTANTS: &'static [Self] = &[$(Self::$variant),*];
            fn parse(name: &str) -> Option<Self> {
                Self::from_name(name)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(self.name())
            }
        }
    )*};
}

pub(crate) use {bodies, default_of, java_enum};
