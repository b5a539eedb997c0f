//! Offsets of queues and consumers.

use ferromq_protocol::Command;
use ferromq_protocol::body::ConsumerOffsetTable;
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{
    OffsetResponse, PullMessage, QueryConsumerOffset, QueueHeader, SearchOffset, TimestampResponse,
    UpdateConsumerOffset,
};
use ferromq_protocol::sysflag::pull as flag;

use crate::admin::create;
use crate::process::Process;
use crate::support::{Peer, Rig, eventually, free_port};

fn query(queue_id: i32) -> Command {
    Command::request(request::QUERY_CONSUMER_OFFSET).with_header(&QueryConsumerOffset {
        consumer_group: "CG",
        topic: "T",
        queue_id,
    })
}

pub(crate) fn update(commit_offset: i64) -> Command {
    Command::request(request::UPDATE_CONSUMER_OFFSET).with_header(&UpdateConsumerOffset {
        consumer_group: "CG",
        topic: "T",
        queue_id: 0,
        commit_offset,
    })
}

/// A pull that commits an offset.
fn committing(commit_offset: i64) -> Command {
    Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
        consumer_group: "CG",
        topic: "T",
        queue_id: 0,
        queue_offset: 0,
        max_msg_nums: 1,
        sys_flag: flag::SUBSCRIPTION | flag::COMMIT_OFFSET,
        commit_offset,
        suspend_timeout_millis: 0,
        subscription: Some("*"),
        sub_version: 0,
        expression_type: None,
    })
}

async fn stored(rig: &Rig) -> i64 {
    stored_at(&rig.peer).await
}

async fn stored_at(peer: &Peer) -> i64 {
    peer.ok(query(0)).await.header::<OffsetResponse>().unwrap().offset
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn updates_are_kept_and_negative_ones_are_not() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    rig.peer.drain("T", 0, 0, 1).await;
    // A new group on a young queue starts at its beginning.
    assert_eq!(stored(&rig).await, 0);
    rig.peer.ok(update(5)).await;
    assert_eq!(stored(&rig).await, 5);
    rig.peer.ok(update(-1)).await;
    assert_eq!(stored(&rig).await, 5);
    rig.peer.ok(update(2)).await;
    assert_eq!(stored(&rig).await, 2, "a reset goes backwards");
    let all = rig
        .peer
        .ok(Command::request(request::GET_ALL_CONSUMER_OFFSET))
        .await;
    let all: ConsumerOffsetTable = fastjson::from_slice(&all.body).unwrap();
    assert_eq!(all.offset_table["T@CG"][&0], 2);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pull_commits_forwards_only() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    rig.peer.drain("T", 0, 0, 1).await;
    rig.peer.ok(committing(7)).await;
    assert_eq!(stored(&rig).await, 7);
    rig.peer.ok(committing(3)).await;
    assert_eq!(stored(&rig).await, 7);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_reaches_the_file_by_itself() {
    let rig = Rig::start().await;
    rig.peer.ok(update(42)).await;
    let file = rig.dir.path().join("config/consumerOffset.json");
    eventually("the offset is in the file", async || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains("42"))
    })
    .await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_ends_and_times_are_told() {
    let rig = Rig::start().await;
    let before = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis() as i64;
    for n in 0..3 {
        rig.peer.send("T", 0, &n.to_string()).await;
    }
    rig.peer.drain("T", 0, 0, 3).await;
    let queue = QueueHeader {
        topic: "T",
        queue_id: 0,
    };
    let min = rig
        .peer
        .ok(Command::request(request::GET_MIN_OFFSET).with_header(&queue))
        .await;
    assert_eq!(min.header::<OffsetResponse>().unwrap().offset, 0);
    assert_eq!(rig.peer.max_offset("T", 0).await, 3);
    assert_eq!(rig.peer.max_offset("T", 3).await, 0);
    let first = rig
        .peer
        .ok(Command::request(request::GET_EARLIEST_MSG_STORETIME).with_header(&queue))
        .await;
    assert!(first.header::<TimestampResponse>().unwrap().timestamp >= before);
    let by_time = |timestamp| {
        Command::request(request::SEARCH_OFFSET_BY_TIMESTAMP).with_header(&SearchOffset {
            topic: "T",
            queue_id: 0,
            timestamp,
        })
    };
    let early = rig.peer.ok(by_time(0)).await;
    assert_eq!(early.header::<OffsetResponse>().unwrap().offset, 0);
    let late = rig.peer.ok(by_time(i64::MAX)).await;
    assert_eq!(
        late.header::<OffsetResponse>().unwrap().offset,
        2,
        "past the end it is the last message"
    );
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_survives_kill_9_within_the_interval_and_late_commits_never_take_it_back() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let more = "flushConsumerOffsetInterval=20\n";
    let mut broker = Process::start(dir.path(), port, more, &[]);
    broker.started();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    for n in 0..2_000 {
        peer.send("T", 0, &n.to_string()).await;
    }
    let file = dir.path().join("store/config/consumerOffset.json");
    let mut highest = 0;
    for round in 1..=20 {
        // Commits that ride on pulls overtake each other on two connections.
        let other = Peer::new(peer.addr.clone());
        let pulls = (0..50).map(|n| {
            let commit = round * 100 - n;
            let by = if n % 2 == 0 { &peer } else { &other };
            async move {
                by.ok(committing(commit)).await;
            }
        });
        futures::future::join_all(pulls).await;
        highest = round * 100;
        assert_eq!(stored_at(&peer).await, highest);
    }
    eventually("the interval has passed", async || {
        std::fs::read_to_string(&file).is_ok_and(|text| text.contains(&highest.to_string()))
    })
    .await;
    broker.kill();
    let mut broker = Process::start(dir.path(), port, more, &[]);
    broker.started();
    assert_eq!(stored_at(&peer).await, highest);
    broker.stop();
}

/// A crash may lose messages that consumers have read already, and the next ones get their offsets: no group passes them over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_beyond_what_a_crash_left_does_not_skip_new_messages() {
    let mut rig = Rig::start().await;
    for n in 0..10 {
        rig.peer.send("T", 0, &n.to_string()).await;
    }
    rig.peer.ok(update(10)).await;
    rig.stop_in_place().await;
    // As if five more had been read and lost.
    let file = rig.dir.path().join("config/consumerOffset.json");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("10", "15")).unwrap();
    rig.start_again().await;
    assert_eq!(stored(&rig).await, 10);
    assert_eq!(rig.peer.send("T", 0, "new").await.offset, 10);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queue_that_was_added_is_read_from_its_beginning_by_groups_that_are_known() {
    // Nothing counts as in memory.
    let rig = Rig::start_with(|s| s.access_message_in_memory_max_ratio = 0).await;
    rig.peer.ok(create("T", 1, 6)).await;
    rig.peer.send("T", 0, "0").await;
    rig.peer.ok(update(1)).await;
    rig.peer.ok(create("T", 2, 6)).await;
    rig.peer.send("T", 1, "in the new queue").await;
    eventually("it is there", || async { rig.peer.max_offset("T", 1).await == 1 }).await;
    let answer = rig.peer.ok(query(1)).await;
    assert_eq!(answer.header::<OffsetResponse>().unwrap().offset, 0);
    // A new group begins where it wants to.
    let new = Command::request(request::QUERY_CONSUMER_OFFSET).with_header(&QueryConsumerOffset {
        consumer_group: "New",
        topic: "T",
        queue_id: 1,
    });
    assert_eq!(rig.peer.call(new).await.code, 22);
    rig.stop().await;
}
