//! A message's properties as one text.
//!
//! ```text
//! name 0x01 value 0x02 name 0x01 value …
//! ```
//!
//! A trailing 0x02 is optional: Java writes none, Go and old clients do. A pair counts only if name and value have at
//! least one character; the first 0x01 splits, later ones belong to the value; of equal names the last one counts.
//! Nothing is escaped. What is written here has no trailing 0x02, and names and values keep clear of the separators.

/// Ends a name.
pub const NAME_END: char = '\u{1}';
/// Separates pairs.
pub const PAIR_END: char = '\u{2}';

/// The longest properties text that a record can hold, in bytes.
pub const MAX_LEN: usize = 32767;

/// Reserved names.
pub mod names {
    /// Index keys, separated by blanks.
    pub const KEYS: &str = "KEYS";
    /// The tag.
    pub const TAGS: &str = "TAGS";
    /// `false`: the sender does not wait for the store.
    pub const WAIT: &str = "WAIT";
    /// The delay level, 1 to 18.
    pub const DELAY: &str = "DELAY";
    /// The topic from which a message was sent back.
    pub const RETRY_TOPIC: &str = "RETRY_TOPIC";
    /// The id of the message that was sent back first.
    pub const ORIGIN_MESSAGE_ID: &str = "ORIGIN_MESSAGE_ID";
    /// How often the message was sent back.
    pub const RECONSUME_TIME: &str = "RECONSUME_TIME";
    /// How often it may be sent back.
    pub const MAX_RECONSUME_TIMES: &str = "MAX_RECONSUME_TIMES";
    /// The topic that a delayed or half message is for.
    pub const REAL_TOPIC: &str = "REAL_TOPIC";
    /// The queue that a delayed or half message is for.
    pub const REAL_QID: &str = "REAL_QID";
    /// `true` marks a half message.
    pub const TRAN_MSG: &str = "TRAN_MSG";
    /// The producer's group, of transactions.
    pub const PGROUP: &str = "PGROUP";
    /// Queue offset of the half message.
    pub const TRAN_PREPARED_QUEUE_OFFSET: &str = "TRAN_PREPARED_QUEUE_OFFSET";
    /// How often the producer was asked.
    pub const TRANSACTION_CHECK_TIMES: &str = "TRANSACTION_CHECK_TIMES";
    /// Seconds in which the producer is not asked.
    pub const CHECK_IMMUNITY_TIME_IN_SECONDS: &str = "CHECK_IMMUNITY_TIME_IN_SECONDS";
    /// The id that the producer made.
    pub const UNIQ_KEY: &str = "UNIQ_KEY";
    /// Added by clients after a pull.
    pub const MIN_OFFSET: &str = "MIN_OFFSET";
    /// Added by clients after a pull.
    pub const MAX_OFFSET: &str = "MAX_OFFSET";
    /// Added by clients when they begin to consume.
    pub const CONSUME_START_TIME: &str = "CONSUME_START_TIME";
    /// The broker's region.
    pub const MSG_REGION: &str = "MSG_REGION";
    /// Whether the broker wants traces.
    pub const TRACE_ON: &str = "TRACE_ON";
    /// The broker's cluster.
    pub const CLUSTER: &str = "CLUSTER";
    /// Joins a reply to its request.
    pub const CORRELATION_ID: &str = "CORRELATION_ID";
    /// The client that waits for the reply.
    pub const REPLY_TO_CLIENT: &str = "REPLY_TO_CLIENT";
    /// How long the requester waits, in milliseconds.
    pub const TTL: &str = "TTL";
    /// When a reply arrived at the broker.
    pub const ARRIVE_TIME: &str = "ARRIVE_TIME";
    /// When a reply was pushed to the client.
    pub const PUSH_REPLY_TIME: &str = "PUSH_REPLY_TIME";
    /// `reply` marks a reply.
    pub const MSG_TYPE: &str = "MSG_TYPE";
    /// The namespace.
    pub const INSTANCE_ID: &str = "INSTANCE_ID";
    /// Obsolete.
    pub const BUYER_ID: &str = "BUYER_ID";
    /// Obsolete.
    pub const TRANSFER_FLAG: &str = "TRANSFER_FLAG";
    /// Obsolete.
    pub const CORRECTION_FLAG: &str = "CORRECTION_FLAG";
    /// Obsolete.
    pub const MQ2_FLAG: &str = "MQ2_FLAG";
    /// Light queues to dispatch to, joined by commas.
    pub const INNER_MULTI_DISPATCH: &str = "INNER_MULTI_DISPATCH";
    /// Offsets in these queues, joined by commas.
    pub const INNER_MULTI_QUEUE_OFFSET: &str = "INNER_MULTI_QUEUE_OFFSET";
}

