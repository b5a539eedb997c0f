//! The routes of the topics in use.
//!
//! A route is fetched when first needed and refreshed every 30 s. A refresh that fails, or finds nothing, keeps the
//! route there was: a name server that has just started knows no topics yet. A provisional route, made from the
//! template topic because the topic did not exist, is replaced as soon as a real one is found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferromq_protocol::body::TopicRouteData;
use ferromq_protocol::code::{request, response};
use ferromq_protocol::command::Command;
use futures::future::join_all;
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::error::{ClientError, Result};
use crate::link::{self, Link};
use crate::route::Route;

/// A provisional route is looked up anew after this time, so that a created topic's real queues are soon known.
const PROVISIONAL_FOR: Duration = Duration::from_secs(2);

/// Pause between two refreshes of one topic's route that failures ask for.
const URGENT_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
struct Entry {
    route: Arc<Route>,
    fetched: Instant,
}

/// Routes by topic; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct RouteCache {
    link: Link,
    entries: Arc<RwLock<HashMap<String, Entry>>>,
    /// When a failed send last had a topic's route refreshed.
    urgent: Arc<Mutex<HashMap<String, Instant>>>,
    /// Counts routes that became others.
    changes: Arc<watch::Sender<u64>>,
}

impl RouteCache {
    pub(crate) fn new(link: Link) -> Self {
        Self {
            link,
            entries: Arc::default(),
            urgent: Arc::default(),
            changes: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Tells each time that a route in the cache became another.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The topic's route, from the cache or the name servers.
    pub(crate) async fn get(&self, topic: &str) -> Result<Arc<Route>> {
        if let Some(route) = self.cached(topic).filter(|r| !r.provisional) {
            return Ok(route);
        }
        self.refresh(topic).await
    }

    /// As [`Self::get`], but a topic that does not exist gets the queues it will have once `template` has made it.
    pub(crate) async fn get_for_send(
        &self,
        topic: &str,
        template: &str,
        most_queues: i32,
    ) -> Result<Arc<Route>> {
        if let Some(route) = self.cached(topic) {
            return Ok(route);
        }
        match self.refresh(topic).await {
            Err(ClientError::NoRoute { .. }) => {}
            result => return result,
        }
        let data = match fetch(&self.link, template).await {
            Err(ClientError::NoRoute { .. }) => {
                return Err(ClientError::NoRoute {
                    topic: topic.to_owned(),
                });
            }
            result => result?,
        };
        let route = Arc::new(Route::provisional(topic, &data, most_queues));
        self.store(topic, &route);
        Ok(route)
    }

    /// Fetches the topic's route. On failure what was cached stays cached.
    pub(crate) async fn refresh(&self, topic: &str) -> Result<Arc<Route>> {
        let data = fetch(&self.link, topic).await?;
        let route = Arc::new(Route::from_data(topic, &data));
        self.store(topic, &route);
        Ok(route)
    }

    /// Refreshes a topic's route after a failure, but not again within a second: many sends fail at once when a broker
    /// dies, and the name servers should not feel it. `gone` says that a broker does not have the topic: its route is
    /// then not kept when no name server has one either.
    pub(crate) async fn refresh_after_failure(&self, topic: &str, gone: bool) {
        let now = Instant::now();
        {
            let mut urgent = self.urgent.lock();
            urgent.retain(|_, at| now.duration_since(*at) < URGENT_EVERY);
            if urgent.contains_key(topic) {
                return;
            }
            urgent.insert(topic.to_owned(), now);
        }
        if let Err(error) = self.refresh(topic).await {
            tracing::debug!(topic, %error, "the route could not be refreshed after a failed send");
            if gone && matches!(error, ClientError::NoRoute { .. }) {
                self.forget(topic);
            }
        }
    }

    /// Refreshes every route in the cache. Failures are logged; the old routes stay.
    pub(crate) async fn refresh_all(&self) {
        let topics: Vec<String> = self.entries.read().keys().cloned().collect();
        let refreshes = topics.iter().map(|topic| async move {
            if let Err(error) = self.refresh(topic).await {
                tracing::warn!(topic, %error, "the topic's route could not be refreshed; the old one stays in use");
            }
        });
        join_all(refreshes).await;
    }

    fn forget(&self, topic: &str) {
        self.entries.write().remove(topic);
    }

    /// Addresses of all brokers in the cache, or of their masters only.
    pub(crate) fn brokers(&self, masters_only: bool) -> BTreeSet<String> {
        let entries = self.entries.read();
        let brokers = entries.values().flat_map(|entry| entry.route.brokers.values());
        let wanted = |id: i64| !masters_only || id == 0;
        brokers
            .flatten()
            .filter(|(id, _)| wanted(**id))
            .map(|(_, address)| address.clone())
            .collect()
    }

    fn cached(&self, topic: &str) -> Option<Arc<Route>> {
        let entries = self.entries.read();
        let entry = entries.get(topic)?;
        let fresh = !entry.route.provisional || entry.fetched.elapsed() < PROVISIONAL_FOR;
        fresh.then(|| Arc::clone(&entry.route))
    }

    fn store(&self, topic: &str, route: &Arc<Route>) {
        let entry = Entry {
            route: Arc::clone(route),
            fetched: Instant::now(),
        };
        let before = self.entries.write().insert(topic.to_owned(), entry);
        if before.is_some_and(|before| before.route != *route) {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

/// The topic's route as the name servers give it.
pub(crate) async fn fetch(link: &Link, topic: &str) -> Result<TopicRouteData> {
    let request = Command::request(request::GET_ROUTEINFO_BY_TOPIC)
        .with_ext("topic", topic)
        .with_ext("acceptStandardJsonOnly", "true");
    let (address, answer) = link
        .ask_name_servers(&request)
        .await
        .map_err(|error| no_route(topic, error))?;
    link::body(&address, link::name_of(request.code), &answer)
}

/// Code 17 on a route request means that there is no route.
pub(crate) fn no_route(topic: &str, error: ClientError) -> ClientError {
    match error.code() {
        Some(response::TOPIC_NOT_EXIST) => ClientError::NoRoute {
            topic: topic.to_owned(),
        },
        _ => error,
    }
}
