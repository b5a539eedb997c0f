//! The binary header form, which RocketMQ calls ROCKETMQ.
//!
//! ```text
//! code 2 | language 1 | version 2 | opaque 4 | flag 4 | remark length 4 | remark | arguments length 4 | arguments
//! argument: key length 2 | key | value length 4 | value
//! ```
//!
//! Text that is not UTF-8 is read with U+FFFD for what is none, as Java does. Code and version are signed 16-bit numbers here. A command that does not fit (see [`fits`]) is written as JSON
//! instead, which every receiver takes: a wrapped code would be answered as if it were another request.

use std::borrow::Cow;

use bytes::{BufMut, BytesMut};
use thiserror::Error;

use crate::command::{Command, Language, SerializeType};
use crate::ext::{Ext, MAX_FIELDS};

/// Bytes of a header without remark and arguments.
pub(crate) const MIN_LEN: usize = 21;

/// Why a binary header cannot be read.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum BinaryHeaderError {
    /// A field reaches past the end of the header.
    #[error("{field} of the binary header needs {need} bytes, {left} are left")]
    Short {
        /// The field that is cut off.
        field: &'static str,
        /// Bytes that the field says it has.
        need: i64,
        /// Bytes that there are.
        left: usize,
    },
    /// More arguments than any genuine peer sends.
    #[error("the binary header has more than {MAX_FIELDS} arguments")]
    TooManyFields,
}

type Result<T> = std::result::Result<T, BinaryHeaderError>;

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, field: &'static str, n: i64) -> Result<&'a [u8]> {
        let short = BinaryHeaderError::Short {
            field,
            need: n,
            left: self.0.len(),
        };
        let n = usize::try_from(n).map_err(|_| BinaryHeaderError::Short {
            field,
            need: n,
            left: self.0.len(),
        })?;
        let (head, rest) = self.0.split_at_checked(n).ok_or(short)?;
        self.0 = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let short = BinaryHeaderError::Short {
            field,
            need: N as i64,
            left: self.0.len(),
        };
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn i16(&mut self, field: &'static str) -> Result<i32> {
        Ok(i16::from_be_bytes(self.array(field)?).into())
    }

    fn i32(&mut self, field: &'static str) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    fn text(&mut self, field: &'static str, n: i32) -> Result<Cow<'a, str>> {
        self.take(field, n.into()).map(String::from_utf8_lossy)
    }
}

pub(crate) fn decode(header: &[u8]) -> Result<Command> {
    let mut r = Reader(header);
    let mut cmd = Command {
        code: r.i16("code")?,
        serialize: SerializeType::Binary,
        ..Command::default()
    };
    cmd.language = Language::from_code(i8::from_be_bytes(r.array("language")?).into());
    cmd.version = r.i16("version")?;
    cmd.opaque = r.i32("opaque")?;
    cmd.flag = r.i32("flag")?;
    let remark_len = r.i32("remark")?;
    let remark = r.text("remark", remark_len)?;
    if !remark.is_empty() {
        cmd.remark = Some(remark.into_owned());
    }
    let ext_len = r.i32("arguments")?;
    let mut ext = Reader(r.take("arguments", ext_len.into())?);
    if ext.0.is_empty() {
        return Ok(cmd);
    }
    // The bytes are there, so their number is real.
    cmd.ext = Ext::with_room(ext.0.len());
    while !ext.0.is_empty() {
        if cmd.ext.len() == MAX_FIELDS {
            return Err(BinaryHeaderError::TooManyFields);
        }
        let n = ext.i16("an argument's key")?;
        let key = ext.text("an argument's key", n)?;
        let n = ext.i32("an argument's value")?;
        let value = ext.text("an argument's value", n)?;
        cmd.ext.push(&key, |t| t.push_str(&value));
    }
    cmd.ext.keep_last();
    Ok(cmd)
}

/// True if the binary form can hold the command.
pub(crate) fn fits(cmd: &Command) -> bool {
    i16::try_from(cmd.code).is_ok()
        && i16::try_from(cmd.version).is_ok()
        && cmd.ext.iter().all(|(k, _)| i16::try_from(k.len()).is_ok())
}

/// Writes the header of a command for which [`fits`] holds.
pub(crate) fn encode(cmd: &Command, out: &mut BytesMut) {
    let remark = cmd.remark.as_deref().unwrap_or("");
    out.reserve(MIN_LEN + remark.len() + cmd.ext.text_len() + 6 * cmd.ext.len());
    out.put_i16(cmd.code as i16);
    out.put_u8(cmd.language.code());
    out.put_i16(cmd.version as i16);
    out.put_i32(cmd.opaque);
    out.put_i32(cmd.flag);
    out.put_u32(remark.len() as u32);
    out.put_slice(remark.as_bytes());
    let ext_len: usize = cmd.ext.iter().map(|(k, v)| 6 + k.len() + v.len()).sum();
    out.put_u32(ext_len as u32);
    for (k, v) in cmd.ext.iter() {
        out.put_i16(k.len() as i16);
        out.put_slice(k.as_bytes());
        out.put_u32(v.len() as u32);
        out.put_slice(v.as_bytes());
    }
}
