//! Calls to name servers. Name servers do not talk to each other: what changes one must be sent to each, see
//! [`Admin::name_servers`].

use std::collections::BTreeMap;

use ferromq_protocol::body::{ClusterInfo, KvTable, TopicList, TopicRouteData};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{
    AddWritePermResponse, BrokerIdentity, BrokerNameHeader, ClusterHeader, DeleteTopicInNamesrv,
    GetKvConfigResponse, GetRouteInfo, KvKey, KvNamespace, PutKvConfig, WipeWritePermResponse,
};

use super::{Admin, lines_to_pairs, pairs_to_lines};
use crate::error::Result;
use crate::link;
use crate::route_cache::{fetch, no_route};

/// The name server's namespace of ordered topics' queues.
pub const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

impl Admin {
    /// Addresses (`ip:port`) of all name servers now, DNS names resolved.
    pub async fn name_servers(&self) -> Result<Vec<String>> {
        self.link.name_servers().await
    }

    /// All clusters and brokers that a name server knows.
    pub async fn cluster_info(&self) -> Result<ClusterInfo> {
        self.ask_names_json(Command::request(request::GET_BROKER_CLUSTER_INFO))
            .await
    }

    /// All clusters and brokers that this name server knows.
    pub async fn cluster_info_at(&self, name_server: &str) -> Result<ClusterInfo> {
        self.ask_json(name_server, Command::request(request::GET_BROKER_CLUSTER_INFO))
            .await
    }

    /// A topic's route.
    ///
    /// # Errors
    /// [`crate::ClientError::NoRoute`] if no name server knows the topic.
    pub async fn route(&self, topic: &str) -> Result<TopicRouteData> {
        fetch(&self.link, topic).await
    }

    /// A topic's route at this name server.
    ///
    /// # Errors
    /// [`crate::ClientError::NoRoute`] if it does not know the topic.
    pub async fn route_at(&self, name_server: &str, topic: &str) -> Result<TopicRouteData> {
        let request = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_header(&GetRouteInfo {
            topic,
            accept_standard_json_only: true,
        });
        self.ask_json(name_server, request)
            .await
            .map_err(|error| no_route(topic, error))
    }

