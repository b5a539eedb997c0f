//! What brokers ask of a client over its own connections: to look at its group again (40), to go to other offsets
//! (220), where it is (221), how it does (307), to consume one message now (309), what became of a transaction (39),
//! and to take a reply (326).
//!
//! The table of handlers must be there before the first connection, the consumers and producers come later; so they
//! put themselves into this registry.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use ferromq_protocol::body::{GetConsumerStatusBody, ResetOffsetBody};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{
    CheckTransactionState, ConsumeMessageDirectly, ConsumerGroupHeader, GetConsumerRunningInfo,
    GetConsumerStatus, HeaderError, PushReplyMessage, ResetOffset,
};
use ferromq_protocol::names::topics;
use ferromq_protocol::properties::names;
use ferromq_remoting::{Dispatch, Handler, Outcome, Reply, RequestContext, Run};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

use crate::push_consumer::Core;
use crate::received::{self, ReceivedMessage};

/// A broker's question about a half message.
#[derive(Debug)]
pub(crate) struct Check {
    /// Where the answer goes.
    pub(crate) broker: SocketAddr,
    pub(crate) message: ReceivedMessage,
    pub(crate) table_offset: i64,
    pub(crate) log_offset: i64,
    pub(crate) transaction_id: Option<String>,
}

#[derive(Debug, Default)]
pub(crate) struct Callbacks {
    consumers: Mutex<HashMap<String, Weak<Core>>>,
    checkers: Mutex<HashMap<String, mpsc::Sender<Check>>>,
    replies: Mutex<HashMap<String, oneshot::Sender<ReceivedMessage>>>,
}

impl Callbacks {
    /// False if the group has a push consumer here already.
    pub(crate) fn add_consumer(&self, group: &str, core: &Arc<Core>) -> bool {
        let mut consumers = self.consumers.lock();
        if consumers.get(group).is_some_and(|core| core.strong_count() > 0) {
            return false;
        }
        consumers.insert(group.to_owned(), Arc::downgrade(core));
        true
    }

    pub(crate) fn remove_consumer(&self, group: &str) {
        self.consumers.lock().remove(group);
    }

    pub(crate) fn consumers(&self) -> Vec<Arc<Core>> {
        self.consumers.lock().values().filter_map(Weak::upgrade).collect()
    }

    fn consumer(&self, group: &str) -> Option<Arc<Core>> {
        self.consumers.lock().get(group).and_then(Weak::upgrade)
    }

    pub(crate) fn add_checker(&self, group: &str, checks: mpsc::Sender<Check>) {
        self.checkers.lock().insert(group.to_owned(), checks);
    }

    pub(crate) fn remove_checker(&self, group: &str) {
        self.checkers.lock().remove(group);
    }

    /// The reply with this id, once it comes.
    pub(crate) fn expect_reply(&self, id: &str) -> oneshot::Receiver<ReceivedMessage> {
        let (sender, receiver) = oneshot::channel();
        self.replies.lock().insert(id.to_owned(), sender);
        receiver
    }

    pub(crate) fn give_up_reply(&self, id: &str) {
        self.replies.lock().remove(id);
    }

    pub(crate) fn dispatch(self: &Arc<Self>) -> Arc<Dispatch> {
        let handler: Arc<dyn Handler> = Arc::new(Face(Arc::clone(self)));
        let mut builder = Dispatch::builder();
        for code in [
            request::CHECK_TRANSACTION_STATE,
            request::NOTIFY_CONSUMER_IDS_CHANGED,
            request::RESET_CONSUMER_CLIENT_OFFSET,
            request::GET_CONSUMER_STATUS_FROM_CLIENT,
            request::GET_CONSUMER_RUNNING_INFO,
            request::CONSUME_MESSAGE_DIRECTLY,
            request::PUSH_REPLY_MESSAGE_TO_CLIENT,
        ] {
            builder.on(code, Run::Inline, Arc::clone(&handler));
        }
        builder.build()
    }
}

struct Face(Arc<Callbacks>);

impl Handler for Face {
    fn handle(&self, cx: &RequestContext, asked: Command) -> Outcome {
        let refused = |error: HeaderError| {
            let reply = asked.reply(response::SYSTEM_ERROR);
            reply.with_remark(error.to_string()).into()
        };
        self.answer(cx, &asked).unwrap_or_else(refused)
    }
}

