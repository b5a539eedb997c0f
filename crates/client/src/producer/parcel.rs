//! Messages made ready to be sent: checked, named, compressed, joined.

use bytes::Bytes;
use ferromq_protocol::batch::{self, BatchMessage};
use ferromq_protocol::code::request;
use ferromq_protocol::names::topics;
use ferromq_protocol::properties::names;
use ferromq_protocol::{compress, sysflag};
use tracing::Span;

use super::{Producer, reply};
use crate::error::Result;
use crate::message::{Message, invalid};
use crate::spans;
use crate::trace::Sort;

/// A message or batch made ready: everything but the queue.
pub(super) struct Parcel {
    pub(super) topic: String,
    pub(super) code: i32,
    pub(super) properties: String,
    pub(super) sys_flag: i32,
    pub(super) flag: i32,
    pub(super) body: Bytes,
    pub(super) message_ids: Vec<String>,
    pub(super) born: i64,
    pub(super) reconsume_times: i32,
    pub(super) max_reconsume_times: Option<i32>,
    pub(super) tags: Option<String>,
    pub(super) keys: Option<String>,
    pub(super) sort: Sort,
    /// Around the whole send.
    pub(super) span: Span,
}

/// What a batch adds to a message's body and properties, unique id included, at most.
const BESIDE: usize = 128;

/// Cuts a list into batches of at most `most` bytes, in order. A message too large for any batch is one of its own,
/// and refused when it is sent.
pub(super) fn split(messages: Vec<Message>, most: usize) -> Vec<Vec<Message>> {
    let mut batches: Vec<Vec<Message>> = Vec::new();
    let mut size = 0;
    for message in messages {
        let properties: usize = message.properties().map(|(n, v)| n.len() + v.len() + 2).sum();
        let own = message.body.len() + properties + BESIDE;
        match batches.last_mut() {
            Some(batch) if size + own <= most => batch.push(message),
            _ => {
                batches.push(vec![message]);
                size = 0;
            }
        }
        size += own;
    }
    batches
}

impl Producer {
    pub(super) fn pack(&self, mut message: Message) -> Result<Parcel> {
        let config = &self.inner.config;
        message.topic = self.inner.client.inner().namespace.topic(&message.topic);
        message.check(config.max_message_size)?;
        let id = self.identify(&mut message);
        let span = self.span(&message.topic, 1);
        span.record("messaging.message.id", &id);
        #[cfg(feature = "otel")]
        crate::otel::stamp(&span, &mut message);
        let mut sys_flag = 0;
        let mut body = message.body.clone();
        if config.compress_from.is_some_and(|from| body.len() >= from)
            && let Ok(smaller) = compress::compress(config.compression, &body)
            && smaller.len() < body.len()
        {
            body = smaller.into();
            sys_flag = sysflag::with_compression(sys_flag, config.compression);
        }
        let reply = message.get(names::MSG_TYPE) == Some(reply::REPLY);
        let delayed = message.get(names::DELAY).is_some();
        Ok(Parcel {
            code: if reply {
                request::SEND_REPLY_MESSAGE_V2
            } else {
                request::SEND_MESSAGE_V2
            },
            tags: message.get(names::TAGS).map(str::to_owned),
            keys: message.get(names::KEYS).map(str::to_owned),
            sort: if delayed { Sort::Delay } else { Sort::Normal },
            reconsume_times: 0,
            max_reconsume_times: None,
            properties: message.joined_properties(),
            flag: message.flag,
            topic: message.topic,
            sys_flag,
            body,
            message_ids: vec![id],
            born: (self.inner.client.inner().wall_clock)(),
            span,
        })
    }

    pub(super) fn pack_batch(&self, mut messages: Vec<Message>) -> Result<Parcel> {
        let topic = match messages.first() {
            Some(first) => self.inner.client.inner().namespace.topic(&first.topic),
            None => return Err(invalid("the batch is empty")),
        };
        if topic.starts_with(topics::RETRY_PREFIX) {
            return Err(invalid("messages to a retry topic cannot be sent in a batch"));
        }
        let wait = messages[0].get(names::WAIT).map(str::to_owned);
        let span = self.span(&topic, messages.len());
        let mut ids = Vec::with_capacity(messages.len());
        let mut body = Vec::new();
        for message in &mut messages {
            message.topic = self.inner.client.inner().namespace.topic(&message.topic);
            message.check(self.inner.config.max_message_size)?;
            if message.topic != topic {
                return Err(invalid("the messages of a batch must have the same topic"));
            }
            if message.get(names::DELAY).is_some() {
                return Err(invalid("a delayed message cannot be sent in a batch"));
            }
            if message.get(names::WAIT) != wait.as_deref() {
                return Err(invalid("the messages of a batch must agree on WAIT"));
            }
            ids.push(self.identify(message));
            #[cfg(feature = "otel")]
            crate::otel::stamp(&span, message);
            let properties = message.joined_properties();
            let (flag, properties) = (message.flag, properties.as_bytes());
            batch::encode(
                [BatchMessage {
                    flag,
                    body: &message.body,
                    properties,
                }],
                &mut body,
            );
        }
        if body.len() > self.inner.config.max_message_size {
            let limit = self.inner.config.max_message_size;
            let reason = format!(
                "the batch takes {} bytes, the limit is {limit}; send fewer at a time",
                body.len()
            );
            return Err(invalid(reason));
        }
        let properties = wait
            .map(|value| format!("{}\u{1}{value}", names::WAIT))
            .unwrap_or_default();
        Ok(Parcel {
            code: request::SEND_BATCH_MESSAGE,
            tags: messages[0].get(names::TAGS).map(str::to_owned),
            keys: messages[0].get(names::KEYS).map(str::to_owned),
            sort: Sort::Normal,
            reconsume_times: 0,
            max_reconsume_times: None,
            topic,
            properties,
            sys_flag: 0,
            flag: 0,
            body: body.into(),
            message_ids: ids,
            born: (self.inner.client.inner().wall_clock)(),
            span,
        })
    }

    /// The client's own messages have no span: nobody follows them.
    fn span(&self, topic: &str, count: usize) -> Span {
        if !self.inner.public {
            return Span::none();
        }
        let client = self.inner.client.inner();
        let topic = client.namespace.strip(topic);
        spans::send(&topic, &self.inner.config.group, &client.id, count)
    }

    /// Gives the message its unique id, unless the caller did.
    fn identify(&self, message: &mut Message) -> String {
        if let Some(id) = message.get(names::UNIQ_KEY) {
            return id.to_owned();
        }
        let id = self.inner.ids.next();
        message.set(names::UNIQ_KEY, id.clone());
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_cut_where_a_batch_is_full() {
        let messages: Vec<_> = (0..10).map(|n| Message::new("T", vec![n; 372])).collect();
        let batches = split(messages.clone(), 1500);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3, 1]);
        assert_eq!(batches.concat(), messages);
        assert_eq!(
            split(messages, 10).len(),
            10,
            "too large ones are left to be refused"
        );
        assert!(split(Vec::new(), 10).is_empty());
    }
}
