//! Send (10, 310, 320), send reply (324, 325) and push reply (326).
//!
//! The same fields go under two sets of names: Java's field names (10 and 324) and single letters (310, 320 and 325),
//! which save space. [`SendMessage`] picks by the command's code.

use super::{DecodeHeader, EncodeHeader, Field, HeaderError, headers};
use crate::code::request;
use crate::ext::Ext;

/// Requests 10, 310, 320, 324 and 325.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendMessage<'a> {
    /// `producerGroup`, `a`.
    pub producer_group: &'a str,
    /// `topic`, `b`.
    pub topic: &'a str,
    /// `defaultTopic`, `c`: the topic whose settings a new topic inherits, normally `TBW102`.
    pub default_topic: &'a str,
    /// `defaultTopicQueueNums`, `d`: queues of a new topic.
    pub default_topic_queue_nums: i32,
    /// `queueId`, `e`; below 0 the broker chooses.
    pub queue_id: i32,
    /// `sysFlag`, `f`: bits of [`crate::sysflag`].
    pub sys_flag: i32,
    /// `bornTimestamp`, `g`: milliseconds since 1970.
    pub born_timestamp: i64,
    /// `flag`, `h`: free for the user.
    pub flag: i32,
    /// `properties`, `i`: see [`crate::properties`].
    pub properties: &'a str,
    /// `reconsumeTimes`, `j`, default 0.
    pub reconsume_times: i32,
    /// `unitMode`, `k`, default false.
    pub unit_mode: bool,
    /// `maxReconsumeTimes`, `l`.
    pub max_reconsume_times: Option<i32>,
    /// `batch`, `m`, default false: the body is a batch. See [`crate::batch`].
    pub batch: bool,
}

/// Names in the order of the fields, long and short.
const LONG: [&str; 13] = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
];
const SHORT: [&str; 13] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"];

fn uses_letters(code: i32) -> bool {
    matches!(
        code,
        request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE | request::SEND_REPLY_MESSAGE_V2
    )
}

impl<'a> SendMessage<'a> {
    fn from_values(names: &[&'static str; 13], v: [Option<&'a str>; 13]) -> Result<Self, HeaderError> {
        Ok(Self {
            producer_group: Field::read(names[0], v[0])?,
            topic: Field::read(names[1], v[1])?,
            default_topic: Field::read(names[2], v[2])?,
            default_topic_queue_nums: Field::read(names[3], v[3])?,
            queue_id: Field::read(names[4], v[4])?,
            sys_flag: Field::read(names[5], v[5])?,
            born_timestamp: Field::read(names[6], v[6])?,
            flag: Field::read(names[7], v[7])?,
            properties: v[8].unwrap_or(""),
            reconsume_times: <Option<i32>>::read(names[9], v[9])?.unwrap_or(0),
            unit_mode: <Option<bool>>::read(names[10], v[10])?.unwrap_or(false),
            max_reconsume_times: Field::read(names[11], v[11])?,
            batch: <Option<bool>>::read(names[12], v[12])?.unwrap_or(false),
        })
    }
}

impl<'a> DecodeHeader<'a> for SendMessage<'a> {
    fn decode(code: i32, ext: &'a Ext) -> Result<Self, HeaderError> {
        let mut values = [None; 13];
        if uses_letters(code) {
            for (key, value) in ext.iter() {
                if let [letter @ b'a'..=b'm'] = key.as_bytes() {
                    values[usize::from(letter - b'a')] = Some(value);
                }
            }
            return Self::from_values(&SHORT, values);
        }
        for (key, value) in ext.iter() {
            if let Some(i) = LONG.iter().position(|name| *name == key) {
                values[i] = Some(value);
            }
        }
        Self::from_values(&LONG, values)
    }
}

impl EncodeHeader for SendMessage<'_> {
    fn encode(&self, code: i32, ext: &mut Ext) {
        let names = if uses_letters(code) { &SHORT } else { &LONG };
        self.producer_group.write(names[0], ext);
        self.topic.write(names[1], ext);
        self.default_topic.write(names[2], ext);
        self.default_topic_queue_nums.write(names[3], ext);
        self.queue_id.write(names[4], ext);
        self.sys_flag.write(names[5], ext);
        self.born_timestamp.write(names[6], ext);
        self.flag.write(names[7], ext);
        self.properties.write(names[8], ext);
        self.reconsume_times.write(names[9], ext);
        self.unit_mode.write(names[10], ext);
        self.max_reconsume_times.write(names[11], ext);
        self.batch.write(names[12], ext);
    }
}

headers! {
    /// Response to the sends; codes 0, 10, 11 and 12 must carry it.
    pub struct SendMessageResponse<'a> {
        /// Offset id; of a batch all ids joined by commas.
        msg_id: &'a str => "msgId",
        queue_id: i32 => "queueId",
        /// Queue offset; of a batch the first one.
        queue_offset: i64 => "queueOffset",
        transaction_id: Option<&'a str> => "transactionId",
        msg_region: Option<&'a str> => "MSG_REGION",
        trace_on: Option<bool> => "TRACE_ON",
    }

    /// Request 326, from broker to the client that waits for a reply.
    pub struct PushReplyMessage<'a> {
        producer_group: &'a str => "producerGroup",
        topic: &'a str => "topic",
        default_topic: &'a str => "defaultTopic",
        default_topic_queue_nums: i32 => "defaultTopicQueueNums",
        queue_id: i32 => "queueId",
        sys_flag: i32 => "sysFlag",
        born_timestamp: i64 => "bornTimestamp",
        flag: i32 => "flag",
        properties: &'a str => "properties" = "",
        reconsume_times: i32 => "reconsumeTimes" = 0,
        unit_mode: bool => "unitMode" = false,
        /// `/ip:port`, with the slash.
        born_host: &'a str => "bornHost",
        /// `/ip:port`, with the slash.
        store_host: &'a str => "storeHost",
        /// Milliseconds since 1970.
        store_timestamp: i64 => "storeTimestamp",
    }
}
