//! The thread that follows the log: as soon as a record is appended, its queue and the index get it, and readers are told.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use ferromq_protocol::{
    names::topics,
    record::{Check, Entry, parse},
};

use crate::{
    BrokerRole,
    core::{Core, Flags},
    dispatch::{DispatchError, Phase, is_queued},
    fs::{crash_safe::is_full, mmap::unreadable},
};

const RETRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;
/// The longest pause between two tries to write the index.
const MOST_PAUSE: Duration = Duration::from_secs(8);
/// How long appends are gathered after some were dispatched; less than anyone who waits for a message notices.
const GATHER: Duration = Duration::from_micros(100);
/// The same while nobody waits for a message.
const GATHER_CALMLY: Duration = Duration::from_millis(1);

/// When to try again to bring the index up to the queues: each second at first, then less often.
#[derive(Debug, Default)]
struct IndexRetry {
    at: Option<Instant>,
    pause: Duration,
}

impl IndexRetry {
    fn is_due(&mut self) -> bool {
        *self.at.get_or_insert_with(|| Instant::now() + RETRY) <= Instant::now()
    }

    fn tried(&mut self, failed: bool) {
        self.pause = (self.pause * 2).clamp(RETRY, MOST_PAUSE);
        self.at = failed.then(|| Instant::now() + self.pause);
        if !failed {
            self.pause = Duration::ZERO;
        }
    }
}

impl Core {
    /// Dispatches what the log has beyond what the queues have.
    pub(crate) fn catch_up(&self, phase: Phase) -> Result<(), DispatchError> {
        let mut at = self.dispatched();
        loop {
            // On a slave the end may stand inside a record: that one waits for its rest.
            let whole = self.log.whole();
            if at >= whole {
                return Ok(());
            }
            let Some((segment, range)) = self.log.rest_of_file(at as u64) else {
                let to = self.log.min().max(at + 1);
                tracing::error!(
                    at,
                    to,
                    "the log has nothing where dispatching stands; going on behind it"
                );
                at = to;
                self.dispatched.store(at, Ordering::Release);
                continue;
            };
            let end = whole.min(range.end as i64);
            let bytes = segment.peek(range.start..end as u64).unwrap_or(&[]);
            let mut pos = 0;
            while pos < bytes.len() {
                let parsed = parse(&bytes[pos..], Check::None);
                let size = match &parsed {
                    Ok(Entry::Record(record)) => record.total_size as usize,
                    _ => 8.min(bytes.len() - pos),
                };
                let start = at as u64 + pos as u64;
                if !segment.is_sound(&(start..start + size as u64)) {
                    return Err(DispatchError::Log(unreadable()));
                }
                match parsed {
                    Ok(Entry::Record(record)) => {
                        self.dispatch.record(&record, &bytes[pos..pos + size], phase)?;
                        if record.topic == topics::SCHEDULE {
                            self.delay_signal.notify();
                        }
                        self.dispatched_time
                            .store(record.store_timestamp, Ordering::Release);
                        if self.config.role == BrokerRole::Slave {
                            self.log.note_time(record.store_timestamp);
                        }
                        pos += size;
                        self.dispatched.store(at + pos as i64, Ordering::Release);
                    }
                    Ok(Entry::Blank { .. }) => pos = bytes.len(),
                    Err(error) => {
                        if bytes.len() - pos >= 8 {
                            tracing::error!(offset = at + pos as i64, %error, "an unreadable record in the log; skipping to the end of what is there");
                        }
                        pos = bytes.len();
                    }
                }
            }
            at = end;
            self.dispatched.store(at, Ordering::Release);
        }
    }

