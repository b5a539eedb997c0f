//! Delayed messages: they wait in the queue of their level in the delay topic and are appended again, to where they
//! were sent, when their time has come.
//!
//! `config/delayOffset.json` has `{"offsetTable":{"<level>":<next queue offset to deliver>}}`. It's saved every few seconds
//! and at shutdown, after the last delivery: a clean restart neither repeats nor skips one.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use ferromq_protocol::{
    fastjson,
    names::topics,
    properties::{self, names},
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{
    BrokerRole,
    consume_queue::{Queue, Unit, offset_of},
    core::Core,
    json_table::{self, TableError},
    put::Onward,
};

/// Messages of a level that are delivered before the others get their turn.
const TURN: usize = 200;
const RETRY: i64 = 100;

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Saved {
    #[serde(rename = "offsetTable")]
    offsets: BTreeMap<i32, i64>,
}

/// Next offset to deliver by level.
#[derive(Debug)]
pub(crate) struct DelayTable {
    path: PathBuf,
    offsets: Mutex<BTreeMap<i32, i64>>,
    changed: AtomicBool,
}

impl DelayTable {
    pub(crate) fn load(path: PathBuf) -> Result<Self, TableError> {
        let saved = json_table::load_with(&path, fastjson::from_slice::<Saved>)?.unwrap_or_default();
        Ok(Self {
            path,
            offsets: Mutex::new(saved.offsets),
            changed: AtomicBool::new(false),
        })
    }

    pub(crate) fn get(&self) -> BTreeMap<i32, i64> {
        self.offsets.lock().clone()
    }

    fn offset(&self, level: i32) -> i64 {
        self.offsets.lock().get(&level).copied().unwrap_or(0)
    }

    fn set(&self, level: i32, offset: i64) {
        self.offsets.lock().insert(level, offset);
        self.changed.store(true, Ordering::Release);
    }

    /// Saves the table if it changed.
    pub(crate) fn save(&self) -> Result<(), TableError> {
        if !self.changed.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let saved = Saved { offsets: self.get() };
        json_table::save_durably(&self.path, &fastjson::to_vec(&saved))
            .inspect_err(|_| self.changed.store(true, Ordering::Release))
    }
}

/// What became of a delayed message.
#[derive(Debug, PartialEq, Eq)]
enum Delivery {
    /// It's where it belongs, or nobody can ever have it.
    Done,
    /// The store takes nothing now.
    Later,
}

impl Core {
    /// The thread that delivers.
    pub(crate) fn run_schedule(self: &Arc<Self>) {
        if self.config.role == BrokerRole::Slave {
            return;
        }
        let most = Duration::from_millis(if self.config.clock.is_manual() { 5 } else { 1_000 });
        let interval = Duration::from_millis(self.config.flush_delay_offset_interval.max(1));
        let mut saved = Instant::now();
        let levels = self.levels_in_use();
        while !self.stopping() && !self.closing.load(Ordering::Acquire) {
            let depth = self.schedule_depth();
            let next = levels.iter().filter_map(|level| self.deliver_level(*level)).min();
            if saved.elapsed() >= interval {
                saved = Instant::now();
                if let Err(error) = self.delay.save() {
                    tracing::warn!(%error, "cannot save the delay offsets; trying again later");
                }
            }
            let wait = next.map_or(most, |due| {
                Duration::from_millis(due.saturating_sub(self.config.clock.now()).max(0) as u64).min(most)
            });
            if !wait.is_zero() {
                self.delay_signal.wait(wait, || {
                    self.stopping() || self.closing.load(Ordering::Acquire) || self.schedule_depth() != depth
                });
            }
        }
    }

    /// The levels of the table, and those that it had when messages were stored which are here yet.
    fn levels_in_use(&self) -> Vec<i32> {
        let most = self.config.delay_levels.max_level();
        let queues = self.dispatch.queues.all();
        let former = queues
            .iter()
            .filter(|q| &**q.topic() == topics::SCHEDULE && q.id() >= most)
            .map(|q| q.id().saturating_add(1));
        (1..=most).chain(former).collect()
    }

