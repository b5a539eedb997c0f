//! The command line: ours grouped by noun, mqadmin's own names beside it, hidden from the help.
//!
//! Parsing is all that happens here; `cmd` carries the commands out.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};

/// Administration of RocketMQ clusters from the command line.
///
/// Data goes to standard output, everything else to standard error. Exit codes: 0 done, 1 failed, 2 wrong
/// usage, 3 not found, 4 unreachable.
#[derive(Debug, Parser)]
#[command(name = "ferroctl", version, max_term_width = 100, propagate_version = true)]
pub(crate) struct Cli {
    /// Name servers as host:port, several separated by ';'
    #[arg(
        short = 'n',
        long = "namesrv",
        env = "NAMESRV_ADDR",
        global = true,
        value_name = "ADDRS"
    )]
    pub(crate) namesrv: Option<String>,
    /// Form of the data on standard output
    #[arg(short = 'o', long = "output", value_enum, default_value_t, global = true)]
    pub(crate) output: Format,
    /// Time for one call, in seconds
    #[arg(long, default_value = "5", global = true, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Duration,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Form of the data on standard output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Columns for people, at most 80 characters wide
    #[default]
    Table,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Topics: list, look at, create, delete
    #[command(subcommand)]
    Topic(Topic),
    /// Clusters and their brokers
    #[command(subcommand)]
    Cluster(Cluster),
    /// One broker: status and configuration
    #[command(subcommand)]
    Broker(Broker),
    /// Consumer groups: list, create, delete, progress
    #[command(subcommand)]
    Group(Group),
    /// Messages: send one, look one up
    #[command(subcommand)]
    Message(Message),
    /// A store directory, offline: look at it, check it, see what a start would do. Nothing is written
    #[command(subcommand)]
    Store(Store),
    /// Load: send and receive many messages and prove that none is missing
    #[command(subcommand)]
    Bench(Bench),
    #[command(flatten)]
    Mqadmin(Mqadmin),
}

