//! What the interop tests share: a directory a test, its logs on failure, and a name server with one broker.

use std::path::Path;

use crate::support::cluster::{Broker, Kind, NameServer};

/// A directory that is kept when its test fails.
pub(crate) struct Scratch(Option<tempfile::TempDir>);

impl Scratch {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self(Some(
            tempfile::Builder::new().prefix("ferromq-interop-").tempdir()?,
        )))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().expect("there until dropped").path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(dir) = self.0.take()
            && std::thread::panicking()
        {
            eprintln!("kept for a look: {}", dir.keep().display());
        }
    }
}

/// Runs `body` and turns its error into a panic while its processes still live, so that they print their logs.
pub(crate) fn test(body: impl FnOnce(&Path) -> anyhow::Result<()>) {
    let scratch = Scratch::new().expect("make a directory");
    if let Err(error) = body(scratch.path()) {
        panic!("{error:?}\nlogs:\n{}", logs(scratch.path()));
    }
}

/// The ends of all logs of a test.
pub(crate) fn logs(dir: &Path) -> String {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "out" || e == "err"))
        .collect();
    names.sort();
    let mut all = String::new();
    for path in names {
        let text = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        let tail = lines[lines.len().saturating_sub(40)..].join("\n");
        all.extend(["--- ", &path.to_string_lossy(), "\n", &tail, "\n"]);
    }
    all
}

/// A name server and one broker of these kinds, running.
pub(crate) fn pair(
    dir: &Path,
    names: Kind,
    broker: Kind,
    settings: &[(&str, &str)],
) -> anyhow::Result<(NameServer, Broker)> {
    let name_server = NameServer::start(names, dir)?;
    let mut b = Broker::new("broker-a", dir, &name_server, settings)?;
    b.start(broker)?;
    Ok((name_server, b))
}

/// A name server and one broker of this kind, running, each with system properties of its own.
pub(crate) fn pair_with(
    dir: &Path,
    kind: Kind,
    settings: &[(&str, &str)],
    names: &[String],
    broker: &[String],
) -> anyhow::Result<(NameServer, Broker)> {
    let name_server = NameServer::start_with(kind, dir, names)?;
    let mut b = Broker::new("broker-a", dir, &name_server, settings)?;
    b.defines = broker.to_vec();
    b.start(kind)?;
    Ok((name_server, b))
}
