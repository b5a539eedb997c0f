//! `docs/protocol.md`: every request code, who answers it, and how. Made from what a running broker and name server
//! answer and from the arguments that Java's own classes write, so that it cannot say what is not so.
//!
//! `UPDATE=1 cargo test -p ferromq-broker --test it protocol_doc` writes the file anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferromq_namesrv::NamesrvSettings;
use ferromq_protocol::code::{request as r, response};
use ferromq_protocol::{Command, SerializeType};
use ferromq_remoting::{Client, ClientConfig, Dispatch};

use crate::support::Rig;

/// Who sends each request, and what is to be said of it.
#[rustfmt::skip]
const NOTES: &[(i32, &str, &str)] = &[
    (r::SEND_MESSAGE, "client", "stores a message; the answer has its id, queue and offset"),
    (r::PULL_MESSAGE, "client", "messages from an offset on; waits for new ones if the client can; refused on the port two below"),
    (r::QUERY_MESSAGE, "client, tools", "messages by key or unique id; 22 if there is none"),
    (r::QUERY_BROKER_OFFSET, "", "unused in 4.9"),
    (r::QUERY_CONSUMER_OFFSET, "client", "progress of a group; 22 if there is none and the queue does not begin at 0 in memory"),
    (r::UPDATE_CONSUMER_OFFSET, "client", "saves progress of a group"),
    (r::UPDATE_AND_CREATE_TOPIC, "tools", "makes or changes a topic; 1 for topics of the system and bad names; `order` has no effect, as in Java"),
    (r::GET_ALL_TOPIC_CONFIG, "slave, tools", "the topic table; also on the port two below, where a Java slave asks"),
    (r::GET_TOPIC_CONFIG_LIST, "", "unused in 4.9"),
    (r::GET_TOPIC_NAME_LIST, "", "unused in 4.9"),
    (r::UPDATE_BROKER_CONFIG, "tools", "changes settings that can change while the broker runs; 16 for keys of the black list"),
    (r::GET_BROKER_CONFIG, "tools", "all settings as `key=value` lines"),
    (r::TRIGGER_DELETE_FILES, "", "unused in 4.9"),
    (r::GET_BROKER_RUNTIME_INFO, "tools", "figures of the running broker"),
    (r::SEARCH_OFFSET_BY_TIMESTAMP, "client, tools", "offset of the message nearest in time"),
    (r::GET_MAX_OFFSET, "client, tools", "offset behind the last message of a queue"),
    (r::GET_MIN_OFFSET, "client, tools", "offset of the first message of a queue"),
    (r::GET_EARLIEST_MSG_STORETIME, "client, tools", "store time of the first message of a queue, -1 if there is none"),
    (r::VIEW_MESSAGE_BY_ID, "client, tools", "the message at a place of the log; 1 if there is none"),
    (r::HEART_BEAT, "client", "keeps a client and its groups known for two minutes"),
    (r::UNREGISTER_CLIENT, "client", "forgets a client in a group at once"),
    (r::CONSUMER_SEND_MSG_BACK, "client", "delivers a message again later, or puts it among the dead letters"),
    (r::END_TRANSACTION, "client", "commits or rolls back a half message; deciding twice stores nothing twice"),
    (r::GET_CONSUMER_LIST_BY_GROUP, "client", "client ids of a group; 1 if there is none"),
    (r::CHECK_TRANSACTION_STATE, "broker", "asks a producer about a half message"),
    (r::NOTIFY_CONSUMER_IDS_CHANGED, "broker", "tells the members of a group to share out its queues anew"),
    (r::LOCK_BATCH_MQ, "client", "locks queues for one ordered consumer"),
    (r::UNLOCK_BATCH_MQ, "client", "gives those locks back"),
    (r::GET_ALL_CONSUMER_OFFSET, "slave", "progress of all groups"),
    (r::GET_ALL_DELAY_OFFSET, "slave", "progress of delayed messages"),
    (r::CHECK_CLIENT_CONFIG, "client", "whether an SQL filter can be used here; 1 if it is off, 23 if it cannot be read"),
    (r::UPDATE_AND_CREATE_ACL_CONFIG, "tools", "makes or changes an account of access control"),
    (r::DELETE_ACL_CONFIG, "tools", "deletes an account of access control"),
    (r::GET_BROKER_CLUSTER_ACL_INFO, "tools", "versions of the files of access control"),
    (r::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, "tools", "addresses that access control lets through"),
    (r::GET_BROKER_CLUSTER_ACL_CONFIG, "tools", "the accounts of access control; gone in 4.9.8"),
    (r::PUT_KV_CONFIG, "tools", "sets a key of the key-value configuration; on disk before the answer"),
    (r::GET_KV_CONFIG, "tools", "the value of a key; 22 if there is none"),
    (r::DELETE_KV_CONFIG, "tools", "deletes a key; the namespace stays"),
    (r::REGISTER_BROKER, "broker", "takes a broker and its topics into the routes; 1 if the checksum or the body is wrong or a name is empty"),
    (r::UNREGISTER_BROKER, "broker", "takes a broker out, if the address is still its own"),
    (r::GET_ROUTEINFO_BY_TOPIC, "client", "where a topic is, always as valid JSON; 17 if nowhere"),
    (r::GET_BROKER_CLUSTER_INFO, "tools", "all brokers and clusters"),
    (r::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "tools", "makes or changes a group"),
    (r::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, "slave, tools", "the group table"),
    (r::GET_TOPIC_STATS_INFO, "tools", "offsets of all queues of a topic; 17 if there is none"),
    (r::GET_CONSUMER_CONNECTION_LIST, "tools", "members and subscriptions of a group; 206 if nobody is online"),
    (r::GET_PRODUCER_CONNECTION_LIST, "tools", "members of a producer group; 1 if there is none"),
    (r::WIPE_WRITE_PERM_OF_BROKER, "tools", "takes the write permission from all topics of a broker, until it registers anew"),
    (r::GET_ALL_TOPIC_LIST_FROM_NAMESERVER, "tools", "names of all topics"),
    (r::DELETE_SUBSCRIPTIONGROUP, "tools", "deletes a group, and its progress if asked to"),
    (r::GET_CONSUME_STATS, "tools", "progress of a group beside the ends of its queues"),
    (r::SUSPEND_CONSUMER, "", "unused in 4.9"),
    (r::RESUME_CONSUMER, "", "unused in 4.9"),
    (r::RESET_CONSUMER_OFFSET_IN_CONSUMER, "", "unused in 4.9"),
    (r::RESET_CONSUMER_OFFSET_IN_BROKER, "", "unused in 4.9"),
    (r::ADJUST_CONSUMER_THREAD_POOL, "", "unused in 4.9"),
    (r::WHO_CONSUME_THE_MESSAGE, "", "unused in 4.9"),
    (r::DELETE_TOPIC_IN_BROKER, "tools", "deletes a topic, its queues and the progress in it; the name servers are told"),
    (r::DELETE_TOPIC_IN_NAMESRV, "tools", "takes a topic out of the routes, in one cluster if one is named"),
    (r::GET_KVLIST_BY_NAMESPACE, "tools", "all keys of a namespace; 22 if it never existed"),
    (r::RESET_CONSUMER_CLIENT_OFFSET, "broker", "hands the members of a group new offsets"),
    (r::GET_CONSUMER_STATUS_FROM_CLIENT, "broker", "asks a client for its progress"),
    (r::INVOKE_BROKER_TO_RESET_OFFSET, "tools", "resets a group by time, also its members that are online"),
    (r::INVOKE_BROKER_TO_GET_CONSUMER_STATUS, "tools", "progress as the members of a group have it"),
    (r::GET_TOPICS_BY_CLUSTER, "tools", "names of the topics of a cluster; an unknown one has none"),
    (r::QUERY_TOPIC_CONSUME_BY_WHO, "tools", "groups that read a topic"),
    (r::REGISTER_FILTER_SERVER, "", "filter servers are gone since 4.9.6"),
    (r::REGISTER_MESSAGE_FILTER_CLASS, "", "only ever sent to filter servers, which are gone"),
    (r::QUERY_CONSUME_TIME_SPAN, "tools", "how far behind a group is in each queue"),
    (r::GET_SYSTEM_TOPIC_LIST_FROM_NS, "tools", "names of clusters and brokers, which are topics too"),
    (r::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, "tools", "topics that the broker made for itself"),
    (r::CLEAN_EXPIRED_CONSUMEQUEUE, "tools", "frees queue files of messages that are gone"),
    (r::GET_CONSUMER_RUNNING_INFO, "tools", "passed on to the client named, whose answer goes back as it is"),
    (r::QUERY_CORRECTION_OFFSET, "tools", "the least offsets of other groups"),
    (r::CONSUME_MESSAGE_DIRECTLY, "tools", "passed on with the message to a client, which consumes it now"),
    (r::SEND_MESSAGE_V2, "client", "as 10, with short names of arguments"),
    (r::GET_UNIT_TOPIC_LIST, "tools", "unit topics"),
    (r::GET_HAS_UNIT_SUB_TOPIC_LIST, "tools", "topics with a unit subscription"),
    (r::GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, "tools", "topics with a unit subscription that are no unit topics"),
    (r::CLONE_GROUP_OFFSET, "tools", "copies progress from one group to another"),
    (r::VIEW_BROKER_STATS_DATA, "tools", "rates of a minute, an hour and a day; 1 for unknown figures"),
    (r::CLEAN_UNUSED_TOPIC, "tools", "deletes queues of topics that do not exist"),
    (r::GET_BROKER_CONSUME_STATS, "tools", "progress of all groups of the broker"),
    (r::UPDATE_NAMESRV_CONFIG, "tools", "changes settings of the name server; 16 for keys of the black list"),
    (r::GET_NAMESRV_CONFIG, "tools", "all settings of the name server as `key=value` lines"),
    (r::SEND_BATCH_MESSAGE, "client", "stores several messages, all or none"),
    (r::QUERY_CONSUME_QUEUE, "tools", "raw entries of a queue, and whether a group's filter lets them through"),
    (r::QUERY_DATA_VERSION, "broker", "whether the name server has an older table; counts as a sign of life if not"),
    (r::RESUME_CHECK_HALF_MESSAGE, "tools", "has a transaction that was given up asked about again"),
    (r::SEND_REPLY_MESSAGE, "client", "hands a reply to the client that waits for it"),
    (r::SEND_REPLY_MESSAGE_V2, "client", "the same, with short names of arguments"),
    (r::PUSH_REPLY_MESSAGE_TO_CLIENT, "broker", "a reply, for the client that asked"),
    (r::ADD_WRITE_PERM_OF_BROKER, "tools", "gives all topics of a broker the permission 6"),
    (r::GET_ALL_PRODUCER_INFO, "tools", "all producers that are online"),
    (r::DELETE_EXPIRED_COMMITLOG, "tools", "deletes files of the log that are older than they have to be kept"),
];

