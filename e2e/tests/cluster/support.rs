//! kubectl, waiting by condition, and programs run inside a node's network.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long anything may take before the test gives up. A bound for hangs, not a measure of speed.
const PATIENCE: Duration = Duration::from_mins(5);

/// Waits until `check` gives a value. `what` is named when patience ends.
pub(crate) fn wait_for<T>(what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match check() {
            Ok(value) => return value,
            Err(state) if started.elapsed() > PATIENCE => {
                panic!("still waiting for {what} after {PATIENCE:?}; last seen: {state}")
            }
            Err(_) => std::thread::sleep(Duration::from_millis(250)),
        }
    }
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("e2e has a parent")
        .to_path_buf()
}

/// Runs a command to its end; panics with everything it printed when it fails.
pub(crate) fn run(command: &mut Command) -> String {
    let output = output(command);
    assert!(
        output.status.success(),
        "{command:?} ended with {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must fail and gives what it wrote to standard error.
pub(crate) fn refused(command: &mut Command) -> String {
    let output = output(command);
    assert!(!output.status.success(), "{command:?} was accepted");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn output(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|e| panic!("start {command:?}: {e}"))
}

/// Runs a program of this machine inside the first node's network, where cluster addresses resolve to pods.
pub(crate) fn in_cluster<S: AsRef<std::ffi::OsStr>>(program: &[S]) -> Command {
    let mut command = Command::new(root().join("target/debug/rig"));
    command.args(["exec", "--node", "1", "--"]).args(program);
    command
}

/// `ferroctl` inside the cluster's network, its answer as JSON.
pub(crate) fn ferroctl(name_server: &str, args: &[&str]) -> Value {
    let text = run(&mut ferroctl_command(name_server, args));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("ferroctl {args:?} gave no JSON ({e}): {text}"))
}

/// The same; nothing when it says that what was asked for does not exist (exit code 3).
pub(crate) fn try_ferroctl(name_server: &str, args: &[&str]) -> Option<Value> {
    let done = output(&mut ferroctl_command(name_server, args));
    if done.status.code() == Some(3) {
        return None;
    }
    assert!(
        done.status.success(),
        "ferroctl {args:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    Some(serde_json::from_slice(&done.stdout).expect("ferroctl prints JSON"))
}

/// A command line of `ferroctl` inside the cluster's network.
pub(crate) fn ferroctl_command(name_server: &str, args: &[&str]) -> Command {
    let binary = root().join("target/debug/ferroctl");
    let binary = binary.to_str().expect("path is UTF-8");
    let mut line = vec![binary, "-n", name_server, "-o", "json"];
    line.extend(args);
    in_cluster(&line)
}

/// Waits until a Service's address takes connections: a node learns of a ready pod a moment after the API server.
pub(crate) fn wait_reachable(address: &str) {
    let (ip, port) = address.split_once(':').expect("IP:PORT");
    let connect = format!("exec 3<>/dev/tcp/{ip}/{port}");
    wait_for(&format!("{address} to take connections"), || {
        let tried = output(&mut in_cluster(&["bash", "-c", &connect]));
        if tried.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&tried.stderr).into_owned())
        }
    });
}

/// A namespace that lives as long as the value.
#[derive(Debug)]
pub(crate) struct Namespace(pub(crate) String);

impl Namespace {
    pub(crate) fn new(name: &str) -> Self {
        let space = Self(format!("{name}-{}", std::process::id()));
        run(kubectl().args(["create", "namespace", &space.0]));
        space
    }

    pub(crate) fn kubectl(&self, args: &[&str]) -> Command {
        let mut command = kubectl();
        command.args(["-n", &self.0]).args(args);
        command
    }

    /// A command line that applies `manifest`.
    pub(crate) fn apply(&self, manifest: &str) -> Command {
        let file = std::env::temp_dir().join(format!("{}-{:x}.yaml", self.0, fingerprint(manifest)));
        std::fs::write(&file, manifest).expect("write the manifest");
        self.kubectl(&["apply", "-f", file.to_str().expect("path is UTF-8")])
    }

    pub(crate) fn json(&self, args: &[&str]) -> Value {
        let mut line = vec!["get", "-o", "json"];
        line.extend(args);
        serde_json::from_str(&run(&mut self.kubectl(&line))).expect("kubectl gives JSON")
    }

    /// Waits for the Ready condition of the resource's current generation.
    pub(crate) fn wait_ready(&self, kind: &str, name: &str) -> Value {
        wait_for(&format!("{kind}/{name} to be Ready in {}", self.0), || {
            let object = self.json(&[kind, name]);
            let (status, text) = ready(&object);
            if status == "True" { Ok(object) } else { Err(text) }
        })
    }

    /// The cluster IP and port of a BrokerCluster's name server Service, once they answer.
    pub(crate) fn name_server(&self, cluster: &str) -> String {
        let service = self.json(&["service", &format!("{cluster}-namesrv")]);
        let address = format!("{}:9876", text(&service, "/spec/clusterIP"));
        wait_reachable(&address);
        address
    }

