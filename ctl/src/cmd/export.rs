//! Metadata, configurations and figures of a cluster as JSON files, under the names that mqadmin gives them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::{Export, ExportTo, Target};
use crate::context::{Broker, Context};
use crate::output;

pub(crate) async fn run(cx: &Context, command: &Export) -> anyhow::Result<()> {
    match command {
        Export::Metadata(to) => metadata(cx, to).await,
        Export::Configs(to) => configs(cx, to).await,
        Export::Metrics(to) => metrics(cx, to).await,
    }
}

async fn masters(cx: &Context, to: &ExportTo) -> anyhow::Result<Vec<Broker>> {
    let target = Target {
        broker: None,
        cluster: to.cluster.clone(),
    };
    cx.masters(&target).await
}

async fn metadata(cx: &Context, to: &ExportTo) -> anyhow::Result<()> {
    let mut topics = BTreeMap::new();
    let mut groups = BTreeMap::new();
    for broker in masters(cx, to).await? {
        let table = cx.admin.topics(&broker.address).await;
        let table = table.with_context(|| format!("read the topics of {}", broker.name))?;
        topics.extend(table.topic_config_table);
        let table = cx.admin.groups(&broker.address).await;
        let table = table.with_context(|| format!("read the groups of {}", broker.name))?;
        groups.extend(table.subscription_group_table);
    }
    let all = json!({ "topicConfigTable": topics, "subscriptionGroupTable": groups });
    write(cx, &to.dir, "metadata.json", &all)
}

async fn configs(cx: &Context, to: &ExportTo) -> anyhow::Result<()> {
    let mut names = BTreeMap::new();
    for name_server in cx.admin.name_servers().await? {
        let config = cx.admin.name_server_config(&name_server).await;
        let config = config.with_context(|| format!("read the configuration of {name_server}"))?;
        names.insert(name_server, config);
    }
    let mut brokers = BTreeMap::new();
    for broker in masters(cx, to).await? {
        let config = cx.admin.broker_config(&broker.address).await;
        let config = config.with_context(|| format!("read the configuration of {}", broker.name))?;
        brokers.insert(broker.name, config);
    }
    let all = json!({ "namesrvConfigs": names, "brokerConfigs": brokers });
    write(cx, &to.dir, "configs.json", &all)
}

async fn metrics(cx: &Context, to: &ExportTo) -> anyhow::Result<()> {
    let mut brokers = BTreeMap::new();
    for broker in masters(cx, to).await? {
        let info = cx.admin.runtime_info(&broker.address).await;
        let info = info.with_context(|| format!("read the figures of {}", broker.name))?;
        let groups = cx.admin.groups(&broker.address).await;
        let groups = groups.with_context(|| format!("read the groups of {}", broker.name))?;
        let topics = cx.admin.topics(&broker.address).await;
        let topics = topics.with_context(|| format!("read the topics of {}", broker.name))?;
        brokers.insert(
            broker.name,
            json!({
                "runtime": info,
                "topics": topics.topic_config_table.len(),
                "groups": groups.subscription_group_table.len(),
            }),
        );
    }
    write(cx, &to.dir, "metrics.json", &json!({ "brokers": brokers }))
}

#[derive(Serialize)]
struct Written {
    file: String,
}

fn write(cx: &Context, dir: &Path, name: &str, value: &Value) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let path = dir.join(name);
    let text = serde_json::to_string_pretty(value).context("write the result as JSON")?;
    std::fs::write(&path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    eprintln!("written: {}", path.display());
    output::print_done(
        cx.format,
        &Written {
            file: path.display().to_string(),
        },
    )
}
