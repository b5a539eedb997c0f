//! Our name server beside Java's in one run: `make bench-namesrv`. Wants a quiet machine.
//!
//! Brokers register over connections of their own, each topic at a few of them, and one broker has all topics. Then:
//! how many routes a second of CPU time gives, how long a route takes with many clients connected that each ask once a
//! second, what a registration of all topics costs when something changed and when nothing did, and the memory in use.
//!
//! The CPU time is the server's own, from `/proc`, so that the load beside it does not count; latencies do include the
//! load's share of the machine. Sizes come from the environment: `BENCH_BROKERS` 1000, `BENCH_TOPICS` 10000,
//! `BENCH_SPREAD` 4 (brokers of a topic), `BENCH_CLIENTS` 10000 (less if the limit of open files is lower),
//! `BENCH_SECONDS` 10.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::BytesMut;
use ferromq_protocol::body::{DataVersion, RegisterBrokerBody, TopicConfig, TopicConfigTable};
use ferromq_protocol::crc::crc31;
use ferromq_protocol::{Command, fastjson, frame, header};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command as Process};
use tokio::task::JoinSet;

#[derive(Debug, Clone, Copy)]
struct Size {
    brokers: usize,
    topics: usize,
    spread: usize,
    clients: usize,
    seconds: u64,
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or(otherwise)
}

impl Size {
    fn from_environment() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        // Brokers' connections, and what a process needs beside.
        let brokers = number("BENCH_BROKERS", 1000);
        let room = files.current.map_or(usize::MAX, |n| n as usize) - brokers - 200;
        Self {
            brokers,
            topics: number("BENCH_TOPICS", 10_000),
            spread: number("BENCH_SPREAD", 4),
            clients: number("BENCH_CLIENTS", 10_000).min(room),
            seconds: number("BENCH_SECONDS", 10) as u64,
        }
    }
}

/// A connection with one question at a time.
struct Line {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Line {
    async fn to(port: u16) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .await
            .context("connect to the name server")?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            answer: Vec::new(),
        })
    }

    async fn send(&mut self, frame: &[u8]) -> anyhow::Result<()> {
        Ok(self.stream.write_all(frame).await?)
    }

    /// Reads an answer whole; looks at nothing in it but that it says success.
    async fn receive(&mut self) -> anyhow::Result<()> {
        let length = self.stream.read_u32().await.context("read an answer")? as usize;
        self.answer.resize(length, 0);
        self.stream.read_exact(&mut self.answer).await?;
        let head = &self.answer[4..];
        ensure!(
            head.starts_with(b"{\"code\":0,"),
            "the answer is {}",
            String::from_utf8_lossy(&head[..head.len().min(300)])
        );
        Ok(())
    }

    async fn ask(&mut self, frame: &[u8]) -> anyhow::Result<()> {
        self.send(frame).await?;
        self.receive().await
    }
}

fn encode(command: &Command) -> Vec<u8> {
    let mut out = BytesMut::new();
    frame::encode(command, &mut out);
    out.to_vec()
}

fn topic(n: usize) -> String {
    format!("bench-topic-{n:06}")
}

fn route(n: usize) -> Vec<u8> {
    let topic = topic(n);
    encode(&Command::request(105).with_header(&header::GetRouteInfo {
        topic: &topic,
        accept_standard_json_only: true,
    }))
}

fn version(counter: i64) -> DataVersion {
    DataVersion {
        counter,
        timestamp: 1_700_000_000_000,
    }
}

fn identity(n: usize) -> (String, String) {
    (
        format!("bench-broker-{n:04}"),
        format!("10.{}.{}.1:10911", n / 250, n % 250),
    )
}

fn registration(broker: usize, topics: impl Iterator<Item = usize>, counter: i64) -> Vec<u8> {
    let (name, addr) = identity(broker);
    let table = topics.map(|n| (topic(n), TopicConfig::new(topic(n), 4, 4, 6)));
    let body = RegisterBrokerBody {
        filter_server_list: Some(Vec::new()),
        topic_config_table: TopicConfigTable {
            data_version: version(counter),
            topic_config_table: table.collect(),
        },
    };
    let body = body.encode(false);
    let head = header::RegisterBroker {
        broker_name: &name,
        broker_addr: &addr,
        cluster_name: "BenchCluster",
        ha_server_addr: "10.0.0.1:10912",
        broker_id: 0,
        compressed: false,
        body_crc32: crc31(&body),
    };
    encode(&Command::request(103).with_header(&head).with_body(body))
}

