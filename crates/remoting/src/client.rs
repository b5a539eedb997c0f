//! The client: one connection per address, made when first needed and again after it closed.
//!
//! Concurrent calls share the connection and, while it is being made, the attempt. The attempt is a task of
//! the client's own, so a caller that gives up takes nothing from the others. Requests that come from the
//! other side are dispatched to the client's own table.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::command::Command;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::budget::Budget;
use crate::conn::{Conn, Limits};
use crate::dispatch::Dispatch;
use crate::error::CallError;
use crate::hook::{RpcHook, without_body};
use crate::server::{ConnEvents, Life, NoEvents, connect_any, serve};
use crate::stats::{self, Stats};
use crate::tls::{ClientStream, ClientTls};

/// How a client connects.
#[derive(Clone)]
pub struct ClientConfig {
    /// Time for resolving and connecting. Default 3 s.
    pub connect_timeout: Duration,
    /// Bounds of each connection.
    pub limits: Limits,
    /// Encryption; `None`, the default: plain.
    pub tls: Option<ClientTls>,
    /// Hooks that see each request before it is sent, and its answer.
    pub hooks: Vec<Arc<dyn RpcHook>>,
    /// Hears of the client's connections.
    pub events: Arc<dyn ConnEvents>,
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("connect_timeout", &self.connect_timeout)
            .field("limits", &self.limits)
            .field("tls", &self.tls.is_some())
            .field("hooks", &self.hooks.len())
            .finish_non_exhaustive()
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            limits: Limits::default(),
            tls: None,
            hooks: Vec::new(),
            events: Arc::new(NoEvents),
        }
    }
}

/// A connection just made.
enum Stream {
    Plain(TcpStream),
    Encrypted(Box<ClientStream>),
}

type Attempt = watch::Receiver<Option<Result<Conn, CallError>>>;

enum Link {
    Connecting(Attempt),
    Up(Conn),
}

struct Inner {
    config: ClientConfig,
    dispatch: Arc<Dispatch>,
    links: Mutex<HashMap<String, Link>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    stats: Arc<Stats>,
}

