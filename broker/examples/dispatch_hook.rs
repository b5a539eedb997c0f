//! A broker that counts messages by tag as they are dispatched from its log to the queues.
//!
//! `cargo run -p ferromq-broker --example dispatch_hook` listens on 127.0.0.1:10911 until Ctrl-C.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_broker::{Broker, BrokerSettings, Extensions, StartOptions};
use ferromq_protocol::properties;
use ferromq_store::{Dispatched, Dispatcher};
use parking_lot::Mutex;

#[derive(Default)]
struct Tags(Mutex<BTreeMap<String, u64>>);

impl Dispatcher for Tags {
    fn dispatch(&self, record: &Dispatched<'_>) -> std::io::Result<()> {
        let tag = properties::get(record.properties, "TAGS").unwrap_or("(none)");
        *self.0.lock().entry(tag.to_owned()).or_default() += 1;
        Ok(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let tags = Arc::new(Tags::default());
    let mut settings = BrokerSettings {
        broker_ip1: "127.0.0.1".to_owned(),
        bind_address: "127.0.0.1".to_owned(),
        store_path_root_dir: std::env::temp_dir()
            .join("ferromq-dispatch-hook")
            .display()
            .to_string(),
        mapped_file_size_commit_log: 64 << 20,
        ..BrokerSettings::default()
    };
    settings.complete()?;
    let extensions = Extensions {
        dispatch: vec![tags.clone()],
        ..Extensions::default()
    };
    let options = StartOptions {
        extensions,
        ..StartOptions::default()
    };
    let broker = Broker::start_with(settings, options).await?;
    println!("{}", broker.start_line());
    tokio::signal::ctrl_c().await?;
    broker.shutdown().await;
    for (tag, count) in tags.0.lock().iter() {
        println!("{tag}: {count}");
    }
    Ok(())
}