const TOP: &str = "# Protocol

What FerroMQ's broker and name server answer, code by code. This file is made by a test that asks a running broker and a
running name server every code, so it changes with them: `UPDATE=1 cargo test -p ferromq-broker --test it protocol_doc`
writes it, the same without `UPDATE` fails when it is stale.

- A frame is `length (4) | form (1) | header length (3) | header | body`, numbers big-endian; `length` does not count itself.
  A frame of more than 16 MiB, or one that cannot be read, closes its connection and no other.
- Form 0 is a JSON header, form 1 the binary one that RocketMQ calls ROCKETMQ. Every code is served in both, and the answer has
  the form of the request. Versions are sent as 407 (4.9.7).
- A one-way request (flag 2) is never answered. A request that cannot be read is answered 1 with the argument's name; a full
  queue or a wait that was too long 2; a code that nobody serves 3.
- Arguments are the names that Java's own classes know, `!` marks those that they always write. More arguments than these are
  no error.
- A broker serves the same on two ports, `listenPort` and the one two below it; only 11 is refused there.

";

/// Arguments by `request-N`, from what Java's classes wrote: with all of them, and with the mandatory ones only.
fn arguments() -> BTreeMap<String, String> {
    let mut full: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut least = full.clone();
    let path = root().join("e2e/java/golden/frames.jsonl");
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let names = line["ext"].as_object().map(|m| m.keys().cloned().collect());
        let which = if line["variant"] == "full" {
            &mut full
        } else {
            &mut least
        };
        which.insert(
            line["header"].as_str().unwrap().to_owned(),
            names.unwrap_or_default(),
        );
    }
    let with_marks = |(header, names): (String, Vec<String>)| {
        let mandatory = least.get(&header).cloned().unwrap_or_default();
        let mark = |n: &String| {
            if mandatory.contains(n) {
                format!("{n}!")
            } else {
                n.clone()
            }
        };
        let text = names.iter().map(mark).collect::<Vec<_>>().join(", ");
        (header, text)
    };
    full.into_iter().map(with_marks).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_path_buf()
}

