//! What every command needs: the calls, the form of output, and which brokers there are.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use anyhow::Context as _;
use ferromq_client::admin::{Admin, ClusterInfo};
use ferromq_client::{Client, ClientConfig};
use serde::Serialize;

use crate::cli::{Cli, Format, Target};
use crate::failure::Failure;
use crate::output::{self, Table};
use crate::security;

/// One invocation.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) admin: Admin,
    pub(crate) format: Format,
    pub(crate) config: ClientConfig,
}

/// A broker found through the name servers, or named by address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broker {
    pub(crate) cluster: String,
    pub(crate) name: String,
    pub(crate) id: i64,
    pub(crate) address: String,
}

/// What a command that changes something says to machines when it is done.
#[derive(Debug, Serialize)]
pub(crate) struct Done {
    pub(crate) changed: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    pub(crate) brokers: Vec<String>,
}

/// Names of brokers.
pub(crate) fn names(brokers: &[Broker]) -> Vec<String> {
    brokers.iter().map(|broker| broker.name.clone()).collect()
}

impl Context {
    pub(crate) fn new(cli: &Cli) -> anyhow::Result<Self> {
        let config =
            ClientConfig::new(cli.namesrv.clone().unwrap_or_default()).with_call_timeout(cli.timeout);
        let config = security::apply(config, &cli.security)?;
        let admin = Admin::new(&config)?;
        Ok(Self {
            admin,
            format: cli.output,
            config,
        })
    }

    /// A client with producers and consumers, for commands that send or receive.
    pub(crate) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::start(self.config.clone())?)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.config.call_timeout
    }

    /// Every broker of every cluster, masters and slaves, sorted.
    pub(crate) async fn all_brokers(&self) -> anyhow::Result<Vec<Broker>> {
        let info = self
            .admin
            .cluster_info()
            .await
            .context("read the clusters from the name servers")?;
        Ok(brokers_of(&info))
    }

    /// The masters that a target stands for; the one broker if it names an address.
    pub(crate) async fn masters(&self, target: &Target) -> anyhow::Result<Vec<Broker>> {
        if let Some(address) = &target.broker {
            return Ok(vec![Broker {
                cluster: String::new(),
                name: address.clone(),
                id: 0,
                address: address.clone(),
            }]);
        }
        let mut brokers = self.all_brokers().await?;
        brokers.retain(|broker| broker.id == 0);
        if let Some(cluster) = &target.cluster {
            let known: std::collections::BTreeSet<String> =
                brokers.iter().map(|b| b.cluster.clone()).collect();
            brokers.retain(|broker| broker.cluster == *cluster);
            if brokers.is_empty() {
                let known: Vec<String> = known.into_iter().collect();
                let known = if known.is_empty() {
                    "none".into()
                } else {
                    known.join(", ")
                };
                let text =
                    format!("cluster {cluster:?} has no master registered; clusters with masters: {known}");
                return Err(Failure::NotFound(text).into());
            }
        }
        if brokers.is_empty() {
            let text = "no broker is registered at the name servers; check that brokers are running and that their \
                        namesrvAddr is right";
            return Err(Failure::NotFound(text.into()).into());
        }
        Ok(brokers)
    }
}

/// The brokers of a cluster table, by cluster, name and id.
pub(crate) fn brokers_of(info: &ClusterInfo) -> Vec<Broker> {
    let mut brokers = Vec::new();
    for (name, data) in &info.broker_addr_table {
        for (id, address) in &data.broker_addrs {
            brokers.push(Broker {
                cluster: data.cluster.clone(),
                name: name.clone(),
                id: *id,
                address: address.clone(),
            });
        }
    }
    brokers.sort_by(|a, b| (&a.cluster, &a.name, a.id).cmp(&(&b.cluster, &b.name, b.id)));
    brokers
}

/// Asks before something is destroyed. Without a terminal the answer must have been given by `--yes`.
pub(crate) fn confirm(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        let text =
            format!("{question} Nothing was done: there is no terminal to ask on; add --yes to mean it");
        return Err(Failure::Usage(text).into());
    }
    let mut err = std::io::stderr().lock();
    write!(err, "{question} [y/N] ")
        .and_then(|()| err.flush())
        .context("ask on the terminal")?;
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .context("read the answer")?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(anyhow::anyhow!("nothing was done")),
    }
}

/// Pairs of one server by themselves, of several under their addresses.
pub(crate) fn print_pairs(
    cx: &Context,
    all: &BTreeMap<String, BTreeMap<String, String>>,
) -> anyhow::Result<()> {
    if all.len() == 1
        && let Some(pairs) = all.values().next()
    {
        return output::print(cx.format, pairs, |pairs| {
            let mut table = Table::new(&["key", "value"]);
            for (key, value) in pairs {
                table.row([key, value]);
            }
            table
        });
    }
    output::print(cx.format, all, |all| {
        let mut table = Table::new(&["server", "key", "value"]);
        for (server, pairs) in all {
            for (key, value) in pairs {
                table.row([server, key, value]);
            }
        }
        table
    })
}
