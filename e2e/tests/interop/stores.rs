//! Stores that change hands in both directions, after clean stops and after kill -9.

use std::path::Path;

use anyhow::Context as _;
use ferromq_client::{Message, MessageQueue};

use crate::common::{pair, test};
use crate::rust_client::Rust;
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::java;
use crate::support::{self, copy_dir, wait_until};

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

pub(crate) fn kill_while_sending(
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

/// Ours, Java's, ours, three times, each appending to what the other left. After each turn Java's store classes read all of it:
/// messages, queue entries with their extensions, and keys; at the end our broker serves all of it, and delayed messages came
/// once each.
#[test]
fn a_store_changes_hands_three_times() {
    const TURNS: i64 = 6;
    const EACH: i64 = 5;
    test(|dir| {
        let extensions = [
            ("enableConsumeQueueExt", "true"),
            ("mappedFileSizeConsumeQueueExt", "4096"),
        ];
        let settings = [Broker::SMALL_FILES, &extensions].concat();
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, &settings)?;
        let rust = Rust::start(&names)?;
        rust.make_topic("Delayed", 1)?;
        let producer = rust.producer("delayed_p");
        let mut ledgers = Vec::new();
        for turn in 0..TURNS {
            let kind = if turn % 2 == 0 { Kind::Ours } else { Kind::Java };
            if turn > 0 {
                broker.start(kind)?;
            }
            let ledger = dir.join(format!("turn-{turn}.jsonl"));
            java::send(dir, &names.address(), &ledger, 80)?;
            ledgers.push(ledger);
            let queue = MessageQueue::new("Delayed", "broker-a", 0);
            for n in 0..EACH {
                for level in [1, 18] {
                    let message = Message::new("Delayed", format!("{turn} {n}")).delay_level(level);
                    rust.runtime.block_on(producer.send_to(&queue, message))?;
                }
            }
            let (admin, address) = (rust.client.admin(), broker.address());
            wait_until("the delayed messages", || {
                let end = admin.max_offset(&address, "Delayed", 0);
                Ok(rust.runtime.block_on(end)? >= (turn + 1) * EACH)
            })?;
            broker.stop(kind)?;
            let copy = dir.join(format!("copy-{turn}"));
            copy_dir(&broker.store(), &copy)?;
            delay_offset(&copy, (turn + 1) * EACH)?;
            let reading = java::read_store(dir, &copy, &broker.conf)?;
            anyhow::ensure!(!reading.abort, "turn {turn} ended in order");
            for ledger in &ledgers {
                java::has_all(&reading, &java::ledger(ledger)?)?;
            }
            anyhow::ensure!(
                reading.messages.values().all(|m| m["extended"] == true),
                "turn {turn}: an entry without an extension"
            );
            let of = |topic: &str, queue: i64| {
                let all = reading.messages.values();
                all.filter(|m| m["topic"] == topic && m["queue"] == queue).count() as i64
            };
            for (topic, queue) in [
                ("Delayed", 0),
                ("SCHEDULE_TOPIC_XXXX", 0),
                ("SCHEDULE_TOPIC_XXXX", 17),
            ] {
                let found = of(topic, queue);
                anyhow::ensure!(
                    found == (turn + 1) * EACH,
                    "turn {turn}: {found} in {topic} {queue}"
                );
            }
            std::fs::remove_dir_all(copy)?;
        }
        broker.start(Kind::Ours)?;
        for ledger in &ledgers {
            java::verify(dir, &names.address(), ledger)?;
        }
        rust.end();
        broker.stop(Kind::Ours)
    });
}

/// The table of delayed messages says that so many of level 1 were delivered. Java writes its numbers without quotes.
fn delay_offset(store: &Path, delivered: i64) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(store.join("config/delayOffset.json"))?;
    let bare: String = text.chars().filter(|c| !c.is_whitespace() && *c != '"').collect();
    let found = bare
        .split(['{', ','])
        .find_map(|entry| entry.strip_prefix("1:"))
        .and_then(|value| value.trim_end_matches('}').parse::<i64>().ok());
    anyhow::ensure!(
        found == Some(delivered),
        "level 1 is at {found:?}, {delivered} were delivered: {text}"
    );
    Ok(())
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
