//! The real program killed by SIGKILL under load, again and again on one store: what was acknowledged is there, in its place
//! and once. `ROUNDS` says how often (30); after 30 rounds comes a new store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::process::Process;
use crate::support::{Peer, Sent, eventually, free_port, send_command};

const QUEUES: usize = 4;
/// All that a store got stays in memory and on the disk while it lives.
const ON_ONE_STORE: u64 = 30;

/// Queue offset and body of each acknowledged message of a queue, in the order of the acknowledgements.
type Acked = Arc<Mutex<Vec<(i64, String)>>>;

/// Sends to one queue until the broker is gone. Nothing is sent twice.
async fn keep_sending(peer: Arc<Peer>, queue: usize, round: u64, acked: Acked) {
    for n in 0u64.. {
        // Every so often one that takes most of a page cache's window, so that a kill meets half a copy.
        let filling = if n % 16 == 7 {
            200_000
        } else {
            (n as usize * 97) % 3_000
        };
        let body = format!("{round} {queue} {n} {}", "x".repeat(filling));
        let command = send_command("Kill", queue as i32, &body, "KEYS\u{1}k");
        match peer.try_call(command).await {
            Some(answer) if answer.code == 0 => acked.lock().push((Sent::of(&answer).offset, body)),
            Some(answer) => panic!("code {}: {:?}", answer.code, answer.remark),
            None => return,
        }
    }
}

/// Reads what a queue has beyond what was read before, and looks for what was acknowledged since.
async fn read_on(peer: &Peer, queue: usize, seen: &mut Vec<String>, acked: &[(i64, String)], round: u64) {
    let max = peer.max_offset("Kill", queue as i32).await;
    assert!(
        max >= seen.len() as i64,
        "round {round}: queue {queue} ends at {max}, it had {}",
        seen.len()
    );
    let fresh = peer
        .drain("Kill", queue as i32, seen.len() as i64, max as usize - seen.len())
        .await;
    seen.extend(fresh);
    assert_eq!(seen.len() as i64, max, "round {round}: queue {queue}");
    for (offset, body) in acked {
        let found = seen.get(*offset as usize);
        assert!(
            found == Some(body),
            "round {round}: queue {queue} has {found:.40?} at {offset}, where {body:.40?} was acknowledged"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_by_any_number_of_kills() {
    let rounds: u64 = std::env::var("ROUNDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(ON_ONE_STORE);
    let mut done = 0;
    while done < rounds {
        let leg = ON_ONE_STORE.min(rounds - done);
        kill(leg).await;
        done += leg;
        println!("{done} of {rounds} kills");
    }
}

/// Kills the broker so many times on a store of its own.
async fn kill(rounds: u64) {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut seen: Vec<Vec<String>> = vec![Vec::new(); QUEUES];
    let mut total = 0;
    let mut acked: Vec<Vec<(i64, String)>> = vec![Vec::new(); QUEUES];
    for round in 0..=rounds {
        let flush = if round % 3 == 0 {
            "SYNC_FLUSH"
        } else {
            "ASYNC_FLUSH"
        };
        // Nothing expires, however full the machine's disk is.
        let more =
            format!("flushDiskType={flush}\ndiskMaxUsedSpaceRatio=95\ncleanFileForciblyEnable=false\n");
        if round % 5 == 4 {
            // Killed while it starts and recovers: after a time that differs from round to round.
            let broker = Process::start(dir.path(), port, &more, &[]);
            let until = Instant::now() + Duration::from_millis(round * 13 % 90);
            eventually("the moment", async || Instant::now() >= until).await;
            broker.kill();
        }
        let mut broker = Process::start(dir.path(), port, &more, &[]);
        broker.started();
        let peer = Arc::new(Peer::new(format!("127.0.0.1:{port}")));
        if round > 0 {
            for (queue, seen) in seen.iter_mut().enumerate() {
                read_on(&peer, queue, seen, &acked[queue], round).await;
            }
        }
        if round == rounds {
            broker.signal("-TERM");
            break;
        }
        let fresh: Vec<Acked> = (0..QUEUES).map(|_| Acked::default()).collect();
        let tasks = tokio_util::task::TaskTracker::new();
        let senders: Vec<_> = fresh
            .iter()
            .enumerate()
            .map(|(queue, acked)| tasks.spawn(keep_sending(peer.clone(), queue, round, acked.clone())))
            .collect();
        let enough = 20 + (round as usize * 37) % 160;
        eventually("acknowledgements", async || {
            fresh.iter().map(|a| a.lock().len()).sum::<usize>() >= enough
        })
        .await;
        broker.kill();
        for sender in senders {
            sender.await.unwrap();
        }
        acked = fresh.iter().map(|a| std::mem::take(&mut *a.lock())).collect();
        total += acked.iter().map(Vec::len).sum::<usize>();
    }
    let found: usize = seen.iter().map(Vec::len).sum();
    let different: HashSet<&String> = seen.iter().flatten().collect();
    println!(
        "{rounds} kills: {total} acknowledged, {found} found, {} different",
        different.len()
    );
    assert!(found >= total);
    assert_eq!(different.len(), found, "nothing is there twice");
}
