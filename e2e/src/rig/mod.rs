//! A real Kubernetes of several nodes on one machine, without a container engine.
//!
//! Each node is a process in network, mount, pid and host-name namespaces of its own, with its own containerd, kubelet
//! and kube-proxy; the nodes are joined by a bridge in one more namespace, the switch, where etcd and the api server
//! run. No namespace and no mount has a name outside: all of them end when their processes do. So the whole of a
//! cluster is a folder, some recorded processes, a cgroup folder and one link, and taking it down is ending the
//! processes and removing the rest, whatever state it was in.

mod certificates;
mod cgroup;
mod config;
mod fault;
mod images;
mod leftovers;
mod network;
mod node;
mod paths;
pub mod plan;
pub mod process;
mod start;
mod status;
mod stop;

use std::fs;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

pub use leftovers::leftovers;
pub use paths::Paths;
use plan::{Network, Node};
use process::Records;
pub use start::Up;

/// What is told while something takes time.
pub type Progress<'a> = &'a (dyn Fn(&str) + Sync);

/// A rig, running or not. Commands that change it exclude each other machine-wide.
#[derive(Debug, Clone)]
pub struct Rig {
    paths: Paths,
    records: Records,
}

/// What a cluster was started as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Cluster {
    nodes: u8,
    network: Network,
    boot_id: String,
}

/// Held while a command changes the rig. It is an abstract socket name: it leaves no file and ends with its process.
#[derive(Debug)]
struct Lock(#[expect(dead_code, reason = "held, not read")] UnixListener);

impl Rig {
    /// The rig of this user, see [`Paths::from_env`].
    ///
    /// # Errors
    /// No usable state folder.
    pub fn from_env() -> Result<Self> {
        let paths = Paths::from_env()?;
        Ok(Self {
            records: Records::new(paths.run()),
            paths,
        })
    }

    /// Where its files are.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// A kubectl command for this cluster that no proxy setting of the caller diverts.
    pub fn kubectl(&self) -> Command {
        self.client(self.paths.kubectl())
    }

    /// A helm command for this cluster.
    pub fn helm(&self) -> Command {
        self.client(self.paths.helm())
    }

    fn client(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("KUBECONFIG", self.paths.kubeconfig());
        for name in [
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
        ] {
            command.env_remove(name);
        }
        command
    }

    /// The nodes of the cluster that is up.
    ///
    /// # Errors
    /// No cluster is up.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        let cluster = self.cluster()?.context("no rig is up; start one with: rig up")?;
        Node::all(cluster.network, cluster.nodes)
    }

    /// The node that `2` or `ferromq-2` means.
    ///
    /// # Errors
    /// No cluster is up, or it has no such node.
    pub fn node(&self, text: &str) -> Result<Node> {
        Node::find(text, &self.nodes()?)
    }

    fn cluster(&self) -> Result<Option<Cluster>> {
        let path = self.paths.cluster_file();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        };
        // A file cut short by a crash means what a missing one means.
        Ok(serde_json::from_str(&text).ok())
    }

    fn switch_pid(&self) -> Result<i32> {
        let switch = self.records.get("switch").filter(|process| process.alive());
        Ok(switch
            .context("the rig's switch does not run; start anew with: rig down, rig up")?
            .pid)
    }

    fn lock() -> Result<Lock> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "the rig makes namespaces and mounts: run it as root"
        );
        let name = SocketAddr::from_abstract_name("ferromq-rig").context("name the lock")?;
        match UnixListener::bind_addr(&name) {
            Ok(listener) => Ok(Lock(listener)),
            Err(error) if error.kind() == ErrorKind::AddrInUse => {
                bail!("another rig command is changing the rig; wait until it has finished")
            }
            Err(error) => Err(error).context("take the rig's lock"),
        }
    }
}

/// The outcome of a thread; its panic goes on here.
fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    thread
        .join()
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
