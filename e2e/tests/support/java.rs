//! The programs of `e2e/java`: the official clients and tools, Java's own servers, its store classes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use anyhow::Context as _;
use serde_json::Value;

use super::process::Process;
use super::root;

/// One of the programs, ready to be given arguments. The first call builds them all.
pub(crate) fn program(name: &str) -> anyhow::Result<Command> {
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let script = root().join("e2e/java/build.sh");
        match Command::new(&script).output() {
            Ok(o) if o.status.success() => Ok(()),
            Ok(o) => Err(format!(
                "{} failed: {}",
                script.display(),
                String::from_utf8_lossy(&o.stderr)
            )),
            Err(e) => Err(format!("start {}: {e}", script.display())),
        }
    });
    if let Err(why) = built {
        anyhow::bail!("{why}");
    }
    let mut command = Command::new(root().join("e2e/java/run.sh"));
    command.arg(name);
    Ok(command)
}

/// How the client writes the headers of its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Its default.
    Json,
    /// The form that it calls ROCKETMQ.
    Binary,
}

/// Runs a suite (`client` or `admin`) to its end; an error names each case that failed and why.
pub(crate) fn suite(
    kind: &str,
    dir: &Path,
    name_server: &str,
    cases: &str,
    headers: Headers,
) -> anyhow::Result<usize> {
    let mut command = program(kind)?;
    command
        .args(["suite", "--namesrv", name_server, "--cases", cases])
        .arg("--work-dir")
        .arg(dir.join(format!("{kind}-work")));
    if headers == Headers::Binary {
        command.env("ROCKETMQ_SERIALIZE_TYPE", "ROCKETMQ");
    }
    let mut run = Process::start(&format!("{kind}-suite"), dir, &mut command)?;
    let status = run.wait()?;
    let lines: Vec<Value> = run
        .output()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let failed: Vec<String> = lines
        .iter()
        .filter(|line| line["ok"] == false)
        .map(|line| format!("{}: {}", line["case"], line["detail"]))
        .collect();
    anyhow::ensure!(failed.is_empty(), "cases failed:\n{}", failed.join("\n"));
    anyhow::ensure!(status.success(), "the suite ended with {status}\n{}", run.tail());
    let passed = lines.iter().filter(|line| line["ok"] == true).count();
    anyhow::ensure!(passed > 0, "no case ran\n{}", run.tail());
    Ok(passed)
}

/// Starts sending; what is acknowledged goes to `ledger`, an entry at a time.
pub(crate) fn start_sending(
    dir: &Path,
    name_server: &str,
    ledger: &Path,
    count: u32,
) -> anyhow::Result<Process> {
    Process::start(
        "send-phase",
        dir,
        program("client")?
            .args(["send-phase", "--namesrv", name_server, "--stop-on-error", "true"])
            .args(["--count", &count.to_string()])
            .arg("--ledger")
            .arg(ledger)
            .arg("--work-dir")
            .arg(dir.join("send-work")),
    )
}

/// Sends `count` times and wants every answer to be good.
pub(crate) fn send(dir: &Path, name_server: &str, ledger: &Path, count: u32) -> anyhow::Result<()> {
    let mut phase = start_sending(dir, name_server, ledger, count)?;
    let status = phase.wait()?;
    let output = phase.output();
    anyhow::ensure!(
        status.success() && output.contains("\"stopped\":null"),
        "sending failed\n{}",
        phase.tail()
    );
    Ok(())
}

/// Wants every entry of the ledger back: by push, by pull, by id and by key.
pub(crate) fn verify(dir: &Path, name_server: &str, ledger: &Path) -> anyhow::Result<()> {
    verify_with(dir, name_server, ledger, true)
}

/// The same where no master is left: by push and by key. By pull and by id Java's clients ask masters only.
pub(crate) fn verify_at_slaves(dir: &Path, name_server: &str, ledger: &Path) -> anyhow::Result<()> {
    verify_with(dir, name_server, ledger, false)
}

fn verify_with(dir: &Path, name_server: &str, ledger: &Path, masters: bool) -> anyhow::Result<()> {
    let mut phase = Process::start(
        "verify-phase",
        dir,
        program("client")?
            .args(["verify-phase", "--namesrv", name_server])
            .args(["--masters", if masters { "true" } else { "false" }])
            .arg("--ledger")
            .arg(ledger)
            .arg("--work-dir")
            .arg(dir.join("verify-work")),
    )?;
    let status = phase.wait()?;
    anyhow::ensure!(
        status.success(),
        "what the ledger has did not come back\n{}",
        phase.tail()
    );
    Ok(())
}

/// Wants everything that a sample store is known to hold.
pub(crate) fn fixture(dir: &Path, name_server: &str, messages: &Path, manifest: &Path) -> anyhow::Result<()> {
    let mut phase = Process::start(
        "fixture-phase",
        dir,
        program("client")?
            .args(["fixture-phase", "--namesrv", name_server])
            .arg("--messages")
            .arg(messages)
            .arg("--manifest")
            .arg(manifest)
            .arg("--work-dir")
            .arg(dir.join("fixture-work")),
    )?;
    let status = phase.wait()?;
    anyhow::ensure!(
        status.success(),
        "the sample store is not served as it was written\n{}",
        phase.tail()
    );
    Ok(())
}

/// A store as Java's own classes read it.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Whether the mark of an unclean stop was there.
    pub abort: bool,
    /// Messages by offset message id.
    pub messages: BTreeMap<String, Value>,
}

/// Opens `store` (a copy: opening writes to it) with the settings of `conf`. Every queue entry must lead to its message
/// and every key of a message must find it.
pub(crate) fn read_store(dir: &Path, store: &Path, conf: &Path) -> anyhow::Result<Reading> {
    let mut reader = Process::start(
        "store-reader",
        dir,
        program("store-reader")?
            .args(["--check-keys", "true", "--store"])
            .arg(store)
            .arg("--conf")
            .arg(conf),
    )?;
    let status = reader.wait()?;
    anyhow::ensure!(
        status.success(),
        "Java's store classes are not content with {}\n{}",
        store.display(),
        reader.tail()
    );
    let mut reading = Reading {
        abort: false,
        messages: BTreeMap::new(),
    };
    for line in reader.output().lines() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("the reader printed {line}"))?;
        if let Some(id) = line["offsetId"].as_str() {
            reading.messages.insert(id.to_owned(), line);
        } else if line["opened"].is_string() {
            reading.abort = line["abort"] == true;
        }
    }
    Ok(reading)
}

/// Entries of a ledger.
pub(crate) fn ledger(path: &Path) -> anyhow::Result<Vec<Value>> {
    std::fs::read_to_string(path)
        .with_context(|| format!("read {}", path.display()))?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("ledger entry {line}")))
        .collect()
}

/// Every entry of the ledger is in the store at its place, with its body and key.
pub(crate) fn has_all(reading: &Reading, entries: &[Value]) -> anyhow::Result<()> {
    for entry in entries {
        let id = entry["offsetId"].as_str().context("an entry has an id")?;
        let found = reading
            .messages
            .get(id)
            .with_context(|| format!("Java's store classes do not find {entry}"))?;
        for name in ["topic", "queue", "offset", "sha256", "id"] {
            anyhow::ensure!(
                found[name] == entry[name],
                "{name} of {entry} is {} in the store",
                found[name]
            );
        }
        anyhow::ensure!(
            found["properties"]["KEYS"] == entry["key"],
            "the key of {entry} in the store is {}",
            found["properties"]["KEYS"]
        );
    }
    Ok(())
}
