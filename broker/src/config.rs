//! The broker's settings: RocketMQ's keys with RocketMQ's defaults, and a few of our own.
//!
//! Sources, low to high: defaults; `NAMESRV_ADDR` and `rocketmq.namesrv.addr`; the file of `-c`; changes that
//! administrators made at run time (`config/live.properties` in the store); the command line. A key that has no counterpart here
//! is accepted without effect; one that asks for something that this broker does not do is refused, since
//! starting without it would break a promise.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use ferromq_daemon::settings::Notes;
use ferromq_daemon::{Options, Properties, settings};
use ferromq_filter::BloomFilter;
use ferromq_remoting::{AddressServer, address_server};
use ferromq_store::{BrokerRole, DelayLevels, FlushMode, StoreConfig};
use parking_lot::RwLock;

use crate::acl::Places;
use crate::own_address;

settings! {
    /// Everything that can be set.
    pub struct BrokerSettings {
        /// Name servers, `host:port` with `;` between them. A DNS name stands for all its addresses.
        namesrv_addr: String = String::new(), "namesrvAddr", important: true;
        /// Whether an address server is asked for the name servers when namesrvAddr is empty.
        fetch_namesrv_addr_by_address_server: bool = false, "fetchNamesrvAddrByAddressServer", important: true;
        /// The address server, `host` or `host:port` (default 8080).
        rmq_address_server_domain: String = address_server::DEFAULT_DOMAIN.to_owned(), "rmqAddressServerDomain";
        /// Last part of its path, `http://DOMAIN/rocketmq/SUBGROUP`.
        rmq_address_server_sub_group: String = address_server::DEFAULT_SUB_GROUP.to_owned(), "rmqAddressServerSubGroup";
        /// How often the address server is asked again.
        fetch_namesrv_addr_interval: u64 = 120_000, "fetchNamesrvAddrInterval", range: 100..=86_400_000, unit: "ms";
        /// Address that clients are told. Empty: the first that is not a loopback address.
        broker_ip1: String = String::new(), "brokerIP1", important: true;
        /// Address that replicas are told. Empty: brokerIP1.
        broker_ip2: String = String::new(), "brokerIP2", important: true;
        /// Name of the broker group. Empty: the host's name.
        broker_name: String = String::new(), "brokerName", important: true;
        /// Name of the cluster.
        broker_cluster_name: String = "DefaultCluster".to_owned(), "brokerClusterName", important: true;
        /// 0 is the master, above 0 a slave.
        broker_id: i64 = 0, "brokerId", range: 0..=i64::MAX, important: true;
        /// Port for everything; two below it is a second one for the same, one above it replication.
        listen_port: u16 = 10_911, "listenPort", range: 1..=65_535, unit: "port";
        /// Address to listen on.
        bind_address: String = "0.0.0.0".to_owned(), "bindAddress";
        /// Port for probes, metrics and status; 0 is off.
        http_port: u16 = 0, "httpPort", range: 0..=65_535, unit: "port";
        /// File with the token that PUT /writes asks for; empty: nobody may.
        http_token_file: String = String::new(), "httpTokenFile";
        /// How long a stop may take before what is left is cut off.
        shutdown_timeout_millis: u64 = 30_000, "shutdownTimeoutMillis", range: 1_000..=3_600_000, unit: "ms";
        /// Level of the log: error, warn, info, debug, trace, or target=level pairs.
        log_level: String = "info".to_owned(), "logLevel", live: true;
        /// Form of the log: text or json.
        log_format: String = "text".to_owned(), "logFormat", live: true;

        /// What clients may do here: 4 read, 2 write, 6 both.
        broker_permission: i32 = 6, "brokerPermission", range: 0..=7, live: true;
        /// Queues of TBW102, the most that a topic made on first use gets.
        default_topic_queue_nums: i32 = 8, "defaultTopicQueueNums", range: 1..=65_535;
        /// Whether a send to an unknown topic makes it.
        auto_create_topic_enable: bool = true, "autoCreateTopicEnable", live: true, important: true;
        /// Whether the topic named like the cluster can be read and written.
        cluster_topic_enable: bool = true, "clusterTopicEnable";
        /// Whether the topic named like the broker can be read and written.
        broker_topic_enable: bool = true, "brokerTopicEnable";
        /// Whether a consumer of an unknown group makes it.
        auto_create_subscription_group: bool = true, "autoCreateSubscriptionGroup", live: true, important: true;
        /// Name of the topic for message traces.
        msg_trace_topic_name: String = "RMQ_SYS_TRACE_TOPIC".to_owned(), "msgTraceTopicName", important: true;
        /// Whether that topic is made here.
        trace_topic_enable: bool = false, "traceTopicEnable", important: true;
        /// Whether clients are told to trace.
        trace_on: bool = true, "traceOn", live: true;
        /// Region that clients are told.
        region_id: String = "DefaultRegion".to_owned(), "regionId", live: true;
        /// How often consumers' progress is saved.
        flush_consumer_offset_interval: u64 = 5_000, "flushConsumerOffsetInterval", range: 10..=3_600_000, unit: "ms";
        /// Whether transactional sends are refused.
        reject_transaction_message: bool = false, "rejectTransactionMessage", live: true, important: true;
        /// Whether replies of the request-reply pattern are also stored.
        store_reply_message_enable: bool = true, "storeReplyMessageEnable", live: true;
        /// Age below which a transaction's producer is not asked about it.
        transaction_time_out: u64 = 6_000, "transactionTimeOut", range: 0..=86_400_000, unit: "ms", live: true, important: true;
        /// How often a producer is asked about a transaction.
        transaction_check_max: u32 = 15, "transactionCheckMax", range: 0..=1_000_000, live: true, important: true;
        /// Pause between two passes over open transactions.
        transaction_check_interval: u64 = 60_000, "transactionCheckInterval", range: 10..=86_400_000, unit: "ms", important: true;
        /// Whether pulls may wait for messages as long as they ask; else shortPollingTimeMills.
        long_polling_enable: bool = true, "longPollingEnable", live: true;
        /// How long a pull waits without long polling.
        short_polling_time_mills: u64 = 1_000, "shortPollingTimeMills", range: 0..=60_000, unit: "ms", live: true;
        /// The most pulls that wait at a time.
        pull_thread_pool_queue_capacity: usize = 100_000, "pullThreadPoolQueueCapacity", range: 1..=10_000_000;
        /// Whether requests that waited too long are answered SYSTEM_BUSY instead of being handled.
        broker_fast_failure_enable: bool = true, "brokerFastFailureEnable", live: true;
        /// How long a send may wait before it is handled. Java: 200, which refuses bursts that would have gone well.
        wait_time_mills_in_send_queue: u64 = 1_000, "waitTimeMillsInSendQueue", range: 1..=3_600_000, unit: "ms", live: true;
        /// How long a pull may wait before it is handled.
        wait_time_mills_in_pull_queue: u64 = 5_000, "waitTimeMillsInPullQueue", range: 1..=3_600_000, unit: "ms", live: true;
        /// How long a heartbeat may wait before it is handled.
        wait_time_mills_in_heartbeat_queue: u64 = 31_000, "waitTimeMillsInHeartbeatQueue", range: 1..=3_600_000, unit: "ms", live: true;
        /// How long the end of a transaction may wait before it is handled.
        wait_time_mills_in_transaction_queue: u64 = 3_000, "waitTimeMillsInTransactionQueue", range: 1..=3_600_000, unit: "ms", live: true;
        /// The most sends of all clients that wait for the disk or a replica at a time; more are answered SYSTEM_BUSY.
        send_thread_pool_queue_capacity: usize = 10_000, "sendThreadPoolQueueCapacity", range: 1..=10_000_000, live: true;
        /// The part of these that one topic may have while no other waits; hot topics share it evenly, the rest is for quiet ones.
        hot_topic_send_percent: u32 = 80, "hotTopicSendPercent", range: 1..=100, unit: "percent", live: true;
        /// Whether a group that reads too far behind the log's end is no longer given messages (its consumeEnable is turned off).
        disable_consume_if_consumer_read_slowly: bool = false, "disableConsumeIfConsumerReadSlowly", live: true;
        /// How far behind is too far.
        consumer_fallbehind_threshold: u64 = 17_179_869_184, "consumerFallbehindThreshold", range: 0..=9_223_372_036_854_775_807, unit: "bytes", live: true;
        /// How often that is looked at.
        consumer_fallbehind_check_interval: u64 = 180_000, "consumerFallbehindCheckInterval", range: 50..=86_400_000, unit: "ms";
        /// Whether statistics are kept for each queue too.
        enable_detail_stat: bool = true, "enableDetailStat", live: true;
        /// The most rows of one family on the metrics page; all others share one named `other`.
        metrics_max_series: usize = 1_000, "metricsMaxSeries", range: 0..=1_000_000, live: true;
        /// Whether consumers are told of changes in their group.
        notify_consumer_ids_changed_enable: bool = true, "notifyConsumerIdsChangedEnable", live: true;
        /// How long a registration may take.
        register_broker_timeout_mills: u64 = 6_000, "registerBrokerTimeoutMills", range: 100..=60_000, unit: "ms", live: true;
        /// How often the broker registers; taken as 10 000 at least and 60 000 at most.
        register_name_server_period: u64 = 30_000, "registerNameServerPeriod", range: 1..=86_400_000, unit: "ms";
        /// Whether each registration carries all topics; else only one after a change.
        force_register: bool = true, "forceRegister", live: true;
        /// Whether registrations are compressed.
        compressed_register: bool = false, "compressedRegister", live: true;
        /// Whether far-behind consumers are sent to a slave.
        slave_read_enable: bool = false, "slaveReadEnable", live: true;
        /// Sends before this time are refused; milliseconds since 1970, 0 is off.
        start_accept_send_request_time_stamp: i64 = 0, "startAcceptSendRequestTimeStamp", range: 0..=i64::MAX, unit: "ms", live: true;
        /// Whether consumers may select by SQL92 expressions.
        enable_property_filter: bool = false, "enablePropertyFilter", live: true;
        /// Whether each message gets bits that say which groups' expressions take it; kept with enableConsumeQueueExt.
        enable_calc_filter_bit_map: bool = false, "enableCalcFilterBitMap", live: true;
        /// How many groups with expressions a topic is expected to have; more groups make the bits less telling.
        expect_consumer_num_use_filter: u32 = 32, "expectConsumerNumUseFilter", range: 1..=20_000;
        /// How often the bits may be wrong with that many groups, so that a message is read for nothing.
        max_error_rate_of_bloom_filter: u32 = 20, "maxErrorRateOfBloomFilter", range: 1..=99, unit: "percent";
        /// How long the expressions of a group without connections are kept.
        filter_data_clean_time_span: u64 = 86_400_000, "filterDataCleanTimeSpan", range: 0..=9_223_372_036_854_775_807, unit: "ms", live: true;
        /// Whether the expression of a message's own topic also selects its retries.
        filter_support_retry: bool = false, "filterSupportRetry", live: true;
        /// A client's connection is closed when nothing came or went for this long.
        server_channel_max_idle_time_seconds: u64 = 120, "serverChannelMaxIdleTimeSeconds", range: 1..=86_400, unit: "s";
        /// Length of the kernel's queue of new connections.
        server_socket_backlog: i32 = 1_024, "serverSocketBacklog", range: 1..=65_535;
        /// What all connections may buffer together, beside 64 KiB each; 0: a quarter of the container's memory.
        connection_buffer_bytes: u64 = 0, "connectionBufferBytes", range: 0..=1_099_511_627_776, unit: "bytes";
        /// Whether requests must be signed by an account that may make them.
        acl_enable: bool = false, "aclEnable", important: true;
        /// Directory with `conf/plain_acl.yml`, `conf/acl` and `conf/tools.yml`. Empty: `ROCKETMQ_HOME`, else the store.
        rocketmq_home: String = String::new(), "rocketmqHome";
        /// The file that new accounts go to, seen from rocketmqHome.
        acl_plain_file: String = "conf/plain_acl.yml".to_owned(), "aclPlainFile";
        /// Keys that request 25 may not change, with `;` between them.
        config_black_list: String = "configBlackList;brokerConfigPath".to_owned(), "configBlackList";

        /// Directory of the store. Empty: `store` in the home directory.
        store_path_root_dir: String = String::new(), "storePathRootDir", important: true;
        /// Directory of the log, or several with commas between them, which take turns. Empty: `commitlog` in the store.
        store_path_commit_log: String = String::new(), "storePathCommitLog", important: true;
        /// Further directories of log files, with commas between them, which get no new ones.
        read_only_commit_log_store_paths: String = String::new(), "readOnlyCommitLogStorePaths";
        /// Whether topics and groups that begin with `%LMQ%` are light: there without being made, one queue each.
        enable_lmq: bool = false, "enableLmq";
        /// Whether a message is also put into the queues that its INNER_MULTI_DISPATCH lists.
        enable_multi_dispatch: bool = false, "enableMultiDispatch";
        /// Keep an extension of each queue entry, with the bits of enableCalcFilterBitMap.
        enable_consume_queue_ext: bool = false, "enableConsumeQueueExt";
        /// The most light queues.
        max_lmq_consume_queue_num: usize = 20_000, "maxLmqConsumeQueueNum", range: 1..=10_000_000;
        /// Whether sends go to memory first and a thread copies them into the log; with ASYNC_FLUSH on a master only.
        transient_store_pool_enable: bool = false, "transientStorePoolEnable";
        /// What of the memory these may take, in lengths of a log file.
        transient_store_pool_size: usize = 5, "transientStorePoolSize", range: 1..=1_000_000;
        /// Whether a full pool refuses sends; else they wait.
        fast_fail_if_no_buffer_in_store_pool: bool = false, "fastFailIfNoBufferInStorePool";
        /// Pause between two copies out of the pool.
        commit_interval_commit_log: u64 = 200, "commitIntervalCommitLog", range: 1..=3_600_000, unit: "ms";
        /// Pages that make a copy out of the pool worth it.
        commit_commit_log_least_pages: u64 = 4, "commitCommitLogLeastPages", range: 0..=1_000_000;
        /// After this long anything is copied out of the pool.
        commit_commit_log_thorough_interval: u64 = 200, "commitCommitLogThoroughInterval", range: 1..=3_600_000, unit: "ms";
        /// Whether a new log file is made present in memory, and locked there while it is written.
        warm_maped_file_enable: bool = false, "warmMapedFileEnable";
        /// With SYNC_FLUSH: pages of a new file made present between two syncs of it. 0: no sync.
        flush_least_pages_when_warm_maped_file: u64 = 4096, "flushLeastPagesWhenWarmMapedFile", range: 0..=1_000_000, unit: "pages of 4 KiB";
        /// Length of a log file.
        mapped_file_size_commit_log: u64 = 1 << 30, "mappedFileSizeCommitLog", range: 65_536..=2_147_483_647, unit: "bytes";
        /// Length of a consume queue file.
        mapped_file_size_consume_queue: u64 = 6_000_000, "mappedFileSizeConsumeQueue", range: 20..=2_147_483_647, unit: "bytes";
        /// Size of a file of queue extensions.
        mapped_file_size_consume_queue_ext: u64 = 50_331_648, "mappedFileSizeConsumeQueueExt", range: 4096..=2_147_483_647, unit: "bytes";
        /// ASYNC_FLUSH: sends are answered at once; SYNC_FLUSH: when they are on disk.
        flush_disk_type: String = "ASYNC_FLUSH".to_owned(), "flushDiskType", important: true;
        /// Pause between two background flushes.
        flush_interval_commit_log: u64 = 500, "flushIntervalCommitLog", range: 1..=3_600_000, unit: "ms";
        /// Pages that make a background flush worth it.
        flush_commit_log_least_pages: u64 = 4, "flushCommitLogLeastPages", range: 0..=1_000_000;
        /// After this long anything is flushed.
        flush_commit_log_thorough_interval: u64 = 10_000, "flushCommitLogThoroughInterval", range: 1..=3_600_000, unit: "ms";
        /// Pause between two passes that write consume queues out.
        flush_interval_consume_queue: u64 = 1_000, "flushIntervalConsumeQueue", range: 1..=3_600_000, unit: "ms";
        /// How often consume queues are synced.
        flush_consume_queue_thorough_interval: u64 = 60_000, "flushConsumeQueueThoroughInterval", range: 1..=3_600_000, unit: "ms";
        /// How long a send waits for the disk with SYNC_FLUSH.
        sync_flush_timeout: u64 = 5_000, "syncFlushTimeout", range: 1..=3_600_000, unit: "ms";
        /// How long a send waits for a slave with SYNC_MASTER.
        slave_timeout: u64 = 3_000, "slaveTimeout", range: 1..=3_600_000, unit: "ms";
        /// An append that takes longer makes the broker refuse sends.
        os_page_cache_busy_time_out_mills: u64 = 1_000, "osPageCacheBusyTimeOutMills", range: 1..=3_600_000, unit: "ms";
        /// Longest body of a message or batch.
        max_message_size: usize = 4 << 20, "maxMessageSize", range: 1..=16_000_000, unit: "bytes";
        /// Whether recovery checks the bodies' checksums.
        check_crc_on_recover: bool = true, "checkCRCOnRecover";
        /// Pause between two looks for files to delete.
        clean_resource_interval: u64 = 10_000, "cleanResourceInterval", range: 10..=3_600_000, unit: "ms";
        /// Pause between two deletions of log files.
        delete_commit_log_files_interval: u64 = 100, "deleteCommitLogFilesInterval", range: 0..=60_000, unit: "ms";
        /// Pause between two deletions of consume queue files.
        delete_consume_queue_files_interval: u64 = 100, "deleteConsumeQueueFilesInterval", range: 0..=60_000, unit: "ms";
        /// Hours of the day at which expired files are deleted, with `;` between them.
        delete_when: String = "04".to_owned(), "deleteWhen", live: true;
        /// Zone of those hours, such as Europe/Berlin. Empty: the process's.
        delete_when_time_zone: String = String::new(), "deleteWhenTimeZone", live: true;
        /// How long log files are kept.
        file_reserved_time: u64 = 72, "fileReservedTime", range: 0..=876_000, unit: "hours", live: true;
        /// Use of the disk above which expired files go at any hour.
        disk_max_used_space_ratio: u32 = 75, "diskMaxUsedSpaceRatio", range: 10..=95, unit: "percent", live: true;
        /// What the store may use; ratios are then of this. 0: the whole disk.
        store_capacity_bytes: u64 = 0, "storeCapacityBytes", unit: "bytes", live: true;
        /// Whether files go before they expire when the disk runs full.
        clean_file_forcibly_enable: bool = true, "cleanFileForciblyEnable";
        /// The most bytes of a pull from memory.
        max_transfer_bytes_on_message_in_memory: usize = 262_144, "maxTransferBytesOnMessageInMemory", range: 1..=16_000_000, unit: "bytes";
        /// The most messages of a pull from memory.
        max_transfer_count_on_message_in_memory: usize = 32, "maxTransferCountOnMessageInMemory", range: 1..=100_000;
        /// The most bytes of a pull from the disk.
        max_transfer_bytes_on_message_in_disk: usize = 65_536, "maxTransferBytesOnMessageInDisk", range: 1..=16_000_000, unit: "bytes";
        /// The most messages of a pull from the disk.
        max_transfer_count_on_message_in_disk: usize = 8, "maxTransferCountOnMessageInDisk", range: 1..=100_000;
        /// Part of the memory that is taken to hold the log's end.
        access_message_in_memory_max_ratio: u32 = 40, "accessMessageInMemoryMaxRatio", range: 0..=100, unit: "percent";
        /// Whether messages can be found by key.
        message_index_enable: bool = true, "messageIndexEnable";
        /// Whether the index is rebuilt from the last flush after a crash.
        message_index_safe: bool = false, "messageIndexSafe";
        /// Slots of an index file.
        max_hash_slot_num: u32 = 5_000_000, "maxHashSlotNum", range: 1..=500_000_000;
        /// Entries of an index file.
        max_index_num: u32 = 20_000_000, "maxIndexNum", range: 2..=500_000_000;
        /// The most messages of a query by key.
        max_msgs_num_batch: i32 = 64, "maxMsgsNumBatch", range: 1..=10_000, live: true;
        /// The most messages of a query by unique id.
        default_query_max_num: i32 = 32, "defaultQueryMaxNum", range: 1..=10_000, live: true;
        /// ASYNC_MASTER, SYNC_MASTER (sends wait for a slave) or SLAVE (follows the master of the same brokerName).
        broker_role: String = "ASYNC_MASTER".to_owned(), "brokerRole", important: true;
        /// The master's replication address, `host:port`, for a slave. Empty: what the name servers say.
        ha_master_address: String = String::new(), "haMasterAddress";
        /// A side of a replication link that had nothing to write for this long (10 ms at least) writes a heartbeat. It paces a slave: that
        /// connects again after as long, and copies its master's tables after three fifths of it, then each second time.
        ha_send_heartbeat_interval: u64 = 5_000, "haSendHeartbeatInterval", range: 0..=2_147_483_647, unit: "ms";
        /// A side of a replication link that hears nothing for this long closes it.
        ha_housekeeping_interval: u64 = 20_000, "haHousekeepingInterval", range: 0..=2_147_483_647, unit: "ms";
        /// The most bytes of the log that a master sends at a time; taken as 1 at least and 4 194 292 at most. A slave of ours that
        /// lacks more than 64 MiB gets 262 144 at least.
        ha_transfer_batch_size: usize = 32_768, "haTransferBatchSize", range: 0..=2_147_483_647, unit: "bytes";
        /// A slave that lacks this much of the log is not waited for.
        ha_slave_fallbehind_max: i64 = 268_435_456, "haSlaveFallbehindMax", range: 0..=i64::MAX, unit: "bytes";
        /// Delays by level, from 1.
        message_delay_level: String = DelayLevels::DEFAULT.to_owned(), "messageDelayLevel";
        /// How often the progress of delayed messages is saved.
        flush_delay_offset_interval: u64 = 10_000, "flushDelayOffsetInterval", range: 10..=3_600_000, unit: "ms";
    }
    without_effect {
        "brokerConfigPath" = "", "haListenPort" = "10912",
        "sendMessageThreadPoolNums" = "4", "putMessageFutureThreadPoolNums" = "4",
        "pullMessageThreadPoolNums" = "20", "processReplyMessageThreadPoolNums" = "20",
        "queryMessageThreadPoolNums" = "10", "adminBrokerThreadPoolNums" = "16",
        "clientManageThreadPoolNums" = "32", "consumerManageThreadPoolNums" = "32",
        "heartbeatThreadPoolNums" = "2", "endTransactionThreadPoolNums" = "16",
        "loadBalanceProcessorThreadPoolNums" = "32",
        "putThreadPoolQueueCapacity" = "10000",
        "replyThreadPoolQueueCapacity" = "10000", "queryThreadPoolQueueCapacity" = "20000",
        "heartbeatThreadPoolQueueCapacity" = "50000", "endTransactionPoolQueueCapacity" = "100000",
        "clientManagerThreadPoolQueueCapacity" = "1000000", "consumerManagerThreadPoolQueueCapacity" = "1000000",
        "flushConsumerOffsetHistoryInterval" = "60000", "filterServerNums" = "0",
        "highSpeedMode" = "false", "commercialEnable" = "true", "commercialTimerCount" = "1",
        "commercialTransCount" = "1", "commercialBigCount" = "1", "commercialBaseCount" = "1",
        "transferMsgByHeap" = "true", "maxDelayTime" = "40",
        "autoDeleteUnusedStats" = "false",
        "isolateLogEnable" = "false", "offsetCheckInSlave" = "false", "duplicationEnable" = "false",
        "serverWorkerThreads" = "8", "serverCallbackExecutorThreads" = "0", "serverSelectorThreads" = "3",
        "serverOnewaySemaphoreValue" = "256", "serverAsyncSemaphoreValue" = "64",
        "serverSocketSndBufSize" = "0", "serverSocketRcvBufSize" = "0",
        "writeBufferHighWaterMark" = "0", "writeBufferLowWaterMark" = "0",
        "serverPooledByteBufAllocatorEnable" = "true", "useEpollNativeSelector" = "false",
        "clientWorkerThreads" = "4", "clientCallbackExecutorThreads" = "2", "clientOnewaySemaphoreValue" = "65535",
        "clientAsyncSemaphoreValue" = "65535", "connectTimeoutMillis" = "3000",
        "channelNotActiveInterval" = "60000", "clientChannelMaxIdleTimeSeconds" = "120",
        "clientSocketSndBufSize" = "0", "clientSocketRcvBufSize" = "0",
        "clientPooledByteBufAllocatorEnable" = "false", "clientCloseSocketIfTimeout" = "true",
        "storePathDLedgerCommitLog" = "",
        "bitMapLengthConsumeQueueExt" = "64",
        "flushCommitLogTimed" = "true", "flushConsumeQueueLeastPages" = "2",
        "useReentrantLockWhenPutMessage" = "true",
        "destroyMapedFileIntervalForcibly" = "120000", "redeleteHangedFileInterval" = "120000",
        "enableScheduleAsyncDeliver" = "false",
        "scheduleAsyncDeliverMaxPendingLimit" = "2000", "scheduleAsyncDeliverMaxResendNum2Blocked" = "3",
        "putMsgIndexHightWater" = "600000", "diskFallRecorded" = "true", "enableScheduleMessageStats" = "true",
        "debugLockEnable" = "false", "enableBatchPush" = "false",
        "dLegerGroup" = "", "dLegerPeers" = "", "dLegerSelfId" = "", "preferredLeaderId" = "",
    }
    refused {
        "enableDLegerCommitLog" unless "false":
            "this broker keeps its own log and does not take part in DLedger groups; remove the key",
        "messageStorePlugIn" unless "": "Java classes cannot be loaded into this broker; remove the key",
        "useTLS" unless "false": "the broker's outgoing connections are encrypted by -Dtls.enable=true, or by tls.enable=true in the file that -Dtls.config.file names",
    }
}

