//! `ferromq-operator`: see the library for what it does.

#![forbid(unsafe_code)]

use anyhow::Context;
use clap::{Parser, Subcommand};
use ferromq_operator::keys::{KEYS, Key};
use ferromq_operator::settings::Settings;
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Parser, Debug)]
#[command(name = "ferromq-operator", version, about = "Kubernetes operator for FerroMQ")]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the operator; this is also what happens without a sub-command.
    Run(Settings),
    /// Print the broker keys that the operator knows, one a line, each with who sets it.
    Keys,
    /// Print the custom resource definitions as YAML.
    Crd {
        /// Write one file per definition into this folder instead.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let settings = match cli.command {
        Some(Command::Crd { dir }) => return crd(dir.as_deref()),
        Some(Command::Keys) => {
            let line = |k: &Key| {
                format!(
                    "{}\t{}\n",
                    k.name,
                    k.owner.instead().unwrap_or_else(|| "spec.config".to_owned())
                )
            };
            return print(&KEYS.iter().map(line).collect::<String>());
        }
        Some(Command::Run(settings)) => settings,
        None => cli.settings,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("start the runtime")?;
    runtime.block_on(Box::pin(ferromq_operator::run::run(settings)))
}

fn crd(dir: Option<&Path>) -> anyhow::Result<()> {
    for (file, definition) in ferromq_operator::crd::definitions() {
        let text = ferromq_operator::crd::to_yaml(&definition).context("render a definition as YAML")?;
        match dir {
            None => print(&format!("---\n{text}\n"))?,
            Some(dir) => {
                let path = dir.join(file);
                std::fs::create_dir_all(dir).with_context(|| format!("make the folder {}", dir.display()))?;
                std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            }
        }
    }
    Ok(())
}

fn print(text: &str) -> anyhow::Result<()> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .context("write to standard output")
}
