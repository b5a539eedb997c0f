//! The bytes between master and slave.
//!
//! ```text
//! slave → master   i64 end of the slave's log                     first report, acknowledgement and heartbeat
//! master → slave   i64 log offset · i32 size · size bytes of the log, as they are
//! ```
//!
//! Size 0 is a heartbeat, whose offset is where the master would go on. A frame cuts records anywhere and never has bytes
//! of two files.
//!
//! Our slave says hello in front of its first report, in one write with it:
//!
//! ```text
//! i64 −1                                       Java's own sign of a slave that hasn't reported yet
//! i64 80 'FERRO' 00 01                         hello, form 1
//! i64 2^63 + length of a log file
//! i64 2^63 + tail length · 2^32 + checksum of the tail    the last bytes of the slave's log
//! i64 2^63 + broker id · 2^32 + checksum of the group's name; 0 where not told
//! ```
//!
//! A checksum is RocketMQ's: CRC-32 without its highest bit. The tail is at most [`TAIL`] bytes, all of one file.
//!
//! All of these words are negative: a Java master takes the newest of what it reads at once, which is the report, and none of
//! them for a position. To a slave that said hello, and to no other, our master sends notes among its frames:
//!
//! ```text
//! i64 −2^63 · i32 24 · i64 verdict · i64 first offset of its log · i64 end of its log
//! ```
//!
//! The first one comes before any of the log. With a verdict other than 0 nothing follows.

use bytes::{Buf, Bytes, BytesMut};

use super::LinkError;

/// Length of a report.
pub const REPORT_LEN: usize = 8;
/// Length of a frame's head.
pub const HEAD_LEN: usize = 12;
/// Most bytes in a frame: what Java's slave has room for is 4 MiB with the head.
pub const MAX_BODY: usize = (4 << 20) - HEAD_LEN;
/// Words of a hello.
pub const HELLO_WORDS: usize = 5;
/// The first word of a hello.
pub const HELLO: i64 = -1;
/// Most bytes of a slave's tail that are compared.
pub const TAIL: u64 = 64 << 10;

const FORM_1: i64 = i64::from_be_bytes([0x80, b'F', b'E', b'R', b'R', b'O', 0, 1]);
/// The offset of a note's head.
const NOTE: i64 = i64::MIN;
const NOTE_BODY: usize = 24;
/// Later forms may say more.
const NOTE_MOST: usize = 1024;

/// What our slave says before its first report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Length of its log files.
    pub file_size: u64,
    /// Bytes before the end of its log that [`Hello::tail_crc`] is of; all of one file.
    pub tail_len: u32,
    /// Checksum of those bytes.
    pub tail_crc: u32,
    /// Its broker id; 0 if it has none.
    pub broker_id: u32,
    /// Checksum of the group's name; 0 if it's not told.
    pub group: u32,
}

impl Hello {
    /// The words after the first.
    pub fn encode(&self) -> [i64; HELLO_WORDS] {
        let pair = |high: u32, low: u32| i64::MIN | (i64::from(high & 0x7fff_ffff) << 32) | i64::from(low);
        [
            HELLO,
            FORM_1,
            i64::MIN | (self.file_size as i64),
            pair(self.tail_len, self.tail_crc),
            pair(self.broker_id, self.group),
        ]
    }

    /// Reads the words after the first; `None` if they are no hello.
    pub fn decode(words: &[i64; HELLO_WORDS - 1]) -> Option<Self> {
        let [form, file_size, tail, who] = *words;
        if form != FORM_1 || file_size >= 0 || tail >= 0 || who >= 0 {
            return None;
        }
        let high = |word: i64| (word >> 32) as u32 & 0x7fff_ffff;
        Some(Self {
            file_size: (file_size & i64::MAX) as u64,
            tail_len: high(tail),
            tail_crc: tail as u32,
            broker_id: high(who),
            group: who as u32,
        })
    }
}

/// What a master thinks of a slave that said hello.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The log follows.
    Go,
    /// Its log ends before the master's first file.
    TooOld,
    /// Its last bytes are not the master's.
    Parted,
    /// Its log is longer than the master's.
    Beyond,
    /// It's of another broker group.
    OtherGroup,
    /// Its log files are of another length.
    FileSize,
    /// One that this version doesn't know.
    Unknown(i64),
}

impl Verdict {
    const fn number(self) -> i64 {
        match self {
            Self::Go => 0,
            Self::TooOld => 1,
            Self::Parted => 2,
            Self::Beyond => 3,
            Self::OtherGroup => 4,
            Self::FileSize => 5,
            Self::Unknown(n) => n,
        }
    }

