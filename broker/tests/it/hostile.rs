//! The real program, broker and name server in one process, under everything hostile at once: half-open connections, lying
//! lengths, deep JSON, bodies that inflate, slow writers, and peers that ask for much and never read. A good client
//! is answered rightly all the while, memory is bounded and comes back, and nothing panics.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use ferromq_daemon::limits;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::{Command, SerializeType};
use ferromq_protocol::frame;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::process::{Process, get};
use crate::support::{Peer, Pulled, eventually, free_port, pull_command, send_command};

/// What the settings give to all connections together.
const BUDGET_KIB: u64 = 32 * 1024;
/// Half-open connections, each in one of several ways.
const HALF_OPEN: usize = 1_000;
/// Anonymous memory that the assault may add: the budget; what the reserve of 64 KiB allows to those connections that
/// really hold bytes; pieces in flight, allocator and threads.
const MOST_KIB: u64 = BUDGET_KIB + 96 * 1024;

fn encoded(commands: impl IntoIterator<Item = Command>) -> BytesMut {
    let mut out = BytesMut::new();
    for command in commands {
        frame::encode(&command, &mut out);
    }
    out
}

fn inflating(mebibytes: usize) -> Bytes {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..mebibytes {
        encoder.write_all(&zeros).unwrap();
    }
    encoder.finish().unwrap().into()
}

fn register(body: Bytes) -> Command {
    let mut command = Command::request(103).with_body(body);
    for (key, value) in [
        ("brokerName", "bomb"),
        ("brokerAddr", "10.9.9.9:10911"),
        ("clusterName", "C"),
        ("haServerAddr", "10.9.9.9:10912"),
        ("brokerId", "0"),
        ("compressed", "true"),
        ("bodyCrc32", "0"),
    ] {
        command.ext.set(key, value);
    }
    command
}

/// A frame whose header says anything.
fn lying(length: u32, form_and_header: u32, rest: usize) -> Vec<u8> {
    let mut out = length.to_be_bytes().to_vec();
    out.extend(form_and_header.to_be_bytes());
    out.resize(8 + rest, b'[');
    out
}

struct Assault {
    broker: u16,
    names: u16,
    tasks: TaskTracker,
    stop: CancellationToken,
    refused: Arc<AtomicUsize>,
}

