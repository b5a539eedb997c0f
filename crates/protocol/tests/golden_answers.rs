//! The bodies that Java's own 4.9.7 classes wrote into `e2e/java/golden/answers.jsonl`: each is read into our type, and what
//! our type writes, in our form and in Java's, has the same members with the same values.

use std::fmt::Debug;

use ferromq_protocol::body::*;
use ferromq_protocol::fastjson;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Members that Java computes when it writes and nobody reads.
const COMPUTED: &[&str] = &[
    "consumeTimeStampStr",
    "maxTimeStampStr",
    "minTimeStampStr",
    "rowKey",
];

/// Reads `text` as `T`, and says what is lost or changed when `T` is written again.
fn through<T>(text: &str) -> Vec<String>
where
    T: DeserializeOwned + Serialize + PartialEq + Debug,
{
    let value: T = fastjson::from_slice(text.as_bytes()).unwrap_or_else(|e| panic!("{e}: {text}"));
    let java_form = String::from_utf8(fastjson::to_vec_java(&value)).expect("text");
    let our_form = fastjson::to_vec(&value);
    assert_eq!(fastjson::from_slice::<T>(&our_form).expect("our form"), value);
    assert_eq!(
        fastjson::from_slice::<T>(java_form.as_bytes()).expect("Java's form"),
        value
    );
    let mut lost = Vec::new();
    compare("", &plain(text), &plain(&java_form), &mut lost);
    lost
}

/// Strict JSON of a text in Java's form: what stands before a colon without being a text becomes one.
fn plain(text: &str) -> Value {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    // Whether a key may come here.
    let mut key = false;
    while let Some(c) = rest.next() {
        match c {
            '"' => {
                out.push(c);
                while let Some(c) = rest.next() {
                    out.push(c);
                    match c {
                        '\\' => out.extend(rest.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                key = false;
            }
            '{' if key => {
                let mut object = String::from(c);
                let mut depth = 1;
                while depth > 0 {
                    let c = rest.next().expect("a closed object");
                    depth += match c {
                        '{' => 1,
                        '}' => -1,
                        _ => 0,
                    };
                    object.push(c);
                }
                out.push_str(&Value::from(object).to_string());
                key = false;
            }
            c if key && (c == '-' || c.is_ascii_digit()) => {
                out.push('"');
                out.push(c);
                while let Some(c) = rest.next_if(|c| *c != ':') {
                    out.push(c);
                }
                out.push('"');
                key = false;
            }
            // A comma in a list opens no key, but neither can an object in one be taken for a key.
            '{' => {
                out.push(c);
                key = true;
            }
            ',' => {
                out.push(c);
                key = in_object(&out);
            }
            c => out.push(c),
        }
    }
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}"))
}

/// Whether the innermost bracket that is open at the end of `text` is an object's.
fn in_object(text: &str) -> bool {
    let mut open = Vec::new();
    let mut quoted = false;
    let mut escaped = false;
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '{' | '[' if !quoted => open.push(c),
            '}' | ']' if !quoted => drop(open.pop()),
            _ => {}
        }
    }
    open.last() == Some(&'{')
}

fn compare(at: &str, java: &Value, ours: &Value, lost: &mut Vec<String>) {
    match (java, ours) {
        (Value::Object(java), Value::Object(ours)) => {
            for (name, value) in java {
                let at = format!("{at}.{name}");
                match ours.get(name) {
                    Some(other) => compare(&at, value, other, lost),
                    None if COMPUTED.contains(&name.as_str()) => {}
                    None => lost.push(format!("{at} is lost")),
                }
            }
            for name in ours.keys().filter(|name| !java.contains_key(*name)) {
                lost.push(format!("{at}.{name} is unknown to Java"));
            }
        }
        (Value::Array(java), Value::Array(ours)) if java.len() == ours.len() => {
            for (i, (java, ours)) in java.iter().zip(ours).enumerate() {
                compare(&format!("{at}[{i}]"), java, ours, lost);
            }
        }
        _ if java == ours => {}
        _ => lost.push(format!("{at}: Java has {java}, we have {ours}")),
    }
}

#[test]
fn answers_keep_every_member_and_value() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../e2e/java/golden/answers.jsonl");
    let lines = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("read {path}: {e}"));
    let (mut seen, mut wrong) = (0, Vec::new());
    for line in lines.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let name = line["name"].as_str().expect("a name");
        let text = line["text"].as_str().expect("the body");
        let lost = match name {
            "group" => through::<SubscriptionGroupConfig>(text),
            "check-client" => through::<CheckClientRequestBody>(text),
            "unlock-request" => through::<LockBatchRequestBody>(text),
            "group-list" => through::<GroupList>(text),
            "reset-offset-c" => through::<ResetOffsetBodyForC>(text),
            "consumer-status" => through::<GetConsumerStatusBody>(text),
            "offset-moved" => through::<OffsetMovedEvent>(text),
            "correction-offsets" => through::<CorrectionOffsets>(text),
            "consume-stats-list" => through::<ConsumeStatsList>(text),
            "broker-stats" => through::<BrokerStatsData>(text),
            "time-spans" => through::<ConsumeTimeSpans>(text),
            "queue-entries" => through::<QueryConsumeQueueResponseBody>(text),
            "producer-connection" => through::<ProducerConnection>(text),
            "producer-table" => through::<ProducerTable>(text),
            "consume-directly" => through::<ConsumeMessageDirectlyResult>(text),
            "data-version" => through::<DataVersion>(text),
            "delay-offsets" => through::<DelayOffsetTable>(text),
            "kv-config" => through::<KvConfigFile>(text),
            "acl-config" | "acl-config-answer" => through::<AclConfig>(text),
            other => panic!("no type is known for the body {other}"),
        };
        seen += 1;
        wrong.extend(lost.into_iter().map(|l| format!("{name}{l}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(seen, 20);
}
