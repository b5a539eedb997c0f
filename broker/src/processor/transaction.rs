//! Decisions about transactional messages (37).

use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::code::response;
use ferromq_protocol::header::EndTransaction;
use ferromq_protocol::names::topics;
use ferromq_protocol::properties::names as prop;
use ferromq_protocol::record::{self, Check, Entry, Record};
use ferromq_protocol::sysflag;
use ferromq_remoting::{Outcome, RequestContext};

use super::Refusal;
use super::send::when_safe;
use crate::core::Core;
use crate::overload::Patience;
use crate::transaction::{load, put_committed, put_op};

pub(crate) fn end(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    super::still_in_time(core, cx, Patience::Transaction)?;
    let header: EndTransaction<'_> = request.header()?;
    if core.is_slave() {
        return Err(Refusal::new(
            response::SLAVE_NOT_AVAILABLE,
            "this broker is a slave: it decides no transactions; ask the master",
        ));
    }
    let commit = match header.commit_or_rollback {
        sysflag::TRANSACTION_COMMIT => true,
        sysflag::TRANSACTION_ROLLBACK => false,
        // Not decided yet: the producer is asked again. Peers expect no answer.
        0 => return Ok(Outcome::Silent),
        other => {
            return Err(Refusal::system(format!(
                "commitOrRollback is {other}; use 8 (commit) or 12 (roll back)"
            )));
        }
    };
    let missing = || Refusal::system("Find prepared transaction message failed");
    let bytes = core.store.look_up(header.commit_log_offset).ok_or_else(missing)?;
    let Ok(Entry::Record(half)) = record::parse(&bytes, Check::None) else {
        return Err(missing());
    };
    check(&half, &header)?;
    load(core);
    let Some(claimed) = core.transactions.lock().begin(half.queue_offset) else {
        // It was decided before: deciding again changes nothing.
        return Ok(super::ok(request));
    };
    let put = if commit {
        match put_committed(core, &half) {
            Ok(put) => Some(put),
            Err(refusal) => {
                core.transactions.lock().give_up(claimed);
                return Err(refusal);
            }
        }
    } else {
        None
    };
    match put_op(core, claimed) {
        Ok(op) => core.transactions.lock().decided(claimed, op.queue_offset),
        Err(error) => {
            tracing::warn!(%error, half = claimed, "a decision is known in memory only until the broker restarts");
            core.transactions.lock().decided_without_op(claimed);
        }
    }
    let head = request.reply(response::SUCCESS);
    Ok(match put {
        Some(put) => {
            core.stats.stored(1, put.size as u64);
            when_safe(head, put.ack)
        }
        None => head.into(),
    })
}

/// Whether the request is about this half message.
fn check(half: &Record<'_>, header: &EndTransaction<'_>) -> Result<(), Refusal> {
    let wrong = |what| Refusal::system(format!("{what}; the decision is not about this message"));
    if half.topic != topics::TRANS_HALF {
        return Err(wrong("the message is no half message"));
    }
    if half.property(prop::PGROUP) != Some(header.producer_group) {
        return Err(wrong("The producer group wrong"));
    }
    if half.queue_offset != header.tran_state_table_offset {
        return Err(wrong("The transaction state table offset wrong"));
    }
    if half.physical_offset != header.commit_log_offset {
        return Err(wrong("The commit log offset wrong"));
    }
    Ok(())
}
