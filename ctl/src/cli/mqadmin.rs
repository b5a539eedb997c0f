//! mqadmin's own command names and flags, hidden from the help.
//!
//! Where mqadmin's default is a trap (it stores bodies under `/tmp`, or turns off what is left out) ours is the harmless one.

use std::ffi::OsString;

use clap::{ArgAction, CommandFactory, Subcommand};

use super::{Account, Cli, ExportTo, MessageExtra, Target, permission, point_in_time};

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
    #[command(name = "updateTopicPerm", hide = true)]
    UpdateTopicPerm {
        #[command(flatten)]
        target: Target,
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'p', long, value_parser = permission)]
        perm: i32,
    },
    #[command(name = "topicClusterList", hide = true)]
    TopicClusterList {
        #[arg(short = 't', long)]
        topic: String,
    },
    #[command(name = "updateOrderConf", hide = true)]
    UpdateOrderConf {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'm', long, value_parser = ["get", "put", "delete"])]
        method: String,
        #[arg(short = 'v', long = "orderConf", required_if_eq("method", "put"))]
        value: Option<String>,
    },
    #[command(name = "allocateMQ", hide = true)]
    AllocateMq {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'i', long = "ipList", value_delimiter = ',', required = true)]
        clients: Vec<String>,
    },
    #[command(name = "statsAll", hide = true)]
    StatsAll {
        #[arg(short = 'a', long = "activeTopic")]
        active: bool,
        #[arg(short = 't', long)]
        topic: Option<String>,
    },
    #[command(name = "cleanExpiredCQ", hide = true)]
    CleanExpiredCq {
        #[command(flatten)]
        target: Target,
    },
    #[command(name = "cleanUnusedTopic", hide = true)]
    CleanUnusedTopic {
        #[command(flatten)]
        target: Target,
    },
    #[command(name = "deleteExpiredCommitLog", hide = true)]
    DeleteExpiredCommitLog {
        #[command(flatten)]
        target: Target,
    },
    #[command(name = "brokerConsumeStats", hide = true)]
    BrokerConsumeStats {
        #[arg(short = 'b', long = "brokerAddr")]
        broker: String,
        /// Milliseconds; ours are set by --timeout
        #[arg(short = 't', long = "timeoutMillis")]
        millis: Option<u64>,
        #[arg(short = 'l', long, default_value_t = 0)]
        level: i64,
        #[arg(long)]
        order: bool,
    },
    #[command(name = "sendMsgStatus", hide = true)]
    SendMsgStatus {
        #[arg(short = 'b', long = "brokerName")]
        broker: String,
        #[arg(short = 's', long = "messageSize", default_value_t = 128)]
        size: u32,
        #[arg(short = 'c', long, default_value_t = 50)]
        count: u32,
    },
    #[command(name = "checkMsgSendRT", hide = true)]
    CheckMsgSendRt {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'a', long = "amount", default_value_t = 100)]
        count: u32,
        #[arg(short = 's', long)]
        size: u32,
    },
    /// One round over every broker; mqadmin goes on for ever
    #[command(name = "clusterRT", hide = true)]
    ClusterRt {
        #[arg(short = 'a', long = "amount", default_value_t = 50)]
        count: u32,
        #[arg(short = 's', long, default_value_t = 128)]
        size: u32,
        #[arg(short = 'c', long)]
        cluster: Option<String>,
    },
    #[command(name = "getConsumerConfig", hide = true)]
    GetConsumerConfig {
        #[arg(short = 'g', long = "groupName")]
        group: String,
    },
    #[command(name = "consumerConnection", hide = true)]
    ConsumerConnection {
        #[arg(short = 'g', long = "consumerGroup")]
        group: String,
    },
    #[command(name = "producerConnection", hide = true)]
    ProducerConnection {
        #[arg(short = 'g', long = "producerGroup")]
        group: String,
        #[arg(short = 't', long)]
        topic: String,
    },
    #[command(name = "producer", hide = true)]
    Producer {
        #[arg(short = 'b', long)]
        broker: String,
    },
    #[command(name = "consumerStatus", hide = true)]
    ConsumerStatus {
        #[arg(short = 'g', long = "consumerGroup")]
        group: String,
        #[arg(short = 'i', long = "clientId")]
        client: Option<String>,
        #[arg(short = 's', long = "jstack")]
        stacks: bool,
    },
    #[command(name = "resetOffsetByTime", hide = true)]
    ResetOffsetByTime {
        #[arg(short = 'g', long)]
        group: String,
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 's', long = "timestamp", value_parser = point_in_time, allow_hyphen_values = true)]
        to: i64,
        #[arg(short = 'f', long, default_value_t = true, action = ArgAction::Set)]
        force: bool,
        /// Taken for compatibility: all clients are told alike
        #[arg(short = 'c', long)]
        cplus: bool,
    },
    #[command(name = "skipAccumulatedMessage", hide = true)]
    SkipAccumulatedMessage {
        #[arg(short = 'g', long)]
        group: String,
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'f', long, default_value_t = true, action = ArgAction::Set)]
        force: bool,
    },
    /// Only the topic named, unlike mqadmin's, which copies every topic
    #[command(name = "cloneGroupOffset", hide = true)]
    CloneGroupOffset {
        #[arg(short = 's', long = "srcGroup")]
        from: String,
        #[arg(short = 'd', long = "destGroup")]
        to: String,
        #[arg(short = 't', long)]
        topic: String,
        #[arg(long)]
        offline: bool,
    },
    #[command(name = "queryMsgByUniqueKey", hide = true)]
    QueryMsgByUniqueKey {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'i', long = "msgId")]
        id: String,
    },
    #[command(name = "queryMsgByOffset", hide = true)]
    QueryMsgByOffset {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'b', long = "brokerName")]
        broker: String,
        #[arg(short = 'i', long = "queueId")]
        queue: i32,
        #[arg(long)]
        offset: i64,
    },
    #[command(name = "queryMsgTraceById", hide = true)]
    QueryMsgTraceById {
        #[arg(short = 'i', long = "msgId")]
        id: String,
        #[arg(short = 't', long = "traceTopic", default_value = "RMQ_SYS_TRACE_TOPIC")]
        topic: String,
    },
    #[command(name = "queryCq", hide = true)]
    QueryCq {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'q', long)]
        queue: i32,
        #[arg(short = 'i', long)]
        index: i64,
        #[arg(short = 'c', long, default_value_t = 10)]
        count: i32,
        #[arg(short = 'b', long)]
        broker: Option<String>,
        #[arg(short = 'g', long = "consumer")]
        group: Option<String>,
    },
    #[command(name = "printMsg", hide = true)]
    PrintMsg {
        #[arg(short = 't', long)]
        topic: String,
        /// Taken for compatibility: bodies are UTF-8
        #[arg(short = 'c', long = "charsetName")]
        charset: Option<String>,
        #[arg(short = 's', long = "subExpression")]
        tags: Option<String>,
        #[arg(short = 'b', long = "beginTimestamp", value_parser = point_in_time)]
        begin: Option<i64>,
        #[arg(short = 'e', long = "endTimestamp", value_parser = point_in_time)]
        end: Option<i64>,
        #[arg(short = 'd', long = "printBody", default_value_t = true, action = ArgAction::Set)]
        bodies: bool,
    },
    #[command(name = "printMsgByQueue", hide = true)]
    PrintMsgByQueue {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'a', long = "brokerName")]
        broker: String,
        #[arg(short = 'i', long = "queueId")]
        queue: i32,
        /// Taken for compatibility: bodies are UTF-8
        #[arg(short = 'c', long = "charsetName")]
        charset: Option<String>,
        #[arg(short = 's', long = "subExpression")]
        tags: Option<String>,
        #[arg(short = 'b', long = "beginTimestamp", value_parser = point_in_time)]
        begin: Option<i64>,
        #[arg(short = 'e', long = "endTimestamp", value_parser = point_in_time)]
        end: Option<i64>,
        /// Taken for compatibility: messages are always printed
        #[arg(short = 'p', long = "print")]
        print: Option<bool>,
        #[arg(short = 'd', long = "printBody", default_value_t = true, action = ArgAction::Set)]
        bodies: bool,
    },
    #[command(name = "consumeMessage", hide = true)]
    ConsumeMessage {
        #[arg(short = 't', long)]
        topic: String,
        #[arg(short = 'b', long = "brokerName")]
        broker: Option<String>,
        #[arg(short = 'i', long = "queueId")]
        queue: Option<i32>,
        #[arg(long)]
        offset: Option<i64>,
        /// Taken for compatibility: no group's offsets are used
        #[arg(short = 'g', long = "consumerGroup")]
        group: Option<String>,
        #[arg(short = 's', long = "beginTimestamp", value_parser = point_in_time)]
        begin: Option<i64>,
        #[arg(short = 'e', long = "endTimestamp", value_parser = point_in_time)]
        end: Option<i64>,
        #[arg(short = 'c', long = "MessageNumber", default_value_t = 128)]
        count: u32,
    },
    #[command(name = "getNamesrvConfig", hide = true)]
    GetNamesrvConfig,
    #[command(name = "updateNamesrvConfig", hide = true)]
    UpdateNamesrvConfig {
        #[arg(short = 'k', long)]
        key: String,
        #[arg(short = 'v', long)]
        value: String,
    },
    #[command(name = "updateKvConfig", hide = true)]
    UpdateKvConfig {
        #[arg(short = 's', long)]
        namespace: String,
        #[arg(short = 'k', long)]
        key: String,
        #[arg(short = 'v', long)]
        value: String,
    },
    #[command(name = "deleteKvConfig", hide = true)]
    DeleteKvConfig {
        #[arg(short = 's', long)]
        namespace: String,
        #[arg(short = 'k', long)]
        key: String,
    },
    #[command(name = "updateAclConfig", hide = true)]
    UpdateAclConfig {
        #[command(flatten)]
        target: Target,
        #[command(flatten)]
        account: Account,
    },
    #[command(name = "deleteAccessConfig", hide = true)]
    DeleteAccessConfig {
        #[command(flatten)]
        target: Target,
        #[arg(short = 'a', long = "accessKey")]
        access_key: String,
    },
    #[command(name = "clusterAclConfigVersion", hide = true)]
    ClusterAclConfigVersion {
        #[command(flatten)]
        target: Target,
    },
    #[command(name = "updateGlobalWhiteAddr", hide = true)]
    UpdateGlobalWhiteAddr {
        #[command(flatten)]
        target: Target,
        #[arg(short = 'g', long = "globalWhiteRemoteAddresses")]
        addresses: String,
    },
    #[command(name = "getAccessConfigSubCommand", hide = true)]
    GetAccessConfig {
        #[command(flatten)]
        target: Target,
    },
    #[command(name = "exportMetadata", hide = true)]
    ExportMetadata(ExportTo),
    #[command(name = "exportConfigs", hide = true)]
    ExportConfigs(ExportTo),
    #[command(name = "exportMetrics", hide = true)]
    ExportMetrics(ExportTo),
}

