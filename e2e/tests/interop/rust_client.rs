//! Our client next to Java's: what one sends the other finds, they share the queues of one group, and nothing is lost
//! or out of order when listeners panic and brokers restart. Against our broker and Java's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_client::admin::TopicConfig;
use ferromq_client::{
    Client, ClientConfig, Delivery, Filter, Message, MessageQueue, Outcome, Producer, ProducerConfig,
    PushConsumer, PushConsumerConfig, SendReceipt, StartFrom,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::common::{pair, test};
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::process::Process;
use crate::support::{java, wait_until};

#[test]
fn what_rust_sends_java_finds_at_our_broker() {
    test(|dir| rust_sends(dir, Kind::Ours));
}

#[test]
fn what_rust_sends_java_finds_at_javas_broker() {
    test(|dir| rust_sends(dir, Kind::Java));
}

#[test]
fn what_rust_sends_java_finds_at_a_broker_of_release_5() {
    test(|dir| rust_sends(dir, Kind::Java5));
}

#[test]
fn what_java_sends_rust_reads() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::MIDDLE_FILES)?;
        let ledger = dir.join("ledger.jsonl");
        java::send(dir, &names.address(), &ledger, 100)?;
        let text = std::fs::read_to_string(&ledger)?;
        let wanted: BTreeMap<String, Value> = text
            .lines()
            .map(|line| {
                let line: Value = serde_json::from_str(line)?;
                Ok((line["id"].as_str().unwrap_or_default().to_owned(), line))
            })
            .collect::<anyhow::Result<_>>()?;
        let topic = wanted
            .values()
            .next()
            .map(|line| line["topic"].as_str().unwrap_or_default().to_owned());
        let rust = Rust::start(&names)?;
        let seen: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
        let noted = Arc::clone(&seen);
        let config = config("rust_reads", &topic.expect("the ledger names a topic")).with_batch(8);
        let listener = move |delivery: Delivery| {
            for message in &delivery.messages {
                let sum = hex(&message.body().expect("the body can be read"));
                noted.lock().insert(message.message_id(), sum);
            }
            async { Outcome::Done }
        };
        let consumer = rust
            .runtime
            .block_on(PushConsumer::start(&rust.client, config, listener))?;
        wait_until("all that Java sent", || Ok(seen.lock().len() >= wanted.len()))?;
        for (id, line) in &wanted {
            let seen = seen.lock();
            anyhow::ensure!(
                seen.get(id).map(String::as_str) == line["sha256"].as_str(),
                "{line} came otherwise"
            );
        }
        rust.runtime.block_on(consumer.shutdown())?;
        rust.end();
        broker.stop(Kind::Ours)
    });
}

#[test]
fn java_and_rust_share_the_queues_of_a_group_at_our_broker() {
    test(|dir| share(dir, Kind::Ours));
}

#[test]
fn java_and_rust_share_the_queues_of_a_group_at_javas_broker() {
    test(|dir| share(dir, Kind::Java));
}

/// At least once, and in order where that is asked for, though listeners panic and the broker restarts, by a stop and by
/// kill -9.
#[test]
fn order_survives_panics_and_restarts_of_the_broker() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::MIDDLE_FILES)?;
        let rust = Rust::start(&names)?;
        rust.make_topic("Ordered", 2)?;
        let seen: Arc<Mutex<Vec<(i32, i64, String)>>> = Arc::default();
        let (noted, panics) = (Arc::clone(&seen), Arc::new(Mutex::new(BTreeSet::new())));
        let mut config = config("ordered", "Ordered");
        config.suspend = Duration::from_millis(20);
        let listener = move |delivery: Delivery| {
            let (noted, panics) = (Arc::clone(&noted), Arc::clone(&panics));
            async move {
                let message = &delivery.messages[0];
                let place = (message.queue_id, message.queue_offset);
                let first = message.queue_offset % 7 == 3 && panics.lock().insert(place);
                assert!(!first, "a listener that panics once for this message");
                // Slower than the messages come.
                tokio::time::sleep(Duration::from_millis(2)).await;
                let body = String::from_utf8_lossy(&message.body().expect("a body")).into_owned();
                noted.lock().push((place.0, place.1, body));
                Outcome::Done
            }
        };
        let consumer = rust
            .runtime
            .block_on(PushConsumer::start_ordered(&rust.client, config, listener))?;
        let unordered: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let (noted, panics) = (Arc::clone(&unordered), Arc::new(Mutex::new(BTreeSet::new())));
        let listener = move |delivery: Delivery| {
            let body = delivery.messages[0].body().expect("a body");
            let body = String::from_utf8_lossy(&body).into_owned();
            let first = body.ends_with('3') && panics.lock().insert(body.clone());
            assert!(!first, "a listener that panics once for this message");
            noted.lock().insert(body);
            async { Outcome::Done }
        };
        let beside = self::config("unordered", "Ordered");
        let beside = rust
            .runtime
            .block_on(PushConsumer::start(&rust.client, beside, listener))?;
        let producer = rust.producer("ordered_p");
        for round in 0..3 {
            for n in 0..60 {
                let queue = MessageQueue::new("Ordered", "broker-a", n % 2);
                rust.send_until_stored(&producer, &queue, &format!("{round}-{n}"))?;
            }
            match round {
                0 => broker.stop(Kind::Ours)?,
                1 => broker.kill()?,
                _ => continue,
            }
            broker.start(Kind::Ours)?;
        }
        wait_until("all that was sent", || {
            let seen = seen.lock();
            let in_order = seen.iter().map(|seen| &seen.2).collect::<BTreeSet<_>>().len();
            Ok(in_order == 180 && unordered.lock().len() == 180)
        })?;
        rust.runtime.block_on(beside.shutdown())?;
        rust.runtime.block_on(consumer.shutdown())?;
        in_order(&seen.lock())?;
        rust.end();
        broker.stop(Kind::Ours)
    });
}

