//! Our broker beside Java's, under the same load, in one run: CPU time a message, memory, system calls a message and the
//! time of an acknowledgement.
//!
//! `make bench-brokers` runs it; see `docs/benchmarks.md` for how to read it. Both brokers run all the time, on core 0;
//! the load, `ferroctl bench`, runs on core 1 and goes to one of them at a time, in the order ours, Java's, Java's, ours,
//! and so on. A figure is the median over the pairs, with the 95 % interval of the ratio. Everything acknowledged is
//! read back at the end, else the run is void.
//!
//! Settings, by environment: `PAIRS` (default 7), `SECONDS` a sample lasts about (default 5), `WARM` messages before the
//! first sample (default 500,000), `ONLY` names of cases separated by commas.

use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::{Value, json};

mod measure;
mod statistics;
#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../../tests/support/mod.rs"]
mod support;

use statistics::{interval, median};
use support::cluster::{Broker, Kind, NameServer, binary};

/// One kind of load.
struct Case {
    name: &'static str,
    /// What `ferroctl bench send` is told.
    args: &'static [&'static str],
    /// Which of the two pairs of brokers: the one that flushes when it likes, or the one that acknowledges what is on disk.
    sync: bool,
}

const CASES: &[Case] = &[
    Case {
        name: "single-64",
        args: &["-s", "1024", "--concurrency", "64"],
        sync: false,
    },
    Case {
        name: "single-1",
        args: &["-s", "1024", "--concurrency", "1"],
        sync: false,
    },
    Case {
        name: "batch-32",
        args: &["-s", "1024", "--concurrency", "4", "--batch", "32"],
        sync: false,
    },
    Case {
        name: "sync-64",
        args: &["-s", "1024", "--concurrency", "64"],
        sync: true,
    },
    Case {
        name: "sync-1",
        args: &["-s", "1024", "--concurrency", "1"],
        sync: true,
    },
];

const TOPIC: &str = "bench";

fn setting(name: &str, default: u64) -> anyhow::Result<u64> {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .with_context(|| format!("{name}={text} is not a number")),
        Err(_) => Ok(default),
    }
}

/// A broker with the name server that only it knows, so that the load finds one and no other.
struct Side {
    name: &'static str,
    names: NameServer,
    broker: Broker,
    acknowledged: u64,
}

impl Side {
    fn start(kind: Kind, sync: bool, dir: &Path) -> anyhow::Result<Self> {
        let name = match (kind, sync) {
            (Kind::Ours, false) => "ours",
            (Kind::Java | Kind::Java5, false) => "java",
            (Kind::Ours, true) => "ours-sync",
            (Kind::Java | Kind::Java5, true) => "java-sync",
        };
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir)?;
        let names = NameServer::start(Kind::Ours, &dir)?;
        let flush = if sync { "SYNC_FLUSH" } else { "ASYNC_FLUSH" };
        let mut broker = Broker::new("broker-a", &dir, &names, &[("flushDiskType", flush)])?;
        broker.start(kind)?;
        let side = Self {
            name,
            names,
            broker,
            acknowledged: 0,
        };
        side.ferroctl(&["topic", "create", TOPIC, "-r", "8", "-w", "8"])?;
        measure::pin(side.pid()?, 0)?;
        Ok(side)
    }

    fn pid(&self) -> anyhow::Result<u32> {
        Ok(self.broker.process.as_ref().context("the broker runs")?.id())
    }

    /// Runs ferroctl on core 1 and gives what it printed.
    fn ferroctl(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = Command::new("taskset")
            .args(["-c", "1"])
            .arg(binary("ferroctl")?)
            .args(["-n", &self.names.address()])
            .args(args)
            .output()
            .context("start ferroctl")?;
        anyhow::ensure!(
            output.status.success(),
            "ferroctl {args:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    fn send(&mut self, case: &Case, count: u64) -> anyhow::Result<Value> {
        let count_text = count.to_string();
        let args = [&["bench", "send", "-t", TOPIC, "--count", &count_text], case.args].concat();
        let report: Value = serde_json::from_str(self.ferroctl(&args)?.trim())?;
        anyhow::ensure!(report["sent"] == count, "not all was acknowledged: {report}");
        self.acknowledged += count;
        Ok(report)
    }

    fn sample(&mut self, case: &Case, count: u64) -> anyhow::Result<Sample> {
        let before = measure::cpu_nanos(self.pid()?)?;
        let report = self.send(case, count)?;
        let used = measure::cpu_nanos(self.pid()?)? - before;
        let number = |value: &Value| value.as_f64().context("the report has the number");
        Ok(Sample {
            cpu_micros: used as f64 / count as f64 / 1000.0,
            rate: number(&report["rate_per_second"])?,
            p50: number(&report["latency_ms"]["p50"])?,
            p999: number(&report["latency_ms"]["p999"])?,
        })
    }

    /// Everything acknowledged comes back.
    fn read_back(&self) -> anyhow::Result<()> {
        let count = self.acknowledged.to_string();
        self.ferroctl(&["bench", "receive", "-t", TOPIC, "--count", &count, "--from-start"])?;
        Ok(())
    }
}