/// Which brokers a command is for.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Target {
    /// Only the broker at this address (host:port)
    #[arg(short = 'b', long = "broker", value_name = "ADDR", conflicts_with = "cluster")]
    pub(crate) broker: Option<String>,
    /// All masters of this cluster; default: of every cluster
    #[arg(short = 'c', long = "cluster", value_name = "NAME")]
    pub(crate) cluster: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Topic {
    /// List the topics that the name servers know
    List {
        /// Only topics of this cluster
        #[arg(short = 'c', long, value_name = "NAME")]
        cluster: Option<String>,
        /// Also topics of the system and the groups' retry and dead-letter topics
        #[arg(short = 'a', long)]
        all: bool,
    },
    /// Show the configuration of a topic on each broker
    Get { topic: String },
    /// Create a topic on the brokers chosen, or change it
    Create {
        topic: String,
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        shape: TopicShape,
    },
    /// Delete a topic from its brokers and from the name servers, with all its messages
    Delete {
        topic: String,
        /// Only from the brokers of this cluster
        #[arg(short = 'c', long, value_name = "NAME")]
        cluster: Option<String>,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Show the offsets of each queue
    Stats { topic: String },
    /// Show the brokers and queues that the name servers give to clients
    Route { topic: String },
}

/// Numbers of queues and the permission of a topic.
#[derive(Debug, Clone, Args)]
pub(crate) struct TopicShape {
    /// Queues that can be read, 1 or more
    #[arg(short = 'r', long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) read_queues: i32,
    /// Queues that can be written, 1 or more
    #[arg(short = 'w', long, default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=65535))]
    pub(crate) write_queues: i32,
    /// RW, R or W; mqadmin's numbers 6, 4 and 2 are understood too
    #[arg(short = 'p', long, default_value = "RW", value_name = "PERM", value_parser = permission)]
    pub(crate) perm: i32,
    /// The topic is ordered: its queues keep their places when a broker is away
    #[arg(long)]
    pub(crate) order: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Cluster {
    /// List the brokers of each cluster with their roles and rates
    List {
        /// Only this cluster
        #[arg(short = 'c', long, value_name = "NAME")]
        cluster: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Broker {
    /// Show a broker's figures
    Status {
        #[command(flatten)]
        target: Target,
    },
    /// Read and change a running broker's configuration
    #[command(subcommand)]
    Config(BrokerConfig),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BrokerConfig {
    /// Show the configuration, or only the keys named
    Get {
        #[command(flatten)]
        target: Target,
        /// Keys to show; default: all
        #[arg(value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Change keys of the running broker
    Set {
        #[command(flatten)]
        target: Target,
        /// Keys and their new values
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = key_value)]
        settings: Vec<(String, String)>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Group {
    /// List the consumer groups of the brokers
    List {
        #[command(flatten)]
        target: Target,
        /// Also the system's own groups
        #[arg(short = 'a', long)]
        all: bool,
    },
    /// Create a consumer group on the brokers chosen, or change it
    Create {
        group: String,
        #[command(flatten)]
        target: Target,
        /// Deliveries before a message goes to the dead-letter topic
        #[arg(long, default_value_t = 16, value_name = "N")]
        retry_max: i32,
        /// Queues of the group's retry topic
        #[arg(long, default_value_t = 1, value_name = "N")]
        retry_queues: i32,
        /// Refuse consumption by this group
        #[arg(long)]
        disabled: bool,
        /// Refuse broadcasting consumers
        #[arg(long)]
        no_broadcast: bool,
    },
    /// Delete a consumer group
    Delete {
        group: String,
        #[command(flatten)]
        target: Target,
        /// Delete its offsets as well
        #[arg(long)]
        offsets: bool,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Show how far a group has come in each queue
    Progress {
        /// The group; default: every group in one line each
        group: Option<String>,
        /// Only this topic
        #[arg(short = 't', long)]
        topic: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Message {
    /// Send one message
    Send {
        topic: String,
        /// The body; '-' reads it from standard input
        body: String,
        #[command(flatten)]
        extra: MessageExtra,
    },
    /// Look a message up by the id that the broker gave it
    Get {
        /// Offset message id: 32 or 56 hexadecimal digits
        id: String,
        /// Write only the body, unchanged, to standard output
        #[arg(long)]
        body: bool,
    },
    /// List the messages of a topic that carry a key or a unique id
    ByKey {
        topic: String,
        key: String,
        /// At most so many messages per broker
        #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=1024))]
        max: i32,
        /// The key is a unique message id
        #[arg(long)]
        unique: bool,
    },
}

/// What a message carries beside its body.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct MessageExtra {
    /// Tag to filter by
    #[arg(short = 'c', long)]
    pub(crate) tag: Option<String>,
    /// Key to look it up by; may be repeated
    #[arg(short = 'k', long = "key")]
    pub(crate) keys: Vec<String>,
    /// Property; may be repeated
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = key_value)]
    pub(crate) properties: Vec<(String, String)>,
    /// Only to this broker (its name)
    #[arg(short = 'b', long = "broker-name", value_name = "NAME")]
    pub(crate) broker: Option<String>,
    /// Only to this queue
    #[arg(short = 'i', long = "queue", value_name = "ID")]
    pub(crate) queue: Option<i32>,
}

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

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Tell what is there: log, queues, index, tables, how it was left
    Inspect {
        /// The directory that storePathRootDir names, ours or Java's
        dir: PathBuf,
    },
    /// Read everything: checksums of records, units of queues and entries of the index against the log
    Verify {
        /// The directory that storePathRootDir names, ours or Java's
        dir: PathBuf,
        /// The broker's maxHashSlotNum
        #[arg(long, default_value_t = 5_000_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        hash_slots: u32,
    },
    /// List records of the log
    Dump {
        /// The directory that storePathRootDir names, ours or Java's
        dir: PathBuf,
        /// Log offset of the first record; default: the oldest
        #[arg(long, value_name = "OFFSET")]
        from: Option<u64>,
        /// Records to list
        #[arg(long, default_value_t = 100, value_name = "N")]
        count: usize,
    },
    /// Tell where recovery would cut the log and the queues, and why
    RecoverDryRun {
        /// The directory that storePathRootDir names, ours or Java's
        dir: PathBuf,
    },
}

/// mqadmin's names and flags, so that scripts go on working.
#[derive(Debug, Subcommand)]
pub(crate) enum Mqadmin {
    #[command(name = "topicList", hide = true)]
    TopicList {
        /// Also show cluster and consumer groups
        #[arg(short = 'c', long = "clusterModel")]
        cluster_model: bool,
    },
    #[command(name = "topicRoute", hide = true)]
    TopicRoute {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'l', long)]
        list: bool,
    },
    #[command(name = "topicStatus", hide = true)]
    TopicStatus {
        #[arg(short = 't', long)]
        topic: String,
    },
    #[command(name = "updateTopic", hide = true)]
    UpdateTopic {
        #[arg(short = 't', long)]
        topic: String,
        #[command(flatten)]
        target: Target,
        #[arg(short = 'r', long = "readQueueNums", default_value_t = 8)]
        read_queues: i32,
        #[arg(short = 'w', long = "writeQueueNums", default_value_t = 8)]
        write_queues: i32,
        #[arg(short = 'p', long, default_value = "6", value_parser = permission)]
        perm: i32,
    },
    #[command(name = "deleteTopic", hide = true)]
    DeleteTopic {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'c', long = "clusterName")]
        cluster: String,
    },
    #[command(name = "clusterList", hide = true)]
    ClusterList {
        #[arg(short = 'c', long = "clusterName")]
        cluster: Option<String>,
    },
    #[command(name = "brokerStatus", hide = true)]
    BrokerStatus {
        #[command(flatten)]
        target: Target,
    },
    #[command(name = "getBrokerConfig", hide = true)]
    GetBrokerConfig {
        #[command(flatten)]
        target: Target,
    },
    #[command(name = "updateBrokerConfig", hide = true)]
    UpdateBrokerConfig {
        #[command(flatten)]
        target: Target,
        #[arg(short = 'k', long)]
        key: String,
        #[arg(short = 'v', long)]
        value: String,
    },
    #[command(name = "wipeWritePerm", hide = true)]
    WipeWritePerm {
        /// The broker's name
        #[arg(short = 'b', long = "brokerName")]
        broker: String,
    },
    #[command(name = "addWritePerm", hide = true)]
    AddWritePerm {
        /// The broker's name
        #[arg(short = 'b', long = "brokerName")]
        broker: String,
    },
    /// Omitted switches keep their defaults, unlike mqadmin's, which turns some of them off
    #[command(name = "updateSubGroup", hide = true)]
    UpdateSubGroup {
        #[command(flatten)]
        target: Target,
        #[arg(short = 'g', long = "groupName")]
        group: String,
        #[arg(short = 's', long = "consumeEnable", default_value_t = true, action = ArgAction::Set)]
        enabled: bool,
        #[arg(short = 'm', long = "consumeFromMinEnable", default_value_t = true, action = ArgAction::Set)]
        from_min: bool,
        #[arg(short = 'd', long = "consumeBroadcastEnable", default_value_t = true, action = ArgAction::Set)]
        broadcast: bool,
        #[arg(short = 'q', long = "retryQueueNums", default_value_t = 1)]
        retry_queues: i32,
        #[arg(short = 'r', long = "retryMaxTimes", default_value_t = 16)]
        retry_max: i32,
        #[arg(short = 'i', long = "brokerId", default_value_t = 0)]
        broker_id: i64,
        #[arg(short = 'w', long = "whichBrokerWhenConsumeSlowly", default_value_t = 1)]
        slow_broker_id: i64,
        #[arg(short = 'a', long = "notifyConsumerIdsChanged", default_value_t = true, action = ArgAction::Set)]
        notify: bool,
    },
    #[command(name = "deleteSubGroup", hide = true)]
    DeleteSubGroup {
        #[arg(short = 'g', long = "groupName")]
        group: String,
        #[command(flatten)]
        target: Target,
        #[arg(short = 'r', long = "removeOffset")]
        offsets: bool,
    },
    #[command(name = "consumerProgress", hide = true)]
    ConsumerProgress {
        #[arg(short = 'g', long = "groupName")]
        group: Option<String>,
    },
    #[command(name = "queryMsgById", hide = true)]
    QueryMsgById {
        #[arg(short = 'i', long = "msgId")]
        id: String,
    },
    #[command(name = "queryMsgByKey", hide = true)]
    QueryMsgByKey {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'k', long = "msgKey")]
        key: String,
    },
    #[command(name = "sendMessage", hide = true)]
    SendMessage {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'p', long = "body")]
        body: String,
        #[command(flatten)]
        extra: MessageExtra,
    },
}

