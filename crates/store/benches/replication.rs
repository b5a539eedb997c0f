//! Replication: how fast a slave catches up, how far it is behind under load, and what waiting for it costs.
//!
//! Two stores in one process over loopback, next to floors of the same run: a plain sequential write of the same disk and a plain
//! copy over loopback. `FERROMQ_BENCH_MIB` is the log that a slave catches up with (default 512), `FERROMQ_BENCH_SECONDS` the
//! length of each load (default 5), `FERROMQ_BENCH_DIR` where the stores are (default: the directory for temporary files).

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a benchmark stops where it fails, and tells on standard output"
)]

use std::{
    io::Write as _,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ferromq_store::{
    BrokerRole, Hooks, Progress, PutMessage, PutStatus, Store, StoreConfig,
    ha::{Master, Options, Slave},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
    time::sleep_until,
};
use tokio_util::sync::CancellationToken;

const MIB: u64 = 1 << 20;
const BODY: usize = 1024;

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

fn directory() -> TempDir {
    let builder = tempfile::Builder::new();
    match std::env::var_os("FERROMQ_BENCH_DIR") {
        Some(dir) => builder.tempdir_in(dir).unwrap(),
        None => builder.tempdir().unwrap(),
    }
}

fn open(dir: &Path, role: BrokerRole) -> Store {
    let config = StoreConfig {
        root: dir.to_owned(),
        commit_log_file_size: 128 * MIB,
        max_hash_slot_num: 10_000,
        max_index_num: 40_000,
        slave_timeout: 30_000,
        // The last bytes are no better than others: nobody waits half a second for them.
        flush_interval_commit_log: 10,
        flush_commit_log_least_pages: 0,
        role,
        ..StoreConfig::default()
    };
    let store = Store::open(config, &Progress::new(), Hooks::default()).unwrap();
    store.start().unwrap();
    store
}

fn message(body: &[u8]) -> PutMessage<'_> {
    PutMessage {
        topic: "Bench",
        queue_id: 0,
        flag: 0,
        sys_flag: 0,
        born_timestamp: 0,
        born_host: SocketAddr::from(([127, 0, 0, 1], 1)),
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body,
        properties: "",
        wait_store_ok: true,
    }
}

fn body() -> Vec<u8> {
    let mut state = 1u32;
    (0..BODY)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect()
}

fn per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / MIB as f64 / time.as_secs_f64()
}

/// MiB/s of a plain sequential write with one sync at its end.
fn disk_floor(dir: &Path, mib: u64) -> f64 {
    let block = vec![0x5a; MIB as usize];
    let path = dir.join("floor");
    let mut file = std::fs::File::create(&path).unwrap();
    let began = Instant::now();
    for _ in 0..mib {
        file.write_all(&block).unwrap();
    }
    file.sync_data().unwrap();
    let rate = per_second(mib * MIB, began.elapsed());
    std::fs::remove_file(path).unwrap();
    rate
}

/// MiB/s of a plain copy over loopback.
async fn loopback_floor(mib: u64) -> f64 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let began = Instant::now();
    let sending = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let block = vec![0x5a; 256 << 10];
        for _ in 0..mib * 4 {
            stream.write_all(&block).await.unwrap();
        }
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let (mut buffer, mut got) = (vec![0; 256 << 10], 0);
    loop {
        match stream.read(&mut buffer).await.unwrap() {
            0 => break,
            n => got += n as u64,
        }
    }
    sending.await.unwrap();
    per_second(got, began.elapsed())
}