/// Settings that change while the broker runs.
pub(crate) type SharedSettings = Arc<RwLock<Arc<BrokerSettings>>>;

/// Java system properties that are understood with `-D`, beside any settings key.
const DEFINES: [&str; 7] = [
    "rocketmq.namesrv.addr",
    "rocketmq.namesrv.domain",
    "rocketmq.namesrv.domain.subgroup",
    "user.home",
    "namesrv.listenPort",
    "rocketmq.home.dir",
    "rocketmq.acl.plain.file",
];

impl BrokerSettings {
    /// Reads all sources and fills in what depends on this machine.
    ///
    /// # Errors
    /// A file that cannot be read, a value that is impossible or refused.
    pub fn load(options: &Options, env_namesrv: Option<String>) -> anyhow::Result<(Self, Notes)> {
        let mut settings = Self::default();
        if let Some(list) = options.default_namesrv(env_namesrv) {
            settings.namesrv_addr = list;
        }
        if let Some(domain) = options.define("rocketmq.namesrv.domain") {
            domain.clone_into(&mut settings.rmq_address_server_domain);
        }
        if let Some(group) = options.define("rocketmq.namesrv.domain.subgroup") {
            group.clone_into(&mut settings.rmq_address_server_sub_group);
        }
        let mut notes = Notes::default();
        if let Some(path) = &options.config {
            let file = Properties::load(path).context("read the settings file given with -c")?;
            let told = settings
                .apply(&file)
                .with_context(|| format!("in the settings file {}", path.display()))?;
            notes.merge(&told);
        }
        if settings.store_path_root_dir.is_empty() {
            let home = options
                .define("user.home")
                .map(str::to_owned)
                .or_else(|| std::env::var("HOME").ok());
            let home = home.filter(|h| !h.is_empty()).unwrap_or_else(|| "/".to_owned());
            settings.store_path_root_dir = Path::new(&home).join("store").display().to_string();
        }
        let live = live_file(&settings.store_path_root_dir);
        if live.exists() {
            let file = Properties::load(&live).context("read the settings that were changed at run time")?;
            settings
                .apply(&file)
                .with_context(|| format!("in {}", live.display()))?;
        }
        for (key, value) in &options.defines {
            // Any key of the file can be given as a define too.
            if !DEFINES.contains(&key.as_str()) && !key.starts_with("tls.") {
                let taken = settings
                    .set(key, value)
                    .with_context(|| format!("in -D{key}={value}"))?;
                notes.add(key, taken);
            }
        }
        if let Some(home) = options.define("rocketmq.home.dir") {
            home.clone_into(&mut settings.rocketmq_home);
        } else if settings.rocketmq_home.is_empty() {
            settings.rocketmq_home = std::env::var("ROCKETMQ_HOME").unwrap_or_default();
        }
        if let Some(file) = options.define("rocketmq.acl.plain.file") {
            file.clone_into(&mut settings.acl_plain_file);
        }
        if let Some(list) = &options.namesrv {
            settings.namesrv_addr.clone_from(list);
        }
        settings.complete()?;
        Ok((settings, notes))
    }

