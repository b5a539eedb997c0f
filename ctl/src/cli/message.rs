//! Single messages, and ranges of a topic's messages.

use clap::{Args, Subcommand};

use super::{key_value, point_in_time};

#[derive(Debug, Subcommand)]
pub(crate) enum Message {
    /// Send one message
    Send {
        topic: String,
        /// The body; '-' reads it from standard input
        body: String,
        #[command(flatten)]
        extra: MessageExtra,
    },
    /// Look a message up by the id that the broker gave it
    Get {
        /// Offset message id: 32 or 56 hexadecimal digits
        id: String,
        /// Write only the body, unchanged, to standard output
        #[arg(long)]
        body: bool,
    },
    /// Show the message at an offset of a queue
    At {
        topic: String,
        /// Name of the broker
        #[arg(short = 'b', long)]
        broker: String,
        /// Queue
        #[arg(short = 'i', long)]
        queue: i32,
        /// Offset
        offset: i64,
    },
    /// List messages of a topic as they lie in its queues; no group's offsets are changed
    Print {
        topic: String,
        #[command(flatten)]
        range: Range,
    },
    /// Show what became of a message: who sent it, who consumed it when, from the trace topic
    Trace {
        /// The message's unique id
        id: String,
        /// Topic that the traces are in
        #[arg(short = 't', long, default_value = "RMQ_SYS_TRACE_TOPIC")]
        topic: String,
    },
    /// List the messages of a topic that carry a key or a unique id
    ByKey {
        topic: String,
        key: String,
        /// At most so many messages per broker
        #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1024))]
        max: i32,
        /// The key is a unique message id
        #[arg(long)]
        unique: bool,
    },
}

/// Which messages of a topic.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Range {
    /// Only of this broker (its name)
    #[arg(short = 'b', long = "broker-name", value_name = "NAME")]
    pub(crate) broker: Option<String>,
    /// Only of this queue
    #[arg(short = 'i', long = "queue", value_name = "ID")]
    pub(crate) queue: Option<i32>,
    /// From this offset of each queue
    #[arg(long, value_name = "OFFSET", conflicts_with = "begin")]
    pub(crate) from: Option<i64>,
    /// From this time: milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS in UTC
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    pub(crate) begin: Option<i64>,
    /// Up to this time
    #[arg(long, value_name = "TIME", value_parser = point_in_time)]
    pub(crate) end: Option<i64>,
    /// Only with these tags, joined by ||
    #[arg(long, value_name = "TAGS")]
    pub(crate) tags: Option<String>,
    /// Messages of each queue
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Show the bodies as well
    #[arg(short = 'd', long)]
    pub(crate) bodies: bool,
}

/// What a message carries beside its body.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MessageExtra {
    /// Tag to filter by
    #[arg(short = 'c', long)]
    pub(crate) tag: Option<String>,
    /// Key to look it up by; may be repeated
    #[arg(short = 'k', long = "key")]
    pub(crate) keys: Vec<String>,
    /// Property; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = key_value)]
    pub(crate) properties: Vec<(String, String)>,
    /// Only to this broker (its name)
    #[arg(short = 'b', long = "broker-name", value_name = "NAME")]
    pub(crate) broker: Option<String>,
    /// Only to this queue
    #[arg(short = 'i', long = "queue", value_name = "ID")]
    pub(crate) queue: Option<i32>,
}
