//! Fields and bodies that no client of ours would send.

use ferromq_protocol::Command;
use ferromq_protocol::code::request;
use ferromq_protocol::header::{PullMessage, SendMessage};
use ferromq_protocol::sysflag::pull as flag;

use crate::support::{Pulled, Rig, pull_command, send_command};

type Fields = &'static [(&'static str, &'static str)];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_header_fields_are_refused_and_named() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "x").await;
    // Code, the fields that are there, the one that is not.
    let base: [(i32, Fields, &str); 6] = [
        (
            11,
            &[
                ("consumerGroup", "CG"),
                ("topic", "T"),
                ("queueOffset", "0"),
                ("maxMsgNums", "1"),
                ("sysFlag", "4"),
                ("commitOffset", "0"),
                ("suspendTimeoutMillis", "0"),
                ("subVersion", "0"),
            ],
            "queueId",
        ),
        (
            17,
            &[
                ("topic", "U"),
                ("defaultTopic", "TBW102"),
                ("writeQueueNums", "1"),
                ("perm", "6"),
                ("topicFilterType", "SINGLE_TAG"),
            ],
            "readQueueNums",
        ),
        (30, &[("topic", "T")], "queueId"),
        (36, &[("group", "CG"), ("delayLevel", "0")], "offset"),
        (14, &[("consumerGroup", "CG"), ("topic", "T")], "queueId"),
        (
            10,
            &[
                ("producerGroup", "P"),
                ("topic", "T"),
                ("defaultTopic", "TBW102"),
                ("defaultTopicQueueNums", "4"),
                ("sysFlag", "0"),
                ("bornTimestamp", "0"),
                ("flag", "0"),
            ],
            "queueId",
        ),
    ];
    for (code, fields, missing) in base {
        for value in [None, Some("abc"), Some("99999999999999999999")] {
            let mut command = Command::request(code).with_body("x");
            for (key, text) in fields {
                command.ext.set(key, text);
            }
            if let Some(value) = value {
                command.ext.set(missing, value);
            }
            let answer = rig.peer.call(command).await;
            assert_eq!(answer.code, 1, "{code} {value:?}");
            assert!(
                answer.remark.as_deref().unwrap_or_default().contains(missing),
                "{code}: {:?}",
                answer.remark
            );
        }
    }
    assert_eq!(rig.peer.send("T", 0, "still here").await.offset, 1);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_no_json_are_refused() {
    let rig = Rig::start().await;
    for code in [34, 41, 42, 46, 200] {
        for body in ["", "{", "null", "[]", "\"x\"", "{}"] {
            let answer = rig.peer.call(Command::request(code).with_body(body)).await;
            if code == 46 && answer.code == 0 {
                // A check of nothing finds nothing wrong.
                continue;
            }
            assert_eq!(answer.code, 1, "{code} {body:?}");
        }
    }
    rig.peer.send("T", 0, "still here").await;
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_batches_store_nothing() {
    let rig = Rig::start().await;
    rig.peer.send("T", 0, "before").await;
    let inner = |size: i32, rest: usize| {
        let mut body = size.to_be_bytes().to_vec();
        body.resize(4 + rest, 0);
        body
    };
    for body in [
        inner(0, 0),
        inner(-1, 30),
        inner(i32::MAX, 30),
        inner(1_000, 30),
        inner(22, 3),
        vec![1],
    ] {
        let command = Command::request(request::SEND_BATCH_MESSAGE)
            .with_header(&SendMessage {
                producer_group: "PG",
                topic: "T",
                default_topic: "TBW102",
                default_topic_queue_nums: 4,
                batch: true,
                ..SendMessage::default()
            })
            .with_body(body.clone());
        let answer = rig.peer.call(command).await;
        assert!(
            matches!(answer.code, 1 | 13),
            "{body:?}: {} {:?}",
            answer.code,
            answer.remark
        );
    }
    assert_eq!(rig.peer.send("T", 0, "after").await.offset, 1);
    assert_eq!(rig.peer.call(send_command("T", 0, "", "")).await.code, 13);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn huge_and_negative_counts_are_clamped() {
    let rig = Rig::start().await;
    for n in 0..3 {
        rig.peer.send("T", 0, &n.to_string()).await;
    }
    rig.peer.drain("T", 0, 0, 3).await;
    for max_msg_nums in [i32::MAX, -1, 0, i32::MIN] {
        let command = Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
            consumer_group: "CG",
            topic: "T",
            queue_id: 0,
            queue_offset: 0,
            max_msg_nums,
            sys_flag: flag::SUBSCRIPTION,
            commit_offset: -9,
            suspend_timeout_millis: i64::MIN,
            subscription: Some("*"),
            sub_version: 0,
            expression_type: None,
        });
        let pulled = Pulled::of(&rig.peer.call(command).await);
        assert!(
            pulled.code == 0 && !pulled.bodies.is_empty(),
            "{max_msg_nums}: {}",
            pulled.code
        );
    }
    for offset in [-1, i64::MIN, i64::MAX] {
        let pulled = Pulled::of(&rig.peer.call(pull_command("T", 0, offset, 0)).await);
        assert_eq!(pulled.code, 21, "{offset}");
        assert!((0..=3).contains(&pulled.header.next_begin_offset));
    }
    rig.stop().await;
}

