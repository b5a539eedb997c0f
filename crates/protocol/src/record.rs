//! A message as it lies in the commit log; the bodies of pulls, queries and views are such records back to back.
//!
//! ```text
//!  0  4 total size, including these 4       48  8|20 born host: address 4|16, port 4
//!  4  4 magic DAA320A7                      56  8    store timestamp
//!  8  4 body CRC (see crate::crc)           64  8|20 store host
//! 12  4 queue id                            72  4    reconsume times
//! 16  4 flag, the user's                    76  8    prepared transaction offset
//! 20  8 queue offset                        84  4+n  body length, body
//! 28  8 physical offset                         1+n  topic length (at most 127), topic
//! 36  4 system flag (see crate::sysflag)        2+n  properties length (at most 32767), properties
//! 40  8 born timestamp
//! ```
//!
//! Offsets are those with IPv4 hosts; an IPv6 host, marked in the system flag, takes 12 bytes more. A log file's end is
//! filled by a blank: 4 bytes length of the rest of the file, magic CBD43194, then anything.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;

use crate::crc::crc31;
use crate::{properties, sysflag};

/// Second word of a record.
pub const MESSAGE_MAGIC: i32 = -626_843_481;
/// Second word of a blank.
pub const BLANK_MAGIC: i32 = -875_286_124;
/// Bytes of a record with IPv4 hosts beside body, topic and properties.
pub const FIXED_LEN: usize = 91;
/// Bytes of a blank's header.
pub const BLANK_LEN: usize = 8;
/// The longest topic, in bytes.
pub const MAX_TOPIC: usize = 127;
/// The longest properties, in bytes.
pub const MAX_PROPERTIES: usize = 32767;

/// Byte positions of fields before the first host, which never move.
pub mod at {
    /// Total size, 4 bytes.
    pub const SIZE: usize = 0;
    /// Magic, 4 bytes.
    pub const MAGIC: usize = 4;
    /// Body CRC, 4 bytes.
    pub const CRC: usize = 8;
    /// Queue id, 4 bytes.
    pub const QUEUE_ID: usize = 12;
    /// The user's flag, 4 bytes.
    pub const FLAG: usize = 16;
    /// Queue offset, 8 bytes.
    pub const QUEUE_OFFSET: usize = 20;
    /// Physical offset, 8 bytes.
    pub const PHYSICAL_OFFSET: usize = 28;
    /// System flag, 4 bytes.
    pub const SYS_FLAG: usize = 36;
    /// Born timestamp, 8 bytes.
    pub const BORN_TIMESTAMP: usize = 40;
    /// Born host, 8 or 20 bytes.
    pub const BORN_HOST: usize = 48;

    /// Position of the store timestamp, 8 bytes.
    pub const fn store_timestamp(sys_flag: i32) -> usize {
        BORN_HOST + super::host_len(sys_flag, crate::sysflag::BORN_HOST_V6)
    }
}

const fn host_len(sys_flag: i32, bit: i32) -> usize {
    if sys_flag & bit != 0 { 20 } else { 8 }
}

/// What to check beyond the structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Nothing.
    #[default]
    None,
    /// The body's checksum.
    Crc,
}

/// Why bytes are no record.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Fewer bytes than the record says it has. At the end of a log: a write that was cut off.
    #[error("the record needs {need} bytes, {have} are there")]
    Short {
        /// Bytes of the record, as far as known.
        need: usize,
        /// Bytes that there are.
        have: usize,
    },
    /// The magic is neither a record's nor a blank's. Zero where nothing was written yet.
    #[error("no record starts here: magic {0:#010x}")]
    Magic(i32),
    /// The size cannot be that of a record.
    #[error("impossible record size {0}")]
    Size(i32),
    /// The lengths inside do not add up to the size.
    #[error("the record's {field} does not fit into its {size} bytes")]
    Field {
        /// The field that does not fit.
        field: &'static str,
        /// The record's size.
        size: usize,
    },
    /// The body is not what was written.
    #[error("the body's checksum is {found:#x}, the record says {stored:#x}")]
    Crc {
        /// The checksum in the record.
        stored: i32,
        /// The checksum of the body.
        found: i32,
    },
    /// The topic is not UTF-8.
    #[error("the record's topic is not UTF-8")]
    Topic,
}

