//! Headers there and back.

use super::*;
use crate::code::request;
use crate::command::Command;

const SEND: SendMessage<'static> = SendMessage {
    producer_group: "PG",
    topic: "T",
    default_topic: "TBW102",
    default_topic_queue_nums: 4,
    queue_id: -1,
    sys_flag: 8,
    born_timestamp: 1_640_995_200_000,
    flag: 5,
    properties: "A\u{1}b",
    reconsume_times: 2,
    unit_mode: true,
    max_reconsume_times: Some(3),
    batch: true,
};

#[test]
fn send_in_both_spellings() {
    for (code, first, last) in [
        (request::SEND_MESSAGE, "producerGroup", "batch"),
        (request::SEND_MESSAGE_V2, "a", "m"),
        (request::SEND_BATCH_MESSAGE, "a", "m"),
        (request::SEND_REPLY_MESSAGE, "producerGroup", "batch"),
        (request::SEND_REPLY_MESSAGE_V2, "a", "m"),
    ] {
        let cmd = Command::request(code).with_header(&SEND);
        assert_eq!(
            (cmd.ext.get(first), cmd.ext.get(last), cmd.ext.len()),
            (Some("PG"), Some("true"), 13)
        );
        assert_eq!(cmd.header::<SendMessage<'_>>().unwrap(), SEND);
    }
}

#[test]
fn send_without_the_optional_fields() {
    let mut cmd = Command::request(request::SEND_MESSAGE_V2).with_header(&SEND);
    for letter in ["i", "j", "k", "l", "m"] {
        cmd.ext.remove(letter);
    }
    cmd.ext.set("n", "broker-a");
    cmd.ext.set("bname", "broker-a");
    let h: SendMessage<'_> = cmd.header().unwrap();
    let expected = SendMessage {
        properties: "",
        reconsume_times: 0,
        unit_mode: false,
        max_reconsume_times: None,
        batch: false,
        ..SEND
    };
    assert_eq!(h, expected);
    cmd.ext.remove("e");
    assert_eq!(cmd.header::<SendMessage<'_>>(), Err(HeaderError::Missing("e")));
    cmd.ext.set("e", "four");
    let e = cmd.header::<SendMessage<'_>>().unwrap_err();
    assert_eq!(
        e.to_string(),
        r#"the header argument e is "four", expected a whole number of 32 bits"#
    );
}

#[test]
fn pull_both_ways() {
    let pull = PullMessage {
        consumer_group: "G",
        topic: "T",
        queue_id: 3,
        queue_offset: i64::MAX,
        max_msg_nums: 32,
        sys_flag: 7,
        commit_offset: -1,
        suspend_timeout_millis: 15000,
        subscription: Some("*"),
        sub_version: 1,
        expression_type: None,
    };
    let cmd = Command::request(request::PULL_MESSAGE).with_header(&pull);
    assert_eq!(cmd.ext.get("expressionType"), None);
    assert_eq!(cmd.ext.get("queueOffset"), Some("9223372036854775807"));
    assert_eq!(cmd.header::<PullMessage<'_>>().unwrap(), pull);
    let answer = PullMessageResponse {
        suggest_which_broker_id: 0,
        next_begin_offset: 5,
        min_offset: 0,
        max_offset: 9,
    };
    let reply = cmd.reply(0).with_header(&answer);
    assert_eq!(reply.header::<PullMessageResponse>().unwrap(), answer);
    assert_eq!(reply.ext.len(), 4);
}

#[test]
fn values_as_java_reads_them() {
    let reset = |force: &str, time: &str| {
        let cmd = Command::request(222)
            .with_ext("topic", "T")
            .with_ext("group", "G")
            .with_ext("timestamp", time)
            .with_ext("isForce", force);
        cmd.header::<ResetOffset<'_>>().map(|h| (h.timestamp, h.is_force))
    };
    assert_eq!(reset("TRUE", "-1"), Ok((-1, true)));
    assert_eq!(reset("yes", "+7"), Ok((7, false)));
    assert_eq!(reset("", "7"), Err(HeaderError::Missing("isForce")));
    assert_eq!(reset("true", ""), Err(HeaderError::Missing("timestamp")));
    assert!(matches!(
        reset("true", "9223372036854775808"),
        Err(HeaderError::Bad {
            field: "timestamp",
            ..
        })
    ));
    let long = "9".repeat(1_000_000);
    assert!(reset("true", &long).unwrap_err().to_string().len() < 200);
}

#[test]
fn defaults_and_extra_arguments() {
    let cmd = Command::request(103)
        .with_ext("brokerName", "b")
        .with_ext("brokerAddr", "10.0.0.1:10911")
        .with_ext("clusterName", "c")
        .with_ext("haServerAddr", "")
        .with_ext("brokerId", "0")
        .with_ext("AccessKey", "k");
    let h: RegisterBroker<'_> = cmd.header().unwrap();
    assert_eq!((h.compressed, h.body_crc32, h.ha_server_addr), (false, 0, ""));
    let none = RegisterBrokerResponse {
        ha_server_addr: None,
        master_addr: None,
    };
    assert!(cmd.reply(0).with_header(&none).ext.is_empty());
}
