//! One node: its namespaces, its containerd and kubelet, and commands that run on it.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::plan::Node;
use super::process::Identity;
use super::{Rig, cgroup, config, images, network, start};

impl Rig {
    /// Writes a node's configuration. What lies in `lib` and `log` stays, as on a machine that boots again.
    pub(super) fn configure_node(&self, node: Node) -> Result<()> {
        let etc = self.paths.node(node, "etc");
        for folder in [
            &self.paths.node(node, "lib"),
            &self.paths.node(node, "log"),
            &etc,
            &etc.join("cni"),
        ] {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        let pki = self.paths.pki();
        let read = |name: &str| fs::read(pki.join(name)).with_context(|| format!("read {name}"));
        let ca = read("ca.crt")?;
        let (crt, key) = (
            read(&format!("{}.crt", node.name()))?,
            read(&format!("{}.key", node.name()))?,
        );
        let files = [
            ("kubelet.json", config::kubelet(node)),
            (
                "kubelet.kubeconfig",
                config::kubeconfig(node.network(), &ca, &crt, &key),
            ),
            ("proxy.json", config::proxy(node)),
            (
                "proxy.kubeconfig",
                config::kubeconfig(node.network(), &ca, &read("proxy.crt")?, &read("proxy.key")?),
            ),
            ("cni/10-rig.conflist", config::cni(node)),
            (
                "containerd.toml",
                config::containerd(&images::Names::current().pause),
            ),
            ("resolv.conf", config::no_resolv_conf(node.network())),
        ];
        for (name, text) in files {
            start::write(&etc.join(name), text.as_bytes())?;
        }
        start::write(&etc.join("ca.crt"), &ca)?;
        start::write(&etc.join("kubelet.crt"), &crt)?;
        start::write(&etc.join("kubelet.key"), &key)?;
        fs::set_permissions(&etc, fs::Permissions::from_mode(0o700)).context("protect the node's keys")
    }

    /// Makes the node's namespaces, joins it to the switch and starts its containerd.
    pub(super) fn boot_node(&self, node: Node, nodes: &[Node]) -> Result<()> {
        cgroup::create(node)?;
        let name = format!("node-{}", node.number());
        let log = self.paths.log(&name);
        let path = |path: &Path| path.display().to_string();
        let mut argv: Vec<String> = [
            "unshare",
            "--net",
            "--mount",
            "--uts",
            "--pid",
            "--fork",
            "--kill-child",
            "/bin/sh",
            "-c",
        ]
        .map(Into::into)
        .into();
        argv.extend([
            include_str!("../../rig/node-init.sh").to_owned(),
            "node-init".to_owned(),
            node.name(),
            path(&self.paths.node(node, "lib")),
            path(&self.paths.node(node, "log")),
            path(self.paths.cache()),
            path(&self.paths.node(node, "etc")),
            format!("{}/pause", super::Paths::tool_folder("pause")),
        ]);
        let init = self.records.start(&name, &log, &argv, &config::environment())?;
        let inside = |path: &str| format!("/proc/{}/root{path}", init.pid);
        self.wait_for(
            &format!("{} to have its file system", node.name()),
            Duration::from_secs(20),
            || Ok(Path::new(&inside("/run/rig/ready")).exists()),
        )?;
        network::join(self.switch_pid()?, init.pid, node, nodes)?;
        self.start_on(node, "containerd", &config::containerd_args())?;
        self.wait_for(
            &format!("containerd of {}", node.name()),
            Duration::from_mins(1),
            || Ok(Path::new(&inside(config::CONTAINERD_SOCKET)).exists()),
        )
    }

    /// Starts the kubelet and kube-proxy of a booted node.
    pub(super) fn join_cluster(&self, node: Node) -> Result<()> {
        self.start_on(node, "kubelet", &config::kubelet_args(node))?;
        self.start_on(node, "proxy", &config::proxy_args())
    }

    fn start_on(&self, node: Node, name: &str, argv: &[String]) -> Result<()> {
        let name = format!("{name}-{}", node.number());
        let mut all = enter(self.init_of(node)?, true);
        all.extend_from_slice(argv);
        self.records
            .start(&name, &self.paths.log(&name), &all, &config::environment())?;
        Ok(())
    }

    /// The process that holds a node's namespaces.
    fn init_of(&self, node: Node) -> Result<Identity> {
        let init = self
            .records
            .get(&format!("node-{}", node.number()))
            .filter(|process| process.alive());
        init.with_context(|| format!("{} does not run; see: rig status", node.name()))
    }

    /// A command that runs wholly on a node: in its network, file system view and process table.
    ///
    /// # Errors
    /// The node does not run.
    pub fn command_inside(&self, node: Node, program: &str) -> Result<Command> {
        let argv = enter(self.init_of(node)?, true);
        let mut command = Command::new(&argv[0]);
        command
            .args(&argv[1..])
            .arg(program)
            .env_clear()
            .envs(config::environment());
        Ok(command)
    }

    /// A command that sees this machine's files but the node's network: Services and pods are reached, and names are
    /// resolved as in a pod of `namespace`. The caller's environment and folder are kept.
    ///
    /// # Errors
    /// The node does not run, or its resolv.conf cannot be written.
    pub fn command_on_network(&self, node: Node, namespace: &str, program: &str) -> Result<Command> {
        let resolv = self
            .paths
            .node(node, "etc")
            .join(format!("resolv-{namespace}.conf"));
        start::write(&resolv, config::cluster_resolv_conf(namespace).as_bytes())?;
        let argv = enter(self.init_of(node)?, false);
        let mut command = Command::new(&argv[0]);
        command.args(&argv[1..]);
        let script = r#"mount --bind "$0" /etc/resolv.conf && exec "$@""#;
        command
            .args(["unshare", "--mount", "/bin/sh", "-c", script])
            .arg(resolv)
            .arg(program);
        Ok(command)
    }

    /// Puts the images of an archive into a node's containerd.
    pub(super) fn import(&self, node: Node, archive: &Path) -> Result<()> {
        let file = File::open(archive).with_context(|| format!("open {}", archive.display()))?;
        let mut ctr = self.command_inside(node, "ctr")?;
        ctr.args([
            "--address",
            config::CONTAINERD_SOCKET,
            "--namespace",
            "k8s.io",
            "images",
            "import",
            "-",
        ]);
        let output = ctr.stdin(Stdio::from(file)).output().context("run ctr")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "{} did not take {}: {}",
            node.name(),
            archive.display(),
            errors.trim()
        );
        Ok(())
    }