/// A record, borrowed from the bytes that hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Bytes of the whole record.
    pub total_size: i32,
    /// Checksum of the body.
    pub body_crc: i32,
    /// Queue.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// Place in the queue.
    pub queue_offset: i64,
    /// Place in the log.
    pub physical_offset: i64,
    /// Bits of [`crate::sysflag`].
    pub sys_flag: i32,
    /// When the producer made it, milliseconds since 1970.
    pub born_timestamp: i64,
    /// The producer.
    pub born_host: SocketAddr,
    /// When the broker stored it, milliseconds since 1970.
    pub store_timestamp: i64,
    /// The broker.
    pub store_host: SocketAddr,
    /// How often it was sent back.
    pub reconsume_times: i32,
    /// Physical offset of the half message, of a decided transaction.
    pub prepared_transaction_offset: i64,
    /// The body as stored, maybe compressed.
    pub body: &'a [u8],
    /// The topic.
    pub topic: &'a str,
    /// The properties' bytes; see [`Record::properties_text`] and [`Record::property`].
    pub properties: &'a [u8],
}

impl<'a> Record<'a> {
    /// The properties as text; what is not UTF-8 is replaced.
    pub fn properties_text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.properties)
    }

    /// One property.
    pub fn property(&self, name: &str) -> Option<&'a str> {
        properties::get_bytes(self.properties, name)
    }

    /// The offset id, by which a client can ask for this record.
    pub fn offset_id(&self) -> String {
        crate::message_id::offset_id(self.store_host, self.physical_offset)
    }

    /// A draft with the same content.
    pub fn to_draft(&self) -> RecordDraft<'a> {
        RecordDraft {
            topic: self.topic,
            queue_id: self.queue_id,
            flag: self.flag,
            sys_flag: self.sys_flag,
            born_timestamp: self.born_timestamp,
            born_host: self.born_host,
            store_host: self.store_host,
            reconsume_times: self.reconsume_times,
            prepared_transaction_offset: self.prepared_transaction_offset,
            body: self.body,
            properties: self.properties,
        }
    }
}

/// What starts at some place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A message.
    Record(Record<'a>),
    /// The filler at a file's end.
    Blank {
        /// Bytes to the end of the file, including the blank's own header.
        size: i32,
    },
}

struct Reader<'a> {
    rest: &'a [u8],
    size: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], RecordError> {
        let (head, rest) = self.rest.split_at_checked(n).ok_or(RecordError::Field {
            field,
            size: self.size,
        })?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], RecordError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(RecordError::Field {
            field,
            size: self.size,
        })?;
        self.rest = rest;
        Ok(*head)
    }

    fn i32(&mut self, field: &'static str) -> Result<i32, RecordError> {
        Ok(i32::from_be_bytes(self.array(field)?))
    }

    fn i64(&mut self, field: &'static str) -> Result<i64, RecordError> {
        Ok(i64::from_be_bytes(self.array(field)?))
    }

    fn host(&mut self, v6: bool, field: &'static str) -> Result<SocketAddr, RecordError> {
        let ip: IpAddr = if v6 {
            Ipv6Addr::from(self.array::<16>(field)?).into()
        } else {
            Ipv4Addr::from(self.array::<4>(field)?).into()
        };
        // Ports are 4 bytes wide but never more than 16 bits; anything else is cut, as Java would refuse it later.
        Ok(SocketAddr::new(ip, self.i32(field)? as u16))
    }
}

