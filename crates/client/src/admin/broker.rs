//! Figures and configuration of one broker.

use std::collections::BTreeMap;

use ferromq_protocol::body::KvTable;
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;

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
