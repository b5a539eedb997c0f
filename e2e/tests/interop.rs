//! FerroMQ and the official Java programs, on loopback: clients and tools 4.9 against our servers, our broker next to
//! Java's in one cluster, and stores that change hands in both directions, after clean stops and after kill -9.
//!
//! Needs a JDK with Maven, and our binaries: `cargo build -p ferromq-broker -p ferromq-namesrv` first.

use std::path::Path;

use anyhow::Context as _;

mod support;

use support::cluster::{Broker, Kind, NameServer};
use support::java::Headers;
use support::{copy_dir, java, wait_until};

/// A directory that is kept when its test fails.
struct Scratch(Option<tempfile::TempDir>);

impl Scratch {
    fn new() -> anyhow::Result<Self> {
        Ok(Self(Some(
            tempfile::Builder::new().prefix("ferromq-interop-").tempdir()?,
        )))
    }

    fn path(&self) -> &Path {
        self.0.as_ref().expect("there until dropped").path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take()
            && std::thread::panicking()
        {
            eprintln!("kept for a look: {}", dir.keep().display());
        }
    }
}

/// Runs `body` and turns its error into a panic while its processes still live, so that they print their logs.
fn test(body: impl FnOnce(&Path) -> anyhow::Result<()>) {
    let scratch = Scratch::new().expect("make a directory");
    if let Err(error) = body(scratch.path()) {
        panic!("{error:?}\nlogs:\n{}", logs(scratch.path()));
    }
}

/// The ends of all logs of a test.
fn logs(dir: &Path) -> String {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "out" || e == "err"))
        .collect();
    names.sort();
    let mut all = String::new();
    for path in names {
        let text = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        all.extend(["--- ", &path.to_string_lossy(), "\n", &tail, "\n"]);
    }
    all
}

/// A name server and one broker of these kinds, running.
fn pair(
    dir: &Path,
    names: Kind,
    broker: Kind,
    settings: &[(&str, &str)],
) -> anyhow::Result<(NameServer, Broker)> {
    let name_server = NameServer::start(names, dir)?;
    let mut b = Broker::new("broker-a", dir, &name_server, settings)?;
    b.start(broker)?;
    Ok((name_server, b))
}

#[test]
fn the_official_client_passes_every_case() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::MIDDLE_FILES)?;
        java::suite("client", dir, &names.address(), "all", Headers::Json)?;
        broker.stop(Kind::Ours)
    });
}

#[test]
fn the_official_client_passes_every_case_with_binary_headers() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::MIDDLE_FILES)?;
        java::suite("client", dir, &names.address(), "all", Headers::Binary)?;
        broker.stop(Kind::Ours)
    });
}

#[test]
fn the_official_tools_pass_every_case() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::MIDDLE_FILES)?;
        java::suite("admin", dir, &names.address(), "all", Headers::Json)?;
        broker.stop(Kind::Ours)
    });
}

/// The suites are no invention of ours: Java's own servers pass them.
#[test]
fn javas_own_servers_pass_the_same_suites() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Java, Kind::Java, Broker::MIDDLE_FILES)?;
        java::suite("client", dir, &names.address(), "all", Headers::Json)?;
        java::suite("admin", dir, &names.address(), "all", Headers::Json)?;
        broker.stop(Kind::Java)
    });
}

/// Our broker and Java's serve one cluster side by side, under our name server.
#[test]
fn a_mixed_cluster_under_our_name_server() {
    test(|dir| mixed(dir, Kind::Ours));
}

/// The same under Java's name server.
#[test]
fn a_mixed_cluster_under_javas_name_server() {
    test(|dir| mixed(dir, Kind::Java));
}

fn mixed(dir: &Path, names: Kind) -> anyhow::Result<()> {
    let name_server = NameServer::start(names, dir)?;
    let mut ours = Broker::new("broker-ours", dir, &name_server, Broker::MIDDLE_FILES)?;
    let mut theirs = Broker::new("broker-java", dir, &name_server, Broker::MIDDLE_FILES)?;
    ours.start(Kind::Ours)?;
    theirs.start(Kind::Java)?;
    java::suite("client", dir, &name_server.address(), "core", Headers::Json)?;
    ours.stop(Kind::Ours)?;
    theirs.stop(Kind::Java)
}

/// A name server that forgot everything hears of the brokers again.
#[test]
fn a_new_name_server_is_told_everything() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::SMALL_FILES)?;
        let ledger = dir.join("ledger.jsonl");
        java::send(dir, &names.address(), &ledger, 50)?;
        let names = names.replace(Kind::Ours, dir)?;
        java::verify(dir, &names.address(), &ledger)?;
        broker.stop(Kind::Ours)
    });
}