    /// Puts the images of an archive into every node, at the same time.
    ///
    /// # Errors
    /// The archive is no image archive, or a node does not take it.
    pub fn load(&self, archive: &Path) -> Result<Vec<String>> {
        let names = crate::image::names_in(archive)?;
        let nodes = self.nodes()?;
        std::thread::scope(|scope| -> Result<()> {
            let work: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| self.import(*node, archive)))
                .collect();
            work.into_iter().try_for_each(super::joined)
        })?;
        Ok(names)
    }

    /// Waits for a condition, and no longer when one of the rig's processes ends.
    pub(super) fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut there: impl FnMut() -> Result<bool>,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut pause = Duration::from_millis(5);
        while !there()? {
            self.all_alive()?;
            ensure!(
                Instant::now() < deadline,
                "waited {} s for {what}",
                limit.as_secs()
            );
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
        Ok(())
    }
}

/// The words that carry a command into a node's namespaces: all of them, or only its network.
fn enter(init: Identity, wholly: bool) -> Vec<String> {
    let namespace = |kind: &str, file: &str| format!("--{kind}=/proc/{}/ns/{file}", init.pid);
    let mut argv = vec!["nsenter".to_owned(), namespace("net", "net")];
    if wholly {
        argv.extend([
            namespace("mount", "mnt"),
            namespace("uts", "uts"),
            namespace("pid", "pid_for_children"),
        ]);
    }
    argv.push("--".to_owned());
    argv
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_enters_all_of_a_node_or_its_network() {
        let init = Identity {
            pid: 7,
            start_ticks: 1,
        };
        assert_eq!(enter(init, false), ["nsenter", "--net=/proc/7/ns/net", "--"]);
        let all = enter(init, true);
        assert!(all.contains(&"--pid=/proc/7/ns/pid_for_children".to_owned()));
        assert_eq!(all.last().unwrap(), "--");
    }
}
