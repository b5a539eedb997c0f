//! Heartbeats and subscriptions.

use super::{bodies, java_enum};
use crate::fastjson::optional_enum;
use crate::java_hash::string_hash;

java_enum! {
    /// How a group's consumers get their messages.
    pub enum ConsumeType {
        /// They ask when they like.
        Actively = "CONSUME_ACTIVELY",
        /// The client library pulls and calls them.
        Passively = "CONSUME_PASSIVELY",
    }

    /// Who of a group gets a message.
    pub enum MessageModel {
        /// Every member.
        Broadcasting = "BROADCASTING",
        /// One member.
        Clustering = "CLUSTERING",
    }

    /// Where a group starts that has no offset yet.
    pub enum ConsumeFromWhere {
        /// At the end.
        LastOffset = "CONSUME_FROM_LAST_OFFSET",
        /// Obsolete, as `LastOffset`.
        LastOffsetAndFromMinWhenBootFirst = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
        /// Obsolete, as `LastOffset`.
        MinOffset = "CONSUME_FROM_MIN_OFFSET",
        /// Obsolete, as `LastOffset`.
        MaxOffset = "CONSUME_FROM_MAX_OFFSET",
        /// At the beginning.
        FirstOffset = "CONSUME_FROM_FIRST_OFFSET",
        /// At a point in time.
        Timestamp = "CONSUME_FROM_TIMESTAMP",
    }
}

bodies! {
    /// Body of 34.
    pub struct HeartbeatData {
        client_id: String => "clientID",
        consumer_data_set: Vec<ConsumerData> => "consumerDataSet",
        producer_data_set: Vec<ProducerData> => "producerDataSet",
    }

    /// A group in which the client produces.
    pub struct ProducerData {
        group_name: String => "groupName",
    }

    /// A group in which the client consumes.
    pub struct ConsumerData {
        #[serde(deserialize_with = "optional_enum")]
        consume_from_where: Option<ConsumeFromWhere> => "consumeFromWhere",
        #[serde(deserialize_with = "optional_enum")]
        consume_type: Option<ConsumeType> => "consumeType",
        group_name: String => "groupName",
        #[serde(deserialize_with = "optional_enum")]
        message_model: Option<MessageModel> => "messageModel",
        subscription_data_set: Vec<SubscriptionData> => "subscriptionDataSet",
        unit_mode: bool => "unitMode",
    }

    /// What a group wants of a topic.
    pub struct SubscriptionData {
        class_filter_mode: bool => "classFilterMode",
        /// Hashes of the tags.
        code_set: Vec<i32> => "codeSet",
        /// `TAG` or `SQL92`.
        expression_type: Option<String> => "expressionType" = Some("TAG".to_owned()),
        /// The expression as the user wrote it; `*` wants everything.
        sub_string: String => "subString",
        /// Grows with each change; normally milliseconds since 1970.
        sub_version: i64 => "subVersion",
        tags_set: Vec<String> => "tagsSet",
        topic: String => "topic",
    }

    /// Body of 46.
    pub struct CheckClientRequestBody {
        client_id: String => "clientId",
        group: String => "group",
        subscription_data: Option<SubscriptionData> => "subscriptionData",
    }
}

impl SubscriptionData {
    /// A subscription by tags: `*` or empty wants everything, else tags joined by `||`. The version is left at 0.
    pub fn by_tags(topic: &str, expression: &str) -> Self {
        let mut data = Self {
            topic: topic.to_owned(),
            sub_string: expression.to_owned(),
            ..Self::default()
        };
        if expression.trim().is_empty() || expression.trim() == "*" {
            "*".clone_into(&mut data.sub_string);
            return data;
        }
        for tag in expression.split("||").map(str::trim).filter(|t| !t.is_empty()) {
            if !data.tags_set.iter().any(|t| t == tag) {
                data.tags_set.push(tag.to_owned());
            }
            let code = string_hash(tag);
            if !data.code_set.contains(&code) {
                data.code_set.push(code);
            }
        }
        data
    }

    /// True if the expression is made of tags, the only kind that needs no evaluation of properties.
    pub fn is_tag_type(&self) -> bool {
        self.expression_type
            .as_deref()
            .is_none_or(|t| t.is_empty() || t == "TAG")
    }
}
