//! Our broker and Java's as master and slave of each other.

use std::path::Path;

use crate::common::test;
use crate::stores::kill_while_sending;
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::{copy_dir, java, wait_until};

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