    const fn of(number: i64) -> Self {
        match number {
            0 => Self::Go,
            1 => Self::TooOld,
            2 => Self::Parted,
            3 => Self::Beyond,
            4 => Self::OtherGroup,
            5 => Self::FileSize,
            n => Self::Unknown(n),
        }
    }
}

/// What our master tells our slave beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// Whether the slave may follow.
    pub verdict: Verdict,
    /// First offset of the master's log.
    pub first: i64,
    /// End of the master's log.
    pub end: i64,
}

impl Note {
    /// Appends the note to what is sent.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&head(NOTE, NOTE_BODY as i32));
        for number in [self.verdict.number(), self.first, self.end] {
            out.extend_from_slice(&number.to_be_bytes());
        }
    }

    fn read(body: &[u8]) -> Option<Self> {
        let word = |n: usize| body[8 * n..].first_chunk().map(|b| i64::from_be_bytes(*b));
        (body.len() >= NOTE_BODY).then_some(())?;
        Some(Self {
            verdict: Verdict::of(word(0)?),
            first: word(1)?,
            end: word(2)?,
        })
    }
}

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

/// What a slave receives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Bytes of the log, or a heartbeat.
    Log(Frame),
    /// Our master's word; Java's has none.
    Note(Note),
}

/// Takes a whole frame or note off the front of `buffer`, if there is one.
///
/// # Errors
/// A head that can't be one; nothing is taken then.
pub fn take(buffer: &mut BytesMut) -> Result<Option<Incoming>, LinkError> {
    let Some((offset, size)) = peek(buffer)? else {
        return Ok(None);
    };
    if buffer.len() < HEAD_LEN + size {
        return Ok(None);
    }
    buffer.advance(HEAD_LEN);
    let body = buffer.split_to(size).freeze();
    if offset == NOTE {
        let note = Note::read(&body).ok_or(LinkError::FrameSize(size as i32))?;
        return Ok(Some(Incoming::Note(note)));
    }
    Ok(Some(Incoming::Log(Frame { offset, body })))
}

/// Offset and size of the first frame in `buffer`, once its head is there.
fn peek(buffer: &[u8]) -> Result<Option<(i64, usize)>, LinkError> {
    let Some(head) = buffer.first_chunk::<HEAD_LEN>() else {
        return Ok(None);
    };
    let offset = i64::from_be_bytes(std::array::from_fn(|i| head[i]));
    let size = i32::from_be_bytes(std::array::from_fn(|i| head[8 + i]));
    let most = match offset {
        NOTE => NOTE_MOST,
        0.. => MAX_BODY,
        _ => return Err(LinkError::Offset(offset)),
    };
    match usize::try_from(size) {
        Ok(size) if size <= most => Ok(Some((offset, size))),
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
            match take(&mut buffer).unwrap() {
                Some(Incoming::Log(frame)) => frames.push(frame),
                Some(Incoming::Note(note)) => panic!("{note:?}"),
                None => {}
            }
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

    #[test]
    fn a_hello_is_of_negative_words_and_is_read_back() {
        for hello in [
            Hello {
                file_size: 1 << 30,
                tail_len: 65_536,
                tail_crc: u32::MAX,
                broker_id: 1,
                group: u32::MAX,
            },
            Hello {
                file_size: 4096,
                tail_len: 0,
                tail_crc: 0,
                broker_id: 0,
                group: 0,
            },
        ] {
            let words = hello.encode();
            // Else a Java master might take one for a position.
            assert!(words.iter().all(|word| *word < 0), "{words:?}");
            assert_eq!(words[0], HELLO);
            let rest = std::array::from_fn(|n| words[n + 1]);
            assert_eq!(Hello::decode(&rest), Some(hello));
        }
        assert_eq!(Hello::decode(&[1, 2, 3, 4]), None);
    }

    #[test]
    fn notes_are_read_back_and_too_long_ones_refused() {
        let note = Note {
            verdict: Verdict::TooOld,
            first: 7,
            end: 1 << 40,
        };
        let mut bytes = Vec::new();
        note.put(&mut bytes);
        let mut buffer = BytesMut::from(&bytes[..]);
        assert_eq!(take(&mut buffer).unwrap(), Some(Incoming::Note(note)));
        for size in [0, 23, 1025] {
            let mut buffer = BytesMut::from(&head(NOTE, size)[..]);
            buffer.resize(2_000, 0);
            assert!(take(&mut buffer).is_err(), "{size}");
        }
    }
}
