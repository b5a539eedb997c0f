//! Master and slave as processes that are killed, stopped, cut off from each other, and come back.

use std::collections::HashSet;
use std::process::Command as Program;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::body::{
    ConsumerOffsetTable, DelayOffsetTable, SubscriptionGroupTable, TopicConfigTable,
};
use ferromq_protocol::code::request;
use ferromq_protocol::{Command, fastjson};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::create;
use crate::offsets::update;
use crate::process::{BROKER, Process, get};
use crate::support::{Peer, eventually, free_port, send_command};

const QUICK: &str = "haSendHeartbeatInterval=50\nhaHousekeepingInterval=1000\nslaveTimeout=1000\n";

struct Side {
    dir: TempDir,
    port: u16,
    pages: u16,
    peer: Peer,
}

impl Side {
    fn new() -> Self {
        let port = free_port();
        Self {
            dir: tempfile::tempdir().unwrap(),
            port,
            pages: free_port(),
            peer: Peer::new(format!("127.0.0.1:{port}")),
        }
    }

    fn lines(&self, role: &str) -> String {
        format!("{QUICK}httpPort={}\nbrokerRole={role}\n", self.pages)
    }

    fn master(&self) -> Process {
        self.start(&self.lines("SYNC_MASTER"))
    }

    fn slave_of(&self, master: &Self) -> Process {
        self.start(&format!(
            "{}brokerId=1\nhaMasterAddress=127.0.0.1:{}\n",
            self.lines("SLAVE"),
            master.port + 1
        ))
    }

    fn start(&self, more: &str) -> Process {
        let mut process = Process::start(self.dir.path(), self.port, more, &[]);
        process.started();
        process
    }

    async fn status(&self) -> serde_json::Value {
        let port = self.pages;
        let page = tokio::task::spawn_blocking(move || get(port, "/status"));
        let page = page.await.unwrap();
        page.map_or(serde_json::Value::Null, |(_, text)| {
            serde_json::from_str(&text).unwrap()
        })
    }

    fn store(&self) -> std::path::PathBuf {
        self.dir.path().join("store")
    }

