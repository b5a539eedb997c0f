//! What the store can be told. Names follow the keys of a RocketMQ broker's configuration file; the defaults are
//! the ones of RocketMQ 4.9.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use crate::fs::prealloc::Warm;

/// Whether an append is acknowledged before or after it is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMode {
    /// Acknowledge at once, flush in the background.
    #[default]
    Async,
    /// Acknowledge once `fdatasync` has returned.
    Sync,
}

/// What this broker is among its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BrokerRole {
    /// Takes appends and doesn't wait for replicas.
    #[default]
    AsyncMaster,
    /// Takes appends and waits for a replica.
    SyncMaster,
    /// Follows a master; refuses appends of its own.
    Slave,
}

/// Where the store gets the time from: the system, or a hand that tests turn.
#[derive(Clone, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// A clock that stands at `millis` until [`Clock::set`] moves it.
    pub fn manual(millis: i64) -> Self {
        Self(Some(Arc::new(AtomicI64::new(millis))))
    }

    /// Milliseconds since the epoch.
    pub fn now(&self) -> i64 {
        self.0.as_ref().map_or_else(
            || {
                SystemTime::now()
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |d| d.as_millis() as i64)
            },
            |hand| hand.load(Ordering::Acquire),
        )
    }

    pub(crate) fn is_manual(&self) -> bool {
        self.0.is_some()
    }

    /// Moves a manual clock; does nothing to the system's.
    pub fn set(&self, millis: i64) {
        if let Some(hand) = &self.0 {
            hand.store(millis, Ordering::Release);
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Clock::manual"
        } else {
            "Clock::system"
        })
    }
}

/// The table of delay levels: level `n` (from 1) waits for the `n`th duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayLevels(Vec<i64>);

impl DelayLevels {
    /// Java's default table.
    pub const DEFAULT: &'static str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

    /// Parses `messageDelayLevel`: numbers with a unit s, m, h or d, parted by spaces.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.split_ascii_whitespace()
            .map(|word| {
                let bad = || {
                    format!(
                        "messageDelayLevel has the entry {word:?}; write a whole number and one of s, m, h, d, such as 30s"
                    )
                };
                let unit = match word.as_bytes().last() {
                    Some(b's') => 1_000,
                    Some(b'm') => 60_000,
                    Some(b'h') => 3_600_000,
                    Some(b'd') => 86_400_000,
                    _ => return Err(bad()),
                };
                let count: i64 = word[..word.len() - 1].parse().map_err(|_| bad())?;
                count.checked_mul(unit).filter(|ms| *ms >= 0).ok_or_else(bad)
            })
            .collect::<Result<Vec<_>, _>>()
            .map(Self)
    }

    /// The highest level; 0 if there is none.
    pub fn max_level(&self) -> i32 {
        self.0.len() as i32
    }

    /// Milliseconds that a message of `level` waits; `None` for a level that isn't in the table.
    pub fn delay(&self, level: i32) -> Option<i64> {
        usize::try_from(level)
            .ok()
            .and_then(|l| l.checked_sub(1))
            .and_then(|i| self.0.get(i))
            .copied()
    }

    /// When a message of `level` stored at `store_timestamp` is due. Levels above the table count as its highest.
    pub fn due(&self, level: i32, store_timestamp: i64) -> i64 {
        store_timestamp.saturating_add(self.delay(level.min(self.max_level())).unwrap_or(1_000))
    }
}

impl Default for DelayLevels {
    fn default() -> Self {
        Self::parse(Self::DEFAULT).unwrap_or(Self(Vec::new()))
    }
}

