//! Typed administrative calls to name servers and brokers.
//!
//! One method for each request that tools and the operator need, each naming the peer it goes to. Methods that take
//! no address ask any name server. Nothing is repeated or spread here: what goes to every broker of a cluster is the
//! caller's loop, so that each result can be shown and acted on by itself.
//!
//! * [`name_server`]: routes, clusters, topic lists, write permission, key-value configuration
//! * [`broker`]: figures and configuration of one broker
//! * [`topic`], [`group`]: topics and consumer groups of one broker
//! * [`connected`]: clients of one broker; [`acl`]: its accounts
//! * [`offset`], [`message`]: places in queues, messages by id and key

use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::command::Command;
use ferromq_remoting::Dispatch;
use serde::de::DeserializeOwned;

use crate::config::ClientConfig;
use crate::error::Result;
use crate::link::{self, Link};

pub mod acl;
pub mod broker;
pub mod connected;
pub mod group;
pub mod message;
pub mod name_server;
pub mod offset;
pub mod topic;

pub use ferromq_protocol::body::{
    AclConfig, BrokerData, BrokerStatsData, ClusterInfo, ConsumeMessageDirectlyResult, ConsumeStats,
    ConsumeStatsList, ConsumerConnection, ConsumerRunningInfo, DataVersion, OffsetWrapper, PlainAccessConfig,
    ProducerConnection, ProducerTable, QueueData, ResetOffsetBody, SubscriptionGroupConfig,
    SubscriptionGroupTable, TopicConfig, TopicConfigTable, TopicFilterType, TopicOffset, TopicRouteData,
    TopicStatsTable,
};
pub use ferromq_protocol::header::{BrokerIdentity, UpdateAclConfig};

pub use acl::AclVersion;
pub use message::KeyQuery;

/// Administrative calls. Cheap to clone; connections are opened when first needed and shared by all clones.
///
/// Every method sends one request (methods without an address may ask a second name server) and fails with
/// [`crate::ClientError`]. Dropping a method's future gives the call up; the peer may still carry it out.
///
/// ```no_run
/// # async fn example() -> Result<(), ferromq_client::ClientError> {
/// use ferromq_client::{ClientConfig, admin::{Admin, TopicConfig}};
/// let admin = Admin::new(&ClientConfig::new("mq-namesrv:9876"))?;
/// for (name, broker) in admin.cluster_info().await?.broker_addr_table {
///     if let Some(master) = broker.broker_addrs.get(&0) {
///         let topic = TopicConfig { topic_name: "orders".into(), ..TopicConfig::default() };
///         admin.create_topic(master, &topic).await?;
///         println!("{name}: done");
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct Admin {
    link: Link,
}

impl Admin {
    /// Administrative calls with connections of their own.
    ///
    /// # Errors
    /// [`crate::ClientError::BadAddress`] if the name server list cannot be read. An empty list is allowed: then
    /// only methods that name a broker work.
    pub fn new(config: &ClientConfig) -> Result<Self> {
        Ok(Self {
            link: Link::new(config, Dispatch::none())?,
        })
    }

    pub(crate) fn with_link(link: Link) -> Self {
        Self { link }
    }

    /// Sends any request to any address and returns the answer whatever its code. For requests that have no method.
    pub async fn call(&self, address: &str, request: Command, timeout: Duration) -> Result<Command> {
        self.link.call(address, request, timeout).await
    }

    /// Closes the connections. Calls after this fail with [`crate::ClientError::Closed`].
    pub async fn close(&self) {
        self.link.close().await;
    }

    /// A request whose answer has nothing but its code.
    async fn tell(&self, address: &str, request: Command) -> Result<()> {
        self.link.ask(address, request).await.map(drop)
    }

    /// A request whose answer is a JSON body.
    async fn ask_json<T: DeserializeOwned>(&self, address: &str, request: Command) -> Result<T> {
        let name = link::name_of(request.code);
        let answer = self.link.ask(address, request).await?;
        link::body(address, name, &answer)
    }

    /// A request to any name server whose answer is a JSON body.
    async fn ask_names_json<T: DeserializeOwned>(&self, request: Command) -> Result<T> {
        let (address, answer) = self.link.ask_name_servers(&request).await?;
        link::body(&address, link::name_of(request.code), &answer)
    }
}

/// `key=value` lines as pairs, sorted by key. Lines without `=` are left out.
fn lines_to_pairs(body: &Bytes) -> std::collections::BTreeMap<String, String> {
    let text = String::from_utf8_lossy(body);
    let pairs = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let pairs = pairs.filter_map(|line| line.split_once('='));
    pairs
        .map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()))
        .collect()
}

/// Pairs as the lines that `java.util.Properties` reads back.
fn pairs_to_lines<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> String {
    let mut text = String::new();
    for (key, value) in pairs {
        text.push_str(key.as_ref());
        text.push('=');
        for c in value.as_ref().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                c => text.push(c),
            }
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_text_becomes_pairs_and_back() {
        let body = Bytes::from_static(b"# note\nb=2\na = x=y\n\nnonsense\n");
        let pairs = lines_to_pairs(&body);
        let have: Vec<_> = pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(have, [("a", "x=y"), ("b", "2")]);
        assert_eq!(pairs_to_lines(&pairs), "a=x=y\nb=2\n");
        assert_eq!(pairs_to_lines([("k", "a\\b\nc")]), "k=a\\\\b\\nc\n");
    }
}