/// The value of a property.
pub fn get<'a>(props: &'a str, name: &str) -> Option<&'a str> {
    iter(props).rfind(|(n, _)| *n == name).map(|(_, v)| v)
}

/// As [`get`], on the bytes of a record; gives `None` also for a value that is not UTF-8.
pub fn get_bytes<'a>(props: &'a [u8], name: &str) -> Option<&'a str> {
    let pairs = props.split(|b| *b == 2).filter_map(|pair| {
        let at = pair.iter().position(|b| *b == 1)?;
        Some((&pair[..at], &pair[at + 1..]))
    });
    let mut named = pairs.filter(|(n, v)| *n == name.as_bytes() && !n.is_empty() && !v.is_empty());
    let (_, value) = named.next_back()?;
    std::str::from_utf8(value).ok()
}

/// All pairs that count, in order; a name may come twice.
pub fn iter(props: &str) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    props
        .split(PAIR_END)
        .filter_map(|pair| pair.split_once(NAME_END))
        .filter(|(n, v)| !n.is_empty() && !v.is_empty())
}

/// Appends raw properties to others with exactly one separator between them.
pub fn join(out: &mut Vec<u8>, more: &[u8]) {
    let more = more.strip_prefix(b"\x02").unwrap_or(more);
    if more.is_empty() {
        return;
    }
    if !matches!(out.last(), None | Some(2)) {
        out.push(2);
    }
    out.extend_from_slice(more);
}

/// A text without the named properties and without a trailing separator; borrows if nothing has to go.
pub fn without<'a>(props: &'a str, remove: &[&str]) -> std::borrow::Cow<'a, str> {
    if iter(props).any(|(n, _)| remove.contains(&n)) {
        let mut b = Builder::new();
        for (n, v) in iter(props).filter(|(n, _)| !remove.contains(n)) {
            b.push(n, v);
        }
        return b.build().into();
    }
    props.strip_suffix(PAIR_END).unwrap_or(props).into()
}

/// Makes a properties text.
///
/// Pairs keep the order of their first setting. A pair with an empty name or value is not written, as no reader would
/// see it. Separators inside a name, and 0x02 inside a value, would break the text and are left out of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Builder {
    pairs: Vec<(String, String)>,
}

impl Builder {
    /// No properties.
    pub fn new() -> Self {
        Self::default()
    }

    /// The properties of a text; of equal names the last one's value.
    pub fn parse(props: &str) -> Self {
        let mut b = Self::new();
        for (n, v) in iter(props) {
            b.put(n, v);
        }
        b
    }

    /// Sets a property in place.
    pub fn put(&mut self, name: &str, value: impl Into<String>) {
        match self.pairs.iter_mut().find(|(n, _)| n == name) {
            Some((_, v)) => *v = value.into(),
            None => self.pairs.push((name.to_owned(), value.into())),
        }
    }

    fn push(&mut self, name: &str, value: &str) {
        self.pairs.push((name.to_owned(), value.to_owned()));
    }

    /// Sets a property; for chains.
    #[must_use]
    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.put(name, value);
        self
    }

    /// Takes a property out and gives its value.
    pub fn remove(&mut self, name: &str) -> Option<String> {
        let at = self.pairs.iter().position(|(n, _)| n == name)?;
        Some(self.pairs.remove(at).1)
    }

    /// The value of a property.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v.as_str())
    }

    /// All pairs in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(n, v)| (n.as_str(), v.as_str()))
    }

    /// The text, without a trailing separator.
    pub fn build(&self) -> String {
        let mut out = String::with_capacity(self.pairs.iter().map(|(n, v)| n.len() + v.len() + 2).sum());
        for (name, value) in self.iter() {
            let before = out.len();
            if before > 0 {
                out.push(PAIR_END);
            }
            let name_at = out.len();
            out.extend(name.chars().filter(|c| !matches!(*c, NAME_END | PAIR_END)));
            let value_at = out.len();
            out.push(NAME_END);
            out.extend(value.chars().filter(|c| *c != PAIR_END));
            if value_at == name_at || out.len() == value_at + 1 {
                out.truncate(before);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests;