/// Reads what starts at the beginning of `buf`, which may be longer.
///
/// A blank is told by its 8 bytes alone. Nothing is allocated.
pub fn parse(buf: &[u8], check: Check) -> Result<Entry<'_>, RecordError> {
    let Some(head) = buf.first_chunk::<8>() else {
        return Err(RecordError::Short {
            need: BLANK_LEN,
            have: buf.len(),
        });
    };
    let [s0, s1, s2, s3, m0, m1, m2, m3] = *head;
    let total_size = i32::from_be_bytes([s0, s1, s2, s3]);
    match i32::from_be_bytes([m0, m1, m2, m3]) {
        MESSAGE_MAGIC => {}
        BLANK_MAGIC => return Ok(Entry::Blank { size: total_size }),
        other => return Err(RecordError::Magic(other)),
    }
    let size = usize::try_from(total_size)
        .ok()
        .filter(|n| *n >= FIXED_LEN)
        .ok_or(RecordError::Size(total_size))?;
    let Some(record) = buf.get(8..size) else {
        return Err(RecordError::Short {
            need: size,
            have: buf.len(),
        });
    };
    let mut r = Reader { rest: record, size };
    let body_crc = r.i32("CRC")?;
    let queue_id = r.i32("queue id")?;
    let flag = r.i32("flag")?;
    let queue_offset = r.i64("queue offset")?;
    let physical_offset = r.i64("physical offset")?;
    let sys_flag = r.i32("system flag")?;
    let born_timestamp = r.i64("born timestamp")?;
    let born_host = r.host(sys_flag & sysflag::BORN_HOST_V6 != 0, "born host")?;
    let store_timestamp = r.i64("store timestamp")?;
    let store_host = r.host(sys_flag & sysflag::STORE_HOST_V6 != 0, "store host")?;
    let reconsume_times = r.i32("reconsume times")?;
    let prepared_transaction_offset = r.i64("prepared transaction offset")?;
    let body_len = usize::try_from(r.i32("body length")?).map_err(|_| RecordError::Field {
        field: "body length",
        size,
    })?;
    let body = r.take(body_len, "body")?;
    let [topic_len] = r.array("topic length")?;
    let topic_len = usize::try_from(topic_len as i8).map_err(|_| RecordError::Field {
        field: "topic length",
        size,
    })?;
    let topic = std::str::from_utf8(r.take(topic_len, "topic")?).map_err(|_| RecordError::Topic)?;
    let props_len = usize::try_from(i16::from_be_bytes(r.array("properties length")?)).map_err(|_| {
        RecordError::Field {
            field: "properties length",
            size,
        }
    })?;
    let properties = r.take(props_len, "properties")?;
    if !r.rest.is_empty() {
        return Err(RecordError::Field { field: "end", size });
    }
    if check == Check::Crc {
        let found = crc31(body);
        if found != body_crc {
            return Err(RecordError::Crc {
                stored: body_crc,
                found,
            });
        }
    }
    Ok(Entry::Record(Record {
        total_size,
        body_crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body,
        topic,
        properties,
    }))
}

/// The records of a pull's body, one after the other. Ends after the first error, and at a blank.
pub fn iter(mut buf: &[u8], check: Check) -> impl Iterator<Item = Result<Record<'_>, RecordError>> {
    std::iter::from_fn(move || {
        if buf.is_empty() {
            return None;
        }
        match parse(buf, check) {
            Ok(Entry::Record(r)) => {
                buf = &buf[r.total_size as usize..];
                Some(Ok(r))
            }
            Ok(Entry::Blank { .. }) => {
                buf = &[];
                None
            }
            Err(e) => {
                buf = &[];
                Some(Err(e))
            }
        }
    })
}

/// A record before the log has given it its offsets and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordDraft<'a> {
    /// At most [`MAX_TOPIC`] bytes.
    pub topic: &'a str,
    /// Queue.
    pub queue_id: i32,
    /// The user's flag.
    pub flag: i32,
    /// Bits of [`crate::sysflag`]; those of the hosts are set by encoding.
    pub sys_flag: i32,
    /// Milliseconds since 1970.
    pub born_timestamp: i64,
    /// The producer; an IPv4 address in IPv6 form becomes 4 bytes.
    pub born_host: SocketAddr,
    /// The broker; likewise.
    pub store_host: SocketAddr,
    /// How often it was sent back.
    pub reconsume_times: i32,
    /// Physical offset of the half message, of a decided transaction.
    pub prepared_transaction_offset: i64,
    /// The body as it is to be stored.
    pub body: &'a [u8],
    /// At most [`MAX_PROPERTIES`] bytes.
    pub properties: &'a [u8],
}