const MQADMIN: [&str; 17] = [
    "topicList",
    "topicRoute",
    "topicStatus",
    "updateTopic",
    "deleteTopic",
    "clusterList",
    "brokerStatus",
    "getBrokerConfig",
    "updateBrokerConfig",
    "wipeWritePerm",
    "addWritePerm",
    "updateSubGroup",
    "deleteSubGroup",
    "consumerProgress",
    "queryMsgById",
    "queryMsgByKey",
    "sendMessage",
];

/// mqadmin matches names whatever their case; so do we, for its names only. Arguments must be text.
pub(crate) fn with_mqadmin_case(args: impl IntoIterator<Item = OsString>) -> Result<Vec<String>, String> {
    let text = |arg: OsString| {
        arg.into_string()
            .map_err(|arg| format!("the argument {} is not UTF-8 text", arg.display()))
    };
    let mut args: Vec<String> = args.into_iter().map(text).collect::<Result<_, _>>()?;
    let same = |arg: &str| MQADMIN.iter().find(|name| name.eq_ignore_ascii_case(arg));
    if let Some(arg) = args.iter_mut().skip(1).find(|arg| same(arg).is_some())
        && let Some(name) = same(arg)
    {
        (*name).clone_into(arg);
    }
    Ok(args)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let value: f64 = text
        .parse()
        .map_err(|_| format!("{text:?} is not a number of seconds"))?;
    if !(0.001..=1_000_000.0).contains(&value) {
        return Err("a time between 0.001 and 1000000 seconds is needed".into());
    }
    Ok(Duration::from_secs_f64(value))
}

