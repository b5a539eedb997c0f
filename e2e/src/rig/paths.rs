//! Where the rig keeps its state and finds its tools.
//!
//! ```text
//! STATE/ferromq-rig        marks the folder as the rig's, so that nothing else is ever deleted
//! STATE/cluster.json       number of nodes and the boot in which they were started
//! STATE/ready              there when the start went through
//! STATE/kubeconfig         for kubectl, helm and tests on this machine
//! STATE/pki/               certificates and keys
//! STATE/run/NAME           a process: its /proc stat line at birth
//! STATE/log/NAME.log       what it printed
//! STATE/etcd/
//! STATE/nodes/N/{lib,log,etc}   a node's /var/lib, /var/log and configuration
//! CACHE/TOOL-VERSION/      made by e2e/rig/setup.sh and kept
//! ```

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::plan::Node;

const VERSIONS: &str = include_str!("../../rig/versions.env");

/// A version from `e2e/rig/versions.env`.
pub(crate) fn version(tool: &str) -> &'static str {
    VERSIONS
        .lines()
        .find_map(|line| line.strip_prefix(tool)?.strip_prefix('='))
        .unwrap_or("unknown")
}

/// The folders of a rig.
#[derive(Debug, Clone)]
pub struct Paths {
    state: PathBuf,
    cache: PathBuf,
    /// Whether `state` is the default place, whose parent is ours too.
    default_state: bool,
}

impl Paths {
    /// `FERROMQ_RIG_DIR`, else `ferromq/rig` in the XDG state folder; tools in `ferromq` in the XDG cache folder.
    ///
    /// # Errors
    /// No home folder is known, or a folder is not absolute or lies where the nodes' own folders would hide it.
    pub fn from_env() -> Result<Self> {
        Self::from_vars(|name| env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_vars(var: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let xdg = |name: &str, below_home: &str| -> Result<PathBuf> {
            if let Some(folder) = var(name) {
                return Ok(PathBuf::from(folder));
            }
            let home = var("HOME").with_context(|| format!("neither {name} nor HOME is set"))?;
            Ok(Path::new(&home).join(below_home))
        };
        let cache = xdg("XDG_CACHE_HOME", ".cache")?.join("ferromq");
        let (state, default_state) = match var("FERROMQ_RIG_DIR") {
            Some(folder) => (PathBuf::from(folder), false),
            None => (xdg("XDG_STATE_HOME", ".local/state")?.join("ferromq/rig"), true),
        };
        for folder in [&state, &cache] {
            ensure!(
                folder.is_absolute(),
                "{} must be an absolute path",
                folder.display()
            );
            ensure!(
                !folder.starts_with("/run") && !folder.starts_with("/proc"),
                "{} lies below /run, which every node replaces by its own: choose another folder \
                 (FERROMQ_RIG_DIR, XDG_CACHE_HOME)",
                folder.display()
            );
        }
        Ok(Self {
            state,
            cache,
            default_state,
        })
    }

    /// The state folder.
    pub fn state(&self) -> &Path {
        &self.state
    }

    pub(crate) fn default_state(&self) -> bool {
        self.default_state
    }

    pub(crate) fn cache(&self) -> &Path {
        &self.cache
    }

    pub(crate) fn marker(&self) -> PathBuf {
        self.state.join("ferromq-rig")
    }

    pub(crate) fn cluster_file(&self) -> PathBuf {
        self.state.join("cluster.json")
    }

    pub(crate) fn ready(&self) -> PathBuf {
        self.state.join("ready")
    }

    /// The kubeconfig of the cluster's administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.state.join("kubeconfig")
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.state.join("pki")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.state.join("run")
    }

    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.state.join("log").join(format!("{name}.log"))
    }

    pub(crate) fn etcd(&self) -> PathBuf {
        self.state.join("etcd")
    }

    /// A node's `lib`, `log` or `etc` folder on this machine.
    pub fn node(&self, node: Node, part: &str) -> PathBuf {
        self.state
            .join("nodes")
            .join(node.number().to_string())
            .join(part)
    }

    /// Folder of a tool, relative to the cache.
    pub(crate) fn tool_folder(tool: &str) -> String {
        let version = version(&tool.to_uppercase().replace('-', "_"));
        format!("{tool}-{version}")
    }

    /// A program in the cache.
    pub(crate) fn tool(&self, tool: &str, program: &str) -> PathBuf {
        self.cache.join(Self::tool_folder(tool)).join(program)
    }

    /// The kubectl that was built beside the cluster's programs, else the machine's own.
    pub fn kubectl(&self) -> PathBuf {
        let built = self.tool("kubernetes", "kubectl");
        if built.exists() {
            built
        } else {
            PathBuf::from("kubectl")
        }
    }

    /// The helm that setup.sh built.
    pub fn helm(&self) -> PathBuf {
        self.tool("helm", "helm")
    }

    /// The kubeconform that setup.sh built.
    pub fn kubeconform(&self) -> PathBuf {
        self.tool("kubeconform", "kubeconform")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(vars: &[(&str, &str)]) -> Result<Paths> {
        let vars: Vec<(String, String)> = vars.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Paths::from_vars(|name| {
            vars.iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        })
    }

    #[test]
    fn folders_follow_xdg_unless_told() {
        let plain = paths(&[("HOME", "/home/x")]).unwrap();
        assert_eq!(plain.state(), Path::new("/home/x/.local/state/ferromq/rig"));
        assert_eq!(plain.cache(), Path::new("/home/x/.cache/ferromq"));
        let told = paths(&[
            ("HOME", "/h"),
            ("FERROMQ_RIG_DIR", "/data/rig"),
            ("XDG_CACHE_HOME", "/c"),
        ])
        .unwrap();
        assert_eq!(told.state(), Path::new("/data/rig"));
        assert_eq!(told.cache(), Path::new("/c/ferromq"));
    }

    #[test]
    fn unusable_folders_are_refused() {
        assert!(paths(&[]).is_err());
        assert!(paths(&[("HOME", "/h"), ("FERROMQ_RIG_DIR", "rig")]).is_err());
        assert!(paths(&[("HOME", "/h"), ("FERROMQ_RIG_DIR", "/run/rig")]).is_err());
    }

    #[test]
    fn every_tool_has_a_version() {
        for tool in [
            "kubernetes",
            "coredns",
            "local-path-provisioner",
            "helm",
            "kubeconform",
            "pause",
        ] {
            assert!(!Paths::tool_folder(tool).ends_with("unknown"), "{tool}");
        }
    }
}
