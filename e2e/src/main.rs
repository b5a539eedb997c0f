//! `rig`: starts and stops the cluster for tests and the demo, makes faults in it, and writes container images.

#![forbid(unsafe_code)]

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use ferromq_e2e::image::{Entry, Image};
use ferromq_e2e::rig::{Rig, Up};

/// A real Kubernetes of several nodes on this machine, without a container engine.
#[derive(Debug, Parser)]
#[command(name = "rig", version)]
struct Cli {
    #[command(subcommand)]
    command: Cmd,
}

#[derive(Debug, Subcommand)]
enum Cmd {
    /// Start the cluster, or check that it is up and healthy.
    Up {
        /// Number of nodes.
        #[arg(long, default_value_t = 3)]
        nodes: u8,
    },
    /// End the cluster and remove every trace of it but the cached tools.
    Down,
    /// Show the cluster's processes and nodes.
    Status,
    /// Put the images of an archive into every node.
    Load {
        /// Image archives (OCI layout or docker save).
        #[arg(required = true)]
        archives: Vec<PathBuf>,
    },
    /// Print the path of the kubeconfig.
    Kubeconfig,
    /// Run a command in a node's network, so that it reaches pods and Services by address and name.
    Exec {
        /// The node, as a number or name.
        #[arg(long, default_value = "1")]
        node: String,
        /// Namespace in which short Service names are looked up.
        #[arg(long, default_value = "default")]
        namespace: String,
        /// Enter the node wholly: its file system view and process table as well.
        #[arg(long)]
        inside: bool,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Cut a node's network link.
    Partition {
        /// The node, as a number or name.
        node: String,
    },
    /// Restore a node's network link.
    Heal {
        /// The node, as a number or name.
        node: String,
    },
    /// End all of a node at once, as a loss of power would; its disk stays.
    StopNode {
        /// The node, as a number or name.
        node: String,
    },
    /// Boot a stopped node again.
    StartNode {
        /// The node, as a number or name.
        node: String,
    },
    /// Send a signal to the process of a pod's container, from outside the pod.
    KillPodProcess {
        /// NAMESPACE/POD.
        pod: String,
        /// The container's name.
        container: String,
        /// The signal.
        #[arg(long, default_value = "SIGKILL")]
        signal: String,
    },
    /// Write an image archive from files, without a container engine. Equal inputs give equal bytes.
    Image(Box<ImageArgs>),
}

#[derive(Debug, Args)]
struct ImageArgs {
    /// Name of the image, such as ferromq/broker:dev.
    #[arg(long)]
    tag: String,
    /// The archive to write.
    #[arg(long)]
    out: PathBuf,
    /// A static program, as PATH or PATH:/DEST; it lands in /usr/local/bin unless told.
    #[arg(long = "binary", value_name = "PATH[:/DEST]")]
    binaries: Vec<String>,
    /// A plain file.
    #[arg(long = "file", value_name = "PATH:/DEST")]
    files: Vec<String>,
    /// An empty folder, with permission bits in octal (755 unless told).
    #[arg(long = "folder", value_name = "/PATH[:MODE]")]
    folders: Vec<String>,
    /// A symbolic link.
    #[arg(long = "link", value_name = "/PATH:TARGET")]
    links: Vec<String>,
    /// User and group of the process.
    #[arg(long, default_value = "65532:65532")]
    user: String,
    /// The program and its first arguments, one word each time; the first binary unless told.
    #[arg(long, allow_hyphen_values = true)]
    entrypoint: Vec<String>,
    /// Default arguments, one word each time.
    #[arg(long, allow_hyphen_values = true)]
    cmd: Vec<String>,
    /// An environment variable.
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// A label.
    #[arg(long, value_name = "KEY=VALUE")]
    label: Vec<String>,
    /// The folder in which the process starts.
    #[arg(long, default_value = "/")]
    working_dir: String,
    /// Take programs that need a dynamic loader; add it and its libraries with --file.
    #[arg(long)]
    allow_dynamic: bool,
}

fn main() {
    if let Err(error) = run(Cli::parse().command) {
        eprintln!("rig: {error:#}");
        std::process::exit(1);
    }
}

fn run(command: Cmd) -> Result<()> {
    let begin = Instant::now();
    let progress = |text: &str| eprintln!("rig: {:5.1}s  {text}", begin.elapsed().as_secs_f64());
    if let Cmd::Image(args) = command {
        return image(&args);
    }
    let rig = Rig::from_env()?;
    match command {
        Cmd::Image(_) => unreachable!("handled above"),
        Cmd::Up { nodes } => {
            let outcome = rig.up(nodes, &progress)?;
            let said = if outcome == Up::AlreadyUp {
                "was up already and is healthy"
            } else {
                "is up"
            };
            progress(&format!(
                "the cluster {said}; use it with: export KUBECONFIG={}",
                rig.paths().kubeconfig().display()
            ));
        }
        Cmd::Down => rig.down(&progress)?,
        Cmd::Status => print(&rig.status()?)?,
        Cmd::Load { archives } => {
            for archive in archives {
                let names = rig.load(&archive)?;
                progress(&format!("every node has {}", names.join(", ")));
            }
        }
        Cmd::Kubeconfig => {
            rig.nodes()?;
            print(&format!("{}\n", rig.paths().kubeconfig().display()))?;
        }
        Cmd::Exec {
            node,
            namespace,
            inside,
            command,
        } => {
            let node = rig.node(&node)?;
            let mut run = if inside {
                rig.command_inside(node, &command[0])?
            } else {
                rig.command_on_network(node, &namespace, &command[0])?
            };
            return Err(run.args(&command[1..]).exec()).with_context(|| format!("run {}", command[0]));
        }
        Cmd::Partition { node } => rig.partition(rig.node(&node)?)?,
        Cmd::Heal { node } => rig.heal(rig.node(&node)?)?,
        Cmd::StopNode { node } => rig.stop_node(rig.node(&node)?)?,
        Cmd::StartNode { node } => rig.start_node(rig.node(&node)?, &progress)?,
        Cmd::KillPodProcess {
            pod,
            container,
            signal,
        } => {
            let (namespace, pod) = pod.split_once('/').context("name the pod as NAMESPACE/POD")?;
            rig.signal_container(namespace, pod, &container, &signal)?;
        }
    }
    Ok(())
}

fn print(text: &str) -> Result<()> {
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("write to standard output")
}

fn image(args: &ImageArgs) -> Result<()> {
    let mut image = Image::new(&args.tag)?;
    let mut first = None;
    for binary in &args.binaries {
        let (source, dest) = if let Some((source, dest)) = binary.rsplit_once(":/") {
            (source, format!("/{dest}"))
        } else {
            let name = binary.rsplit('/').next().unwrap_or(binary);
            (binary.as_str(), format!("/usr/local/bin/{name}"))
        };
        image.add(
            &dest,
            Entry::File {
                source: source.into(),
                mode: 0o755,
            },
        )?;
        first.get_or_insert(dest);
    }
    for file in &args.files {
        let Some((source, dest)) = file.rsplit_once(":/") else {
            bail!("--file {file}: write PATH:/DEST")
        };
        image.add(
            &format!("/{dest}"),
            Entry::File {
                source: source.into(),
                mode: 0o644,
            },
        )?;
    }
    for folder in &args.folders {
        let (path, mode) = folder.rsplit_once(':').unwrap_or((folder, "755"));
        let mode = u32::from_str_radix(mode, 8).ok().filter(|mode| *mode <= 0o7777);
        let mode = mode.with_context(|| format!("--folder {folder}: permission bits are octal digits"))?;
        image.add(path, Entry::Folder { mode })?;
    }
    for link in &args.links {
        let Some((path, target)) = link.split_once(':') else {
            bail!("--link {link}: write /PATH:TARGET")
        };
        image.add(
            path,
            Entry::Link {
                target: target.into(),
            },
        )?;
    }
    for (option, pairs) in [("--env", &args.env), ("--label", &args.label)] {
        for pair in pairs {
            let Some((key, value)) = pair.split_once('=') else {
                bail!("{option} {pair}: write KEY=VALUE")
            };
            if option == "--env" {
                image.env(key, value)
            } else {
                image.label(key, value)
            };
        }
    }
    let entrypoint = if args.entrypoint.is_empty() {
        first.into_iter().collect()
    } else {
        args.entrypoint.clone()
    };
    image
        .user(&args.user)
        .run(&entrypoint, &args.cmd)
        .working_dir(&args.working_dir)
        .allow_dynamic(args.allow_dynamic);
    let written = image.write(&args.out)?;
    eprintln!(
        "rig: {} is {} (sha256:{}, {:.1} MB)",
        args.out.display(),
        written.tag,
        &written.id[..12],
        written.layer_bytes as f64 / 1e6
    );
    Ok(())
}