#[test]
fn nothing_is_lost_by_a_graceful_restart() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::SMALL_FILES)?;
        let ledger = dir.join("ledger.jsonl");
        java::send(dir, &names.address(), &ledger, 1500)?;
        broker.stop(Kind::Ours)?;

        let copy = dir.join("copy");
        copy_dir(&broker.store(), &copy)?;
        let reading = java::read_store(dir, &copy, &broker.conf)?;
        anyhow::ensure!(!reading.abort, "a clean stop leaves no abort file");
        java::has_all(&reading, &java::ledger(&ledger)?)?;

        broker.start(Kind::Ours)?;
        java::verify(dir, &names.address(), &ledger)?;
        broker.stop(Kind::Ours)
    });
}

/// Killed in the middle of sends, again and again on one store: what was acknowledged is there, for Java's store classes
/// and for us.
#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::SMALL_FILES)?;
        let ledgers: Vec<_> = (0..3)
            .map(|round| dir.join(format!("ledger-{round}.jsonl")))
            .collect();
        for (round, ledger) in ledgers.iter().enumerate() {
            kill_while_sending(dir, &names, &mut broker, ledger)?;
            let copy = dir.join(format!("copy-{round}"));
            copy_dir(&broker.store(), &copy)?;
            let reading = java::read_store(dir, &copy, &broker.conf)?;
            anyhow::ensure!(reading.abort, "kill -9 leaves the abort file");
            java::has_all(&reading, &java::ledger(ledger)?)?;
            broker.start(Kind::Ours)?;
        }
        for ledger in &ledgers {
            java::verify(dir, &names.address(), ledger)?;
        }
        broker.stop(Kind::Ours)?;

        // What our recovery made of it is a clean store for Java as well.
        let copy = dir.join("copy");
        copy_dir(&broker.store(), &copy)?;
        let reading = java::read_store(dir, &copy, &broker.conf)?;
        anyhow::ensure!(!reading.abort, "the stop after recovery is clean");
        for ledger in &ledgers {
            java::has_all(&reading, &java::ledger(ledger)?)?;
        }
        Ok(())
    });
}

fn kill_while_sending(
    dir: &Path,
    names: &NameServer,
    broker: &mut Broker,
    ledger: &Path,
) -> anyhow::Result<()> {
    let mut sending = java::start_sending(dir, &names.address(), ledger, 1_000_000)?;
    wait_until("600 acknowledged messages", || {
        if let Some(status) = sending.try_wait()? {
            anyhow::bail!("sending ended with {status}\n{}", sending.tail());
        }
        Ok(std::fs::read_to_string(ledger).is_ok_and(|text| text.lines().count() > 600))
    })?;
    broker.kill()?;
    let status = sending.wait()?;
    anyhow::ensure!(status.success(), "the sender gave up badly\n{}", sending.tail());
    Ok(())
}

#[test]
fn javas_slave_follows_our_master() {
    test(|dir| replicate(dir, Kind::Ours, Kind::Java));
}

#[test]
fn our_slave_follows_javas_master() {
    test(|dir| replicate(dir, Kind::Java, Kind::Ours));
}

/// The slave's log is the master's, byte by byte; and once the master is killed in the middle of sends, the slave has
/// all that was acknowledged.
fn replicate(dir: &Path, of_master: Kind, of_slave: Kind) -> anyhow::Result<()> {
    let names = NameServer::start(Kind::Ours, dir)?;
    let group = ("brokerName", "broker-a");
    let settings = [Broker::SMALL_FILES, &[group, ("brokerRole", "SYNC_MASTER")]].concat();
    let mut master = Broker::new("master", dir, &names, &settings)?;
    master.start(of_master)?;
    let settings = [
        Broker::SMALL_FILES,
        &[group, ("brokerRole", "SLAVE"), ("brokerId", "1")],
    ]
    .concat();
    let mut slave = Broker::new("slave", dir, &names, &settings)?;
    slave.start(of_slave)?;

    // Until the slave counts, sends are answered with SLAVE_NOT_AVAILABLE. Java's first report takes five seconds.
    let probe = dir.join("probe.jsonl");
    wait_until("the slave to count", || {
        Ok(java::send(dir, &names.address(), &probe, 10).is_ok())
    })?;
    let before = dir.join("before.jsonl");
    java::send(dir, &names.address(), &before, 1500)?;
    wait_until("the slave's log to be the master's", || {
        Ok(log_of(&slave)? == log_of(&master)?)
    })?;
    let ledger = dir.join("ledger.jsonl");
    kill_while_sending(dir, &names, &mut master, &ledger)?;
    slave.stop(of_slave)?;
    let copy = dir.join("copy");
    copy_dir(&slave.store(), &copy)?;
    let reading = java::read_store(dir, &copy, &slave.conf)?;
    java::has_all(&reading, &java::ledger(&before)?)?;
    java::has_all(&reading, &java::ledger(&ledger)?)
}

