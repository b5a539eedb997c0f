//! The command line: ours grouped by noun, mqadmin's own names beside it, hidden from the help.
//!
//! Parsing is all that happens here; `cmd` carries the commands out.

mod bench;
mod message;
mod mqadmin;
#[cfg(test)]
mod reference;
mod security;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::plugin::Kube;

pub(crate) use bench::{Bench, BenchReceive, BenchSend};
pub(crate) use message::{Message, MessageExtra, Range};
pub(crate) use mqadmin::{Mqadmin, with_mqadmin_case};
pub(crate) use security::Security;
pub(crate) use store::Store;

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
    #[command(flatten)]
    pub(crate) security: Security,
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
    /// Name servers: configuration and key-value tables, on every one of them
    #[command(subcommand)]
    Namesrv(Namesrv),
    /// Accounts of access control
    #[command(subcommand)]
    Acl(Acl),
    /// Write metadata, configurations or figures of a cluster to JSON files
    #[command(subcommand)]
    Export(Export),
    /// Watch brokers, the busiest topics and the groups that are furthest behind
    Top {
        /// Time between two looks, in seconds
        #[arg(long, default_value = "2", value_name = "SECONDS", value_parser = seconds)]
        interval: Duration,
        /// Topics and groups to show
        #[arg(long, default_value_t = 10, value_name = "N")]
        rows: usize,
        /// Look once
        #[arg(long)]
        once: bool,
    },
    /// A store directory, offline: look at it, check it, see what a start would do. Nothing is written
    #[command(subcommand)]
    Store(Store),
    /// Load: send and receive many messages and prove that none is missing
    #[command(subcommand)]
    Bench(Bench),
    /// FerroMQ clusters on Kubernetes, through kubectl; also `kubectl ferromq` under the name kubectl-ferromq
    Kube(Kube),
    /// Write a completion script for a shell to standard output
    Completion {
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
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
    /// Change only the permission of a topic, on the brokers chosen
    Perm {
        topic: String,
        /// RW, R or W
        #[arg(value_parser = permission)]
        perm: i32,
        #[command(flatten)]
        target: Target,
    },
    /// Tell which clusters have a topic
    Clusters { topic: String },
    /// Read or change the order configuration of a topic (broker:queues;…) at every name server
    #[command(subcommand)]
    Order(Order),
    /// Tell which queues each of these clients would get, as Java's default strategy does
    Allocate {
        topic: String,
        /// Client addresses
        #[arg(required = true, value_delimiter = ',')]
        clients: Vec<String>,
    },
    /// Show rates of a topic and of the groups that consume it
    Rates {
        /// Default: all topics
        topic: Option<String>,
        /// Leave out those without a message in the last day
        #[arg(short = 'a', long)]
        active: bool,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Order {
    /// Show it
    Get { topic: String },
    /// Set it
    Set {
        topic: String,
        /// As BROKER:QUEUES;BROKER:QUEUES
        value: String,
    },
    /// Delete it
    Delete { topic: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Namesrv {
    /// Show the configuration of each name server
    Config,
    /// Change keys of every name server's configuration
    Set {
        #[arg(value_name = "KEY=VALUE", required = true, value_parser = key_value)]
        settings: Vec<(String, String)>,
    },
    /// List a namespace of the key-value tables
    KvList { namespace: String },
    /// Set a key in every name server
    KvPut {
        namespace: String,
        key: String,
        value: String,
    },
    /// Delete a key from every name server
    KvDelete { namespace: String, key: String },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Acl {
    /// List the accounts, without their secrets
    List {
        #[command(flatten)]
        target: Target,
    },
    /// Show the version of the accounts on each broker
    Version {
        #[command(flatten)]
        target: Target,
    },
    /// Create an account or change what is given of it
    Set {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        account: Account,
    },
    /// Delete an account
    Delete {
        #[command(flatten)]
        target: Target,
        access_key: String,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Set the addresses that need no account
    WhiteAddresses {
        #[command(flatten)]
        target: Target,
        /// Joined by commas
        addresses: String,
    },
}

/// What an account may do.
#[derive(Debug, Clone, Args)]
pub(crate) struct Account {
    #[arg(short = 'a', long)]
    pub(crate) access_key: String,
    /// Taken from the environment if it is not given, so that it need not stand in a shell's history
    #[arg(short = 's', long, env = "FERROCTL_SECRET_KEY", hide_env_values = true)]
    pub(crate) secret_key: Option<String>,
    /// Addresses from which the account needs no signature
    #[arg(short = 'w', long)]
    pub(crate) white_remote_address: Option<String>,
    /// PUB, SUB, PUB|SUB or DENY, for topics not named
    #[arg(short = 'i', long)]
    pub(crate) default_topic_perm: Option<String>,
    /// PUB, SUB, PUB|SUB or DENY, for groups not named
    #[arg(short = 'u', long)]
    pub(crate) default_group_perm: Option<String>,
    /// TOPIC=PERM entries joined by commas
    #[arg(short = 't', long)]
    pub(crate) topic_perms: Option<String>,
    /// GROUP=PERM entries joined by commas
    #[arg(short = 'g', long)]
    pub(crate) group_perms: Option<String>,
    /// The account may administer
    #[arg(short = 'm', long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    pub(crate) admin: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Export {
    /// Topics and groups
    Metadata(ExportTo),
    /// Configurations of name servers and brokers
    Configs(ExportTo),
    /// Figures of the brokers
    Metrics(ExportTo),
}

/// What to write and where.
#[derive(Debug, Clone, Args)]
pub(crate) struct ExportTo {
    /// Only this cluster
    #[arg(short = 'c', long, value_name = "NAME")]
    pub(crate) cluster: Option<String>,
    /// Directory for the files
    #[arg(short = 'f', long, default_value = ".", value_name = "DIR")]
    pub(crate) dir: PathBuf,
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
    /// Clean up at once what the broker cleans up by and by
    Clean {
        #[arg(value_enum)]
        what: Clean,
        #[command(flatten)]
        target: Target,
    },
    /// Show how far every group is in every topic of a broker
    Backlog {
        /// Address of the broker (host:port)
        broker: String,
        /// Only queues that are at least so far behind
        #[arg(short = 'l', long, default_value_t = 0, value_name = "N")]
        level: i64,
        /// Only groups that consume in order
        #[arg(long)]
        order: bool,
    },
    /// List the producers connected to a broker
    Producers {
        /// Address of the broker (host:port)
        broker: String,
    },
    /// Send messages to the topic that has a broker's name and show how long each took
    Ping {
        /// Name of the broker
        broker: String,
        #[command(flatten)]
        probe: Probe,
    },
}

/// What `broker clean` is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Clean {
    /// Consume queue files whose messages are gone
    Queues,
    /// Queues of topics that the broker does not have
    Topics,
    /// Commit log files that are past their time
    Log,
}

/// Messages to try with.
#[derive(Debug, Clone, Args)]
pub(crate) struct Probe {
    /// Body size in bytes
    #[arg(short = 's', long, default_value_t = 128, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=4_194_304))]
    pub(crate) size: u32,
    /// Messages to send
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) count: u32,
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
    /// Show a group's configuration on each broker
    Config { group: String },
    /// List a group's connected consumers and what they subscribe to
    Connections { group: String },
    /// Show what each consumer of a group tells of itself: queues, backlog, rates; and whether they agree
    Status {
        group: String,
        /// Only this client
        #[arg(short = 'i', long, value_name = "ID")]
        client: Option<String>,
    },
    /// Set a group's offsets of a topic to those of a time
    Reset {
        group: String,
        topic: String,
        /// now, end, milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS in UTC
        #[arg(short = 's', long, value_parser = point_in_time)]
        to: i64,
        /// Offsets only go back
        #[arg(long)]
        no_force: bool,
        /// Do not ask
        #[arg(short = 'y', long)]
        yes: bool,
    },
    /// Copy a group's offsets to another group
    CloneOffsets {
        from: String,
        to: String,
        /// Only of this topic
        #[arg(short = 't', long)]
        topic: Option<String>,
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

/// A point in time as mqadmin takes it. `end`, like mqadmin's -1, stands for the end of a queue.
fn point_in_time(text: &str) -> Result<i64, String> {
    match text {
        "now" | "currentTimeMillis" => return Ok(jiff::Timestamp::now().as_millisecond()),
        "end" => return Ok(-1),
        _ => {}
    }
    if let Ok(millis) = text.parse() {
        return Ok(millis);
    }
    let (date, millis) = text.rsplit_once(':').unwrap_or((text, "0"));
    let time = jiff::civil::DateTime::strptime("%Y-%m-%d#%H:%M:%S", date)
        .ok()
        .zip(millis.parse::<u16>().ok().filter(|millis| *millis < 1000));
    let (time, millis) = time.ok_or_else(|| {
        format!("{text:?} is no time: now, end, milliseconds since 1970 or yyyy-MM-dd#HH:mm:ss:SSS is needed")
    })?;
    let start = time
        .to_zoned(jiff::tz::TimeZone::UTC)
        .map_err(|error| error.to_string())?;
    Ok(start.timestamp().as_millisecond() + i64::from(millis))
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
    use std::ffi::OsString;

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
            "queryMsgByOffset -n a:9876 -t T -b broker-a -i 0 -o 7",
            "brokerConsumeStats -n a:9876 -b 127.0.0.1:10911 -t 5000 -l 10 -o",
            "consumeMessage -n a:9876 -t T -b broker-a -i 1 -o 3 -c 5",
            "cloneGroupOffset -n a:9876 -s G -d H -t T -o",
            "resetOffsetByTime -n a:9876 -g G -t T -s 2022-01-01#00:00:00:000 -f false",
            "resetOffsetByTime -n a:9876 -g G -t T -s -1",
            "updateAclConfig -n a:9876 -c C -a key -s secret -t T=PUB -m true",
            "printMsgByQueue -n a:9876 -t T -a broker-a -i 0 -p true -d true",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    /// All that mqadmin 4.9.7 registers, but `startMonitoring`: metrics and `/status` are there for that.
    #[test]
    fn every_name_of_mqadmin_is_known() {
        let names = "updateTopic deleteTopic updateSubGroup deleteSubGroup updateBrokerConfig updateTopicPerm \
                     topicRoute topicStatus topicClusterList brokerStatus queryMsgById queryMsgByKey \
                     queryMsgByUniqueKey queryMsgByOffset queryMsgTraceById printMsg printMsgByQueue sendMsgStatus \
                     brokerConsumeStats producerConnection consumerConnection consumerProgress consumerStatus \
                     cloneGroupOffset producer clusterList topicList updateKvConfig deleteKvConfig wipeWritePerm \
                     addWritePerm resetOffsetByTime skipAccumulatedMessage updateOrderConf cleanExpiredCQ \
                     deleteExpiredCommitLog cleanUnusedTopic statsAll allocateMQ checkMsgSendRT clusterRT \
                     getNamesrvConfig updateNamesrvConfig getBrokerConfig getConsumerConfig queryCq sendMessage \
                     consumeMessage updateAclConfig deleteAccessConfig clusterAclConfigVersion \
                     updateGlobalWhiteAddr getAccessConfigSubCommand exportMetadata exportConfigs exportMetrics";
        let command = Cli::command();
        let known: Vec<&str> = command
            .get_subcommands()
            .filter(|sub| sub.is_hide_set())
            .map(clap::Command::get_name)
            .collect();
        for name in names.split_whitespace() {
            assert!(known.contains(&name), "{name}");
        }
    }

    #[test]
    fn times_are_read_as_mqadmin_reads_them() {
        assert_eq!(point_in_time("2022-01-01#00:00:00:123"), Ok(1_640_995_200_123));
        assert_eq!(point_in_time("1640995200123"), Ok(1_640_995_200_123));
        assert_eq!(point_in_time("end"), Ok(-1));
        assert!(point_in_time("now").is_ok_and(|now| now > 1_640_995_200_123));
        assert!(point_in_time("yesterday").is_err());
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