    /// Fills in what is left empty and refuses what cannot be.
    ///
    /// # Errors
    /// Values that exclude each other or cannot be understood.
    pub fn complete(&mut self) -> anyhow::Result<()> {
        if self.broker_name.trim().is_empty() {
            self.broker_name = host_name();
        }
        if self.broker_cluster_name.trim().is_empty() {
            bail!("brokerClusterName is empty; give the cluster a name or remove the key");
        }
        if self.broker_ip1.trim().is_empty() {
            self.broker_ip1 = own_address::own_address().to_string();
        }
        if self.broker_ip2.trim().is_empty() {
            self.broker_ip2.clone_from(&self.broker_ip1);
        }
        match role(&self.broker_role)? {
            BrokerRole::Slave if self.broker_id < 1 => bail!(
                "brokerRole=SLAVE needs a brokerId above 0, this one is {}: 0 is the master's",
                self.broker_id
            ),
            BrokerRole::Slave => {}
            // A master's id is 0, whatever the file says.
            BrokerRole::AsyncMaster | BrokerRole::SyncMaster => self.broker_id = 0,
        }
        flush_mode(&self.flush_disk_type)?;
        self.bloom_filter()?;
        DelayLevels::parse(&self.message_delay_level).map_err(anyhow::Error::msg)?;
        self.bind()?;
        self.name_servers()?;
        if ferromq_daemon::logging::Format::from_name(&self.log_format).is_none() {
            bail!(
                "logFormat={} is not possible: it must be text or json",
                self.log_format
            );
        }
        Ok(())
    }

