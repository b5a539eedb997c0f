//! Processes that outlive the command that starts them, and that are later ended without ever hitting another.
//!
//! A process records itself before it becomes its program: a shell copies its own `/proc/PID/stat` line into
//! `run/NAME` and then executes the program, which keeps pid and start time. So there is no moment in which a process
//! runs unrecorded, and a pid that was given to someone else is told by its start time. Signals go through a pidfd
//! that is opened before the start time is compared.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// What tells a process from every other of the same boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Process id.
    pub pid: i32,
    /// Clock ticks between boot and the start of the process.
    pub start_ticks: u64,
}

/// The fields of a `/proc/PID/stat` line that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) identity: Identity,
    pub(crate) parent: i32,
    pub(crate) state: char,
}

/// Reads a stat line. The second field is the program's name in parentheses and may itself hold blanks and
/// parentheses, so the fields are counted from the last closing one.
pub(crate) fn parse_stat(line: &str) -> Option<Stat> {
    let pid = line.split_once(" (")?.0.parse().ok()?;
    let rest = &line[line.rfind(')')? + 1..];
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let start_ticks = fields.get(19)?.parse().ok()?;
    Some(Stat {
        identity: Identity { pid, start_ticks },
        parent: fields.get(1)?.parse().ok()?,
        state: fields.first()?.chars().next()?,
    })
}

fn stat_of(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

impl Identity {
    /// Whether this very process still runs; one that has ended and waits to be reaped does not.
    pub fn alive(self) -> bool {
        stat_of(self.pid).is_some_and(|stat| stat.identity == self && !matches!(stat.state, 'Z' | 'X' | 'x'))
    }

    /// Sends a signal if this very process still runs.
    ///
    /// # Errors
    /// The system refuses the signal.
    pub fn signal(self, signal: Signal) -> Result<()> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(());
        };
        // From here on the descriptor means one process, whatever happens to the number.
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(());
        };
        if !self.alive() {
            return Ok(());
        }
        match pidfd_send_signal(&descriptor, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("send {signal:?} to process {}", self.pid)),
        }
    }

    /// Its child processes now.
    pub(crate) fn children(self) -> Vec<Self> {
        all()
            .into_iter()
            .filter(|stat| stat.parent == self.pid)
            .map(|stat| stat.identity)
            .collect()
    }
}

/// Every process of the machine now.
pub(crate) fn all() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(stat_of).collect()
}

/// An id of this boot; processes recorded in another are gone.
pub(crate) fn boot_id() -> Result<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").context("read the boot id")?;
    Ok(text.trim().to_owned())
}

/// The folder in which processes record themselves.
#[derive(Debug, Clone)]
pub(crate) struct Records {
    folder: PathBuf,
}

/// Writes the shell's own stat line, whole or not at all, and becomes the program.
const RECORD_AND_EXEC: &str =
    r#"read -r line </proc/$$/stat && echo "$line" >"$0.new" && mv "$0.new" "$0" && exec "$@""#;

impl Records {
    pub(crate) fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Starts a program that stays after this one, in a session of its own and with this environment only.
    /// Returns when it is recorded.
    pub(crate) fn start(
        &self,
        name: &str,
        log: &Path,
        argv: &[String],
        env: &[(String, String)],
    ) -> Result<Identity> {
        let record = self.folder.join(name);
        if let Some(old) = self.get(name) {
            ensure!(!old.alive(), "{name} runs already, as process {}", old.pid);
            fs::remove_file(&record).with_context(|| format!("remove {}", record.display()))?;
        }
        let open_log = || {
            let file = File::options().create(true).append(true).open(log);
            file.with_context(|| format!("open {}", log.display()))
        };
        let mut child = Command::new("setsid")
            .args(["/bin/sh", "-c", RECORD_AND_EXEC])
            .arg(&record)
            .args(argv)
            .env_clear()
            .envs(env.iter().map(|(key, value)| (key, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(open_log()?)
            .stderr(open_log()?)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(identity) = self.get(name) {
                return Ok(identity);
            }
            if let Some(status) = child.try_wait().with_context(|| format!("wait for {name}"))? {
                bail!("{name} ended at once ({status}); see {}", log.display());
            }
            ensure!(
                Instant::now() < deadline,
                "{name} was not recorded within 20 s; see {}",
                log.display()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn get(&self, name: &str) -> Option<Identity> {
        parse_stat(&fs::read_to_string(self.folder.join(name)).ok()?).map(|stat| stat.identity)
    }

    /// Every recorded process by name.
    pub(crate) fn all(&self) -> Result<BTreeMap<String, Identity>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(BTreeMap::new()),
            Err(error) => return Err(error).with_context(|| format!("list {}", self.folder.display())),
        };
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names
            .filter_map(|name| self.get(&name).map(|identity| (name, identity)))
            .collect())
    }

    /// Ends these processes at once and waits until they are gone.
    pub(crate) fn kill(processes: &[Identity]) -> Result<()> {
        for process in processes {
            process.signal(Signal::KILL)?;
        }
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Some(left) = processes.iter().find(|process| process.alive()) {
            ensure!(
                Instant::now() < deadline,
                "process {} is still there 20 s after SIGKILL",
                left.pid
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Forgets a process that has ended.
    pub(crate) fn forget(&self, name: &str) -> Result<()> {
        match fs::remove_file(self.folder.join(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("forget {name}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper(records: &Records, folder: &Path, name: &str) -> Identity {
        let argv = ["sleep".to_owned(), "600".to_owned()];
        let path = ("PATH".to_owned(), std::env::var("PATH").unwrap());
        records
            .start(name, &folder.join(format!("{name}.log")), &argv, &[path])
            .unwrap()
    }

    #[test]
    fn stat_lines_are_read_around_odd_names() {
        let tail = "S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9 9";
        for name in ["sh", "a b", "x) S 1 (y", ")"] {
            let stat = parse_stat(&format!("12 ({name}) {tail}")).unwrap();
            assert_eq!(
                stat.identity,
                Identity {
                    pid: 12,
                    start_ticks: 4242
                }
            );
            assert_eq!((stat.parent, stat.state), (7, 'S'));
        }
        for bad in ["", "12", "12 (sh", "x (sh) S 7", "12 (sh) S 7 1"] {
            assert_eq!(parse_stat(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_process_is_recorded_found_and_ended() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().join("run"));
        fs::create_dir(folder.path().join("run")).unwrap();
        let process = sleeper(&records, folder.path(), "one");
        assert!(process.alive());
        assert_eq!(
            records.all().unwrap(),
            BTreeMap::from([("one".to_owned(), process)])
        );
        let argv = ["true".to_owned()];
        assert!(
            records
                .start("one", &folder.path().join("one.log"), &argv, &[])
                .is_err(),
            "no second of a name"
        );
        Records::kill(&[process]).unwrap();
        assert!(!process.alive());
        records.forget("one").unwrap();
        records.forget("one").unwrap();
        assert!(records.all().unwrap().is_empty());
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let records = Records::new(folder.path().to_owned());
        let process = sleeper(&records, folder.path(), "one");
        let earlier = Identity {
            start_ticks: process.start_ticks - 1,
            ..process
        };
        assert!(!earlier.alive());
        Records::kill(&[earlier]).unwrap();
        assert!(process.alive());
        Records::kill(&[process]).unwrap();
    }

    #[test]
    fn children_are_found() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let own = stat_of(i32::try_from(std::process::id()).unwrap())
            .unwrap()
            .identity;
        let pid = i32::try_from(child.id()).unwrap();
        assert!(own.children().iter().any(|process| process.pid == pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!own.children().iter().any(|process| process.pid == pid));
    }
}
