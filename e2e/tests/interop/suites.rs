//! The official client and tools against our servers, and mixed clusters.

use std::path::Path;

use crate::common::{pair, test};
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::java::{self, Headers};

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