    /// Names of all topics, sorted.
    pub async fn topic_list(&self) -> Result<Vec<String>> {
        let request = Command::request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER);
        self.ask_names_json(request).await.map(sorted)
    }

    /// Names of all topics that this name server knows, sorted.
    pub async fn topic_list_at(&self, name_server: &str) -> Result<Vec<String>> {
        let request = Command::request(request::GET_ALL_TOPIC_LIST_FROM_NAMESERVER);
        self.ask_json(name_server, request).await.map(sorted)
    }

    /// Names of the topics of a cluster, sorted; empty if the cluster is unknown.
    pub async fn topics_of_cluster(&self, cluster: &str) -> Result<Vec<String>> {
        let request =
            Command::request(request::GET_TOPICS_BY_CLUSTER).with_header(&ClusterHeader { cluster });
        self.ask_names_json(request).await.map(sorted)
    }

    /// Takes a topic out of this name server's routes; with a cluster, only that cluster's brokers' part.
    pub async fn delete_topic_in_name_server(
        &self,
        name_server: &str,
        topic: &str,
        cluster: Option<&str>,
    ) -> Result<()> {
        let request = Command::request(request::DELETE_TOPIC_IN_NAMESRV).with_header(&DeleteTopicInNamesrv {
            topic,
            cluster_name: cluster,
        });
        self.tell(name_server, request).await
    }

    /// Takes the write permission of all topics of a broker away at this name server, until the broker's next
    /// changed registration. Returns how many topics that touched.
    pub async fn wipe_write_perm(&self, name_server: &str, broker_name: &str) -> Result<i32> {
        let request = Command::request(request::WIPE_WRITE_PERM_OF_BROKER)
            .with_header(&BrokerNameHeader { broker_name });
        let name = link::name_of(request.code);
        let answer = self.link.ask(name_server, request).await?;
        let header = answer.header::<WipeWritePermResponse>();
        Ok(header
            .map_err(|error| link::bad_answer(name_server, name, error))?
            .wipe_topic_count)
    }

    /// Gives all topics of a broker read and write permission at this name server. Returns how many topics that
    /// touched.
    pub async fn add_write_perm(&self, name_server: &str, broker_name: &str) -> Result<i32> {
        let request = Command::request(request::ADD_WRITE_PERM_OF_BROKER)
            .with_header(&BrokerNameHeader { broker_name });
        let name = link::name_of(request.code);
        let answer = self.link.ask(name_server, request).await?;
        let header = answer.header::<AddWritePermResponse>();
        Ok(header
            .map_err(|error| link::bad_answer(name_server, name, error))?
            .add_topic_count)
    }

    /// Takes a broker out of this name server's tables, as the broker itself does when it stops.
    pub async fn unregister_broker(&self, name_server: &str, broker: &BrokerIdentity<'_>) -> Result<()> {
        self.tell(
            name_server,
            Command::request(request::UNREGISTER_BROKER).with_header(broker),
        )
        .await
    }

    /// Sets a configuration value at this name server.
    pub async fn put_kv(&self, name_server: &str, namespace: &str, key: &str, value: &str) -> Result<()> {
        let request = Command::request(request::PUT_KV_CONFIG).with_header(&PutKvConfig {
            namespace,
            key,
            value,
        });
        self.tell(name_server, request).await
    }

    /// A configuration value at this name server; `None` if it is not set.
    pub async fn get_kv(&self, name_server: &str, namespace: &str, key: &str) -> Result<Option<String>> {
        let request = Command::request(request::GET_KV_CONFIG).with_header(&KvKey { namespace, key });
        let name = link::name_of(request.code);
        let answer = self.link.ask(name_server, request).await;
        match answer {
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(None),
            Err(error) => Err(error),
            Ok(answer) => {
                let header = answer.header::<GetKvConfigResponse<'_>>();
                let header = header.map_err(|error| link::bad_answer(name_server, name, error))?;
                Ok(header.value.map(str::to_owned))
            }
        }
    }

    /// Takes a configuration value away at this name server.
    pub async fn delete_kv(&self, name_server: &str, namespace: &str, key: &str) -> Result<()> {
        let request = Command::request(request::DELETE_KV_CONFIG).with_header(&KvKey { namespace, key });
        self.tell(name_server, request).await
    }

    /// All configuration values of a namespace at this name server; empty if there is no such namespace.
    pub async fn list_kv(&self, name_server: &str, namespace: &str) -> Result<BTreeMap<String, String>> {
        let request =
            Command::request(request::GET_KVLIST_BY_NAMESPACE).with_header(&KvNamespace { namespace });
        match self.ask_json::<KvTable>(name_server, request).await {
            Err(error) if error.code() == Some(response::QUERY_NOT_FOUND) => Ok(BTreeMap::new()),
            result => result.map(|table| table.table.into_iter().collect()),
        }
    }

    /// This name server's configuration.
    pub async fn name_server_config(&self, name_server: &str) -> Result<BTreeMap<String, String>> {
        let answer = self
            .link
            .ask(name_server, Command::request(request::GET_NAMESRV_CONFIG))
            .await?;
        Ok(lines_to_pairs(&answer.body))
    }

    /// Changes keys of this name server's configuration.
    pub async fn update_name_server_config<K: AsRef<str>, V: AsRef<str>>(
        &self,
        name_server: &str,
        settings: impl IntoIterator<Item = (K, V)>,
    ) -> Result<()> {
        let request = Command::request(request::UPDATE_NAMESRV_CONFIG).with_body(pairs_to_lines(settings));
        self.tell(name_server, request).await
    }
}

fn sorted(list: TopicList) -> Vec<String> {
    let mut names: Vec<String> = list.topic_list.into_iter().collect();
    names.sort();
    names.dedup();
    names
}
