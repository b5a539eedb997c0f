//! The body of a broker's registration (103), in its two forms.
//!
//! Plain: JSON. Compressed: a zlib stream of
//! ```text
//! i32 n | DataVersion as JSON | i32 topics | topics × (i32 n | text) | i32 n | filter servers as a JSON array
//! ```
//! where text is `name readQueues writeQueues perm filterType`, so that the system flag and `order` of a topic are lost.
//! The checksum that goes along ([`crate::crc`]) is over the bytes as sent.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use thiserror::Error;

use super::{TopicConfig, TopicConfigTable, TopicFilterType, bodies};
use crate::compress::{self, InflateError};
use crate::fastjson::{self, FastjsonError};

/// The most that a compressed body may inflate to, in bytes.
pub const MAX_INFLATED: usize = 16 * 1024 * 1024;

bodies! {
    /// Body of 103.
    pub struct RegisterBrokerBody {
        filter_server_list: Option<Vec<String>> => "filterServerList",
        topic_config_table: TopicConfigTable => "topicConfigSerializeWrapper",
    }
}

/// Why a registration's body cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegisterBodyError {
    /// A JSON part is bad.
    #[error("bad JSON in a registration: {0}")]
    Json(#[from] FastjsonError),
    /// The zlib stream is bad or too long.
    #[error("a compressed registration cannot be inflated: {0}")]
    Inflate(#[from] InflateError),
    /// A part reaches past the end.
    #[error("a compressed registration ends within {0}")]
    Short(&'static str),
    /// A topic's text has not its five parts.
    #[error(
        "a compressed registration has a bad topic entry {0:?}, expected: name readQueues writeQueues perm filterType"
    )]
    Topic(String),
}

impl RegisterBrokerBody {
    /// The body's bytes, compressed or plain.
    pub fn encode(&self, compressed: bool) -> Vec<u8> {
        if !compressed {
            return fastjson::to_vec(self);
        }
        let mut raw = Vec::new();
        put(&mut raw, &fastjson::to_vec(&self.topic_config_table.data_version));
        let topics = &self.topic_config_table.topic_config_table;
        raw.extend_from_slice(&(topics.len() as i32).to_be_bytes());
        for (name, t) in topics {
            let name = if t.topic_name.is_empty() {
                name
            } else {
                &t.topic_name
            };
            let kind = t.topic_filter_type.unwrap_or(TopicFilterType::SingleTag).name();
            let text = format!(
                "{name} {} {} {} {kind}",
                t.read_queue_nums, t.write_queue_nums, t.perm
            );
            put(&mut raw, text.as_bytes());
        }
        put(
            &mut raw,
            &fastjson::to_vec(self.filter_server_list.as_deref().unwrap_or(&[])),
        );
        let mut zlib = ZlibEncoder::new(Vec::with_capacity(raw.len() / 3), Compression::best());
        // A Vec takes everything.
        let written = zlib.write_all(&raw).and_then(|()| zlib.finish());
        written.unwrap_or_default()
    }

    /// Reads the bytes of [`RegisterBrokerBody::encode`]; an empty body is an empty table.
    pub fn decode(body: &[u8], compressed: bool) -> Result<Self, RegisterBodyError> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        if !compressed {
            return Ok(fastjson::from_slice(body)?);
        }
        let raw = compress::inflate(compress::Kind::Zlib, body, MAX_INFLATED)?;
        let mut rest = raw.as_slice();
        let mut out = Self::default();
        let table = &mut out.topic_config_table;
        table.data_version = fastjson::from_slice(take(&mut rest, "the data version")?)?;
        for _ in 0..number(&mut rest, "the number of topics")? {
            let text = take(&mut rest, "a topic")?;
            let topic = topic(text).ok_or_else(|| {
                RegisterBodyError::Topic(String::from_utf8_lossy(text).chars().take(200).collect())
            })?;
            table.topic_config_table.insert(topic.topic_name.clone(), topic);
        }
        out.filter_server_list = Some(fastjson::from_slice(take(&mut rest, "the filter servers")?)?);
        Ok(out)
    }
}

fn put(out: &mut Vec<u8>, part: &[u8]) {
    out.extend_from_slice(&(part.len() as i32).to_be_bytes());
    out.extend_from_slice(part);
}

fn number(rest: &mut &[u8], what: &'static str) -> Result<i32, RegisterBodyError> {
    let (n, tail) = rest
        .split_first_chunk::<4>()
        .ok_or(RegisterBodyError::Short(what))?;
    *rest = tail;
    Ok(i32::from_be_bytes(*n))
}

fn take<'a>(rest: &mut &'a [u8], what: &'static str) -> Result<&'a [u8], RegisterBodyError> {
    let n = usize::try_from(number(rest, what)?).map_err(|_| RegisterBodyError::Short(what))?;
    let (part, tail) = rest.split_at_checked(n).ok_or(RegisterBodyError::Short(what))?;
    *rest = tail;
    Ok(part)
}

fn topic(text: &[u8]) -> Option<TopicConfig> {
    let mut parts = std::str::from_utf8(text).ok()?.split(' ');
    let mut next = || parts.next().filter(|p| !p.is_empty());
    let name = next()?;
    let (read, write, perm) = (
        next()?.parse().ok()?,
        next()?.parse().ok()?,
        next()?.parse().ok()?,
    );
    let topic_filter_type = Some(TopicFilterType::from_name(next()?)?);
    if parts.next().is_some() {
        return None;
    }
    Some(TopicConfig {
        topic_filter_type,
        ..TopicConfig::new(name, read, write, perm)
    })
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