    /// Deletes a pod and waits until another one of that name is ready.
    pub(crate) fn replace_pod(&self, pod: &str) {
        let old = text(&self.json(&["pod", pod]), "/metadata/uid").to_owned();
        run(&mut self.kubectl(&["delete", "pod", pod, "--wait=false"]));
        wait_for(&format!("a new pod {pod} in {}", self.0), || {
            let list = self.json(&["pods"]);
            let items = list["items"].as_array().expect("a list");
            let Some(found) = items.iter().find(|p| p["metadata"]["name"] == pod) else {
                return Err("no pod of that name".to_owned());
            };
            let is_ready = found["status"]["conditions"]
                .as_array()
                .is_some_and(|c| c.iter().any(|c| c["type"] == "Ready" && c["status"] == "True"));
            if text(found, "/metadata/uid") != old && is_ready {
                Ok(())
            } else {
                Err(found["status"].to_string())
            }
        });
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for what in [
                &["get", "mqc,mqt,pods,pvc,svc", "-o", "wide"][..],
                &["describe", "mqc,mqt"],
                &["get", "events"],
            ] {
                let shown = self.kubectl(what).output();
                if let Ok(shown) = shown {
                    eprintln!(
                        "{}{}",
                        String::from_utf8_lossy(&shown.stdout),
                        String::from_utf8_lossy(&shown.stderr)
                    );
                }
            }
        }
        let deleted = kubectl()
            .args(["delete", "namespace", &self.0, "--wait=false"])
            .output();
        if let Err(e) = deleted {
            eprintln!("delete namespace {}: {e}", self.0);
        }
    }
}

/// kubectl against the embedded cluster.
pub(crate) fn kubectl() -> Command {
    let rig = root().join("target/debug/rig");
    let config = run(Command::new(rig).arg("kubeconfig"));
    let mut command = Command::new("kubectl");
    command.env("KUBECONFIG", config.trim());
    command
}

/// The Ready condition of the current generation: its status, and a text for people.
pub(crate) fn ready(object: &Value) -> (String, String) {
    let generation = &object["metadata"]["generation"];
    let observed = &object["status"]["observedGeneration"];
    if generation != observed {
        return (
            "Unknown".to_owned(),
            format!("generation {generation} not observed yet ({observed})"),
        );
    }
    let conditions = object["status"]["conditions"].as_array();
    let ready = conditions.and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
    match ready {
        Some(c) => (c["status"].as_str().unwrap_or_default().to_owned(), c.to_string()),
        None => ("Unknown".to_owned(), "no Ready condition".to_owned()),
    }
}

/// A text inside a JSON document, by JSON pointer.
pub(crate) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_else(|| panic!("no text at {pointer} in {value}"))
}

/// Asserts equality with the whole of both sides shown.
pub(crate) fn same<T: PartialEq + Debug>(what: &str, left: &T, right: &T) {
    assert!(left == right, "{what} differ:\n  {left:?}\n  {right:?}");
}

fn fingerprint(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// A small BrokerCluster; `groups` broker groups of one broker each.
pub(crate) fn broker_cluster(name: &str, groups: u32) -> String {
    format!(
        "apiVersion: ferromq.io/v1alpha1
kind: BrokerCluster
metadata: {{name: {name}}}
spec:
  image: {image}
  nameServers: {{replicas: 1}}
  brokers: {{groups: {groups}}}
  storage: {{size: 2Gi}}
  config: {{mappedFileSizeCommitLog: \"67108864\"}}
",
        image = image()
    )
}

/// A Topic of that cluster.
pub(crate) fn topic(name: &str, cluster: &str, topic_name: &str, queues: u32) -> String {
    format!(
        "apiVersion: ferromq.io/v1alpha1
kind: Topic
metadata: {{name: {name}}}
spec: {{cluster: {cluster}, topicName: {topic_name}, readQueues: {queues}, writeQueues: {queues}}}
"
    )
}

fn image() -> String {
    format!("ferromq/ferromq:{}", env!("CARGO_PKG_VERSION"))
}

/// The helm that rig/setup.sh keeps, against the embedded cluster.
pub(crate) fn helm() -> Command {
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(
        || PathBuf::from(std::env::var_os("HOME").expect("HOME is set")).join(".cache"),
        PathBuf::from,
    );
    let versions = std::fs::read_to_string(root().join("e2e/rig/versions.env")).expect("read the versions");
    let version = versions
        .lines()
        .find_map(|l| l.strip_prefix("HELM="))
        .expect("a version of helm");
    Command::new(cache.join(format!("ferromq/helm-{version}/helm")))
}

/// SIGKILL to the operator's process: no time for a last word.
pub(crate) fn kill_operator() {
    let label = ["-l", "app.kubernetes.io/name=ferromq-operator", "-o", "name"];
    let pods = run(kubectl()
        .args(["-n", "ferromq-system", "get", "pods"])
        .args(label));
    let pod = pods.trim().strip_prefix("pod/").expect("one pod of the operator");
    let target = format!("ferromq-system/{pod}");
    run(Command::new(root().join("target/debug/rig")).args(["kill-pod-process", &target, "operator"]));
}
