//! Half messages, decisions, and questions about those that stay undecided.

use ferromq_protocol::Command;
use ferromq_protocol::body::{HeartbeatData, ProducerData};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{CheckTransactionState, EndTransaction, ResumeCheckHalfMessage};
use ferromq_protocol::message_id;
use ferromq_protocol::record::{self, Check, Entry};
use ferromq_protocol::sysflag::{TRANSACTION_COMMIT, TRANSACTION_ROLLBACK};

use crate::support::{Rig, Sent, eventually, send_command};

async fn half(rig: &Rig, body: &str) -> Sent {
    let properties = format!("TRAN_MSG\u{1}true\u{2}PGROUP\u{1}PG\u{2}UNIQ_KEY\u{1}{body}\u{2}TAGS\u{1}A");
    Sent::of(&rig.peer.ok(send_command("T", 1, body, &properties)).await)
}

fn end(sent: &Sent, decision: i32) -> Command {
    let (_, commit_log_offset) = message_id::parse_offset_id(&sent.id).unwrap();
    end_at(sent.offset, commit_log_offset, decision)
}

fn end_at(tran_state_table_offset: i64, commit_log_offset: i64, commit_or_rollback: i32) -> Command {
    Command::request(request::END_TRANSACTION).with_header(&EndTransaction {
        producer_group: "PG",
        tran_state_table_offset,
        commit_log_offset,
        commit_or_rollback,
        from_transaction_check: false,
        msg_id: "M",
        transaction_id: None,
    })
}

