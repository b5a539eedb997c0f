//! Bringing a cluster up: everything that can is started side by side.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::plan::{API_PORT, MAX_NODES, Network, Node};
use super::{Cluster, Progress, Rig, certificates, config, images, network, process};

/// Whether [`Rig::up`] had to do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Up {
    /// A healthy cluster was there.
    AlreadyUp,
    /// A cluster was started.
    Started,
}

const READY_LIMIT: Duration = Duration::from_mins(3);

impl Rig {
    /// Starts a cluster, or finds that one of this size is up and healthy. What an earlier cluster left when it
    /// crashed is removed first.
    ///
    /// # Errors
    /// A tool is missing, another rig command runs, a cluster of another size is up, or a part does not start; the
    /// state then stays for inspection until `down` or the next `up`.
    pub fn up(&self, nodes: u8, progress: Progress<'_>) -> Result<Up> {
        ensure!(
            (1..=MAX_NODES).contains(&nodes),
            "a rig has 1 to {MAX_NODES} nodes, not {nodes}"
        );
        let _lock = Self::lock()?;
        self.check_tools()?;
        if let Some(cluster) = self.running()? {
            ensure!(
                cluster.nodes == nodes,
                "the rig is up with {} nodes; take it down first (rig down) to have {nodes}",
                cluster.nodes
            );
            self.wait_ready(&self.nodes()?, Duration::from_mins(1)).context(
                "the rig is up but not healthy; heal what was cut (rig heal, rig start-node), or start anew: rig down, rig up",
            )?;
            return Ok(Up::AlreadyUp);
        }
        if self.paths.state().exists() {
            progress("removing what an earlier cluster left");
        }
        self.remove_all()?;
        let network = network::choose()?;
        self.start(network, &Node::all(network, nodes)?, progress)
            .with_context(|| {
                format!(
                    "the cluster did not start; logs are in {}",
                    self.paths.state().join("log").display()
                )
            })?;
        Ok(Up::Started)
    }

    fn check_tools(&self) -> Result<()> {
        let tools = [
            ("kubernetes", "kubelet"),
            ("coredns", "coredns"),
            ("local-path-provisioner", "local-path-provisioner"),
            ("pause", "pause"),
        ];
        for (tool, program) in tools {
            let path = self.paths.tool(tool, program);
            ensure!(
                path.exists(),
                "{} is not there; install the rig's tools with: e2e/rig/setup.sh",
                path.display()
            );
        }
        Ok(())
    }

    /// The cluster that runs now with every process alive.
    fn running(&self) -> Result<Option<Cluster>> {
        let Some(cluster) = self.cluster()? else {
            return Ok(None);
        };
        let whole =
            self.paths.ready().exists() && cluster.boot_id == process::boot_id()? && self.all_alive().is_ok();
        Ok(whole.then_some(cluster))
    }

