//! The load generator's command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{run_id, seconds};

#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Send numbered messages and measure
    Send(BenchSend),
    /// Receive a run's messages and check that each came at least once
    Receive(BenchReceive),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchSend {
    /// Topic to send to
    #[arg(short = 't', long)]
    pub(crate) topic: String,
    /// Messages to send
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) count: u64,
    /// Body size in bytes; the number of each message needs about 40 of them
    #[arg(short = 's', long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub(crate) size: u32,
    /// Sends in flight
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) concurrency: u32,
    /// Messages in one request; 1 sends singly
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) batch: u32,
    /// Name of the run; letters, digits, '.', '_' and '-'. Default: made from the time
    #[arg(long, value_parser = run_id)]
    pub(crate) run: Option<String>,
    /// Keep repeating a failed send for so long
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) retry_for: Duration,
    /// Send so many messages a second in all; default: as fast as it goes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,
    /// Write the numbers of the acknowledged messages to this file, one range FROM-TO a line
    #[arg(long, value_name = "FILE")]
    pub(crate) acknowledged: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct BenchReceive {
    /// Topic to receive from
    #[arg(short = 't', long)]
    pub(crate) topic: String,
    /// Messages to expect
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub(crate) count: u64,
    /// Consumer group whose offsets are read and stored
    #[arg(short = 'g', long, default_value = "ferroctl_bench")]
    pub(crate) group: String,
    /// Check for the messages of this run; without it any COUNT messages will do
    #[arg(long, value_parser = run_id)]
    pub(crate) run: Option<String>,
    /// Start at the oldest message, whatever the group has stored
    #[arg(long)]
    pub(crate) from_start: bool,
    /// Give up when nothing new has come for so long
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) idle: Duration,
    /// Messages asked for in one pull
    #[arg(long, default_value_t = 256, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) pull_batch: u32,
    /// Expect only the numbers in this file, as written by bench send
    #[arg(long, value_name = "FILE", requires = "run")]
    pub(crate) acknowledged: Option<PathBuf>,
}
