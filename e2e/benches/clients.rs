//! Our client beside Java's, at one broker, in one run: processor time for a message sent and one consumed.
//!
//! `make bench-client` runs it. Clients take turns (ours, Java's, Java's, ours, …); each sends and consumes everything
//! twice and counts the second round only, so that the JVM has compiled what is hot. A figure is the median of the
//! rounds. Senders wait for each answer, eight at a time; listeners do nothing.
//!
//! Settings, by environment: `PAIRS` (default 3), `COUNT` messages a round (default 50,000), `SIZE` bytes of a body
//! (default 200).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use ferromq_client::admin::TopicConfig;
use ferromq_client::{
    Client, ClientConfig, Filter, Message, Outcome, ProducerConfig, PushConsumer, PushConsumerConfig,
    StartFrom,
};
use serde_json::Value;
use tokio::task::JoinSet;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/support/mod.rs"]
mod support;

use support::cluster::{Broker, Kind, NameServer};
use support::process::Process;
use support::{java, wait_until};

/// Processor time in microseconds for a message.
#[derive(Debug, Clone, Copy)]
struct Cost {
    sent: f64,
    consumed: f64,
}

fn setting(name: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name}={text} is not a number")),
        Err(_) => Ok(default),
    }
}

fn main() -> anyhow::Result<()> {
    let (pairs, count, size) = (
        setting("PAIRS", 3)?,
        setting("COUNT", 50_000)?,
        setting("SIZE", 200)?,
    );
    let dir = tempfile::tempdir()?;
    let names = NameServer::start(Kind::Ours, dir.path())?;
    let mut broker = Broker::new("broker-a", dir.path(), &names, &[])?;
    broker.start(Kind::Ours)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for pair in 0..pairs {
        for side in [pair % 2, 1 - pair % 2] {
            let run = format!("{pair}-{side}");
            if side == 0 {
                ours.push(rust(&names.address(), &run, count, size)?);
            } else {
                theirs.push(java_load(dir.path(), &names.address(), &run, count, size)?);
            }
        }
    }
    broker.stop(Kind::Ours)?;
    println!("processor time a message, microseconds, {count} messages of {size} bytes, median of {pairs}");
    println!("{:10} {:>8} {:>8} {:>14}", "", "ours", "java", "java over ours");
    for (what, of) in [
        ("sent", (|c| c.sent) as fn(&Cost) -> f64),
        ("consumed", |c| c.consumed),
    ] {
        let (a, b) = (median(ours.iter().map(of)), median(theirs.iter().map(of)));
        println!("{what:10} {a:8.1} {b:8.1} {:14.2}", b / a);
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn java_load(dir: &std::path::Path, names: &str, run: &str, count: u64, size: u64) -> anyhow::Result<Cost> {
    let mut process = Process::start(
        &format!("load-{run}"),
        dir,
        java::program("client")?
            .args(["load", "--namesrv", names, "--prefix", &format!("java{run}")])
            .args(["--count", &count.to_string(), "--size", &size.to_string()])
            .arg("--work-dir")
            .arg(dir.join(format!("load-{run}-work"))),
    )?;
    let status = process.wait()?;
    let output = process.output();
    let line = output
        .lines()
        .find_map(|line| serde_json::from_str::<Value>(line).ok());
    let line = line.with_context(|| format!("Java's load ended with {status}\n{}", process.tail()))?;
    let field = |name: &str| {
        line[name]
            .as_f64()
            .with_context(|| format!("{line} has no {name}"))
    };
    Ok(Cost {
        sent: field("sent_cpu_us")?,
        consumed: field("consumed_cpu_us")?,
    })
}

fn rust(names: &str, run: &str, count: u64, size: u64) -> anyhow::Result<Cost> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let topic = format!("rust{run}_load");
    let client = runtime.block_on(async { Client::start(ClientConfig::new(names)) })?;
    runtime.block_on(async {
        let admin = client.admin();
        for broker in admin.cluster_info().await?.broker_addr_table.into_values() {
            let config = TopicConfig {
                topic_name: topic.clone(),
                read_queue_nums: 8,
                write_queue_nums: 8,
                ..TopicConfig::default()
            };
            admin.create_topic(&broker.broker_addrs[&0], &config).await?;
        }
        anyhow::Ok(())
    })?;
    wait_until("the topic to be routed", || {
        Ok(runtime.block_on(client.admin().route(&topic)).is_ok())
    })?;
    let mut sent = 0.0;
    for _ in 0..2 {
        let before = cpu_micros()?;
        runtime.block_on(send_all(&client, &topic, count, size))?;
        sent = (cpu_micros()? - before) as f64 / count as f64;
    }
    let seen = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&seen);
    let config = PushConsumerConfig::new(format!("rust{run}_group"))
        .subscribe(&topic, Filter::All)
        .with_start(StartFrom::Oldest);
    let listener = move |delivery: ferromq_client::Delivery| {
        counted.fetch_add(delivery.messages.len() as u64, Ordering::Relaxed);
        async { Outcome::Done }
    };
    let consumer = runtime.block_on(PushConsumer::start(&client, config, listener))?;
    let until = |wanted: u64| {
        while seen.load(Ordering::Relaxed) < wanted {
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    until(count);
    let (before, already) = (cpu_micros()?, seen.load(Ordering::Relaxed));
    until(2 * count);
    let rest = (2 * count).saturating_sub(already).max(1);
    let each = (cpu_micros()? - before) as f64 / rest as f64;
    runtime.block_on(consumer.shutdown())?;
    runtime.block_on(client.shutdown());
    Ok(Cost { sent, consumed: each })
}

async fn send_all(client: &Client, topic: &str, count: u64, size: u64) -> anyhow::Result<()> {
    let producer = client.producer(ProducerConfig::new("rust_load"));
    let body = bytes(size)?;
    let left = Arc::new(AtomicI64::new(i64::try_from(count)?));
    let mut senders = JoinSet::new();
    for _ in 0..8 {
        let (producer, left, topic, body) = (
            producer.clone(),
            Arc::clone(&left),
            topic.to_owned(),
            body.clone(),
        );
        senders.spawn(async move {
            while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                producer.send(Message::new(&topic, body.clone())).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    Ok(())
}

fn bytes(size: u64) -> anyhow::Result<Vec<u8>> {
    Ok(vec![0; usize::try_from(size)?])
}

/// Processor time of this process so far, in microseconds, from the kernel's ticks of 10 ms.
fn cpu_micros() -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').context("/proc/self/stat has a name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok());
    let (user, system) = (ticks(11).context("user time")?, ticks(12).context("system time")?);
    Ok((user + system) * 10_000)
}
