//! The list of name servers: addresses and DNS names, `;` between them.
//!
//! A DNS name stands for all its addresses (a headless Service lists every name server), and they change
//! while we run. What holds: an answer older than [`RESOLVE_EVERY`] is asked for anew before it is used; when
//! that fails, the last good answer stays in use; a name that never resolved is tried again after
//! [`RETRY_AFTER`]. Order is the order of the list, doubles are dropped.
//!
//! The list itself may come from an [`AddressServer`], which is asked anew when its answer is older than a period; when
//! that fails or the answer is no list, the last good list stays in use.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use crate::address_server::AddressServer;
use crate::client::split_addr;
use crate::error::CallError;

/// Age above which an answer is asked for anew.
pub const RESOLVE_EVERY: Duration = Duration::from_secs(10);
/// Pause before a name that has no good answer yet is asked for again.
pub const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Age above which a list from an address server is asked for anew, unless told otherwise.
pub const FETCH_EVERY: Duration = Duration::from_mins(2);
/// Longest time for one look-up.
const LOOK_UP: Duration = Duration::from_secs(3);

/// Looks names up. The system's resolver in programs, a table in tests.
pub trait Resolve: Send + Sync + 'static {
    /// All addresses of a host.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host.as_str(), port)).await?.collect()) })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Fixed(SocketAddr),
    Name(String, u16),
}

#[derive(Debug, Default)]
struct Answer {
    addrs: Vec<SocketAddr>,
    asked: Option<Instant>,
}

impl Answer {
    fn is_due(&self, now: Instant) -> bool {
        let every = if self.addrs.is_empty() {
            RETRY_AFTER
        } else {
            RESOLVE_EVERY
        };
        self.asked
            .is_none_or(|at| now.saturating_duration_since(at) >= every)
    }
}

struct State {
    text: String,
    entries: Vec<Entry>,
    answers: HashMap<(String, u16), Answer>,
    fetched: Option<Instant>,
}

#[derive(Debug)]
struct Source {
    server: AddressServer,
    every: Duration,
}

/// The name servers to use. Cheap to clone; clones share list and answers.
#[derive(Clone)]
pub struct NameServers {
    state: Arc<Mutex<State>>,
    resolver: Arc<dyn Resolve>,
    source: Option<Arc<Source>>,
}

impl fmt::Debug for NameServers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NameServers").field(&self.text()).finish()
    }
}

impl NameServers {
    /// Reads a list such as `10.0.0.1:9876;namesrv.example:9876`. Blank parts are skipped; an empty list is
    /// allowed.
    ///
    /// # Errors
    /// [`CallError::Address`] for a part that is not `host:port`.
    pub fn parse(list: &str) -> Result<Self, CallError> {
        Self::with_resolver(list, Arc::new(SystemResolver))
    }

