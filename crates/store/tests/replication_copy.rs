//! Slaves that cannot simply go on: logs that parted at one and the same boundary, logs that are too old, copies that stop in
//! the middle, masters of another group.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails, and its tasks end with it"
)]

mod common;

use std::{fs, path::Path, sync::Arc, time::Duration};

use common::{LOG_FILE, all, config, dispatched, message, names, open, until};
use ferromq_store::{
    BrokerRole, Hooks, OpenError, Progress, Store, StoreConfig,
    ha::{FollowState, LinkError, Master, Options, Slave},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, duplex},
    net::TcpListener,
    sync::watch,
};
use tokio_util::sync::CancellationToken;

fn options() -> Options {
    Options {
        batch: 1_000,
        heartbeat: Duration::from_millis(50),
        retry: Duration::from_millis(20),
        ..Options::default()
    }
}

fn with_role(root: &Path, role: BrokerRole) -> StoreConfig {
    StoreConfig { role, ..config(root) }
}

fn node(role: BrokerRole) -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(with_role(dir.path(), role));
    (dir, store)
}

/// Bodies of one length, so that logs of different ones have their boundaries at the same places.
fn fill(store: &Store, what: &str, from: usize, count: usize) {
    for n in from..from + count {
        let body = format!("{what}{n:06}").repeat(20);
        store
            .put(message("T", (n % 3) as i32, body.as_bytes(), "KEYS\u{1}k"))
            .unwrap();
    }
}

fn end(store: &Store) -> i64 {
    store.figures().log_max
}

fn close(store: &Store) {
    assert!(store.shutdown().unwrap().clean);
}

/// Runs a link in memory until it ends by itself.
async fn linked(master: &Store, slave: &Slave) -> (LinkError, LinkError) {
    linked_as(master, slave, options()).await
}

async fn linked_as(master: &Store, slave: &Slave, options: Options) -> (LinkError, LinkError) {
    let (a, b) = duplex(64 << 10);
    let master = Master::new(master.clone(), options);
    tokio::join!(master.serve(a, "slave"), slave.follow(b))
}

/// A master whose first `files` log files are gone, as the cleaner leaves it.
fn without_first_files(dir: &TempDir, store: &Store, files: u64) -> Store {
    dispatched(store);
    close(store);
    for n in 0..files {
        fs::remove_file(dir.path().join(format!("commitlog/{:020}", n * LOG_FILE))).unwrap();
    }
    open(with_role(dir.path(), BrokerRole::AsyncMaster))
}

