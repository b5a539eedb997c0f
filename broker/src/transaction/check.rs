//! Asking producers about half messages that they have not decided.
//!
//! A pass looks at each open half in order. One that is young is left for the next pass; one that was asked about
//! often enough or is too old is put aside on `TRANS_CHECK_MAX_TIME_TOPIC`; any other is stored anew with its count
//! raised, so that progress can pass it, and its producer is asked.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::request;
use ferromq_protocol::header::CheckTransactionState;
use ferromq_protocol::names::topics;
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::record::{Record, RecordDraft, patch};
use ferromq_protocol::{Command, properties};
use ferromq_store::PutMessage;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::{QUEUE, copy_of, load, put_op, real_target, save_progress, walk};
use crate::clock::now_ms;
use crate::core::Core;
use crate::processor::push;
use crate::topic_table::PERM_RW;

/// What is done about an open half.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// Its producer may still be at it.
    Wait,
    /// Its producer is asked, for this time.
    Ask(u32),
    /// Nobody will decide it any more.
    PutAside,
}

/// What decides about a half's fate.
#[derive(Debug, Clone, Copy)]
struct Rules {
    now: i64,
    /// Age in milliseconds below which a half is left alone, unless it says otherwise itself.
    immunity: i64,
    /// How often its producer is asked.
    most: u32,
    /// Age in milliseconds above which it is given up.
    oldest: i64,
}

/// A half that claims to be born this much later than now, in milliseconds, tells of a clock that was set back. Less is a
/// client whose clock is a little ahead.
const FROM_THE_FUTURE: i64 = 60_000;

fn fate(born: i64, asked: u32, own_immunity: Option<i64>, rules: Rules) -> Fate {
    let age = rules.now.saturating_sub(born);
    if asked >= rules.most || age > rules.oldest {
        return Fate::PutAside;
    }
    // A negative own immunity stands for the common one.
    let immunity = own_immunity
        .filter(|&s| s >= 0)
        .map_or(rules.immunity, |s| s.saturating_mul(1000));
    // Its age cannot be known; without this nobody would be asked until the clock has caught up.
    let ageless = age < -FROM_THE_FUTURE;
    if age < immunity && !ageless {
        Fate::Wait
    } else {
        Fate::Ask(asked + 1)
    }
}

/// Runs passes until told to stop.
pub(crate) async fn run(core: Arc<Core>, stop: CancellationToken) {
    let every = Duration::from_millis(core.settings().transaction_check_interval);
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let (pass_core, pass_stop) = (core.clone(), stop.clone());
        let pass = core.tasks.spawn_blocking(move || pass(&pass_core, &pass_stop));
        if let Err(error) = pass.await {
            tracing::error!(%error, "a pass over open transactions failed; the next one goes on");
        }
    }
}

fn pass(core: &Arc<Core>, stop: &CancellationToken) {
    load(core);
    let end = core.store.max_offset(topics::TRANS_HALF, QUEUE);
    let start = {
        let mut ledger = core.transactions.lock();
        ledger.gone_before(core.store.min_offset(topics::TRANS_HALF, QUEUE));
        ledger.first_open()
    };
    if start >= end {
        return;
    }
    let settings = core.settings();
    let rules = Rules {
        now: now_ms(),
        immunity: i64::try_from(settings.transaction_time_out).unwrap_or(i64::MAX),
        most: settings.transaction_check_max,
        oldest: i64::try_from(settings.file_reserved_time.saturating_mul(3_600_000)).unwrap_or(i64::MAX),
    };
    walk(core, topics::TRANS_HALF, start, |half| {
        // What this pass stores anew is for the next one.
        if half.queue_offset >= end || stop.is_cancelled() {
            return false;
        }
        consider(core, half, rules);
        true
    });
    save_progress(core);
}

fn consider(core: &Arc<Core>, half: &Record<'_>, rules: Rules) {
    let offset = half.queue_offset;
    if let Some(first) = half
        .property(prop::TRAN_PREPARED_QUEUE_OFFSET)
        .and_then(|v| v.parse::<i64>().ok())
    {
        // After a restart this is how late decisions about the first copy find the newest.
        let mut ledger = core.transactions.lock();
        if first != offset && !ledger.is_decided(offset) {
            ledger.moved(first, offset);
        }
    }
    if core.transactions.lock().is_decided(offset) {
        return;
    }
    let asked = half
        .property(prop::TRANSACTION_CHECK_TIMES)
        .and_then(|v| v.parse().ok())
        .unwrap_or(0);
    let own = half
        .property(prop::CHECK_IMMUNITY_TIME_IN_SECONDS)
        .and_then(|v| v.parse().ok());
    match fate(half.born_timestamp, asked, own, rules) {
        Fate::Wait => {}
        Fate::PutAside => put_aside(core, half),
        Fate::Ask(time) => ask(core, half, time),
    }
}