    /// The log's files without the zeros that they were allocated with.
    fn log(&self) -> Vec<u8> {
        let mut files: Vec<_> = std::fs::read_dir(self.store().join("commitlog"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let mut bytes: Vec<u8> = files.iter().flat_map(|f| std::fs::read(f).unwrap()).collect();
        bytes.truncate(
            bytes
                .iter()
                .rposition(|byte| *byte != 0)
                .map_or(0, |last| last + 1),
        );
        bytes
    }

    async fn table<T: DeserializeOwned + Serialize>(&self, code: i32) -> serde_json::Value {
        let answer = self.peer.ok(Command::request(code)).await;
        serde_json::to_value(fastjson::from_slice::<T>(&answer.body).unwrap()).unwrap()
    }

    async fn tables(&self) -> [serde_json::Value; 3] {
        [
            self.table::<TopicConfigTable>(request::GET_ALL_TOPIC_CONFIG)
                .await,
            self.table::<ConsumerOffsetTable>(request::GET_ALL_CONSUMER_OFFSET)
                .await,
            self.table::<SubscriptionGroupTable>(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
                .await,
        ]
    }

    fn delays(&self) -> serde_json::Value {
        let file = self.store().join("config/delayOffset.json");
        let text = std::fs::read(file).unwrap_or_else(|_| b"{}".to_vec());
        serde_json::to_value(fastjson::from_slice::<DelayOffsetTable>(&text).unwrap_or_default()).unwrap()
    }
}

/// Sends on and on, on three queues, whatever becomes of the broker.
struct Load {
    acknowledged: Arc<Mutex<Vec<(i32, String)>>>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Load {
    fn start(port: u16) -> Self {
        let load = Self {
            acknowledged: Arc::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        for queue in 0..3 {
            let (acknowledged, stop) = (load.acknowledged.clone(), load.stop.clone());
            load.tasks.spawn(async move {
                let peer = Peer::new(format!("127.0.0.1:{port}"));
                for n in 0.. {
                    if stop.is_cancelled() {
                        return;
                    }
                    let body = format!("{queue}-{n:06}-").repeat(1 + n % 150);
                    let answer = peer.try_call(send_command("T", queue, &body, "")).await;
                    match answer {
                        Some(answer) if answer.code == 0 => acknowledged.lock().push((queue, body)),
                        // Not acknowledged: it may or may not be there.
                        Some(_) => tokio::time::sleep(Duration::from_millis(2)).await,
                        None => tokio::time::sleep(Duration::from_millis(20)).await,
                    }
                }
            });
        }
        load
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().len()
    }

    /// Waits until so many more are acknowledged.
    async fn more(&self, count: usize) {
        let goal = self.count() + count;
        eventually("more acknowledged sends", async || self.count() >= goal).await;
    }

    async fn end(self) -> Vec<(i32, String)> {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        std::mem::take(&mut *self.acknowledged.lock())
    }
}

async fn has_all(side: &Side, acknowledged: &[(i32, String)]) {
    for queue in 0..3 {
        let of_queue: Vec<_> = acknowledged.iter().filter(|(q, _)| *q == queue).collect();
        eventually("the queue", async || {
            side.peer.max_offset("T", queue).await >= of_queue.len() as i64
        })
        .await;
        let count = side.peer.max_offset("T", queue).await as usize;
        let found: HashSet<String> = side.peer.drain("T", queue, 0, count).await.into_iter().collect();
        let lacking = of_queue.iter().filter(|(_, body)| !found.contains(body)).count();
        assert_eq!(lacking, 0, "queue {queue} lacks acknowledged messages");
    }
}

async fn caught_up(master: &Side, slave: &Side) {
    eventually("the slave has the master's log", async || {
        let (of_master, of_slave) = (master.status().await, slave.status().await);
        of_master["log"]["max"] == of_slave["log"]["max"]
            && of_master["log"]["max"].as_i64().is_some_and(|max| max > 0)
            && of_slave["following"]["caughtUp"] == true
    })
    .await;
}

async fn counts(master: &Side) {
    eventually("the slave counts", async || {
        let answer = master.peer.try_call(send_command("T", 3, "probe", "")).await;
        answer.is_some_and(|answer| answer.code == 0)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn either_side_killed_under_load_loses_nothing_that_was_acknowledged() {
    let (a, b) = (Side::new(), Side::new());
    let mut master = a.master();
    let mut slave = b.slave_of(&a);
    counts(&a).await;
    a.peer.ok(create("U", 5, 6)).await;
    a.peer.ok(send_command("T", 3, "later", "DELAY\u{1}1\u{2}")).await;
    let load = Load::start(a.port);
    for _ in 0..3 {
        load.more(300).await;
        slave.kill();
        slave = b.slave_of(&a);
        load.more(300).await;
        master.kill();
        master = a.master();
    }
    load.more(300).await;
    let acknowledged = load.end().await;
    // Kept every few seconds only: a kill may take back what came since.
    a.peer.ok(update(3)).await;
    caught_up(&a, &b).await;
    has_all(&a, &acknowledged).await;
    has_all(&b, &acknowledged).await;
    // The pulls above made groups on either side; that of the master holds.
    eventually("tables are equal", async || a.tables().await == b.tables().await).await;
    eventually("delay offsets are equal", async || {
        a.delays() == b.delays() && a.delays() != serde_json::json!({"offsetTable": {}})
    })
    .await;
    caught_up(&a, &b).await;
    slave.stop();
    master.stop();
    assert!(a.log() == b.log(), "the logs differ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_slave_is_waited_for_then_left_and_comes_back() {
    let (a, b) = (Side::new(), Side::new());
    let master = a.master();
    let slave = b.slave_of(&a);
    counts(&a).await;
    let load = Load::start(a.port);
    load.more(100).await;
    slave.freeze().await;
    eventually("sends are late", async || {
        a.peer.call(send_command("T", 3, "x", "")).await.code == 12
    })
    .await;
    eventually("the slave does not count", async || {
        let row = a.status().await;
        a.peer.call(send_command("T", 3, "x", "")).await.code == 11
            && row["replicas"] == serde_json::json!([])
    })
    .await;
    let before = load.count();
    slave.signal("-CONT");
    eventually("the slave counts again", async || load.count() > before + 100).await;
    let acknowledged = load.end().await;
    caught_up(&a, &b).await;
    has_all(&b, &acknowledged).await;
    slave.stop();
    master.stop();
    assert!(a.log() == b.log(), "the logs differ");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_that_is_too_old_copies_anew_and_a_half_copy_is_no_master() {
    let (a, b) = (Side::new(), Side::new());
    let master = a.master();
    let slave = b.slave_of(&a);
    counts(&a).await;
    caught_up(&a, &b).await;
    slave.stop();
    let body = "x".repeat(60_000);
    for n in 0..300 {
        a.peer.call(send_command("T", n % 3, &body, "")).await;
    }
    master.stop();
    // What the cleaner does to old files.
    let log = a.store().join("commitlog");
    for n in 0..2u64 {
        std::fs::remove_file(log.join(format!("{:020}", n << 22))).unwrap();
    }
    let master = a.master();
    // Killed at one moment after the other: as soon as it has begun, when it has something, and so on.
    let mark = b.store().join("ha-copy");
    let mut refused = 0;
    for round in 0..20 {
        let mut slave = Process::start(
            b.dir.path(),
            b.port,
            &format!(
                "{}brokerId=1\nhaMasterAddress=127.0.0.1:{}\nhaTransferBatchSize=4096\n",
                b.lines("SLAVE"),
                a.port + 1
            ),
            &[],
        );
        slave.started();
        if round == 0 {
            // Without leaving the process.
            slave.started();
        }
        let at = round * 900_000;
        eventually("some of the copy", async || {
            let end = b.status().await["log"]["max"].as_i64();
            end.is_some_and(|end| end > at) || !mark.exists()
        })
        .await;
        slave.kill();
        if !mark.exists() {
            break;
        }
        let file = Process::configure(b.dir.path(), b.port, &b.lines("ASYNC_MASTER"));
        let out = Program::new(BROKER).arg("-c").arg(file).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && said.contains("unfinished copy"),
            "{said}"
        );
        refused += 1;
    }
    let slave = b.slave_of(&a);
    caught_up(&a, &b).await;
    eventually("the copy is whole", async || !mark.exists()).await;
    let status = b.status().await;
    assert_eq!(status["following"]["state"], "following", "{status}");
    assert_eq!(status["log"]["min"], 2 << 22);
    let old: Vec<_> = std::fs::read_dir(b.store())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("set-aside"))
        .collect();
    assert_eq!(old, [""; 0], "what was before is gone now");
    for queue in 0..3 {
        assert_eq!(
            a.peer.max_offset("T", queue).await,
            b.peer.max_offset("T", queue).await
        );
    }
    slave.stop();
    master.stop();
    assert!(a.log() == b.log(), "the logs differ");
    println!("refused as a master {refused} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_returns_with_messages_of_its_own_is_refused_as_a_slave() {
    let (a, b) = (Side::new(), Side::new());
    let master = a.master();
    let slave = b.slave_of(&a);
    counts(&a).await;
    caught_up(&a, &b).await;
    slave.stop();
    // Stored here only; the answer says that no slave has it.
    assert_eq!(a.peer.call(send_command("T", 0, "of A", "")).await.code, 11);
    master.kill();
    // The other one takes over, with a record of the same length at the same place, and more.
    let promoted = b.master();
    for body in ["of B", "more"] {
        assert_eq!(b.peer.call(send_command("T", 0, body, "")).await.code, 11);
    }
    let returned = a.slave_of(&b);
    eventually("it is refused", async || {
        a.status().await["following"]["state"] == "refused"
    })
    .await;
    let status = a.status().await;
    let error = status["following"]["error"].as_str().unwrap();
    assert!(
        error.contains("parted ways") && error.contains("delete its store"),
        "{error}"
    );
    assert_eq!(b.status().await["replicas"], serde_json::json!([]));
    // It goes on serving what it has.
    let end = a.peer.max_offset("T", 0).await;
    assert_eq!(a.peer.drain("T", 0, end - 1, 1).await, ["of A"]);
    returned.stop();
    promoted.stop();
}

/// The sockets that a process has open.
fn sockets(process: &Process) -> usize {
    let all = std::fs::read_dir(format!("/proc/{}/fd", process.id())).unwrap();
    all.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_scanners_leave_no_connection_and_no_replica() {
    let a = Side::new();
    let master = a.master();
    assert_eq!(a.peer.call(send_command("T", 0, "x", "")).await.code, 11);
    let before = sockets(&master);
    let address = format!("127.0.0.1:{}", a.port + 1);
    for n in 0..10_000 {
        let mut scanner = TcpStream::connect(&address).await.unwrap();
        // It may have been closed already.
        scanner.write_all(b"\x16\x03\x01 nineteen bytes ").await.ok();
        if n % 1_000 == 0 {
            assert_eq!(a.peer.call(send_command("T", 0, "x", "")).await.code, 11);
        }
    }
    let mut idle = Vec::new();
    for _ in 0..100 {
        idle.push(TcpStream::connect(&address).await.unwrap());
    }
    assert_eq!(a.peer.call(send_command("T", 0, "x", "")).await.code, 11);
    assert_eq!(a.status().await["replicas"], serde_json::json!([]));
    // After haHousekeepingInterval the idle ones are closed by the broker, though their peers still hold them.
    eventually("no connection is left", async || sockets(&master) <= before).await;
    drop(idle);
    // There is room for a slave.
    let b = Side::new();
    let slave = b.slave_of(&a);
    counts(&a).await;
    slave.stop();
    master.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_messages_next_to_many_small_ones_are_acknowledged_in_time() {
    let (a, b) = (Side::new(), Side::new());
    // No deadline but a generous one: a code other than 0 would be a wrong count, not a slow machine.
    let patient = "slaveTimeout=30000\nhaHousekeepingInterval=30000\nmappedFileSizeCommitLog=33554432\n";
    let master = a.start(&format!("{}{patient}", a.lines("SYNC_MASTER")));
    let slave = b.start(&format!(
        "{}{patient}brokerId=1\nhaMasterAddress=127.0.0.1:{}\n",
        b.lines("SLAVE"),
        a.port + 1
    ));
    counts(&a).await;
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    for _ in 0..4 {
        let (stop, port) = (stop.clone(), a.port);
        tasks.spawn(async move {
            let peer = Peer::new(format!("127.0.0.1:{port}"));
            let small = "s".repeat(100);
            while !stop.is_cancelled() {
                // Many at a time on the connection.
                let sends = (0..64).map(|_| peer.call(send_command("T", 1, &small, "WAIT\u{1}false\u{2}")));
                for answer in futures::future::join_all(sends).await {
                    assert_eq!(answer.code, 0, "{:?}", answer.remark);
                }
            }
        });
    }
    let body = "L".repeat(1 << 20);
    for n in 0..60 {
        let answer = a.peer.call(send_command("T", 0, &body, "")).await;
        assert_eq!(answer.code, 0, "large message {n}: {:?}", answer.remark);
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
    caught_up(&a, &b).await;
    slave.stop();
    master.stop();
    assert!(a.log() == b.log(), "the logs differ");
}

fn ip(args: &str) -> bool {
    Program::new("ip")
        .args(args.split(' '))
        .status()
        .is_ok_and(|status| status.success())
}

/// A network namespace joined to this one by a cable that can be pulled. Gone when dropped.
struct Net {
    name: String,
    cable: String,
    here: String,
}

impl Net {
    /// `None` where this user may not make one.
    fn new() -> Option<Self> {
        let id = std::process::id();
        // A /30 of a range that is for tests of networks.
        let subnet = (id % 16_384) * 4;
        let at = |host: u32| {
            format!(
                "198.{}.{}.{}",
                18,
                (subnet + host) >> 8 & 0xff,
                (subnet + host) & 0xff
            )
        };
        let net = Self {
            name: format!("ferromq-{id}"),
            cable: format!("fq{id}"),
            here: at(1),
        };
        let made = ip(&format!("netns add {}", net.name))
            && ip(&format!(
                "link add {0}a type veth peer name {0}b netns {1}",
                net.cable, net.name
            ))
            && ip(&format!("addr add {}/30 dev {}a", net.here, net.cable))
            && ip(&format!("link set {}a up", net.cable))
            && ip(&format!(
                "-n {} addr add {}/30 dev {}b",
                net.name,
                at(2),
                net.cable
            ))
            && ip(&format!("-n {} link set {}b up", net.name, net.cable))
            && ip(&format!("-n {} link set lo up", net.name));
        made.then_some(net)
    }

    fn plug(&self, there: bool) {
        assert!(ip(&format!(
            "link set {}a {}",
            self.cable,
            if there { "up" } else { "down" }
        )));
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // The cable goes with the namespace, at once if it is deleted itself.
        ip(&format!("link del {}a", self.cable));
        ip(&format!("netns del {}", self.name));
    }
}

fn start_in(net: &Net, side: &Side, more: &str) -> Process {
    let file = Process::configure(side.dir.path(), side.port, more);
    let mut program = Program::new("ip");
    program.args(["netns", "exec", &net.name, BROKER, "-c"]).arg(file);
    let mut process = Process::run(program);
    process.started();
    process
}

/// A page of a broker in the namespace.
fn page_in(net: &Net, side: &Side) -> serde_json::Value {
    let out = Program::new("ip")
        .args(["netns", "exec", &net.name, "bash", "-c"])
        .arg(format!(
            "exec 3<>/dev/tcp/127.0.0.1/{} && printf 'GET /status HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n' >&3 && cat <&3",
            side.pages
        ))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or(serde_json::Value::Null)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_costs_no_acknowledged_message_and_heals() {
    let Some(net) = Net::new() else {
        eprintln!("skipped: this user may not make network namespaces (ip netns add); it takes root");
        return;
    };
    let (a, b) = (Side::new(), Side::new());
    let master = a.start(&format!("{}bindAddress=0.0.0.0\n", a.lines("SYNC_MASTER")));
    let slave = start_in(
        &net,
        &b,
        &format!(
            "{}brokerId=1\nhaMasterAddress={}:{}\n",
            b.lines("SLAVE"),
            net.here,
            a.port + 1
        ),
    );
    counts(&a).await;
    let load = Load::start(a.port);
    load.more(200).await;
    for _ in 0..2 {
        net.plug(false);
        eventually("no slave counts", async || {
            a.peer.call(send_command("T", 3, "x", "")).await.code == 11
        })
        .await;
        let at = load.count();
        assert_eq!(a.status().await["replicas"], serde_json::json!([]));
        eventually("the slave has noticed", async || {
            page_in(&net, &b)["following"]["connected"] == false
        })
        .await;
        net.plug(true);
        eventually("the slave is back", async || load.count() > at + 200).await;
    }
    let acknowledged = load.end().await;
    eventually("the slave has all", async || {
        let status = page_in(&net, &b);
        status["log"]["max"] == a.status().await["log"]["max"]
    })
    .await;
    slave.stop();
    master.stop();
    assert!(a.log() == b.log(), "the logs differ");
    // What the slave has, served from where it can be reached.
    let promoted = b.master();
    has_all(&b, &acknowledged).await;
    promoted.stop();
}
