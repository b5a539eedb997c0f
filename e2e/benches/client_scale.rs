//! How far one client goes at one broker of ours: one task that sends, beside many; ten thousand queues in one consumer,
//! beside eight.
//!
//! `make bench-client` runs it. One producer task keeps the connection busy when its rate is that of 64 tasks over the
//! same connection. Ways take turns, a figure is the median. Settings, by environment: `PAIRS` (default 3), `COUNT`
//! messages a round (default 100,000), `SIZE` bytes of a body (default 200), `QUEUES` (default 10,000).

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ferromq_client::admin::TopicConfig;
use ferromq_client::{
    Client, ClientConfig, Filter, Message, Outcome, Producer, ProducerConfig, PushConsumer,
    PushConsumerConfig, StartFrom,
};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/support/mod.rs"]
mod support;

use support::cluster::{Broker, Kind, NameServer};
use support::wait_until;

fn setting(name: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name}={text} is not a number")),
        Err(_) => Ok(default),
    }
}

fn main() -> anyhow::Result<()> {
    let (pairs, count) = (setting("PAIRS", 3)?, setting("COUNT", 100_000)?);
    let (size, queues) = (setting("SIZE", 200)?, setting("QUEUES", 10_000)?);
    let dir = tempfile::tempdir()?;
    let names = NameServer::start(Kind::Ours, dir.path())?;
    let mut broker = Broker::new("broker-a", dir.path(), &names, &[])?;
    broker.start(Kind::Ours)?;
    let bench = Bench::new(&names.address(), usize::try_from(size)?)?;
    let few = bench.topic("few", 8)?;
    let many = bench.topic("many", i32::try_from(queues)?)?;
    bench.one_task(&few, count)?;
    let (mut one, mut tasks) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        one.push(bench.one_task(&few, count)?);
        tasks.push(bench.many_tasks(&few, count)?);
    }
    let (one, tasks) = (median(one), median(tasks));
    println!(
        "messages sent a second over one connection, {count} messages of {size} bytes, median of {pairs}"
    );
    println!("one task, send_later     {one:10.0}");
    println!("64 tasks, send           {tasks:10.0}");
    println!("one task over 64         {:10.2}", one / tasks);
    let each = count.max(queues);
    // The broker makes the files of ten thousand queues: not what is measured.
    bench.one_task(&many, queues)?;
    for round in 0..pairs {
        for (topic, queues) in [(&few, 8), (&many, queues)] {
            bench.consume(topic, &format!("group_{round}_{queues}"), queues, each)?;
        }
    }
    bench.runtime.block_on(bench.client.shutdown());
    broker.stop(Kind::Ours)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

struct Bench {
    runtime: Runtime,
    client: Client,
    body: Vec<u8>,
}

impl Bench {
    fn new(names: &str, size: usize) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let client = runtime.block_on(async { Client::start(ClientConfig::new(names)) })?;
        Ok(Self {
            runtime,
            client,
            body: vec![b'x'; size],
        })
    }

    fn topic(&self, name: &str, queues: i32) -> anyhow::Result<String> {
        self.runtime.block_on(async {
            let admin = self.client.admin();
            for broker in admin.cluster_info().await?.broker_addr_table.into_values() {
                let config = TopicConfig {
                    topic_name: name.to_owned(),
                    read_queue_nums: queues,
                    write_queue_nums: queues,
                    ..TopicConfig::default()
                };
                admin.create_topic(&broker.broker_addrs[&0], &config).await?;
            }
            anyhow::Ok(())
        })?;
        wait_until("the topic to be routed", || {
            Ok(self.runtime.block_on(self.client.admin().route(name)).is_ok())
        })?;
        Ok(name.to_owned())
    }

    fn producer(&self) -> Producer {
        let _inside = self.runtime.enter();
        let mut config = ProducerConfig::new("scale");
        config.send_timeout = Duration::from_secs(30);
        self.client.producer(config)
    }

    /// Messages a second of one task that does not wait for answers, until the last answer.
    fn one_task(&self, topic: &str, count: u64) -> anyhow::Result<f64> {
        let producer = self.producer();
        let started = Instant::now();
        self.runtime.block_on(async {
            for _ in 0..count {
                drop(
                    producer
                        .send_later(Message::new(topic, self.body.clone()))
                        .await?,
                );
            }
            producer.shutdown().await;
            anyhow::Ok(())
        })?;
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    /// Messages a second of 64 tasks that wait for each answer.
    fn many_tasks(&self, topic: &str, count: u64) -> anyhow::Result<f64> {
        let producer = self.producer();
        let left = Arc::new(AtomicI64::new(i64::try_from(count)?));
        let started = Instant::now();
        self.runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..64 {
                let (producer, left) = (producer.clone(), Arc::clone(&left));
                let (topic, body) = (topic.to_owned(), self.body.clone());
                tasks.spawn(async move {
                    while left.fetch_sub(1, Ordering::Relaxed) > 0 {
                        producer.send(Message::new(&topic, body.clone())).await?;
                    }
                    anyhow::Ok(())
                });
            }
            while let Some(sent) = tasks.join_next().await {
                sent??;
            }
            anyhow::Ok(())
        })?;
        Ok(count as f64 / started.elapsed().as_secs_f64())
    }

    /// A new group joins, then messages are sent to all queues in turn and consumed.
    fn consume(&self, topic: &str, group: &str, queues: u64, count: u64) -> anyhow::Result<()> {
        let seen = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&seen);
        let config = PushConsumerConfig::new(group)
            .subscribe(topic, Filter::All)
            .with_start(StartFrom::Newest);
        let listener = move |delivery: ferromq_client::Delivery| {
            counted.fetch_add(delivery.messages.len() as u64, Ordering::Relaxed);
            async { Outcome::Done }
        };
        let started = Instant::now();
        let consumer = self
            .runtime
            .block_on(PushConsumer::start(&self.client, config, listener))?;
        let of_topic = || {
            let held = consumer.queues();
            held.iter().filter(|queue| queue.topic == topic).count() as u64
        };
        wait_until("all queues", || Ok(of_topic() == queues))?;
        let joined = started.elapsed();
        let (idle, since) = (cpu_micros()?, Instant::now());
        std::thread::sleep(Duration::from_secs(5));
        let idle = (cpu_micros()? - idle) as f64 / since.elapsed().as_micros() as f64 * 100.0;
        let (before, started) = (cpu_micros()?, Instant::now());
        self.one_task(topic, count)?;
        while seen.load(Ordering::Relaxed) < count {
            std::thread::sleep(Duration::from_millis(1));
        }
        let rate = count as f64 / started.elapsed().as_secs_f64();
        let each = (cpu_micros()? - before) as f64 / count as f64;
        println!(
            "{queues:6} queues: held after {:5.0} ms, waiting takes {idle:4.1} % of a core, {rate:7.0} messages/s through, \
             {each:4.1} us of CPU each (sent and consumed), {:5.0} MiB resident",
            joined.as_secs_f64() * 1000.0,
            resident_mib()?
        );
        if let Err(error) = self.runtime.block_on(consumer.shutdown()) {
            println!("{queues:6} queues: at the end {error}");
        }
        Ok(())
    }
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

fn resident_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .and_then(|line| line.split_whitespace().next())
        .context("the resident size")?
        .parse()?;
    Ok(kib / 1024.0)
}
