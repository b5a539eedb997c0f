//! A name server and brokers on loopback, each ours or Java's, with stores in a directory of the test.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::process::Process;
use super::{java, ports};

/// Whose program it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    /// Release 4.9.
    Java,
    /// Release 5.
    Java5,
}

impl Kind {
    fn java_program(self) -> &'static str {
        if self == Self::Java5 { "peer5" } else { "peer" }
    }
}

/// System properties of a JVM whose home, where release 5 writes its logs, is `home`.
fn java_options(defines: &[String], home: &Path) -> String {
    format!("-Duser.home={} {}", home.display(), defines.join(" "))
}

/// One of our binaries: in `FERROMQ_BIN_DIR`, else next to this test.
pub(crate) fn binary(name: &str) -> anyhow::Result<PathBuf> {
    let dir = match std::env::var_os("FERROMQ_BIN_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => std::env::current_exe()?
            .ancestors()
            .nth(2)
            .context("the test lies in a target directory")?
            .to_path_buf(),
    };
    let path = dir.join(name);
    anyhow::ensure!(
        path.is_file(),
        "{} is not there: build it with `cargo build -p {name}`, or name its directory in FERROMQ_BIN_DIR",
        path.display()
    );
    Ok(path)
}

#[derive(Debug)]
pub(crate) struct NameServer {
    process: Process,
    port: u16,
}

impl NameServer {
    pub(crate) fn start(kind: Kind, dir: &Path) -> anyhow::Result<Self> {
        Self::on_port(kind, dir, ports::block(1), &[])
    }

    /// With system properties, each `-Dname=value`.
    pub(crate) fn start_with(kind: Kind, dir: &Path, defines: &[String]) -> anyhow::Result<Self> {
        Self::on_port(kind, dir, ports::block(1), defines)
    }

    /// What it has logged.
    pub(crate) fn errors(&self) -> String {
        self.process.errors()
    }

    /// Ends it by kill -9 and starts another at its address. Nothing but the key-value configuration is kept on disk.
    pub(crate) fn replace(mut self, kind: Kind, dir: &Path) -> anyhow::Result<Self> {
        self.process.kill()?;
        Self::on_port(kind, dir, self.port, &[])
    }

    fn on_port(kind: Kind, dir: &Path, port: u16, defines: &[String]) -> anyhow::Result<Self> {
        let home = dir.join("namesrv");
        std::fs::create_dir_all(&home)?;
        let process = match kind {
            Kind::Ours => {
                let conf = home.join("namesrv.conf");
                std::fs::write(
                    &conf,
                    format!(
                        "listenPort={port}\nkvConfigPath={}/kvConfig.json\n",
                        home.display()
                    ),
                )?;
                let mut command = Command::new(binary("ferromq-namesrv")?);
                let mut p = Process::start("namesrv", dir, command.args(defines).arg("-c").arg(conf))?;
                p.wait_for("boot success")?;
                p
            }
            Kind::Java | Kind::Java5 => {
                let mut command = java::program(kind.java_program())?;
                command
                    .args(["namesrv", "--port", &port.to_string(), "--home"])
                    .arg(&home)
                    .env("JAVA_TOOL_OPTIONS", java_options(defines, &home));
                let mut p = Process::start("namesrv", dir, &mut command)?;
                p.wait_for("\"ready\"")?;
                p
            }
        };
        Ok(Self { process, port })
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// A broker that can be ended and started again on its store, by our program or Java's.
#[derive(Debug)]
pub(crate) struct Broker {
    pub process: Option<Process>,
    name: String,
    dir: PathBuf,
    name_server: String,
    starts: u32,
    port: u16,
    /// Settings, in the format that both programs read.
    pub conf: PathBuf,
    /// System properties, each `-Dname=value`.
    pub defines: Vec<String>,
}

impl Broker {
    /// Settings that differ from the default: small files, so that logs and queues roll.
    pub(crate) const SMALL_FILES: &'static [(&'static str, &'static str)] = &[
        ("mappedFileSizeCommitLog", "262144"),
        ("maxMessageSize", "65536"),
        ("mappedFileSizeConsumeQueue", "20000"),
        ("maxHashSlotNum", "1000"),
        ("maxIndexNum", "4000"),
    ];

    /// Settings for suites: large messages fit.
    pub(crate) const MIDDLE_FILES: &'static [(&'static str, &'static str)] = &[
        ("mappedFileSizeCommitLog", "33554432"),
        ("mappedFileSizeConsumeQueue", "200000"),
        ("maxHashSlotNum", "50000"),
        ("maxIndexNum", "200000"),
        ("enablePropertyFilter", "true"),
        ("transactionTimeOut", "3000"),
        ("transactionCheckInterval", "3000"),
    ];