fn question_of_version(broker: usize, counter: i64) -> Vec<u8> {
    let (name, addr) = identity(broker);
    let head = header::BrokerIdentity {
        broker_name: &name,
        broker_addr: &addr,
        cluster_name: "BenchCluster",
        broker_id: 0,
    };
    let body = fastjson::to_vec(&version(counter));
    encode(&Command::request(322).with_header(&head).with_body(body))
}

/// A name server in a process of its own.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    async fn start(whose: &str, home: &Path) -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let port = free_port()?;
        std::fs::create_dir_all(home)?;
        let (mut command, ready) = if whose == "ours" {
            let conf = home.join("namesrv.conf");
            let text = format!(
                "bindAddress=127.0.0.1\nlistenPort={port}\nlogLevel=warn\nkvConfigPath={}/kv.json\n",
                home.display()
            );
            std::fs::write(&conf, text)?;
            let mut command = Process::new(PathBuf::from(env!("CARGO_BIN_EXE_ferromq-namesrv")));
            command.arg("-c").arg(conf);
            (command, "boot success")
        } else {
            let mut command = Process::new(root.join("e2e/java/run.sh"));
            command
                .args(["peer", "namesrv", "--port", &port.to_string(), "--home"])
                .arg(home);
            (command, "\"ready\"")
        };
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command
            .kill_on_drop(true)
            .spawn()
            .context("start a name server")?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        loop {
            let line = lines.next_line().await?.context("the name server ended")?;
            if line.contains(ready) {
                break;
            }
        }
        Ok(Self { child, port })
    }

    fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().context("the name server has ended")
    }

    /// CPU time used so far, milliseconds.
    fn cpu(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?))?;
        let rest = stat.rsplit_once(')').context("a process has a name")?.1;
        let mut fields = rest.split_whitespace().skip(11);
        let mut ticks = || -> anyhow::Result<f64> { Ok(fields.next().context("a field")?.parse::<f64>()?) };
        Ok((ticks()? + ticks()?) * 10.0)
    }

    fn resident_mib(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status
            .lines()
            .find(|l| l.starts_with("VmRSS:"))
            .context("memory in use")?;
        let kib: f64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
        Ok(kib / 1024.0)
    }
}

