//! Links and routes between the switch, the nodes and this machine. Every namespace is named by a process in it, so
//! it ends with that process and its links go with it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::plan::{HOST_LINK, NODE_PREFIX, Network, Node, SERVICE_RANGE};

/// A network that this machine does not use itself.
pub(crate) fn choose() -> Result<Network> {
    let output = Command::new("ip")
        .args(["-4", "route", "show", "table", "all"])
        .output()
        .context("run ip")?;
    ensure!(
        output.status.success(),
        "ip route: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Network::free(&String::from_utf8_lossy(&output.stdout))
}

/// Builds the switch and this machine's own link to it.
pub(crate) fn build_switch(switch: i32, network: Network, nodes: &[Node]) -> Result<()> {
    ip(
        None,
        &format!("link add {HOST_LINK} type veth peer name host netns {switch}\n"),
    )
    .context("link this machine to the switch")?;
    let mut inside = format!(
        "link set lo up\n\
         link add br0 type bridge\n\
         link set br0 up\n\
         addr add {}/{NODE_PREFIX} dev br0\n\
         link set host master br0\n\
         link set host up\n",
        network.switch()
    );
    for node in nodes {
        writeln!(inside, "route add {} via {}", node.pod_range(), node.address())
            .expect("a String takes every write");
    }
    ip(Some(switch), &inside).context("build the switch")?;
    let host = network.host();
    ip(
        None,
        &format!("addr add {host}/{NODE_PREFIX} dev {HOST_LINK}\nlink set {HOST_LINK} up\n"),
    )
    .context("set this machine's address on the cluster's network")
}

/// Joins a node to the switch and teaches it the way to every other node's pods.
pub(crate) fn join(switch: i32, pid: i32, node: Node, nodes: &[Node]) -> Result<()> {
    let link = node.switch_link();
    ip(
        None,
        &format!("link add {link} netns {switch} type veth peer name eth0 netns {pid}\n"),
    )
    .with_context(|| format!("link {} to the switch", node.name()))?;
    ip(
        Some(switch),
        &format!("link set {link} master br0\nlink set {link} up\n"),
    )
    .context("plug the link in")?;
    let mut inside = format!(
        "addr add {}/{NODE_PREFIX} dev eth0\nlink set eth0 up\n",
        node.address()
    );
    for other in nodes.iter().filter(|other| **other != node) {
        writeln!(inside, "route add {} via {}", other.pod_range(), other.address())
            .expect("a String takes every write");
    }
    // Service addresses are rewritten by kube-proxy, but a packet of the node itself needs some route before that.
    writeln!(inside, "route add {SERVICE_RANGE} dev eth0").expect("a String takes every write");
    ip(Some(pid), &inside).with_context(|| format!("set the routes of {}", node.name()))
}

/// Cuts a node's link at the switch or restores it.
pub(crate) fn set_link(switch: i32, node: Node, up: bool) -> Result<()> {
    let state = if up { "up" } else { "down" };
    ip(
        Some(switch),
        &format!("link set {} {state}\n", node.switch_link()),
    )
    .with_context(|| format!("set the link of {} {state}", node.name()))
}

/// Whether this machine has the link to the switch.
pub(crate) fn host_link_exists() -> bool {
    Path::new("/sys/class/net").join(HOST_LINK).exists()
}

/// Removes this machine's link, which otherwise goes with the switch.
pub(crate) fn remove_host_link() -> Result<()> {
    let result = ip(None, &format!("link del {HOST_LINK}\n"));
    // It may have gone by itself meanwhile.
    if host_link_exists() { result } else { Ok(()) }
}

/// Runs a batch of `ip` commands in this machine's network namespace or in that of a process.
fn ip(namespace_of: Option<i32>, batch: &str) -> Result<()> {
    let mut command = match namespace_of {
        Some(pid) => {
            let mut nsenter = Command::new("nsenter");
            nsenter.arg(format!("--net=/proc/{pid}/ns/net")).arg("ip");
            nsenter
        }
        None => Command::new("ip"),
    };
    let mut child = command
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("run ip; e2e/rig/setup.sh installs it")?;
    let mut stdin = child.stdin.take().context("ip's input")?;
    stdin.write_all(batch.as_bytes()).context("write to ip")?;
    drop(stdin);
    let output = child.wait_with_output().context("wait for ip")?;
    ensure!(
        output.status.success(),
        "ip: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// Whether the switch has a node's link.
pub(crate) fn switch_has_link(switch: i32, node: Node) -> bool {
    let mut ask = Command::new("nsenter");
    ask.arg(format!("--net=/proc/{switch}/ns/net"))
        .args(["ip", "link", "show", &node.switch_link()]);
    ask.stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