/// The traces of a message that was sent and consumed here are found by the official tool.
#[test]
fn mqadmin_finds_what_we_trace() {
    test(|dir| {
        let settings = [Broker::MIDDLE_FILES, &[("traceTopicEnable", "true")]].concat();
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, &settings)?;
        let rust = Rust::start(&names)?;
        rust.make_topic("Traced", 1)?;
        let traced = {
            let _inside = rust.runtime.enter();
            Client::start(ClientConfig::new(names.address()).with_trace())?
        };
        let id = rust.runtime.block_on(async {
            let producer = traced.producer(ProducerConfig::new("traced_p"));
            let receipt = producer
                .send(Message::new("Traced", "x").tag("A").key("k1"))
                .await?;
            let listener = |_| async { Outcome::Done };
            let consumer = PushConsumer::start(&traced, config("traced_c", "Traced"), listener).await?;
            while consumer.stats().consumed == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            traced.shutdown().await;
            anyhow::Ok(receipt.message_id().to_owned())
        })?;
        // Without a configuration of its log the tool does nothing.
        let home = dir.join("tools-home");
        std::fs::create_dir_all(home.join("conf"))?;
        std::fs::write(home.join("conf/logback_tools.xml"), "<configuration/>")?;
        wait_until("mqadmin to find both sides", || {
            let mut command = java::program("mqadmin")?;
            command.args(["queryMsgTraceById", "-n", &names.address(), "-i", &id]);
            let output = command.env("HOME", dir).env("ROCKETMQ_HOME", &home).output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            Ok(text.contains("traced_p") && text.contains("traced_c"))
        })?;
        rust.end();
        broker.stop(Kind::Ours)
    });
}

/// The first delivery of each message comes after those of all before it in its queue.
fn in_order(seen: &[(i32, i64, String)]) -> anyhow::Result<()> {
    let mut last: BTreeMap<i32, i64> = BTreeMap::new();
    for (queue, offset, body) in seen {
        let next = last.get(queue).map_or(0, |last| last + 1);
        anyhow::ensure!(
            *offset <= next,
            "queue {queue}: offset {offset} ({body}) came, {next} was next"
        );
        if *offset == next {
            last.insert(*queue, *offset);
        }
    }
    Ok(())
}

/// Our client on a runtime of its own.
pub(crate) struct Rust {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) client: Client,
    names: String,
}

impl Rust {
    pub(crate) fn start(names: &NameServer) -> anyhow::Result<Self> {
        Self::start_as(names, |config| config)
    }

