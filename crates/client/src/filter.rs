//! What a consumer wants of a topic: everything, some tags, or what an SQL92 expression over properties selects.

use ferromq_protocol::body::SubscriptionData;

/// A choice among a topic's messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Filter {
    /// Everything. The default.
    #[default]
    All,
    /// Messages with one of these tags.
    Tags(Vec<String>),
    /// Messages whose properties satisfy an SQL92 expression; the broker must have `enablePropertyFilter`.
    Sql(String),
}

impl Filter {
    /// Tags joined by `||`; `*` or nothing wants everything. Java's `subscribe(topic, "A || B")`.
    pub fn tags(expression: &str) -> Self {
        let tags: Vec<String> = expression
            .split("||")
            .map(str::trim)
            .filter(|tag| !tag.is_empty())
            .map(str::to_owned)
            .collect();
        if tags.is_empty() || tags.iter().any(|tag| tag == "*") {
            return Self::All;
        }
        Self::Tags(tags)
    }

    /// An SQL92 expression such as `region = 'eu' AND amount > 100`. Java's `MessageSelector.bySql`.
    pub fn sql(expression: impl Into<String>) -> Self {
        Self::Sql(expression.into())
    }

    /// The expression in the form that brokers read.
    pub fn expression(&self) -> String {
        match self {
            Self::All => "*".to_owned(),
            Self::Tags(tags) => tags.join(" || "),
            Self::Sql(expression) => expression.clone(),
        }
    }

    /// `TAG` or `SQL92`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sql(_) => "SQL92",
            _ => "TAG",
        }
    }

    /// False for a tag that is not wanted: brokers compare hashes, which different tags can share. What SQL selects is
    /// the broker's decision alone.
    pub(crate) fn accepts(&self, tag: Option<&str>) -> bool {
        match self {
            Self::Tags(tags) => tag.is_some_and(|tag| tags.iter().any(|wanted| wanted == tag)),
            _ => true,
        }
    }

    /// As a heartbeat tells it. The version grows with each change.
    pub(crate) fn subscription(&self, topic: &str, version: i64) -> SubscriptionData {
        let data = match self {
            Self::Sql(expression) => SubscriptionData {
                topic: topic.to_owned(),
                sub_string: expression.clone(),
                expression_type: Some(self.kind().to_owned()),
                ..SubscriptionData::default()
            },
            _ => SubscriptionData::by_tags(topic, &self.expression()),
        };
        SubscriptionData {
            sub_version: version,
            ..data
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_java_reads_them() {
        assert_eq!(Filter::tags(" "), Filter::All);
        assert_eq!(Filter::tags("*"), Filter::All);
        let filter = Filter::tags("A||  B || ");
        assert_eq!(filter, Filter::Tags(vec!["A".into(), "B".into()]));
        assert_eq!(filter.expression(), "A || B");
        assert!(filter.accepts(Some("B")) && !filter.accepts(Some("C")) && !filter.accepts(None));
        let data = filter.subscription("T", 7);
        assert_eq!(
            (data.sub_version, data.tags_set.len(), data.code_set),
            (7, 2, vec![65, 66])
        );
        let sql = Filter::sql("a > 1").subscription("T", 1);
        assert_eq!(sql.expression_type.as_deref(), Some("SQL92"));
        assert!(sql.code_set.is_empty() && Filter::sql("x").accepts(None));
    }
}