    fn schedule_depth(&self) -> i64 {
        (0..self.config.delay_levels.max_level())
            .filter_map(|id| self.dispatch.queues.find(topics::SCHEDULE, id))
            .map(|q| q.range().1)
            .sum()
    }

    /// Delivers what is due of a level. Says when to come back; `None` if the level is empty.
    fn deliver_level(self: &Arc<Self>, level: i32) -> Option<i64> {
        let queue = self.dispatch.queues.find(topics::SCHEDULE, level - 1)?;
        let (min, max) = queue.range();
        let mut offset = self.delay.offset(level);
        if offset < min || offset > max {
            tracing::warn!(
                level,
                offset,
                min,
                max,
                "the delay offset is outside its queue; moving it in"
            );
            offset = offset.clamp(min, max);
            self.delay.set(level, offset);
        }
        let delay = self.config.delay_levels.delay(level);
        let mut left = TURN;
        while offset < max {
            if left == 0 {
                return Some(0);
            }
            let units = match queue.read(&self.dispatch.queues.files, offset, left) {
                Ok(units) if !units.is_empty() => units,
                Ok(_) => return None,
                Err(error) => {
                    tracing::warn!(level, offset, %error, "cannot read the queue of delayed messages; trying again");
                    return Some(self.config.clock.now() + 1_000);
                }
            };
            for mut unit in units.iter() {
                unit.tags_code = self.due_time(&queue, unit, delay);
                let now = self.config.clock.now();
                // A time further off than the level's delay is none: the table or the clock was changed.
                let sensible = delay.is_none_or(|delay| unit.tags_code <= now.saturating_add(delay));
                if unit.tags_code > now && sensible && !unit.is_pre_blank() {
                    return Some(unit.tags_code);
                }
                if self.stopping() || self.closing.load(Ordering::Acquire) {
                    return None;
                }
                if !unit.is_pre_blank() && self.deliver(level, offset, unit.physical) == Delivery::Later {
                    return Some(now + RETRY);
                }
                offset += 1;
                left -= 1;
                self.delay.set(level, offset);
            }
        }
        None
    }

    /// When a delayed message is due: as its unit says, or the extension that this points to, or else by its store time.
    fn due_time(&self, queue: &Queue, unit: Unit, delay: Option<i64>) -> i64 {
        let Some(offset) = offset_of(unit.tags_code) else {
            return unit.tags_code;
        };
        let found = queue.with_ext(&self.dispatch.queues.files, |ext| ext?.read(offset).ok()?);
        found.map_or_else(
            || {
                let stored = self
                    .log
                    .with_record(unit.physical, |record, _| record.store_timestamp);
                stored.map_or(0, |time| time.saturating_add(delay.unwrap_or(0)))
            },
            |found| found.tags_code,
        )
    }

    fn deliver(self: &Arc<Self>, level: i32, offset: i64, physical: i64) -> Delivery {
        let delivered = self.log.with_record(physical, |record, _| {
            let text = record.properties_text();
            let topic = properties::get(&text, names::REAL_TOPIC);
            let queue_id = properties::get(&text, names::REAL_QID).and_then(|v| v.parse().ok());
            let (Some(topic), Some(queue_id)) = (topic, queue_id) else {
                tracing::error!(
                    level,
                    offset,
                    physical,
                    "a delayed message doesn't say where it belongs; leaving it out"
                );
                return Delivery::Done;
            };
            if topic == topics::TRANS_HALF {
                tracing::error!(
                    level,
                    offset,
                    physical,
                    "a delayed half message is no message; leaving it out"
                );
                return Delivery::Done;
            }
            match self.put_onward(&Onward {
                topic,
                queue_id,
                record,
                properties: &text,
            }) {
                Ok(_) => Delivery::Done,
                Err(crate::PutError::Illegal(reason)) => {
                    tracing::error!(
                        level,
                        offset,
                        physical,
                        reason,
                        "a delayed message can't be delivered; leaving it out"
                    );
                    Delivery::Done
                }
                Err(error) => {
                    tracing::debug!(level, offset, %error, "a delayed message has to wait");
                    Delivery::Later
                }
            }
        });
        delivered.unwrap_or_else(|| {
            tracing::warn!(level, offset, physical, "a delayed message is gone from the log");
            Delivery::Done
        })
    }
}