    /// With settings of the client that `adjust` gives.
    pub(crate) fn start_as(
        names: &NameServer,
        adjust: impl FnOnce(ClientConfig) -> ClientConfig,
    ) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        let names = names.address();
        let client = client(&runtime, adjust(client_config(&names)))?;
        Ok(Self {
            runtime,
            client,
            names,
        })
    }

    pub(crate) fn make_topic(&self, topic: &str, queues: i32) -> anyhow::Result<()> {
        // Java's broker of release 5 serves before its name server knows of it.
        wait_until("a broker to be registered", || {
            let known = self.runtime.block_on(self.client.admin().cluster_info());
            Ok(known.is_ok_and(|known| !known.broker_addr_table.is_empty()))
        })?;
        self.runtime.block_on(async {
            let admin = self.client.admin();
            for broker in admin.cluster_info().await?.broker_addr_table.into_values() {
                let config = TopicConfig {
                    topic_name: topic.to_owned(),
                    read_queue_nums: queues,
                    write_queue_nums: queues,
                    ..TopicConfig::default()
                };
                admin.create_topic(&broker.broker_addrs[&0], &config).await?;
            }
            anyhow::Ok(())
        })?;
        wait_until("the topic to be routed", || {
            Ok(self.runtime.block_on(self.client.admin().route(topic)).is_ok())
        })
    }

    pub(crate) fn producer(&self, group: &str) -> Producer {
        let _inside = self.runtime.enter();
        self.client.producer(ProducerConfig::new(group))
    }

    /// A send to a queue is not tried elsewhere; a broker that is away is waited for.
    fn send_until_stored(&self, producer: &Producer, queue: &MessageQueue, body: &str) -> anyhow::Result<()> {
        wait_until("a send to be stored", || {
            let sent = producer.send_to(queue, Message::new(&queue.topic, body.to_owned()));
            Ok(self.runtime.block_on(sent).is_ok())
        })
    }

    pub(crate) fn end(self) {
        self.runtime.block_on(self.client.shutdown());
    }
}

fn client_config(names: &str) -> ClientConfig {
    let mut config = ClientConfig::new(names);
    config.heartbeat = Duration::from_secs(5);
    config.route_refresh = Duration::from_secs(1);
    config
}

fn client(runtime: &tokio::runtime::Runtime, config: ClientConfig) -> anyhow::Result<Client> {
    let _inside = runtime.enter();
    Ok(Client::start(config)?)
}

pub(crate) fn config(group: &str, topic: &str) -> PushConsumerConfig {
    let mut config = PushConsumerConfig::new(group)
        .subscribe(topic, Filter::All)
        .with_start(StartFrom::Oldest);
    config.save_every = Duration::from_millis(500);
    config.balance_every = Duration::from_secs(5);
    config
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("a String takes everything");
            text
        })
}

/// Singles, batches and bodies that are compressed; Java wants each of them by push, by pull, by id and by key.
fn rust_sends(dir: &Path, kind: Kind) -> anyhow::Result<()> {
    let (names, mut broker) = pair(dir, kind, kind, Broker::MIDDLE_FILES)?;
    let rust = Rust::start(&names)?;
    let topic = "FromRust";
    rust.make_topic(topic, 4)?;
    let producer = rust.producer("rust_sends");
    let mut ledger = String::new();
    for n in 0..60 {
        let size = if n % 10 == 9 { 5 } else { 1 };
        let messages: Vec<Message> = (0..size)
            .map(|k| {
                let filling = if n % 7 == 6 {
                    "x".repeat(6000)
                } else {
                    String::new()
                };
                Message::new(topic, format!("from rust {n}/{k} é世 {filling}"))
                    .tag(if n % 2 == 0 { "even" } else { "odd" })
                    .key(format!("rust-{n}-{k}"))
            })
            .collect();
        let receipt: SendReceipt = rust.runtime.block_on(async {
            match messages.as_slice() {
                [one] => producer.send(one.clone()).await,
                _ => producer.send_batch(messages.clone()).await,
            }
        })?;
        for (k, message) in messages.iter().enumerate() {
            let line = json!({
                "topic": topic,
                "broker": receipt.queue.broker_name,
                "queue": receipt.queue.queue_id,
                "offset": receipt.queue_offset + i64::try_from(k)?,
                "id": receipt.message_ids[k],
                "offsetId": receipt.offset_ids[k],
                "key": message.get("KEYS"),
                "sha256": hex(&message.body),
            });
            writeln!(ledger, "{line}")?;
        }
    }
    let path = dir.join("rust-ledger.jsonl");
    std::fs::write(&path, ledger)?;
    java::verify(dir, &names.address(), &path)?;
    rust.end();
    broker.stop(kind)
}

/// What a Java member printed.
fn printed(member: &Process, name: &str) -> Vec<Value> {
    let output = member.output();
    let lines = output
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| !line[name].is_null()).collect()
}

