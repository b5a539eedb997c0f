//! Transactional messages: kept apart as *half messages* until their producer has decided.
//!
//! A half message lies in queue 0 of `RMQ_SYS_TRANS_HALF_TOPIC`. A decision (request 37) of commit stores it
//! anew under its real topic; either decision leaves an *op* in `RMQ_SYS_TRANS_OP_HALF_TOPIC` whose body is the half's
//! queue offset, so that the decision survives a restart. Halves that stay undecided are asked about (request 39,
//! [`check`]) and given up after a number of times. [`ledger`] knows which halves are decided: a decision
//! that comes twice stores nothing twice.

pub(crate) mod check;
pub(crate) mod ledger;

use std::sync::Arc;

use ferromq_protocol::names::{groups, topics};
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::record::{self, Check, Record};
use ferromq_protocol::{properties, sysflag};
use ferromq_store::{GetRequest, GetStatus, NoFilter, Put, PutError, PutMessage};

use crate::clock::now_ms;
use crate::core::Core;
use crate::processor::{Refusal, push};
use crate::topic_table::PERM_RW;

/// The queue of the half and op topics.
pub(crate) const QUEUE: i32 = 0;
/// Records read at a time.
const READ: usize = 32;

/// Makes the topics that transactions need. Blocks.
pub(crate) fn make_topics(core: &Core) -> Result<(), Refusal> {
    let now = now_ms();
    for topic in [topics::TRANS_HALF, topics::TRANS_OP_HALF] {
        core.topics.get_or_create(topic, 1, PERM_RW, 0, now);
    }
    core.save_topics()?;
    Ok(())
}

/// The properties of a half message: those sent plus where it really goes.
pub(crate) fn half_properties(sent: &str, topic: &str, queue_id: i32) -> String {
    let mut text = String::with_capacity(sent.len() + topic.len() + 32);
    for (name, value) in properties::iter(sent) {
        // A half is never delayed.
        if !matches!(name, prop::REAL_TOPIC | prop::REAL_QID | prop::DELAY) {
            push(&mut text, name, value);
        }
    }
    push(&mut text, prop::REAL_TOPIC, topic);
    push(&mut text, prop::REAL_QID, &queue_id.to_string());
    text
}

/// Where a half message really goes.
pub(crate) fn real_target<'a>(half: &Record<'a>) -> Option<(&'a str, i32)> {
    Some((
        half.property(prop::REAL_TOPIC)?,
        half.property(prop::REAL_QID)?.parse().ok()?,
    ))
}

/// Stores a half message under its real topic.
pub(crate) fn put_committed(core: &Core, half: &Record<'_>) -> Result<Put, Refusal> {
    let Some((topic, queue_id)) = real_target(half) else {
        return Err(Refusal::system("the half message does not say where it belongs"));
    };
    let sent = half.properties_text();
    let mut text = String::with_capacity(sent.len());
    for (name, value) in properties::iter(&sent) {
        // With it a later retry of the message would become a half message again.
        if name != prop::TRAN_MSG {
            push(&mut text, name, value);
        }
    }
    core.store
        .put(PutMessage {
            topic,
            queue_id,
            sys_flag: sysflag::with_transaction(half.sys_flag, sysflag::TRANSACTION_COMMIT),
            reconsume_times: 0,
            prepared_transaction_offset: half.physical_offset,
            properties: &text,
            wait_store_ok: true,
            ..copy_of(half)
        })
        .map_err(|error| crate::processor::put_refusal(core, &error))
}

/// Leaves the mark that a half is decided.
pub(crate) fn put_op(core: &Core, half_offset: i64) -> Result<Put, PutError> {
    let mut text = String::new();
    push(&mut text, prop::TAGS, "d");
    core.store.put(PutMessage {
        topic: topics::TRANS_OP_HALF,
        queue_id: QUEUE,
        flag: 0,
        sys_flag: 0,
        born_timestamp: now_ms(),
        born_host: core.identity.store_host,
        reconsume_times: 0,
        prepared_transaction_offset: 0,
        body: half_offset.to_string().as_bytes(),
        properties: &text,
        wait_store_ok: false,
    })
}

/// A message with what a record says; topic, queue and properties are the caller's to set.
pub(crate) fn copy_of<'a>(record: &Record<'a>) -> PutMessage<'a> {
    PutMessage {
        topic: record.topic,
        queue_id: record.queue_id,
        flag: record.flag,
        sys_flag: record.sys_flag,
        born_timestamp: record.born_timestamp,
        born_host: record.born_host,
        reconsume_times: record.reconsume_times,
        prepared_transaction_offset: 0,
        body: record.body,
        properties: "",
        wait_store_ok: false,
    }
}

/// Hands each record of a queue from an offset to `take` until that says no. Returns where it stopped. Blocks.
pub(crate) fn walk(
    core: &Core,
    topic: &str,
    mut offset: i64,
    mut take: impl FnMut(&Record<'_>) -> bool,
) -> i64 {
    loop {
        let request = GetRequest {
            topic,
            queue_id: QUEUE,
            offset,
            max_messages: READ,
        };
        let Ok(got) = core.store.get(&request, &NoFilter) else {
            return offset;
        };
        if got.status != GetStatus::Found {
            // Gone records are passed over; at the end there is nothing to pass.
            if got.next_offset <= offset || got.next_offset > got.max_offset {
                return offset;
            }
            offset = got.next_offset;
            continue;
        }
        for found in got
            .chunks
            .iter()
            .flat_map(|chunk| record::iter(chunk, Check::None))
        {
            let Ok(found) = found else { break };
            if !take(&found) {
                return found.queue_offset;
            }
        }
        if got.next_offset <= offset {
            return offset;
        }
        offset = got.next_offset;
    }
}

/// Learns from the op queue what was decided before this start. Blocks.
pub(crate) fn load(core: &Arc<Core>) {
    let stored = |topic| {
        let (min, max) = (
            core.store.min_offset(topic, QUEUE).max(0),
            core.store.max_offset(topic, QUEUE).max(0),
        );
        core.offsets
            .get(groups::TRANS, topic, QUEUE)
            .unwrap_or(min)
            .clamp(min, max)
    };
    let mut ledger = core.transactions.lock();
    if !ledger.open(stored(topics::TRANS_HALF)) {
        return;
    }
    walk(core, topics::TRANS_OP_HALF, stored(topics::TRANS_OP_HALF), |op| {
        if let Some(half) = std::str::from_utf8(op.body)
            .ok()
            .and_then(|text| text.trim().parse().ok())
        {
            ledger.decided(half, op.queue_offset);
        }
        true
    });
}

/// Keeps the progress of the ledger where Java keeps it: as offsets of an internal group.
pub(crate) fn save_progress(core: &Core) {
    let progress = core.transactions.lock().progress();
    let Some((half, op)) = progress else { return };
    core.offsets
        .advance(groups::TRANS, topics::TRANS_HALF, QUEUE, half);
    if let Some(op) = op {
        core.offsets
            .advance(groups::TRANS, topics::TRANS_OP_HALF, QUEUE, op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_says_where_it_belongs_and_is_not_delayed() {
        let text = half_properties("TRAN_MSG\u{1}true\u{2}DELAY\u{1}3\u{2}PGROUP\u{1}g", "T", 2);
        assert_eq!(
            text,
            "TRAN_MSG\u{1}true\u{2}PGROUP\u{1}g\u{2}REAL_TOPIC\u{1}T\u{2}REAL_QID\u{1}2"
        );
    }
}