/// Hands on what comes from one side after `delay`.
async fn delayed(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin,
    delay: Duration,
) {
    let (put, mut take) = mpsc::channel(4096);
    tokio::spawn(async move {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(n @ 1..) = from.read(&mut buffer).await {
            let due = tokio::time::Instant::now() + delay;
            if put.send((due, buffer[..n].to_vec())).await.is_err() {
                return;
            }
        }
    });
    while let Some((due, bytes)) = take.recv().await {
        sleep_until(due).await;
        if to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}

/// A port in front of `master` that makes every way `delay` longer.
async fn proxy(master: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((slave, _)) = listener.accept().await {
            let master = TcpStream::connect(master).await.unwrap();
            master.set_nodelay(true).unwrap();
            slave.set_nodelay(true).unwrap();
            let ((slave_in, slave_out), (master_in, master_out)) = (slave.into_split(), master.into_split());
            tokio::spawn(delayed(slave_in, master_out, delay));
            tokio::spawn(delayed(master_in, slave_out, delay));
        }
    });
    address
}

/// A master and a slave that follows it.
struct Pair {
    master: Store,
    slave: Store,
    stop: CancellationToken,
    _known: watch::Sender<Option<String>>,
    _dirs: [TempDir; 2],
}

impl Pair {
    async fn new(role: BrokerRole, delay: Duration) -> Self {
        let dirs = [directory(), directory()];
        let master = open(dirs[0].path(), role);
        Self::with(master, dirs, delay).await
    }

    async fn with(master: Store, dirs: [TempDir; 2], delay: Duration) -> Self {
        let slave = open(dirs[1].path(), BrokerRole::Slave);
        let stop = CancellationToken::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut address = listener.local_addr().unwrap();
        let serving = Arc::new(Master::new(master.clone(), Options::default()));
        tokio::spawn(serving.run(listener, stop.clone()));
        if !delay.is_zero() {
            address = proxy(address, delay).await;
        }
        let (known, at) = watch::channel(Some(address.to_string()));
        let following = Slave::new(slave.clone(), Options::default());
        tokio::spawn(following.run(at, stop.clone()));
        while master.replicas().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Self {
            master,
            slave,
            stop,
            _known: known,
            _dirs: dirs,
        }
    }

    async fn equal(&self) {
        while self.slave.figures().log_max < self.master.figures().log_max {
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
    }

    fn end(self) {
        self.stop.cancel();
        self.slave.shutdown().unwrap();
        self.master.shutdown().unwrap();
    }
}

/// Acknowledged puts per second of so many that put one after the other, and the median time of one in microseconds.
async fn load(store: &Store, tasks: usize, time: Duration) -> (f64, f64) {
    let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|_| {
            let (store, stop, done) = (store.clone(), stop.clone(), done.clone());
            tokio::spawn(async move {
                let body = body();
                let mut times = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    let put = store.put(message(&body)).unwrap();
                    assert_eq!(put.ack.await, PutStatus::Ok);
                    times.push(began.elapsed().as_nanos() as u64);
                    if done.fetch_add(1, Ordering::Relaxed).is_multiple_of(64) {
                        tokio::task::yield_now().await;
                    }
                }
                times
            })
        })
        .collect();
    tokio::time::sleep(time).await;
    stop.store(true, Ordering::Relaxed);
    let mut times = Vec::new();
    for task in running {
        times.extend(task.await.unwrap());
    }
    let rate = times.len() as f64 / began.elapsed().as_secs_f64();
    times.sort_unstable();
    (rate, times[times.len() / 2] as f64 / 1e3)
}