    /// What the sample stores were written with, but that nothing in them grows old.
    pub(crate) const SAMPLE_STORE: &'static [(&'static str, &'static str)] = &[
        ("brokerClusterName", "FixtureCluster"),
        ("mappedFileSizeCommitLog", "1048576"),
        ("mappedFileSizeConsumeQueue", "2000"),
        ("maxHashSlotNum", "200"),
        ("maxIndexNum", "800"),
        ("maxMessageSize", "262144"),
        ("transactionCheckInterval", "3600000"),
        ("transactionTimeOut", "3600000"),
        ("traceTopicEnable", "true"),
        ("fileReservedTime", "800000"),
    ];

    pub(crate) fn new(
        name: &str,
        dir: &Path,
        name_server: &NameServer,
        settings: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let port = ports::block(4) + 2;
        Self::on_port(name, dir, name_server, settings, port)
    }

    /// With a port of its own choice: stored ids hold it.
    pub(crate) fn on_port(
        name: &str,
        dir: &Path,
        name_server: &NameServer,
        settings: &[(&str, &str)],
        port: u16,
    ) -> anyhow::Result<Self> {
        let dir = dir.to_path_buf();
        let conf = dir.join(format!("{name}.conf"));
        let store = dir.join(format!("{name}-store"));
        std::fs::create_dir_all(&store)?;
        let mut text = format!(
            "brokerClusterName=DefaultCluster\nbrokerName={name}\nbrokerId=0\nbrokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\n\
             listenPort={port}\nstorePathRootDir={0}\nstorePathCommitLog={0}/commitlog\nnamesrvAddr={1}\n",
            store.display(),
            name_server.address()
        );
        for (key, value) in settings {
            writeln!(text, "{key}={value}")?;
        }
        std::fs::write(&conf, text)?;
        Ok(Self {
            process: None,
            name: name.to_owned(),
            dir,
            name_server: name_server.address(),
            starts: 0,
            port,
            conf,
            defines: Vec::new(),
        })
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.dir.join(format!("{}-store", self.name))
    }

    /// Starts on the store as it is and waits until it serves.
    pub(crate) fn start(&mut self, kind: Kind) -> anyhow::Result<()> {
        anyhow::ensure!(self.process.is_none(), "{} is running", self.name);
        self.starts += 1;
        let log = format!("{}-{}", self.name, self.starts);
        let process = match kind {
            Kind::Ours => {
                let mut command = Command::new(binary("ferromq-broker")?);
                let mut p = Process::start(
                    &log,
                    &self.dir,
                    command.args(&self.defines).arg("-c").arg(&self.conf),
                )?;
                p.wait_for("boot success")?;
                p
            }
            Kind::Java | Kind::Java5 => {
                let mut command = java::program(kind.java_program())?;
                command
                    .args(["broker", "--port", &self.port.to_string()])
                    .args(["--namesrv", &self.name_server])
                    // By default Java drops sends that wait 200 ms, which a busy test machine makes them do.
                    .env("JAVA_TOOL_OPTIONS", java_options(&self.defines, &self.dir))
                    .args(["--set", "waitTimeMillsInSendQueue=60000", "--home"])
                    .arg(&self.dir)
                    .arg("--store")
                    .arg(self.store())
                    .arg("--conf")
                    .arg(&self.conf);
                let mut p = Process::start(&log, &self.dir, &mut command)?;
                p.wait_for("\"ready\"")?;
                p
            }
        };
        self.process = Some(process);
        Ok(())
    }

    /// Ends it in good order: exit status 0 from ours, and no abort file from either.
    pub(crate) fn stop(&mut self, kind: Kind) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the broker is running")?;
        let status = process.stop()?;
        // A JVM that ends by a signal tells that signal.
        anyhow::ensure!(
            kind != Kind::Ours || status.success(),
            "{} ended with {status}\n{}",
            self.name,
            process.tail()
        );
        anyhow::ensure!(
            !self.store().join("abort").exists(),
            "{} left an abort file after a graceful stop\n{}",
            self.name,
            process.tail()
        );
        Ok(())
    }

    /// kill -9; the abort file stays.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let mut process = self.process.take().context("the broker is running")?;
        process.kill()?;
        anyhow::ensure!(
            self.store().join("abort").exists(),
            "{} left no abort file after kill -9",
            self.name
        );
        Ok(())
    }
}
