//! `ferromq-operator`: see the library for what it does.

use anyhow::Context;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser, Debug)]
#[command(name = "ferromq-operator", version, about = "Kubernetes operator for FerroMQ")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Print the custom resource definitions as YAML.
    Crd {
        /// Write one file per definition into this folder instead.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    match cli.command {
        Some(Command::Crd { dir }) => crd(dir),
        None => anyhow::bail!("name a sub-command; see --help"),
    }
}

fn crd(dir: Option<PathBuf>) -> anyhow::Result<()> {
    for (file, definition) in ferromq_operator::crd::definitions() {
        let text = ferromq_operator::crd::to_yaml(&definition).context("render a definition as YAML")?;
        match &dir {
            None => println!("---\n{text}"),
            Some(dir) => {
                let path = dir.join(file);
                std::fs::create_dir_all(dir).with_context(|| format!("make the folder {}", dir.display()))?;
                std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
            }
        }
    }
    Ok(())
}