/// Marks the end of what a test has put on the real queue.
async fn seen(rig: &Rig, count: usize) -> Vec<String> {
    rig.peer.send("T", 1, "end").await;
    let mut bodies = rig.peer.drain("T", 1, 0, count + 1).await;
    assert_eq!(bodies.pop().as_deref(), Some("end"));
    bodies
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_is_committed_is_seen_and_only_once() {
    let mut rig = Rig::start().await;
    let (good, bad, open) = (
        half(&rig, "good").await,
        half(&rig, "bad").await,
        half(&rig, "open").await,
    );
    assert_eq!(
        (good.queue, good.offset, bad.offset),
        (1, 0, 1),
        "queue asked for, offset of the half"
    );
    for _ in 0..3 {
        rig.peer.ok(end(&good, TRANSACTION_COMMIT)).await;
        rig.peer.ok(end(&bad, TRANSACTION_ROLLBACK)).await;
        // Decided is decided.
        rig.peer.ok(end(&bad, TRANSACTION_COMMIT)).await;
    }
    rig.restart().await;
    rig.peer.ok(end(&good, TRANSACTION_COMMIT)).await;
    rig.peer.ok(end(&bad, TRANSACTION_COMMIT)).await;
    rig.peer.ok(end(&open, TRANSACTION_COMMIT)).await;
    assert_eq!(seen(&rig, 2).await, ["good", "open"]);
    let pulled = rig.peer.pull("T", 1, 0).await;
    assert!(
        !pulled.properties[0].contains("TRAN_MSG"),
        "{:?}",
        pulled.properties
    );
    assert!(pulled.properties[0].contains("TAGS\u{1}A"));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_about_something_else_are_refused() {
    let rig = Rig::start().await;
    let plain = rig.peer.send("T", 1, "plain").await;
    let sent = half(&rig, "x").await;
    let (_, physical) = message_id::parse_offset_id(&sent.id).unwrap();
    for command in [
        end(&plain, TRANSACTION_COMMIT),
        end_at(sent.offset + 1, physical, TRANSACTION_COMMIT),
        end_at(sent.offset, physical + 1, TRANSACTION_COMMIT),
        end_at(sent.offset, i64::MAX, TRANSACTION_COMMIT),
        end_at(sent.offset, physical, 99),
    ] {
        assert_eq!(rig.peer.call(command).await.code, 1);
    }
    assert_eq!(seen(&rig, 1).await, ["plain"]);
    rig.stop().await;
    let rig = Rig::start_with(|s| s.reject_transaction_message = true).await;
    let properties = "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}PG";
    assert_eq!(
        rig.peer.call(send_command("T", 1, "x", properties)).await.code,
        16
    );
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_is_asked_until_it_decides() {
    let rig = Rig::start_with(|s| {
        s.transaction_check_interval = 50;
        s.transaction_time_out = 10;
        s.transaction_check_max = 1_000;
    })
    .await;
    let beat = HeartbeatData {
        client_id: "a".to_owned(),
        producer_data_set: vec![ProducerData {
            group_name: "PG".to_owned(),
        }],
        ..HeartbeatData::default()
    };
    rig.peer
        .ok(Command::request(request::HEART_BEAT).with_body(fastjson::to_vec(&beat)))
        .await;
    let sent = half(&rig, "slow").await;
    let checks = || -> Vec<Command> {
        let received = rig.peer.received.lock();
        received
            .iter()
            .filter(|c| c.code == request::CHECK_TRANSACTION_STATE)
            .cloned()
            .collect()
    };
    eventually("asked twice", async || checks().len() >= 2).await;
    let check = checks().pop().unwrap();
    let header: CheckTransactionState<'_> = check.header().unwrap();
    assert_eq!(header.transaction_id, Some("slow"));
    let Entry::Record(shown) = record::parse(&check.body, Check::Crc).unwrap() else {
        panic!("no record")
    };
    assert_eq!(
        (shown.topic, shown.queue_id, shown.body),
        ("T", 1, b"slow".as_slice())
    );
    assert_eq!(shown.property("PGROUP"), Some("PG"));
    rig.peer
        .ok(end_at(
            header.tran_state_table_offset,
            header.commit_log_offset,
            TRANSACTION_COMMIT,
        ))
        .await;
    // The first answer comes late, after the one to the check.
    rig.peer.ok(end(&sent, TRANSACTION_COMMIT)).await;
    assert_eq!(seen(&rig, 1).await, ["slow"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_nobody_decides_is_put_aside() {
    let rig = Rig::start_with(|s| {
        s.transaction_check_interval = 50;
        s.transaction_time_out = 0;
        s.transaction_check_max = 2;
    })
    .await;
    let sent = half(&rig, "orphan").await;
    eventually("put aside", async || {
        rig.peer
            .call(crate::support::pull_command(
                "TRANS_CHECK_MAX_TIME_TOPIC",
                0,
                0,
                0,
            ))
            .await
            .code
            == 0
    })
    .await;
    assert_eq!(
        rig.peer.drain("TRANS_CHECK_MAX_TIME_TOPIC", 0, 0, 1).await,
        ["orphan"]
    );
    rig.peer.ok(end(&sent, TRANSACTION_COMMIT)).await;
    assert!(seen(&rig, 0).await.is_empty(), "too late");
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_that_was_put_aside_can_be_asked_about_again() {
    let rig = Rig::start_with(|s| {
        s.transaction_check_interval = 50;
        s.transaction_time_out = 0;
        s.transaction_check_max = 0;
    })
    .await;
    half(&rig, "forgotten").await;
    let aside = "TRANS_CHECK_MAX_TIME_TOPIC";
    eventually("it is put aside", || async {
        rig.peer.max_offset(aside, 0).await == 1
    })
    .await;
    let pulled = rig.peer.call(crate::support::pull_command(aside, 0, 0, 0)).await;
    let Ok(Entry::Record(found)) = record::parse(&pulled.body, Check::Crc) else {
        panic!("no record in {pulled:?}");
    };
    let id = found.offset_id();
    let resume = |id: &str| {
        Command::request(request::RESUME_CHECK_HALF_MESSAGE)
            .with_header(&ResumeCheckHalfMessage { msg_id: Some(id) })
    };
    rig.peer.ok(resume(&id)).await;
    // Nobody may be asked here (transactionCheckMax=0), so it comes back.
    eventually("it was looked at again", || async {
        rig.peer.max_offset(aside, 0).await == 2
    })
    .await;
    let plain = rig.peer.send("T", 1, "plain").await;
    for wrong in [plain.id.as_str(), "no id"] {
        assert_eq!(rig.peer.call(resume(wrong)).await.code, 1, "{wrong}");
    }
    rig.stop().await;
}
