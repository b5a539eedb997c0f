//! The store's handle: what the broker calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use ferromq_protocol::names::topics;

use crate::{
    Figures, GetRequest, GetResult, Hooks, KeyQuery, KeyQueryResult, MessageFilter, OpenError, Progress, Put,
    PutBatch, PutError, PutMessage, QueuePositions, QueueUnit, ReadError, ShutdownError, ShutdownReport,
    StartError, StoreConfig, WriteRefusal, clean::plan, consume_queue::offset_of, core::Core, ha::Replica,
    open, places,
};

/// The store. Clones share it; when the last one goes without a [`Store::shutdown`], the next start has to recover.
#[derive(Debug, Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

#[derive(Debug)]
struct Handle {
    core: Arc<Core>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.abandon();
    }
}

/// Topics whose queues stay, whatever the topic table says; light queues do, too.
const KEPT: [&str; 3] = [topics::SCHEDULE, topics::TRANS_HALF, topics::TRANS_OP_HALF];

impl Store {
    /// Takes the lock, loads and recovers. `progress` can be read meanwhile by another thread.
    pub fn open(config: StoreConfig, progress: &Progress, hooks: Hooks) -> Result<Self, OpenError> {
        let core = Arc::new(open::open(config, progress, hooks)?);
        Ok(Self {
            handle: Arc::new(Handle { core }),
        })
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// Brings the queues up to the log, writes the abort file and starts the threads.
    pub fn start(&self) -> Result<(), StartError> {
        self.core().start()
    }

    /// Flushes everything, writes the checkpoint, removes the abort file if nothing is left to recover, and lets go of the
    /// lock. The store takes and gives nothing afterwards. A second call does nothing.
    pub fn shutdown(&self) -> Result<ShutdownReport, ShutdownError> {
        self.core().shutdown()
    }

    /// The configuration it was opened with.
    pub fn config(&self) -> &StoreConfig {
        &self.core().config
    }

    /// Appends a message. It's readable in the log when this returns, and in its queue very soon after.
    pub fn put(&self, message: PutMessage<'_>) -> Result<Put, PutError> {
        self.core().put(&message, true)
    }

    /// Appends a batch: all of it or nothing, with consecutive offsets.
    pub fn put_batch(&self, batch: PutBatch<'_>) -> Result<Put, PutError> {
        self.core().put_batch(&batch)
    }

    /// Reads from a queue.
    pub fn get(&self, request: &GetRequest<'_>, filter: &dyn MessageFilter) -> Result<GetResult, ReadError> {
        self.core().get(request, filter)
    }

    /// The record at a log offset, if there is one.
    pub fn look_up(&self, physical: i64) -> Option<Bytes> {
        self.core().log.look_up(physical)
    }

    /// Offset after the last message of a queue; 0 for an unknown one.
    pub fn max_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.core()
            .dispatch
            .queues
            .find(topic, queue_id)
            .map_or(0, |q| q.range().1)
    }

    /// First offset of a queue; 0 for an unknown one.
    pub fn min_offset(&self, topic: &str, queue_id: i32) -> i64 {
        self.core()
            .dispatch
            .queues
            .find(topic, queue_id)
            .map_or(0, |q| q.range().0)
    }

    /// The offset whose message was stored nearest to `timestamp`; 0 for an empty queue, the last message's if all are
    /// older.
    pub fn offset_by_time(&self, topic: &str, queue_id: i32, timestamp: i64) -> i64 {
        let core = self.core();
        core.dispatch
            .queues
            .find(topic, queue_id)
            .map_or(0, |q| core.offset_by_time(&q, timestamp))
    }

    /// When the first message of a queue was stored, in milliseconds.
    pub fn earliest_store_time(&self, topic: &str, queue_id: i32) -> Option<i64> {
        let queue = self.core().dispatch.queues.find(topic, queue_id)?;
        self.core().unit_store_time(&queue, queue.range().0)
    }

    /// When a message was stored, in milliseconds.
    pub fn store_time(&self, topic: &str, queue_id: i32, offset: i64) -> Option<i64> {
        let queue = self.core().dispatch.queues.find(topic, queue_id)?;
        self.core().unit_store_time(&queue, offset)
    }

    /// Whether the message is in the part of the log that memory is thought to hold.
    pub fn is_hot(&self, topic: &str, queue_id: i32, offset: i64) -> bool {
        let core = self.core();
        let unit = core
            .dispatch
            .queues
            .find(topic, queue_id)
            .and_then(|q| q.unit(&core.dispatch.queues.files, offset).ok().flatten());
        unit.is_some_and(|u| !u.is_pre_blank() && !core.is_cold(u.physical))
    }