    /// The address to listen on, without the port. All addresses, of IPv6 too, where it is 0.0.0.0 and brokerIP1 is one of IPv6.
    ///
    /// # Errors
    /// It is no IP address.
    pub fn bind(&self) -> anyhow::Result<IpAddr> {
        let bind: IpAddr = self.bind_address.trim().parse().with_context(|| {
            format!(
                "bindAddress={} is not possible: it must be an IP address of this machine, or 0.0.0.0",
                self.bind_address
            )
        })?;
        // All of IPv4 would leave out the very address that others are told.
        if bind == IpAddr::V4(Ipv4Addr::UNSPECIFIED) && own_address::is_v6(&self.broker_ip1) {
            return Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        }
        Ok(bind)
    }

    /// The name servers.
    ///
    /// # Errors
    /// The list cannot be understood.
    pub(crate) fn name_servers(&self) -> anyhow::Result<ferromq_remoting::NameServers> {
        if self.fetch_namesrv_addr_by_address_server && self.namesrv_addr.trim().is_empty() {
            let (domain, group) = (
                &self.rmq_address_server_domain,
                &self.rmq_address_server_sub_group,
            );
            let server = AddressServer::new(domain, group, None).with_context(|| {
                format!(
                    "rmqAddressServerDomain={domain} with rmqAddressServerSubGroup={group} is not possible"
                )
            })?;
            let every = Duration::from_millis(self.fetch_namesrv_addr_interval);
            return Ok(ferromq_remoting::NameServers::from_address_server(server, every));
        }
        ferromq_remoting::NameServers::parse(&self.namesrv_addr).with_context(|| {
            format!(
                "namesrvAddr={} is not possible: write host:port with ; between them",
                self.namesrv_addr
            )
        })
    }

