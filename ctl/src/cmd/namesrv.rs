//! Name servers: what is written goes to every one of them, since they do not tell each other.

use std::collections::BTreeMap;

use anyhow::Context as _;
use ferromq_client::admin::name_server::ORDER_TOPIC_CONFIG;

use crate::cli::{Namesrv, Order};
use crate::context::{Context, Done, print_pairs};
use crate::failure::Failure;
use crate::output;

pub(crate) async fn run(cx: &Context, command: Namesrv) -> anyhow::Result<()> {
    match command {
        Namesrv::Config => config(cx).await,
        Namesrv::Set { settings } => set(cx, &settings).await,
        Namesrv::KvList { namespace } => list(cx, &namespace).await,
        Namesrv::KvPut {
            namespace,
            key,
            value,
        } => put(cx, &namespace, &key, &value).await,
        Namesrv::KvDelete { namespace, key } => delete(cx, &namespace, &key).await,
    }
}

async fn config(cx: &Context) -> anyhow::Result<()> {
    let mut all = BTreeMap::new();
    for name_server in cx.admin.name_servers().await? {
        let config = cx.admin.name_server_config(&name_server).await;
        let config =
            config.with_context(|| format!("read the configuration of name server {name_server}"))?;
        all.insert(name_server, config);
    }
    print_pairs(cx, &all)
}

async fn set(cx: &Context, settings: &[(String, String)]) -> anyhow::Result<()> {
    for name_server in cx.admin.name_servers().await? {
        let pairs = settings.iter().map(|(key, value)| (key, value));
        let set = cx.admin.update_name_server_config(&name_server, pairs).await;
        set.with_context(|| format!("change the configuration of name server {name_server}"))?;
        eprintln!("{name_server} has taken {} setting(s)", settings.len());
    }
    done(cx, "name server configuration", None)
}

/// What each name server has, so that a difference between them shows.
async fn list(cx: &Context, namespace: &str) -> anyhow::Result<()> {
    let mut all = BTreeMap::new();
    for name_server in cx.admin.name_servers().await? {
        let kv = match cx.admin.list_kv(&name_server, namespace).await {
            Err(error) if error.is_not_found() => BTreeMap::new(),
            kv => kv.with_context(|| format!("read namespace {namespace} of name server {name_server}"))?,
        };
        all.insert(name_server, kv);
    }
    print_pairs(cx, &all)
}

async fn put(cx: &Context, namespace: &str, key: &str, value: &str) -> anyhow::Result<()> {
    for name_server in cx.admin.name_servers().await? {
        let put = cx.admin.put_kv(&name_server, namespace, key, value).await;
        put.with_context(|| format!("set {key} at name server {name_server}"))?;
        eprintln!("{name_server}: {namespace}/{key} is set");
    }
    done(cx, "key", Some(key))
}

async fn delete(cx: &Context, namespace: &str, key: &str) -> anyhow::Result<()> {
    for name_server in cx.admin.name_servers().await? {
        let deleted = cx.admin.delete_kv(&name_server, namespace, key).await;
        deleted.with_context(|| format!("delete {key} at name server {name_server}"))?;
        eprintln!("{name_server}: {namespace}/{key} is deleted");
    }
    done(cx, "key", Some(key))
}

/// The order configuration of a topic, which is a key-value entry.
pub(crate) async fn order(cx: &Context, command: &Order) -> anyhow::Result<()> {
    match command {
        Order::Set { topic, value } => put(cx, ORDER_TOPIC_CONFIG, topic, value).await,
        Order::Delete { topic } => delete(cx, ORDER_TOPIC_CONFIG, topic).await,
        Order::Get { topic } => {
            let mut all = BTreeMap::new();
            for name_server in cx.admin.name_servers().await? {
                let value = cx.admin.get_kv(&name_server, ORDER_TOPIC_CONFIG, topic).await;
                let value = value.with_context(|| format!("ask name server {name_server}"))?;
                all.extend(value.map(|value| (name_server, BTreeMap::from([(topic.clone(), value)]))));
            }
            if all.is_empty() {
                return Err(Failure::NotFound(format!("topic {topic:?} has no order configuration")).into());
            }
            print_pairs(cx, &all)
        }
    }
}

fn done(cx: &Context, changed: &'static str, name: Option<&str>) -> anyhow::Result<()> {
    output::print_done(
        cx.format,
        &Done {
            changed,
            name: name.map(str::to_owned),
            brokers: Vec::new(),
        },
    )
}
