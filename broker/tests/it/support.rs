//! A broker in the test's own process, and a client for it.

use std::future::Future;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferromq_broker::{Broker, BrokerSettings, Running};
use ferromq_protocol::Command;
use ferromq_protocol::code::request;
use ferromq_protocol::header::{
    OffsetResponse, PullMessage, PullMessageResponse, QueueHeader, SendMessage, SendMessageResponse,
};
use ferromq_protocol::record::{self, Check};
use ferromq_protocol::sysflag::pull as flag;
use ferromq_remoting::{Client, ClientConfig, Dispatch, Outcome, RequestContext, Run};
use parking_lot::Mutex;
use tempfile::TempDir;

pub(crate) const LONG: Duration = Duration::from_secs(30);

/// Waits for a condition, generously.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let until = std::time::Instant::now() + LONG;
    while !check().await {
        assert!(std::time::Instant::now() < until, "not within {LONG:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A port such that it, the one two below and the one above are free, all below those of outgoing connections.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (std::process::id() % 4_000) as u16 * 5;
    loop {
        let step = NEXT.fetch_add(1, Ordering::Relaxed) * 5;
        let port = 10_020 + (start.wrapping_add(step)) % 22_000;
        let free = |p: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, p)).is_ok();
        if free(port) && free(port - 2) && free(port + 1) {
            return port;
        }
    }
}

pub(crate) fn settings(root: &Path, port: u16) -> BrokerSettings {
    let mut settings = BrokerSettings {
        broker_name: "broker-a".to_owned(),
        broker_ip1: "127.0.0.1".to_owned(),
        bind_address: "127.0.0.1".to_owned(),
        listen_port: port,
        store_path_root_dir: root.display().to_string(),
        mapped_file_size_commit_log: 4 << 20,
        mapped_file_size_consume_queue: 20_000,
        max_hash_slot_num: 1_000,
        max_index_num: 4_000,
        flush_consumer_offset_interval: 50,
        register_broker_timeout_mills: 1_000,
        shutdown_timeout_millis: 15_000,
        ..BrokerSettings::default()
    };
    settings.complete().unwrap();
    settings
}

/// A client that keeps the requests that brokers send to it.
pub(crate) struct Peer {
    pub(crate) client: Client,
    pub(crate) addr: String,
    pub(crate) received: Arc<Mutex<Vec<Command>>>,
}

impl Peer {
    pub(crate) fn new(addr: impl Into<String>) -> Self {
        let received: Arc<Mutex<Vec<Command>>> = Arc::default();
        let keep = received.clone();
        let mut table = Dispatch::builder();
        table.otherwise(
            Run::Inline,
            Arc::new(move |_: &RequestContext, request: Command| {
                keep.lock().push(request);
                Outcome::Silent
            }),
        );
        Self {
            client: Client::new(ClientConfig::default(), table.build()),
            addr: addr.into(),
            received,
        }
    }

    pub(crate) async fn call(&self, command: Command) -> Command {
        self.client.call(&self.addr, command, LONG).await.unwrap()
    }

    /// The answer, unless the connection fails.
    pub(crate) async fn try_call(&self, command: Command) -> Option<Command> {
        self.client.call(&self.addr, command, LONG).await.ok()
    }

    pub(crate) async fn ok(&self, command: Command) -> Command {
        let code = command.code;
        let answer = self.call(command).await;
        assert_eq!(answer.code, 0, "request {code}: {:?}", answer.remark);
        answer
    }

    pub(crate) async fn send(&self, topic: &str, queue: i32, body: &str) -> Sent {
        let answer = self.ok(send_command(topic, queue, body, "")).await;
        Sent::of(&answer)
    }

    pub(crate) async fn send_owned(&self, topic: &str, queue: i32, body: String) -> Sent {
        self.send(topic, queue, &body).await
    }

    pub(crate) async fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        let command = Command::request(request::GET_MAX_OFFSET).with_header(&QueueHeader { topic, queue_id });
        self.ok(command).await.header::<OffsetResponse>().unwrap().offset
    }

    pub(crate) async fn pull(&self, topic: &str, queue: i32, offset: i64) -> Pulled {
        Pulled::of(&self.call(pull_command(topic, queue, offset, 0)).await)
    }

    /// The code that a pull from the topic's first queue ends with.
    pub(crate) async fn pull_code(&self, topic: &str) -> i32 {
        self.call(pull_command(topic, 0, 0, 0)).await.code
    }

    /// All bodies of a queue from an offset until `count` have come.
    pub(crate) async fn drain(&self, topic: &str, queue: i32, mut offset: i64, count: usize) -> Vec<String> {
        let mut bodies = Vec::new();
        while bodies.len() < count {
            let pulled = Pulled::of(&self.call(pull_command(topic, queue, offset, 5_000)).await);
            assert!(
                matches!(pulled.code, 0 | 19),
                "code {} with {bodies:?}",
                pulled.code
            );
            offset = pulled.header.next_begin_offset;
            bodies.extend(pulled.bodies);
        }
        bodies
    }
}

