//! Master and slave over streams in memory and over loopback, with proxies that hold back and scanners that knock.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and its tasks end with it"
)]

mod common;

use std::{fs, path::Path, sync::Arc, time::Duration};

use common::{LOG_FILE, all, config, dispatched, message, open, until};
use ferromq_store::{
    BrokerRole, PutError, PutStatus, Store, StoreConfig, WriteRefusal,
    ha::{LinkError, Master, Options, Slave, wire},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

struct Node {
    dir: TempDir,
    store: Store,
}

impl Node {
    fn new(role: BrokerRole) -> Self {
        Self::with(role, |_| {})
    }

    fn with(role: BrokerRole, change: impl FnOnce(&mut StoreConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        config.role = role;
        change(&mut config);
        Self {
            store: open(config),
            dir,
        }
    }

    fn end(&self) -> i64 {
        self.store.figures().log_max
    }

    fn min(&self) -> i64 {
        self.store.figures().log_min
    }
}

fn options() -> Options {
    Options {
        batch: 1_000,
        heartbeat: Duration::from_millis(50),
        retry: Duration::from_millis(20),
        ..Options::default()
    }
}

/// Bodies of many sizes over three queues, so that files roll and their blanks differ.
fn fill(store: &Store, from: usize, count: usize) {
    for n in from..from + count {
        let body = format!("{n:05}").repeat(1 + n % 97);
        let put = store.put(message(
            "T",
            (n % 3) as i32,
            body.as_bytes(),
            "TAGS\u{1}a\u{2}KEYS\u{1}k",
        ));
        put.unwrap();
    }
}

/// The log's bytes below `end`.
fn log(dir: &Path, end: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in common::names(&dir.join("commitlog")) {
        if name.len() == 20 && name.parse::<i64>().unwrap() < end {
            bytes.extend(fs::read(dir.join("commitlog").join(name)).unwrap());
        }
    }
    bytes
}

fn assert_equal(master: &Node, slave: &Node) {
    let end = master.end();
    until("the slave has the log", || slave.end() == end);
    dispatched(&master.store);
    dispatched(&slave.store);
    let past = (end - master.min()) as usize;
    let (ours, theirs) = (log(master.dir.path(), end), log(slave.dir.path(), end));
    assert!(ours[..past] == theirs[..past], "the logs differ");
    for queue in 0..3 {
        assert_eq!(
            all(&master.store, "T", queue),
            all(&slave.store, "T", queue),
            "queue {queue}"
        );
    }
}

/// Joins the two by a stream in memory; the tasks end with the stream.
fn join(master: &Node, slave: &Node) -> (JoinHandle<LinkError>, JoinHandle<LinkError>) {
    let (a, b) = duplex(4 << 10);
    let (m, s) = (
        Master::new(master.store.clone(), options()),
        Slave::new(slave.store.clone(), options()),
    );
    (
        tokio::spawn(async move { m.serve(a, "slave").await }),
        tokio::spawn(async move { s.follow(b).await }),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slaves_log_is_the_masters_byte_by_byte() {
    let (master, slave) = (Node::new(BrokerRole::AsyncMaster), Node::new(BrokerRole::Slave));
    // Some before, some while the link is up.
    fill(&master.store, 0, 700);
    let (serving, following) = join(&master, &slave);
    fill(&master.store, 700, 700);
    assert!(master.end() > 3 * LOG_FILE as i64, "files roll");
    assert_equal(&master, &slave);
    until("the slave's reports", || {
        master.store.replicas().iter().any(|r| r.behind_bytes == 0)
    });
    let rows = master.store.replicas();
    assert_eq!((rows.len(), rows[0].address.as_str()), (1, "slave"));
    assert_eq!(rows[0].ack_offset, master.end());
    following.abort();
    assert!(matches!(
        serving.await.unwrap(),
        LinkError::Closed | LinkError::Io(_)
    ));
    assert!(master.store.replicas().is_empty(), "only live connections count");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_cut_anywhere_goes_on_where_it_was() {
    let (master, slave) = (Node::new(BrokerRole::AsyncMaster), Node::new(BrokerRole::Slave));
    fill(&master.store, 0, 300);
    let total = master.end();
    let mut rounds = 0;
    // Each round a proxy lets through so many bytes, which ends inside heads, records and blanks.
    for budget in (0..).map(|n| 1_500 + 1_117 * n) {
        let (of_master, mut proxy_a) = duplex(1 << 10);
        let (of_slave, mut proxy_b) = duplex(1 << 10);
        let serve = Master::new(master.store.clone(), options());
        let follow = Slave::new(slave.store.clone(), options());
        let serving = tokio::spawn(async move { serve.serve(of_master, "slave").await });
        let following = tokio::spawn(async move { follow.follow(of_slave).await });
        let mut left: usize = budget;
        let (mut down, mut up) = ([0; 701], [0; 64]);
        while left > 0 && slave.end() < total {
            tokio::select! {
                n = proxy_a.read(&mut down) => {
                    let n = n.unwrap().min(left);
                    left -= n;
                    proxy_b.write_all(&down[..n]).await.unwrap();
                }
                n = proxy_b.read(&mut up) => {
                    let n = n.unwrap();
                    proxy_a.write_all(&up[..n]).await.unwrap();
                }
            }
        }
        drop((proxy_a, proxy_b));
        serving.await.unwrap();
        following.await.unwrap();
        rounds += 1;
        if slave.end() == total {
            break;
        }
    }
    assert!(rounds > 3, "{rounds} rounds");
    assert_equal(&master, &slave);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_restarted_inside_a_record_takes_up_at_its_start() {
    let (master, mut slave) = (Node::new(BrokerRole::AsyncMaster), Node::new(BrokerRole::Slave));
    fill(&master.store, 0, 50);
    let bytes = log(master.dir.path(), master.end());
    let (mut ours, theirs) = duplex(1 << 16);
    let s = Slave::new(slave.store.clone(), options());
    let following = tokio::spawn(async move { s.follow(theirs).await });
    ours.write_all(&wire::head(0, 1_000)).await.unwrap();
    ours.write_all(&bytes[..1_000]).await.unwrap();
    until("a thousand bytes", || slave.end() == 1_000);
    drop(ours);
    following.await.unwrap();
    let clean = slave.store.shutdown().unwrap();
    assert!(clean.clean, "an unfinished record is nothing to recover");
    let mut config = config(slave.dir.path());
    config.role = BrokerRole::Slave;
    slave.store = open(config);
    assert!((1..1_000).contains(&slave.end()), "{}", slave.end());
    let (_serving, following) = join(&master, &slave);
    assert_equal(&master, &slave);
    following.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fresh_slave_gets_all_that_a_cleaned_master_has() {
    let master = Node::new(BrokerRole::AsyncMaster);
    fill(&master.store, 0, 900);
    dispatched(&master.store);
    assert!(master.store.shutdown().unwrap().clean);
    // What the cleaner does to the oldest file.
    fs::remove_file(master.dir.path().join("commitlog/00000000000000000000")).unwrap();
    let master = Node {
        store: open(config(master.dir.path())),
        dir: master.dir,
    };
    assert_eq!(master.min(), LOG_FILE as i64);
    let slave = Node::new(BrokerRole::Slave);
    let (_serving, following) = join(&master, &slave);
    let end = master.end();
    until("the slave has the log", || slave.end() == end);
    dispatched(&slave.store);
    assert_eq!(slave.min(), master.min());
    for queue in 0..3 {
        let (first, max) = (
            master.store.min_offset("T", queue),
            master.store.max_offset("T", queue),
        );
        assert_eq!(slave.store.max_offset("T", queue), max);
        assert_eq!(slave.store.min_offset("T", queue), first);
        assert_eq!(all(&slave.store, "T", queue), all(&master.store, "T", queue));
    }
    following.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_parted_are_refused_and_left_alone() {
    let (master, other) = (
        Node::new(BrokerRole::AsyncMaster),
        Node::new(BrokerRole::AsyncMaster),
    );
    fill(&master.store, 0, 20);
    fill(&other.store, 7, 61);
    let other_end = other.end();
    assert!(other.store.shutdown().unwrap().clean);
    let slave = Node {
        store: open(StoreConfig {
            role: BrokerRole::Slave,
            ..config(other.dir.path())
        }),
        dir: other.dir,
    };
    // Longer than the master's: it claims what it can't have.
    let (serving, following) = join(&master, &slave);
    assert!(matches!(serving.await.unwrap(), LinkError::Beyond { .. }));
    following.await.unwrap();
    assert!(master.store.replicas().is_empty());
    // Once the master's is longer, its next bytes are no record where this log ends.
    fill(&master.store, 20, 300);
    let (_serving, following) = join(&master, &slave);
    let error = following.await.unwrap();
    assert!(matches!(error, LinkError::Diverged(_)), "{error}");
    assert!(error.to_string().contains("delete its store"), "{error}");
    assert_eq!(slave.end(), other_end, "nothing of it was taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_refuses_sends_and_serves_reads() {
    let slave = Node::new(BrokerRole::Slave);
    let refused = slave.store.put(message("T", 0, b"x", "")).unwrap_err();
    assert!(matches!(refused, PutError::NotWritable(WriteRefusal::Slave)));
    // A delayed message on its way through the master stays where it is here.
    let master = Node::new(BrokerRole::AsyncMaster);
    master
        .store
        .put(message("T", 0, b"later", "DELAY\u{1}1\u{2}"))
        .unwrap();
    master.store.put(message("T", 0, b"now", "")).unwrap();
    let (_serving, following) = join(&master, &slave);
    until("both", || slave.end() == master.end());
    dispatched(&slave.store);
    slave.store.config().clock.set(common::T0 + 60_000);
    assert_eq!(all(&slave.store, "T", 0), [b"now".to_vec()]);
    assert_eq!(slave.store.max_offset("SCHEDULE_TOPIC_XXXX", 0), 1);
    assert!(slave.store.delay_offsets().is_empty());
    following.abort();
}

fn sync_master(slave_timeout: u64) -> Node {
    Node::with(BrokerRole::SyncMaster, |config| {
        config.slave_timeout = slave_timeout;
    })
}

/// A slave played by the test: reports `end`, then lets the test go on with the stream.
async fn played(master: &Node, end: i64) -> (DuplexStream, JoinHandle<LinkError>) {
    let (mut ours, theirs) = duplex(1 << 20);
    let m = Master::new(master.store.clone(), options());
    let serving = tokio::spawn(async move { m.serve(theirs, "played").await });
    ours.write_all(&wire::report(end)).await.unwrap();
    let master = master.store.clone();
    tokio::task::spawn_blocking(move || until("the slave counts", || !master.replicas().is_empty()))
        .await
        .unwrap();
    (ours, serving)
}

/// Reads what the master sends until the log's `end` has come.
async fn receive(stream: &mut DuplexStream, end: i64) {
    let mut buffer = bytes::BytesMut::new();
    loop {
        while let Some(incoming) = wire::take(&mut buffer).unwrap() {
            let wire::Incoming::Log(frame) = incoming else {
                panic!("a note to one that said no hello");
            };
            if frame.offset + frame.body.len() as i64 == end {
                return;
            }
        }
        assert!(stream.read_buf(&mut buffer).await.unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synchronous_master_waits_for_one_slave() {
    let master = sync_master(60_000);
    let put = |body: &[u8]| master.store.put(message("T", 0, body, "")).unwrap();
    assert_eq!(put(b"alone").ack.await, PutStatus::SlaveNotAvailable);

    let (mut slow, slow_serving) = played(&master, 0).await;
    let waiting = put(b"held back");
    let end = master.end();
    assert_eq!(waiting.ack.ready(), None);
    receive(&mut slow, end).await;
    slow.write_all(&wire::report(end - 1)).await.unwrap();
    until("the report is heard", || {
        master.store.replicas()[0].ack_offset == end - 1
    });
    assert_eq!(waiting.ack.ready(), None, "one byte is missing");
    // Another slave's word is enough.
    let slave = Node::new(BrokerRole::Slave);
    let (_serving, following) = join(&master, &slave);
    assert_eq!(waiting.ack.await, PutStatus::Ok);
    assert_eq!(put(b"both").ack.await, PutStatus::Ok);
    let mut unasked = message("T", 0, b"not waiting", "");
    unasked.wait_store_ok = false;
    assert_eq!(
        master.store.put(unasked).unwrap().ack.ready(),
        Some(PutStatus::Ok)
    );

    following.abort();
    drop(slow);
    slow_serving.await.unwrap();
    until("nobody is left", || master.store.replicas().is_empty());
    assert_eq!(put(b"alone again").ack.await, PutStatus::SlaveNotAvailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_slave_makes_sends_late_and_one_far_behind_does_not_count() {
    let master = Node::with(BrokerRole::SyncMaster, |config| {
        config.slave_timeout = 50;
        config.ha_slave_fallbehind_max = 10_000;
    });
    let (_slave, _serving) = played(&master, 0).await;
    let put = |body: &[u8]| master.store.put(message("T", 0, body, "")).unwrap();
    assert_eq!(put(b"x").ack.await, PutStatus::FlushSlaveTimeout);
    assert_eq!(put(&[7; 12_000]).ack.await, PutStatus::SlaveNotAvailable);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disk_and_slave_are_both_waited_for() {
    let master = Node::with(BrokerRole::SyncMaster, |config| {
        config.flush_mode = ferromq_store::FlushMode::Sync;
        config.slave_timeout = 60_000;
    });
    let slave = Node::new(BrokerRole::Slave);
    let (_serving, following) = join(&master, &slave);
    until("the slave counts", || !master.store.replicas().is_empty());
    let put = master.store.put(message("T", 0, b"x", "")).unwrap();
    assert_eq!(put.ack.await, PutStatus::Ok);
    let figures = master.store.figures();
    assert_eq!(figures.log_flushed, figures.log_max);
    assert_eq!(slave.end(), figures.log_max);
    following.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_not_sent_is_not_acknowledged() {
    let master = sync_master(60_000);
    master.store.put(message("T", 0, b"x", "")).unwrap();
    for bogus in [
        i64::MAX,
        -2,
        i64::MIN,
        master.end() + 1,
        i64::from_be_bytes(*b"GET / HT"),
    ] {
        let (mut ours, theirs) = duplex(100);
        let m = Master::new(master.store.clone(), options());
        let serving = tokio::spawn(async move { m.serve(theirs, "scanner").await });
        ours.write_all(&wire::report(bogus)).await.unwrap();
        let error = serving.await.unwrap();
        assert!(
            matches!(error, LinkError::Beyond { .. } | LinkError::Offset(_)),
            "{bogus}: {error}"
        );
    }
    assert!(master.store.replicas().is_empty());
    // One that was a replica and then claims more than it was sent.
    let (mut ours, serving) = played(&master, 0).await;
    ours.write_all(&wire::report(master.end() + 1)).await.unwrap();
    assert!(matches!(serving.await.unwrap(), LinkError::Beyond { .. }));
    let put = master.store.put(message("T", 0, b"y", "")).unwrap();
    assert_eq!(put.ack.ready(), Some(PutStatus::SlaveNotAvailable));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scanners_leave_nothing_and_the_idle_are_closed() {
    let master = sync_master(60_000);
    master.store.put(message("T", 0, b"x", "")).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = Arc::new(Master::new(
        master.store.clone(),
        Options {
            housekeeping: Duration::from_millis(200),
            connections: 50,
            ..options()
        },
    ));
    let running = tokio::spawn(serving.run(listener, stop.clone()));
    for _ in 0..500 {
        let mut scanner = TcpStream::connect(address).await.unwrap();
        // It may have been closed already.
        scanner.write_all(b"\x16\x03\x01 nineteen bytes ").await.ok();
    }
    let mut idle = Vec::new();
    for _ in 0..60 {
        idle.push(TcpStream::connect(address).await.unwrap());
    }
    let put = master.store.put(message("T", 0, b"y", "")).unwrap();
    assert_eq!(put.ack.await, PutStatus::SlaveNotAvailable);
    for mut scanner in idle {
        let mut rest = Vec::new();
        // Closed by the master; how is not the point.
        scanner.read_to_end(&mut rest).await.ok();
        assert!(rest.is_empty());
    }
    // There's room for a slave again.
    let slave = Node::new(BrokerRole::Slave);
    let (_known, master_address) = watch::channel(Some(address.to_string()));
    let following = Slave::new(slave.store.clone(), options());
    let state = following.following();
    let slave_running = tokio::spawn(following.run(master_address, stop.clone()));
    assert_equal(&master, &slave);
    until("caught up", || state.caught_up_once() && state.connected());
    stop.cancel();
    running.await.unwrap();
    slave_running.await.unwrap();
    assert!(master.store.replicas().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_comes_back_by_itself_and_leaves_a_silent_master() {
    let (master, slave) = (Node::new(BrokerRole::AsyncMaster), Node::new(BrokerRole::Slave));
    fill(&master.store, 0, 100);
    // A master that takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (known, address) = watch::channel(Some(silent.local_addr().unwrap().to_string()));
    let stop = CancellationToken::new();
    let following = Slave::new(
        slave.store.clone(),
        Options {
            housekeeping: Duration::from_millis(100),
            ..options()
        },
    );
    let running = tokio::spawn(following.run(address, stop.clone()));
    let (mut first, _) = silent.accept().await.unwrap();
    let mut words = [0; 8 * (wire::HELLO_WORDS + 1)];
    first.read_exact(&mut words).await.unwrap();
    assert_eq!(words[..8], [0xff; 8], "a hello first");
    assert_eq!(
        words[8 * wire::HELLO_WORDS..],
        [0; 8],
        "and the first report at once"
    );
    let (_second, _) = silent.accept().await.unwrap();
    // Told of the real one, it follows that.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    known.send_replace(Some(listener.local_addr().unwrap().to_string()));
    let serving = Arc::new(Master::new(master.store.clone(), options()));
    let master_running = tokio::spawn(serving.run(listener, stop.clone()));
    assert_equal(&master, &slave);
    stop.cancel();
    running.await.unwrap();
    master_running.await.unwrap();
}
