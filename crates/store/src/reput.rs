//! The thread that follows the log: as soon as a record is appended, its queue and the index get it, and readers are told.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ferromq_protocol::{
    names::topics,
    record::{Check, Entry, parse},
};

use crate::{
    core::{Core, Flags},
    dispatch::{DispatchError, Phase},
};

const RETRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;

impl Core {
    /// Dispatches what the log has beyond what the queues have.
    pub(crate) fn catch_up(&self, phase: Phase) -> Result<(), DispatchError> {
        let mut at = self.dispatched();
        while at < self.log.max() {
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
            let end = range.end as i64;
            let bytes = segment.slice(range).unwrap_or(&[]);
            let mut pos = 0;
            while pos < bytes.len() {
                match parse(&bytes[pos..], Check::None) {
                    Ok(Entry::Record(record)) => {
                        let size = record.total_size as usize;
                        self.dispatch.record(&record, &bytes[pos..pos + size], phase)?;
                        if record.topic == topics::SCHEDULE {
                            self.delay_signal.notify();
                        }
                        self.dispatched_time
                            .store(record.store_timestamp, Ordering::Release);
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
        Ok(())
    }

    /// The thread: ends when the store stops, or when it closes and everything is dispatched.
    pub(crate) fn run_reput(self: &Arc<Self>) {
        let mut tries = 0;
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
            if self.closing.load(Ordering::Acquire) && self.dispatched() >= self.log.max() {
                return;
            }
            self.reput_signal.wait(Duration::from_secs(10), || {
                self.dispatched() < self.log.max() || self.stopping() || self.closing.load(Ordering::Acquire)
            });
        }
    }

    fn note_dispatch_error(&self, error: &DispatchError, tries: u32) {
        let full = error.source().kind() == io::ErrorKind::StorageFull;
        if full {
            self.note_disk_full();
        }
        let (what, flag) = match error {
            DispatchError::Queue(_) => ("consume queue", Flags::QUEUE_ERROR),
            DispatchError::Index(_) => ("index", Flags::INDEX_ERROR),
        };
        if tries == 1 {
            tracing::warn!(error = %error.source(), what, "cannot write; trying again every second");
        }
        if !full && tries >= TRIES && self.flags.set(flag) {
            tracing::error!(error = %error.source(), what, "cannot write for 30 s: no more messages are taken until a restart");
        }
    }
}
