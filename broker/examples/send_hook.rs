//! A broker that refuses messages without keys on one topic, and counts those that it stored.
//!
//! `cargo run -p ferromq-broker --example send_hook` listens on 127.0.0.1:10911 until Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ferromq_broker::{Broker, BrokerSettings, Extensions, SendHook, Sending, StartOptions};
use ferromq_protocol::properties;

#[derive(Default)]
struct KeysRequired {
    stored: AtomicU64,
}

impl SendHook for KeysRequired {
    fn before(&self, sending: &Sending<'_>) -> Result<(), String> {
        if sending.topic == "Orders" && properties::get(sending.properties, "KEYS").is_none() {
            return Err("messages of Orders must have keys: call setKeys with the order's number".to_owned());
        }
        Ok(())
    }

    fn stored(&self, _: &Sending<'_>, _: i64, _: i64) {
        self.stored.fetch_add(1, Ordering::Relaxed);
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let hook = Arc::new(KeysRequired::default());
    let mut settings = BrokerSettings {
        broker_ip1: "127.0.0.1".to_owned(),
        bind_address: "127.0.0.1".to_owned(),
        store_path_root_dir: std::env::temp_dir()
            .join("ferromq-send-hook")
            .display()
            .to_string(),
        mapped_file_size_commit_log: 64 << 20,
        ..BrokerSettings::default()
    };
    settings.complete()?;
    let extensions = Extensions {
        send: vec![hook.clone()],
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
    println!("{} sends were stored", hook.stored.load(Ordering::Relaxed));
    Ok(())
}