    /// The shape of the bits that say to which groups a message may matter.
    ///
    /// # Errors
    /// They would be too long to be kept.
    pub(crate) fn bloom_filter(&self) -> anyhow::Result<BloomFilter> {
        let (groups, rate) = (
            self.expect_consumer_num_use_filter,
            self.max_error_rate_of_bloom_filter,
        );
        BloomFilter::new(rate, groups).with_context(|| {
            format!(
                "expectConsumerNumUseFilter={groups} with maxErrorRateOfBloomFilter={rate} needs more bits than a consume queue's \
                 extension can keep; lower the one or raise the other"
            )
        })
    }

    /// Directory of the store.
    pub fn root(&self) -> PathBuf {
        PathBuf::from(&self.store_path_root_dir)
    }

    /// Directory that Java calls ROCKETMQ_HOME.
    pub(crate) fn home(&self) -> PathBuf {
        let home = self.rocketmq_home.trim();
        if home.is_empty() {
            self.root()
        } else {
            PathBuf::from(home)
        }
    }

    /// Where accounts are.
    pub(crate) fn acl_places(&self) -> Places {
        Places {
            plain: self
                .home()
                .join(self.acl_plain_file.trim().trim_start_matches('/')),
            folder: self.home().join("conf/acl"),
        }
    }