impl Assault {
    /// Connects, does `work`, and again until the stop.
    fn again<F>(&self, port: u16, work: impl Fn(TcpStream) -> F + Send + Sync + 'static)
    where
        F: Future<Output = ()> + Send,
    {
        let stop = self.stop.clone();
        self.tasks.spawn(async move {
            loop {
                let round = async {
                    if let Ok(stream) = TcpStream::connect(("127.0.0.1", port)).await {
                        work(stream).await;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                };
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = round => {}
                }
            }
        });
    }

    /// Connections that say nothing, or begin something and leave it.
    async fn half_open(&self) {
        let beginnings: Vec<Vec<u8>> = vec![
            vec![],
            vec![0],
            vec![0, 0, 1],
            lying(15 << 20, 100, 1024),
            lying(0x0010_0000, 1 << 24 | 0x00FF_FFFF, 2),
            vec![0x16, 3, 1],
        ];
        for n in 0..HALF_OPEN {
            let port = if n % 4 == 0 { self.names } else { self.broker };
            let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)).await else {
                continue;
            };
            stream.write_all(&beginnings[n % beginnings.len()]).await.ok();
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                stop.cancelled().await;
                drop(stream);
            });
        }
    }

    /// Whole frames that are rubbish, or right and dangerous.
    fn rubbish(&self) {
        let deep = "{\"a\":".repeat(100_000);
        let bomb = inflating(256);
        let mut batch = vec![0; 64];
        batch[..4].copy_from_slice(&i32::MAX.to_be_bytes());
        let mut binary = BytesMut::new();
        let mut command = Command::request(10).with_ext("topic", "T");
        command.serialize = SerializeType::Binary;
        frame::encode(&command, &mut binary);
        binary[21..25].copy_from_slice(&0x7FFF_FFFFu32.to_be_bytes());
        let all: Vec<(u16, Vec<u8>)> = vec![
            (self.broker, lying(0x7FFF_FFFF, 0, 10)),
            (self.broker, lying(64, 7 << 24 | 2, 60)),
            (self.broker, lying(4, 0, 0)),
            (self.broker, binary.to_vec()),
            (self.broker, lying(200_004, 200_000, 200_000)),
            (self.names, lying(200_004, 200_000, 200_000)),
            (
                self.broker,
                encoded([34, 41, 42, 46, 200].map(|code| Command::request(code).with_body(deep.clone())))
                    .to_vec(),
            ),
            (
                self.broker,
                encoded([Command::request(request::SEND_BATCH_MESSAGE).with_body(batch)]).to_vec(),
            ),
            (self.names, encoded([register(bomb.clone())]).to_vec()),
            (
                self.names,
                encoded([register(Bytes::from_static(b"x\x9c rubbish"))]).to_vec(),
            ),
            (self.broker, {
                let mut send = send_command("T", 1, "", "");
                send.ext.set("f", "1");
                send.ext.set("j", "1");
                encoded([send.with_body(bomb)]).to_vec()
            }),
        ];
        for (port, bytes) in all {
            let bytes = Arc::new(bytes);
            let refused = Arc::clone(&self.refused);
            self.again(port, move |mut stream| {
                let (bytes, refused) = (Arc::clone(&bytes), Arc::clone(&refused));
                async move {
                    stream.write_all(&bytes).await.ok();
                    stream.shutdown().await.ok();
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).await.ok();
                    let text = String::from_utf8_lossy(&answer);
                    assert!(!text.contains("internal error"), "{text}");
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    }

    /// A good request, a byte at a time.
    fn slow_writers(&self) {
        for n in 0..50 {
            let bytes = encoded([send_command("T", 2, "slow", "")]);
            let bytes = Arc::new(bytes);
            self.again(self.broker, move |mut stream| {
                let bytes = Arc::clone(&bytes);
                async move {
                    for byte in bytes.iter() {
                        if stream.write_all(&[*byte]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(20 + n % 7)).await;
                    }
                }
            });
        }
    }

    /// Row of pulls of 256 KiB each, through a small window, whose answers nobody reads.
    async fn never_readers(&self) {
        let pulls: BytesMut = encoded((0..1_000).map(|n| {
            let mut pull = pull_command("T", 0, 0, 0);
            pull.opaque = n;
            pull
        }));
        for _ in 0..50 {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let Ok(mut stream) = socket.connect(([127, 0, 0, 1], self.broker).into()).await else {
                continue;
            };
            let (pulls, stop) = (pulls.clone(), self.stop.clone());
            self.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = async {
                        stream.write_all(&pulls).await.ok();
                        std::future::pending::<()>().await;
                    } => {}
                }
            });
        }
    }
}

