//! What the broker tells of itself in runtime info (28): a flat table of texts under Java's names, which the
//! administration tools read.

use std::collections::BTreeMap;
use std::path::Path;

use ferromq_protocol::body::KvTable;
use ferromq_protocol::names::topics;

use crate::core::Core;
use crate::stats::Totals;

/// `[ 1 days, 2 hours, 3 minutes, 4 seconds ]`, as Java prints an age.
fn age(millis: i64) -> String {
    let seconds = millis.max(0) / 1000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    format!(
        "[ {days} days, {hours} hours, {minutes} minutes, {} seconds ]",
        seconds % 60
    )
}

/// `10.5 GiB`, as Java prints sizes.
fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit < 5 {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"][unit])
}

fn capacity(dir: &Path) -> String {
    let (total, free) =
        rustix::fs::statvfs(dir).map_or((0, 0), |at| (at.f_blocks * at.f_frsize, at.f_bfree * at.f_frsize));
    format!("Total : {}, Free : {}.", size(total), size(free))
}

/// The key of the ratio of one directory of the log.
fn ratio_key(dir: &Path) -> String {
    format!("commitLogDiskRatio_{}", dir.display())
}

/// What waits. Requests are handled as they are read; what may wait is the answer: of sends for the disk or a replica, of
/// pulls for a message.
fn waiting(core: &Core, set: &mut dyn FnMut(&str, String)) {
    let settings = core.settings();
    for (lane, size, capacity) in [
        (
            "send",
            core.sends_waiting.now(),
            settings.send_thread_pool_queue_capacity,
        ),
        (
            "pull",
            core.held.parked(),
            settings.pull_thread_pool_queue_capacity,
        ),
        ("query", 0, 20_000),
    ] {
        set(&format!("{lane}ThreadPoolQueueSize"), size.to_string());
        set(&format!("{lane}ThreadPoolQueueCapacity"), capacity.to_string());
        set(&format!("{lane}ThreadPoolQueueHeadWaitTimeMills"), "0".to_owned());
    }
}

/// All figures, as of `now` (milliseconds since the epoch).
pub(crate) fn table(core: &Core, now: i64) -> KvTable {
    let figures = core.store.figures();
    let totals = core.stats.totals();
    let (yesterday, today) = core.stats.mornings();
    let settings = core.settings();
    let mut table = BTreeMap::new();
    let mut set = |key: &str, value: String| {
        table.insert(key.to_owned(), value);
    };
    set(
        "brokerVersionDesc",
        ferromq_protocol::version_name(ferromq_protocol::VERSION),
    );
    set("brokerVersion", ferromq_protocol::VERSION.to_string());
    set("ferromqVersion", env!("CARGO_PKG_VERSION").to_owned());
    set("bootTimestamp", core.booted_at.to_string());
    set("runtime", age(now - core.booted_at));
    set(
        "startAcceptSendRequestTimeStamp",
        settings.start_accept_send_request_time_stamp.to_string(),
    );

    set("putMessageTimesTotal", figures.puts.messages.to_string());
    set("putMessageFailedTimes", figures.puts.failed.to_string());
    set("putMessageSizeTotal", figures.puts.bytes.to_string());
    let average = if figures.puts.messages == 0 {
        0.0
    } else {
        figures.puts.bytes as f64 / figures.puts.messages as f64
    };
    set("putMessageAverageSize", format!("{average:?}"));
    let (longest_put, longest_get) = core.stats.longest();
    set("putMessageEntireTimeMax", longest_put.to_string());
    set("getMessageEntireTimeMax", longest_get.to_string());
    set("putLatency99", format!("{:.2}", core.stats.put_within(0.99)));
    set("putLatency999", format!("{:.2}", core.stats.put_within(0.999)));
    // There is no such pool here; Java says this of a pool that is off.
    set("remainTransientStoreBufferNumbs", i32::MAX.to_string());
    set("putMessageDistributeTime", core.stats.put_distribution());
    set("putTps", core.stats.rates(|t| t.put));
    set("getFoundTps", core.stats.rates(|t| t.get_found));
    set("getMissTps", core.stats.rates(|t| t.get_miss));
    set("getTotalTps", core.stats.rates(|t| t.get_found + t.get_miss));
    set("getTransferedTps", core.stats.rates(|t| t.transferred));
    let mut mornings = |name: &str, of: fn(&Totals) -> u64| {
        set(
            &format!("msg{name}TotalYesterdayMorning"),
            of(&yesterday).to_string(),
        );
        set(&format!("msg{name}TotalTodayMorning"), of(&today).to_string());
        set(&format!("msg{name}TotalTodayNow"), of(&totals).to_string());
    };
    mornings("Put", |t| t.put);
    mornings("Get", |t| t.transferred);

    set("commitLogMinOffset", figures.log_min.to_string());
    set("commitLogMaxOffset", figures.log_max.to_string());
    let log_dir = core.store.config().commit_log_dir();
    set("commitLogDiskRatio", format!("{:?}", figures.log_disk_ratio));
    set(&ratio_key(&log_dir), format!("{:?}", figures.log_disk_ratio));
    set("consumeQueueDiskRatio", format!("{:?}", figures.queue_disk_ratio));
    set("commitLogDirCapacity", capacity(&log_dir));
    set("dispatchBehindBytes", figures.dispatch_behind.to_string());
    set("dispatchMaxBuffer", "0".to_owned());
    set(
        "remainHowManyDataToFlush",
        format!("{} B", (figures.log_max - figures.log_flushed).max(0)),
    );
    set(
        "pageCacheLockTimeMills",
        figures.page_cache_lock_millis.to_string(),
    );
    set(
        "earliestMessageTimeStamp",
        figures.earliest_store_time.to_string(),
    );
    for (level, offset) in core.store.delay_offsets() {
        let max = core.store.max_offset(topics::SCHEDULE, level - 1);
        set(
            &format!("scheduleMessageOffset_{level}"),
            format!("{offset},{max}"),
        );
    }
    waiting(core, &mut set);
    set("EndTransactionQueueSize", "0".to_owned());
    set("EndTransactionThreadPoolQueueCapacity", "0".to_owned());
    KvTable { table }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_java_does() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(10 << 30), "10.0 GiB");
        assert_eq!(size(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn ages_are_written_as_java_does() {
        assert_eq!(age(0), "[ 0 days, 0 hours, 0 minutes, 0 seconds ]");
        assert_eq!(
            age(((86_400 + 2 * 3600 + 3 * 60 + 4) * 1000) + 999),
            "[ 1 days, 2 hours, 3 minutes, 4 seconds ]"
        );
    }
}
