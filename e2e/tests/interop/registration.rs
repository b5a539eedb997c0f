//! Tables that do not fit into one frame: a broker with 70,000 topics, at our name server and at Java's.

use std::path::Path;
use std::process::Command;

use serde_json::{Map, json};

use crate::common::test;
use crate::support::cluster::{Broker, Kind, NameServer, binary};
use crate::support::wait_until;

const TOPICS: usize = 70_000;

fn name(i: usize) -> String {
    format!("topic-{i:0>94}")
}

/// The broker's own table of topics, as it keeps it on disk.
fn write_topics(store: &Path) -> anyhow::Result<()> {
    let mut table = Map::new();
    for i in 0..TOPICS {
        let topic = json!({"order": false, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": name(i),
            "topicSysFlag": 0, "writeQueueNums": 4});
        table.insert(name(i), topic);
    }
    let file = json!({"dataVersion": {"counter": 1, "timestamp": 1}, "topicConfigTable": table});
    std::fs::create_dir_all(store.join("config"))?;
    std::fs::write(store.join("config/topics.json"), serde_json::to_vec(&file)?)?;
    Ok(())
}

fn ferroctl(name_server: &str, args: &[&str]) -> anyhow::Result<Option<String>> {
    let out = Command::new(binary("ferroctl")?)
        .args(["-n", name_server])
        .args(args)
        .output()?;
    Ok(out
        .status
        .success()
        .then(|| String::from_utf8_lossy(&out.stdout).into_owned()))
}

/// The first, the last and one of the middle have a route; each is in another part of the registration.
fn are_routed(name_server: &str) -> anyhow::Result<bool> {
    for i in [0, TOPICS / 2, TOPICS - 1] {
        let route = ferroctl(name_server, &["topic", "route", &name(i)])?;
        if !route.is_some_and(|text| text.contains("broker-a")) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The list has all of them, none less.
fn has_all(name_server: &str) -> anyhow::Result<()> {
    let list = ferroctl(name_server, &["topic", "list", "-o", "json"])?.unwrap_or_default();
    let count = list.matches("topic-0000").count();
    anyhow::ensure!(
        count == TOPICS,
        "{count} of {TOPICS} topics are known at {name_server}"
    );
    Ok(())
}

#[test]
fn seventy_thousand_topics_are_routed_by_both_name_servers() {
    test(|dir| {
        let (at_ours, at_javas) = (dir.join("ours"), dir.join("javas"));
        for dir in [&at_ours, &at_javas] {
            std::fs::create_dir(dir)?;
        }
        let mut ours = NameServer::start(Kind::Ours, &at_ours)?;
        let javas = NameServer::start(Kind::Java, &at_javas)?;
        let both = format!("{};{}", ours.address(), javas.address());
        let settings = [Broker::SMALL_FILES, &[("namesrvAddr", both.as_str())]].concat();
        let mut broker = Broker::new("broker-a", dir, &ours, &settings)?;
        write_topics(&broker.store())?;
        broker.start(Kind::Ours)?;
        for (whose, address) in [("ours", ours.address()), ("Java's", javas.address())] {
            wait_until(&format!("all topics are routed at {whose}"), || {
                are_routed(&address)
            })?;
        }
        // A name server that forgot everything is told again, and a broker that comes again tells everything.
        ours = ours.replace(Kind::Ours, &at_ours)?;
        wait_until("all topics are routed again", || are_routed(&ours.address()))?;
        broker.stop(Kind::Ours)?;
        broker.start(Kind::Ours)?;
        for (whose, address) in [("ours", ours.address()), ("Java's", javas.address())] {
            wait_until(&format!("all topics are back at {whose}"), || {
                are_routed(&address)
            })?;
        }
        has_all(&ours.address())?;
        has_all(&javas.address())?;
        let stats = ferroctl(&ours.address(), &["topic", "stats", &name(7)])?;
        anyhow::ensure!(stats.is_some(), "the broker serves its topics");
        broker.stop(Kind::Ours)
    });
}
