//! Administration of RocketMQ clusters from the command line.
//!
//! The command line is read in [`cli`], carried out in [`cmd`] and [`bench`], shown by [`output`]; [`failure`] turns
//! errors into words on standard error and an exit code.

#![forbid(unsafe_code)]

mod bench;
mod cli;
mod cmd;
mod context;
mod failure;
mod output;
mod plugin;
mod security;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    if plugin::is_plugin(std::env::args_os().next().as_deref()) {
        let cli = plugin::Cli::parse();
        return match plugin::run(&cli.kube, cli.output) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => failure::report(&error),
        };
    }
    let args = match cli::with_mqadmin_case(std::env::args_os()) {
        Ok(args) => args,
        Err(message) => return failure::usage(&message),
    };
    let cli = cli::Cli::parse_from(args);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failure::report(&anyhow::Error::new(error).context("start the runtime")),
    };
    match runtime.block_on(cmd::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failure::report(&error),
    }
}