/// Decides a half after `store` has stored what replaces it.
fn replace(core: &Arc<Core>, half: i64, what: &str, store: impl FnOnce() -> Result<Option<i64>, String>) {
    let Some(claimed) = core.transactions.lock().begin(half) else {
        return;
    };
    let copy = match store() {
        Ok(copy) => copy,
        Err(error) => {
            core.transactions.lock().give_up(claimed);
            tracing::warn!(
                half,
                what,
                error,
                "an open transaction stays as it is until the next pass"
            );
            return;
        }
    };
    let op = put_op(core, claimed);
    let mut ledger = core.transactions.lock();
    if let Some(copy) = copy {
        ledger.moved(claimed, copy);
    }
    match op {
        Ok(op) => ledger.decided(claimed, op.queue_offset),
        Err(_) => ledger.decided_without_op(claimed),
    }
}

fn put_aside(core: &Arc<Core>, half: &Record<'_>) {
    replace(core, half.queue_offset, "put aside", || {
        if core
            .topics
            .get_or_create(topics::TRANS_CHECK_MAX_TIME, 1, PERM_RW, 0, now_ms())
            .1
        {
            core.save_topics().map_err(|error| error.to_string())?;
        }
        let text = half.properties_text();
        let message = PutMessage {
            topic: topics::TRANS_CHECK_MAX_TIME,
            queue_id: 0,
            properties: &text,
            ..copy_of(half)
        };
        core.store.put(message).map_err(|error| error.to_string())?;
        tracing::warn!(
            half = half.queue_offset,
            producer_group = half.property(prop::PGROUP),
            topic = half.property(prop::REAL_TOPIC),
            "nobody decided a transaction: its message was put on TRANS_CHECK_MAX_TIME_TOPIC"
        );
        Ok(None)
    });
}

fn ask(core: &Arc<Core>, half: &Record<'_>, time: u32) {
    let sent = half.properties_text();
    let mut text = String::with_capacity(sent.len() + 64);
    for (name, value) in properties::iter(&sent) {
        if !matches!(
            name,
            prop::TRANSACTION_CHECK_TIMES | prop::TRAN_PREPARED_QUEUE_OFFSET
        ) {
            push(&mut text, name, value);
        }
    }
    push(&mut text, prop::TRANSACTION_CHECK_TIMES, &time.to_string());
    let first = half
        .property(prop::TRAN_PREPARED_QUEUE_OFFSET)
        .map_or_else(|| half.queue_offset.to_string(), str::to_owned);
    push(&mut text, prop::TRAN_PREPARED_QUEUE_OFFSET, &first);
    let mut place = None;
    replace(core, half.queue_offset, "asked about", || {
        let message = PutMessage {
            properties: &text,
            ..copy_of(half)
        };
        let put = core.store.put(message).map_err(|error| error.to_string())?;
        place = Some((put.queue_offset, put.physical_offset));
        Ok(Some(put.queue_offset))
    });
    if let Some((queue_offset, physical_offset)) = place {
        send_check(core, half, &text, queue_offset, physical_offset);
    }
}

/// Stores a half anew that was put aside, or that was asked about often already, as one that nobody was asked about.
pub(crate) fn resume(core: &Arc<Core>, half: &Record<'_>) -> Result<(), String> {
    load(core);
    if !matches!(half.topic, topics::TRANS_HALF | topics::TRANS_CHECK_MAX_TIME) || real_target(half).is_none()
    {
        return Err(format!(
            "the message is no half message: its topic is {}",
            half.topic
        ));
    }
    let sent = half.properties_text();
    let mut text = String::with_capacity(sent.len() + 64);
    for (name, value) in properties::iter(&sent) {
        if !matches!(
            name,
            prop::TRANSACTION_CHECK_TIMES | prop::TRAN_PREPARED_QUEUE_OFFSET
        ) {
            push(&mut text, name, value);
        }
    }
    push(&mut text, prop::TRANSACTION_CHECK_TIMES, "0");
    let message = PutMessage {
        topic: topics::TRANS_HALF,
        queue_id: QUEUE,
        properties: &text,
        ..copy_of(half)
    };
    if half.topic == topics::TRANS_CHECK_MAX_TIME {
        core.store.put(message).map_err(|error| error.to_string())?;
        return Ok(());
    }
    // One that is still open is replaced by its copy, so that it is not decided twice.
    let Some(claimed) = core.transactions.lock().begin(half.queue_offset) else {
        return Err("the transaction is decided already".to_owned());
    };
    let put = match core.store.put(message) {
        Ok(put) => put,
        Err(error) => {
            core.transactions.lock().give_up(claimed);
            return Err(error.to_string());
        }
    };
    let op = put_op(core, claimed);
    let mut ledger = core.transactions.lock();
    ledger.moved(claimed, put.queue_offset);
    match op {
        Ok(op) => ledger.decided(claimed, op.queue_offset),
        Err(_) => ledger.decided_without_op(claimed),
    }
    Ok(())
}