/// Permission as RocketMQ's bits: 4 read, 2 write.
fn permission(text: &str) -> Result<i32, String> {
    match text.to_ascii_uppercase().as_str() {
        "RW" | "WR" | "6" => Ok(6),
        "R" | "4" => Ok(4),
        "W" | "2" => Ok(2),
        _ => Err("one of RW, R, W (or 6, 4, 2) is needed".into()),
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not of the form KEY=VALUE")),
    }
}

fn run_id(text: &str) -> Result<String, String> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if text.is_empty() || text.len() > 32 || !text.chars().all(fine) {
        return Err("1 to 32 letters, digits, '.', '_' or '-' are needed".into());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let args = std::iter::once("ferroctl")
            .chain(line.split_whitespace())
            .map(OsString::from);
        Cli::try_parse_from(with_mqadmin_case(args).unwrap())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mqadmin_lines_parse() {
        for line in [
            "topicList -n a:9876",
            "TOPICLIST -n a:9876 -c",
            "updatetopic -n a:9876 -t T -c DefaultCluster -r 4 -w 4 -p 6",
            "updateTopic -n a:9876 -b 127.0.0.1:10911 -t T",
            "deleteTopic -n a:9876 -t T -c DefaultCluster",
            "clusterList -n a:9876",
            "brokerStatus -n a:9876 -b 127.0.0.1:10911",
            "consumerProgress -n a:9876 -g G",
            "updateSubGroup -n a:9876 -c C -g G -s true -m false -d false -r 3",
            "queryMsgById -n a:9876 -i 0A00000100002A9F000000000001E240",
            "sendMessage -n a:9876 -t T -p hello -k key -c tag",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn values_are_checked_at_once() {
        for line in [
            "topic create T -p X",
            "topic create T -r 0",
            "broker config set novalue",
            "bench send --topic T --run no/slash",
            "topic list --timeout none",
            "topic create T -b a:1 -c C",
        ] {
            let code = parse(line).map(|_| ()).expect_err(line).exit_code();
            assert_eq!(code, 2, "{line}");
        }
    }

    #[test]
    fn permissions_are_words_or_numbers() {
        assert_eq!(permission("rw"), Ok(6));
        assert_eq!(permission("4"), Ok(4));
        assert_eq!(permission("W"), Ok(2));
        assert!(permission("7").is_err());
    }
}
