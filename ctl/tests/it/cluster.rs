//! A name server and a broker of ours in this process, and the program run against them.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use ferromq_broker::{Broker, BrokerSettings};
use ferromq_namesrv::NamesrvSettings;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// How long a condition may take before a test gives up: a bound for hangs, not a measure of speed.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a run of the program left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    /// The output as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    pub(crate) fn fine(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

/// Runs ferroctl with arguments; `namesrv` empty gives none.
pub(crate) fn ferroctl(namesrv: &str, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferroctl"));
    command
        .env_remove("NAMESRV_ADDR")
        .env_remove("ROCKETMQ_HOME")
        .env_remove("FERROMQ_ACCOUNT")
        .stdin(Stdio::null());
    if !namesrv.is_empty() {
        command.args(["-n", namesrv]);
    }
    let output: Output = command.args(args).output().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// One name server and one broker, stopped when dropped.
pub(crate) struct Cluster {
    runtime: Runtime,
    names: Option<ferromq_namesrv::Running>,
    broker: Option<ferromq_broker::Running>,
    pub(crate) namesrv: String,
    pub(crate) broker_address: String,
    settings: BrokerSettings,
    pub(crate) dir: TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self::start_with(|_, _| {})
    }

    /// With other settings of the broker; `change` gets the directory of all files too.
    pub(crate) fn start_with(change: impl FnOnce(&mut BrokerSettings, &Path)) -> Self {
        let runtime = Runtime::new().unwrap();
        let dir = TempDir::new().unwrap();
        let names = runtime.block_on(ferromq_namesrv::start(NamesrvSettings {
            listen_port: 0,
            bind_address: "127.0.0.1".into(),
            kv_config_path: dir.path().join("kv.json").display().to_string(),
            ..NamesrvSettings::default()
        }));
        let names = names.unwrap();
        let namesrv = names.local_addr().to_string();
        let mut settings = BrokerSettings {
            broker_name: "broker-a".into(),
            broker_cluster_name: "TestCluster".into(),
            broker_ip1: "127.0.0.1".into(),
            bind_address: "127.0.0.1".into(),
            namesrv_addr: namesrv.clone(),
            store_path_root_dir: dir.path().join("store").display().to_string(),
            mapped_file_size_commit_log: 16 << 20,
            mapped_file_size_consume_queue: 20_000,
            ..BrokerSettings::default()
        };
        change(&mut settings, dir.path());
        let broker = start_broker(&runtime, &mut settings);
        let broker_address = broker.local_addr().to_string();
        let cluster = Self {
            runtime,
            names: Some(names),
            broker: Some(broker),
            namesrv,
            broker_address,
            settings,
            dir,
        };
        wait_for("the broker to be registered", || {
            cluster
                .run(&["-o", "json", "cluster", "list"])
                .out
                .contains("broker-a")
        });
        cluster
    }

    /// Stops the broker and starts it again on the same ports and store.
    pub(crate) fn restart_broker(&mut self) {
        if let Some(broker) = self.broker.take() {
            assert!(
                self.runtime.block_on(broker.shutdown()),
                "the broker stops cleanly"
            );
        }
        let started = self.runtime.block_on(Broker::start(self.settings.clone()));
        self.broker = Some(started.unwrap());
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        ferroctl(&self.namesrv, args)
    }

    /// Runs with JSON output, which must succeed.
    pub(crate) fn json(&self, args: &[&str]) -> serde_json::Value {
        let mut all = vec!["-o", "json"];
        all.extend(args);
        self.run(&all).fine().json()
    }
}

/// Waits until `check` holds.
pub(crate) fn wait_for(what: &str, mut check: impl FnMut() -> bool) {
    let started = Instant::now();
    while !check() {
        assert!(started.elapsed() < PATIENCE, "still waiting for: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let (names, broker) = (self.names.take(), self.broker.take());
        self.runtime.block_on(async {
            if let Some(broker) = broker {
                broker.shutdown().await;
            }
            if let Some(names) = names {
                names.shutdown().await;
            }
        });
    }
}

/// A broker listens on L − 2, L and L + 1; what is free now may be taken a moment later, so several are tried.
fn start_broker(runtime: &Runtime, settings: &mut BrokerSettings) -> ferromq_broker::Running {
    let free = |port: u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    let first = 10_000 + (std::process::id() as u16 % 2_000) * 10;
    for port in (0..2_000).map(|n| 10_000 + (first - 10_000 + n * 7) % 22_000) {
        if ![port - 2, port, port + 1].into_iter().all(free) {
            continue;
        }
        settings.listen_port = port;
        settings.complete().unwrap();
        match runtime.block_on(Broker::start(settings.clone())) {
            Ok(running) => return running,
            Err(error) => eprintln!("port {port}: {error:#}"),
        }
    }
    panic!("no free ports for a broker");
}
