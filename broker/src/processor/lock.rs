//! Queue locks of ordered consumers: lock (41) and unlock (42).

use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::body::{LockBatchRequestBody, LockBatchResponseBody};
use ferromq_remoting::{Outcome, RequestContext};

use super::{Refusal, json, ok, parse};
use crate::clock::steady_ms;
use crate::core::Core;

fn body(request: &Command) -> Result<LockBatchRequestBody, Refusal> {
    let body: LockBatchRequestBody = parse(request, "lock request")?;
    if body.consumer_group.is_empty() || body.client_id.is_empty() {
        return Err(Refusal::system(
            "a lock request must name its consumerGroup and clientId",
        ));
    }
    Ok(body)
}

pub(crate) fn lock(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let body = body(request)?;
    let lock_ok_mq_set = core
        .locks
        .lock(&body.consumer_group, &body.client_id, &body.mq_set, steady_ms());
    Ok(json(request, &LockBatchResponseBody { lock_ok_mq_set }))
}

pub(crate) fn unlock(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let body = body(request)?;
    core.locks
        .unlock(&body.consumer_group, &body.client_id, &body.mq_set);
    Ok(ok(request))
}
