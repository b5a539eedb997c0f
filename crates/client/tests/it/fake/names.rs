//! The name server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ferromq_client::admin::TopicRouteData;
use ferromq_protocol::Command;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::fastjson;
use ferromq_remoting::{Handler, Outcome, RequestContext};
use parking_lot::Mutex;

use super::Running;

#[derive(Default)]
struct State {
    routes: Mutex<BTreeMap<String, TopicRouteData>>,
    kv: Mutex<BTreeMap<String, String>>,
    /// Bodies of requests that only have one, by code.
    bodies: Mutex<BTreeMap<i32, Bytes>>,
    asked: Mutex<Vec<Command>>,
    silent: AtomicBool,
}

pub(crate) struct FakeNames {
    pub(crate) running: Running,
    state: Arc<State>,
}

impl FakeNames {
    pub(crate) fn start() -> Self {
        let state = Arc::<State>::default();
        let running = Running::start(Arc::new(Face(Arc::clone(&state))));
        Self { running, state }
    }

    pub(crate) fn set_route(&self, topic: &str, route: TopicRouteData) {
        self.state.routes.lock().insert(topic.to_owned(), route);
    }

    pub(crate) fn remove_route(&self, topic: &str) {
        self.state.routes.lock().remove(topic);
    }

    /// From now on requests are read and never answered.
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
}

struct Face(Arc<State>);

impl Handler for Face {
    fn handle(&self, _: &RequestContext, asked: Command) -> Outcome {
        self.0.asked.lock().push(asked.clone());
        if self.0.silent.load(Ordering::SeqCst) {
            return Outcome::Later(Box::pin(std::future::pending()));
        }
        let arg = |name: &str| asked.ext.get(name).unwrap_or_default().to_owned();
        match asked.code {
            request::GET_ROUTEINFO_BY_TOPIC => match self.0.routes.lock().get(&arg("topic")) {
                Some(route) => asked
                    .reply(response::SUCCESS)
                    .with_body(fastjson::to_vec(route))
                    .into(),
                None => asked
                    .reply(response::TOPIC_NOT_EXIST)
                    .with_remark("No topic route info")
                    .into(),
            },
            request::PUT_KV_CONFIG => {
                self.0.kv.lock().insert(arg("key"), arg("value"));
                asked.reply(response::SUCCESS).into()
            }
            request::DELETE_KV_CONFIG => {
                self.0.kv.lock().remove(&arg("key"));
                asked.reply(response::SUCCESS).into()
            }
            request::GET_KV_CONFIG => match self.0.kv.lock().get(&arg("key")) {
                Some(value) => asked.reply(response::SUCCESS).with_ext("value", value).into(),
                None => asked.reply(response::QUERY_NOT_FOUND).into(),
            },
            request::WIPE_WRITE_PERM_OF_BROKER => asked
                .reply(response::SUCCESS)
                .with_ext("wipeTopicCount", "3")
                .into(),
            request::DELETE_TOPIC_IN_NAMESRV => {
                self.0.routes.lock().remove(&arg("topic"));
                asked.reply(response::SUCCESS).into()
            }
            code => match self.0.bodies.lock().get(&code) {
                Some(body) => asked.reply(response::SUCCESS).with_body(body.clone()).into(),
                None => asked.reply(response::REQUEST_CODE_NOT_SUPPORTED).into(),
            },
        }
    }
}
