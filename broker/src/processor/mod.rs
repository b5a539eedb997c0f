//! Request handlers, one module for each family of codes, and the table that names them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::code::{request as code, response};
use ferromq_protocol::{Command, HeaderError, fastjson};
use ferromq_remoting::{Dispatch, Lane, Outcome, RequestContext, Run};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::core::Core;
use crate::overload::Patience;

mod acl;
mod admin;
mod cluster;
mod consumer;
mod forward;
mod heartbeat;
mod lock;
mod offset;
mod pull;
mod query;
mod queue;
mod reply;
mod send;
mod send_back;
mod stats;
mod transaction;

pub(crate) use send::{push, put_refusal};

/// An answer that says no.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) code: i32,
    pub(crate) remark: String,
}

impl Refusal {
    pub(crate) fn new(code: i32, remark: impl Into<String>) -> Self {
        Self {
            code,
            remark: remark.into(),
        }
    }

    /// Code 1, for everything that has no code of its own.
    pub(crate) fn system(remark: impl Into<String>) -> Self {
        Self::new(response::SYSTEM_ERROR, remark)
    }
}

impl From<HeaderError> for Refusal {
    fn from(error: HeaderError) -> Self {
        Self::system(error.to_string())
    }
}

/// Whether a request is still worth handling.
fn in_time(core: &Core, cx: &RequestContext, patience: Patience) -> Result<(), Refusal> {
    match patience.lost(&core.settings(), cx.received.elapsed()) {
        None => Ok(()),
        Some(why) => Err(Refusal::new(response::SYSTEM_BUSY, why)),
    }
}

/// The same for handlers that refuse: counts too.
fn still_in_time(core: &Core, cx: &RequestContext, patience: Patience) -> Result<(), Refusal> {
    in_time(core, cx, patience).inspect_err(|_| core.stats.answered_busy())
}

/// How far a handler got without blocking.
pub(crate) enum Step {
    Done(Outcome),
    /// Something has to be put on disk first.
    Blocking,
}

/// A handler that answers at once or refuses.
type Simple = fn(&Arc<Core>, &RequestContext, &Command) -> Result<Outcome, Refusal>;

fn simple(core: &Arc<Core>, handler: Simple) -> Arc<dyn ferromq_remoting::Handler> {
    let core = core.clone();
    Arc::new(move |cx: &RequestContext, request: Command| {
        handler(&core, cx, &request)
            .unwrap_or_else(|refusal| request.reply(refusal.code).with_remark(refusal.remark).into())
    })
}

/// A handler that has nothing to refuse.
type Sure = fn(&Arc<Core>, &Command) -> Outcome;

fn sure(core: &Arc<Core>, handler: Sure) -> Arc<dyn ferromq_remoting::Handler> {
    let core = core.clone();
    Arc::new(move |_: &RequestContext, request: Command| handler(&core, &request))
}

/// A handler that takes the request with it into a later answer.
type Whole = fn(&Arc<Core>, &RequestContext, Command) -> Outcome;

fn whole(core: &Arc<Core>, handler: Whole) -> Arc<dyn ferromq_remoting::Handler> {
    let core = core.clone();
    Arc::new(move |cx: &RequestContext, request: Command| handler(&core, cx, request))
}

fn ok(request: &Command) -> Outcome {
    request.reply(response::SUCCESS).into()
}

fn json<T: Serialize>(request: &Command, body: &T) -> Outcome {
    request
        .reply(response::SUCCESS)
        .with_body(Bytes::from(fastjson::to_vec(body)))
        .into()
}

/// The request's body as JSON.
fn parse<T: DeserializeOwned>(request: &Command, what: &str) -> Result<T, Refusal> {
    if request.body.is_empty() {
        return Err(Refusal::system(format!(
            "the request has no body; expected {what} as JSON"
        )));
    }
    fastjson::from_slice(&request.body)
        .map_err(|error| Refusal::system(format!("the request's body is no {what} in JSON: {error}")))
}

/// Sends of clients, single and batch.
const SENDS: [i32; 3] = [
    code::SEND_MESSAGE,
    code::SEND_MESSAGE_V2,
    code::SEND_BATCH_MESSAGE,
];

/// Quick requests, handled on the connection's task.
const INLINE: &[(i32, Simple)] = &[
    (code::QUERY_CONSUMER_OFFSET, offset::query),
    (code::UPDATE_CONSUMER_OFFSET, offset::update),
    (code::GET_MAX_OFFSET, offset::max),
    (code::GET_CONSUMER_LIST_BY_GROUP, consumer::list),
    (code::LOCK_BATCH_MQ, lock::lock),
    (code::UNLOCK_BATCH_MQ, lock::unlock),
];

/// Requests of clients that may wait for the disk.
const OF_CLIENTS: &[(i32, Simple)] = &[
    (code::SEND_REPLY_MESSAGE, reply::handle),
    (code::SEND_REPLY_MESSAGE_V2, reply::handle),
    (code::CONSUMER_SEND_MSG_BACK, send_back::handle),
    (code::HEART_BEAT, heartbeat::beat),
    (code::UNREGISTER_CLIENT, heartbeat::unregister),
    (code::CHECK_CLIENT_CONFIG, heartbeat::check_client),
];

/// Requests that may read from the disk.
const QUERIES: &[(i32, Simple)] = &[
    (code::QUERY_MESSAGE, query::by_key),
    (code::VIEW_MESSAGE_BY_ID, query::by_id),
    (code::GET_MIN_OFFSET, offset::min),
    (code::SEARCH_OFFSET_BY_TIMESTAMP, offset::by_time),
    (code::GET_EARLIEST_MSG_STORETIME, offset::earliest_time),
    (code::GET_TOPIC_STATS_INFO, stats::topic),
    (code::QUERY_CONSUME_QUEUE, queue::units),
];

