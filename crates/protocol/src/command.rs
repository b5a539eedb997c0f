//! One remoting command: a request or a response, independent of how it is put on the wire.
//!
//! A command owns its texts; its body is a reference-counted slice, usually of the buffer that the socket filled.

use bytes::Bytes;

use crate::VERSION;
use crate::ext::Ext;
use crate::header::{DecodeHeader, EncodeHeader, HeaderError};

/// Flag bit 0: the command is a response.
pub const RESPONSE_BIT: i32 = 1;
/// Flag bit 1: the sender wants no response.
pub const ONEWAY_BIT: i32 = 2;

/// What a sender says it is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // the names speak for themselves
pub enum Language {
    #[default]
    Java = 0,
    Cpp = 1,
    Dotnet = 2,
    Python = 3,
    Delphi = 4,
    Erlang = 5,
    Ruby = 6,
    Other = 7,
    Http = 8,
    Go = 9,
    Php = 10,
    Oms = 11,
    Rust = 12,
}

impl Language {
    const ALL: [(Self, &'static str); 13] = [
        (Self::Java, "JAVA"),
        (Self::Cpp, "CPP"),
        (Self::Dotnet, "DOTNET"),
        (Self::Python, "PYTHON"),
        (Self::Delphi, "DELPHI"),
        (Self::Erlang, "ERLANG"),
        (Self::Ruby, "RUBY"),
        (Self::Other, "OTHER"),
        (Self::Http, "HTTP"),
        (Self::Go, "GO"),
        (Self::Php, "PHP"),
        (Self::Oms, "OMS"),
        (Self::Rust, "RUST"),
    ];

    /// The name in JSON headers and bodies.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The byte in binary headers.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The language of a number; an unknown one gives Java, as an answer to it must be marked so.
    pub fn from_code(code: i64) -> Self {
        usize::try_from(code)
            .ok()
            .and_then(|i| Self::ALL.get(i))
            .map_or(Self::Java, |l| l.0)
    }

    /// The language of a name without regard to case, or of a number in text form; an unknown one gives Java.
    pub fn from_name(name: &str) -> Self {
        let known = Self::ALL.iter().find(|l| l.1.eq_ignore_ascii_case(name));
        known.map_or_else(|| name.parse().map_or(Self::Java, Self::from_code), |l| l.0)
    }
}

impl serde::Serialize for Language {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for Language {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let name = <String as serde::Deserialize>::deserialize(d)?;
        Ok(Self::from_name(&name))
    }
}

/// How a command's header is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SerializeType {
    /// A JSON object; wire byte 0.
    #[default]
    Json,
    /// The binary form, which RocketMQ calls ROCKETMQ; wire byte 1.
    Binary,
}

/// A request or a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Command {
    /// Request code, or response code if the response bit of `flag` is set. See [`crate::code`].
    pub code: i32,
    /// The sender's language.
    pub language: Language,
    /// The sender's version number; 407 stands for 4.9.7.
    pub version: i32,
    /// Joins a response to its request; unique on one connection and direction only.
    pub opaque: i32,
    /// [`RESPONSE_BIT`] and [`ONEWAY_BIT`].
    pub flag: i32,
    /// An error's text in a response, free text in a request.
    pub remark: Option<String>,
    /// Header arguments.
    pub ext: Ext,
    /// The form the header came in, or is to be written in.
    pub serialize: SerializeType,
    /// The body; empty if there is none.
    pub body: Bytes,
}

impl Command {
    /// A request with header form JSON, language Java, our version and opaque 0, which the sending connection fills in.
    pub fn request(code: i32) -> Self {
        Self {
            code,
            version: VERSION,
            ..Self::default()
        }
    }

    /// Adds the fields of a typed header to the arguments.
    #[must_use]
    pub fn with_header(mut self, h: &impl EncodeHeader) -> Self {
        h.encode(self.code, &mut self.ext);
        self
    }

    /// Sets one header argument.
    #[must_use]
    pub fn with_ext(mut self, key: &str, value: impl AsRef<str>) -> Self {
        self.ext.set(key, value);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn with_body(mut self, b: impl Into<Bytes>) -> Self {
        self.body = b.into();
        self
    }

    /// Sets the remark.
    #[must_use]
    pub fn with_remark(mut self, r: impl Into<String>) -> Self {
        self.remark = Some(r.into());
        self
    }

    /// A response to this request: same opaque, same header form, our language and version.
    pub fn reply(&self, code: i32) -> Self {
        Self {
            code,
            version: VERSION,
            opaque: self.opaque,
            flag: RESPONSE_BIT,
            serialize: self.serialize,
            ..Self::default()
        }
    }

    /// True if the command answers another one.
    pub fn is_response(&self) -> bool {
        self.flag & RESPONSE_BIT != 0
    }

    /// True if the sender wants no response.
    pub fn is_oneway(&self) -> bool {
        self.flag & ONEWAY_BIT != 0
    }

    /// Marks the command as one that wants no response.
    #[must_use]
    pub fn oneway(mut self) -> Self {
        self.flag |= ONEWAY_BIT;
        self
    }

    /// Reads the arguments as a typed header.
    ///
    /// # Errors
    /// Names the first field that is missing or cannot be read.
    pub fn header<'a, H: DecodeHeader<'a>>(&'a self) -> Result<H, HeaderError> {
        H::decode(self.code, &self.ext)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages() {
        assert_eq!(Language::from_code(9), Language::Go);
        assert_eq!(Language::from_code(13), Language::Java);
        assert_eq!(Language::from_code(-1), Language::Java);
        assert_eq!(Language::from_name("go"), Language::Go);
        assert_eq!(Language::from_name("9"), Language::Go);
        assert_eq!(Language::from_name("COBOL"), Language::Java);
        for (i, (l, _)) in Language::ALL.iter().enumerate() {
            assert_eq!(l.code() as usize, i);
        }
    }

    #[test]
    fn reply_copies_what_joins_it_to_the_request() {
        let mut q = Command::request(105).oneway();
        q.opaque = -7;
        q.serialize = SerializeType::Binary;
        q.language = Language::Go;
        let r = q.reply(17).with_remark("no");
        assert!(r.is_response() && !r.is_oneway());
        assert_eq!(
            (r.opaque, r.serialize, r.language, r.version),
            (-7, SerializeType::Binary, Language::Java, 407)
        );
        assert!(q.is_oneway() && !q.is_response());
    }
}