/// The bytes of all log files, without the zeros that they were allocated with.
fn log_of(broker: &Broker) -> anyhow::Result<Vec<u8>> {
    let mut files: Vec<_> = std::fs::read_dir(broker.store().join("commitlog"))?
        .collect::<Result<Vec<_>, _>>()?
        .iter()
        .map(std::fs::DirEntry::path)
        .collect();
    files.sort();
    let mut bytes = Vec::new();
    for file in files {
        bytes.extend(std::fs::read(file)?);
    }
    bytes.truncate(
        bytes
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1),
    );
    Ok(bytes)
}

#[test]
fn our_broker_takes_over_a_store_of_javas_broker() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Java, Broker::SMALL_FILES)?;
        let ledger = dir.join("ledger.jsonl");
        java::send(dir, &names.address(), &ledger, 600)?;
        broker.stop(Kind::Java)?;
        broker.start(Kind::Ours)?;
        java::verify(dir, &names.address(), &ledger)?;
        // And writes on where Java stopped.
        let more = dir.join("more.jsonl");
        java::send(dir, &names.address(), &more, 200)?;
        broker.stop(Kind::Ours)?;
        // Java takes it back.
        broker.start(Kind::Java)?;
        java::verify(dir, &names.address(), &ledger)?;
        java::verify(dir, &names.address(), &more)?;
        broker.stop(Kind::Java)
    });
}

#[test]
fn our_broker_recovers_a_store_of_a_killed_java_broker() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Java, Broker::SMALL_FILES)?;
        let ledger = dir.join("ledger.jsonl");
        kill_while_sending(dir, &names, &mut broker, &ledger)?;
        broker.start(Kind::Ours)?;
        java::verify(dir, &names.address(), &ledger)?;
        broker.stop(Kind::Ours).context("stop after recovery")
    });
}

/// Sample stores that Java's broker wrote, one stopped cleanly and one killed: each message, group offset and key look-up
/// that Java's broker told before its end is told by ours.
#[test]
fn sample_stores_of_javas_broker_are_served() {
    test(|dir| {
        for kind in ["clean", "crash"] {
            sample_store(&dir.join(kind), kind).with_context(|| format!("the {kind} store"))?;
        }
        Ok(())
    });
}

fn sample_store(dir: &Path, kind: &str) -> anyhow::Result<()> {
    /// The ids in the stores hold this port.
    const PORT: u16 = 12911;
    std::fs::create_dir_all(dir)?;
    let fixtures = support::root().join("crates/store/tests/fixtures/java-store");
    let names = NameServer::start(Kind::Ours, dir)?;
    let mut broker = Broker::on_port("broker-fx", dir, &names, Broker::SAMPLE_STORE, PORT)?;
    let archive = std::fs::File::open(fixtures.join(format!("{kind}.tar.zst")))?;
    tar::Archive::new(zstd::Decoder::new(archive)?).unpack(dir)?;
    std::fs::remove_dir_all(broker.store())?;
    std::fs::rename(dir.join("store"), broker.store())?;
    broker.start(Kind::Ours)?;
    let file = |suffix: &str| fixtures.join(format!("{kind}.{suffix}"));
    java::fixture(
        dir,
        &names.address(),
        &file("messages.jsonl"),
        &file("manifest.json"),
    )?;
    broker.stop(Kind::Ours)
}

/// What the protocol's tests read is what the generator writes today.
#[test]
fn golden_files_are_up_to_date() {
    test(|dir| {
        let status = java::program("golden")?.arg("--out").arg(dir).status()?;
        anyhow::ensure!(status.success(), "the generator ended with {status}");
        let committed = support::root().join("e2e/java/golden");
        for entry in std::fs::read_dir(&committed)? {
            let name = entry?.file_name();
            anyhow::ensure!(
                std::fs::read(committed.join(&name))? == std::fs::read(dir.join(&name))?,
                "{} is stale: run e2e/java/run.sh golden --out e2e/java/golden",
                name.display()
            );
        }
        Ok(())
    });
}
