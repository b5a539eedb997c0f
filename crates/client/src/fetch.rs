//! One pull: request, answer, and the memory of which broker to ask next. Shared by all consumers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{PullMessage, PullMessageResponse};
use ferromq_protocol::sysflag::pull as flags;
use parking_lot::Mutex;

use crate::MessageQueue;
use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::filter::Filter;
use crate::link;
use crate::pull_consumer::{PullStatus, Pulled};
use crate::received;

/// Time for the answer beyond the time that the broker may hold a pull.
const BEYOND_HOLD: Duration = Duration::from_secs(5);

/// What to ask. Names are those of the wire, namespace included.
#[derive(Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) group: &'a str,
    pub(crate) queue: &'a MessageQueue,
    pub(crate) offset: i64,
    pub(crate) max: i32,
    pub(crate) hold: Duration,
    pub(crate) filter: &'a Filter,
    /// The subscription goes with the request; else the broker takes the one of the group's heartbeats.
    pub(crate) tell_filter: bool,
    pub(crate) sub_version: i64,
    /// An offset to be stored on the way, above 0.
    pub(crate) commit: Option<i64>,
}

/// Pulls, following the brokers' advice on whom to ask. Cheap to clone; clones share that memory.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    client: Client,
    readers: Arc<Mutex<HashMap<MessageQueue, i64>>>,
}

impl Fetcher {
    pub(crate) fn new(client: Client) -> Self {
        Self {
            client,
            readers: Arc::default(),
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Asks once. Dropping the future loses no message.
    pub(crate) async fn pull(&self, ask: &Ask<'_>) -> Result<Pulled> {
        let queue = ask.queue;
        let route = self.client.inner().routes.get(&queue.topic).await?;
        let reader = self.readers.lock().get(queue).copied().unwrap_or(0);
        let address = route
            .reader(&queue.broker_name, reader)
            .ok_or_else(|| unknown(queue))?;
        let from_master = route.master(&queue.broker_name) == Some(address);
        let commit = ask.commit.filter(|offset| *offset > 0 && from_master);
        let mut sys_flag = 0;
        if ask.tell_filter {
            sys_flag |= flags::SUBSCRIPTION;
        }
        if !ask.hold.is_zero() {
            sys_flag |= flags::SUSPEND;
        }
        if commit.is_some() {
            sys_flag |= flags::COMMIT_OFFSET;
        }
        let expression = ask.tell_filter.then(|| ask.filter.expression());
        let header = PullMessage {
            consumer_group: ask.group,
            topic: &queue.topic,
            queue_id: queue.queue_id,
            queue_offset: ask.offset,
            max_msg_nums: ask.max,
            sys_flag,
            commit_offset: commit.unwrap_or(0),
            suspend_timeout_millis: i64::try_from(ask.hold.as_millis()).unwrap_or(i64::MAX),
            subscription: expression.as_deref(),
            sub_version: ask.sub_version,
            expression_type: Some(ask.filter.kind()),
        };
        let request = Command::request(request::PULL_MESSAGE).with_header(&header);
        let name = link::name_of(request.code);
        let link = &self.client.inner().link;
        let patience = ask.hold + BEYOND_HOLD.max(link.call_timeout());
        let answer = match link.call(address, request, patience).await {
            Ok(answer) => answer,
            Err(error) => {
                // The advice may have named a slave that is gone.
                self.remember_reader(queue, 0);
                return Err(error);
            }
        };
        let status = match answer.code {
            response::SUCCESS => PullStatus::Found,
            response::PULL_NOT_FOUND => PullStatus::NoNewMessage,
            response::PULL_RETRY_IMMEDIATELY => PullStatus::NoMatch,
            response::PULL_OFFSET_MOVED => PullStatus::OffsetMoved,
            _ => return Err(link::refusal(address, name, answer)),
        };
        let header: PullMessageResponse = answer
            .header()
            .map_err(|error| link::bad_answer(address, name, error))?;
        self.remember_reader(queue, header.suggest_which_broker_id);
        let mut messages = match status {
            PullStatus::Found => received::parse_all(&answer.body, Some(&Arc::from(queue.topic.as_str())))
                .map_err(|error| link::bad_answer(address, name, error))?,
            _ => Vec::new(),
        };
        messages.retain(|message| ask.filter.accepts(message.tag()));
        Ok(Pulled {
            status,
            messages,
            next_offset: header.next_begin_offset,
            min_offset: header.min_offset,
            max_offset: header.max_offset,
        })
    }

    /// The master's address, else that of any broker of the group: slaves answer questions about offsets too.
    pub(crate) async fn master(&self, queue: &MessageQueue) -> Result<String> {
        let route = self.client.inner().routes.get(&queue.topic).await?;
        route
            .reader(&queue.broker_name, 0)
            .map(str::to_owned)
            .ok_or_else(|| unknown(queue))
    }

    fn remember_reader(&self, queue: &MessageQueue, id: i64) {
        let mut readers = self.readers.lock();
        if id == 0 {
            readers.remove(queue);
        } else if readers.get(queue) != Some(&id) {
            readers.insert(queue.clone(), id);
        }
    }
}

pub(crate) fn unknown(queue: &MessageQueue) -> ClientError {
    ClientError::UnknownBroker {
        broker: queue.broker_name.clone(),
    }
}
