//! What `rig status` shows.

use std::fmt::Write as _;

use anyhow::Result;

use super::Rig;

impl Rig {
    /// The cluster's processes and nodes, for people.
    ///
    /// # Errors
    /// The state cannot be read.
    pub fn status(&self) -> Result<String> {
        let Some(cluster) = self.cluster()? else {
            return Ok("no rig is up; start one with: rig up\n".into());
        };
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            writeln!(text, "{name:20} {value}").expect("a String takes every write");
        };
        line("nodes", &cluster.nodes.to_string());
        line("state", &self.paths.state().display().to_string());
        line("kubeconfig", &self.paths.kubeconfig().display().to_string());
        for (name, identity) in self.records.all()? {
            let state = if identity.alive() {
                format!("pid {}", identity.pid)
            } else {
                "ended".to_owned()
            };
            line(&name, &state);
        }
        let mut ask = self.kubectl();
        ask.args(["get", "nodes", "-o", "wide", "--request-timeout=5s"]);
        match ask.output() {
            Ok(output) if output.status.success() => text.push_str(&String::from_utf8_lossy(&output.stdout)),
            Ok(output) => text.push_str(&String::from_utf8_lossy(&output.stderr)),
            Err(error) => writeln!(text, "kubectl: {error}").expect("a String takes every write"),
        }
        Ok(text)
    }
}
