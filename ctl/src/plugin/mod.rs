//! `kubectl ferromq`: a BrokerCluster as its administrator sees it.
//!
//! The same program under the name `kubectl-ferromq` is a plugin of kubectl; `ferroctl kube` is the same. Kubernetes is
//! reached through kubectl itself (`KUBECTL` names another one), so that its configuration, contexts and logins are used
//! as they are.

mod kubectl;
mod status;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use serde_json::Value;

use crate::cli::Format;
use crate::failure::Failure;
use crate::output;
use kubectl::Kubectl;

/// Annotations that the operator acts on.
const RESTART: &str = "ferromq.io/restart";
const RESTART_NOW: &str = "ferromq.io/restart-now";
const APPROVE: &str = "ferromq.io/approve";

/// The plugin's own command line.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-ferromq",
    bin_name = "kubectl ferromq",
    version,
    about = "FerroMQ clusters on Kubernetes"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) kube: Kube,
    /// Form of the data on standard output
    #[arg(short = 'o', long = "output", value_enum, default_value_t, global = true)]
    pub(crate) output: Format,
}

/// Where the cluster is, and what to do.
#[derive(Debug, Args)]
pub(crate) struct Kube {
    /// Namespace; default: the context's
    #[arg(long, global = true, value_name = "NAME", env = "FERROCTL_NAMESPACE")]
    namespace: Option<String>,
    /// Context of kubectl's configuration
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// kubectl's configuration file
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(subcommand)]
    command: KubeCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KubeCommand {
    /// Show a cluster: conditions, brokers with role, lag and recovery, the rollout and what it waits for
    Status {
        /// Name of the BrokerCluster
        cluster: String,
    },
    /// Restart all brokers in order, or one broker's pod
    Restart {
        /// Name of the BrokerCluster
        cluster: String,
        /// Only this pod
        #[arg(long, value_name = "POD")]
        pod: Option<String>,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Begin no restart until it is resumed; one that has begun is ended
    Pause {
        /// Name of the BrokerCluster
        cluster: String,
    },
    /// Go on with restarts
    Resume {
        /// Name of the BrokerCluster
        cluster: String,
    },
    /// Let the present rollout restart masters, where spec.rollout.masters is Manual
    Approve {
        /// Name of the BrokerCluster
        cluster: String,
    },
    /// Collect the cluster's objects, events and logs in a folder
    Logs {
        /// Name of the BrokerCluster
        cluster: String,
        /// Folder; default: NAME-logs
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Runs when the program was started under the plugin's name.
pub(crate) fn is_plugin(program: Option<&std::ffi::OsStr>) -> bool {
    program
        .and_then(|path| Path::new(path).file_stem())
        .is_some_and(|name| name == "kubectl-ferromq" || name == "kubectl_ferromq")
}

pub(crate) fn run(kube: &Kube, format: Format) -> anyhow::Result<()> {
    let kubectl = Kubectl::new(
        kube.namespace.clone(),
        kube.context.clone(),
        kube.kubeconfig.clone(),
    );
    match &kube.command {
        KubeCommand::Status { cluster } => {
            let resource = kubectl.cluster(cluster)?;
            if format == Format::Table {
                output::write(status::text(&resource).as_bytes())
            } else {
                output::print(format, &resource, |_| output::Table::default())
            }
        }
        KubeCommand::Restart { cluster, pod, yes } => restart(&kubectl, cluster, pod.as_deref(), *yes),
        KubeCommand::Pause { cluster } => pause(&kubectl, cluster, true),
        KubeCommand::Resume { cluster } => pause(&kubectl, cluster, false),
        KubeCommand::Approve { cluster } => approve(&kubectl, cluster),
        KubeCommand::Logs { cluster, dir } => {
            let default = PathBuf::from(format!("{cluster}-logs"));
            logs(&kubectl, cluster, dir.as_ref().unwrap_or(&default))
        }
    }
}

fn restart(kubectl: &Kubectl, cluster: &str, pod: Option<&str>, yes: bool) -> anyhow::Result<()> {
    let resource = kubectl.cluster(cluster)?;
    let now = jiff::Timestamp::now().to_string();
    let Some(pod) = pod else {
        crate::context::confirm(
            &format!("Restart every broker of {cluster}, one after the other?"),
            yes,
        )?;
        kubectl.annotate("brokercluster", cluster, RESTART, &now)?;
        eprintln!("{cluster}: all brokers are restarted; `status {cluster}` shows how far that is");
        return Ok(());
    };
    let pods = status::pods(&resource);
    if !pods.iter().any(|name| name == pod) {
        let text = format!("{cluster} has no broker {pod}; it has {}", pods.join(", "));
        return Err(Failure::NotFound(text).into());
    }
    crate::context::confirm(&format!("Restart broker {pod} of {cluster} now?"), yes)?;
    kubectl.annotate("pod", pod, RESTART_NOW, &now)?;
    eprintln!("{pod} is restarted as soon as its group can spare it");
    Ok(())
}

fn pause(kubectl: &Kubectl, cluster: &str, paused: bool) -> anyhow::Result<()> {
    kubectl.cluster(cluster)?;
    let patch = serde_json::json!({ "spec": { "rollout": { "paused": paused } } });
    kubectl.patch("brokercluster", cluster, &patch)?;
    let what = if paused {
        "no restart is begun"
    } else {
        "restarts go on"
    };
    eprintln!("{cluster}: {what}");
    Ok(())
}

fn approve(kubectl: &Kubectl, cluster: &str) -> anyhow::Result<()> {
    let resource = kubectl.cluster(cluster)?;
    let Some(id) = resource["status"]["rollout"]["id"].as_str() else {
        return Err(Failure::NotFound(format!("{cluster} has no rollout that could be approved")).into());
    };
    kubectl.annotate("brokercluster", cluster, APPROVE, id)?;
    eprintln!("{cluster}: masters may be restarted in rollout {id}");
    Ok(())
}

/// What cannot be fetched is written down as such: half a bundle is better than none.
fn logs(kubectl: &Kubectl, cluster: &str, dir: &Path) -> anyhow::Result<()> {
    let resource = kubectl.cluster(cluster)?;
    std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    let save = |name: &str, text: &str| {
        let path = dir.join(name);
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    };
    save("brokercluster.json", &serde_json::to_string_pretty(&resource)?)?;
    let selector = format!("ferromq.io/cluster={cluster}");
    let kinds =
        "pods,statefulsets,deployments,services,configmaps,persistentvolumeclaims,poddisruptionbudgets";
    let objects = kubectl.run(&["get", kinds, "-l", &selector, "-o", "json"]);
    save(
        "objects.json",
        &objects.unwrap_or_else(|error| format!("{error:#}")),
    )?;
    let events = kubectl.run(&["get", "events", "--sort-by=.lastTimestamp", "-o", "wide"]);
    save("events.txt", &events.unwrap_or_else(|error| format!("{error:#}")))?;
    let pods = kubectl.run(&["get", "pods", "-l", &selector, "-o", "name"])?;
    let mut count = 0;
    for pod in pods.lines().filter_map(|line| line.strip_prefix("pod/")) {
        for (suffix, previous) in [("log", "false"), ("previous.log", "true")] {
            let previous = format!("--previous={previous}");
            let text = kubectl.run(&["logs", pod, "--all-containers", &previous, "--timestamps"]);
            // A container that never restarted has no former log: that is nothing to tell.
            match text {
                Ok(text) => save(&format!("{pod}.{suffix}"), &text)?,
                Err(_) if suffix == "previous.log" => {}
                Err(error) => save(&format!("{pod}.{suffix}"), &format!("{error:#}"))?,
            }
        }
        count += 1;
    }
    eprintln!(
        "objects, events and the logs of {count} pod(s) are in {}",
        dir.display()
    );
    Ok(())
}

/// Text at a path of a JSON document; empty if it is not there.
fn text_at<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_default()
}
