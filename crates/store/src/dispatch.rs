//! From a record of the log to its unit in a queue and its entries in the index.
//!
//! Dispatching a record twice changes nothing, so recovery may start as early as it likes. A queue that lacks units is
//! filled from the log before it goes on; the log's own gaps become units that stand for no message.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ferromq_protocol::{
    java_hash,
    names::topics,
    properties::{self, names},
    record::{Check, FIXED_LEN, Record},
    sysflag,
};

use crate::{
    Arrival, Dispatched, Hooks,
    checkpoint::Checkpoint,
    commit_log::{self, Visit, scan},
    config::DelayLevels,
    consume_queue::{Appended, Queue, QueueExtension, Queues, Unit},
    index::KeyIndex,
    places,
};

/// Where records go from the log.
pub(crate) struct Dispatch {
    pub(crate) queues: Queues,
    pub(crate) index: KeyIndex,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) hooks: Hooks,
    pub(crate) levels: DelayLevels,
    pub(crate) index_enabled: bool,
    pub(crate) index_behind: AtomicBool,
    /// Recovery starts behind the log's first record.
    pub(crate) unread: AtomicBool,
    /// Whether records go to the queues that they list, too.
    pub(crate) multi: bool,
    pub(crate) log_dirs: Vec<PathBuf>,
    pub(crate) log_file_size: u64,
}

/// Whether records come from appends or from recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Recovery,
    Live,
}

/// Why a record could not be dispatched.
#[derive(Debug)]
pub(crate) enum DispatchError {
    Queue(io::Error),
    /// The log itself can't be read.
    Log(io::Error),
    /// One of the further dispatchers refused it.
    Hook(io::Error),
}

impl DispatchError {
    pub(crate) fn source(&self) -> &io::Error {
        match self {
            Self::Queue(e) | Self::Log(e) | Self::Hook(e) => e,
        }
    }
}

fn dispatched<'r>(record: &'r Record<'_>, bytes: &'r [u8], properties: &'r str) -> Dispatched<'r> {
    Dispatched {
        topic: record.topic,
        queue_id: record.queue_id,
        queue_offset: record.queue_offset,
        physical_offset: record.physical_offset,
        sys_flag: record.sys_flag,
        store_timestamp: record.store_timestamp,
        properties,
        record: bytes,
    }
}

/// Whether a topic can be the name of a directory.
fn is_safe(topic: &str) -> bool {
    !topic.is_empty() && topic != "." && topic != ".." && !topic.contains(['/', '\0'])
}

/// Whether records of this kind are in queues.
pub(crate) fn is_queued(sys_flag: i32) -> bool {
    matches!(sysflag::transaction(sys_flag), 0 | sysflag::TRANSACTION_COMMIT)
}

impl Dispatch {
    /// The code in a record's unit: its tag's hash, or the time that a delayed message is due.
    pub(crate) fn tags_code(&self, topic: &str, store_timestamp: i64, properties: &str) -> i64 {
        if topic == topics::SCHEDULE {
            let level = properties::get(properties, names::DELAY)
                .and_then(|v| v.parse::<i32>().ok())
                .unwrap_or(0);
            if level > 0 {
                return self.levels.due(level, store_timestamp);
            }
        }
        properties::get(properties, names::TAGS).map_or(0, java_hash::tag_code)
    }

    /// Takes one record to where it belongs.
    pub(crate) fn record(
        &self,
        record: &Record<'_>,
        bytes: &[u8],
        phase: Phase,
    ) -> Result<(), DispatchError> {
        let text = record.properties_text();
        let dispatched = dispatched(record, bytes, &text);
        for dispatcher in &self.hooks.dispatchers {
            dispatcher.dispatch(&dispatched).map_err(DispatchError::Hook)?;
        }
        let tags_code = self.tags_code(record.topic, record.store_timestamp, &text);
        let listed = self.listed(record, &text);
        let ext = self.extension(&dispatched, tags_code);
        if is_queued(record.sys_flag) {
            if is_safe(record.topic) && record.queue_id >= 0 {
                let unit = Unit {
                    physical: record.physical_offset,
                    size: record.total_size,
                    tags_code,
                };
                let place = (record.topic, record.queue_id, record.queue_offset);
                self.enqueue(place, unit, ext.as_ref(), phase)
                    .map_err(DispatchError::Queue)?;
                for place in &listed {
                    self.enqueue(*place, unit, None, phase)
                        .map_err(DispatchError::Queue)?;
                }
            } else {
                tracing::warn!(
                    topic = record.topic,
                    offset = record.physical_offset,
                    "a record without a usable topic"
                );
            }
        }
        if self.index_enabled {
            self.index(record, &text);
        }
        if phase == Phase::Live {
            self.hooks.arrival.arrived(&Arrival {
                topic: record.topic,
                queue_id: record.queue_id,
                next_offset: record.queue_offset.saturating_add(1),
                tags_code,
                store_timestamp: record.store_timestamp,
                properties: &text,
                filter_bits: ext.as_ref().map_or(&[], |ext| &ext.filter_bits),
            });
            for (topic, queue_id, offset) in listed {
                self.hooks.arrival.arrived(&Arrival {
                    topic,
                    queue_id,
                    next_offset: offset.saturating_add(1),
                    tags_code,
                    store_timestamp: record.store_timestamp,
                    properties: &text,
                    filter_bits: &[],
                });
            }
        }
        Ok(())
    }