impl RecordDraft<'_> {
    /// Bytes of the encoded record.
    pub fn encoded_len(&self) -> usize {
        let v6 = |host: SocketAddr| if host.ip().to_canonical().is_ipv6() { 12 } else { 0 };
        FIXED_LEN
            + v6(self.born_host)
            + v6(self.store_host)
            + self.body.len()
            + self.topic.len()
            + self.properties.len()
    }

    /// Appends the record; queue offset, physical offset and store timestamp are 0, see [`patch`].
    ///
    /// Whoever stores must have checked the lengths of topic and properties: what is beyond the limits is cut here.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let topic = &self.topic.as_bytes()[..self.topic.len().min(MAX_TOPIC)];
        let properties = &self.properties[..self.properties.len().min(MAX_PROPERTIES)];
        let (born, store) = (
            self.born_host.ip().to_canonical(),
            self.store_host.ip().to_canonical(),
        );
        let mut sys_flag = self.sys_flag & !(sysflag::BORN_HOST_V6 | sysflag::STORE_HOST_V6);
        if born.is_ipv6() {
            sys_flag |= sysflag::BORN_HOST_V6;
        }
        if store.is_ipv6() {
            sys_flag |= sysflag::STORE_HOST_V6;
        }
        let start = out.len();
        out.reserve(self.encoded_len());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&MESSAGE_MAGIC.to_be_bytes());
        out.extend_from_slice(&crc31(self.body).to_be_bytes());
        out.extend_from_slice(&self.queue_id.to_be_bytes());
        out.extend_from_slice(&self.flag.to_be_bytes());
        out.extend_from_slice(&[0; 16]);
        out.extend_from_slice(&sys_flag.to_be_bytes());
        out.extend_from_slice(&self.born_timestamp.to_be_bytes());
        put_host(out, born, self.born_host.port());
        out.extend_from_slice(&[0; 8]);
        put_host(out, store, self.store_host.port());
        out.extend_from_slice(&self.reconsume_times.to_be_bytes());
        out.extend_from_slice(&self.prepared_transaction_offset.to_be_bytes());
        out.extend_from_slice(&(self.body.len() as i32).to_be_bytes());
        out.extend_from_slice(self.body);
        out.push(topic.len() as u8);
        out.extend_from_slice(topic);
        out.extend_from_slice(&(properties.len() as i16).to_be_bytes());
        out.extend_from_slice(properties);
        let size = (out.len() - start) as i32;
        out[start..start + 4].copy_from_slice(&size.to_be_bytes());
    }
}

fn put_host(out: &mut Vec<u8>, ip: IpAddr, port: u16) {
    match ip {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
    }
    out.extend_from_slice(&i32::from(port).to_be_bytes());
}

/// The header of a blank that fills `size` bytes.
pub fn blank(size: i32) -> [u8; BLANK_LEN] {
    let mut head = [0; BLANK_LEN];
    head[..4].copy_from_slice(&size.to_be_bytes());
    head[4..].copy_from_slice(&BLANK_MAGIC.to_be_bytes());
    head
}

/// Sets fields of an encoded record. A slice too short for the field is left as it is.
pub mod patch {
    use super::at;

    fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
        if let Some(place) = record.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// Sets the queue id.
    pub fn queue_id(record: &mut [u8], v: i32) {
        put(record, at::QUEUE_ID, &v.to_be_bytes());
    }

    /// Sets the queue offset.
    pub fn queue_offset(record: &mut [u8], v: i64) {
        put(record, at::QUEUE_OFFSET, &v.to_be_bytes());
    }

    /// Sets the physical offset.
    pub fn physical_offset(record: &mut [u8], v: i64) {
        put(record, at::PHYSICAL_OFFSET, &v.to_be_bytes());
    }

    /// Sets the store timestamp, milliseconds since 1970.
    pub fn store_timestamp(record: &mut [u8], v: i64) {
        let Some(flag) = record.get(at::SYS_FLAG..).and_then(|b| b.first_chunk::<4>()) else {
            return;
        };
        let at = at::store_timestamp(i32::from_be_bytes(*flag));
        put(record, at, &v.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