/// The store's configuration. Times are milliseconds and sizes bytes unless a field says otherwise.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a key of the configuration file"
)]
pub struct StoreConfig {
    /// `storePathRootDir`: the directory that everything is in. Default `store` under the working directory; the broker
    /// fills in its own.
    pub root: PathBuf,
    /// `storePathCommitLog`: where the log's files are; several directories are parted by commas, and new files go to them in
    /// turn. Default `commitlog` under the root.
    pub commit_log_path: Option<PathBuf>,
    /// `readOnlyCommitLogStorePaths`: directories, parted by commas, whose log files are read and that get no new ones.
    /// Default none.
    pub read_only_commit_log_paths: Option<PathBuf>,
    /// `mappedFileSizeCommitLog`: length of a log file. Default 1 GiB, 64 KiB to 2 GiB − 1.
    pub commit_log_file_size: u64,
    /// `mappedFileSizeConsumeQueue`: length of a consume queue file, rounded up to whole units of 20. Default 6 000 000.
    pub consume_queue_file_size: u64,
    /// Keep an extension of each queue's units, with the bits of [`FilterBits`](crate::FilterBits).
    pub enable_consume_queue_ext: bool,
    /// Bytes of an extension file, from 4096 to 2 GiB − 1.
    pub consume_queue_ext_file_size: u64,
    /// `flushDiskType`. Default asynchronous.
    pub flush_mode: FlushMode,
    /// `flushIntervalCommitLog`: pause between two background flushes. Default 500.
    pub flush_interval_commit_log: u64,
    /// `flushCommitLogLeastPages`: pages of 4096 that make a background flush worth it. Default 4.
    pub flush_commit_log_least_pages: u64,
    /// `flushCommitLogThoroughInterval`: after this long anything is flushed. Default 10 000.
    pub flush_commit_log_thorough_interval: u64,
    /// `flushIntervalConsumeQueue`: pause between two passes that write consume queues out. Default 1000.
    pub flush_interval_consume_queue: u64,
    /// `flushConsumeQueueThoroughInterval`: how often consume queues are synced and the checkpoint written. Default 60 000.
    pub flush_consume_queue_thorough_interval: u64,
    /// `syncFlushTimeout`: how long an acknowledgement waits for the disk. Default 5000.
    pub sync_flush_timeout: u64,
    /// `slaveTimeout`: how long an acknowledgement waits for a replica. Default 3000.
    pub slave_timeout: u64,
    /// `haSlaveFallbehindMax`: a replica that lags by this many bytes isn't waited for. Default 256 MiB.
    pub ha_slave_fallbehind_max: i64,
    /// `osPageCacheBusyTimeOutMills`: an append that has held the lock for longer makes the store busy. Default 1000.
    pub page_cache_busy_timeout: u64,
    /// `maxMessageSize`: longest body of a message or batch. Default 4 MiB.
    pub max_message_size: usize,
    /// `checkCRCOnRecover`. Default true.
    pub check_crc_on_recover: bool,
    /// `cleanResourceInterval`: pause between two looks for files to delete. Default 10 000.
    pub clean_resource_interval: u64,
    /// `deleteCommitLogFilesInterval`: pause between two deletions of log files. Default 100.
    pub delete_commit_log_files_interval: u64,
    /// `deleteConsumeQueueFilesInterval`: pause between two deletions of consume queue files. Default 100.
    pub delete_consume_queue_files_interval: u64,
    /// `deleteWhen`: hours of the day in which expired files go, parted by `;`. Default `04`.
    pub delete_when: String,
    /// `deleteWhenTimeZone`: IANA name of the zone of those hours. Default empty: the process's own.
    pub delete_when_time_zone: String,
    /// `fileReservedTime`: hours that a log file is kept after its last write. Default 72.
    pub file_reserved_hours: u64,
    /// `diskMaxUsedSpaceRatio`: percentage above which expired files go at any hour. Default 75, 10 to 95.
    pub disk_max_used_space_ratio: u8,
    /// Percentage above which the oldest files go, expired or not. Default 85.
    pub disk_space_clean_forcibly_ratio: u8,
    /// Percentage above which appends are refused. Default 90.
    pub disk_space_warning_level_ratio: u8,
    /// `storeCapacityBytes`: what the store may use; ratios are then of this and not of the file system. Default 0: all.
    pub store_capacity_bytes: u64,
    /// `cleanFileForciblyEnable`: whether files go before they expire when the disk runs full. Default true.
    pub clean_file_forcibly_enable: bool,
    /// `maxTransferBytesOnMessageInMemory`. Default 262 144.
    pub max_transfer_bytes_in_memory: usize,
    /// `maxTransferCountOnMessageInMemory`. Default 32.
    pub max_transfer_count_in_memory: usize,
    /// `maxTransferBytesOnMessageInDisk`. Default 65 536.
    pub max_transfer_bytes_on_disk: usize,
    /// `maxTransferCountOnMessageInDisk`. Default 8.
    pub max_transfer_count_on_disk: usize,
    /// `accessMessageInMemoryMaxRatio`: percentage of the memory that counts as holding the log's end. Default 40.
    pub access_message_in_memory_max_ratio: u8,
    /// `messageIndexEnable`. Default true.
    pub message_index_enable: bool,
    /// `messageIndexSafe`. Default false.
    pub message_index_safe: bool,
    /// `maxHashSlotNum`: slots of an index file. Default 5 000 000.
    pub max_hash_slot_num: u32,
    /// `maxIndexNum`: entries of an index file. Default 20 000 000.
    pub max_index_num: u32,
    /// `maxMsgsNumBatch`: most messages that a query by key returns. Default 64.
    pub max_query_messages: usize,
    /// `brokerRole`. Default ASYNC_MASTER.
    pub role: BrokerRole,
    /// `messageDelayLevel`. Default Java's 18 levels.
    pub delay_levels: DelayLevels,
    /// `flushDelayOffsetInterval`: how often delayOffset.json is saved. Default 10 000.
    pub flush_delay_offset_interval: u64,
    /// Address that records say they were stored by, and that message ids carry: brokerIP1 and listenPort.
    pub store_host: SocketAddr,
    /// `enableLmq`: whether light queues are counted, and their number limited. Default false.
    pub enable_lmq: bool,
    /// `enableMultiDispatch`: whether a message is also put into the queues that its INNER_MULTI_DISPATCH lists. Default
    /// false.
    pub enable_multi_dispatch: bool,
    /// `maxLmqConsumeQueueNum`: most light queues, if `enable_lmq`. Default 20 000.
    pub max_lmq_queues: usize,
    /// `transientStorePoolEnable`: whether appends go to memory first and a thread copies them into the log; with asynchronous
    /// flushing on a master only. Default false.
    pub transient_store_pool: bool,
    /// `transientStorePoolSize`: memory that these may take, in lengths of a log file. Default 5.
    pub transient_store_pool_size: usize,
    /// `fastFailIfNoBufferInStorePool`: whether a full pool refuses appends; else they wait. Default false.
    pub fail_fast_if_pool_is_full: bool,
    /// `commitIntervalCommitLog`: pause between two copies out of the pool. Default 200.
    pub commit_interval: u64,
    /// `commitCommitLogLeastPages`: pages of 4096 that make a copy worth it. Default 4.
    pub commit_least_pages: u64,
    /// `commitCommitLogThoroughInterval`: after this long anything is copied. Default 200.
    pub commit_thorough_interval: u64,
    /// `warmMapedFileEnable`: whether all pages of a new log file are made present, and locked in memory as long as it's
    /// written. A kernel that refuses to lock is warned of. Default false.
    pub warm_log_files: bool,
    /// `flushLeastPagesWhenWarmMapedFile`: with [`FlushMode::Sync`], pages of a new file that are made present between two syncs of
    /// it; 0: no sync. Default 4096.
    pub warm_sync_pages: u64,
    /// Open consume queue files kept at a time. Default 512.
    pub open_queue_files: usize,
    /// Where the time comes from. Default the system.
    pub clock: Clock,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            root: PathBuf::from("store"),
            commit_log_path: None,
            read_only_commit_log_paths: None,
            commit_log_file_size: 1 << 30,
            consume_queue_file_size: 6_000_000,
            enable_consume_queue_ext: false,
            consume_queue_ext_file_size: 48 << 20,
            flush_mode: FlushMode::Async,
            flush_interval_commit_log: 500,
            flush_commit_log_least_pages: 4,
            flush_commit_log_thorough_interval: 10_000,
            flush_interval_consume_queue: 1_000,
            flush_consume_queue_thorough_interval: 60_000,
            sync_flush_timeout: 5_000,
            slave_timeout: 3_000,
            ha_slave_fallbehind_max: 256 << 20,
            page_cache_busy_timeout: 1_000,
            max_message_size: 4 << 20,
            check_crc_on_recover: true,
            clean_resource_interval: 10_000,
            delete_commit_log_files_interval: 100,
            delete_consume_queue_files_interval: 100,
            delete_when: "04".to_owned(),
            delete_when_time_zone: String::new(),
            file_reserved_hours: 72,
            disk_max_used_space_ratio: 75,
            disk_space_clean_forcibly_ratio: 85,
            disk_space_warning_level_ratio: 90,
            store_capacity_bytes: 0,
            clean_file_forcibly_enable: true,
            max_transfer_bytes_in_memory: 262_144,
            max_transfer_count_in_memory: 32,
            max_transfer_bytes_on_disk: 65_536,
            max_transfer_count_on_disk: 8,
            access_message_in_memory_max_ratio: 40,
            message_index_enable: true,
            message_index_safe: false,
            max_hash_slot_num: 5_000_000,
            max_index_num: 20_000_000,
            max_query_messages: 64,
            role: BrokerRole::AsyncMaster,
            delay_levels: DelayLevels::default(),
            flush_delay_offset_interval: 10_000,
            store_host: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 10_911),
            transient_store_pool: false,
            transient_store_pool_size: 5,
            fail_fast_if_pool_is_full: false,
            commit_interval: 200,
            commit_least_pages: 4,
            commit_thorough_interval: 200,
            warm_log_files: false,
            warm_sync_pages: 4096,
            enable_lmq: false,
            enable_multi_dispatch: false,
            max_lmq_queues: 20_000,
            open_queue_files: 512,
            clock: Clock::default(),
        }
    }
}

