//! Calls of kubectl.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::failure::Failure;

/// kubectl with the user's choice of cluster and namespace.
#[derive(Debug)]
pub(super) struct Kubectl {
    namespace: Option<String>,
    context: Option<String>,
    kubeconfig: Option<PathBuf>,
}

impl Kubectl {
    pub(super) fn new(
        namespace: Option<String>,
        context: Option<String>,
        kubeconfig: Option<PathBuf>,
    ) -> Self {
        Self {
            namespace,
            context,
            kubeconfig,
        }
    }

    /// Runs it and gives what it printed.
    pub(super) fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        let program = std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into());
        let mut command = Command::new(&program);
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        if let Some(context) = &self.context {
            command.args(["--context", context]);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        let output = command.args(args).output().with_context(|| {
            format!(
                "start {}: install kubectl, or name it in KUBECTL",
                program.display()
            )
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        if words.contains("NotFound") || words.contains("not found") {
            return Err(Failure::NotFound(words).into());
        }
        anyhow::bail!("kubectl {}: {words}", args.first().unwrap_or(&""))
    }

    /// The BrokerCluster.
    pub(super) fn cluster(&self, name: &str) -> anyhow::Result<Value> {
        let text = self.run(&["get", "brokerclusters.ferromq.io", name, "-o", "json"])?;
        serde_json::from_str(&text).context("read kubectl's answer as JSON")
    }

    pub(super) fn annotate(&self, kind: &str, name: &str, key: &str, value: &str) -> anyhow::Result<()> {
        let pair = format!("{key}={value}");
        self.run(&["annotate", kind, name, &pair, "--overwrite"])
            .map(drop)
    }

    pub(super) fn patch(&self, kind: &str, name: &str, patch: &Value) -> anyhow::Result<()> {
        let patch = patch.to_string();
        self.run(&["patch", kind, name, "--type=merge", "-p", &patch])
            .map(drop)
    }
}
