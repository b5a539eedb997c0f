//! A broker on a machine that has IPv6 addresses of its link only, `fe80::…%eth0`: what it tells of itself has brackets and
//! no zone, it can be reached there, and ids lead back to it. Makes a network namespace, so it takes root.

use std::net::SocketAddr;
use std::process::{Command as Program, Stdio};

use ferromq_protocol::Command;
use ferromq_protocol::body::ClusterInfo;
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{QueueHeader, ViewMessage};
use ferromq_protocol::message_id;
use ferromq_protocol::record::{self, Check, Entry};

use crate::process::{BROKER, Process};
use crate::support::{Peer, eventually, free_port};

fn ip(words: &str) -> bool {
    let out = Program::new("ip").args(words.split_whitespace()).output();
    out.is_ok_and(|out| out.status.success())
}

/// A namespace joined to this one by a cable without any IPv4 address.
struct Net {
    name: String,
    cable: String,
}

impl Net {
    fn new() -> Option<Self> {
        let net = Self {
            name: format!("ferromq-six-{}", std::process::id()),
            cable: format!("fs{}", std::process::id()),
        };
        let (name, cable) = (&net.name, &net.cable);
        let made = ip(&format!("netns add {name}"))
            && ip(&format!(
                "link add {cable}a type veth peer name {cable}b netns {name}"
            ))
            && ip(&format!("link set {cable}a up"))
            && ip(&format!("-n {name} link set {cable}b up"))
            && ip(&format!("-n {name} link set lo up"));
        made.then_some(net)
    }

    /// The address of the link that the namespace has.
    fn address(&self) -> Option<String> {
        let shown = Program::new("ip")
            .args(["-n", &self.name, "-6", "-o", "addr", "show", "scope", "link"])
            .output()
            .ok()?;
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        if shown.contains("tentative") {
            return None;
        }
        let (_, rest) = shown.split_once("inet6 ")?;
        Some(rest.split_once('/')?.0.to_owned())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        ip(&format!("link del {}a", self.cable));
        ip(&format!("netns del {}", self.name));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_has_addresses_of_its_link_only() {
    let Some(net) = Net::new() else {
        eprintln!("skipped: this user may not make network namespaces (ip netns add); it takes root");
        return;
    };
    eventually("an address of the link", || async { net.address().is_some() }).await;
    let address = net.address().unwrap();
    assert!(address.starts_with("fe80::"), "{address}");
    let dir = tempfile::tempdir().unwrap();
    let (port, names) = (free_port(), free_port());
    // Which address to tell and to listen on is left to the broker.
    let file = Process::configure(dir.path(), port, "brokerIP1=\nbindAddress=0.0.0.0\n");
    let mut program = Program::new("ip");
    program
        .args(["netns", "exec", &net.name, BROKER, "-c"])
        .arg(file)
        .args(["--with-namesrv", &format!("-Dnamesrv.listenPort={names}")])
        .stderr(Stdio::null());
    let mut process = Process::run(program);
    let lines = process.started() + &process.started();
    let told = format!("[{address}]:{port}");
    assert!(lines.contains(&told), "{lines}");

    // The zone is ours: it says which of our own cables to take.
    let peer = Peer::new(format!("[{address}%{}a]:{port}", net.cable));
    eventually("a connection", || async {
        peer.try_call(Command::request(request::GET_BROKER_RUNTIME_INFO))
            .await
            .is_some()
    })
    .await;
    let sent = peer.send("T", 0, "find me").await;
    assert_eq!(sent.id.len(), 56);
    let (host, offset) = message_id::parse_offset_id(&sent.id).unwrap();
    assert_eq!(host, told.parse::<SocketAddr>().unwrap());
    let view = Command::request(request::VIEW_MESSAGE_BY_ID).with_header(&ViewMessage { offset });
    let answer = peer.ok(view).await;
    let Entry::Record(found) = record::parse(&answer.body, Check::Crc).unwrap() else {
        panic!("no record")
    };
    assert_eq!((found.body, found.store_host), (&b"find me"[..], host));
    assert!(found.born_host.is_ipv6());
    // By time, and the time of the first: both read the record, whose hosts are longer.
    let at = |code: i32, name: &'static str| {
        let peer = &peer;
        async move {
            let queue = QueueHeader {
                topic: "T",
                queue_id: 0,
            };
            let asked = Command::request(code)
                .with_header(&queue)
                .with_ext("timestamp", "0");
            let answer = peer.ok(asked).await;
            answer.ext.get(name).unwrap().parse::<i64>().unwrap()
        }
    };
    assert_eq!(at(request::SEARCH_OFFSET_BY_TIMESTAMP, "offset").await, 0);
    let stored = at(request::GET_EARLIEST_MSG_STORETIME, "timestamp").await;
    assert_eq!(stored, found.store_timestamp);

    let at_names = Peer::new(format!("[{address}%{}a]:{names}", net.cable));
    let info = at_names
        .ok(Command::request(request::GET_BROKER_CLUSTER_INFO))
        .await;
    let info: ClusterInfo = fastjson::from_slice(&info.body).unwrap();
    let known = &info.broker_addr_table["broker-a"].broker_addrs;
    assert_eq!(known[&0], told);
    process.stop();
}