    /// The same with another resolver.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn with_resolver(list: &str, resolver: Arc<dyn Resolve>) -> Result<Self, CallError> {
        let entries = parse_entries(list)?;
        let state = State {
            text: list.trim().to_owned(),
            entries,
            answers: HashMap::new(),
            fetched: None,
        };
        Ok(Self {
            state: Arc::new(Mutex::new(state)),
            resolver,
            source: None,
        })
    }

    /// A list that an address server tells. It is asked when the list is first used, and again when its answer is older
    /// than `every` ([`FETCH_EVERY`] is RocketMQ's).
    pub fn from_address_server(server: AddressServer, every: Duration) -> Self {
        let state = State {
            text: String::new(),
            entries: Vec::new(),
            answers: HashMap::new(),
            fetched: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            resolver: Arc::new(SystemResolver),
            source: Some(Arc::new(Source { server, every })),
        }
    }

    /// Replaces the list; answers for names that stay are kept.
    ///
    /// # Errors
    /// As [`parse`](Self::parse); the old list then stays.
    pub fn set(&self, list: &str) -> Result<(), CallError> {
        let entries = parse_entries(list)?;
        let mut state = self.state.lock();
        list.trim().clone_into(&mut state.text);
        state.answers.retain(|key, _| {
            entries
                .iter()
                .any(|e| matches!(e, Entry::Name(h, p) if (h, p) == (&key.0, &key.1)))
        });
        state.entries = entries;
        Ok(())
    }

    /// The list as it was given; with an address server, its address and what it told last.
    pub fn text(&self) -> String {
        let list = self.state.lock().text.clone();
        match &self.source {
            None => list,
            Some(source) if list.is_empty() => source.server.to_string(),
            Some(source) => format!("{list} (from {})", source.server),
        }
    }

    /// Whether there never can be an address: the list has no entry, and there is no server to ask.
    pub fn is_empty(&self) -> bool {
        self.source.is_none() && self.state.lock().entries.is_empty()
    }

    /// Asks the address server, if there is one and its answer is too old.
    async fn fetch(&self) {
        let Some(source) = &self.source else {
            return;
        };
        let now = Instant::now();
        {
            let mut state = self.state.lock();
            let every = if state.entries.is_empty() {
                RETRY_AFTER.min(source.every)
            } else {
                source.every
            };
            if state
                .fetched
                .is_some_and(|at| now.saturating_duration_since(at) < every)
            {
                return;
            }
            // As with names: one caller asks, unless nobody has anything.
            if !state.entries.is_empty() {
                state.fetched = Some(now);
            }
        }
        let got = source.server.fetch().await;
        let before = self.state.lock().text.clone();
        let taken = match got {
            Ok(list) if list == before => Ok(()),
            Ok(list) => self.set(&list).map_err(|e| e.to_string()).map(|()| {
                tracing::info!(server = %source.server, old = before, new = list, "the list of name servers changed");
            }),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = taken {
            tracing::warn!(server = %source.server, error, kept = before, "cannot take a list of name servers from the address server; keeping the last one");
        }
        self.state.lock().fetched = Some(Instant::now());
    }

    /// All addresses, asking for names whose answer is too old. Waits for look-ups at most 3 s, and as long for an
    /// address server; a name without any good answer contributes nothing.
    pub async fn resolve(&self) -> Vec<SocketAddr> {
        self.fetch().await;
        let now = Instant::now();
        let due: Vec<(String, u16)> = {
            let mut state = self.state.lock();
            let names: Vec<(String, u16)> = state
                .entries
                .iter()
                .filter_map(|entry| match entry {
                    Entry::Name(host, port) => Some((host.clone(), *port)),
                    Entry::Fixed(_) => None,
                })
                .collect();
            // Marked as asked at once, so that concurrent callers do not ask again, unless they have nothing.
            names
                .into_iter()
                .filter(|name| {
                    let answer = state.answers.entry(name.clone()).or_default();
                    let due = answer.is_due(now);
                    if due && !answer.addrs.is_empty() {
                        answer.asked = Some(now);
                    }
                    due
                })
                .collect()
        };
        let look_ups = due.into_iter().map(|(host, port)| {
            let look_up = self.resolver.resolve(host.clone(), port);
            async move { ((host, port), timeout(LOOK_UP, look_up).await) }
        });
        for (name, got) in join_all(look_ups).await {
            self.take(&name, got.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())));
        }
        self.known()
    }

    /// All addresses as strings, for [`Client::call`](crate::Client::call).
    pub async fn addresses(&self) -> Vec<String> {
        self.resolve().await.iter().map(ToString::to_string).collect()
    }

    /// The addresses known now, without asking.
    pub fn known(&self) -> Vec<SocketAddr> {
        let state = self.state.lock();
        let mut all: Vec<SocketAddr> = Vec::new();
        let mut add = |addr: SocketAddr| {
            if !all.contains(&addr) {
                all.push(addr);
            }
        };
        for entry in &state.entries {
            match entry {
                Entry::Fixed(addr) => add(*addr),
                Entry::Name(host, port) => {
                    let answer = state.answers.get(&(host.clone(), *port));
                    answer
                        .into_iter()
                        .flat_map(|a| &a.addrs)
                        .for_each(|addr| add(*addr));
                }
            }
        }
        all
    }

    fn take(&self, name: &(String, u16), got: io::Result<Vec<SocketAddr>>) {
        let mut state = self.state.lock();
        let Some(answer) = state.answers.get_mut(name) else {
            return;
        };
        answer.asked = Some(Instant::now());
        match got {
            Ok(mut addrs) if !addrs.is_empty() => {
                // The resolver may rotate; a steady order keeps "the first" the same server.
                addrs.sort_unstable();
                addrs.dedup();
                answer.addrs = addrs;
            }
            Ok(_) => {
                let kept = answer.addrs.len();
                tracing::warn!(host = %name.0, kept, "a name server's name has no address; keeping the last answer");
            }
            Err(error) => {
                tracing::warn!(host = %name.0, %error, kept = answer.addrs.len(), "cannot resolve a name server's name; keeping the last answer");
            }
        }
    }
}