fn assert_equal(master: &Store, slave: &Store) {
    let end = end(master);
    until("the slave has the log", || self::end(slave) == end);
    dispatched(master);
    dispatched(slave);
    assert_eq!(slave.figures().log_min, master.figures().log_min);
    for queue in 0..3 {
        assert_eq!(
            slave.min_offset("T", queue),
            master.min_offset("T", queue),
            "queue {queue}"
        );
        assert!(
            all(slave, "T", queue) == all(master, "T", queue),
            "queue {queue} differs"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_parted_at_one_boundary_are_told_apart() {
    // One history, then each goes its own way with records of the same lengths.
    let (old_dir, old) = node(BrokerRole::AsyncMaster);
    fill(&old, "both", 0, 100);
    dispatched(&old);
    close(&old);
    let fork = tempfile::tempdir().unwrap();
    common::copy_dir(old_dir.path(), fork.path());
    let (old, new) = (
        open(with_role(old_dir.path(), BrokerRole::AsyncMaster)),
        open(with_role(fork.path(), BrokerRole::AsyncMaster)),
    );
    fill(&old, "past", 100, 5);
    fill(&new, "next", 100, 50);
    let boundary = end(&old);
    close(&old);
    let returned = open(with_role(old_dir.path(), BrokerRole::Slave));
    let slave = Slave::new(returned.clone(), options());
    let (at_master, at_slave) = linked(&new, &slave).await;
    assert!(
        matches!(at_master, LinkError::Parted { end } if end == boundary),
        "{at_master}"
    );
    assert!(matches!(at_slave, LinkError::Diverged(_)), "{at_slave}");
    assert!(at_slave.to_string().contains("parted ways"), "{at_slave}");
    assert_eq!(end(&returned), boundary, "nothing was appended");
    assert!(new.replicas().is_empty(), "it never counted");
    let figures = slave.following().figures(boundary);
    assert_eq!(figures.state, FollowState::Refused);
    assert!(figures.error.unwrap().contains("parted ways"));
    // What only the old one has is still there.
    dispatched(&returned);
    assert!(all(&returned, "T", 1).contains(&b"past000100".repeat(20)));

    // Longer than the new one's: the same.
    let (_dir, short) = node(BrokerRole::AsyncMaster);
    fill(&short, "both", 0, 3);
    let (at_master, at_slave) = linked(&short, &slave).await;
    assert!(matches!(at_master, LinkError::Beyond { .. }), "{at_master}");
    assert!(matches!(at_slave, LinkError::Diverged(_)), "{at_slave}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_inside_a_record_is_compared_as_well() {
    let (_dir, master) = node(BrokerRole::AsyncMaster);
    fill(&master, "both", 0, 40);
    let (_slave_dir, store) = node(BrokerRole::Slave);
    let slave = Slave::new(store.clone(), options());
    // Ends in the middle of a record.
    let (a, mut ours) = duplex(1 << 20);
    let (mut theirs, b) = duplex(1 << 20);
    let serving = Master::new(master.clone(), options());
    let serving = tokio::spawn(async move { serving.serve(a, "slave").await });
    let pump = async {
        let mut hello = [0; 48];
        theirs.read_exact(&mut hello).await.unwrap();
        ours.write_all(&hello).await.unwrap();
        let mut some = vec![0; 3_333];
        ours.read_exact(&mut some).await.unwrap();
        theirs.write_all(&some).await.unwrap();
        let store = store.clone();
        tokio::task::spawn_blocking(move || until("three whole frames", || end(&store) >= 3_000))
            .await
            .unwrap();
        drop((ours, theirs));
    };
    tokio::join!(slave.follow(b), pump);
    serving.await.unwrap();
    assert_eq!(end(&store), 3_000);
    // Another master has other bytes there.
    let (_dir, other) = node(BrokerRole::AsyncMaster);
    fill(&other, "else", 0, 40);
    let (at_master, _) = linked(&other, &slave).await;
    assert!(matches!(at_master, LinkError::Parted { .. }), "{at_master}");
    // The right one goes on in the middle.
    let (a, b) = duplex(1 << 20);
    let serving = Master::new(master.clone(), options());
    tokio::spawn(async move { serving.serve(a, "slave").await });
    let following = slave.following();
    tokio::spawn(async move { slave.follow(b).await });
    assert_equal(&master, &store);
    until("caught up", || following.figures(0).caught_up);
    assert_eq!(following.figures(end(&master)).behind_bytes, Some(0));
    assert_eq!(following.figures(end(&master) - 7).behind_bytes, Some(7));
}

/// A slave that runs over TCP until the log is whole, or until `wants_reopening`.
struct Run {
    store: Store,
    slave: tokio::task::JoinHandle<()>,
    following: ferromq_store::ha::Following,
    stop: CancellationToken,
    _master: watch::Sender<Option<String>>,
}

fn run(root: &Path, master: &str) -> Run {
    let store = open(with_role(root, BrokerRole::Slave));
    let slave = Slave::new(store.clone(), options());
    let (following, stop) = (slave.following(), CancellationToken::new());
    let (known, address) = watch::channel(Some(master.to_owned()));
    let slave = tokio::spawn(slave.run(address, stop.clone()));
    Run {
        store,
        slave,
        following,
        stop,
        _master: known,
    }
}

impl Run {
    async fn end(self) {
        self.stop.cancel();
        self.slave.await.unwrap();
        self.store.shutdown().unwrap();
    }
}

async fn serve(store: &Store) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let master = Arc::new(Master::new(store.clone(), options()));
    tokio::spawn(master.run(listener, CancellationToken::new()));
    address
}

fn asides(root: &Path) -> Vec<String> {
    let mut all = names(root);
    all.retain(|name| name.ends_with(".set-aside") || name.starts_with("ha-copy"));
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slave_older_than_the_first_file_starts_anew_and_loses_its_old_log_last() {
    let (dir, master) = node(BrokerRole::AsyncMaster);
    fill(&master, "m", 0, 30);
    // One that followed up to here, was stopped, and comes back late.
    dispatched(&master);
    close(&master);
    let old = tempfile::tempdir().unwrap();
    common::copy_dir(dir.path(), old.path());
    fs::write(old.path().join("config/keep"), "this").unwrap();
    let master = open(with_role(dir.path(), BrokerRole::AsyncMaster));
    fill(&master, "m", 30, 1_000);
    assert!(end(&master) > 3 * LOG_FILE as i64);
    let master = without_first_files(&dir, &master, 2);
    let address = serve(&master).await;

    let running = run(old.path(), &address);
    tokio::time::timeout(Duration::from_mins(1), running.following.wants_reopening())
        .await
        .unwrap();
    let figures = running.following.figures(end(&running.store));
    assert_eq!(figures.state, FollowState::StartingAnew);
    assert!(figures.error.unwrap().contains("copied anew"));
    running.end().await;
    // Until it is opened again nothing has moved.
    assert_eq!(asides(old.path()), ["ha-copy"]);

    // Stopped in the middle of the copy, at whatever moment the copy of the directory catches.
    let running = run(old.path(), &address);
    until("something is copied", || end(&running.store) > 0);
    let half = tempfile::tempdir().unwrap();
    common::copy_dir(old.path(), half.path());
    let whole = running.following.clone();
    assert_equal(&master, &running.store);
    until("whole", || whole.caught_up_once());
    assert_eq!(asides(old.path()), [""; 0]);
    assert!(old.path().join("config/keep").exists());
    running.end().await;

    if half.path().join("ha-copy").exists() {
        let refused = Store::open(
            with_role(half.path(), BrokerRole::AsyncMaster),
            &Progress::new(),
            Hooks::default(),
        );
        let refused = refused.unwrap_err();
        assert!(matches!(refused, OpenError::HalfCopied { .. }), "{refused}");
    }
    let running = run(half.path(), &address);
    assert_equal(&master, &running.store);
    let whole = running.following.clone();
    until("whole", || whole.caught_up_once());
    assert_eq!(asides(half.path()), [""; 0]);
    running.end().await;

    // Now it may be a master.
    let promoted = open(with_role(half.path(), BrokerRole::AsyncMaster));
    dispatched(&promoted);
    for queue in 0..3 {
        assert!(all(&promoted, "T", queue) == all(&master, "T", queue));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_cut_anywhere_is_no_master_and_goes_on_to_the_end() {
    let (dir, master) = node(BrokerRole::AsyncMaster);
    fill(&master, "m", 0, 500);
    let master = without_first_files(&dir, &master, 1);
    let total = end(&master);
    let slave_dir = tempfile::tempdir().unwrap();
    let mut rounds = 0;
    for budget in (0..).map(|n| 700 + 9_973 * n) {
        let store = open(with_role(slave_dir.path(), BrokerRole::Slave));
        let slave = Slave::new(store.clone(), options());
        let following = slave.following();
        let (of_master, mut proxy_a) = duplex(1 << 10);
        let (of_slave, mut proxy_b) = duplex(1 << 10);
        let serving = Master::new(master.clone(), options());
        let serving = tokio::spawn(async move { serving.serve(of_master, "slave").await });
        let task = tokio::spawn(async move { slave.follow(of_slave).await });
        let mut left: usize = budget;
        let (mut down, mut up) = ([0; 701], [0; 64]);
        while left > 0 && !following.caught_up_once() {
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
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        }
        drop((proxy_a, proxy_b));
        serving.await.unwrap();
        task.await.unwrap();
        let (whole, appended) = (following.caught_up_once(), end(&store));
        // As kill -9 leaves it.
        drop((store, following));
        rounds += 1;
        if whole {
            break;
        }
        if appended > 0 {
            let refused = Store::open(
                with_role(slave_dir.path(), BrokerRole::SyncMaster),
                &Progress::new(),
                Hooks::default(),
            );
            assert!(
                matches!(refused, Err(OpenError::HalfCopied { .. })),
                "{appended} of {total}"
            );
        }
    }
    assert!(rounds > 3, "{rounds} rounds");
    let slave = open(with_role(slave_dir.path(), BrokerRole::AsyncMaster));
    assert_equal(&master, &slave);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_file_lengths_must_be_the_same() {
    let (_dir, master) = node(BrokerRole::AsyncMaster);
    fill(&master, "m", 0, 5);
    let (_slave_dir, store) = node(BrokerRole::Slave);
    let of = |group: &str| Options {
        group: group.to_owned(),
        ..options()
    };
    let (at_master, at_slave) =
        linked_as(&master, &Slave::new(store.clone(), of("c/b-1")), of("c/b-0")).await;
    assert!(matches!(at_master, LinkError::OtherGroup), "{at_master}");
    assert!(at_slave.to_string().contains("brokerName"), "{at_slave}");
    assert_eq!(end(&store), 0);

    let dir = tempfile::tempdir().unwrap();
    let small = open(StoreConfig {
        commit_log_file_size: LOG_FILE / 2,
        ..with_role(dir.path(), BrokerRole::Slave)
    });
    let (at_master, at_slave) = linked(&master, &Slave::new(small.clone(), options())).await;
    assert!(matches!(at_master, LinkError::FileSize { .. }), "{at_master}");
    assert!(
        at_slave.to_string().contains("mappedFileSizeCommitLog"),
        "{at_slave}"
    );
    assert_eq!(end(&small), 0);
    assert!(master.replicas().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_slave_tells_its_id() {
    let (_dir, master) = node(BrokerRole::AsyncMaster);
    fill(&master, "m", 0, 5);
    let (_slave_dir, store) = node(BrokerRole::Slave);
    let slave = Slave::new(
        store.clone(),
        Options {
            broker_id: 3,
            group: "c/b".to_owned(),
            ..options()
        },
    );
    let (a, b) = duplex(1 << 20);
    let serving = Master::new(master.clone(), options());
    tokio::spawn(async move { serving.serve(a, "slave").await });
    tokio::spawn(async move { slave.follow(b).await });
    until("the slave counts", || {
        master
            .replicas()
            .iter()
            .any(|r| r.broker_id == Some(3) && r.in_sync && r.behind_bytes == 0)
    });
}
