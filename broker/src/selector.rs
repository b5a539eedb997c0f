//! Which messages a subscription wants: by tags, or by an SQL92 expression over the properties.

use std::borrow::Cow;
use std::sync::Arc;

use ferromq_filter::Sql92;
use ferromq_filter::tag::TagSet;
use ferromq_protocol::record;
use ferromq_store::MessageFilter;

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

impl MessageFilter for Selector {
    fn by_queue(&self, tags_code: i64) -> bool {
        self.may_want(tags_code)
    }

    fn by_record(&self, bytes: &[u8]) -> bool {
        let Self::Sql(sql) = self else { return true };
        let Ok(record::Entry::Record(found)) = record::parse(bytes, record::Check::None) else {
            return false;
        };
        sql.eval(&|name: &str| found.property(name).map(Cow::Borrowed))
    }
}
