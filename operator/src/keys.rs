//! The broker's configuration keys as the operator knows them.
//!
//! Brokers in the field ignore unknown keys with a warning; a custom resource must refuse them, so the operator has to
//! know the list. It may not depend on the broker, and the broker may be of another version, so the list is kept here
//! and a test compares it with the broker's settings. `owner` says who sets a key: a user in `spec.config`, a field
//! of the resource, the operator, or nobody.

/// What a value looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// true or false.
    Bool,
    /// A whole number in a range, ends included.
    Int(i64, i64),
    /// Any text.
    Text,
}

/// Who sets a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The user, in `spec.config`.
    User,
    /// A field of the resource.
    Field(&'static str),
    /// The operator.
    Operator(&'static str),
    /// Nobody: the reason.
    Refused(&'static str),
}

impl Owner {
    /// What to say to someone who put the key into `spec.config`; nothing if that is right.
    pub fn instead(&self) -> Option<String> {
        match self {
            Self::User => None,
            Self::Field(field) => Some(format!("set {field}")),
            Self::Operator(why) => Some(format!("set by the operator: {why}")),
            Self::Refused(why) => Some((*why).to_owned()),
        }
    }
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Name in broker.conf.
    pub name: &'static str,
    /// Form of the value.
    pub kind: Kind,
    /// Who sets it.
    pub owner: Owner,
}

/// Keys that brokers take while they run (request 25), with their defaults.
pub const LIVE: &[(&str, &str)] = &[
    ("logFormat", "text"),
    ("logLevel", "info"),
    ("brokerPermission", "6"),
    ("autoCreateTopicEnable", "true"),
    ("autoCreateSubscriptionGroup", "true"),
    ("traceOn", "true"),
    ("regionId", "DefaultRegion"),
    ("rejectTransactionMessage", "false"),
    ("storeReplyMessageEnable", "true"),
    ("transactionTimeOut", "6000"),
    ("transactionCheckMax", "15"),
    ("longPollingEnable", "true"),
    ("shortPollingTimeMills", "1000"),
    ("brokerFastFailureEnable", "true"),
    ("waitTimeMillsInSendQueue", "1000"),
    ("waitTimeMillsInPullQueue", "5000"),
    ("waitTimeMillsInHeartbeatQueue", "31000"),
    ("waitTimeMillsInTransactionQueue", "3000"),
    ("sendThreadPoolQueueCapacity", "10000"),
    ("hotTopicSendPercent", "80"),
    ("disableConsumeIfConsumerReadSlowly", "false"),
    ("consumerFallbehindThreshold", "17179869184"),
    ("enableDetailStat", "true"),
    ("metricsMaxSeries", "1000"),
    ("notifyConsumerIdsChangedEnable", "true"),
    ("registerBrokerTimeoutMills", "6000"),
    ("forceRegister", "true"),
    ("compressedRegister", "false"),
    ("slaveReadEnable", "false"),
    ("startAcceptSendRequestTimeStamp", "0"),
    ("enablePropertyFilter", "false"),
    ("enableCalcFilterBitMap", "false"),
    ("filterDataCleanTimeSpan", "86400000"),
    ("filterSupportRetry", "false"),
    ("deleteWhen", "04"),
    ("deleteWhenTimeZone", ""),
    ("fileReservedTime", "72"),
    ("diskMaxUsedSpaceRatio", "75"),
    ("storeCapacityBytes", "0"),
    ("maxMsgsNumBatch", "64"),
    ("defaultQueryMaxNum", "32"),
];

/// Whether brokers take a key while they run.
pub fn is_live(name: &str) -> bool {
    LIVE.iter().any(|(key, _)| *key == name)
}

/// Looks a key up by its exact name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.name == name)
}

/// Says why `value` cannot be the value of `key`.
pub fn check(key: &Key, value: &str) -> Result<(), String> {
    match key.kind {
        Kind::Bool if matches!(value, "true" | "false") => Ok(()),
        Kind::Bool => Err(format!("config.{} takes true or false, not {value:?}", key.name)),
        Kind::Int(least, most) => match value.parse::<i64>() {
            Ok(v) if (least..=most).contains(&v) => Ok(()),
            _ => Err(format!(
                "config.{} takes a whole number from {least} to {most}, not {value:?}",
                key.name
            )),
        },
        Kind::Text if value.contains(['\n', '\r']) => Err(format!("config.{} holds a line break", key.name)),
        Kind::Text => Ok(()),
    }
}

const fn user(name: &'static str, kind: Kind) -> Key {
    Key {
        name,
        kind,
        owner: Owner::User,
    }
}

const fn field(name: &'static str, field: &'static str) -> Key {
    Key {
        name,
        kind: Kind::Text,
        owner: Owner::Field(field),
    }
}

const fn operator(name: &'static str, why: &'static str) -> Key {
    Key {
        name,
        kind: Kind::Text,
        owner: Owner::Operator(why),
    }
}

const fn refused(name: &'static str, why: &'static str) -> Key {
    Key {
        name,
        kind: Kind::Text,
        owner: Owner::Refused(why),
    }
}

const INT: i64 = i32::MAX as i64;
const ANY: Kind = Kind::Int(0, INT);
const COUNT: Kind = Kind::Int(1, INT);
const LONG: Kind = Kind::Int(0, i64::MAX);
const POOL: Kind = Kind::Int(0, 1_000_000_000);

const ADDRESS: &str = "addresses outlive pods";
const LAYOUT: &str = "the volume has a fixed place";

/// All keys, by what they are about.
pub const KEYS: &[Key] = &[
    // Set by a field.
    field("brokerClusterName", "spec.brokerClusterName"),
    field("brokerName", "spec.brokers.names"),
    field("brokerRole", "spec.brokers.replication"),
    field("flushDiskType", "spec.brokers.flush"),
    field("deleteWhen", "spec.retention.deleteWhen"),
    field("deleteWhenTimeZone", "spec.retention.timeZone"),
    field("fileReservedTime", "spec.retention.fileReservedTime"),
    field("diskMaxUsedSpaceRatio", "spec.retention.diskMaxUsedSpaceRatio"),
    field("storeCapacityBytes", "spec.storage.size"),
    // Set by the operator.
    operator("brokerId", "the place in the group"),
    operator("namesrvAddr", "the name servers of the cluster"),
    operator(
        "fetchNamesrvAddrByAddressServer",
        "the name servers of the cluster",
    ),
    operator("rmqAddressServerDomain", "the name servers of the cluster"),
    operator("rmqAddressServerSubGroup", "the name servers of the cluster"),
    operator("fetchNamesrvAddrInterval", "the name servers of the cluster"),
    operator("brokerIP1", ADDRESS),
    operator("brokerIP2", ADDRESS),
    operator("listenPort", ADDRESS),
    operator("haListenPort", ADDRESS),
    operator("haMasterAddress", ADDRESS),
    operator("bindAddress", ADDRESS),
    operator("httpPort", "probes and status use it"),
    operator("httpTokenFile", "the operator and the brokers share it"),
    operator("shutdownTimeoutMillis", "it fits into the grace time of the pod"),
    operator("storePathRootDir", LAYOUT),
    operator("storePathCommitLog", LAYOUT),
    operator("readOnlyCommitLogStorePaths", LAYOUT),
    operator("rocketmqHome", LAYOUT),
    operator("aclPlainFile", LAYOUT),
    operator("brokerConfigPath", LAYOUT),
    // Not in this version.
    refused("enableDLegerCommitLog", "DLedger is not supported"),
    refused("dLegerGroup", "DLedger is not supported"),
    refused("dLegerPeers", "DLedger is not supported"),
    refused("dLegerSelfId", "DLedger is not supported"),
    refused("preferredLeaderId", "DLedger is not supported"),
    refused("enableBatchPush", "DLedger is not supported"),
    refused("storePathDLedgerCommitLog", "DLedger is not supported"),
    refused("messageStorePlugIn", "Java classes cannot be loaded"),
    field("aclEnable", "spec.acl.secretName"),
    refused("useTLS", "set spec.tls.secretName"),
    // Identity and permission.
    user("logLevel", Kind::Text),
    user("logFormat", Kind::Text),
    user("brokerPermission", Kind::Int(0, 7)),
    user("regionId", Kind::Text),
    user("defaultTopicQueueNums", Kind::Int(1, 65_535)),
    user("autoCreateTopicEnable", Kind::Bool),
    user("clusterTopicEnable", Kind::Bool),
    user("brokerTopicEnable", Kind::Bool),
    user("autoCreateSubscriptionGroup", Kind::Bool),
    user("msgTraceTopicName", Kind::Text),
    user("traceTopicEnable", Kind::Bool),
    user("traceOn", Kind::Bool),
    user("configBlackList", Kind::Text),
    // Behaviour of the broker.
    user("flushConsumerOffsetInterval", Kind::Int(10, 3_600_000)),
    user("flushConsumerOffsetHistoryInterval", COUNT),
    user("rejectTransactionMessage", Kind::Bool),
    user("longPollingEnable", Kind::Bool),
    user("shortPollingTimeMills", Kind::Int(0, 60_000)),
    user("notifyConsumerIdsChangedEnable", Kind::Bool),
    user("highSpeedMode", Kind::Bool),
    user("commercialEnable", Kind::Bool),
    user("commercialTimerCount", ANY),
    user("commercialTransCount", ANY),
    user("commercialBigCount", ANY),
    user("commercialBaseCount", ANY),
    user("transferMsgByHeap", Kind::Bool),
    user("maxDelayTime", ANY),
    user("registerBrokerTimeoutMills", Kind::Int(100, 60_000)),
    user("registerNameServerPeriod", Kind::Int(1, 86_400_000)),
    user("forceRegister", Kind::Bool),
    user("compressedRegister", Kind::Bool),
    user("slaveReadEnable", Kind::Bool),
    user("disableConsumeIfConsumerReadSlowly", Kind::Bool),
    user("consumerFallbehindThreshold", LONG),
    user("consumerFallbehindCheckInterval", Kind::Int(50, 86_400_000)),
    user("hotTopicSendPercent", Kind::Int(1, 100)),
    user("brokerFastFailureEnable", Kind::Bool),
    user("waitTimeMillsInSendQueue", Kind::Int(1, 3_600_000)),
    user("waitTimeMillsInPullQueue", Kind::Int(1, 3_600_000)),
    user("waitTimeMillsInHeartbeatQueue", Kind::Int(1, 3_600_000)),
    user("waitTimeMillsInTransactionQueue", Kind::Int(1, 3_600_000)),
    user("startAcceptSendRequestTimeStamp", Kind::Int(0, i64::MAX)),
    user("enablePropertyFilter", Kind::Bool),
    user("enableCalcFilterBitMap", Kind::Bool),
    user("expectConsumerNumUseFilter", Kind::Int(1, 20_000)),
    user("maxErrorRateOfBloomFilter", Kind::Int(1, 99)),
    user("filterDataCleanTimeSpan", LONG),
    user("filterSupportRetry", Kind::Bool),
    user("transactionTimeOut", Kind::Int(0, 86_400_000)),
    user("transactionCheckMax", Kind::Int(0, 1_000_000)),
    user("transactionCheckInterval", Kind::Int(10, 86_400_000)),
    user("storeReplyMessageEnable", Kind::Bool),
    user("enableDetailStat", Kind::Bool),
    user("autoDeleteUnusedStats", Kind::Bool),
    user("isolateLogEnable", Kind::Bool),
    user("filterServerNums", ANY),
    // Thread pools and queues of Java's broker.
    user("sendMessageThreadPoolNums", POOL),
    user("putMessageFutureThreadPoolNums", POOL),
    user("pullMessageThreadPoolNums", POOL),
    user("processReplyMessageThreadPoolNums", POOL),
    user("queryMessageThreadPoolNums", POOL),
    user("adminBrokerThreadPoolNums", POOL),
    user("clientManageThreadPoolNums", POOL),
    user("consumerManageThreadPoolNums", POOL),
    user("heartbeatThreadPoolNums", POOL),
    user("endTransactionThreadPoolNums", POOL),
    user("sendThreadPoolQueueCapacity", Kind::Int(1, 10_000_000)),
    user("putThreadPoolQueueCapacity", POOL),
    user("replyThreadPoolQueueCapacity", POOL),
    user("pullThreadPoolQueueCapacity", Kind::Int(1, 10_000_000)),
    user("queryThreadPoolQueueCapacity", POOL),
    user("heartbeatThreadPoolQueueCapacity", POOL),
    user("endTransactionPoolQueueCapacity", POOL),
    user("clientManagerThreadPoolQueueCapacity", POOL),
    user("consumerManagerThreadPoolQueueCapacity", POOL),
    user("serverWorkerThreads", POOL),
    user("serverCallbackExecutorThreads", POOL),
    user("serverSelectorThreads", POOL),
    user("serverOnewaySemaphoreValue", POOL),
    user("serverAsyncSemaphoreValue", POOL),
    user("serverChannelMaxIdleTimeSeconds", Kind::Int(1, 86_400)),
    user("serverSocketSndBufSize", POOL),
    user("serverSocketRcvBufSize", POOL),
    user("serverSocketBacklog", Kind::Int(1, 65_535)),
    user("metricsMaxSeries", Kind::Int(0, 1_000_000)),
    user("connectionBufferBytes", Kind::Int(0, 1_099_511_627_776)),
    user("writeBufferHighWaterMark", POOL),
    user("writeBufferLowWaterMark", POOL),
    user("serverPooledByteBufAllocatorEnable", Kind::Bool),
    user("useEpollNativeSelector", Kind::Bool),
    user("loadBalanceProcessorThreadPoolNums", POOL),
    user("clientWorkerThreads", POOL),
    user("clientCallbackExecutorThreads", POOL),
    user("clientOnewaySemaphoreValue", POOL),
    user("clientAsyncSemaphoreValue", POOL),
    user("connectTimeoutMillis", POOL),
    user("channelNotActiveInterval", POOL),
    user("clientChannelMaxIdleTimeSeconds", POOL),
    user("clientSocketSndBufSize", POOL),
    user("clientSocketRcvBufSize", POOL),
    user("clientPooledByteBufAllocatorEnable", Kind::Bool),
    user("clientCloseSocketIfTimeout", Kind::Bool),
    // The store.
    user("mappedFileSizeCommitLog", Kind::Int(65_536, 2_147_483_647)),
    user("mappedFileSizeConsumeQueue", Kind::Int(20, 2_147_483_647)),
    user("enableConsumeQueueExt", Kind::Bool),
    user("mappedFileSizeConsumeQueueExt", Kind::Int(4096, 2_147_483_647)),
    user("bitMapLengthConsumeQueueExt", COUNT),
    user("flushIntervalCommitLog", Kind::Int(1, 3_600_000)),
    user("flushCommitLogTimed", Kind::Bool),
    user("flushCommitLogLeastPages", Kind::Int(0, 1_000_000)),
    user("flushCommitLogThoroughInterval", Kind::Int(1, 3_600_000)),
    user("commitIntervalCommitLog", Kind::Int(1, 3_600_000)),
    user("commitCommitLogLeastPages", Kind::Int(0, 1_000_000)),
    user("commitCommitLogThoroughInterval", Kind::Int(1, 3_600_000)),
    user("flushIntervalConsumeQueue", Kind::Int(1, 3_600_000)),
    user("flushConsumeQueueLeastPages", ANY),
    user("flushConsumeQueueThoroughInterval", Kind::Int(1, 3_600_000)),
    user("syncFlushTimeout", Kind::Int(1, 3_600_000)),
    user("slaveTimeout", Kind::Int(1, 3_600_000)),
    user("useReentrantLockWhenPutMessage", Kind::Bool),
    user("osPageCacheBusyTimeOutMills", Kind::Int(1, 3_600_000)),
    user("maxMessageSize", Kind::Int(1, 16_000_000)),
    user("checkCRCOnRecover", Kind::Bool),
    user("warmMapedFileEnable", Kind::Bool),
    user("flushLeastPagesWhenWarmMapedFile", Kind::Int(0, 1_000_000)),
    user("transientStorePoolEnable", Kind::Bool),
    user("transientStorePoolSize", Kind::Int(1, 1_000_000)),
    user("fastFailIfNoBufferInStorePool", Kind::Bool),
    user("cleanResourceInterval", Kind::Int(10, 3_600_000)),
    user("deleteCommitLogFilesInterval", Kind::Int(0, 60_000)),
    user("deleteConsumeQueueFilesInterval", Kind::Int(0, 60_000)),
    user("destroyMapedFileIntervalForcibly", COUNT),
    user("redeleteHangedFileInterval", COUNT),
    user("cleanFileForciblyEnable", Kind::Bool),
    user("maxTransferBytesOnMessageInMemory", Kind::Int(1, 16_000_000)),
    user("maxTransferCountOnMessageInMemory", Kind::Int(1, 100_000)),
    user("maxTransferBytesOnMessageInDisk", Kind::Int(1, 16_000_000)),
    user("maxTransferCountOnMessageInDisk", Kind::Int(1, 100_000)),
    user("accessMessageInMemoryMaxRatio", Kind::Int(0, 100)),
    user("messageIndexEnable", Kind::Bool),
    user("messageIndexSafe", Kind::Bool),
    user("maxHashSlotNum", Kind::Int(1, 500_000_000)),
    user("maxIndexNum", Kind::Int(2, 500_000_000)),
    user("maxMsgsNumBatch", Kind::Int(1, 10_000)),
    user("defaultQueryMaxNum", Kind::Int(1, 10_000)),
    user("haSendHeartbeatInterval", COUNT),
    user("haHousekeepingInterval", COUNT),
    user("haTransferBatchSize", COUNT),
    user("haSlaveFallbehindMax", LONG),
    user("messageDelayLevel", Kind::Text),
    user("flushDelayOffsetInterval", Kind::Int(10, 3_600_000)),
    user("enableScheduleAsyncDeliver", Kind::Bool),
    user("scheduleAsyncDeliverMaxPendingLimit", COUNT),
    user("scheduleAsyncDeliverMaxResendNum2Blocked", COUNT),
    user("offsetCheckInSlave", Kind::Bool),
    user("duplicationEnable", Kind::Bool),
    user("putMsgIndexHightWater", COUNT),
    user("diskFallRecorded", Kind::Bool),
    user("enableScheduleMessageStats", Kind::Bool),
    user("debugLockEnable", Kind::Bool),
    user("enableLmq", Kind::Bool),
    user("enableMultiDispatch", Kind::Bool),
    user("maxLmqConsumeQueueNum", Kind::Int(1, 10_000_000)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use ferromq_broker::BrokerSettings;
    use std::collections::BTreeSet;

    /// A value that passes here must not stop a broker's start.
    #[test]
    fn the_broker_of_this_version_knows_the_same_keys_and_takes_their_values() {
        let theirs: BTreeSet<_> = (BrokerSettings::KEYS.iter().map(|k| k.key))
            .chain(BrokerSettings::WITHOUT_EFFECT.iter().map(|(key, _)| *key))
            .chain(BrokerSettings::REFUSED.iter().map(|(key, ..)| *key))
            .collect();
        assert_eq!(KEYS.iter().map(|k| k.name).collect::<BTreeSet<_>>(), theirs);
        for info in BrokerSettings::KEYS {
            let key = find(info.key).unwrap();
            if key.owner != Owner::User {
                continue;
            }
            let kind = match key.kind {
                Kind::Bool => "true or false",
                Kind::Text => "text",
                Kind::Int(least, most) => {
                    let (low, high) = info.range.unwrap_or((i64::MIN, i64::MAX));
                    assert!(low <= least && most <= high, "{key:?} against {low}..={high}");
                    "number"
                }
            };
            assert_eq!(info.kind, kind, "{key:?}");
        }
        for (key, ..) in BrokerSettings::REFUSED {
            assert_ne!(find(key).unwrap().owner, Owner::User, "{key}");
        }
    }

    #[test]
    fn live_keys_and_their_defaults_are_those_of_the_broker() {
        let defaults = BrokerSettings::default();
        let theirs: BTreeSet<(&str, String)> = BrokerSettings::KEYS
            .iter()
            .filter(|k| k.live)
            .map(|k| (k.key, defaults.get(k.key).unwrap_or_default()))
            .collect();
        let ours: BTreeSet<(&str, String)> = LIVE.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
        assert_eq!(ours, theirs);
    }

    #[test]
    fn no_key_stands_twice() {
        let mut names: Vec<_> = KEYS.iter().map(|k| k.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn values_are_judged_by_kind() {
        let size = find("mappedFileSizeCommitLog").unwrap();
        assert!(check(size, "67108864").is_ok());
        assert!(check(size, "64Mi").unwrap_err().contains("whole number"));
        assert!(check(find("longPollingEnable").unwrap(), "yes").is_err());
        assert!(check(find("regionId").unwrap(), "a\nb").is_err());
    }
}