    /// What the store is told.
    ///
    /// # Errors
    /// A text among the keys cannot be understood.
    pub(crate) fn store_config(&self, store_host: SocketAddr) -> anyhow::Result<StoreConfig> {
        let percent = |value: u32| u8::try_from(value).unwrap_or(100);
        let commit_log = self.store_path_commit_log.trim();
        let read_only = self.read_only_commit_log_store_paths.trim();
        Ok(StoreConfig {
            root: self.root(),
            commit_log_path: (!commit_log.is_empty()).then(|| PathBuf::from(commit_log)),
            read_only_commit_log_paths: (!read_only.is_empty()).then(|| PathBuf::from(read_only)),
            enable_lmq: self.enable_lmq,
            enable_multi_dispatch: self.enable_multi_dispatch,
            max_lmq_queues: self.max_lmq_consume_queue_num,
            transient_store_pool: self.transient_store_pool_enable,
            transient_store_pool_size: self.transient_store_pool_size,
            fail_fast_if_pool_is_full: self.fast_fail_if_no_buffer_in_store_pool,
            commit_interval: self.commit_interval_commit_log,
            commit_least_pages: self.commit_commit_log_least_pages,
            commit_thorough_interval: self.commit_commit_log_thorough_interval,
            warm_log_files: self.warm_maped_file_enable,
            warm_sync_pages: self.flush_least_pages_when_warm_maped_file,
            commit_log_file_size: self.mapped_file_size_commit_log,
            consume_queue_file_size: self.mapped_file_size_consume_queue,
            enable_consume_queue_ext: self.enable_consume_queue_ext,
            consume_queue_ext_file_size: self.mapped_file_size_consume_queue_ext,
            flush_mode: flush_mode(&self.flush_disk_type)?,
            flush_interval_commit_log: self.flush_interval_commit_log,
            flush_commit_log_least_pages: self.flush_commit_log_least_pages,
            flush_commit_log_thorough_interval: self.flush_commit_log_thorough_interval,
            flush_interval_consume_queue: self.flush_interval_consume_queue,
            flush_consume_queue_thorough_interval: self.flush_consume_queue_thorough_interval,
            sync_flush_timeout: self.sync_flush_timeout,
            slave_timeout: self.slave_timeout,
            ha_slave_fallbehind_max: self.ha_slave_fallbehind_max,
            page_cache_busy_timeout: self.os_page_cache_busy_time_out_mills,
            max_message_size: self.max_message_size,
            check_crc_on_recover: self.check_crc_on_recover,
            clean_resource_interval: self.clean_resource_interval,
            delete_commit_log_files_interval: self.delete_commit_log_files_interval,
            delete_consume_queue_files_interval: self.delete_consume_queue_files_interval,
            delete_when: self.delete_when.clone(),
            delete_when_time_zone: self.delete_when_time_zone.clone(),
            file_reserved_hours: self.file_reserved_time,
            disk_max_used_space_ratio: percent(self.disk_max_used_space_ratio),
            store_capacity_bytes: self.store_capacity_bytes,
            clean_file_forcibly_enable: self.clean_file_forcibly_enable,
            max_transfer_bytes_in_memory: self.max_transfer_bytes_on_message_in_memory,
            max_transfer_count_in_memory: self.max_transfer_count_on_message_in_memory,
            max_transfer_bytes_on_disk: self.max_transfer_bytes_on_message_in_disk,
            max_transfer_count_on_disk: self.max_transfer_count_on_message_in_disk,
            access_message_in_memory_max_ratio: percent(self.access_message_in_memory_max_ratio),
            message_index_enable: self.message_index_enable,
            message_index_safe: self.message_index_safe,
            max_hash_slot_num: self.max_hash_slot_num,
            max_index_num: self.max_index_num,
            max_query_messages: usize::try_from(self.max_msgs_num_batch).unwrap_or(64),
            role: role(&self.broker_role)?,
            delay_levels: DelayLevels::parse(&self.message_delay_level).map_err(anyhow::Error::msg)?,
            flush_delay_offset_interval: self.flush_delay_offset_interval,
            store_host,
            ..StoreConfig::default()
        })
    }
}

