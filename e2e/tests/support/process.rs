//! A process that is ended by its own handle, with its output kept.

use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};

use super::wait_until;

#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command`; its output goes to `NAME.out` and `NAME.err` in `dir`, after what an earlier one left there.
    /// Its standard input stays open as long as this value lives.
    pub(crate) fn start(name: &str, dir: &Path, command: &mut Command) -> anyhow::Result<Self> {
        let (stdout, stderr) = (dir.join(format!("{name}.out")), dir.join(format!("{name}.err")));
        let file = |path: &Path| File::create(path).with_context(|| format!("create {}", path.display()));
        let child = command
            .stdin(Stdio::piped())
            .stdout(file(&stdout)?)
            .stderr(file(&stderr)?)
            .spawn()
            .with_context(|| format!("start {command:?}"))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            stdout,
            stderr,
            ended: None,
        })
    }

    /// Its process id.
    #[allow(dead_code, reason = "the tests have no use for it, the benchmarks have")]
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it wrote to standard output so far.
    pub(crate) fn output(&self) -> String {
        read(&self.stdout)
    }

    /// What it wrote to standard error so far.
    pub(crate) fn errors(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until standard output has `text`; an error when the process ends before.
    pub(crate) fn wait_for(&mut self, text: &str) -> anyhow::Result<()> {
        let what = format!("{} to print {text:?}", self.name);
        wait_until(&what, || {
            if self.output().contains(text) {
                return Ok(true);
            }
            if let Some(status) = self.try_wait()? {
                anyhow::bail!("{} ended with {status} before it printed {text:?}", self.name);
            }
            Ok(false)
        })
    }

    pub(crate) fn try_wait(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    pub(crate) fn wait(&mut self) -> anyhow::Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let mut ended = None;
        wait_until(&what, || {
            ended = self.try_wait()?;
            Ok(ended.is_some())
        })?;
        ended.context("the process has a status")
    }

    /// SIGTERM, then waits for the end.
    pub(crate) fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait()
    }

    /// kill -9, then waits for the end.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        self.signal(Signal::KILL)?;
        let status = self.wait()?;
        anyhow::ensure!(
            status.signal() == Some(Signal::KILL.as_raw()),
            "{} ended by itself with {status}",
            self.name
        );
        Ok(())
    }

    /// Sends a signal; an error when the process has ended.
    pub(crate) fn signal(&mut self, signal: Signal) -> anyhow::Result<()> {
        if let Some(status) = self.try_wait()? {
            anyhow::bail!("{} has already ended with {status}", self.name);
        }
        kill_process(Pid::from_child(&self.child), signal).with_context(|| format!("signal {}", self.name))
    }

    /// The last lines of its output, for a person who looks at a failure.
    pub(crate) fn tail(&self) -> String {
        let last = |text: String| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(60)..].join("\n")
        };
        format!(
            "--- {} stdout\n{}\n--- {} stderr\n{}\n",
            self.name,
            last(self.output()),
            self.name,
            last(self.errors())
        )
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // Both fail only when it ended meanwhile.
            drop(self.child.kill());
            drop(self.child.wait());
        }
        if std::thread::panicking() {
            eprintln!("{}", self.tail());
        }
    }
}

fn read(path: &Path) -> String {
    std::fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default()
}
