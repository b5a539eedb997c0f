//! Store directories, offline.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use ferromq_store::inspect::Place;

/// Where a store lies.
#[derive(Debug, Args)]
pub(crate) struct StorePlace {
    /// The directory that storePathRootDir names, ours or Java's
    dir: PathBuf,
    /// Directories of the log, if storePathCommitLog or readOnlyCommitLogStorePaths name some; default: DIR/commitlog
    #[arg(long, value_delimiter = ',', value_name = "DIR")]
    commit_log: Vec<PathBuf>,
}

impl StorePlace {
    pub(crate) fn place(&self) -> Place {
        Place {
            root: self.dir.clone(),
            log_dirs: self.commit_log.clone(),
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Tell what is there: log, queues, index, tables, how it was left
    Inspect {
        #[command(flatten)]
        place: StorePlace,
    },
    /// Read everything: checksums of records, units of queues and entries of the index against the log
    Verify {
        #[command(flatten)]
        place: StorePlace,
        /// The broker's maxHashSlotNum
        #[arg(long, default_value_t = 5_000_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        hash_slots: u32,
    },
    /// List records of the log
    Dump {
        #[command(flatten)]
        place: StorePlace,
        /// Log offset of the first record; default: the oldest
        #[arg(long, value_name = "OFFSET")]
        from: Option<u64>,
        /// Records to list
        #[arg(long, default_value_t = 100, value_name = "N")]
        count: usize,
    },
    /// Tell where recovery would cut the log and the queues, and why
    RecoverDryRun {
        #[command(flatten)]
        place: StorePlace,
    },
}