/// Where settings that were changed at run time are kept.
pub(crate) fn live_file(root: impl AsRef<Path>) -> PathBuf {
    root.as_ref().join("config").join("live.properties")
}

fn role(text: &str) -> anyhow::Result<BrokerRole> {
    match text.trim() {
        "ASYNC_MASTER" => Ok(BrokerRole::AsyncMaster),
        "SYNC_MASTER" => Ok(BrokerRole::SyncMaster),
        "SLAVE" => Ok(BrokerRole::Slave),
        other => bail!("brokerRole={other} is not possible: it must be ASYNC_MASTER, SYNC_MASTER or SLAVE"),
    }
}

fn flush_mode(text: &str) -> anyhow::Result<FlushMode> {
    match text.trim() {
        "ASYNC_FLUSH" => Ok(FlushMode::Async),
        "SYNC_FLUSH" => Ok(FlushMode::Sync),
        other => bail!("flushDiskType={other} is not possible: it must be ASYNC_FLUSH or SYNC_FLUSH"),
    }
}

fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "DEFAULT_BROKER".to_owned()
    } else {
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> anyhow::Result<(BrokerSettings, Notes)> {
        let (mut settings, notes) = BrokerSettings::from_properties(&Properties::parse(text)?)?;
        settings.complete()?;
        Ok((settings, notes))
    }

    fn refusal(text: &str) -> String {
        format!("{:#}", load(text).unwrap_err())
    }

    #[test]
    fn a_java_brokers_file_is_taken() {
        let (settings, notes) = load(
            "brokerClusterName = DefaultCluster\nbrokerName = broker-a\nbrokerId = 0\ndeleteWhen = 04\n\
             fileReservedTime = 48\nbrokerRole = ASYNC_MASTER\nflushDiskType = ASYNC_FLUSH\nsendMessageThreadPoolNums=16\n",
        )
        .unwrap();
        assert_eq!(
            (settings.broker_name.as_str(), settings.file_reserved_time),
            ("broker-a", 48)
        );
        assert_eq!(notes.without_effect, ["sendMessageThreadPoolNums"]);
        assert!(notes.unknown.is_empty());
    }

    #[test]
    fn what_cannot_be_kept_is_refused_with_the_reason() {
        for (text, word) in [
            ("enableDLegerCommitLog=true", "DLedger"),
            ("messageStorePlugIn=a.b.C", "Java classes"),
            ("brokerRole=SLAVE\nbrokerId=0", "above 0"),
            ("brokerRole=KING", "ASYNC_MASTER"),
            ("flushDiskType=MAYBE", "SYNC_FLUSH"),
            ("namesrvAddr=nowhere", "host:port"),
            ("bindAddress=eth0", "IP address"),
            ("messageDelayLevel=1s x", "messageDelayLevel"),
            ("diskMaxUsedSpaceRatio=99", "10 to 95"),
            ("listenPort=70000", "listenPort"),
            ("logFormat=xml", "text or json"),
        ] {
            let said = refusal(text);
            assert!(said.contains(word), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_printed_is_read_back() {
        let (settings, _) = load("brokerName=b\nbrokerIP1=10.1.2.3\nhttpPort=8080").unwrap();
        let printed = settings.to_properties().to_text();
        let (again, notes) = BrokerSettings::from_properties(&Properties::parse(&printed).unwrap()).unwrap();
        assert!(notes.unknown.is_empty(), "{notes:?}");
        assert_eq!(again.to_properties().to_text(), printed);
        assert_eq!(again.http_port, 8080);
    }

    #[test]
    fn a_slave_keeps_its_id() {
        assert_eq!(load("brokerRole=SLAVE\nbrokerId=2").unwrap().0.broker_id, 2);
    }

    #[test]
    fn a_masters_id_is_zero() {
        assert_eq!(load("brokerId=3").unwrap().0.broker_id, 0);
    }
}