    /// Has appends go on behind the messages that are in the log but in no queue yet.
    pub(crate) fn number_on(&self) {
        let mut at = self.dispatched();
        while let Some((segment, range)) = self.log.rest_of_file(at as u64).filter(|(_, r)| !r.is_empty()) {
            at = range.end as i64;
            let mut bytes = segment.peek(range).unwrap_or(&[]);
            while let Ok(Entry::Record(record)) = parse(bytes, Check::None) {
                if is_queued(record.sys_flag) {
                    let queues = &self.dispatch.queues;
                    queues
                        .find_or_make(record.topic, record.queue_id)
                        .set_next_put(record.queue_offset.saturating_add(1));
                    for (topic, queue, offset) in self.dispatch.listed(&record, &record.properties_text()) {
                        queues
                            .find_or_make(topic, queue)
                            .set_next_put(offset.saturating_add(1));
                    }
                }
                bytes = &bytes[record.total_size as usize..];
            }
        }
    }

    /// The thread: ends when the store stops, or when it closes and everything is dispatched.
    pub(crate) fn run_reput(self: &Arc<Self>) {
        let mut tries = 0;
        let mut index = IndexRetry::default();
        while !self.stopping() {
            match self.catch_up(Phase::Live) {
                Ok(()) => tries = 0,
                Err(error) => {
                    tries += 1;
                    self.note_dispatch_error(&error, tries);
                    self.reput_signal.wait(RETRY, || self.stopping());
                    if self.closing.load(Ordering::Acquire) && tries > 3 {
                        return;
                    }
                    continue;
                }
            }
            let closing = self.closing.load(Ordering::Acquire);
            if self.dispatch.index_behind() && (closing || index.is_due()) {
                self.dispatch.index_on(self.dispatched());
                index.tried(self.dispatch.index_behind());
            }
            if closing && self.dispatched() >= self.log.whole() {
                return;
            }
            // What comes while appends are frequent is gathered, instead of one wake-up for each of them.
            let awaited = self.dispatch.hooks.arrival.is_awaited();
            std::thread::sleep(if awaited { GATHER } else { GATHER_CALMLY });
            let most = if self.dispatch.index_behind() {
                RETRY
            } else {
                Duration::from_secs(10)
            };
            self.reput_signal.wait(most, || {
                self.dispatched() < self.log.whole()
                    || self.stopping()
                    || self.closing.load(Ordering::Acquire)
            });
        }
    }

    fn note_dispatch_error(&self, error: &DispatchError, tries: u32) {
        let full = is_full(error.source());
        if full {
            self.note_disk_full();
        }
        let (what, flag) = match error {
            DispatchError::Queue(_) => ("consume queue", Flags::QUEUE_ERROR),
            // What is appended now would never be seen.
            DispatchError::Log(_) => ("log", Flags::QUEUE_ERROR),
            DispatchError::Hook(_) => ("dispatcher", Flags::QUEUE_ERROR),
        };
        if tries == 1 {
            tracing::warn!(error = %error.source(), what, "cannot dispatch; trying again every second");
        }
        if !full && tries >= TRIES && self.flags.set(flag) {
            tracing::error!(error = %error.source(), what, "cannot dispatch for 30 s: no more messages are taken until a restart");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hooks, Progress, PutMessage, Store, StoreConfig};

    #[test]
    fn numbers_go_on_behind_messages_that_are_in_no_queue_yet() {
        let dir = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            root: dir.path().to_owned(),
            commit_log_file_size: 16 << 10,
            max_message_size: 4 << 10,
            disk_space_warning_level_ratio: 100,
            ..StoreConfig::default()
        };
        let open = || Store::open(config.clone(), &Progress::new(), Hooks::default()).unwrap();
        let store = open();
        store.start().unwrap();
        for n in 0..100 {
            let put = store.put(PutMessage {
                topic: "t",
                queue_id: n % 3,
                flag: 0,
                sys_flag: 0,
                born_timestamp: 0,
                born_host: "127.0.0.1:1".parse().unwrap(),
                reconsume_times: 0,
                prepared_transaction_offset: 0,
                body: &[7; 900],
                properties: "",
                wait_store_ok: false,
            });
            put.unwrap();
        }
        store.shutdown().unwrap();
        drop(store);
        let store = open();
        let core = store.core();
        core.dispatched.store(0, Ordering::Release);
        core.number_on();
        for (id, next) in [(0, 34), (1, 33), (2, 33)] {
            assert_eq!(core.dispatch.queues.find("t", id).unwrap().next_put(), next);
        }
    }
}
