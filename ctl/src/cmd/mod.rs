//! The commands, a module for each noun. mqadmin's names lead to the same functions.

pub(crate) mod acl;
pub(crate) mod broker;
pub(crate) mod cluster;
mod connected;
pub(crate) mod export;
pub(crate) mod group;
pub(crate) mod message;
mod mqadmin;
pub(crate) mod namesrv;
mod offsets;
mod probe;
mod rates;
mod read;
pub(crate) mod store;
mod top;
pub(crate) mod topic;
mod trace;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::bench;
use crate::cli::{self, Bench, Cli, Command};
use crate::context::Context;
use crate::{output, plugin};

/// Carries a command out.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<()> {
    let cx = Context::new(&cli)?;
    // The largest futures of the commands are boxed, so that this one stays small.
    match cli.command {
        Command::Topic(command) => Box::pin(topic::run(&cx, command)).await,
        Command::Cluster(cli::Cluster::List { cluster }) => cluster::list(&cx, cluster.as_deref()).await,
        Command::Broker(command) => Box::pin(broker::run(&cx, command)).await,
        Command::Group(command) => Box::pin(group::run(&cx, command)).await,
        Command::Message(command) => Box::pin(message::run(&cx, command)).await,
        Command::Top { interval, rows, once } => Box::pin(top::run(&cx, interval, rows, once)).await,
        Command::Kube(kube) => tokio::task::spawn_blocking(move || plugin::run(&kube, cli.output))
            .await
            .context("ask kubectl")?,
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "ferroctl", &mut script);
            output::write(&script)
        }
        Command::Store(command) => store::run(&cx, command).await,
        Command::Bench(Bench::Send(args)) => Box::pin(bench::send::run(&cx, args)).await,
        Command::Bench(Bench::Receive(args)) => Box::pin(bench::receive::run(&cx, args)).await,
        Command::Namesrv(command) => Box::pin(namesrv::run(&cx, command)).await,
        Command::Acl(command) => Box::pin(acl::run(&cx, command)).await,
        Command::Export(command) => Box::pin(export::run(&cx, &command)).await,
        Command::Mqadmin(command) => Box::pin(mqadmin::run(&cx, command)).await,
    }
}
