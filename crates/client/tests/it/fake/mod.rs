//! A name server and brokers in memory, over the real transport, that do as a test tells them.

mod broker;
mod names;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ferromq_client::admin::{BrokerData, QueueData, TopicRouteData};
use ferromq_client::{Client, ClientConfig};
use ferromq_protocol::Command;
use ferromq_protocol::code::response;
use ferromq_remoting::{
    Dispatch, Handler, NoEvents, Outcome, RequestContext, Run, Server, ServerConfig, Stats,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use broker::FakeBroker;
pub(crate) use names::FakeNames;

/// A server that ends with the value.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    /// Stops serving and waits for the port to be free.
    pub(crate) async fn end(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What a name server or broker does of its own.
pub(crate) trait Role: Send + Sync + 'static {
    /// The answer to a request; `None` leaves it to the script.
    fn answer(self: &Arc<Self>, cx: &RequestContext, asked: &Command) -> Option<Outcome>;

    /// The answer to requests that neither role nor script know.
    const OTHERWISE: i32;

    /// Whether a silent server leaves this request without an answer.
    fn keeps_silent_about(code: i32) -> bool;
}

#[derive(Default)]
struct Script {
    /// Bodies of requests that only have one, by code.
    bodies: Mutex<BTreeMap<i32, Bytes>>,
    /// Requests that are refused, with what code.
    refused: Mutex<BTreeMap<i32, i32>>,
    /// Requests that are answered late, by how much.
    slow: Mutex<BTreeMap<i32, Duration>>,
    asked: Mutex<Vec<Command>>,
    silent: AtomicBool,
    /// Silent about everything.
    stopped: AtomicBool,
}

struct Face<R> {
    script: Arc<Script>,
    role: Arc<R>,
}

/// A server that plays a role, but for what the script says.
pub(crate) struct Fake<R> {
    pub(crate) running: Running,
    stats: Arc<Stats>,
    script: Arc<Script>,
    role: Arc<R>,
}

impl<R: Role> Fake<R> {
    fn play(role: R) -> Self {
        let (script, role) = (Arc::<Script>::default(), Arc::new(role));
        let face = Face {
            script: Arc::clone(&script),
            role: Arc::clone(&role),
        };
        let dispatch = Dispatch::builder().otherwise(Run::Inline, Arc::new(face)).build();
        let any = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(any, ServerConfig::default(), dispatch, Arc::new(NoEvents)).unwrap();
        let stats = server.stats();
        let (stop, tasks, address) = (CancellationToken::new(), TaskTracker::new(), server.local_addr());
        tasks.spawn(server.run(stop.clone()));
        tasks.close();
        Self {
            running: Running { address, stop, tasks },
            stats,
            script,
            role,
        }
    }

    /// From now on requests are read and never answered; of a broker only sends.
    pub(crate) fn fall_silent(&self) {
        self.script.silent.store(true, Ordering::SeqCst);
    }

    /// From now on nothing is answered, as by a process that is stopped.
    pub(crate) fn stop_answering(&self) {
        self.script.stopped.store(true, Ordering::SeqCst);
    }

    /// Connections that were made to it so far.
    pub(crate) fn connections(&self) -> u64 {
        self.stats.opened()
    }

    /// What is answered to requests with this code, whatever their arguments.
    pub(crate) fn set_body(&self, code: i32, body: &'static str) {
        let body = Bytes::from_static(body.as_bytes());
        self.script.bodies.lock().insert(code, body);
    }

    /// Requests with this code are answered with that error.
    pub(crate) fn refuse(&self, code: i32, with: i32) {
        self.script.refused.lock().insert(code, with);
    }

    /// Requests with this code are answered so much later.
    pub(crate) fn delay(&self, code: i32, by: Duration) {
        self.script.slow.lock().insert(code, by);
    }

    /// All requests with this code so far.
    pub(crate) fn asked(&self, code: i32) -> Vec<Command> {
        let asked = self.script.asked.lock();
        asked.iter().filter(|c| c.code == code).cloned().collect()
    }
}

impl<R: Role> Handler for Face<R> {
    fn handle(&self, cx: &RequestContext, asked: Command) -> Outcome {
        self.script.asked.lock().push(asked.clone());
        let silent = self.script.silent.load(Ordering::SeqCst) && R::keeps_silent_about(asked.code);
        if silent || self.script.stopped.load(Ordering::SeqCst) {
            return Outcome::Later(Box::pin(std::future::pending()));
        }
        if let Some(code) = self.script.refused.lock().get(&asked.code) {
            return asked.reply(*code).with_remark("the script says no").into();
        }
        if let Some(answer) = self.role.answer(cx, &asked) {
            let slow = self.script.slow.lock().get(&asked.code).copied();
            return match (slow, answer) {
                (Some(by), Outcome::Reply(reply)) => Outcome::Later(Box::pin(async move {
                    tokio::time::sleep(by).await;
                    reply
                })),
                (_, answer) => answer,
            };
        }
        match self.script.bodies.lock().get(&asked.code) {
            Some(body) => asked.reply(response::SUCCESS).with_body(body.clone()).into(),
            None => asked.reply(R::OTHERWISE).into(),
        }
    }
}

/// One name server, some brokers, and a topic `T` with `queues` queues on each of them.
pub(crate) struct Cluster {
    pub(crate) names: FakeNames,
    pub(crate) brokers: Vec<FakeBroker>,
}

impl Cluster {
    pub(crate) fn start(brokers: &[&str], queues: i32) -> Self {
        let brokers: Vec<FakeBroker> = brokers.iter().map(|name| FakeBroker::start(name)).collect();
        let names = FakeNames::start();
        names.set_route("T", route(&brokers, queues, 6));
        Self { names, brokers }
    }

    pub(crate) fn config(&self) -> ClientConfig {
        ClientConfig::new(self.names.running.address.to_string())
    }

    pub(crate) fn client(&self) -> Client {
        Client::start(self.config()).unwrap()
    }

    pub(crate) fn broker(&self, name: &str) -> &FakeBroker {
        self.brokers.iter().find(|broker| broker.name() == name).unwrap()
    }
}

pub(crate) fn route(brokers: &[FakeBroker], queues: i32, perm: i32) -> TopicRouteData {
    let mut data = TopicRouteData::default();
    for broker in brokers {
        data.broker_datas.push(BrokerData {
            cluster: "C".into(),
            broker_name: broker.name().into(),
            broker_addrs: [(0, broker.address())].into(),
        });
        data.queue_datas.push(QueueData {
            broker_name: broker.name().into(),
            perm,
            read_queue_nums: queues,
            write_queue_nums: queues,
            ..QueueData::default()
        });
    }
    data
}
