//! The program as a process: options, start line, pages, signals.

#![allow(clippy::unwrap_used, reason = "the helpers of tests may panic")]

use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use ferromq_protocol::body::RegisterBrokerBody;
use ferromq_protocol::command::Command as Request;
use ferromq_protocol::header::RegisterBroker;
use ferromq_remoting::{AddressServer, Client, ClientConfig, Dispatch};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(30);

/// A port that is free now, below the range of outgoing connections, and never given twice.
fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let base = 12_000 + (std::process::id() % 18_000) as u16;
    loop {
        let port = base + NEXT.fetch_add(1, Ordering::Relaxed) % 2_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferromq-namesrv"));
    command
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn write_config(dir: &Path, more: &str) -> (String, u16, u16) {
    let (port, http) = (free_port(), free_port());
    let kv = dir.join("kv.json");
    let text = format!(
        "bindAddress=127.0.0.1\nlistenPort={port}\nhttpPort={http}\nkvConfigPath={}\n{more}",
        kv.display()
    );
    let file = dir.join("namesrv.conf");
    std::fs::write(&file, text).unwrap();
    (file.to_string_lossy().into_owned(), port, http)
}

async fn output(args: &[&str]) -> (bool, String, String) {
    let out = timeout(SOON, program().args(args).output())
        .await
        .unwrap()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (out.status.success(), text(out.stdout), text(out.stderr))
}

async fn get(port: u16, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(SOON, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

async fn started(file: &str) -> (Child, BufReader<tokio::process::ChildStdout>) {
    let mut child = program().args(["-c", file]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    timeout(SOON, lines.read_line(&mut line)).await.unwrap().unwrap();
    assert_eq!(line, "The Name Server boot success. serializeType=JSON\n");
    (child, lines)
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().unwrap() as i32).unwrap();
    kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn it_starts_serves_and_ends_on_a_signal() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port, http) = write_config(dir.path(), "serverWorkerThreads=8\nunknownKey=1\n");
    let (mut child, _lines) = started(&file).await;
    let client = Client::new(ClientConfig::default(), Dispatch::none());
    let answer = client
        .call(&format!("127.0.0.1:{port}"), Request::request(319), SOON)
        .await
        .unwrap();
    let text = String::from_utf8(answer.body.to_vec()).unwrap();
    assert!(text.contains(&format!("configStorePath={file}\n")), "{text}");
    assert_eq!(get(http, "/livez").await.0, 200);
    assert_eq!(get(http, "/readyz").await.0, 200);
    let (status, page) = get(http, "/metrics").await;
    assert!(status == 200 && page.contains("ferromq_connections 1"), "{page}");
    assert_eq!(get(http, "/nothing").await.0, 404);
    signal(&child, Signal::TERM);
    signal(&child, Signal::TERM);
    let status = timeout(SOON, child.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test]
async fn it_tells_where_name_servers_are() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port, http) = write_config(dir.path(), "");
    let (mut child, _lines) = started(&file).await;
    let (status, text) = get(http, "/rocketmq/nsaddr").await;
    assert!(status == 404 && text.contains("addressList is not set"), "{text}");
    let client = Client::new(ClientConfig::default(), Dispatch::none());
    let change = Request::request(318).with_body("addressList=10.0.0.1:9876;10.0.0.2:9876");
    let answer = client
        .call(&format!("127.0.0.1:{port}"), change, SOON)
        .await
        .unwrap();
    assert_eq!(answer.code, 0, "{:?}", answer.remark);
    let server = AddressServer::new(&format!("127.0.0.1:{http}"), "nsaddr", None).unwrap();
    assert_eq!(server.fetch().await.unwrap(), "10.0.0.1:9876;10.0.0.2:9876");
    // The list of a unit is another one.
    assert_eq!(get(http, "/rocketmq/nsaddr-unit?nofix=1").await.0, 404);
    signal(&child, Signal::TERM);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn it_is_not_ready_before_brokers_had_time_to_register() {
    let dir = tempfile::tempdir().unwrap();
    let (file, _, http) = write_config(dir.path(), "warmUpMillis=600000\n");
    let (mut child, _lines) = started(&file).await;
    let (status, text) = get(http, "/readyz").await;
    assert!(
        status == 503 && text.contains("for brokers to register"),
        "{text}"
    );
    assert_eq!(get(http, "/livez").await.0, 200);
    signal(&child, Signal::INT);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn logs_are_json_lines_whose_level_changes_at_run_time() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port, _) = write_config(dir.path(), "logFormat=json\nlogLevel=info\n");
    let (mut child, _lines) = started(&file).await;
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let change = async |text: &'static str| {
        // Each over a connection of its own, which is worth a debug line.
        let client = Client::new(ClientConfig::default(), Dispatch::none());
        let request = Request::request(318).with_body(text);
        let answer = client
            .call(&format!("127.0.0.1:{port}"), request, SOON)
            .await
            .unwrap();
        client.close().await;
        answer
    };
    assert_eq!(change("logLevel=info,ferromq_remoting=debug").await.code, 0);
    assert_eq!(change("orderMessageEnable=true").await.code, 0);
    loop {
        let line = timeout(SOON, log.next_line()).await.unwrap().unwrap().unwrap();
        assert!(
            line.starts_with('{') && line.ends_with('}') && line.contains("\"level\""),
            "{line}"
        );
        if line.contains("\"level\":\"DEBUG\"") {
            break;
        }
    }
    let refused = change("logLevel=a=loud").await;
    assert!(refused.code != 0 && refused.remark.unwrap().contains("a=loud"));
    signal(&child, Signal::TERM);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn it_is_ready_once_all_brokers_that_it_expects_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port, http) = write_config(dir.path(), "warmUpMillis=600000\nexpectedBrokers=a; b\n");
    let (mut child, _lines) = started(&file).await;
    let client = Client::new(ClientConfig::default(), Dispatch::none());
    // A slave does not make a broker usable.
    for (name, id, waits_for) in [("a", 0, Some("b")), ("b", 1, Some("b")), ("b", 0, None)] {
        let (status, text) = get(http, "/readyz").await;
        assert_eq!(status, 503, "{text}");
        let addr = format!("10.0.0.1:{name}{id}");
        let head = RegisterBroker {
            broker_name: name,
            broker_addr: &addr,
            cluster_name: "c",
            ha_server_addr: "",
            broker_id: id,
            compressed: false,
            body_crc32: 0,
        };
        let body = RegisterBrokerBody::default().encode(false);
        let register = Request::request(103).with_header(&head).with_body(body);
        let answer = client
            .call(&format!("127.0.0.1:{port}"), register, SOON)
            .await
            .unwrap();
        assert_eq!(answer.code, 0, "{:?}", answer.remark);
        let (status, text) = get(http, "/readyz").await;
        match waits_for {
            Some(who) => assert!(
                status == 503 && text.contains(&format!("waiting for {who}")),
                "{text}"
            ),
            None => assert_eq!(status, 200, "{text}"),
        }
    }
    signal(&child, Signal::TERM);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn settings_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port, _) = write_config(dir.path(), "");
    let (ok, all, _) = output(&["-c", &file, "-p"]).await;
    assert!(
        ok && all.contains(&format!("listenPort={port}\n")) && all.contains("useEpollNativeSelector=false\n")
    );
    let (ok, important, _) = output(&["-c", &file, "-m"]).await;
    assert!(ok && important.contains(&format!("listenPort={port}\n")) && !important.contains("useEpoll"));
    let (ok, help, _) = output(&["-h"]).await;
    assert!(ok && help.contains("-c, --configFile"));
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (file, port, _) = write_config(dir.path(), "clusterTest=true\nproductEnvNamesrvAddr=nonsense\n");
    let (ok, _, text) = output(&["-c", &file]).await;
    assert!(
        !ok && text.contains("the other environment cannot be asked: 'nonsense'"),
        "{text}"
    );
    let (ok, _, text) = output(&["-c", "/nonexistent/file.conf"]).await;
    assert!(!ok && text.contains("/nonexistent/file.conf"), "{text}");
    let (ok, _, text) = output(&["--what"]).await;
    assert!(!ok && text.contains("--what"), "{text}");
    let _taken = TcpListener::bind(("127.0.0.1", port)).unwrap();
    std::fs::write(&file, format!("bindAddress=127.0.0.1\nlistenPort={port}\n")).unwrap();
    let (ok, out, text) = output(&["-c", &file]).await;
    assert!(
        !ok && out.is_empty() && text.contains(&format!("127.0.0.1:{port}")),
        "{text}"
    );
}