    /// The further queues that a record goes to.
    pub(crate) fn listed<'p>(&self, record: &Record<'_>, properties: &'p str) -> Vec<(&'p str, i32, i64)> {
        if !self.multi || !is_queued(record.sys_flag) {
            return Vec::new();
        }
        let mut listed = places::of_record(properties, record.queue_id);
        listed.retain(|(topic, queue, offset)| is_safe(topic) && *queue >= 0 && *offset >= 0);
        listed
    }

    /// Adds a record's keys to the index. If that fails the index falls behind, and nothing else does.
    pub(crate) fn index(&self, record: &Record<'_>, properties: &str) {
        if !self.index_behind() {
            self.note_index(self.try_index(record, properties));
        }
    }

    /// Whether records are missing in the index that have been dispatched.
    pub(crate) fn index_behind(&self) -> bool {
        self.index_behind.load(Ordering::Acquire)
    }

    fn note_index(&self, result: io::Result<()>) {
        match result {
            Err(error) => {
                if !self.index_behind.swap(true, Ordering::AcqRel) {
                    tracing::error!(%error, "the message index cannot be written: look-ups by key find nothing newer until it can");
                }
            }
            Ok(()) => {
                if self.index_behind.swap(false, Ordering::AcqRel) {
                    tracing::info!("the message index is written again");
                }
            }
        }
    }

    /// Adds what the index lacks below log offset `to`. Nothing else may be added meanwhile.
    pub(crate) fn index_on(&self, to: i64) {
        let result = commit_log::log_files(&self.log_dirs).and_then(|files| {
            let Some(first) = files.first() else { return Ok(()) };
            let from = (self.index.end().1.max(0) as u64).max(first.base);
            let mut visit = |record: &Record<'_>, _: &[u8]| -> io::Result<Visit> {
                self.try_index(record, &record.properties_text())?;
                Ok(Visit::Continue(()))
            };
            scan(
                &files,
                self.log_file_size,
                from,
                to.max(0) as u64,
                Check::None,
                &mut |_| {},
                &mut visit,
            )?;
            Ok(())
        });
        self.note_index(result);
    }

    fn try_index(&self, record: &Record<'_>, properties: &str) -> io::Result<()> {
        if sysflag::transaction(record.sys_flag) == sysflag::TRANSACTION_ROLLBACK {
            return Ok(());
        }
        self.index.add(
            &self.checkpoint,
            record.topic,
            keys_of(properties),
            record.physical_offset,
            record.store_timestamp,
        )
    }

    /// What readers can filter a record by beyond its tag, if such things are kept.
    fn extension(&self, record: &Dispatched<'_>, tags_code: i64) -> Option<QueueExtension> {
        self.queues.files.extends().then(|| QueueExtension {
            tags_code,
            store_timestamp: record.store_timestamp,
            filter_bits: self
                .hooks
                .filter_bits
                .as_ref()
                .map_or_else(Vec::new, |maker| maker.bits(record)),
        })
    }

    fn enqueue(
        &self,
        place: (&str, i32, i64),
        unit: Unit,
        ext: Option<&QueueExtension>,
        phase: Phase,
    ) -> io::Result<()> {
        let (topic, queue_id, offset) = place;
        let queue = self.queues.find_or_make(topic, queue_id);
        match self.append(&queue, offset, unit, ext)? {
            Appended::Yes(_) => {}
            Appended::Known => {
                // A new record with offset 0 in a queue that has some: the topic was deleted and made again.
                let again = phase == Phase::Recovery
                    && offset == 0
                    && queue.range().1 > 0
                    && unit.end() > queue.max_physical();
                if again {
                    tracing::info!(
                        topic,
                        queue = queue_id,
                        "the topic was made anew: its queue starts again"
                    );
                    self.queues.remove_queue(&queue)?;
                    let queue = self.queues.find_or_make(topic, queue_id);
                    self.append(&queue, 0, unit, ext)?;
                }
            }
            Appended::Gap(0) => {
                let mut allowed = self.may_begin_at(&queue, offset, unit.physical, phase)?;
                self.place(&queue, offset, unit, ext, &mut allowed)?;
            }
            Appended::Gap(end) => {
                tracing::warn!(
                    topic,
                    queue = queue_id,
                    end,
                    offset,
                    "units are missing before this one: filling the queue from the log"
                );
                let mut allowed = self.fill(&queue, unit.physical)?;
                self.place(&queue, offset, unit, ext, &mut allowed)?;
            }
        }
        Ok(())
    }

    /// Offset that a queue without units may begin with at a record.
    fn may_begin_at(&self, queue: &Arc<Queue>, offset: i64, physical: i64, phase: Phase) -> io::Result<u64> {
        // Each message before it took its bytes of the log.
        let most = physical.max(0) as u64 / FIXED_LEN as u64;
        let unread = self.unread.load(Ordering::Acquire);
        let whole = || -> io::Result<bool> {
            let files = commit_log::log_files(&self.log_dirs)?;
            Ok(files.first().is_some_and(|first| first.base == 0))
        };
        if phase == Phase::Live || offset as u64 > most || !(unread || whole()?) {
            return Ok(most);
        }
        if unread {
            tracing::warn!(topic = %queue.topic(), queue = queue.id(), "a queue has no file: filling it from the log");
        }
        self.fill(queue, physical)
    }

    /// Puts a unit behind as many missing ones as are allowed. The header of a record carries no checksum: one whose queue offset
    /// is further off than its queue can be is damaged, and stays out of its queue; then one more may be missing there.
    fn place(
        &self,
        queue: &Arc<Queue>,
        offset: i64,
        unit: Unit,
        ext: Option<&QueueExtension>,
        allowed: &mut u64,
    ) -> io::Result<()> {
        let missing = offset.saturating_sub(queue.file_range().1).max(0) as u64;
        if missing > *allowed {
            tracing::error!(
                topic = %queue.topic(), queue = queue.id(), offset, physical = unit.physical,
                "a record's queue offset cannot be: its header is damaged; it stays out of its queue"
            );
            *allowed += 1;
            return Ok(());
        }
        if missing > 0 {
            *allowed -= missing;
            queue.fill_gap(&self.queues.files, offset)?;
        }
        self.append(queue, offset, unit, ext)?;
        Ok(())
    }

    fn append(
        &self,
        queue: &Arc<Queue>,
        offset: i64,
        unit: Unit,
        ext: Option<&QueueExtension>,
    ) -> io::Result<Appended> {
        let appended = queue.append(&self.queues.files, offset, unit, ext)?;
        if appended == Appended::Yes(true) {
            self.queues.list(queue.clone());
        }
        Ok(appended)
    }

    /// Shows each of the further dispatchers that is behind the records of the log that it lacks below log offset `to`.
    pub(crate) fn catch_up_hooks(&self, to: u64) -> io::Result<()> {
        for dispatcher in &self.hooks.dispatchers {
            let files = commit_log::log_files(&self.log_dirs)?;
            let (Some(from), Some(first)) = (dispatcher.resume_from(), files.first()) else {
                continue;
            };
            let from = (from.max(0) as u64).max(first.base);
            if from >= to {
                continue;
            }
            tracing::info!(
                from,
                to,
                "a dispatcher is behind the log: it's shown what it lacks"
            );
            let mut visit = |record: &Record<'_>, bytes: &[u8]| -> io::Result<Visit> {
                let text = record.properties_text();
                dispatcher.dispatch(&dispatched(record, bytes, &text))?;
                Ok(Visit::Continue(()))
            };
            let size = self.log_file_size;
            scan(&files, size, from, to, Check::None, &mut |_| {}, &mut visit)?;
        }
        Ok(())
    }

    /// Gives a queue the units that it lacks below log offset `to`, and says how many may be missing there still: those whose
    /// records are gone from the log, or have a damaged header.
    pub(crate) fn fill(&self, queue: &Arc<Queue>, to: i64) -> io::Result<u64> {
        let files = commit_log::log_files(&self.log_dirs)?;
        let to = to.max(0) as u64;
        let behind = queue.max_physical().max(0) as u64;
        let from = behind.max(files.first().map_or(to, |first| first.base));
        let mut allowed = (from - behind) / FIXED_LEN as u64;
        let mut visit = |record: &Record<'_>, bytes: &[u8]| -> io::Result<Visit> {
            if is_queued(record.sys_flag)
                && let Some(offset) = places::offset_in(record, queue.topic(), queue.id())
            {
                let text = record.properties_text();
                let tags_code = self.tags_code(record.topic, record.store_timestamp, &text);
                let unit = Unit {
                    physical: record.physical_offset,
                    size: record.total_size,
                    tags_code,
                };
                let own = record.topic == &**queue.topic() && record.queue_id == queue.id();
                let ext = own
                    .then(|| self.extension(&dispatched(record, bytes, &text), tags_code))
                    .flatten();
                self.place(queue, offset, unit, ext.as_ref(), &mut allowed)?;
            }
            Ok(Visit::Continue(()))
        };
        let read = scan(
            &files,
            self.log_file_size,
            from,
            to,
            Check::None,
            &mut |_| {},
            &mut visit,
        )?;
        Ok(allowed + to.saturating_sub(read.end) / FIXED_LEN as u64)
    }
}

/// The keys that a message is indexed under.
pub(crate) fn keys_of(properties: &str) -> impl Iterator<Item = &str> {
    properties::get(properties, names::UNIQ_KEY).into_iter().chain(
        properties::get(properties, names::KEYS)
            .into_iter()
            .flat_map(|keys| keys.split(' ')),
    )
}