/// Sends and pulls without a break; what it sent has to come back.
async fn good_client(port: u16, names: u16, until: Arc<AtomicBool>) -> (usize, Duration) {
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    let at_names = Peer::new(format!("127.0.0.1:{names}"));
    let (mut count, mut slowest) = (0, Duration::ZERO);
    while !until.load(Ordering::SeqCst) {
        let start = std::time::Instant::now();
        let sent = peer.send("Good", 0, &format!("good {count}")).await;
        slowest = slowest.max(start.elapsed());
        assert_eq!(sent.offset, count as i64);
        let start = std::time::Instant::now();
        let pulled = loop {
            let pulled = Pulled::of(&peer.call(pull_command("Good", 0, sent.offset, 5_000)).await);
            if pulled.code == response::SUCCESS {
                break pulled;
            }
        };
        slowest = slowest.max(start.elapsed());
        assert_eq!(pulled.bodies, [format!("good {count}")]);
        if count % 10 == 0 {
            let route = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_ext("topic", "TBW102");
            assert_eq!(at_names.call(route).await.code, response::SUCCESS);
        }
        count += 1;
    }
    (count, slowest)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_good_client_is_served_and_memory_is_bounded_whatever_others_do() {
    limits::raise_open_files();
    let dir = tempfile::tempdir().unwrap();
    let (port, pages, names) = (free_port(), free_port(), free_port());
    let more = format!("connectionBufferBytes={}\nhttpPort={pages}\n", BUDGET_KIB * 1024);
    let args = ["--with-namesrv", &format!("-Dnamesrv.listenPort={names}")];
    let mut broker = Process::start(dir.path(), port, &more, &args);
    broker.started();
    broker.started();
    let first = Peer::new(format!("127.0.0.1:{port}"));
    // What the greedy pull: 1 MiB, so that each answer is as large as answers get.
    for _ in 0..16 {
        first.send("T", 0, &"x".repeat(64 << 10)).await;
    }
    let before = (broker.kib("RssAnon"), broker.kib("VmRSS"));

    let done = Arc::new(AtomicBool::new(false));
    let good = TaskTracker::new();
    let client = good.spawn(good_client(port, names, Arc::clone(&done)));
    let assault = Assault {
        broker: port,
        names,
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        refused: Arc::default(),
    };
    assault.never_readers().await;
    assault.half_open().await;
    assault.rubbish();
    assault.slow_writers();
    let mut peak = (0, 0);
    let until = std::time::Instant::now() + Duration::from_mins(1);
    let shed = |page: &str| {
        let line = page
            .lines()
            .find(|l| l.starts_with("ferromq_connections_shed_total "));
        line.and_then(|l| l.rsplit(' ').next()?.parse::<u64>().ok())
            .unwrap_or(0)
    };
    // Until the greedy were closed for it, and every kind of rubbish was tried several times.
    loop {
        peak = (peak.0.max(broker.kib("RssAnon")), peak.1.max(broker.kib("VmRSS")));
        let page = tokio::task::spawn_blocking(move || get(pages, "/metrics"))
            .await
            .unwrap();
        let shed = page.map_or(0, |(_, page)| shed(&page));
        if shed > 0 && assault.refused.load(Ordering::Relaxed) >= 200 {
            break;
        }
        assert!(
            std::time::Instant::now() < until,
            "{shed} shed, {} refused",
            assault.refused.load(Ordering::Relaxed)
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    done.store(true, Ordering::SeqCst);
    let (count, slowest) = client.await.unwrap();
    assault.stop.cancel();
    assault.tasks.close();
    assault.tasks.wait().await;
    eprintln!(
        "good client: {count} messages, slowest call {slowest:?}; KiB anonymous {} to {}, resident {} to {}; {} peers of rubbish",
        before.0,
        peak.0,
        before.1,
        peak.1,
        assault.refused.load(Ordering::Relaxed),
    );
    assert!(count > 0);
    let grown = peak.0.saturating_sub(before.0);
    assert!(grown < MOST_KIB, "anonymous memory grew by {grown} KiB");
    // Mapped files come on top: the log's segments of 4 MiB.
    let grown = peak.1.saturating_sub(before.1);
    assert!(
        grown < MOST_KIB + 64 * 1024,
        "resident memory grew by {grown} KiB"
    );

    eventually("all connections but the good ones are gone", || async {
        let page = tokio::task::spawn_blocking(move || get(pages, "/metrics"))
            .await
            .unwrap();
        page.is_some_and(|(_, page)| {
            let open = page.lines().find_map(|l| l.strip_prefix("ferromq_connections "));
            let held = page
                .lines()
                .find_map(|l| l.strip_prefix("ferromq_connection_memory_bytes "));
            open.and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n <= 4)
                && held
                    .and_then(|n| n.parse::<u64>().ok())
                    .is_some_and(|n| n < 1 << 20)
        })
    })
    .await;
    first.send("T", 3, "after").await;
    let late = Peer::new(format!("127.0.0.1:{port}"));
    late.send("T", 3, "later").await;
}
