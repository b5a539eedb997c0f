//! Figures and configuration of one broker.

use std::collections::BTreeMap;

use ferromq_protocol::body::{BrokerStatsData, ConsumeStatsList, KvTable};
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{GetBrokerConsumeStats, ViewBrokerStats};

use super::{Admin, lines_to_pairs, pairs_to_lines};
use crate::error::Result;

impl Admin {
    /// The broker's figures under RocketMQ's names, all as text: `putTps`, `commitLogMaxOffset`, …
    pub async fn runtime_info(&self, broker: &str) -> Result<BTreeMap<String, String>> {
        let table: KvTable = self
            .ask_json(broker, Command::request(request::GET_BROKER_RUNTIME_INFO))
            .await?;
        Ok(table.table.into_iter().collect())
    }

    /// The broker's configuration.
    pub async fn broker_config(&self, broker: &str) -> Result<BTreeMap<String, String>> {
        let answer = self
            .link
            .ask(broker, Command::request(request::GET_BROKER_CONFIG))
            .await?;
        Ok(lines_to_pairs(&answer.body))
    }

    /// Changes keys of the running broker's configuration, all or none.
    pub async fn update_broker_config<K: AsRef<str>, V: AsRef<str>>(
        &self,
        broker: &str,
        settings: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        let request = Command::request(request::UPDATE_BROKER_CONFIG).with_body(pairs_to_lines(settings));
        self.tell(broker, request).await
    }

    /// How far every group is in every topic of the broker; only ordered consumption, or only the other, as told.
    pub async fn broker_consume_stats(&self, broker: &str, ordered: bool) -> Result<ConsumeStatsList> {
        let request = Command::request(request::GET_BROKER_CONSUME_STATS)
            .with_header(&GetBrokerConsumeStats { is_order: ordered });
        self.ask_json(broker, request).await
    }

    /// A statistic of the broker (`TOPIC_PUT_NUMS`, `GROUP_GET_NUMS`, …) for a key: a topic, or `TOPIC@GROUP`.
    pub async fn broker_stats(&self, broker: &str, name: &str, key: &str) -> Result<BrokerStatsData> {
        let header = ViewBrokerStats {
            stats_name: name,
            stats_key: key,
        };
        self.ask_json(
            broker,
            Command::request(request::VIEW_BROKER_STATS_DATA).with_header(&header),
        )
        .await
    }

    /// Deletes commit log files that are past their time, now.
    pub async fn delete_expired_commit_log(&self, broker: &str) -> Result<()> {
        self.tell(broker, Command::request(request::DELETE_EXPIRED_COMMITLOG))
            .await
    }

    /// Deletes consume queue files whose messages are gone.
    pub async fn clean_expired_queues(&self, broker: &str) -> Result<()> {
        self.tell(broker, Command::request(request::CLEAN_EXPIRED_CONSUMEQUEUE))
            .await
    }

    /// Deletes the queues of topics that the broker does not have.
    pub async fn clean_unused_topics(&self, broker: &str) -> Result<()> {
        self.tell(broker, Command::request(request::CLEAN_UNUSED_TOPIC))
            .await
    }
}
