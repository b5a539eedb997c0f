//! Messages as brokers hand them out: records of the commit log, back to back.
//!
//! A received message keeps its bytes where they arrived: the body is a slice of the answer's buffer. A compressed
//! body is inflated when asked for, with a cap, so that one bad message fails by itself and never stops a consumer.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ferromq_protocol::properties::{self, names};
use ferromq_protocol::record::{self, Check, Entry, RecordError};
use ferromq_protocol::{compress, message_id, sysflag};

/// Largest body that inflating a message may give, in bytes: four times what brokers accept by default.
const INFLATE_CAP: usize = 16 * 1024 * 1024;

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedMessage {
    /// The topic.
    pub topic: Arc<str>,
    /// Queue within the broker.
    pub queue_id: i32,
    /// Place in the queue.
    pub queue_offset: i64,
    /// Place in the broker's log, in bytes.
    pub physical_offset: i64,
    /// The application's own number.
    pub flag: i32,
    /// Bits about the record: compression, transaction, host lengths.
    pub sys_flag: i32,
    /// When the sender made it, milliseconds since 1970 by the sender's clock.
    pub born_timestamp: i64,
    /// The sender's address as the broker saw it.
    pub born_host: SocketAddr,
    /// When the broker stored it, milliseconds since 1970 by the broker's clock.
    pub store_timestamp: i64,
    /// The address under which the broker made itself known.
    pub store_host: SocketAddr,
    /// How often it was delivered before.
    pub reconsume_times: i32,
    /// Size of the stored record in bytes.
    pub stored_size: i32,
    body: Bytes,
    properties: Box<str>,
}

/// A compressed body that cannot be inflated.
#[derive(Debug, Clone, thiserror::Error)]
#[error("the body of message {message_id} cannot be inflated: {reason}")]
pub struct BodyError {
    /// The message's id.
    pub message_id: String,
    /// What is wrong.
    pub reason: String,
}

impl ReceivedMessage {
    /// The content as it was sent.
    ///
    /// # Errors
    /// [`BodyError`] if the body is marked as compressed and does not inflate, or inflates to over 16 MiB.
    pub fn body(&self) -> Result<Bytes, BodyError> {
        if self.sys_flag & sysflag::COMPRESSED == 0 {
            return Ok(self.body.clone());
        }
        let failed = |reason: String| BodyError {
            message_id: self.message_id(),
            reason,
        };
        let kind = sysflag::compression(self.sys_flag).ok_or_else(|| {
            failed(format!(
                "system flag {:#x} names no known compression",
                self.sys_flag
            ))
        })?;
        let body = compress::inflate(kind, &self.body, INFLATE_CAP);
        body.map(Bytes::from).map_err(|error| failed(error.to_string()))
    }

    /// The content as it is stored, perhaps compressed.
    pub fn stored_body(&self) -> &Bytes {
        &self.body
    }

    /// The value of a property.
    pub fn property(&self, name: &str) -> Option<&str> {
        properties::get(&self.properties, name)
    }

    /// All properties.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        properties::iter(&self.properties)
    }

    /// The tag.
    pub fn tag(&self) -> Option<&str> {
        self.property(names::TAGS)
    }

    /// The keys, separated by blanks.
    pub fn keys(&self) -> Option<&str> {
        self.property(names::KEYS)
    }

    /// The id that the sender gave it, else the broker's.
    pub fn message_id(&self) -> String {
        self.property(names::UNIQ_KEY)
            .map_or_else(|| self.offset_id(), str::to_owned)
    }

    /// The broker's id: its address and the place in its log.
    pub fn offset_id(&self) -> String {
        message_id::offset_id(self.store_host, self.physical_offset)
    }
}

/// What a message is made of where it does not come as a record.
pub(crate) struct Parts<'a> {
    pub(crate) topic: &'a str,
    pub(crate) queue_id: i32,
    pub(crate) flag: i32,
    pub(crate) sys_flag: i32,
    pub(crate) born_timestamp: i64,
    pub(crate) born_host: SocketAddr,
    pub(crate) store_timestamp: i64,
    pub(crate) store_host: SocketAddr,
    pub(crate) reconsume_times: i32,
    pub(crate) properties: &'a str,
}

impl ReceivedMessage {
    pub(crate) fn from_parts(parts: &Parts<'_>, body: Bytes) -> Self {
        Self {
            topic: parts.topic.into(),
            queue_id: parts.queue_id,
            queue_offset: 0,
            physical_offset: 0,
            flag: parts.flag,
            sys_flag: parts.sys_flag,
            born_timestamp: parts.born_timestamp,
            born_host: parts.born_host,
            store_timestamp: parts.store_timestamp,
            store_host: parts.store_host,
            reconsume_times: parts.reconsume_times,
            stored_size: 0,
            body,
            properties: parts.properties.into(),
        }
    }
}

