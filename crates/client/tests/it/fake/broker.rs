//! The broker: queues in memory, and answers by script before that.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::Command;
use ferromq_protocol::body::HeartbeatData;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{PullMessage, SendMessage};
use ferromq_protocol::record::{RecordDraft, patch};
use ferromq_protocol::{batch, message_id, sysflag};
use ferromq_remoting::{Handler, Outcome, Reply, RequestContext};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Running;

struct State {
    name: String,
    queues: Mutex<BTreeMap<(String, i32), Vec<Bytes>>>,
    min_offset: Mutex<i64>,
    log: Mutex<Vec<Bytes>>,
    offsets: Mutex<BTreeMap<(String, String, i32), i64>>,
    script: Mutex<VecDeque<(i32, &'static str)>>,
    bodies: Mutex<BTreeMap<i32, Bytes>>,
    asked: Mutex<Vec<Command>>,
    silent: AtomicBool,
    arrived: Notify,
}

pub(crate) struct FakeBroker {
    pub(crate) running: Running,
    state: Arc<State>,
}

impl FakeBroker {
    pub(crate) fn start(name: &str) -> Self {
        let state = Arc::new(State {
            name: name.to_owned(),
            queues: Mutex::default(),
            min_offset: Mutex::default(),
            log: Mutex::default(),
            offsets: Mutex::default(),
            script: Mutex::default(),
            bodies: Mutex::default(),
            asked: Mutex::default(),
            silent: AtomicBool::new(false),
            arrived: Notify::new(),
        });
        let running = Running::start(Arc::new(Face(Arc::clone(&state))));
        Self { running, state }
    }

    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }

    pub(crate) fn address(&self) -> String {
        self.running.address.to_string()
    }

