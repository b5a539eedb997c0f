//! Master and slave in all pairings of our broker and Java's, killed under load.
//!
//! What is wanted of each: the logs are equal byte by byte, the tables are equal, what was acknowledged while a slave had to
//! confirm it is on both sides whichever of them is killed, and consumers go on at the slave while the master is dead.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

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

#[test]
fn our_slave_follows_our_master() {
    test(|dir| replicate(dir, Kind::Ours, Kind::Ours));
}

/// What the others are measured by.
#[test]
fn javas_slave_follows_javas_master() {
    test(|dir| replicate(dir, Kind::Java, Kind::Java));
}

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

    counts(dir, &names)?;
    let before = dir.join("before.jsonl");
    java::send(dir, &names.address(), &before, 600)?;
    // Its consumers leave groups and offsets.
    java::verify(dir, &names.address(), &before)?;
    logs_equal(&master, &slave)?;
    let mut differing = String::new();
    wait_until("the slave's tables to be the master's", || {
        for (file, table) in [
            ("topics", "topicConfigTable"),
            ("subscriptionGroup", "subscriptionGroupTable"),
            ("consumerOffset", "offsetTable"),
        ] {
            let of = |broker: &Broker| table_of(broker, file, table);
            let (of_master, of_slave) = (of(&master)?, of(&slave)?);
            if of_master.is_null() || of_master != of_slave {
                differing = format!("{file}:\n{of_master}\n{of_slave}");
                return Ok(false);
            }
        }
        Ok(true)
    })
    .with_context(|| differing)?;

    // The slave is killed under load, and returns.
    let with_slave = dir.join("with-slave.jsonl");
    kill_while_sending(dir, &names, &mut slave, &with_slave)?;
    slave.start(of_slave)?;
    counts(dir, &names)?;
    logs_equal(&master, &slave)?;
    // The master is killed under load.
    let with_master = dir.join("with-master.jsonl");
    kill_while_sending(dir, &names, &mut master, &with_master)?;
    java::verify_at_slaves(dir, &names.address(), &before)?;
    slave.stop(of_slave)?;
    for broker in [&master, &slave] {
        let copy = dir.join("copy");
        copy_dir(&broker.store(), &copy)?;
        let reading = java::read_store(dir, &copy, &broker.conf)?;
        for ledger in [&before, &with_slave, &with_master] {
            java::has_all(&reading, &java::ledger(ledger)?)?;
        }
        std::fs::remove_dir_all(copy)?;
    }
    Ok(())
}

/// Until the slave counts, sends are answered with SLAVE_NOT_AVAILABLE. Java's first report takes five seconds.
fn counts(dir: &Path, names: &NameServer) -> anyhow::Result<()> {
    let probe = dir.join("probe.jsonl");
    wait_until("the slave to count", || {
        Ok(java::send(dir, &names.address(), &probe, 10).is_ok())
    })
}

fn logs_equal(master: &Broker, slave: &Broker) -> anyhow::Result<()> {
    wait_until("the slave's log to be the master's", || {
        Ok(log_of(slave)? == log_of(master)?)
    })
}

/// A table of a broker's as it is on disk; null while it's not there.
fn table_of(broker: &Broker, file: &str, table: &str) -> anyhow::Result<Value> {
    let path = broker.store().join(format!("config/{file}.json"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(Value::Null);
    };
    let mut value: Value = serde_json::from_str(&with_quoted_keys(&text))
        .with_context(|| format!("read {}: {text}", path.display()))?;
    Ok(value[table].take())
}

/// Java writes numbers as keys without quotes.
fn with_quoted_keys(text: &str) -> String {
    let (mut out, mut in_string, mut last) = (String::new(), false, ' ');
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '"' && last != '\\' {
            in_string = !in_string;
        }
        if !in_string && c.is_ascii_digit() && matches!(last, '{' | ',') {
            let mut number = String::from(c);
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                number.push(digit);
            }
            let is_key = chars.peek() == Some(&':');
            if is_key {
                out.extend(["\"", &number, "\""]);
            } else {
                out.push_str(&number);
            }
            last = '0';
            continue;
        }
        out.push(c);
        if in_string || !c.is_whitespace() {
            last = c;
        }
    }
    out
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
