//! Frames: how a command lies on the wire.
//!
//! ```text
//! offset 0   4  L = 4 + header length + body length (excludes these 4 bytes)
//!        4   1  header form: 0 JSON, 1 binary
//!        5   3  header length HL, unsigned
//!        8  HL  header
//!     8+HL      body, L - 4 - HL bytes
//! ```
//!
//! A frame's size is checked as soon as its length word is there, so that a lying length costs nothing. Every error
//! here means that the stream can no longer be followed: close the connection.

use bytes::{Buf, BufMut, BytesMut};
use thiserror::Error;

use crate::code::response;
use crate::codec::{binary, json};
use crate::command::{Command, SerializeType};

pub use crate::codec::binary::BinaryHeaderError;

/// The longest frame, in bytes with its length word.
pub const MAX_FRAME: usize = 16 * 1024 * 1024;

const MAX_HEADER: usize = 0x00FF_FFFF;

/// Why a frame cannot be read. The connection that sent it is beyond repair.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The length word allows no frame.
    #[error("a frame says it has {length} bytes; 4 to {most} are possible")]
    Length {
        /// The length word.
        length: i32,
        /// The most it may be.
        most: usize,
    },
    /// The header form's byte is neither 0 nor 1.
    #[error("unknown header form {0}; 0 (JSON) and 1 (binary) are known")]
    Serialization(u8),
    /// The header does not fit into its frame.
    #[error("a header of {header} bytes does not fit into a frame of {frame} bytes")]
    HeaderLength {
        /// Length of the header, in bytes.
        header: usize,
        /// Bytes that the frame has for header and body.
        frame: usize,
    },
    /// The JSON header cannot be read.
    #[error("bad JSON header: {0}")]
    Json(#[from] serde_json::Error),
    /// The binary header cannot be read.
    #[error("bad binary header: {0}")]
    Binary(#[from] BinaryHeaderError),
}

/// Cuts the first frame off `buf`, or gives `None` if more bytes are needed (`buf` is then as before).
///
/// The body is a slice of the buffer, not a copy. `max_frame` is in bytes and includes the length word; use
/// [`MAX_FRAME`] unless a limit was configured.
pub fn decode(buf: &mut BytesMut, max_frame: usize) -> Result<Option<Command>, FrameError> {
    let Some(length) = buf.first_chunk::<4>().map(|b| i32::from_be_bytes(*b)) else {
        return Ok(None);
    };
    let most = max_frame.saturating_sub(4);
    let frame = match usize::try_from(length) {
        Ok(n) if (4..=most).contains(&n) => n,
        _ => return Err(FrameError::Length { length, most }),
    };
    if let Some(form) = buf.get(4..8) {
        check_form(form[0])?;
        check_header(u24(&form[1..]), frame)?;
    }
    if buf.len() < 4 + frame {
        return Ok(None);
    }
    let mut bytes = buf.split_to(4 + frame).freeze();
    bytes.advance(4);
    let form = bytes[0];
    let header = u24(&bytes[1..4]);
    bytes.advance(4);
    let head = bytes.split_to(header);
    let mut cmd = match form {
        0 => json::decode(&head)?,
        _ => binary::decode(&head)?,
    };
    cmd.body = bytes;
    Ok(Some(cmd))
}

fn u24(b: &[u8]) -> usize {
    b.iter().take(3).fold(0, |n, b| n << 8 | usize::from(*b))
}

fn check_form(form: u8) -> Result<(), FrameError> {
    if form > 1 {
        Err(FrameError::Serialization(form))
    } else {
        Ok(())
    }
}

fn check_header(header: usize, frame: usize) -> Result<(), FrameError> {
    if header > frame - 4 {
        return Err(FrameError::HeaderLength {
            header,
            frame: frame - 4,
        });
    }
    Ok(())
}

/// Appends the frame of `cmd` with its own body.
pub fn encode(cmd: &Command, out: &mut BytesMut) {
    encode_head(cmd, cmd.body.len(), out);
    out.put_slice(&cmd.body);
}

/// Appends all of the frame that comes before the body; exactly `body_len` bytes of body must follow it on the wire.
///
/// The header takes the command's own form, except that a command which the binary form cannot hold (a code or version
/// beyond 16 bits) is written as JSON. A header too long for its 24-bit length is replaced by one with the same
/// opaque and flag, code 1 and a remark that says so: the peer learns of it, and the stream stays in step.
/// Whoever sends must keep a whole frame within [`MAX_FRAME`]; longer ones are refused by the receiver.
pub fn encode_head(cmd: &Command, body_len: usize, out: &mut BytesMut) {
    let start = out.len();
    out.put_u64(0);
    let form = if cmd.serialize == SerializeType::Binary && binary::fits(cmd) {
        binary::encode(cmd, out);
        1
    } else {
        json::encode(cmd, out);
        0
    };
    let header = out.len() - start - 8;
    if header > MAX_HEADER {
        out.truncate(start);
        let short = Command {
            code: response::SYSTEM_ERROR,
            opaque: cmd.opaque,
            flag: cmd.flag,
            version: cmd.version,
            remark: Some(format!(
                "the header of this command (code {}) takes {header} bytes, more than a frame can carry",
                cmd.code
            )),
            ..Command::default()
        };
        return encode_head(&short, body_len, out);
    }
    let length = (4 + header + body_len) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    out[start + 4..start + 8].copy_from_slice(&((form << 24) | header as u32).to_be_bytes());
}

#[cfg(test)]
mod tests;