/// Asks one connected producer of the half's group.
fn send_check(core: &Arc<Core>, half: &Record<'_>, text: &str, queue_offset: i64, physical_offset: i64) {
    let Some((topic, queue_id)) = real_target(half) else {
        return;
    };
    let group = half.property(prop::PGROUP).unwrap_or_default();
    let producers = core.clients.producers(group);
    if producers.is_empty() {
        tracing::debug!(
            group,
            "no producer of the group is connected to be asked about a transaction"
        );
        return;
    }
    let draft = RecordDraft {
        topic,
        queue_id,
        flag: half.flag,
        sys_flag: half.sys_flag,
        born_timestamp: half.born_timestamp,
        born_host: half.born_host,
        store_host: half.store_host,
        reconsume_times: half.reconsume_times,
        prepared_transaction_offset: 0,
        body: half.body,
        properties: text.as_bytes(),
    };
    let mut record = Vec::with_capacity(draft.encoded_len());
    draft.encode(&mut record);
    patch::queue_offset(&mut record, queue_offset);
    patch::physical_offset(&mut record, physical_offset);
    patch::store_timestamp(&mut record, half.store_timestamp);
    let unique = half.property(prop::UNIQ_KEY);
    let offset_id = ferromq_protocol::message_id::offset_id(half.store_host, physical_offset);
    let command = Command::request(request::CHECK_TRANSACTION_STATE)
        .with_header(&CheckTransactionState {
            tran_state_table_offset: queue_offset,
            commit_log_offset: physical_offset,
            msg_id: unique,
            transaction_id: unique,
            offset_msg_id: Some(&offset_id),
        })
        .with_body(record);
    // By turns; one whose queue is full is passed over.
    let first = usize::try_from(queue_offset).unwrap_or(0) % producers.len();
    for turn in 0..producers.len().min(3) {
        let producer = &producers[(first + turn) % producers.len()];
        if producer.link.oneway(command.clone()).is_ok() {
            return;
        }
    }
    tracing::debug!(
        group,
        "no producer could be asked about a transaction; it is tried in the next pass"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: Rules = Rules {
        now: 100_000,
        immunity: 6_000,
        most: 15,
        oldest: 90_000,
    };

    #[test]
    fn young_halves_wait_and_others_are_asked_about() {
        assert_eq!(fate(95_000, 0, None, RULES), Fate::Wait);
        assert_eq!(fate(94_000, 0, None, RULES), Fate::Ask(1));
        assert_eq!(fate(94_000, 7, None, RULES), Fate::Ask(8));
    }

    #[test]
    fn a_half_may_ask_for_another_immunity() {
        assert_eq!(fate(50_000, 0, Some(60), RULES), Fate::Wait);
        assert_eq!(fate(99_000, 0, Some(0), RULES), Fate::Ask(1));
        assert_eq!(fate(99_000, 0, Some(-1), RULES), Fate::Wait);
        assert_eq!(fate(50_000, 0, Some(i64::MAX), RULES), Fate::Wait);
    }

    #[test]
    fn a_half_from_the_future_is_asked_about() {
        assert_eq!(fate(100_500, 0, None, RULES), Fate::Wait);
        assert_eq!(fate(160_000, 0, None, RULES), Fate::Wait);
        assert_eq!(fate(160_001, 3, None, RULES), Fate::Ask(4));
        assert_eq!(fate(i64::MAX, 15, None, RULES), Fate::PutAside);
        assert_eq!(fate(i64::MIN, 0, None, RULES), Fate::PutAside);
    }

    #[test]
    fn too_many_questions_or_too_old_is_put_aside() {
        assert_eq!(fate(94_000, 15, None, RULES), Fate::PutAside);
        assert_eq!(fate(5_000, 0, None, RULES), Fate::PutAside);
    }
}