/// Puts at a fixed rate whatever the answers do; gives the sorted times from the intended put to the slave's
/// acknowledgement, in microseconds.
async fn lag(store: &Store, rate: f64, time: Duration) -> Vec<f64> {
    let body = body();
    let began = Instant::now();
    let mut waiting = Vec::new();
    let mut n = 0u64;
    while began.elapsed() < time {
        // As many as are due, at most each millisecond.
        let due = (began.elapsed().as_secs_f64() * rate) as u64;
        while n < due {
            let intended = Duration::from_secs_f64(n as f64 / rate);
            let put = store.put(message(&body)).unwrap();
            waiting.push(tokio::spawn(async move {
                assert_eq!(put.ack.await, PutStatus::Ok);
                (began.elapsed().saturating_sub(intended)).as_secs_f64() * 1e6
            }));
            n += 1;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut lags = Vec::with_capacity(waiting.len());
    for one in waiting {
        lags.push(one.await.unwrap());
    }
    lags.sort_unstable_by(f64::total_cmp);
    lags
}

/// MiB/s at which a fresh slave gets so much log onto its disk.
async fn catch_up(dirs: [TempDir; 2], mib: u64) -> f64 {
    let master = open(dirs[0].path(), BrokerRole::AsyncMaster);
    let body = body();
    while master.figures().log_max < (mib * MIB) as i64 {
        master.put(message(&body)).unwrap();
    }
    // What the master has yet to write is none of the slave's business.
    while master.figures().log_flushed < master.figures().log_max {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let began = Instant::now();
    let pair = Pair::with(master, dirs, Duration::ZERO).await;
    pair.equal().await;
    while pair.slave.figures().log_flushed < pair.slave.figures().log_max {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let rate = per_second(mib * MIB, began.elapsed());
    pair.end();
    rate
}

fn main() {
    // `cargo test --benches` asks for a list; there is none.
    if std::env::args().any(|arg| arg == "--list" || arg == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(run());
}

async fn run() {
    let mib = setting("FERROMQ_BENCH_MIB", 512);
    let time = Duration::from_secs(setting("FERROMQ_BENCH_SECONDS", 5));

    // Catch-up of a fresh slave; the disk of a shared machine is another one a second later, so both sides in turn.
    let mut ratios = Vec::new();
    for _ in 0..3 {
        let dirs = [directory(), directory()];
        let (disk, loopback) = (disk_floor(dirs[0].path(), mib), loopback_floor(mib).await);
        let rate = catch_up(dirs, mib).await;
        println!(
            "sequential write and sync {disk:.0} MiB/s, loopback copy {loopback:.0} MiB/s, catch-up of {mib} MiB {rate:.0} MiB/s"
        );
        ratios.push(rate / disk.min(loopback));
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "catch-up                    {:>10.2} of the smaller, median of 3",
        ratios[1]
    );

    // What waiting for the slave costs.
    let mut rates = [0.0; 3];
    for (n, (name, role, delay)) in [
        ("asynchronous", BrokerRole::AsyncMaster, Duration::ZERO),
        ("synchronous", BrokerRole::SyncMaster, Duration::ZERO),
        (
            "synchronous, 2 ms RTT",
            BrokerRole::SyncMaster,
            Duration::from_millis(1),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let pair = Pair::new(role, delay).await;
        let (_, one) = load(&pair.master, 1, time / 2).await;
        let began = Instant::now();
        let (taken, _) = load(&pair.master, 1024, time).await;
        let (loaded, draining) = (began.elapsed(), Instant::now());
        pair.equal().await;
        // What a master took and has yet to send it has not done: the slave's share of the work counts for all alike.
        let rate = taken * loaded.as_secs_f64() / began.elapsed().as_secs_f64();
        rates[n] = rate;
        println!(
            "{name:<22} 1024 in flight {rate:>9.0}/s until the slave has all ({taken:.0}/s taken, {:.1} ms drained)   p50 of one {one:.1} us",
            draining.elapsed().as_secs_f64() * 1e3
        );
        pair.end();
    }
    println!("synchronous / asynchronous  {:>10.2}", rates[1] / rates[0]);
    println!("2 ms RTT / undelayed        {:>10.2}", rates[2] / rates[1]);

    // Lag at half of what synchronous replication takes.
    let pair = Pair::new(BrokerRole::SyncMaster, Duration::ZERO).await;
    load(&pair.master, 64, time / 5).await;
    let lags = lag(&pair.master, rates[1] / 2.0, time).await;
    let at = |q: f64| lags[((lags.len() - 1) as f64 * q) as usize];
    println!(
        "lag at {:.0}/s              p50 {:.0} us   p99 {:.0} us   max {:.0} us   ({} messages)",
        rates[1] / 2.0,
        at(0.5),
        at(0.99),
        at(1.0),
        lags.len()
    );
    pair.end();
}