/// The paths in a list parted by commas, each once.
fn split_paths(list: &Path) -> Vec<PathBuf> {
    let Some(text) = list.to_str() else {
        return vec![list.to_owned()];
    };
    let mut paths = Vec::new();
    for path in text.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    paths
}

impl StoreConfig {
    /// Directory of the log; the first one if there are several.
    pub fn commit_log_dir(&self) -> PathBuf {
        self.commit_log_dirs().swap_remove(0)
    }

    /// Directories of the log that get new files. There's at least one.
    pub fn commit_log_dirs(&self) -> Vec<PathBuf> {
        let read_only = self.read_only_commit_log_dirs();
        let all = self
            .commit_log_path
            .as_deref()
            .map(split_paths)
            .unwrap_or_default();
        let writable: Vec<_> = all.into_iter().filter(|dir| !read_only.contains(dir)).collect();
        if writable.is_empty() {
            return vec![self.root.join("commitlog")];
        }
        writable
    }

    /// Directories of the log that are only read.
    pub fn read_only_commit_log_dirs(&self) -> Vec<PathBuf> {
        self.read_only_commit_log_paths
            .as_deref()
            .map(split_paths)
            .unwrap_or_default()
    }

    /// Directory of the extensions of consume queues.
    pub fn consume_queue_ext_dir(&self) -> PathBuf {
        self.root.join("consumequeue_ext")
    }

    /// Directory of the consume queues.
    pub fn consume_queue_dir(&self) -> PathBuf {
        self.root.join("consumequeue")
    }

    /// Directory of the index.
    pub fn index_dir(&self) -> PathBuf {
        self.root.join("index")
    }

    /// A table of the broker's under `config/`.
    pub fn config_file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.root.join("config").join(name)
    }

    pub(crate) fn warm(&self) -> Warm {
        if !self.warm_log_files {
            return Warm::No;
        }
        let synced = self.flush_mode == FlushMode::Sync;
        Warm::Yes {
            sync_every: if synced {
                self.warm_sync_pages.saturating_mul(4096)
            } else {
                0
            },
        }
    }

    /// Bytes of the pool that appends go to first, if there's one.
    pub fn pool_bytes(&self) -> Option<u64> {
        let used = self.transient_store_pool
            && self.flush_mode == FlushMode::Async
            && self.role != BrokerRole::Slave;
        used.then(|| (self.transient_store_pool_size.max(1) as u64).saturating_mul(self.commit_log_file_size))
    }

    /// Consume queue file size in whole units.
    pub fn queue_file_size(&self) -> u64 {
        self.consume_queue_file_size.max(20).div_ceil(20) * 20
    }
}