    /// Fails when a recorded process has ended.
    pub(super) fn all_alive(&self) -> Result<()> {
        for (name, identity) in self.records.all()? {
            if !identity.alive() {
                let log = self.paths.log(&name);
                let text = fs::read_to_string(&log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = lines[lines.len().saturating_sub(5)..].join("\n  ");
                bail!("{name} has ended; the end of {}:\n  {last}", log.display());
            }
        }
        Ok(())
    }

    fn start(&self, network: Network, nodes: &[Node], progress: Progress<'_>) -> Result<()> {
        let state = self.paths.state();
        for folder in [
            state.to_owned(),
            self.paths.pki(),
            self.paths.run(),
            state.join("log"),
            state.join("images"),
        ] {
            fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
        }
        write(
            &self.paths.marker(),
            b"This folder belongs to the rig and is removed by: rig down\n",
        )?;
        let cluster = Cluster {
            nodes: nodes.len() as u8,
            network,
            boot_id: process::boot_id()?,
        };
        write(
            &self.paths.cluster_file(),
            &serde_json::to_vec(&cluster).context("cluster.json")?,
        )?;

        let environment = config::environment();
        let start = |name: &str, argv: &[String]| {
            self.records
                .start(name, &self.paths.log(name), argv, &environment)
        };
        let pause = self.paths.tool("pause", "pause").display().to_string();
        let switch = start("switch", &["unshare", "--net", "--", &pause].map(String::from))?;
        self.wait_for("the switch's network namespace", Duration::from_secs(10), || {
            Ok(fs::read_link(format!("/proc/{}/ns/net", switch.pid)).ok()
                != fs::read_link("/proc/self/ns/net").ok())
        })?;
        network::build_switch(switch.pid, network, nodes)?;
        let in_switch = |argv: Vec<String>| {
            let mut all = vec![
                "nsenter".to_owned(),
                format!("--net=/proc/{}/ns/net", switch.pid),
                "--".to_owned(),
            ];
            all.extend(argv);
            all
        };
        start("etcd", &in_switch(config::etcd_args(&self.paths)))?;
        certificates::make(&self.paths.pki(), nodes)?;
        self.write_kubeconfigs(network)?;
        start(
            "apiserver",
            &in_switch(config::apiserver_args(&self.paths, network)),
        )?;
        progress("switch, etcd and api server started");

        let archives = images::archives(&self.paths, &state.join("images"))?;
        let archives = &archives;
        std::thread::scope(|scope| -> Result<()> {
            let work: Vec<_> = nodes
                .iter()
                .map(|node| {
                    scope.spawn(move || -> Result<()> {
                        self.configure_node(*node)?;
                        self.boot_node(*node, nodes)?;
                        archives
                            .iter()
                            .try_for_each(|archive| self.import(*node, archive))
                    })
                })
                .collect();
            let api = self.wait_for_api(network);
            if api.is_ok() {
                progress("api server answers");
                start(
                    "controller-manager",
                    &in_switch(config::controller_manager_args(&self.paths)),
                )?;
                start("scheduler", &in_switch(config::scheduler_args(&self.paths)))?;
            }
            // A node's own failure says more than that of a wait which it cut short.
            for (thread, node) in work.into_iter().zip(nodes) {
                super::joined(thread).with_context(|| format!("boot {}", node.name()))?;
            }
            api?;
            nodes.iter().try_for_each(|node| self.join_cluster(*node))?;
            progress("nodes started");
            self.apply(&config::addons(&images::Names::current(), nodes.len()))
        })?;
        self.wait_ready(nodes, READY_LIMIT)?;
        fs::remove_dir_all(state.join("images")).context("remove the image archives")?;
        write(&self.paths.ready(), b"")?;
        progress("nodes, name service and storage are ready");
        Ok(())
    }

    fn write_kubeconfigs(&self, network: Network) -> Result<()> {
        let pki = self.paths.pki();
        let read = |name: String| fs::read(pki.join(&name)).with_context(|| format!("read {name}"));
        let ca = read("ca.crt".into())?;
        let targets = [
            ("admin", self.paths.kubeconfig()),
            ("controller-manager", pki.join("controller-manager.kubeconfig")),
            ("scheduler", pki.join("scheduler.kubeconfig")),
        ];
        for (name, path) in targets {
            let text = config::kubeconfig(
                network,
                &ca,
                &read(format!("{name}.crt"))?,
                &read(format!("{name}.key"))?,
            );
            write_private(&path, text.as_bytes())?;
        }
        Ok(())
    }

    fn wait_for_api(&self, network: Network) -> Result<()> {
        let address = SocketAddr::from((network.switch(), API_PORT));
        let limit = Duration::from_mins(2);
        // Asking through kubectl costs more than a connection, so first wait until someone listens.
        self.wait_for("the api server to listen", limit, || {
            Ok(TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())
        })?;
        self.wait_for("the api server to be ready", limit, || {
            let mut ask = self.kubectl();
            ask.args(["get", "--raw", "/readyz", "--request-timeout=5s"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            Ok(ask.status().context("run kubectl")?.success())
        })
    }

    /// Applies a manifest.
    ///
    /// # Errors
    /// kubectl's own.
    pub fn apply(&self, manifest: &str) -> Result<()> {
        let mut child = self
            .kubectl()
            .args(["apply", "--server-side", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("run kubectl")?;
        let mut stdin = child.stdin.take().context("kubectl's input")?;
        stdin.write_all(manifest.as_bytes()).context("write to kubectl")?;
        drop(stdin);
        let output = child.wait_with_output().context("wait for kubectl")?;
        ensure!(
            output.status.success(),
            "kubectl apply: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }

    fn wait_ready(&self, nodes: &[Node], limit: Duration) -> Result<()> {
        let mut missing = Vec::new();
        let result = self.wait_for("the cluster to be ready", limit, || {
            missing = self.not_ready(nodes)?;
            Ok(missing.is_empty())
        });
        result.with_context(|| format!("not ready: {}", missing.join(", ")))
    }

    /// What a healthy cluster would have and this one lacks.
    fn not_ready(&self, nodes: &[Node]) -> Result<Vec<String>> {
        let mut ask = self.kubectl();
        ask.args([
            "get",
            "nodes,deployments",
            "--all-namespaces",
            "-o",
            "json",
            "--request-timeout=5s",
        ]);
        let output = ask.output().context("run kubectl")?;
        if !output.status.success() {
            return Ok(vec![format!(
                "api server ({})",
                String::from_utf8_lossy(&output.stderr).trim()
            )]);
        }
        let list = serde_json::from_slice(&output.stdout).context("kubectl's answer")?;
        Ok(missing_in(&list, nodes))
    }
}

fn missing_in(list: &Value, nodes: &[Node]) -> Vec<String> {
    let items: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    let ready = |kind: &str, namespace: Option<&str>, name: &str, condition: &str| {
        items.iter().any(|item| {
            item["kind"] == kind
                && item["metadata"]["name"] == name
                && item["metadata"]["namespace"].as_str() == namespace
                && item["status"]["conditions"].as_array().is_some_and(|all| {
                    all.iter()
                        .any(|c| c["type"] == condition && c["status"] == "True")
                })
        })
    };
    let mut missing = Vec::new();
    for node in nodes {
        if !ready("Node", None, &node.name(), "Ready") {
            missing.push(node.name());
        }
    }
    for (namespace, name) in [
        ("kube-system", "coredns"),
        ("local-path-storage", "local-path-provisioner"),
    ] {
        if !ready("Deployment", Some(namespace), name, "Available") {
            missing.push(name.to_owned());
        }
    }
    missing
}

pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
    fs::write(path, content).with_context(|| format!("write {}", path.display()))
}

fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("create {}", path.display()))?;
    file.write_all(content)
        .with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_missing_is_named() {
        let object = |kind: &str, namespace: Option<&str>, name: &str, condition: &str, status: &str| {
            json!({
                "kind": kind,
                "metadata": {"name": name, "namespace": namespace},
                "status": {"conditions": [{"type": condition, "status": status}]},
            })
        };
        let mut list = json!({"items": [
            object("Node", None, "ferromq-1", "Ready", "True"),
            object("Node", None, "ferromq-2", "Ready", "Unknown"),
            object("Deployment", Some("kube-system"), "coredns", "Available", "True"),
            object("Deployment", Some("default"), "local-path-provisioner", "Available", "True"),
        ]});
        let nodes = Node::all(Network::CANDIDATES[0], 2).unwrap();
        assert_eq!(missing_in(&list, &nodes), ["ferromq-2", "local-path-provisioner"]);
        list["items"][1]["status"]["conditions"][0]["status"] = json!("True");
        list["items"][3]["metadata"]["namespace"] = json!("local-path-storage");
        assert!(missing_in(&list, &nodes).is_empty());
        assert_eq!(
            missing_in(&json!({}), &nodes[..1]),
            ["ferromq-1", "coredns", "local-path-provisioner"]
        );
    }
}