/// Calls servers by address. Cheap to clone; all clones share the connections.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("links", &self.inner.links.lock().len())
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client; `dispatch` handles requests that servers send over its connections.
    pub fn new(config: ClientConfig, dispatch: Arc<Dispatch>) -> Self {
        Self {
            inner: Arc::new(Inner {
                config,
                dispatch,
                links: Mutex::default(),
                tasks: TaskTracker::new(),
                stop: CancellationToken::new(),
                stats: Arc::default(),
            }),
        }
    }

    /// Counters of this client.
    pub fn stats(&self) -> Arc<Stats> {
        Arc::clone(&self.inner.stats)
    }

    /// Sends a request to `addr` (`host:port`, IPv6 in brackets) and waits for its answer. Dropping the
    /// future gives the call up.
    ///
    /// # Errors
    /// See [`CallError`]; the time-out covers connecting too.
    pub async fn call(
        &self,
        addr: &str,
        mut request: Command,
        time_out: Duration,
    ) -> Result<Command, CallError> {
        let deadline = Instant::now() + time_out;
        self.run_hooks(addr, &mut request)?;
        let Ok(conn) = timeout_at(deadline, self.connect(addr)).await else {
            let reason = format!("no connection within {} ms", time_out.as_millis());
            return Err(CallError::Connect {
                addr: addr.to_owned(),
                reason: reason.into(),
            });
        };
        let conn = conn?;
        let hooks = &self.inner.config.hooks;
        let asked = (!hooks.is_empty()).then(|| without_body(&request));
        let answer = conn.call(request, deadline.saturating_duration_since(Instant::now()));
        let mut answer = answer.await.map_err(|error| match error {
            CallError::Timeout { .. } => CallError::Timeout {
                addr: addr.to_owned(),
                after: time_out,
            },
            other => other,
        })?;
        if let Some(asked) = asked {
            for hook in hooks {
                hook.after(addr, &asked, &mut answer);
            }
        }
        Ok(answer)
    }

    /// Connects if needed and queues a one-way request; returns without waiting for it to be written.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn oneway(&self, addr: &str, mut request: Command) -> Result<(), CallError> {
        self.run_hooks(addr, &mut request)?;
        Ok(self.connect(addr).await?.oneway(request)?)
    }

    fn run_hooks(&self, addr: &str, request: &mut Command) -> Result<(), CallError> {
        for hook in &self.inner.config.hooks {
            hook.before(addr, request).map_err(|refusal| CallError::Refused {
                remark: refusal.remark,
            })?;
        }
        Ok(())
    }

    /// The connection to `addr`, made if there is none. Takes at most the connect time-out.
    ///
    /// # Errors
    /// [`CallError::Address`], [`CallError::Connect`] or [`CallError::ClientClosed`].
    pub async fn connect(&self, addr: &str) -> Result<Conn, CallError> {
        let mut attempt = {
            let mut links = self.inner.links.lock();
            if self.inner.stop.is_cancelled() {
                return Err(CallError::ClientClosed);
            }
            match links.get(addr) {
                Some(Link::Up(conn)) if conn.is_open() => return Ok(conn.clone()),
                Some(Link::Connecting(attempt)) => attempt.clone(),
                _ => {
                    let (tx, rx) = watch::channel(None);
                    links.insert(addr.to_owned(), Link::Connecting(rx.clone()));
                    let inner = Arc::clone(&self.inner);
                    let addr = addr.to_owned();
                    self.inner
                        .tasks
                        .spawn(async move { inner.attempt(addr, tx).await });
                    rx
                }
            }
        };
        match attempt.wait_for(Option::is_some).await {
            Ok(done) => done.clone().unwrap_or(Err(CallError::ClientClosed)),
            Err(_) => Err(CallError::ClientClosed),
        }
    }

    /// The open connection to `addr`, if there is one.
    pub fn connected(&self, addr: &str) -> Option<Conn> {
        match self.inner.links.lock().get(addr) {
            Some(Link::Up(conn)) if conn.is_open() => Some(conn.clone()),
            _ => None,
        }
    }

    /// Closes the connection to `addr`, if there is one: for addresses that left a list.
    pub fn disconnect(&self, addr: &str) {
        if let Some(conn) = self.connected(addr) {
            conn.close("no longer wanted");
        }
    }

    /// Addresses with an open connection.
    pub fn addresses(&self) -> Vec<String> {
        let links = self.inner.links.lock();
        let up = links
            .iter()
            .filter(|(_, link)| matches!(link, Link::Up(conn) if conn.is_open()));
        up.map(|(addr, _)| addr.clone()).collect()
    }

    /// Writes out what is queued (at most 1 s), closes all connections and refuses new calls. Waiting calls
    /// fail.
    pub async fn close(&self) {
        let conns: Vec<Conn> = {
            let mut links = self.inner.links.lock();
            self.inner.stop.cancel();
            links
                .drain()
                .filter_map(|(_, link)| match link {
                    Link::Up(conn) => Some(conn),
                    Link::Connecting(_) => None,
                })
                .collect()
        };
        for conn in &conns {
            conn.drain();
        }
        self.inner.tasks.close();
        if timeout(Duration::from_secs(1), self.inner.tasks.wait())
            .await
            .is_err()
        {
            for conn in &conns {
                conn.close("the client was closed");
            }
            self.inner.tasks.wait().await;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        for link in self.links.get_mut().values() {
            if let Link::Up(conn) = link {
                conn.close("the client is gone");
            }
        }
    }
}

