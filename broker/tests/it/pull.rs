//! Pulls: filters, limits, waiting.

use ferromq_protocol::Command;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::header::PullMessage;
use ferromq_protocol::sysflag::pull as flag;

use crate::support::{LONG, Pulled, Rig, eventually, pull_command, pull_tagged, send_command};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_pull_is_woken_by_each_message() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    assert_eq!(rig.peer.drain("T", 0, 0, 1).await, ["0"]);
    for n in 1..=200 {
        let pull = rig.peer.call(pull_command("T", 0, n, 600_000));
        let send = rig.peer.send("T", 0, "next");
        let (pulled, _) = tokio::join!(pull, send);
        let pulled = Pulled::of(&pulled);
        assert_eq!((pulled.code, pulled.bodies.len()), (0, 1), "round {n}");
    }
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_pull_ends_with_19_when_its_time_is_up() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    rig.peer.drain("T", 0, 0, 1).await;
    let pulled = Pulled::of(&rig.peer.call(pull_command("T", 0, 1, 50)).await);
    assert_eq!((pulled.code, pulled.header.next_begin_offset), (19, 1));
    // Without the flag nothing waits.
    assert_eq!(rig.peer.pull("T", 0, 1).await.code, 19);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_answers_held_pulls_with_19() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    rig.peer.drain("T", 0, 0, 1).await;
    let (client, addr) = (rig.peer.client.clone(), rig.peer.addr.clone());
    // The pull is sent first, so the answer to the question behind it shows that the broker has read the pull.
    let held = client.call(&addr, pull_command("T", 0, 1, 600_000), LONG);
    let stop = async {
        rig.peer.max_offset("T", 0).await;
        rig.stop().await;
    };
    let (held, ()) = tokio::join!(biased; held, stop);
    assert_eq!(held.unwrap().code, 19);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_wanted_tags_are_found_and_wake() {
    let rig = Rig::start().await;
    for (body, tag) in [("a", "A"), ("b", "B"), ("c", "A")] {
        rig.peer
            .ok(send_command("T", 0, body, &format!("TAGS\u{1}{tag}")))
            .await;
    }
    rig.peer.drain("T", 0, 0, 3).await;
    let pulled = Pulled::of(&rig.peer.call(pull_tagged("T", 0, 0, 0, "B || C")).await);
    assert_eq!((pulled.code, pulled.bodies), (0, vec!["b".to_owned()]));
    let none = Pulled::of(&rig.peer.call(pull_tagged("T", 0, 0, 0, "Z")).await);
    assert_eq!((none.code, none.header.next_begin_offset), (20, 3));

    let pull = rig.peer.call(pull_tagged("T", 0, 3, 600_000, "B"));
    let sends = async {
        rig.peer.ok(send_command("T", 0, "other", "TAGS\u{1}A")).await;
        rig.peer.ok(send_command("T", 0, "mine", "TAGS\u{1}B")).await;
    };
    let (pulled, ()) = tokio::join!(pull, sends);
    assert_eq!(Pulled::of(&pulled).bodies, ["mine"]);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sql92_selects_by_properties_when_it_is_on() {
    let rig = Rig::start_with(|s| s.enable_property_filter = true).await;
    for (body, a) in [("low", "1"), ("high", "9")] {
        rig.peer
            .ok(send_command("T", 0, body, &format!("a\u{1}{a}")))
            .await;
    }
    rig.peer.drain("T", 0, 0, 2).await;
    let sql = |text| {
        Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
            consumer_group: "CG",
            topic: "T",
            queue_id: 0,
            queue_offset: 0,
            max_msg_nums: 32,
            sys_flag: flag::SUBSCRIPTION,
            commit_offset: 0,
            suspend_timeout_millis: 0,
            subscription: Some(text),
            sub_version: 0,
            expression_type: Some("SQL92"),
        })
    };
    assert_eq!(Pulled::of(&rig.peer.call(sql("a > 5")).await).bodies, ["high"]);
    assert_eq!(rig.peer.call(sql("a >")).await.code, 23);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offsets_outside_the_queue_are_corrected() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    rig.peer.drain("T", 0, 0, 1).await;
    let far = rig.peer.pull("T", 0, 100).await;
    assert_eq!((far.code, far.header.next_begin_offset), (21, 1));
    let empty = rig.peer.pull("T", 1, 7).await;
    assert_eq!((empty.code, empty.header.next_begin_offset), (21, 0));
    assert_eq!(rig.peer.pull("T", 1, 0).await.code, 19);
    eventually("the correction left an event", async || {
        rig.peer.pull("OFFSET_MOVED_EVENT", 0, 0).await.bodies.len() == 2
    })
    .await;
    let event = rig.peer.pull("OFFSET_MOVED_EVENT", 0, 0).await.bodies.remove(0);
    assert!(
        event.contains("\"offsetRequest\":100") && event.contains("\"offsetNew\":1"),
        "{event}"
    );
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pulls_that_cannot_be_are_refused_with_their_code() {
    let rig = Rig::start_with(|s| s.auto_create_subscription_group = false).await;
    assert_eq!(rig.peer.call(pull_command("T", 0, 0, 0)).await.code, 26);
    rig.stop().await;
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "0").await;
    assert_eq!(rig.peer.call(pull_command("Nope", 0, 0, 0)).await.code, 17);
    assert_eq!(rig.peer.call(pull_command("T", 99, 0, 0)).await.code, 1);
    // Without a subscription in the request, one must have come by heartbeat.
    let plain = Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
        consumer_group: "CG",
        topic: "T",
        queue_id: 0,
        queue_offset: 0,
        max_msg_nums: 32,
        sys_flag: 0,
        commit_offset: 0,
        suspend_timeout_millis: 0,
        subscription: None,
        sub_version: 0,
        expression_type: None,
    });
    assert_eq!(rig.peer.call(plain).await.code, 24);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_memory_does_not_hold_is_read_from_the_disk() {
    let rig = Rig::start_with(|s| s.access_message_in_memory_max_ratio = 0).await;
    let sent: Vec<String> = (0..60).map(|n| n.to_string()).collect();
    for body in &sent {
        rig.peer.send("T", 0, body).await;
    }
    assert_eq!(rig.peer.drain("T", 0, 0, 60).await, sent);
    assert!(
        rig.peer.pull("T", 0, 0).await.bodies.len() <= 8,
        "small portions from the disk"
    );
    // Held at the end and woken, as ever.
    let pull = rig.peer.call(pull_command("T", 0, 60, 600_000));
    let (pulled, _) = tokio::join!(pull, rig.peer.send("T", 0, "next"));
    assert_eq!(Pulled::of(&pulled).bodies, ["next"]);
    rig.stop().await;
}

/// An offset that a send was just answered with is good for a pull at once, although queues follow the log a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_that_a_send_told_is_no_offset_that_moved() {
    let rig = Rig::start().await;
    for queue in 0..4 {
        for n in 0..50 {
            let sent = rig.peer.send("T", queue, &n.to_string()).await;
            let pulled = rig.peer.pull("T", queue, sent.offset + 1).await;
            assert_eq!(
                (pulled.code, pulled.header.next_begin_offset),
                (response::PULL_NOT_FOUND, sent.offset + 1)
            );
        }
    }
    let beyond = rig.peer.pull("T", 0, 51).await;
    assert_eq!(beyond.code, response::PULL_OFFSET_MOVED);
    rig.stop().await;
}
