//! The kubectl plugin, with a kubectl that tells what it was asked and answers from files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const KUBECTL: &str = r#"#!/usr/bin/env bash
dir=$(dirname "$0")
echo "$*" >>"$dir/asked"
case "$*" in
  *"get brokerclusters.ferromq.io demo "*) cat "$dir/demo.json" ;;
  *"get brokerclusters.ferromq.io "*)
    echo 'Error from server (NotFound): brokerclusters.ferromq.io "absent" not found' >&2
    exit 1
    ;;
  *"get pods"*) echo pod/demo-broker-0-0 ;;
  *--previous=true*) exit 1 ;;
  *) echo done ;;
esac
"#;

const DEMO: &str = r#"{"metadata":{"name":"demo","generation":1},"status":{"observedGeneration":1,
"readyBrokers":"1/1","brokers":[{"name":"demo-broker-0-0","role":"ASYNC_MASTER","stage":"running"}],
"rollout":{"id":"r-1","plan":[]}}}"#;

struct Fake(TempDir);

impl Fake {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let path = dir.path().join("kubectl");
        std::fs::write(&path, KUBECTL).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(dir.path().join("demo.json"), DEMO).unwrap();
        Self(dir)
    }

    /// Runs the plugin under its own name.
    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let plugin = self.0.path().join("kubectl-ferromq");
        if !plugin.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferroctl"), &plugin).unwrap();
        }
        self.run_as(&plugin, args)
    }

    fn run_as(&self, program: &Path, args: &[&str]) -> (i32, String, String) {
        let output = Command::new(program)
            .args(args)
            .env("KUBECTL", self.0.path().join("kubectl"))
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        (
            output.status.code().unwrap(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    fn asked(&self) -> String {
        std::fs::read_to_string(self.0.path().join("asked")).unwrap_or_default()
    }
}

#[test]
fn status_is_shown_for_people_and_machines() {
    let fake = Fake::new();
    let (code, out, err) = fake.run(&["status", "demo", "--namespace", "mq", "--context", "c"]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.contains("demo-broker-0-0") && out.contains("ASYNC_MASTER"),
        "{out}"
    );
    assert!(
        fake.asked().starts_with("--namespace mq --context c get"),
        "{}",
        fake.asked()
    );
    let (_, out, _) = fake.run(&["status", "demo", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["status"]["readyBrokers"], "1/1");
    let (code, _, err) = fake.run(&["status", "absent"]);
    assert_eq!(code, 3, "{err}");
    // The same as a command of ferroctl.
    let (code, out, err) = fake.run_as(
        Path::new(env!("CARGO_BIN_EXE_ferroctl")),
        &["kube", "status", "demo"],
    );
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("demo-broker-0-0"), "{out}");
}

#[test]
fn what_is_asked_of_the_operator() {
    let fake = Fake::new();
    let (code, _, err) = fake.run(&["restart", "demo"]);
    assert_eq!(code, 2, "without a terminal it must be meant: {err}");
    assert!(!fake.asked().contains("annotate"), "{}", fake.asked());
    assert_eq!(fake.run(&["restart", "demo", "--yes"]).0, 0);
    assert_eq!(
        fake.run(&["restart", "demo", "--pod", "demo-broker-0-0", "--yes"])
            .0,
        0
    );
    assert_eq!(fake.run(&["restart", "demo", "--pod", "other", "--yes"]).0, 3);
    assert_eq!(fake.run(&["pause", "demo"]).0, 0);
    assert_eq!(fake.run(&["resume", "demo"]).0, 0);
    assert_eq!(fake.run(&["approve", "demo"]).0, 0);
    let asked = fake.asked();
    for words in [
        "annotate brokercluster demo ferromq.io/restart=",
        "annotate pod demo-broker-0-0 ferromq.io/restart-now=",
        r#"patch brokercluster demo --type=merge -p {"spec":{"rollout":{"paused":true}}}"#,
        r#"{"paused":false}"#,
        "annotate brokercluster demo ferromq.io/approve=r-1",
    ] {
        assert!(asked.contains(words), "{words} is missing:\n{asked}");
    }
}

#[test]
fn logs_are_collected() {
    let fake = Fake::new();
    let dir = fake.0.path().join("bundle");
    let (code, _, err) = fake.run(&["logs", "demo", "--dir", dir.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    for file in [
        "brokercluster.json",
        "objects.json",
        "events.txt",
        "demo-broker-0-0.log",
    ] {
        assert!(dir.join(file).is_file(), "{file}");
    }
    assert!(!dir.join("demo-broker-0-0.previous.log").exists());
}