/// Asks in both forms; both times the answer must say the same.
async fn serves(client: &Client, addr: &str, code: i32) -> bool {
    let mut codes = Vec::new();
    for form in [SerializeType::Json, SerializeType::Binary] {
        let mut ask = Command::request(code);
        ask.serialize = form;
        let answer = client.call(addr, ask, Duration::from_secs(30)).await.unwrap();
        assert_eq!(answer.serialize, form, "the form of the answer to {code}");
        codes.push(answer.code != response::REQUEST_CODE_NOT_SUPPORTED);
    }
    assert_eq!(codes[0], codes[1], "{code} is served in one form only");
    codes[0]
}

async fn page() -> String {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let names = ferromq_namesrv::start(NamesrvSettings {
        listen_port: 0,
        bind_address: "127.0.0.1".to_owned(),
        kv_config_path: file("kv.json"),
        config_store_path: file("namesrv.properties"),
        ..NamesrvSettings::default()
    })
    .await
    .unwrap();
    let rig = Rig::start().await;
    let client = Client::new(ClientConfig::default(), Dispatch::none());
    let (name_server, broker) = (names.local_addr().to_string(), rig.peer.addr.clone());
    let arguments = arguments();
    let mut page = TOP.to_owned();
    page.push_str("| code | Java's name | sent by | answered by | arguments | what it does |\n");
    page.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for (code, name) in r::ALL {
        let (_, sender, text) = NOTES
            .iter()
            .find(|(c, ..)| c == code)
            .unwrap_or_else(|| panic!("nothing is said about {name}"));
        let mut who = Vec::new();
        if serves(&client, &name_server, *code).await {
            who.push("name server");
        }
        if serves(&client, &broker, *code).await {
            who.push("broker");
        }
        if *sender == "broker" && who.is_empty() {
            who.push("client");
        }
        let who = if who.is_empty() {
            "nobody: 3".to_owned()
        } else {
            who.join(", ")
        };
        let arguments = arguments
            .get(&format!("request-{code}"))
            .map_or("", String::as_str);
        writeln!(
            page,
            "| {code} | {name} | {sender} | {who} | {arguments} | {text} |"
        )
        .unwrap();
    }
    page.push_str("\n## Codes of answers\n\n| code | Java's name |\n| --- | --- |\n");
    for (code, name) in response::ALL {
        writeln!(page, "| {code} | {name} |").unwrap();
    }
    rig.stop().await;
    names.shutdown().await;
    page
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_codes_is_what_is_answered() {
    let path = root().join("docs/protocol.md");
    let page = page().await;
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(written.lines()).find(|(new, old)| new != old);
    assert!(
        page == written,
        "docs/protocol.md is stale: run `UPDATE=1 cargo test -p ferromq-broker --test it protocol_doc`; first difference: {differs:?}"
    );
}