/// mqadmin's `-o` where it means something: it is the form of the output everywhere else.
const SHORT_O: [(&str, &str); 4] = [
    ("brokerConsumeStats", "--order"),
    ("cloneGroupOffset", "--offline"),
    ("queryMsgByOffset", "--offset"),
    ("consumeMessage", "--offset"),
];

/// mqadmin matches names whatever their case; so do we, for its names only. Arguments must be text.
pub(crate) fn with_mqadmin_case(args: impl IntoIterator<Item = OsString>) -> Result<Vec<String>, String> {
    let text = |arg: OsString| {
        arg.into_string()
            .map_err(|arg| format!("the argument {} is not UTF-8 text", arg.display()))
    };
    let mut args: Vec<String> = args.into_iter().map(text).collect::<Result<_, _>>()?;
    let command = Cli::command();
    let names: Vec<&str> = command
        .get_subcommands()
        .filter(|sub| sub.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    let same = |arg: &str| names.iter().find(|name| name.eq_ignore_ascii_case(arg));
    let Some(at) = args.iter().skip(1).position(|arg| same(arg).is_some()) else {
        return Ok(args);
    };
    let (before, rest) = args.split_at_mut(at + 2);
    if let Some(arg) = before.last_mut()
        && let Some(name) = same(arg)
    {
        (*name).clone_into(arg);
        if let Some((_, long)) = SHORT_O.iter().find(|(command, _)| command == name) {
            for short in rest.iter_mut().filter(|arg| *arg == "-o") {
                (*long).clone_into(short);
            }
        }
    }
    Ok(args)
}