/// A message for tests: queue 0 of topic `T`.
#[cfg(test)]
pub(crate) fn test_message(queue_offset: i64, body: &'static [u8]) -> ReceivedMessage {
    let host = SocketAddr::from(([127, 0, 0, 1], 1));
    let parts = Parts {
        topic: "T",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 0,
        born_host: host,
        store_timestamp: 0,
        store_host: host,
        reconsume_times: 0,
        properties: "",
    };
    let mut message = ReceivedMessage::from_parts(&parts, Bytes::from_static(body));
    message.queue_offset = queue_offset;
    message
}

/// All records of an answer. `topic` is what they are expected to belong to and saves a copy of the name each.
pub(crate) fn parse_all(
    answer: &Bytes,
    topic: Option<&Arc<str>>,
) -> Result<Vec<ReceivedMessage>, RecordError> {
    let mut messages = Vec::new();
    let mut at = 0;
    while at < answer.len() {
        let size = match record::parse(&answer[at..], Check::None)? {
            Entry::Blank { size } => size,
            Entry::Record(found) => {
                let topic = match topic {
                    Some(topic) if **topic == *found.topic => Arc::clone(topic),
                    _ => Arc::from(found.topic),
                };
                messages.push(ReceivedMessage {
                    topic,
                    queue_id: found.queue_id,
                    queue_offset: found.queue_offset,
                    physical_offset: found.physical_offset,
                    flag: found.flag,
                    sys_flag: found.sys_flag,
                    born_timestamp: found.born_timestamp,
                    born_host: found.born_host,
                    store_timestamp: found.store_timestamp,
                    store_host: found.store_host,
                    reconsume_times: found.reconsume_times,
                    stored_size: found.total_size,
                    body: answer.slice_ref(found.body),
                    properties: found.properties_text().into(),
                });
                found.total_size
            }
        };
        // A parsed entry has a positive size within the buffer.
        at += usize::try_from(size).unwrap_or(0).max(1);
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use ferromq_protocol::compress::Kind;
    use ferromq_protocol::record::{RecordDraft, patch};

    use super::*;

    fn record(sys_flag: i32, body: &[u8], properties: &str) -> Vec<u8> {
        let host = "10.0.0.1:10911".parse().unwrap();
        let draft = RecordDraft {
            topic: "T",
            queue_id: 3,
            flag: 7,
            sys_flag,
            born_timestamp: 1,
            born_host: "[fd00::9]:5000".parse().unwrap(),
            store_host: host,
            reconsume_times: 2,
            prepared_transaction_offset: 0,
            body,
            properties: properties.as_bytes(),
        };
        let mut out = Vec::new();
        draft.encode(&mut out);
        patch::queue_offset(&mut out, 42);
        patch::physical_offset(&mut out, 123_456);
        out
    }

    fn one(sys_flag: i32, body: &[u8]) -> ReceivedMessage {
        let answer = Bytes::from(record(sys_flag, body, ""));
        parse_all(&answer, None).unwrap().remove(0)
    }

    #[test]
    fn records_back_to_back_become_messages() {
        let topic: Arc<str> = "T".into();
        let both = [
            record(0, b"one", "TAGS\u{1}A\u{2}UNIQ_KEY\u{1}ID"),
            record(0, b"two", ""),
        ]
        .concat();
        let messages = parse_all(&Bytes::from(both), Some(&topic)).unwrap();
        let [first, second] = messages.as_slice() else {
            panic!("{messages:?}")
        };
        assert_eq!((first.tag(), first.message_id().as_str()), (Some("A"), "ID"));
        assert!(Arc::ptr_eq(&first.topic, &topic));
        assert_eq!(
            (
                first.queue_id,
                first.queue_offset,
                first.flag,
                first.reconsume_times
            ),
            (3, 42, 7, 2)
        );
        assert_eq!(first.born_host.to_string(), "[fd00::9]:5000");
        // Without a unique id the broker's is shown.
        assert_eq!(second.message_id(), "0A00000100002A9F000000000001E240");
        assert_eq!(second.body().unwrap(), "two");
    }

    #[test]
    fn a_cut_answer_is_an_error() {
        let whole = record(0, b"body", "p\u{1}v");
        for cut in 1..whole.len() {
            let answer = Bytes::copy_from_slice(&whole[..cut]);
            assert!(parse_all(&answer, None).is_err(), "{cut} bytes");
        }
        assert!(parse_all(&Bytes::new(), None).unwrap().is_empty());
    }

    #[test]
    fn a_body_that_does_not_inflate_fails_by_itself() {
        let packed = compress::compress(Kind::Zlib, b"content").unwrap();
        assert_eq!(one(sysflag::COMPRESSED, &packed).body().unwrap(), "content");
        let wrong = one(sysflag::COMPRESSED, b"random bytes");
        assert!(
            wrong
                .body()
                .unwrap_err()
                .to_string()
                .contains(&wrong.message_id())
        );
        assert_eq!(wrong.stored_body(), "random bytes");
        assert!(
            one(sysflag::COMPRESSED | 0x500, &packed).body().is_err(),
            "an unknown way to compress"
        );
        let bomb = compress::compress(Kind::Zlib, &vec![0; INFLATE_CAP + 1]).unwrap();
        assert!(
            one(sysflag::COMPRESSED, &bomb).body().is_err(),
            "more than the cap"
        );
    }
}
