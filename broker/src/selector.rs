//! Which messages a subscription wants: by tags, or by an SQL92 expression over the properties.

use std::borrow::Cow;
use std::sync::Arc;

use ferromq_filter::Sql92;
use ferromq_filter::tag::TagSet;
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::{properties, record};
use ferromq_store::{Arrival, MessageFilter};

use crate::filter_table::{Bits, FilterTable};

/// A compiled subscription expression.
#[derive(Debug, Clone)]
pub(crate) enum Selector {
    /// By the hash of the tag; clients compare the text itself.
    Tags(Arc<TagSet>),
    /// By properties.
    Sql(Arc<Sql92>),
}

/// What the type of an expression says; absent or empty means TAG.
pub(crate) fn is_tag_type(expression_type: Option<&str>) -> bool {
    expression_type.is_none_or(|t| t.is_empty() || t == "TAG")
}

impl Selector {
    /// Compiles an expression; the error says what is wrong with it.
    pub(crate) fn compile(expression_type: Option<&str>, text: &str) -> Result<Self, String> {
        if is_tag_type(expression_type) {
            return Ok(Self::Tags(Arc::new(TagSet::parse(text))));
        }
        match expression_type {
            Some("SQL92") => Sql92::parse(text)
                .map(|sql| Self::Sql(Arc::new(sql)))
                .map_err(|error| error.to_string()),
            other => Err(format!(
                "the expression type {other:?} is unknown; use TAG or SQL92"
            )),
        }
    }

    /// Whether a message with this tag code may be wanted.
    pub(crate) fn may_want(&self, tags_code: i64) -> bool {
        match self {
            Self::Tags(tags) => tags.matches_code(tags_code),
            Self::Sql(_) => true,
        }
    }
}

/// What a pull wants of a queue: its selector, and what is known beside that.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) selector: Selector,
    /// The group's bits, for an expression that came by heartbeat.
    pub(crate) bits: Option<Bits>,
    /// For a retry topic (`filterSupportRetry`): the table in which the expression of a message's own topic is found, and the
    /// group.
    pub(crate) retry: Option<(Arc<FilterTable>, String)>,
}

impl Wanted {
    /// Whether a message that has just arrived may be wanted.
    pub(crate) fn may_want(&self, arrival: &Arrival<'_>) -> bool {
        match &self.selector {
            Selector::Tags(tags) => tags.matches_code(arrival.tags_code),
            Selector::Sql(sql) => {
                sql.eval(&|name: &str| properties::get(arrival.properties, name).map(Cow::Borrowed))
            }
        }
    }
}

impl MessageFilter for Wanted {
    fn by_queue(&self, tags_code: i64) -> bool {
        self.selector.may_want(tags_code)
    }

    fn by_filter_bits(&self, store_timestamp: i64, map: &[u8]) -> bool {
        self.bits
            .as_ref()
            .is_none_or(|bits| bits.may_want(store_timestamp, map))
    }

    fn by_record(&self, bytes: &[u8]) -> bool {
        if self.retry.is_none() && !matches!(self.selector, Selector::Sql(_)) {
            return true;
        }
        let Ok(record::Entry::Record(found)) = record::parse(bytes, record::Check::None) else {
            return false;
        };
        let own = match (&self.selector, &self.retry) {
            (Selector::Sql(sql), _) => Some(sql.clone()),
            (_, Some((table, group))) => found
                .property(prop::RETRY_TOPIC)
                .and_then(|topic| table.expression_of(group, topic)),
            _ => None,
        };
        own.is_none_or(|sql| sql.eval(&|name: &str| found.property(name).map(Cow::Borrowed)))
    }
}
