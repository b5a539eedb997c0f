//! The real program: its options, its start line, kill -9, signals, pages.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};

use ferromq_daemon::Properties;

use crate::support::{Peer, eventually, free_port, send_command};
use ferromq_protocol::Command;
use ferromq_protocol::code::{request, response};

pub(crate) const BROKER: &str = env!("CARGO_BIN_EXE_ferromq-broker");

fn output(args: &[&str]) -> (Option<i32>, String, String) {
    let out = Program::new(BROKER)
        .args(args)
        .env_remove("NAMESRV_ADDR")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// A broker process that is killed when the test ends.
pub(crate) struct Process {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Process {
    /// With at most `files` open files.
    fn start_limited(dir: &Path, port: u16, files: u32) -> Self {
        let file = Self::configure(dir, port, "");
        let mut shell = Program::new("sh");
        shell
            .arg("-c")
            .arg(format!("ulimit -n {files}; exec \"$0\" -c \"$1\""));
        shell.arg(BROKER).arg(file).stderr(Stdio::null());
        Self::run(shell)
    }

    pub(crate) fn start(dir: &Path, port: u16, more: &str, args: &[&str]) -> Self {
        Self::start_logged(dir, port, more, args, Stdio::null())
    }

    fn start_logged(dir: &Path, port: u16, more: &str, args: &[&str], log: Stdio) -> Self {
        let file = Self::configure(dir, port, more);
        let mut program = Program::new(BROKER);
        program.arg("-c").arg(file).args(args).stderr(log);
        Self::run(program)
    }

    pub(crate) fn configure(dir: &Path, port: u16, more: &str) -> PathBuf {
        let file = dir.join("broker.conf");
        let text = format!(
            "brokerName=broker-a\nbrokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={port}\n\
             storePathRootDir={}\nmappedFileSizeCommitLog=4194304\nmaxIndexNum=4000\nmaxHashSlotNum=1000\n{more}",
            dir.join("store").display()
        );
        std::fs::write(&file, text).unwrap();
        file
    }

    pub(crate) fn run(mut program: Program) -> Self {
        let mut child = program
            .env_remove("NAMESRV_ADDR")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Self { child, lines }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) {
        self.signal("-TERM");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    pub(crate) fn next_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Waits for the start line.
    pub(crate) fn started(&mut self) -> String {
        let line = self.next_line();
        assert!(line.contains("boot success"), "{line:?}");
        line
    }

    /// A figure of its /proc/PID/status in KiB, such as `VmRSS`.
    pub(crate) fn kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Stops all of its threads, and returns when they stand: a signal that was sent is not one that has come.
    pub(crate) async fn freeze(&self) {
        self.signal("-STOP");
        let threads = format!("/proc/{}/task", self.id());
        eventually("all threads to stand", async || {
            let mut threads = std::fs::read_dir(&threads).unwrap();
            threads.all(|thread| {
                let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
                stat.is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('T')))
            })
        })
        .await;
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Program::new("kill")
            .args([name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }
}

fn http(port: u16, request: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    let body = answer.split_once("\r\n\r\n")?.1.to_owned();
    Some((status, body))
}

pub(crate) fn get(port: u16, path: &str) -> Option<(u16, String)> {
    http(
        port,
        &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    )
}

fn put_writes(port: u16, token: &str, body: &str) -> u16 {
    let request = format!(
        "PUT /writes HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    http(port, &request).unwrap().0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut sent = Vec::new();
    for round in 0..3 {
        let mut broker = Process::start(dir.path(), port, "", &[]);
        assert_eq!(
            broker.started(),
            format!("The broker[broker-a, 127.0.0.1:{port}] boot success. serializeType=JSON")
        );
        let peer = Peer::new(format!("127.0.0.1:{port}"));
        if !sent.is_empty() {
            assert_eq!(peer.drain("T", 0, 0, sent.len()).await, sent);
        }
        for n in 0..200 {
            let body = format!("round {round} message {n}");
            assert_eq!(peer.send("T", 0, &body).await.offset, sent.len() as i64);
            sent.push(body);
        }
        broker.signal("-KILL");
        broker.child.wait().unwrap();
        assert!(dir.path().join("store/abort").exists());
    }
    let mut broker = Process::start(dir.path(), port, "", &[]);
    broker.started();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    assert_eq!(peer.drain("T", 0, 0, sent.len()).await, sent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_stops_in_order_and_a_second_one_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut broker = Process::start(dir.path(), port, "", &[]);
    broker.started();
    Peer::new(format!("127.0.0.1:{port}")).send("T", 0, "x").await;
    broker.signal("-TERM");
    broker.signal("-TERM");
    let status = tokio::task::spawn_blocking(move || broker.child.wait().unwrap())
        .await
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert!(!dir.path().join("store/abort").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_json_lines_whose_level_and_form_change_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let log = dir.path().join("log");
    let file = std::fs::File::create(&log).unwrap();
    let mut broker = Process::start_logged(dir.path(), port, "logFormat=json\n", &[], file.into());
    broker.started();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    peer.send("T", 0, "quiet").await;
    let lines = || {
        let text = std::fs::read_to_string(&log).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole).to_owned();
        let lines = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
        lines.collect::<Vec<serde_json::Value>>()
    };
    let of = |level: &str| lines().iter().filter(|line| line["level"] == level).count();
    assert!(of("INFO") > 0 && of("DEBUG") == 0);
    let change = |text: &'static str| Command::request(request::UPDATE_BROKER_CONFIG).with_body(text);
    peer.ok(change("logLevel=info,ferromq_remoting=debug")).await;
    eventually("a debug line", || async {
        // A new connection is worth one.
        Peer::new(format!("127.0.0.1:{port}")).send("T", 0, "loud").await;
        of("DEBUG") > 0
    })
    .await;
    let refused = peer.call(change("logLevel=ferromq=loud")).await;
    assert!(refused.remark.unwrap().contains("ferromq=loud"));
    peer.ok(change("logLevel=error")).await;
    let before = lines().len();
    Peer::new(format!("127.0.0.1:{port}")).send("T", 0, "quiet").await;
    assert_eq!(lines().len(), before);
    let refused = peer.call(change("logFormat=xml")).await;
    assert!(refused.remark.unwrap().contains("text or json"));
    // A change of settings is told in the form that it made.
    let last = || {
        let text = std::fs::read_to_string(&log).unwrap();
        text.lines().next_back().unwrap().to_owned()
    };
    peer.ok(change("logLevel=info\nlogFormat=text")).await;
    eventually("a line of text", || async {
        last().contains("INFO") && !last().starts_with('{')
    })
    .await;
    peer.ok(change("logFormat=json")).await;
    eventually("a line of JSON", || async {
        serde_json::from_str::<serde_json::Value>(&last()).is_ok_and(|line| line["level"] == "INFO")
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process_can_be_name_server_too() {
    let dir = tempfile::tempdir().unwrap();
    let (port, names) = (free_port(), free_port());
    let define = format!("-Dnamesrv.listenPort={names}");
    let mut broker = Process::start(dir.path(), port, "", &["--with-namesrv", &define]);
    assert_eq!(
        broker.next_line(),
        "The Name Server boot success. serializeType=JSON"
    );
    assert!(
        broker
            .started()
            .ends_with(&format!("and name server is 127.0.0.1:{names}"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_show_the_broker_and_writes_stop_for_a_lease() {
    let dir = tempfile::tempdir().unwrap();
    let (port, pages) = (free_port(), free_port());
    let token = dir.path().join("token");
    std::fs::write(&token, "secret\n").unwrap();
    let more = format!("httpPort={pages}\nhttpTokenFile={}\n", token.display());
    let mut broker = Process::start(dir.path(), port, &more, &[]);
    broker.started();
    assert_eq!(get(pages, "/livez").unwrap().0, 200);
    assert_eq!(get(pages, "/readyz").unwrap().0, 200);
    let status: serde_json::Value = serde_json::from_str(&get(pages, "/status").unwrap().1).unwrap();
    assert_eq!(status["stage"], "running");
    assert_eq!(status["brokerName"], "broker-a");
    assert_eq!(status["brokerId"], 0);
    assert!(
        get(pages, "/metrics")
            .unwrap()
            .1
            .contains("ferromq_broker_messages_stored_total 0")
    );

    let peer = Peer::new(format!("127.0.0.1:{port}"));
    peer.send("T", 0, "x").await;
    assert_eq!(
        put_writes(pages, "wrong", r#"{"stop":true,"leaseSeconds":60}"#),
        403
    );
    assert_eq!(
        put_writes(pages, "secret", r#"{"stop":true,"leaseSeconds":60}"#),
        200
    );
    let refused = peer.call(send_command("T", 0, "x", "")).await;
    assert_eq!(refused.code, 14, "{:?}", refused.remark);
    assert_eq!(put_writes(pages, "secret", r#"{"stop":false}"#), 200);
    peer.send("T", 0, "again").await;
    assert_eq!(
        put_writes(pages, "secret", r#"{"stop":true,"leaseSeconds":1}"#),
        200
    );
    eventually("the lease lapses by itself", async || {
        peer.call(send_command("T", 0, "x", "")).await.code == 0
    })
    .await;
}

#[test]
fn settings_are_printed_as_they_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (code, all, _) = output(&["-p"]);
    assert_eq!(code, Some(0));
    let file = dir.path().join("all.conf");
    std::fs::write(&file, &all).unwrap();
    let (code, again, stderr) = output(&["-p", "-c", file.to_str().unwrap()]);
    assert_eq!((code, &again), (Some(0), &all), "{stderr}");
    let parsed = Properties::parse(&all).unwrap();
    assert_eq!(parsed.get("listenPort"), Some("10911"));
    assert_eq!(parsed.get("mappedFileSizeCommitLog"), Some("1073741824"));
    let (_, some, _) = output(&["-m"]);
    assert!(
        some.contains("brokerName=") && !some.contains("mappedFileSizeCommitLog"),
        "{some}"
    );
}

#[test]
fn a_start_that_cannot_be_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.conf");
    for (text, word) in [
        ("enableDLegerCommitLog=true", "DLedger"),
        ("messageStorePlugIn=x.Y", "Java classes"),
        ("listenPort=abc", "listenPort"),
        ("brokerRole=SLAVE", "SLAVE"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (code, _, stderr) = output(&["-c", file.to_str().unwrap()]);
        assert_eq!(code, Some(253));
        assert!(stderr.contains(word), "{text}: {stderr}");
    }
    let (code, _, stderr) = output(&["-c", "/no/such/file"]);
    assert!(code == Some(253) && stderr.contains("/no/such/file"), "{stderr}");
    let (code, _, stderr) = output(&["-n", "nowhere"]);
    assert!(code == Some(253) && stderr.contains("namesrvAddr"), "{stderr}");
    assert_eq!(output(&["--nope"]).0, Some(253));
    assert_eq!(output(&["-h"]).0, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_in_use_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let mut broker = Process::start(dir.path(), free_port(), "", &[]);
    broker.started();
    let file = dir.path().join("broker.conf");
    let second = free_port();
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}\nlistenPort={second}\n")).unwrap();
    let (code, _, stderr) = output(&["-c", file.to_str().unwrap()]);
    assert_eq!(code, Some(253));
    assert!(stderr.contains("in use"), "{stderr}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_connections_than_descriptors_do_not_stop_sends_or_files() {
    let dir = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut broker = Process::start_limited(dir.path(), port, 256);
    broker.started();
    let peer = Peer::new(format!("127.0.0.1:{port}"));
    peer.send("T", 0, "before").await;
    let crowd: Vec<TcpStream> = (0..300)
        .filter_map(|_| TcpStream::connect(("127.0.0.1", port)).ok())
        .collect();
    assert!(
        crowd.len() > 200,
        "only {} connections were taken by the kernel",
        crowd.len()
    );
    // Large enough for the log to go on in a new file several times, which takes a descriptor each.
    let body = "x".repeat(256 << 10);
    for n in 0..40 {
        assert_eq!(peer.send("T", 0, &body).await.offset, n + 1);
    }
    drop(crowd);
    eventually("a new connection to be served", || async {
        let late = Peer::new(format!("127.0.0.1:{port}"));
        let sent = late.try_call(send_command("T", 1, "after", "")).await;
        sent.is_some_and(|answer| answer.code == response::SUCCESS)
    })
    .await;
}

/// A figure of the metrics page.
pub(crate) async fn figure(port: u16, name: &str) -> f64 {
    let page = tokio::task::spawn_blocking(move || get(port, "/metrics"))
        .await
        .unwrap();
    let page = page.expect("the metrics page").1;
    page.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
        .unwrap_or_else(|| panic!("{name} in {page}"))
}
