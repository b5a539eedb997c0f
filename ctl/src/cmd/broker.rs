//! One broker: figures and configuration.

use std::collections::BTreeMap;

use anyhow::Context as _;

use crate::cli::{self, BrokerConfig, Target};
use crate::context::{Context, Done, names};
use crate::failure::Failure;
use crate::output::{self, Table};

pub(crate) async fn run(cx: &Context, command: cli::Broker) -> anyhow::Result<()> {
    match command {
        cli::Broker::Status { target } => status(cx, &target).await,
        cli::Broker::Config(BrokerConfig::Get { target, keys }) => get(cx, &target, &keys).await,
        cli::Broker::Config(BrokerConfig::Set { target, settings }) => set(cx, &target, &settings).await,
    }
}

/// All figures, by broker address when there is more than one.
pub(crate) async fn status(cx: &Context, target: &Target) -> anyhow::Result<()> {
    let mut figures = BTreeMap::new();
    for broker in cx.masters(target).await? {
        let info = cx.admin.runtime_info(&broker.address).await;
        let info = info.with_context(|| format!("read the figures of {}", broker.name))?;
        figures.insert(broker.address, info);
    }
    print_pairs(cx, &figures)
}

async fn get(cx: &Context, target: &Target, keys: &[String]) -> anyhow::Result<()> {
    let mut configs = BTreeMap::new();
    for broker in cx.masters(target).await? {
        let config = cx.admin.broker_config(&broker.address).await;
        let mut config = config.with_context(|| format!("read the configuration of {}", broker.name))?;
        if let Some(missing) = keys.iter().find(|key| !config.contains_key(*key)) {
            let text = format!("{} has no configuration key {missing:?}", broker.name);
            return Err(Failure::NotFound(text).into());
        }
        if !keys.is_empty() {
            config.retain(|key, _| keys.contains(key));
        }
        configs.insert(broker.address, config);
    }
    print_pairs(cx, &configs)
}

async fn set(cx: &Context, target: &Target, settings: &[(String, String)]) -> anyhow::Result<()> {
    if target.broker.is_none() && target.cluster.is_none() {
        let text = "say which broker with -b ADDR, or all masters of a cluster with -c NAME";
        return Err(Failure::Usage(text.into()).into());
    }
    let brokers = cx.masters(target).await?;
    for broker in &brokers {
        let pairs = settings.iter().map(|(key, value)| (key, value));
        let updated = cx.admin.update_broker_config(&broker.address, pairs).await;
        updated.with_context(|| format!("change the configuration of {}", broker.name))?;
        eprintln!(
            "{} ({}) has taken {} setting(s)",
            broker.name,
            broker.address,
            settings.len()
        );
    }
    output::print_done(
        cx.format,
        &Done {
            changed: "broker config",
            name: None,
            brokers: names(&brokers),
        },
    )
}

/// Pairs of one broker by themselves, of several under their addresses.
fn print_pairs(cx: &Context, all: &BTreeMap<String, BTreeMap<String, String>>) -> anyhow::Result<()> {
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
        let mut table = Table::new(&["broker", "key", "value"]);
        for (broker, pairs) in all {
            for (key, value) in pairs {
                table.row([broker, key, value]);
            }
        }
        table
    })
}