/// Offsets and times are the clients' word. None may overflow in a sum or a product, and a stored one comes back in later
/// requests for statistics.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_and_smallest_numbers_are_only_numbers() {
    let rig = Rig::start().await;
    for n in 0..3 {
        rig.peer.send("T", 0, &n.to_string()).await;
    }
    rig.peer.drain("T", 0, 0, 3).await;
    // 922337203685477581 × 20 is 2^64 + 4: it would land inside the queue.
    for number in [
        i64::MAX,
        i64::MAX - 1,
        i64::MIN,
        i64::MIN + 1,
        922_337_203_685_477_581,
        -922_337_203_685_477_581,
        1 << 62,
    ] {
        let text = number.to_string();
        let request = |code: i32, field: &str| {
            let mut command = Command::request(code);
            for (key, value) in [
                ("topic", "T"),
                ("key", "k"),
                ("group", "CG"),
                ("consumerGroup", "CG"),
                ("queueId", "0"),
                ("delayLevel", "0"),
                ("maxNum", "32"),
                ("beginTimestamp", "0"),
                ("endTimestamp", "1"),
                ("isOrder", "false"),
                (field, &text),
            ] {
                command.ext.set(key, value);
            }
            command
        };
        for (code, field) in [
            (11, "commitOffset"),
            (12, "beginTimestamp"),
            (12, "endTimestamp"),
            (15, "commitOffset"),
            (29, "timestamp"),
            (33, "offset"),
            (36, "offset"),
        ] {
            let mut command = request(code, field);
            for (key, value) in [
                ("queueOffset", "0"),
                ("maxMsgNums", "32"),
                ("sysFlag", "5"),
                ("suspendTimeoutMillis", "0"),
                ("subscription", "*"),
                ("subVersion", "0"),
            ] {
                command.ext.set(key, value);
            }
            let answer = rig.peer.call(command).await;
            let remark = answer.remark.unwrap_or_default();
            assert!(!remark.contains("panic"), "{code} {field} {number}: {remark}");
        }
        // Two queues with the largest offset: their sum overflows.
        let mut second = request(15, "commitOffset");
        second.ext.set("queueId", "1");
        rig.peer.ok(second).await;
        for code in [14, 30, 31, 208, 317] {
            rig.peer.ok(request(code, "unused")).await;
        }
        let pulled = Pulled::of(&rig.peer.call(pull_command("T", 0, number, 0)).await);
        assert_eq!((pulled.code, pulled.bodies.len()), (21, 0), "{number}");
    }
    assert_eq!(rig.peer.drain("T", 0, 0, 3).await.len(), 3);
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_codes_are_answered_3() {
    let rig = Rig::start().await;
    for code in [0, -1, 999, 32_768, i32::MAX, i32::MIN] {
        let answer = rig.peer.call(Command::request(code)).await;
        assert_eq!(answer.code, 3);
        assert_eq!(answer.remark, Some(format!(" request type {code} not supported")));
    }
    rig.stop().await;
}
