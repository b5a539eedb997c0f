//! Messages by key (12) and by physical offset (33).

use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::code::response;
use ferromq_protocol::header::{QueryMessage, QueryMessageResponse, ViewMessage};
use ferromq_remoting::{Outcome, Reply, RequestContext};
use ferromq_store::KeyQuery;

use super::Refusal;
use crate::core::Core;

pub(crate) fn by_key(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: QueryMessage<'_> = request.header()?;
    let settings = core.settings();
    let most = settings.max_msgs_num_batch.max(1);
    let max_messages = if header.unique_key {
        settings.default_query_max_num.max(1) as usize
    } else {
        header.max_num.clamp(1, most) as usize
    };
    let found = core.store.query(&KeyQuery {
        topic: header.topic,
        key: header.key,
        max_messages,
        begin: header.begin_timestamp,
        end: header.end_timestamp,
    });
    let head = request
        .reply(response::SUCCESS)
        .with_header(&QueryMessageResponse {
            index_last_update_timestamp: found.last_update_timestamp,
            index_last_update_phyoffset: found.last_update_offset,
        });
    if found.records.is_empty() {
        let mut head = head.with_remark("can not find message, maybe time range not correct");
        head.code = response::QUERY_NOT_FOUND;
        return Ok(head.into());
    }
    Ok(Reply {
        head,
        chunks: found.records,
    }
    .into())
}

pub(crate) fn by_id(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: ViewMessage = request.header()?;
    let Some(record) = core.store.look_up(header.offset) else {
        return Err(Refusal::system(format!(
            "can not find message by the offset, {}",
            header.offset
        )));
    };
    Ok(Reply {
        head: request.reply(response::SUCCESS),
        chunks: vec![record],
    }
    .into())
}