fn java_member(dir: &Path, names: &str, name: &str, group: &str, topic: &str) -> anyhow::Result<Process> {
    Process::start(
        name,
        dir,
        java::program("client")?
            .args([
                "member",
                "--namesrv",
                names,
                "--name",
                name,
                "--group",
                group,
                "--topic",
                topic,
            ])
            .arg("--work-dir")
            .arg(dir.join(format!("{name}-work"))),
    )
}

/// A Rust member and the queues it holds.
struct Member {
    client: Client,
    consumer: PushConsumer,
}

impl Member {
    fn queues(&self, topic: &str) -> BTreeSet<String> {
        let queues = self.consumer.queues();
        let of_topic = queues.iter().filter(|queue| queue.topic == topic);
        of_topic
            .map(|queue| format!("{}/{}", queue.broker_name, queue.queue_id))
            .collect()
    }
}

/// Members come, leave and crash while messages are sent; each time the queues are shared out without overlap or gap,
/// and in the end every message was consumed.
fn share(dir: &Path, kind: Kind) -> anyhow::Result<()> {
    const QUEUES: usize = 7;
    let (names, mut broker) = pair(dir, kind, kind, Broker::MIDDLE_FILES)?;
    let rust = Rust::start(&names)?;
    let (topic, group) = ("Shared", "shared_group");
    rust.make_topic(topic, i32::try_from(QUEUES)?)?;
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let join = |id: &str| -> anyhow::Result<Member> {
        let client = client(&rust.runtime, client_config(&rust.names).with_client_id(id))?;
        let noted = Arc::clone(&seen);
        let listener = move |delivery: Delivery| {
            for message in &delivery.messages {
                let body = message.body().expect("the body can be read");
                noted.lock().insert(String::from_utf8_lossy(&body).into_owned());
            }
            async { Outcome::Done }
        };
        let started = PushConsumer::start(&client, config(group, topic), listener);
        let consumer = rust.runtime.block_on(started)?;
        Ok(Member { client, consumer })
    };
    let shared = |what: &str, members: &[&Member], java: &[&Process]| {
        wait_until(what, || {
            let mut shares: Vec<BTreeSet<String>> =
                members.iter().map(|member| member.queues(topic)).collect();
            for process in java {
                let holds = printed(process, "holds").pop().map(|line| line["holds"].clone());
                let holds = holds.and_then(|holds| serde_json::from_value(holds).ok());
                shares.push(holds.unwrap_or_default());
            }
            let all: BTreeSet<&String> = shares.iter().flatten().collect();
            let sum: usize = shares.iter().map(BTreeSet::len).sum();
            let even = shares.iter().all(|share| share.len() >= QUEUES / shares.len());
            Ok(all.len() == QUEUES && sum == QUEUES && even)
        })
    };
    let producer = rust.producer("shared_p");
    let mut wanted = BTreeSet::new();
    let mut send = |round: &str| -> anyhow::Result<()> {
        for n in 0..50 {
            let body = format!("{round}-{n}");
            rust.runtime
                .block_on(producer.send(Message::new(topic, body.clone())))?;
            wanted.insert(body);
        }
        Ok(())
    };

    let first = join("127.0.0.1@rust-a")?;
    shared("all queues at the first member", &[&first], &[])?;
    send("alone")?;
    let mut java_one = java_member(dir, &rust.names, "java-one", group, topic)?;
    let second = join("127.0.0.1@rust-z")?;
    send("while others join")?;
    shared("three shares", &[&first, &second], &[&java_one])?;
    send("three")?;
    // A Rust member crashes: its connections close and no farewell is sent.
    drop(second);
    send("after a crash")?;
    shared("two shares", &[&first], &[&java_one])?;
    let third = join("127.0.0.1@rust-m")?;
    shared("three shares again", &[&first, &third], &[&java_one])?;
    send("three again")?;
    // One leaves in good order, Java's crashes.
    rust.runtime.block_on(third.consumer.shutdown())?;
    java_one.kill()?;
    send("after a leave and a crash")?;
    shared("all queues at one member again", &[&first], &[])?;
    wait_until("every message at some member", || {
        let mut got = seen.lock().clone();
        let bodies = printed(&java_one, "got").into_iter();
        got.extend(bodies.filter_map(|line| line["got"].as_str().map(str::to_owned)));
        Ok(wanted.is_subset(&got))
    })?;
    anyhow::ensure!(!printed(&java_one, "got").is_empty() && !seen.lock().is_empty());
    rust.runtime.block_on(first.consumer.shutdown())?;
    rust.runtime.block_on(first.client.shutdown());
    rust.end();
    broker.stop(kind)
}