fn parse_entries(list: &str) -> Result<Vec<Entry>, CallError> {
    let parts = list
        .split([';', ','])
        .map(str::trim)
        .filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let addr = part.strip_prefix("http://").unwrap_or(part);
            let (host, port) = split_addr(addr)?;
            Ok(match host.parse() {
                Ok(ip) => Entry::Fixed(SocketAddr::new(ip, port)),
                Err(_) => Entry::Name(host.to_owned(), port),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers from a table and counts how often it was asked.
    #[derive(Default)]
    struct Table {
        answer: Mutex<Option<Vec<&'static str>>>,
        asked: Mutex<usize>,
    }

    impl Resolve for Table {
        fn resolve(&self, _: String, _: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
            *self.asked.lock() += 1;
            let answer = self.answer.lock().clone();
            Box::pin(async move {
                let addrs = answer.ok_or(io::ErrorKind::NotFound)?;
                Ok(addrs.iter().map(|a| a.parse().unwrap()).collect())
            })
        }
    }

    fn table(list: &str) -> (NameServers, Arc<Table>) {
        let table = Arc::new(Table::default());
        (
            NameServers::with_resolver(list, Arc::clone(&table) as _).unwrap(),
            table,
        )
    }

    fn texts(addrs: &[SocketAddr]) -> Vec<String> {
        addrs.iter().map(ToString::to_string).collect()
    }

    #[tokio::test]
    async fn fixed_addresses_need_no_look_up() {
        let (names, table) = table(" 10.0.0.1:9876; ;[fd00::1]:9876;10.0.0.1:9876 ");
        assert_eq!(texts(&names.resolve().await), ["10.0.0.1:9876", "[fd00::1]:9876"]);
        assert_eq!(*table.asked.lock(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_stands_for_all_its_addresses_and_is_asked_again_after_ten_seconds() {
        let (names, table) = table("ns.example:9876");
        *table.answer.lock() = Some(vec!["10.0.0.2:9876", "10.0.0.1:9876"]);
        assert_eq!(texts(&names.resolve().await), ["10.0.0.1:9876", "10.0.0.2:9876"]);
        *table.answer.lock() = Some(vec!["10.0.0.3:9876"]);
        tokio::time::advance(Duration::from_millis(9_900)).await;
        assert_eq!(names.resolve().await.len(), 2);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(texts(&names.resolve().await), ["10.0.0.3:9876"]);
        assert_eq!(*table.asked.lock(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_look_up_keeps_the_last_good_answer() {
        let (names, table) = table("ns.example:9876");
        *table.answer.lock() = Some(vec!["10.0.0.1:9876"]);
        names.resolve().await;
        for broken in [None, Some(vec![])] {
            *table.answer.lock() = broken;
            tokio::time::advance(RESOLVE_EVERY).await;
            assert_eq!(texts(&names.resolve().await), ["10.0.0.1:9876"]);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_without_answer_is_tried_again_soon() {
        let (names, table) = table("ns.example:9876;10.0.0.9:9876");
        assert_eq!(texts(&names.resolve().await), ["10.0.0.9:9876"]);
        *table.answer.lock() = Some(vec!["10.0.0.1:9876"]);
        tokio::time::advance(RETRY_AFTER).await;
        assert_eq!(texts(&names.resolve().await), ["10.0.0.1:9876", "10.0.0.9:9876"]);
    }

    /// An address server that gives one answer after the other, each to one question.
    async fn serve(listener: tokio::net::TcpListener, answers: Vec<&'static str>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            assert!(request.starts_with(b"GET /rocketmq/nsaddr HTTP/1.0\r\n"));
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn an_address_server_is_asked_again_and_a_bad_answer_keeps_the_list() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let domain = listener.local_addr().unwrap().to_string();
        let server = AddressServer::new(&domain, "nsaddr", None).unwrap();
        // Each look is a question.
        let names = NameServers::from_address_server(server, Duration::ZERO);
        assert!(!names.is_empty());
        let ok = |list: &str| format!("HTTP/1.1 200 OK\r\n\r\n{list}\n").leak() as &str;
        let answers = vec![
            "HTTP/1.1 503 Busy\r\n\r\n",
            ok("10.0.0.1:9876;10.0.0.2:9876"),
            "HTTP/1.1 404 Not Found\r\n\r\n10.9.9.9:1",
            ok("not a list"),
            "",
            ok("10.0.0.3:9876"),
        ];
        let asked = async {
            assert!(names.resolve().await.is_empty());
            for _ in 0..4 {
                assert_eq!(texts(&names.resolve().await), ["10.0.0.1:9876", "10.0.0.2:9876"]);
            }
            assert_eq!(texts(&names.resolve().await), ["10.0.0.3:9876"]);
        };
        tokio::join!(serve(listener, answers), asked);
        // Nobody listens any more.
        assert_eq!(texts(&names.resolve().await), ["10.0.0.3:9876"]);
        assert!(
            names.text().starts_with("10.0.0.3:9876 (from http://"),
            "{}",
            names.text()
        );
    }

    #[tokio::test]
    async fn an_address_server_is_left_alone_while_its_answer_is_young() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let domain = listener.local_addr().unwrap().to_string();
        let server = AddressServer::new(&domain, "nsaddr", None).unwrap();
        let names = NameServers::from_address_server(server, FETCH_EVERY);
        let answer = vec!["HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n10.0.0.1:9876"];
        let ((), first) = tokio::join!(serve(listener, answer), names.resolve());
        assert_eq!(first, names.resolve().await);
    }

    #[tokio::test]
    async fn a_bad_list_leaves_the_old_one() {
        let (names, _) = table("10.0.0.1:9876");
        assert!(names.set("10.0.0.2").is_err());
        assert_eq!(names.text(), "10.0.0.1:9876");
        names.set("10.0.0.2:1").unwrap();
        assert_eq!(texts(&names.resolve().await), ["10.0.0.2:1"]);
    }
}
