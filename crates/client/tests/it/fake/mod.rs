//! A name server and brokers in memory, over the real transport, that do as a test tells them.

mod broker;
mod names;

use std::net::SocketAddr;
use std::sync::Arc;

use ferromq_client::admin::{BrokerData, QueueData, TopicRouteData};
use ferromq_client::{Client, ClientConfig};
use ferromq_remoting::{Dispatch, Handler, NoEvents, Run, Server, ServerConfig};
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
    fn start(handler: Arc<dyn Handler>) -> Self {
        let dispatch = Dispatch::builder().otherwise(Run::Inline, handler).build();
        let any = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(any, ServerConfig::default(), dispatch, Arc::new(NoEvents)).unwrap();
        let (stop, tasks, address) = (CancellationToken::new(), TaskTracker::new(), server.local_addr());
        tasks.spawn(server.run(stop.clone()));
        tasks.close();
        Self { address, stop, tasks }
    }

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