    /// Up to `count` units of a queue from an offset, as they are; None for a queue that does not exist.
    pub fn queue_units(
        &self,
        topic: &str,
        queue_id: i32,
        offset: i64,
        count: usize,
    ) -> Option<Vec<QueueUnit>> {
        let core = self.core();
        let queue = core.dispatch.queues.find(topic, queue_id)?;
        let (min, max) = queue.range();
        if offset < min || offset >= max {
            return Some(Vec::new());
        }
        let wanted = (offset..max).take(count);
        let units = wanted.map_while(|at| queue.unit(&core.dispatch.queues.files, at).ok().flatten());
        let units: Vec<_> = units.filter(|unit| !unit.is_pre_blank()).collect();
        let extended = queue.with_ext(&core.dispatch.queues.files, |mut ext| {
            let with_extension = units.iter().map(|unit| QueueUnit {
                physical: unit.physical,
                size: unit.size,
                tags_code: unit.tags_code,
                extension: offset_of(unit.tags_code).and_then(|at| ext.as_mut()?.read(at).ok()?),
            });
            with_extension.collect()
        });
        Some(extended)
    }

    /// Looks messages up by key.
    pub fn query(&self, query: &KeyQuery<'_>) -> KeyQueryResult {
        self.core().query(query)
    }

    /// Positions of every queue, in no order.
    pub fn queues(&self) -> Vec<QueuePositions> {
        let all = self.core().dispatch.queues.all();
        let positions = all.iter().map(|q| {
            let (min_offset, max_offset) = q.range();
            QueuePositions {
                topic: q.topic().clone(),
                queue_id: q.id(),
                min_offset,
                max_offset,
            }
        });
        positions.collect()
    }

    /// Removes the queues of topics that `keep` says no to; those of delayed messages and of transactions stay. Records stay
    /// in the log until they expire. Returns the topics removed.
    pub fn delete_topics(&self, keep: &dyn Fn(&str) -> bool) -> Vec<String> {
        let core = self.core();
        let gone = core
            .dispatch
            .queues
            .topics()
            .into_iter()
            .filter(|t| !KEPT.contains(&&**t) && !places::is_light(t) && !keep(t));
        let mut removed = Vec::new();
        for topic in gone {
            let result = core.log.holding_appends(|| {
                // A record that isn't dispatched yet would bring its queue back.
                let deadline = Instant::now() + Duration::from_secs(1);
                while core.started.load(Ordering::Acquire)
                    && core.dispatched() < core.log.max()
                    && Instant::now() < deadline
                {
                    core.reput_signal.notify();
                    std::thread::park_timeout(Duration::from_micros(200));
                }
                core.dispatch.queues.remove_topic(&topic)
            });
            match result {
                Ok(()) => removed.push(topic.to_string()),
                Err(error) => tracing::error!(%topic, %error, "cannot delete the queues of a topic"),
            }
        }
        removed
    }

    /// Removes queues all of whose records are gone from the log.
    pub fn clean_expired_queues(&self) {
        self.core().remove_expired_queues();
    }

    /// Changes `fileReservedTime` (hours) and `diskMaxUsedSpaceRatio` (percent, 10 to 95) while running.
    pub fn set_retention(&self, file_reserved_hours: u64, disk_max_used_space_ratio: u8) {
        self.core()
            .disk
            .set_retention(file_reserved_hours, disk_max_used_space_ratio);
    }

    /// Changes `deleteWhen`, `deleteWhenTimeZone` and `storeCapacityBytes` while running.
    ///
    /// # Errors
    /// Says which of the first two is wrong; nothing is changed then.
    pub fn set_schedule(
        &self,
        delete_when: &str,
        time_zone: &str,
        capacity_bytes: u64,
    ) -> Result<(), String> {
        let hours = plan::parse_hours(delete_when)?;
        let zone = plan::parse_zone(time_zone)?;
        self.core().disk.set_schedule(hours, zone, capacity_bytes);
        // Use of the disk is told by the size that holds now.
        self.core().check_disk();
        Ok(())
    }

    /// Has expired log files deleted soon, whatever the hour.
    pub fn delete_expired_files(&self) {
        self.core().ask_to_clean();
    }

    /// Next offset to deliver by delay level.
    pub fn delay_offsets(&self) -> BTreeMap<i32, i64> {
        self.core().delay.get()
    }

    /// The replicas that are connected and have said how far they are.
    pub fn replicas(&self) -> Vec<Replica> {
        let core = self.core();
        core.replicas.list(core.log.max(), &core.config)
    }

    /// The store's figures.
    pub fn figures(&self) -> Figures {
        let core = self.core();
        let (log_min, log_max) = (core.log.min(), core.log.max());
        let (log_disk_ratio, queue_disk_ratio) = core.disk.ratios();
        Figures {
            log_min,
            log_max,
            log_flushed: core.log.flushed(),
            dispatch_behind: (log_max - core.dispatched()).max(0),
            log_disk_ratio,
            queue_disk_ratio,
            puts: core.totals.get(),
            page_cache_lock_millis: core.log.locked_for(),
            flags: core.flags.get(),
            queues: core.dispatch.queues.len(),
            earliest_store_time: core.log.store_time(log_min).unwrap_or(-1),
            started_at: core.started_at.load(Ordering::Acquire),
            last_stop_clean: core.last_stop_clean,
        }
    }

    /// Whether an append has held the lock for longer than `osPageCacheBusyTimeOutMills`.
    pub fn page_cache_busy(&self) -> bool {
        self.core().log.locked_for() > self.core().config.page_cache_busy_timeout
    }

    /// Whether appends are taken, and if not, why.
    pub fn writable(&self) -> Result<(), WriteRefusal> {
        self.core().writable()
    }
}
