//! The body of a batch (320): messages back to back, each
//!
//! ```text
//! total size 4 | magic 4 (0) | body CRC 4 (0) | flag 4 | body length 4 | body | properties length 2 | properties
//! ```
//!
//! What all have in common (topic, queue, system flag, times) is in the request's header.

use thiserror::Error;

/// Bytes of an inner message beside body and properties.
pub const FIXED_LEN: usize = 22;

/// One message of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchMessage<'a> {
    /// The user's flag.
    pub flag: i32,
    /// The body.
    pub body: &'a [u8],
    /// Properties, at most 32767 bytes; see [`crate::properties`].
    pub properties: &'a [u8],
}

/// Why a batch cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BatchError {
    /// An inner message's size is impossible.
    #[error("message {index} of the batch says it has {size} bytes; {left} are left")]
    Size {
        /// Place in the batch, from 0.
        index: usize,
        /// The size it claims.
        size: i32,
        /// Bytes left in the batch.
        left: usize,
    },
    /// The lengths inside an inner message do not add up to its size.
    #[error("message {index} of the batch has a {field} that does not fit its size")]
    Field {
        /// Place in the batch, from 0.
        index: usize,
        /// The field that does not fit.
        field: &'static str,
    },
}

/// The messages of a batch's body. Ends after the first error.
pub fn iter(body: &[u8]) -> impl Iterator<Item = Result<BatchMessage<'_>, BatchError>> {
    let mut rest = body;
    let mut index = 0;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let message = next(&mut rest, index);
        index += 1;
        if message.is_err() {
            rest = &[];
        }
        Some(message)
    })
}

fn next<'a>(rest: &mut &'a [u8], index: usize) -> Result<BatchMessage<'a>, BatchError> {
    let size = rest.first_chunk::<4>().map_or(0, |b| i32::from_be_bytes(*b));
    let bad = BatchError::Size {
        index,
        size,
        left: rest.len(),
    };
    let split = usize::try_from(size)
        .ok()
        .filter(|n| *n >= FIXED_LEN)
        .and_then(|n| rest.split_at_checked(n));
    let (message, tail) = split.ok_or(bad)?;
    *rest = tail;
    let short = |field| move || BatchError::Field { index, field };
    let (flag, message) = message[12..].split_first_chunk::<4>().ok_or_else(short("flag"))?;
    let (body_len, message) = message
        .split_first_chunk::<4>()
        .ok_or_else(short("body length"))?;
    let body_len = usize::try_from(i32::from_be_bytes(*body_len)).map_err(|_| short("body length")())?;
    let (body, message) = message.split_at_checked(body_len).ok_or_else(short("body"))?;
    let (props_len, properties) = message
        .split_first_chunk::<2>()
        .ok_or_else(short("properties length"))?;
    if usize::try_from(i16::from_be_bytes(*props_len)) != Ok(properties.len()) {
        return Err(short("properties length")());
    }
    Ok(BatchMessage {
        flag: i32::from_be_bytes(*flag),
        body,
        properties,
    })
}

/// Bytes of one encoded message.
pub fn encoded_len(message: &BatchMessage<'_>) -> usize {
    FIXED_LEN + message.body.len() + message.properties.len().min(crate::properties::MAX_LEN)
}

/// Appends messages to a batch's body. Properties beyond 32767 bytes, which no record can hold, are cut.
pub fn encode<'a>(messages: impl IntoIterator<Item = BatchMessage<'a>>, out: &mut Vec<u8>) {
    for m in messages {
        let size = encoded_len(&m);
        let properties = &m.properties[..m.properties.len().min(crate::properties::MAX_LEN)];
        out.reserve(size);
        out.extend_from_slice(&(size as i32).to_be_bytes());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&m.flag.to_be_bytes());
        out.extend_from_slice(&(m.body.len() as i32).to_be_bytes());
        out.extend_from_slice(m.body);
        out.extend_from_slice(&(properties.len() as i16).to_be_bytes());
        out.extend_from_slice(properties);
    }
}

#[cfg(test)]
mod tests;