impl Inner {
    /// Makes the connection, tells those who wait, and drives it until it ends.
    async fn attempt(self: Arc<Self>, addr: String, done: watch::Sender<Option<Result<Conn, CallError>>>) {
        let made = tokio::select! {
            () = self.stop.cancelled() => Err(CallError::ClientClosed),
            made = self.open(&addr) => made,
        };
        let (stream, conn) = match made {
            Ok(made) => made,
            Err(error) => {
                self.links.lock().remove(&addr);
                done.send_replace(Some(Err(error)));
                return;
            }
        };
        let life = Life {
            conn: conn.clone(),
            events: Arc::clone(&self.config.events),
            open: None,
            ended: None,
        };
        {
            let mut links = self.links.lock();
            if self.stop.is_cancelled() {
                drop(links);
                done.send_replace(Some(Err(CallError::ClientClosed)));
                return;
            }
            links.insert(addr.clone(), Link::Up(conn.clone()));
        }
        done.send_replace(Some(Ok(conn.clone())));
        let dispatch = Arc::clone(&self.dispatch);
        // Only a weak hold while the connection lives: the last `Client` gone closes it.
        let weak = Arc::downgrade(&self);
        drop(self);
        match stream {
            Stream::Plain(stream) => serve(stream, conn.clone(), dispatch, life).await,
            Stream::Encrypted(stream) => serve(stream, conn.clone(), dispatch, life).await,
        }
        if let Some(inner) = weak.upgrade() {
            let mut links = inner.links.lock();
            if matches!(links.get(&addr), Some(Link::Up(now)) if *now == conn) {
                links.remove(&addr);
            }
        }
    }

    async fn open(&self, addr: &str) -> Result<(Stream, Conn), CallError> {
        let (host, port) = split_addr(addr)?;
        let failed = |reason: String| CallError::Connect {
            addr: addr.to_owned(),
            reason: reason.into(),
        };
        let connected = timeout(self.config.connect_timeout, async {
            let addrs: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
            let stream = connect_any(&addrs).await?;
            let (peer, local) = (stream.peer_addr()?, stream.local_addr()?);
            let stream = match &self.config.tls {
                None => Stream::Plain(stream),
                Some(tls) => {
                    let shaken = tls.connect(host, stream).await;
                    let shaken = shaken.map_err(|e| io::Error::new(e.kind(), format!("no TLS: {e}")))?;
                    Stream::Encrypted(Box::new(shaken))
                }
            };
            Ok::<_, io::Error>((stream, peer, local))
        });
        let (stream, peer, local) = match connected.await {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => return Err(failed(error.to_string())),
            Err(_) => {
                let millis = self.config.connect_timeout.as_millis();
                return Err(failed(format!("no connection within {millis} ms")));
            }
        };
        let conn = Conn::new(
            peer,
            local,
            self.config.limits.clone(),
            Budget::unlimited(),
            true,
            Arc::clone(&self.stats),
        );
        if let Stream::Encrypted(_) = stream {
            conn.set_tls();
            stats::add(&self.stats.tls_opened, 1);
        }
        Ok((stream, conn))
    }
}

/// Splits `host:port`; an IPv6 address stands in brackets.
///
/// # Errors
/// [`CallError::Address`] with what is wrong.
pub fn split_addr(addr: &str) -> Result<(&str, u16), CallError> {
    let bad = |reason: &str| CallError::Address {
        addr: addr.to_owned(),
        reason: reason.to_owned(),
    };
    let (host, port) = addr.rsplit_once(':').ok_or_else(|| bad("it has no port"))?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner
            .strip_suffix(']')
            .ok_or_else(|| bad("a bracket is not closed"))?,
        None if host.contains(':') => return Err(bad("an IPv6 address needs brackets")),
        None => host,
    };
    if host.is_empty() {
        return Err(bad("it has no host"));
    }
    let port = port
        .parse()
        .map_err(|_| bad("its port is not a number from 0 to 65535"))?;
    Ok((host, port))
}

#[cfg(test)]
mod tests {
    use super::split_addr;

    #[test]
    fn addresses_are_split_at_the_last_colon() {
        assert_eq!(split_addr("10.0.0.1:10911").unwrap(), ("10.0.0.1", 10911));
        assert_eq!(split_addr("broker.example:9").unwrap(), ("broker.example", 9));
        assert_eq!(split_addr("[fd00::1]:9876").unwrap(), ("fd00::1", 9876));
    }

    #[test]
    fn bad_addresses_say_what_is_wrong() {
        for (addr, what) in [
            ("host", "no port"),
            (":1", "no host"),
            ("fd00::1:9876", "brackets"),
            ("[fd00::1:9876", "closed"),
            ("h:99999", "65535"),
            ("h:", "number"),
        ] {
            let text = split_addr(addr).unwrap_err().to_string();
            assert!(text.contains(what), "{addr}: {text}");
        }
    }
}
