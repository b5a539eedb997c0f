//! The bytes between master and slave.
//!
//! ```text
//! slave → master   i64 end of the slave's log                     first report, acknowledgement and heartbeat
//! master → slave   i64 log offset · i32 size · size bytes of the log, as they are
//! ```
//!
//! Size 0 is a heartbeat, whose offset is where the master would go on. A frame cuts records anywhere and never has bytes
//! of two files.

use bytes::{Buf, Bytes, BytesMut};

use super::LinkError;

/// Length of a report.
pub const REPORT_LEN: usize = 8;
/// Length of a frame's head.
pub const HEAD_LEN: usize = 12;
/// Most bytes in a frame: what Java's slave has room for is 4 MiB with the head.
pub const MAX_BODY: usize = (4 << 20) - HEAD_LEN;

/// A slave's report: the end of its log.
pub fn report(end: i64) -> [u8; REPORT_LEN] {
    end.to_be_bytes()
}

/// The head of a frame.
pub fn head(offset: i64, size: i32) -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&offset.to_be_bytes());
    head[8..].copy_from_slice(&size.to_be_bytes());
    head
}

/// A frame from the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Log offset of the first byte; of a heartbeat where the master would go on.
    pub offset: i64,
    /// Bytes of the log; none in a heartbeat.
    pub body: Bytes,
}

/// Takes a whole frame off the front of `buffer`, if there is one.
///
/// # Errors
/// A head that can't be one; nothing is taken then.
pub fn take(buffer: &mut BytesMut) -> Result<Option<Frame>, LinkError> {
    let Some((offset, size)) = peek(buffer)? else {
        return Ok(None);
    };
    if buffer.len() < HEAD_LEN + size {
        return Ok(None);
    }
    buffer.advance(HEAD_LEN);
    let body = buffer.split_to(size).freeze();
    Ok(Some(Frame { offset, body }))
}

/// Offset and size of the first frame in `buffer`, once its head is there.
fn peek(buffer: &[u8]) -> Result<Option<(i64, usize)>, LinkError> {
    let Some(head) = buffer.first_chunk::<HEAD_LEN>() else {
        return Ok(None);
    };
    let offset = i64::from_be_bytes(std::array::from_fn(|i| head[i]));
    let size = i32::from_be_bytes(std::array::from_fn(|i| head[8 + i]));
    if offset < 0 {
        return Err(LinkError::Offset(offset));
    }
    match usize::try_from(size) {
        Ok(size) if size <= MAX_BODY => Ok(Some((offset, size))),
        _ => Err(LinkError::FrameSize(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            use std::fmt::Write as _;
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    #[test]
    fn the_bytes_are_javas() {
        assert_eq!(hex(&report(65_536)), "0000000000010000");
        assert_eq!(hex(&report(65_667)), "0000000000010083");
        assert_eq!(hex(&head(65_536, 131)), "000000000001000000000083");
        assert_eq!(hex(&head(65_667, 0)), "000000000001008300000000");
    }

    #[test]
    fn frames_are_taken_whole() {
        let mut all = Vec::new();
        all.extend_from_slice(&head(65_536, 3));
        all.extend_from_slice(b"abc");
        all.extend_from_slice(&head(65_539, 0));
        let (mut buffer, mut frames) = (BytesMut::new(), Vec::new());
        for byte in all {
            buffer.extend_from_slice(&[byte]);
            frames.extend(take(&mut buffer).unwrap());
        }
        assert!(buffer.is_empty());
        let frames: Vec<_> = frames.iter().map(|f| (f.offset, &f.body[..])).collect();
        assert_eq!(frames, [(65_536, &b"abc"[..]), (65_539, b"")]);
    }

    #[test]
    fn impossible_heads_are_refused() {
        for (offset, size) in [(0, -1), (0, MAX_BODY as i32 + 1), (0, i32::MAX), (-1, 0)] {
            let mut buffer = BytesMut::from(&head(offset, size)[..]);
            assert!(take(&mut buffer).is_err(), "{offset} {size}");
        }
    }
}