    /// The next sends are answered with these codes and remarks and not stored.
    pub(crate) fn refuse_sends(&self, codes: &[(i32, &'static str)]) {
        self.state.script.lock().extend(codes);
    }

    /// From now on sends are read and never answered.
    pub(crate) fn fall_silent(&self) {
        self.state.silent.store(true, Ordering::SeqCst);
    }

    /// What is answered to requests with this code, whatever their arguments.
    pub(crate) fn set_body(&self, code: i32, body: &'static str) {
        self.state
            .bodies
            .lock()
            .insert(code, Bytes::from_static(body.as_bytes()));
    }

    /// All requests with this code so far.
    pub(crate) fn asked(&self, code: i32) -> Vec<Command> {
        self.state
            .asked
            .lock()
            .iter()
            .filter(|c| c.code == code)
            .cloned()
            .collect()
    }

    /// Messages in a queue of topic `T`.
    pub(crate) fn stored(&self, queue: i32) -> usize {
        self.state
            .queues
            .lock()
            .get(&("T".to_owned(), queue))
            .map_or(0, Vec::len)
    }

    pub(crate) fn stored_in_all(&self) -> usize {
        self.state.queues.lock().values().map(Vec::len).sum()
    }

    pub(crate) fn group_offset(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        self.state
            .offsets
            .lock()
            .get(&(group.to_owned(), topic.to_owned(), queue))
            .copied()
    }

    pub(crate) fn heartbeats(&self) -> Vec<HeartbeatData> {
        self.asked(request::HEART_BEAT)
            .iter()
            .map(|c| fastjson::from_slice(&c.body).unwrap())
            .collect()
    }

    /// Pretends that the messages before this offset are gone.
    pub(crate) fn expire_before(&self, offset: i64) {
        *self.state.min_offset.lock() = offset;
    }
}

impl State {
    fn store(
        &self,
        header: &SendMessage<'_>,
        born_host: SocketAddr,
        store_host: SocketAddr,
        body: &[u8],
        properties: &[u8],
    ) -> (i64, i64) {
        let mut record = Vec::new();
        let draft = RecordDraft {
            topic: header.topic,
            queue_id: header.queue_id,
            flag: header.flag,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            born_host,
            store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body,
            properties,
        };
        draft.encode(&mut record);
        let mut queues = self.queues.lock();
        let mut log = self.log.lock();
        let queue = queues
            .entry((header.topic.to_owned(), header.queue_id))
            .or_default();
        // The fake's physical offsets are places in its list.
        let (offset, physical) = (queue.len() as i64, log.len() as i64);
        patch::queue_offset(&mut record, offset);
        patch::physical_offset(&mut record, physical);
        patch::store_timestamp(&mut record, header.born_timestamp + 1);
        let record = Bytes::from(record);
        queue.push(record.clone());
        log.push(record);
        (offset, physical)
    }

    fn send(&self, cx: &RequestContext, asked: &Command) -> Command {
        if let Some((code, remark)) = self.script.lock().pop_front() {
            return asked.reply(code).with_remark(remark);
        }
        let header: SendMessage<'_> = asked.header().unwrap();
        let (born, host) = (cx.conn.peer(), cx.conn.local());
        let mut placed = Vec::new();
        if header.batch {
            for message in batch::iter(&asked.body) {
                let message = message.unwrap();
                placed.push(self.store(&header, born, host, message.body, message.properties));
            }
        } else {
            placed.push(self.store(&header, born, host, &asked.body, header.properties.as_bytes()));
        }
        self.arrived.notify_waiters();
        let ids: Vec<String> = placed
            .iter()
            .map(|(_, physical)| message_id::offset_id(host, *physical))
            .collect();
        asked
            .reply(response::SUCCESS)
            .with_ext("msgId", ids.join(","))
            .with_ext("queueId", header.queue_id.to_string())
            .with_ext("queueOffset", placed[0].0.to_string())
    }

    fn pull(&self, asked: &Command) -> Command {
        let header: PullMessage<'_> = asked.header().unwrap();
        let queues = self.queues.lock();
        let empty = Vec::new();
        let queue = queues
            .get(&(header.topic.to_owned(), header.queue_id))
            .unwrap_or(&empty);
        let (min, max) = (*self.min_offset.lock(), queue.len() as i64);
        let from = header.queue_offset;
        let (code, next, body) = if from < min || from > max {
            (response::PULL_OFFSET_MOVED, from.clamp(min, max), Vec::new())
        } else if from == max {
            (response::PULL_NOT_FOUND, from, Vec::new())
        } else {
            let to = (from + i64::from(header.max_msg_nums)).min(max);
            (response::SUCCESS, to, queue[from as usize..to as usize].concat())
        };
        let numbers = [
            ("nextBeginOffset", next),
            ("minOffset", min),
            ("maxOffset", max),
            ("suggestWhichBrokerId", 0),
        ];
        let reply = asked.reply(code).with_body(body);
        numbers.iter().fold(reply, |reply, (name, value)| {
            reply.with_ext(name, value.to_string())
        })
    }
}

struct Face(Arc<State>);

impl Handler for Face {
    fn handle(&self, cx: &RequestContext, asked: Command) -> Outcome {
        let state = Arc::clone(&self.0);
        state.asked.lock().push(asked.clone());
        let arg = |name: &str| asked.ext.get(name).unwrap_or_default().to_owned();
        let queue = || (arg("topic"), arg("queueId").parse::<i32>().unwrap_or(-1));
        match asked.code {
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => {
                if state.silent.load(Ordering::SeqCst) {
                    return Outcome::Later(Box::pin(std::future::pending()));
                }
                state.send(cx, &asked).into()
            }
            request::PULL_MESSAGE => {
                let hold = sysflag::pull::SUSPEND & arg("sysFlag").parse::<i32>().unwrap() != 0;
                let millis: u64 = arg("suspendTimeoutMillis").parse().unwrap();
                Outcome::Later(Box::pin(async move {
                    let arrived = state.arrived.notified();
                    tokio::pin!(arrived);
                    arrived.as_mut().enable();
                    let reply = state.pull(&asked);
                    if reply.code != response::PULL_NOT_FOUND || !hold {
                        return Reply::from(reply);
                    }
                    // Whether a message came or the time is over, the second look is the answer.
                    let _either = tokio::time::timeout(Duration::from_millis(millis), arrived).await;
                    Reply::from(state.pull(&asked))
                }))
            }
            request::QUERY_CONSUMER_OFFSET => {
                let (topic, id) = queue();
                match state.offsets.lock().get(&(arg("consumerGroup"), topic, id)) {
                    Some(offset) => asked
                        .reply(response::SUCCESS)
                        .with_ext("offset", offset.to_string())
                        .into(),
                    None => asked.reply(response::QUERY_NOT_FOUND).into(),
                }
            }
            request::UPDATE_CONSUMER_OFFSET => {
                let (topic, id) = queue();
                let offset = arg("commitOffset").parse().unwrap();
                state
                    .offsets
                    .lock()
                    .insert((arg("consumerGroup"), topic, id), offset);
                asked.reply(response::SUCCESS).into()
            }
            request::GET_MAX_OFFSET => {
                let max = state.queues.lock().get(&queue()).map_or(0, Vec::len);
                asked
                    .reply(response::SUCCESS)
                    .with_ext("offset", max.to_string())
                    .into()
            }
            request::GET_MIN_OFFSET => {
                let min = state.min_offset.lock().to_string();
                asked.reply(response::SUCCESS).with_ext("offset", min).into()
            }
            request::SEARCH_OFFSET_BY_TIMESTAMP => {
                asked.reply(response::SUCCESS).with_ext("offset", "5").into()
            }
            request::VIEW_MESSAGE_BY_ID => {
                match state.log.lock().get(arg("offset").parse::<usize>().unwrap()) {
                    Some(record) => asked.reply(response::SUCCESS).with_body(record.clone()).into(),
                    None => asked
                        .reply(response::SYSTEM_ERROR)
                        .with_remark("can not find message")
                        .into(),
                }
            }
            request::QUERY_MESSAGE => {
                let all = state.log.lock().concat();
                if all.is_empty() {
                    return asked.reply(response::QUERY_NOT_FOUND).into();
                }
                asked.reply(response::SUCCESS).with_body(all).into()
            }
            code => match state.bodies.lock().get(&code) {
                Some(body) => asked.reply(response::SUCCESS).with_body(body.clone()).into(),
                None => asked.reply(response::SUCCESS).into(),
            },
        }
    }
}