impl Face {
    fn answer(&self, cx: &RequestContext, asked: &Command) -> Result<Outcome, HeaderError> {
        match asked.code {
            request::NOTIFY_CONSUMER_IDS_CHANGED => {
                let header: ConsumerGroupHeader<'_> = asked.header()?;
                if let Some(core) = self.0.consumer(header.consumer_group) {
                    core.balance_soon();
                }
                Ok(Outcome::Silent)
            }
            request::CHECK_TRANSACTION_STATE => {
                self.check(cx, asked)?;
                Ok(Outcome::Silent)
            }
            request::RESET_CONSUMER_CLIENT_OFFSET => {
                let header: ResetOffset<'_> = asked.header()?;
                let body = fastjson::from_slice::<ResetOffsetBody>(&asked.body).unwrap_or_default();
                if let Some(core) = self.0.consumer(header.group) {
                    core.reset(header.topic, &body.offset_table);
                }
                Ok(Outcome::Silent)
            }
            request::GET_CONSUMER_STATUS_FROM_CLIENT => {
                let header: GetConsumerStatus<'_> = asked.header()?;
                let table = self
                    .0
                    .consumer(header.group)
                    .map(|core| core.offsets_of(header.topic));
                let body = GetConsumerStatusBody {
                    message_queue_table: table.unwrap_or_default(),
                    ..GetConsumerStatusBody::default()
                };
                Ok(asked
                    .reply(response::SUCCESS)
                    .with_body(fastjson::to_vec(&body))
                    .into())
            }
            request::GET_CONSUMER_RUNNING_INFO => {
                let header: GetConsumerRunningInfo<'_> = asked.header()?;
                let Some(core) = self.0.consumer(header.consumer_group) else {
                    return Ok(no_consumer(asked, header.consumer_group));
                };
                let body = fastjson::to_vec(&core.running_info());
                Ok(asked.reply(response::SUCCESS).with_body(body).into())
            }
            request::CONSUME_MESSAGE_DIRECTLY => {
                let header: ConsumeMessageDirectly<'_> = asked.header()?;
                let Some(core) = self.0.consumer(header.consumer_group) else {
                    return Ok(no_consumer(asked, header.consumer_group));
                };
                let message = received::parse_all(&asked.body, None)
                    .ok()
                    .and_then(|mut all| all.pop());
                let Some(message) = message else {
                    let reply = asked.reply(response::SYSTEM_ERROR);
                    return Ok(reply.with_remark("the request holds no message").into());
                };
                let broker = header.broker_name.unwrap_or_default().to_owned();
                let reply = asked.reply(response::SUCCESS);
                Ok(Outcome::Later(Box::pin(async move {
                    let result = core.consume_directly(message, &broker).await;
                    Reply::from(reply.with_body(fastjson::to_vec(&result)))
                })))
            }
            _ => Ok(self.take_reply(asked)),
        }
    }

    /// The broker sends the half message along; an answer is a request of its own.
    fn check(&self, cx: &RequestContext, asked: &Command) -> Result<(), HeaderError> {
        let header: CheckTransactionState<'_> = asked.header()?;
        let message = received::parse_all(&asked.body, None)
            .ok()
            .and_then(|mut all| all.pop());
        let Some(message) = message else {
            tracing::warn!("a broker asked about a transaction without its message");
            return Ok(());
        };
        let group = message.property(names::PGROUP).unwrap_or_default();
        let checker = self.0.checkers.lock().get(group).cloned();
        let Some(checker) = checker else {
            tracing::debug!(
                group,
                "a broker asked about a transaction of a group that has no producer here"
            );
            return Ok(());
        };
        let check = Check {
            broker: cx.conn.peer(),
            table_offset: header.tran_state_table_offset,
            log_offset: header.commit_log_offset,
            transaction_id: header.transaction_id.map(str::to_owned),
            message,
        };
        if checker.try_send(check).is_err() {
            tracing::warn!("too many transactions wait for their check; the broker will ask again");
        }
        Ok(())
    }

    fn take_reply(&self, asked: &Command) -> Outcome {
        let header: PushReplyMessage<'_> = match asked.header() {
            Ok(header) => header,
            Err(error) => {
                let reply = asked.reply(response::SYSTEM_ERROR);
                return reply.with_remark(error.to_string()).into();
            }
        };
        let id = ferromq_protocol::properties::get(header.properties, names::CORRELATION_ID);
        let waiting = id.and_then(|id| self.0.replies.lock().remove(id));
        let taken = waiting.is_some_and(|waiting| {
            let reply = reply_message(&header, asked.body.clone());
            waiting.send(reply).is_ok()
        });
        if !taken {
            tracing::debug!(id, "a reply came that nobody waits for any more");
        }
        asked.reply(response::SUCCESS).into()
    }
}

fn reply_message(header: &PushReplyMessage<'_>, body: Bytes) -> ReceivedMessage {
    let host = |text: &str| {
        let unknown = || SocketAddr::from(([0, 0, 0, 0], 0));
        text.trim_start_matches('/').parse().unwrap_or_else(|_| unknown())
    };
    ReceivedMessage::from_parts(
        &received::Parts {
            topic: header.topic,
            queue_id: header.queue_id,
            flag: header.flag,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            born_host: host(header.born_host),
            store_timestamp: header.store_timestamp,
            store_host: host(header.store_host),
            reconsume_times: header.reconsume_times,
            properties: header.properties,
        },
        body,
    )
}

fn no_consumer(asked: &Command, group: &str) -> Outcome {
    let reply = asked.reply(response::SYSTEM_ERROR);
    reply
        .with_remark(format!("The Consumer Group <{group}> not exist in this consumer"))
        .into()
}

/// The topic a message was first sent to, where it lies in a retry topic now.
pub(crate) fn original_topic(message: &ReceivedMessage) -> Option<&str> {
    let retried = message.topic.starts_with(topics::RETRY_PREFIX);
    retried.then(|| message.property(names::RETRY_TOPIC)).flatten()
}