pub(crate) fn send_command(topic: &str, queue_id: i32, body: &str, properties: &str) -> Command {
    Command::request(request::SEND_MESSAGE_V2)
        .with_header(&SendMessage {
            producer_group: "PG",
            topic,
            default_topic: "TBW102",
            default_topic_queue_nums: 4,
            queue_id,
            born_timestamp: now_ms(),
            properties,
            ..SendMessage::default()
        })
        .with_body(Bytes::copy_from_slice(body.as_bytes()))
}

fn now_ms() -> i64 {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    now.as_millis() as i64
}

/// A pull with its subscription; it waits when `wait` (ms) is above 0.
pub(crate) fn pull_command(topic: &str, queue_id: i32, queue_offset: i64, wait: i64) -> Command {
    pull_tagged(topic, queue_id, queue_offset, wait, "*")
}

pub(crate) fn pull_tagged(topic: &str, queue_id: i32, queue_offset: i64, wait: i64, tags: &str) -> Command {
    Command::request(request::PULL_MESSAGE).with_header(&PullMessage {
        consumer_group: "CG",
        topic,
        queue_id,
        queue_offset,
        max_msg_nums: 32,
        sys_flag: flag::SUBSCRIPTION | if wait > 0 { flag::SUSPEND } else { 0 },
        commit_offset: 0,
        suspend_timeout_millis: wait,
        subscription: Some(tags),
        sub_version: 0,
        expression_type: None,
    })
}

#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) id: String,
    pub(crate) queue: i32,
    pub(crate) offset: i64,
}

impl Sent {
    pub(crate) fn of(answer: &Command) -> Self {
        let header: SendMessageResponse<'_> = answer.header().unwrap();
        assert_eq!(header.msg_region, Some("DefaultRegion"));
        assert_eq!(header.trace_on, Some(true));
        Self {
            id: header.msg_id.to_owned(),
            queue: header.queue_id,
            offset: header.queue_offset,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Pulled {
    pub(crate) code: i32,
    pub(crate) header: PullMessageResponse,
    pub(crate) bodies: Vec<String>,
    pub(crate) properties: Vec<String>,
}

impl Pulled {
    pub(crate) fn of(answer: &Command) -> Self {
        let header = answer
            .header()
            .unwrap_or_else(|e| panic!("{e}: {} {:?}", answer.code, answer.remark));
        let records: Vec<_> = record::iter(&answer.body, Check::Crc)
            .map(|r| r.unwrap())
            .collect();
        Self {
            code: answer.code,
            header,
            bodies: records
                .iter()
                .map(|r| String::from_utf8_lossy(r.body).into_owned())
                .collect(),
            properties: records.iter().map(|r| r.properties_text().into_owned()).collect(),
        }
    }
}

/// A broker and where it lives.
pub(crate) struct Rig {
    pub(crate) dir: TempDir,
    pub(crate) port: u16,
    pub(crate) peer: Peer,
    running: Option<Running>,
}

impl Rig {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(change: impl FnOnce(&mut BrokerSettings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let mut settings = settings(dir.path(), port);
        change(&mut settings);
        let running = Broker::start(settings).await.unwrap();
        Self {
            dir,
            port,
            peer: Peer::new(format!("127.0.0.1:{port}")),
            running: Some(running),
        }
    }

    pub(crate) fn running(&self) -> &Running {
        self.running.as_ref().unwrap()
    }

    pub(crate) async fn restart(&mut self) {
        self.stop_in_place().await;
        self.start_again().await;
    }

    pub(crate) async fn stop_in_place(&mut self) {
        assert!(
            self.running.take().unwrap().shutdown().await,
            "the stop was not clean"
        );
        assert!(
            !self.dir.path().join("abort").exists(),
            "an abort file after a clean stop"
        );
    }

    /// With the settings that all start with.
    pub(crate) async fn start_again(&mut self) {
        let settings = settings(self.dir.path(), self.port);
        self.running = Some(Broker::start(settings).await.unwrap());
    }

    /// Goes on with a broker that the test started on the same place.
    pub(crate) fn resume(&mut self, running: Running) {
        self.running = Some(running);
    }

    pub(crate) async fn stop(mut self) {
        self.stop_in_place().await;
    }
}
