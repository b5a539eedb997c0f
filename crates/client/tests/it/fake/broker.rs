//! The broker: queues in memory, and answers by script before that.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferromq_client::MessageQueue;
use ferromq_protocol::Command;
use ferromq_protocol::body::{
    ConsumerIdList, HeartbeatData, LockBatchRequestBody, LockBatchResponseBody, ResetOffsetBody,
};
use ferromq_protocol::code::{request, response};
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{PullMessage, PushReplyMessage, SendMessage};
use ferromq_protocol::record::{RecordDraft, patch};
use ferromq_protocol::{batch, message_id, properties, sysflag};
use ferromq_remoting::{Conn, Outcome, Reply, RequestContext};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Fake, Role};

pub(crate) struct Broker {
    name: String,
    queues: Mutex<BTreeMap<(String, i32), Vec<Bytes>>>,
    min_offset: Mutex<i64>,
    log: Mutex<Vec<Bytes>>,
    offsets: Mutex<BTreeMap<(String, String, i32), i64>>,
    sends: Mutex<VecDeque<(i32, &'static str)>>,
    /// Members by group, with their connections.
    members: Mutex<BTreeMap<String, BTreeMap<String, Conn>>>,
    /// Who holds a queue.
    locks: Mutex<BTreeMap<MessageQueue, String>>,
    pulls_held: AtomicUsize,
    arrived: Notify,
}

pub(crate) type FakeBroker = Fake<Broker>;

impl FakeBroker {
    pub(crate) fn start(name: &str) -> Self {
        Self::play(Broker {
            name: name.to_owned(),
            queues: Mutex::default(),
            min_offset: Mutex::default(),
            log: Mutex::default(),
            offsets: Mutex::default(),
            sends: Mutex::default(),
            members: Mutex::default(),
            locks: Mutex::default(),
            pulls_held: AtomicUsize::new(0),
            arrived: Notify::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.role.name
    }

    pub(crate) fn address(&self) -> String {
        self.running.address.to_string()
    }

    /// The next sends are answered with these codes and remarks and not stored.
    pub(crate) fn refuse_sends(&self, codes: &[(i32, &'static str)]) {
        self.role.sends.lock().extend(codes);
    }

    /// Messages in a queue of topic `T`.
    pub(crate) fn stored(&self, queue: i32) -> usize {
        let queues = self.role.queues.lock();
        queues.get(&("T".to_owned(), queue)).map_or(0, Vec::len)
    }

    pub(crate) fn stored_in_all(&self) -> usize {
        self.role.queues.lock().values().map(Vec::len).sum()
    }

    /// A record of the log.
    pub(crate) fn record(&self, at: usize) -> Vec<u8> {
        self.role.log.lock()[at].to_vec()
    }

    pub(crate) fn group_offset(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        let offsets = self.role.offsets.lock();
        offsets.get(&(group.to_owned(), topic.to_owned(), queue)).copied()
    }

    pub(crate) fn heartbeats(&self) -> Vec<HeartbeatData> {
        let beats = self.asked(request::HEART_BEAT);
        beats
            .iter()
            .map(|c| fastjson::from_slice(&c.body).unwrap())
            .collect()
    }

    /// Pretends that the messages before this offset are gone.
    pub(crate) fn expire_before(&self, offset: i64) {
        *self.role.min_offset.lock() = offset;
    }

    /// Pulls that wait for a message.
    pub(crate) fn pulls_held(&self) -> usize {
        self.role.pulls_held.load(Ordering::SeqCst)
    }

    pub(crate) fn locks(&self) -> BTreeMap<MessageQueue, String> {
        self.role.locks.lock().clone()
    }

    pub(crate) fn lock_for(&self, whom: &str, queue: &MessageQueue) {
        self.role.locks.lock().insert(queue.clone(), whom.to_owned());
    }

    pub(crate) fn unlock_all(&self) {
        self.role.locks.lock().clear();
    }

    /// Tells the group's members many times that the group changed.
    pub(crate) fn notify(&self, group: &str, times: usize) {
        for conn in self.members_of(group) {
            for _ in 0..times {
                let notice = Command::request(request::NOTIFY_CONSUMER_IDS_CHANGED);
                // The connection holds back when it is full; a notice less is no harm.
                drop(conn.oneway(notice.with_ext("consumerGroup", group)));
            }
        }
    }

    /// Tells the group's members to go to other offsets.
    pub(crate) fn tell_reset(&self, group: &str, topic: &str, offsets: &[(MessageQueue, i64)]) {
        let body = ResetOffsetBody {
            offset_table: offsets.iter().cloned().collect(),
        };
        let request = Command::request(request::RESET_CONSUMER_CLIENT_OFFSET)
            .with_ext("topic", topic)
            .with_ext("group", group)
            .with_ext("timestamp", "0")
            .with_ext("isForce", "true")
            .with_body(fastjson::to_vec(&body));
        for conn in self.members_of(group) {
            conn.oneway(request.clone()).unwrap();
        }
    }

    /// Asks any client that has said hello.
    pub(crate) async fn ask_client(&self, code: i32, args: &[(&str, &str)], body: Vec<u8>) -> Command {
        let conn = {
            let members = self.role.members.lock();
            members
                .values()
                .flat_map(BTreeMap::values)
                .next()
                .unwrap()
                .clone()
        };
        let request = args
            .iter()
            .fold(Command::request(code), |request, (name, value)| {
                request.with_ext(name, value)
            });
        conn.call(request.with_body(body), crate::PATIENCE).await.unwrap()
    }

    /// Tells the only client that has said hello something that wants no answer.
    pub(crate) fn tell_client(&self, code: i32, args: &[(&str, &str)], body: Vec<u8>) {
        let conn = {
            let members = self.role.members.lock();
            members
                .values()
                .flat_map(BTreeMap::values)
                .next()
                .unwrap()
                .clone()
        };
        let request = args
            .iter()
            .fold(Command::request(code), |request, (name, value)| {
                request.with_ext(name, value)
            });
        conn.oneway(request.with_body(body)).unwrap();
    }

    fn members_of(&self, group: &str) -> Vec<Conn> {
        let members = self.role.members.lock();
        members
            .get(group)
            .into_iter()
            .flat_map(BTreeMap::values)
            .cloned()
            .collect()
    }
}

impl Broker {
    /// Tells the other members.
    fn changed(&self, group: &str) {
        for conn in self
            .members
            .lock()
            .get(group)
            .into_iter()
            .flat_map(BTreeMap::values)
        {
            let notice = Command::request(request::NOTIFY_CONSUMER_IDS_CHANGED);
            // One who is just leaving need not hear of it.
            drop(conn.oneway(notice.with_ext("consumerGroup", group)));
        }
    }

    fn hello(&self, cx: &RequestContext, asked: &Command) {
        let data: HeartbeatData = fastjson::from_slice(&asked.body).unwrap();
        let producers = data
            .producer_data_set
            .iter()
            .map(|data| format!("producers {}", data.group_name));
        let consumers = data.consumer_data_set.iter().map(|data| data.group_name.clone());
        for group in producers.chain(consumers) {
            let known = {
                let mut members = self.members.lock();
                let group = members.entry(group.clone()).or_default();
                group.insert(data.client_id.clone(), cx.conn.clone()).is_some()
            };
            if !known {
                self.changed(&group);
            }
        }
    }

    /// Hands a reply to the client that waits for it.
    fn push_reply(&self, cx: &RequestContext, asked: &Command) -> Command {
        let header: SendMessage<'_> = asked.header().unwrap();
        let whom = properties::get(header.properties, "REPLY_TO_CLIENT").unwrap();
        let members = self.members.lock();
        let conn = members.values().find_map(|group| group.get(whom)).unwrap();
        let host = format!("/{}", cx.conn.local());
        let pushed = PushReplyMessage {
            producer_group: header.producer_group,
            topic: header.topic,
            default_topic: header.default_topic,
            default_topic_queue_nums: header.default_topic_queue_nums,
            queue_id: header.queue_id,
            sys_flag: header.sys_flag,
            born_timestamp: header.born_timestamp,
            flag: header.flag,
            properties: header.properties,
            reconsume_times: 0,
            unit_mode: false,
            born_host: &host,
            store_host: &host,
            store_timestamp: header.born_timestamp,
        };
        let request = Command::request(request::PUSH_REPLY_MESSAGE_TO_CLIENT).with_header(&pushed);
        conn.oneway(request.with_body(asked.body.clone())).unwrap();
        asked
            .reply(response::SUCCESS)
            .with_ext("msgId", message_id::offset_id(cx.conn.local(), 0))
            .with_ext("queueId", "0")
            .with_ext("queueOffset", "0")
    }

    fn lock(&self, asked: &Command) -> Command {
        let body: LockBatchRequestBody = fastjson::from_slice(&asked.body).unwrap();
        let mut locks = self.locks.lock();
        let mut good = Vec::new();
        for queue in body.mq_set {
            let owner = locks
                .entry(queue.clone())
                .or_insert_with(|| body.client_id.clone());
            if *owner == body.client_id {
                good.push(queue);
            }
        }
        let body = LockBatchResponseBody { lock_ok_mq_set: good };
        asked.reply(response::SUCCESS).with_body(fastjson::to_vec(&body))
    }

    fn unlock(&self, asked: &Command) -> Command {
        let body: LockBatchRequestBody = fastjson::from_slice(&asked.body).unwrap();
        let mut locks = self.locks.lock();
        for queue in &body.mq_set {
            if locks.get(queue) == Some(&body.client_id) {
                locks.remove(queue);
            }
        }
        asked.reply(response::SUCCESS)
    }

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
        if let Some((code, remark)) = self.sends.lock().pop_front() {
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

impl Role for Broker {
    const OTHERWISE: i32 = response::SUCCESS;

    fn keeps_silent_about(code: i32) -> bool {
        matches!(code, request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE)
    }

    fn answer(self: &Arc<Self>, cx: &RequestContext, asked: &Command) -> Option<Outcome> {
        let arg = |name: &str| asked.ext.get(name).unwrap_or_default().to_owned();
        let queue = || (arg("topic"), arg("queueId").parse::<i32>().unwrap_or(-1));
        let good = asked.reply(response::SUCCESS);
        let answer = match asked.code {
            request::SEND_MESSAGE_V2 | request::SEND_BATCH_MESSAGE => self.send(cx, asked),
            request::SEND_REPLY_MESSAGE_V2 => self.push_reply(cx, asked),
            request::PULL_MESSAGE => return Some(self.pull_or_hold(asked)),
            request::HEART_BEAT => {
                self.hello(cx, asked);
                good
            }
            request::UNREGISTER_CLIENT => {
                let group = arg("consumerGroup");
                let left = self
                    .members
                    .lock()
                    .get_mut(&group)
                    .and_then(|group| group.remove(&arg("clientID")));
                if left.is_some() {
                    self.changed(&group);
                }
                good
            }
            request::GET_CONSUMER_LIST_BY_GROUP => {
                let members = self.members.lock();
                let ids = members
                    .get(&arg("consumerGroup"))
                    .into_iter()
                    .flat_map(BTreeMap::keys);
                let body = ConsumerIdList {
                    consumer_id_list: ids.cloned().collect(),
                };
                good.with_body(fastjson::to_vec(&body))
            }
            request::LOCK_BATCH_MQ => self.lock(asked),
            request::UNLOCK_BATCH_MQ => self.unlock(asked),
            request::QUERY_CONSUMER_OFFSET => {
                let (topic, id) = queue();
                match self.offsets.lock().get(&(arg("consumerGroup"), topic, id)) {
                    Some(offset) => good.with_ext("offset", offset.to_string()),
                    None => asked.reply(response::QUERY_NOT_FOUND),
                }
            }
            request::UPDATE_CONSUMER_OFFSET => {
                let (topic, id) = queue();
                let offset = arg("commitOffset").parse().unwrap();
                self.offsets
                    .lock()
                    .insert((arg("consumerGroup"), topic, id), offset);
                good
            }
            request::GET_MAX_OFFSET => {
                let max = self.queues.lock().get(&queue()).map_or(0, Vec::len);
                good.with_ext("offset", max.to_string())
            }
            request::GET_MIN_OFFSET => good.with_ext("offset", self.min_offset.lock().to_string()),
            request::SEARCH_OFFSET_BY_TIMESTAMP => good.with_ext("offset", "5"),
            request::VIEW_MESSAGE_BY_ID => match self.log.lock().get(arg("offset").parse::<usize>().unwrap())
            {
                Some(record) => good.with_body(record.clone()),
                None => asked
                    .reply(response::SYSTEM_ERROR)
                    .with_remark("can not find message"),
            },
            request::QUERY_MESSAGE => match self.log.lock().concat() {
                all if all.is_empty() => asked.reply(response::QUERY_NOT_FOUND),
                all => good.with_body(all),
            },
            _ => return None,
        };
        Some(answer.into())
    }
}

impl Broker {
    fn pull_or_hold(self: &Arc<Self>, asked: &Command) -> Outcome {
        let arg = |name: &str| asked.ext.get(name).unwrap_or_default().to_owned();
        let hold = sysflag::pull::SUSPEND & arg("sysFlag").parse::<i32>().unwrap() != 0;
        let millis: u64 = arg("suspendTimeoutMillis").parse().unwrap();
        let (broker, asked) = (Arc::clone(self), asked.clone());
        Outcome::Later(Box::pin(async move {
            let until = Instant::now() + Duration::from_millis(millis);
            loop {
                let arrived = broker.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                let reply = broker.pull(&asked);
                if reply.code != response::PULL_NOT_FOUND || !hold || Instant::now() >= until {
                    return Reply::from(reply);
                }
                broker.pulls_held.fetch_add(1, Ordering::SeqCst);
                // Whether a message came or the time is over, the next look tells.
                let _either = tokio::time::timeout_at(until, arrived).await;
                broker.pulls_held.fetch_sub(1, Ordering::SeqCst);
            }
        }))
    }
}
