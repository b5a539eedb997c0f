//! A message to send, and the checks it must pass before it leaves.
//!
//! Limits are the broker's: topic up to 127 of `%|a-zA-Z0-9_-`, body 1 byte up to the producer's
//! `max_message_size`, properties up to 32767 bytes once joined. Names and values of properties may not
//! hold the separators 0x01 and 0x02, nor be empty: the stored form cannot carry them.

use bytes::Bytes;
use ferromq_protocol::names::validate_topic;
use ferromq_protocol::properties::{MAX_LEN, NAME_END, PAIR_END, names};

use crate::error::{ClientError, Result};

/// Room left in the properties for what the client and broker add (id, cluster, region).
const RESERVED: usize = 512;

/// A message to send.
///
/// ```
/// use ferromq_client::Message;
/// let message = Message::new("orders", "body").tag("paid").key("order-17").property("region", "eu");
/// assert_eq!(message.topic, "orders");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The topic to send to.
    pub topic: String,
    /// The content.
    pub body: Bytes,
    /// A number for the application's own use, stored with the message. Default 0.
    pub flag: i32,
    properties: Vec<(String, String)>,
}

impl Message {
    /// A message without tag, keys or properties.
    pub fn new(topic: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            topic: topic.into(),
            body: body.into(),
            flag: 0,
            properties: Vec::new(),
        }
    }

    /// Sets the tag that consumers filter by.
    #[must_use]
    pub fn tag(self, tag: impl Into<String>) -> Self {
        self.property(names::TAGS, tag)
    }

    /// Adds a key that the message can be looked up by. Keys may not hold blanks.
    #[must_use]
    pub fn key(self, key: impl AsRef<str>) -> Self {
        let keys = match self.get(names::KEYS) {
            Some(have) => format!("{have} {}", key.as_ref()),
            None => key.as_ref().to_owned(),
        };
        self.property(names::KEYS, keys)
    }

    /// Delivers the message after the broker's delay level 1–18 (1 s … 2 h by default) instead of at once.
    #[must_use]
    pub fn delay_level(self, level: u8) -> Self {
        self.property(names::DELAY, level.to_string())
    }

    /// Sets a property; a later value replaces an earlier one.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.set(name, value);
        self
    }

    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let (name, value) = (name.into(), value.into());
        match self.properties.iter_mut().find(|(have, _)| *have == name) {
            Some((_, slot)) => *slot = value,
            None => self.properties.push((name, value)),
        }
    }

    pub(crate) fn remove(&mut self, name: &str) {
        self.properties.retain(|(have, _)| have != name);
    }

    /// The value of a property.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.properties
            .iter()
            .find(|(have, _)| have == name)
            .map(|(_, value)| value.as_str())
    }

    /// All properties in the order they were set.
    pub fn properties(&self) -> impl Iterator<Item = (&str, &str)> {
        self.properties
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The properties in stored form: `name 0x01 value 0x02 …`, without a trailing separator.
    pub(crate) fn joined_properties(&self) -> String {
        let size = self.properties.iter().map(|(n, v)| n.len() + v.len() + 2).sum();
        let mut text = String::with_capacity(size);
        for (name, value) in &self.properties {
            if !text.is_empty() {
                text.push(PAIR_END);
            }
            text.push_str(name);
            text.push(NAME_END);
            text.push_str(value);
        }
        text
    }

    /// Checks everything that can be checked without a broker. `max_size` is in bytes.
    pub(crate) fn check(&self, max_size: usize) -> Result<()> {
        validate_topic(&self.topic).map_err(|error| invalid(error.to_string()))?;
        if self.body.is_empty() {
            return Err(invalid("its body is empty; a message needs at least one byte"));
        }
        if self.body.len() > max_size {
            let reason = format!("its body has {} bytes, the limit is {max_size}", self.body.len());
            return Err(invalid(reason));
        }
        let mut size = 0;
        for (name, value) in &self.properties {
            if name.is_empty() || value.is_empty() {
                return Err(invalid(format!(
                    "property {name:?} is empty; leave it out instead"
                )));
            }
            if [name, value]
                .iter()
                .any(|text| text.contains([NAME_END, PAIR_END]))
            {
                return Err(invalid(format!(
                    "property {name:?} holds 0x01 or 0x02, which separate properties"
                )));
            }
            size += name.len() + value.len() + 2;
        }
        if size > MAX_LEN - RESERVED {
            let limit = MAX_LEN - RESERVED;
            return Err(invalid(format!(
                "its properties take {size} bytes, the limit is {limit}"
            )));
        }
        Ok(())
    }
}

/// Whether these properties can be added so that what the client and the broker add still fits.
#[cfg(feature = "otel")]
pub(crate) fn has_room(message: &Message, more: &std::collections::BTreeMap<String, String>) -> bool {
    let size = |name: &str, value: &str| name.len() + value.len() + 2;
    let have: usize = message.properties().map(|(name, value)| size(name, value)).sum();
    let added: usize = more.iter().map(|(name, value)| size(name, value)).sum();
    have + added <= MAX_LEN - RESERVED
}

pub(crate) fn invalid(reason: impl Into<String>) -> ClientError {
    ClientError::InvalidMessage {
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_properties_without_a_trailing_separator() {
        let message = Message::new("T", "x")
            .tag("A")
            .key("k1")
            .key("k2")
            .property("p", "1")
            .property("p", "2");
        assert_eq!(
            message.joined_properties(),
            "TAGS\u{1}A\u{2}KEYS\u{1}k1 k2\u{2}p\u{1}2"
        );
    }

    #[test]
    fn refuses_what_a_record_cannot_carry() {
        let fine = Message::new("T", "x");
        assert!(fine.check(1).is_ok());
        let bad = [
            Message::new("", "x"),
            Message::new("a b", "x"),
            Message::new("t".repeat(128), "x"),
            Message::new("T", ""),
            Message::new("T", "xx"),
            Message::new("T", "x").property("p", ""),
            Message::new("T", "x").property("", "v"),
            Message::new("T", "x").property("p", "a\u{2}b"),
            Message::new("T", "x").property("p", "é".repeat(20_000)),
        ];
        for message in bad {
            assert!(message.check(1).is_err(), "{:?}", message.topic);
        }
    }
}