fn free_port() -> anyhow::Result<u16> {
    // Below the ports of outgoing connections, of which there will be many.
    for port in (20_000 + std::process::id() as u16 % 1000)..32_000 {
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    anyhow::bail!("no port is free")
}

#[derive(Debug, Default)]
struct Figures {
    rows: Vec<(String, f64)>,
}

impl Figures {
    fn add(&mut self, what: impl Into<String>, value: f64) {
        self.rows.push((what.into(), value));
    }
}

async fn measure(whose: &str, size: Size, home: &Path) -> anyhow::Result<Figures> {
    let server = Server::start(whose, home).await?;
    let mut figures = Figures::default();
    figures.add("memory, empty, MiB", server.resident_mib()?);

    let mut brokers = Vec::new();
    for n in 0..size.brokers {
        let mut line = Line::to(server.port).await?;
        // Topic t is at brokers t, t+1, … of all.
        let topics =
            (0..size.topics).filter(|t| (n + size.brokers - t % size.brokers) % size.brokers < size.spread);
        line.ask(&registration(n, topics, 1)).await?;
        brokers.push(line);
    }
    let all = size.brokers;
    let mut large = Line::to(server.port).await?;
    let mut full = Vec::new();
    for counter in 1..=40 {
        full.push(registration(all, 0..size.topics, counter));
    }
    let (before, start) = (server.cpu()?, Instant::now());
    for frame in &full {
        large.ask(frame).await?;
    }
    figures.add(
        "registration of all topics, changed, CPU ms",
        (server.cpu()? - before) / 40.0,
    );
    figures.add(
        "the same, elapsed ms",
        start.elapsed().as_secs_f64() * 1000.0 / 40.0,
    );
    let before = server.cpu()?;
    for _ in 0..40 {
        large.ask(&full[39]).await?;
    }
    figures.add(
        "registration of all topics, unchanged, CPU ms",
        (server.cpu()? - before) / 40.0,
    );
    let question = question_of_version(all, 40);
    let before = server.cpu()?;
    for _ in 0..20_000 {
        large.ask(&question).await?;
    }
    figures.add(
        "question of version, unchanged, CPU µs",
        (server.cpu()? - before) * 1000.0 / 20_000.0,
    );
    figures.add("memory with all tables, MiB", server.resident_mib()?);

    figures.add("routes per CPU second", throughput(&server, size).await?);
    let mut latencies = latency(&server, size).await?;
    latencies.sort_unstable();
    let at = |part: f64| f64::from(latencies[((latencies.len() - 1) as f64 * part) as usize]);
    figures.add(format!("route, {} clients, p50 µs", size.clients), at(0.5));
    figures.add(format!("route, {} clients, p99 µs", size.clients), at(0.99));
    figures.add(
        format!("memory with {} clients, MiB", size.clients),
        server.resident_mib()?,
    );
    Ok(figures)
}

/// Few connections that always have eight questions out.
async fn throughput(server: &Server, size: Size) -> anyhow::Result<f64> {
    const LINES: usize = 32;
    const AHEAD: usize = 8;
    let mut total = 0;
    let mut cpu = 0.0;
    // The first round is for the JIT and for routes that are built once.
    for seconds in [size.seconds.min(5), size.seconds] {
        let before = server.cpu()?;
        let end = Instant::now() + Duration::from_secs(seconds);
        let mut tasks = JoinSet::new();
        for n in 0..LINES {
            let mut line = Line::to(server.port).await?;
            let frames: Vec<_> = (0..200)
                .map(|i| route((n * 313 + i * 37) % size.topics))
                .collect();
            tasks.spawn(async move {
                let mut count = 0u64;
                for i in 0..AHEAD {
                    line.send(&frames[i % frames.len()]).await?;
                }
                while Instant::now() < end {
                    line.receive().await?;
                    line.send(&frames[count as usize % frames.len()]).await?;
                    count += 1;
                }
                anyhow::Ok(count)
            });
        }
        total = 0;
        while let Some(count) = tasks.join_next().await {
            total += count??;
        }
        cpu = server.cpu()? - before;
    }
    Ok(total as f64 / (cpu / 1000.0))
}

/// Many connections that each ask once a second; microseconds of each question.
async fn latency(server: &Server, size: Size) -> anyhow::Result<Vec<u32>> {
    let mut tasks = JoinSet::new();
    let mut lines = Vec::new();
    for _ in 0..size.clients {
        lines.push(Line::to(server.port).await?);
    }
    for (n, mut line) in lines.into_iter().enumerate() {
        let frame = route(n % size.topics);
        let first = Duration::from_micros(n as u64 * 1_000_000 / size.clients as u64);
        tasks.spawn(async move {
            let mut ticks =
                tokio::time::interval_at(tokio::time::Instant::now() + first, Duration::from_secs(1));
            let mut taken = Vec::new();
            for _ in 0..size.seconds {
                ticks.tick().await;
                let start = Instant::now();
                line.ask(&frame).await?;
                taken.push(start.elapsed().as_micros() as u32);
            }
            anyhow::Ok(taken)
        });
    }
    let mut all = Vec::new();
    while let Some(taken) = tasks.join_next().await {
        all.extend(taken??);
    }
    Ok(all)
}

fn main() -> anyhow::Result<()> {
    let size = Size::from_environment();
    println!("{size:?}");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let home = tempfile::tempdir()?;
    let mut results = Vec::new();
    for whose in ["ours", "javas"] {
        let home = home.path().join(whose);
        let figures = runtime
            .block_on(measure(whose, size, &home))
            .with_context(|| format!("measure {whose}"))?;
        results.push(figures);
    }
    println!("| figure | ours | Java's | Java's / ours |\n| --- | --- | --- | --- |");
    for ((what, ours), (_, javas)) in results[0].rows.iter().zip(&results[1].rows) {
        println!(
            "| {what} | {ours:.2} | {javas:.2} | {:.2} |",
            javas / ours.max(0.001)
        );
    }
    Ok(())
}
