//! Many clients at once: connections, groups, rebalance storms, clients that vanish.
//!
//! The ordinary form is small; `make many-clients` runs it with 5,000 connections and 2,000 groups
//! (`FERROMQ_CONNECTIONS`, `FERROMQ_GROUPS`).

use ferromq_protocol::Command;
use ferromq_protocol::code::request;
use futures::stream::{self, StreamExt as _};
use tokio_util::task::TaskTracker;

use crate::clients::member;
use crate::process::figure;
use crate::support::{Peer, Rig, eventually, free_port, pull_command};

/// Requests under way at a time.
const AT_ONCE: usize = 64;

fn asked(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn beat(client: usize, groups: usize, topics: &[&str]) -> Command {
    let group = format!("group-{}", client % groups);
    member(&format!("client-{client}"), &group, topics)
}

async fn all<F: Future<Output = ()>>(work: impl Iterator<Item = F>) {
    stream::iter(work)
        .buffer_unordered(AT_ONCE)
        .for_each(|()| async {})
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_come_storm_and_vanish() {
    let (count, groups) = (asked("FERROMQ_CONNECTIONS", 400), asked("FERROMQ_GROUPS", 150));
    let pages = free_port();
    let rig = Rig::start_with(|s| s.http_port = pages).await;
    for queue in 0..4 {
        rig.peer.send("M", queue, "first").await;
    }
    let memory = "ferromq_process_resident_memory_bytes";
    let before = figure(pages, memory).await;

    let clients: Vec<Peer> = (0..count).map(|_| Peer::new(rig.peer.addr.clone())).collect();
    all(clients.iter().enumerate().map(|(n, client)| async move {
        client.ok(beat(n, groups, &["M"])).await;
    }))
    .await;
    let connected = figure(pages, "ferromq_broker_consumer_groups_connected").await;
    assert_eq!(connected as usize, groups.min(count));

    // Each waits for a message at the end of a queue.
    let tasks = TaskTracker::new();
    let waiting: Vec<_> = clients
        .iter()
        .enumerate()
        .map(|(n, client)| {
            let (client, addr) = (client.client.clone(), client.addr.clone());
            tasks.spawn(async move {
                let pull = pull_command("M", (n % 4) as i32, 1, 120_000);
                client.call(&addr, pull, std::time::Duration::from_mins(3)).await
            })
        })
        .collect();
    eventually("all pulls wait", || async {
        figure(pages, "ferromq_broker_pulls_waiting").await as usize == count
    })
    .await;

    // Every group changes its topics several times; notices are coalesced.
    for round in 0..3 {
        let topics: &[&str] = if round % 2 == 0 { &["M", "N"] } else { &["M"] };
        all(clients.iter().enumerate().map(|(n, client)| async move {
            client.ok(beat(n, groups, topics)).await;
        }))
        .await;
    }
    let told = |client: &Peer| {
        let received = client.received.lock();
        received
            .iter()
            .filter(|c| c.code == request::NOTIFY_CONSUMER_IDS_CHANGED)
            .count()
    };
    let most = clients.iter().map(told).max().unwrap_or(0);
    // One for each that joined its group and each round, at the most.
    assert!(
        most <= count.div_ceil(groups) + 3 * count.div_ceil(groups) + 1,
        "{most} notices"
    );

    // A quarter vanishes without a word; the rest get what they wait for, and nobody else is held up.
    let (gone, stay) = clients.split_at(count / 4);
    all(gone.iter().map(|client| client.client.close())).await;
    for queue in 0..4 {
        rig.peer.send("M", queue, "second").await;
    }
    let mut got = 0;
    for (n, pull) in waiting.into_iter().enumerate() {
        match pull.await.unwrap() {
            Ok(answer) => {
                assert_eq!(answer.code, 0, "client {n}: {:?}", answer.remark);
                got += 1;
            }
            Err(error) => assert!(n < gone.len(), "client {n}: {error}"),
        }
    }
    assert!(got >= stay.len());
    for queue in 0..4 {
        assert_eq!(rig.peer.drain("M", queue, 0, 2).await, ["first", "second"]);
    }

    all(stay.iter().map(|client| client.client.close())).await;
    eventually("nothing is left of them", || async {
        figure(pages, "ferromq_broker_consumer_groups_connected").await == 0.0
            && figure(pages, "ferromq_broker_pulls_waiting").await == 0.0
            && figure(pages, "ferromq_connections").await <= 2.0
    })
    .await;
    let after = figure(pages, memory).await;
    eprintln!(
        "{count} connections, {groups} groups: resident {:.0} MiB before, {:.0} MiB after, clients' memory included",
        before / 1_048_576.0,
        after / 1_048_576.0
    );
    assert!(
        after - before < 64e6 + count as f64 * 200e3,
        "{before} became {after}"
    );
    rig.stop().await;
}