struct Sample {
    cpu_micros: f64,
    rate: f64,
    p50: f64,
    p999: f64,
}

fn main() -> anyhow::Result<()> {
    let (pairs, seconds, warm) = (
        setting("PAIRS", 7)?,
        setting("SECONDS", 5)?,
        setting("WARM", 500_000)?,
    );
    let only = std::env::var("ONLY").unwrap_or_default();
    let chosen: Vec<&Case> = CASES
        .iter()
        .filter(|case| only.is_empty() || only.split(',').any(|name| name == case.name))
        .collect();
    anyhow::ensure!(!chosen.is_empty(), "ONLY={only} names no case");
    let dir = tempfile::Builder::new().prefix("ferromq-bench-").tempdir()?;
    for sync in [false, true] {
        let cases: Vec<&Case> = chosen.iter().copied().filter(|case| case.sync == sync).collect();
        if !cases.is_empty() {
            compare(&cases, sync, dir.path(), pairs, seconds, warm)?;
        }
    }
    Ok(())
}

fn compare(
    cases: &[&Case],
    sync: bool,
    dir: &Path,
    pairs: u64,
    seconds: u64,
    warm: u64,
) -> anyhow::Result<()> {
    let mut ours = Side::start(Kind::Ours, sync, dir)?;
    let mut java = Side::start(Kind::Java, sync, dir)?;
    memory("started", &ours, &java)?;
    for side in [&mut ours, &mut java] {
        eprintln!("{}: warming up with {warm} messages", side.name);
        side.send(&CASES[0], warm)?;
    }
    for case in cases {
        // The slower of the two decides how many messages fill a sample.
        let slower = [&mut ours, &mut java]
            .into_iter()
            .map(|side| side.sample(case, 2_000).map(|sample| sample.rate))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .fold(f64::INFINITY, f64::min);
        let count = ((slower * seconds as f64) as u64).max(2_000);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for pair in 0..pairs {
            eprintln!(
                "{}: pair {} of {pairs}, {count} messages each",
                case.name,
                pair + 1
            );
            if pair % 2 == 0 {
                left.push(ours.sample(case, count)?);
                right.push(java.sample(case, count)?);
            } else {
                right.push(java.sample(case, count)?);
                left.push(ours.sample(case, count)?);
            }
        }
        print(case.name, count, &left, &right);
        calls(case, &mut ours, &mut java, dir)?;
    }
    memory("after load", &ours, &java)?;
    ours.read_back()?;
    java.read_back()
}

fn print(case: &str, count: u64, ours: &[Sample], java: &[Sample]) {
    let figure = |name: &str, of: fn(&Sample) -> f64| {
        let (left, right): (Vec<f64>, Vec<f64>) =
            (ours.iter().map(of).collect(), java.iter().map(of).collect());
        let ratios: Vec<f64> = left.iter().zip(&right).map(|(a, b)| a / b).collect();
        let (ratio, low, high) = interval(&ratios);
        line(&json!({
            "case": case, "messages": count, "figure": name,
            "ours": rounded(median(&left)), "java": rounded(median(&right)),
            "ratio": rounded(ratio), "interval": [rounded(low), rounded(high)],
        }));
    };
    figure("cpu_us_per_message", |s| s.cpu_micros);
    figure("messages_per_second", |s| s.rate);
    figure("ack_p50_ms", |s| s.p50);
    figure("ack_p999_ms", |s| s.p999);
}

fn calls(case: &Case, ours: &mut Side, java: &mut Side, dir: &Path) -> anyhow::Result<()> {
    const COUNT: u64 = 5_000;
    let of = |side: &mut Side| -> anyhow::Result<f64> {
        let report = dir.join(side.name).join("strace.txt");
        let pid = side.pid()?;
        let calls = measure::system_calls(pid, &report, || side.send(case, COUNT).map(drop))?;
        Ok(calls as f64 / COUNT as f64)
    };
    let (left, right) = (of(ours)?, of(java)?);
    line(&json!({
        "case": case.name, "figure": "system_calls_per_message",
        "ours": rounded(left), "java": rounded(right), "ratio": rounded(left / right),
    }));
    Ok(())
}

fn memory(when: &str, ours: &Side, java: &Side) -> anyhow::Result<()> {
    let (left, right) = (
        measure::memory_kib(ours.pid()?)?,
        measure::memory_kib(java.pid()?)?,
    );
    for (name, a, b) in [
        ("anonymous_kib", left.0, right.0),
        ("resident_kib", left.1, right.1),
    ] {
        line(&json!({
            "case": when, "figure": name, "ours": a, "java": b, "ratio": rounded(a as f64 / b as f64),
        }));
    }
    Ok(())
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn line(value: &Value) {
    println!("{value}");
}
