//! Faults made on purpose: a node cut off, a node without power, a container's process ended from outside.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::plan::Node;
use super::process::Records;
use super::{Progress, Rig, cgroup, config, network};

impl Rig {
    /// Cuts a node's network link: it reaches no other node, no api server and not this machine.
    ///
    /// # Errors
    /// No cluster is up.
    pub fn partition(&self, node: Node) -> Result<()> {
        let _lock = Self::lock()?;
        network::set_link(self.switch_pid()?, node, false)
    }

    /// Restores a link that was cut.
    ///
    /// # Errors
    /// No cluster is up.
    pub fn heal(&self, node: Node) -> Result<()> {
        let _lock = Self::lock()?;
        network::set_link(self.switch_pid()?, node, true)
    }

    /// Ends every process of a node at once, as a loss of power does, but for what the page cache still holds: that
    /// stays, as does the node's disk.
    ///
    /// # Errors
    /// No cluster is up, or the node withstands.
    pub fn stop_node(&self, node: Node) -> Result<()> {
        let _lock = Self::lock()?;
        let names =
            ["kubelet", "proxy", "containerd", "node"].map(|name| format!("{name}-{}", node.number()));
        let processes: Vec<_> = names.iter().filter_map(|name| self.records.get(name)).collect();
        let mut all: Vec<_> = processes.iter().flat_map(|process| process.children()).collect();
        all.extend(processes);
        Records::kill(&all)?;
        cgroup::remove(Some(node))?;
        names.iter().try_for_each(|name| self.records.forget(name))
    }

    /// Boots a stopped node again from its disk.
    ///
    /// # Errors
    /// No cluster is up, the node runs, or it does not start.
    pub fn start_node(&self, node: Node, progress: Progress<'_>) -> Result<()> {
        let _lock = Self::lock()?;
        let nodes = self.nodes()?;
        ensure!(
            self.records.get(&format!("node-{}", node.number())).is_none(),
            "{} runs already",
            node.name()
        );
        // The old link's end at the switch goes a moment after the node.
        let switch = self.switch_pid()?;
        self.wait_for("the old link to go", Duration::from_secs(20), || {
            Ok(!network::switch_has_link(switch, node))
        })?;
        self.boot_node(node, &nodes)?;
        self.join_cluster(node)?;
        progress(&format!("{} was started", node.name()));
        Ok(())
    }

    /// Sends a signal to the first process of a pod's container, from outside the pod.
    ///
    /// # Errors
    /// No such pod or container, or the container does not run.
    pub fn signal_container(&self, namespace: &str, pod: &str, container: &str, signal: &str) -> Result<()> {
        let mut ask = self.kubectl();
        let output = ask
            .args(["get", "pod", pod, "-n", namespace, "-o", "json"])
            .output()
            .context("run kubectl")?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "pod {namespace}/{pod}: {}",
            errors.trim()
        );
        let object: Value = serde_json::from_slice(&output.stdout).context("kubectl's answer")?;
        let id = container_id(&object, container)
            .with_context(|| format!("pod {namespace}/{pod} has no running container {container}"))?;
        let node = self.node(object["spec"]["nodeName"].as_str().unwrap_or_default())?;
        let mut ctr = self.command_inside(node, "ctr")?;
        ctr.args([
            "--address",
            config::CONTAINERD_SOCKET,
            "--namespace",
            "k8s.io",
            "tasks",
            "kill",
            "--signal",
            signal,
            id,
        ]);
        let output = ctr.output().context("run ctr")?;
        ensure!(
            output.status.success(),
            "signal {signal}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(())
    }
}

fn container_id<'a>(pod: &'a Value, container: &str) -> Option<&'a str> {
    let status = pod["status"]["containerStatuses"]
        .as_array()?
        .iter()
        .find(|status| status["name"] == container)?;
    status["state"]["running"].as_object()?;
    status["containerID"].as_str()?.strip_prefix("containerd://")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_a_running_container_has_an_id_to_signal() {
        let mut pod = json!({"status": {"containerStatuses": [
            {"name": "a", "containerID": "containerd://1"},
            {"name": "b", "containerID": "containerd://2", "state": {"running": {"startedAt": "x"}}},
        ]}});
        assert_eq!(container_id(&pod, "b"), Some("2"));
        assert_eq!(container_id(&pod, "a"), None);
        assert_eq!(container_id(&pod, "c"), None);
        pod["status"] = json!({});
        assert_eq!(container_id(&pod, "b"), None);
    }
}
