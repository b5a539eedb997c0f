//! The name server.

use std::collections::BTreeMap;
use std::sync::Arc;

use ferromq_client::admin::TopicRouteData;
use ferromq_protocol::Command;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::fastjson;
use ferromq_remoting::{Outcome, RequestContext};
use parking_lot::Mutex;

use super::{Fake, Role};

#[derive(Default)]
pub(crate) struct Names {
    routes: Mutex<BTreeMap<String, TopicRouteData>>,
    kv: Mutex<BTreeMap<String, String>>,
}

pub(crate) type FakeNames = Fake<Names>;

impl FakeNames {
    pub(crate) fn start() -> Self {
        Self::play(Names::default())
    }

    pub(crate) fn set_route(&self, topic: &str, route: TopicRouteData) {
        self.role.routes.lock().insert(topic.to_owned(), route);
    }

    pub(crate) fn remove_route(&self, topic: &str) {
        self.role.routes.lock().remove(topic);
    }
}

impl Role for Names {
    const OTHERWISE: i32 = response::REQUEST_CODE_NOT_SUPPORTED;

    fn keeps_silent_about(_: i32) -> bool {
        true
    }

    fn answer(self: &Arc<Self>, _: &RequestContext, asked: &Command) -> Option<Outcome> {
        let arg = |name: &str| asked.ext.get(name).unwrap_or_default().to_owned();
        let good = asked.reply(response::SUCCESS);
        let answer = match asked.code {
            request::GET_ROUTEINFO_BY_TOPIC => match self.routes.lock().get(&arg("topic")) {
                Some(route) => good.with_body(fastjson::to_vec(route)),
                None => asked
                    .reply(response::TOPIC_NOT_EXIST)
                    .with_remark("No topic route info"),
            },
            request::PUT_KV_CONFIG => {
                self.kv.lock().insert(arg("key"), arg("value"));
                good
            }
            request::DELETE_KV_CONFIG => {
                self.kv.lock().remove(&arg("key"));
                good
            }
            request::GET_KV_CONFIG => match self.kv.lock().get(&arg("key")) {
                Some(value) => good.with_ext("value", value),
                None => asked.reply(response::QUERY_NOT_FOUND),
            },
            request::WIPE_WRITE_PERM_OF_BROKER => good.with_ext("wipeTopicCount", "3"),
            request::DELETE_TOPIC_IN_NAMESRV => {
                self.routes.lock().remove(&arg("topic"));
                good
            }
            _ => return None,
        };
        Some(answer.into())
    }
}
