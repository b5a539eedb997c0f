//! Units of a consume queue as they are (321), and what else serves looking into things: half messages asked about
//! anew (323), and the two codes of filter servers, of which only the registration is taken.

use std::fmt::Write as _;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use ferromq_protocol::body::{ConsumeQueueData, QueryConsumeQueueResponseBody};
use ferromq_protocol::code::response;
use ferromq_protocol::header::{QueryConsumeQueue, RegisterFilterServerResponse, ResumeCheckHalfMessage};
use ferromq_protocol::record::{self, Check, Entry};
use ferromq_protocol::{Command, message_id};
use ferromq_remoting::{Outcome, RequestContext};

use ferromq_store::{MessageFilter as _, QueueUnit};

use super::{Refusal, json, ok};
use crate::client_table::Lookup;
use crate::core::Core;
use crate::selector::{Selector, Wanted};
use crate::transaction;

/// The most units in one answer.
const MOST_UNITS: usize = 1_024;

/// Shows units and whether a group's subscription would take them.
pub(crate) fn units(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: QueryConsumeQueue<'_> = request.header()?;
    let (topic, queue_id) = (header.topic, header.queue_id);
    if header.count < 0 {
        return Err(Refusal::system(format!(
            "count is {}; use 1 or more",
            header.count
        )));
    }
    let count = usize::try_from(header.count).unwrap_or(0).min(MOST_UNITS);
    let Some(units) = core.store.queue_units(topic, queue_id, header.index, count) else {
        return Err(Refusal::system(format!("{queue_id}@{topic} is not exist!")));
    };
    let mut body = QueryConsumeQueueResponseBody {
        max_queue_index: core.store.max_offset(topic, queue_id),
        min_queue_index: core.store.min_offset(topic, queue_id),
        ..QueryConsumeQueueResponseBody::default()
    };
    let mut filter = None;
    if let Some(group) = header.consumer_group.filter(|g| !g.is_empty()) {
        match core.clients.look_up(group, topic) {
            Lookup::Found { subscription, .. } => {
                body.subscription_data = Some(subscription.data.clone());
                filter = subscription.selector.as_ref().ok().map(|selector| {
                    let bits = match selector {
                        Selector::Sql(sql) => core.filters.bits_of(group, topic, sql.text()),
                        Selector::Tags(_) => None,
                    };
                    Wanted {
                        selector: selector.clone(),
                        bits,
                        retry: None,
                    }
                });
                body.filter_data = core.filters.shown(group, topic);
            }
            Lookup::NoGroup | Lookup::NoTopic { .. } => {
                body.filter_data = Some(format!("{group}@{topic} is not online!"));
            }
        }
    }
    if units.is_empty() {
        // As peers have it: success with the reason, and no body.
        return Ok(request
            .reply(response::SUCCESS)
            .with_remark(format!(
                "Index {} of {queue_id}@{topic} is not exist!",
                header.index
            ))
            .into());
    }
    body.queue_data = units
        .into_iter()
        .map(|unit| shown(unit, filter.as_ref()))
        .collect();
    Ok(json(request, &body))
}

/// A unit as tools show it.
fn shown(unit: QueueUnit, filter: Option<&Wanted>) -> ConsumeQueueData {
    let mut data = ConsumeQueueData {
        physic_offset: unit.physical,
        physic_size: unit.size,
        tags_code: unit.tags_code,
        ..ConsumeQueueData::default()
    };
    let Some(more) = unit.extension else {
        if unit.tags_code < i64::from(i32::MIN) {
            data.msg = Some(format!("Cq extend not exist!addr: {}", unit.tags_code));
        }
        data.eval = filter.is_some_and(|f| f.by_queue(unit.tags_code));
        return data;
    };
    data.eval = filter.is_some_and(|f| {
        f.by_queue(more.tags_code)
            && (more.filter_bits.is_empty() || f.by_filter_bits(more.store_timestamp, &more.filter_bits))
    });
    let map = (!more.filter_bits.is_empty()).then(|| BASE64.encode(&more.filter_bits));
    let json = serde_json::json!({
        "filterBitMap": map,
        "msgStoreTime": more.store_timestamp,
        "size": more.size(),
        "tagsCode": more.tags_code,
    });
    data.extend_data_json = Some(json.to_string());
    data.bit_map = (!more.filter_bits.is_empty()).then(|| bit_text(&more.filter_bits));
    data
}

/// The bits from the last to the first, with a line's end after each eight bytes.
fn bit_text(map: &[u8]) -> String {
    let mut text = String::with_capacity(map.len() * 9);
    for (at, byte) in map.iter().enumerate().rev() {
        // Writing to a text cannot fail.
        let _ok = write!(text, "{byte:08b}");
        if at % 8 == 0 {
            text.push('\n');
        }
    }
    text
}

/// Has the producers of a half message asked again that nobody decided in time.
pub(crate) fn resume_check(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: ResumeCheckHalfMessage<'_> = request.header()?;
    super::admin::check_master(core)?;
    let missing = || {
        Refusal::system(format!(
            "there is no message with the id {:?}",
            header.msg_id.unwrap_or("")
        ))
    };
    let bytes = header
        .msg_id
        .and_then(message_id::parse_offset_id)
        .and_then(|(_, offset)| core.store.look_up(offset))
        .ok_or_else(missing)?;
    let Ok(Entry::Record(found)) = record::parse(&bytes, Check::None) else {
        return Err(missing());
    };
    transaction::check::resume(core, &found).map_err(Refusal::system)?;
    tracing::info!(id = header.msg_id, by = %cx.conn.peer(), "a half message is asked about again");
    Ok(ok(request))
}

/// A filter server reports itself. Nothing is handed to it: there are no classes to filter with.
pub(crate) fn register_filter_server(core: &Arc<Core>, request: &Command) -> Outcome {
    request
        .reply(response::SUCCESS)
        .with_header(&RegisterFilterServerResponse {
            broker_name: &core.identity.name,
            broker_id: core.identity.id,
        })
        .into()
}

/// Classes are never loaded.
pub(crate) fn refuse_filter_class(
    _: &Arc<Core>,
    _: &RequestContext,
    _: &Command,
) -> Result<Outcome, Refusal> {
    Err(Refusal::system(
        "filter classes are not loaded here; select messages by tags or by an SQL92 expression (enablePropertyFilter)",
    ))
}