/// Requests of administrators.
const ADMINISTRATION: &[(i32, Simple)] = &[
    (code::GET_BROKER_CONSUME_STATS, stats::all_groups),
    (code::QUERY_CONSUME_TIME_SPAN, stats::time_spans),
    (code::VIEW_BROKER_STATS_DATA, stats::item),
    (code::QUERY_CORRECTION_OFFSET, stats::correction),
    (code::CLONE_GROUP_OFFSET, stats::clone_group),
    (code::GET_CONSUMER_RUNNING_INFO, forward::running_info),
    (code::CONSUME_MESSAGE_DIRECTLY, forward::consume_directly),
    (code::INVOKE_BROKER_TO_RESET_OFFSET, forward::reset),
    (
        code::INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        forward::consumer_status,
    ),
    (code::UPDATE_AND_CREATE_TOPIC, admin::put_topic),
    (code::DELETE_TOPIC_IN_BROKER, admin::delete_topic),
    (code::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, admin::put_group),
    (code::DELETE_SUBSCRIPTIONGROUP, admin::delete_group),
    (code::UPDATE_BROKER_CONFIG, cluster::update_config),
    (code::GET_CONSUMER_CONNECTION_LIST, consumer::consumers),
    (code::GET_PRODUCER_CONNECTION_LIST, consumer::producers),
    (code::QUERY_TOPIC_CONSUME_BY_WHO, consumer::groups_of_topic),
    (code::GET_CONSUME_STATS, stats::group),
    (code::RESUME_CHECK_HALF_MESSAGE, queue::resume_check),
    (code::REGISTER_MESSAGE_FILTER_CLASS, queue::refuse_filter_class),
    (code::UPDATE_AND_CREATE_ACL_CONFIG, acl::put),
    (code::DELETE_ACL_CONFIG, acl::delete),
    (code::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, acl::put_white_list),
    (code::GET_BROKER_CLUSTER_ACL_INFO, acl::versions),
    (code::GET_BROKER_CLUSTER_ACL_CONFIG, acl::all),
];

/// Requests of administrators that cannot be refused.
const TABLES: &[(i32, Sure)] = &[
    (code::REGISTER_FILTER_SERVER, queue::register_filter_server),
    (code::GET_ALL_PRODUCER_INFO, consumer::all_producers),
    (code::GET_ALL_TOPIC_CONFIG, admin::all_topics),
    (code::GET_SYSTEM_TOPIC_LIST_FROM_BROKER, admin::system_topics),
    (code::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, admin::all_groups),
    (code::GET_ALL_CONSUMER_OFFSET, admin::all_offsets),
    (code::GET_ALL_DELAY_OFFSET, admin::all_delay_offsets),
    (code::CLEAN_EXPIRED_CONSUMEQUEUE, admin::clean_expired_queues),
    (code::CLEAN_UNUSED_TOPIC, admin::clean_unused_topics),
    (code::DELETE_EXPIRED_COMMITLOG, admin::delete_expired_files),
    (code::GET_BROKER_CONFIG, cluster::config),
    (code::GET_BROKER_RUNTIME_INFO, cluster::runtime_info),
];

/// The table of all codes that this broker serves.
pub(crate) fn dispatch(core: &Arc<Core>) -> Arc<Dispatch> {
    let mut table = Dispatch::builder();
    let patience = Duration::from_secs(30);
    let clients = table.lane(Lane {
        name: "clients",
        workers: 4,
        queue: 50_000,
        max_wait: patience,
    });
    let admin = table.lane(Lane {
        name: "admin",
        workers: 4,
        queue: 10_000,
        max_wait: patience,
    });
    let transactions = table.lane(Lane {
        name: "transaction",
        workers: 4,
        queue: 100_000,
        max_wait: patience,
    });
    let query = table.lane(Lane {
        name: "query",
        workers: 4,
        queue: 20_000,
        max_wait: patience,
    });

    if let Some(acl) = &core.acl {
        table.hook(acl.clone());
    }
    for send in SENDS {
        table.on(send, Run::Inline, whole(core, send::handle));
    }
    table.on(code::PULL_MESSAGE, Run::Inline, whole(core, pull::handle));
    for &(code, handler) in INLINE {
        table.on(code, Run::Inline, simple(core, handler));
    }
    for &(code, handler) in OF_CLIENTS {
        table.on(code, Run::On(clients), simple(core, handler));
    }
    table.on(
        code::END_TRANSACTION,
        Run::On(transactions),
        simple(core, transaction::end),
    );
    for &(code, handler) in QUERIES {
        table.on(code, Run::On(query), simple(core, handler));
    }
    for &(code, handler) in ADMINISTRATION {
        table.on(code, Run::On(admin), simple(core, handler));
    }
    for &(code, handler) in TABLES {
        table.on(code, Run::On(admin), sure(core, handler));
    }
    table.build()
}

/// Every code that is served.
#[cfg(test)]
pub(crate) fn codes() -> Vec<i32> {
    let simple = [INLINE, OF_CLIENTS, QUERIES, ADMINISTRATION];
    SENDS
        .into_iter()
        .chain([code::PULL_MESSAGE, code::END_TRANSACTION])
        .chain(simple.into_iter().flatten().map(|(code, _)| *code))
        .chain(TABLES.iter().map(|(code, _)| *code))
        .collect()
}
