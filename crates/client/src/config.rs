//! Settings shared by everything that one [`crate::Client`] makes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::Command;
use ferromq_protocol::acl::{self, Credentials};
use ferromq_remoting::{ClientTls, HookRefusal, RpcHook};

use crate::clock;
use crate::trace::TraceConfig;

/// Settings of a [`crate::Client`] and of [`crate::admin::Admin`].
///
/// ```
/// use ferromq_client::ClientConfig;
/// let config = ClientConfig { client_id: Some("billing-7".into()), ..ClientConfig::new("mq-namesrv:9876") };
/// assert_eq!(config.name_servers, "mq-namesrv:9876");
/// ```
#[derive(Clone)]
pub struct ClientConfig {
    /// `host:port`, several separated by `;`. A DNS name stands for all its addresses and is resolved
    /// anew at most 10 s later. An endpoint such as `http://MQ_INST_1_x.example.com:8080` is one too, and gives the
    /// namespace `MQ_INST_1_x` where none is set. Default: the environment variable `NAMESRV_ADDR`, else empty.
    pub name_servers: String,
    /// Identity of this client at the brokers; two live clients must not share one. Default: made of the
    /// local address, the process id and a random part, so that containers do not collide.
    pub client_id: Option<String>,
    /// Time for one call to a name server or broker, connecting included, where no other time is given.
    /// Default 3 s.
    pub call_timeout: Duration,
    /// How long to wait for a name server before a second one is asked as well. Default 500 ms.
    pub hedge_after: Duration,
    /// Pause between two refreshes of the routes in use. Default 30 s.
    pub route_refresh: Duration,
    /// Pause between two heartbeats to each broker; brokers drop a client after 120 s of silence.
    /// Default 30 s.
    pub heartbeat: Duration,
    /// URL of an HTTP server whose answer is the name server list, such as
    /// `http://address-server:8080/rocketmq/nsaddr`. Asked at the start and again and again; used where
    /// `name_servers` is empty. Default: none.
    pub address_server: Option<String>,
    /// Pause between two questions to the address server. Default 2 min.
    pub address_refresh: Duration,
    /// Encryption of all connections; `None`, the default: plain.
    pub tls: Option<ClientTls>,
    /// Account that signs each request, for brokers with access control. Default: none.
    pub credentials: Option<Credentials>,
    /// Hooks that see each request before it is signed and sent.
    pub hooks: Vec<Arc<dyn RpcHook>>,
    /// Put before the names of topics and groups, so that tenants do not meet. Default: none.
    pub namespace: Option<String>,
    /// Traces of all messages sent and consumed. Default: none.
    pub trace: Option<TraceConfig>,
    /// The time of day in milliseconds since 1970, which messages, their ids and subscriptions carry. Nothing waits by
    /// it. Default: the system's; another one is for tests.
    pub wall_clock: fn() -> i64,
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientConfig")
            .field("name_servers", &self.name_servers)
            .field("address_server", &self.address_server)
            .field("client_id", &self.client_id)
            .field("tls", &self.tls)
            .field("credentials", &self.credentials)
            .field("hooks", &self.hooks.len())
            .field("namespace", &self.namespace)
            .field("trace", &self.trace)
            .finish_non_exhaustive()
    }
}

impl Default for ClientConfig {
    fn default() -> Self {
        Self {
            name_servers: std::env::var("NAMESRV_ADDR").unwrap_or_default(),
            client_id: None,
            call_timeout: Duration::from_secs(3),
            hedge_after: Duration::from_millis(500),
            route_refresh: Duration::from_secs(30),
            heartbeat: Duration::from_secs(30),
            address_server: None,
            address_refresh: Duration::from_mins(2),
            tls: None,
            credentials: None,
            hooks: Vec::new(),
            namespace: None,
            trace: None,
            wall_clock: clock::now_millis,
        }
    }
}

impl ClientConfig {
    /// Default settings with the given name server list.
    pub fn new(name_servers: impl Into<String>) -> Self {
        Self {
            name_servers: name_servers.into(),
            ..Self::default()
        }
    }

    /// Sets the time for one call.
    #[must_use]
    pub fn with_call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets the client's identity.
    #[must_use]
    pub fn with_client_id(mut self, id: impl Into<String>) -> Self {
        self.client_id = Some(id.into());
        self
    }

    /// Encrypts all connections.
    #[must_use]
    pub fn with_tls(mut self, tls: ClientTls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Signs each request with an account's secret, see [`Credentials`].
    #[must_use]
    pub fn with_credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Adds a hook that sees each request before it is sent.
    #[must_use]
    pub fn with_hook(mut self, hook: Arc<dyn RpcHook>) -> Self {
        self.hooks.push(hook);
        self
    }

    /// Sets the namespace of topics and groups.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Traces messages to the default topic.
    #[must_use]
    pub fn with_trace(mut self) -> Self {
        self.trace = Some(TraceConfig::default());
        self
    }
}

/// What Java's endpoints say: the list of name servers behind `http://`, and the instance that is the namespace.
pub(crate) fn endpoint(name_servers: &str) -> (&str, Option<&str>) {
    let text = name_servers.trim();
    let list = match text.strip_prefix("http://") {
        Some(_) => text.rsplit('/').next().unwrap_or(text),
        None => text,
    };
    let host = match text.split_once("://") {
        Some((scheme, rest)) if is_word(scheme) => rest,
        _ => text,
    };
    let instance = host.split_once('.').map(|(instance, _)| instance);
    let is_instance = |name: &&str| {
        let parts = name
            .strip_prefix("MQ_INST_")
            .and_then(|rest| rest.split_once('_'));
        parts.is_some_and(|(owner, name)| is_word(owner) && is_word(name))
    };
    (list, instance.filter(is_instance))
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Signs requests; the last of all hooks.
struct Signer(Credentials);

impl RpcHook for Signer {
    fn before(&self, _: &str, request: &mut Command) -> Result<(), HookRefusal> {
        acl::sign(request, &self.0);
        Ok(())
    }
}

impl ClientConfig {
    /// All hooks in their order.
    pub(crate) fn all_hooks(&self) -> Vec<Arc<dyn RpcHook>> {
        let mut hooks = self.hooks.clone();
        if let Some(credentials) = &self.credentials {
            hooks.push(Arc::new(Signer(credentials.clone())));
        }
        hooks
    }
}

/// The address that packets to the first name server would leave from; loopback if that cannot be told.
/// No packet is sent.
pub(crate) fn local_address(name_servers: &str) -> IpAddr {
    let first = name_servers
        .split(';')
        .map(str::trim)
        .find(|s| !s.is_empty())
        .unwrap_or_default();
    let probe = || {
        let literal: std::net::SocketAddr = first.parse().ok()?;
        let any = if literal.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(literal).ok()?;
        socket.local_addr().ok().map(|a| a.ip())
    };
    // Addresses that are reserved for examples: only the route counts.
    let outward = |any: &str, example: &str| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(example).ok()?;
        socket.local_addr().ok().map(|a| a.ip())
    };
    probe()
        .or_else(|| outward("0.0.0.0:0", "192.0.2.1:9"))
        .or_else(|| outward("[::]:0", "[2001:db8::1]:9"))
        .filter(|ip| !ip.is_unspecified())
        .unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// `ip@pid#random`, the shape of Java's ids, so that tools show it alike.
pub(crate) fn make_client_id(ip: IpAddr) -> String {
    format!("{ip}@{}#{:016x}", std::process::id(), random())
}

/// A random number without a generator of our own: the standard library seeds each hasher state anew.
pub(crate) fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::hash::RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_within_one_process() {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (a, b) = (make_client_id(ip), make_client_id(ip));
        assert_ne!(a, b);
        assert!(a.starts_with("127.0.0.1@"), "{a}");
    }

    #[test]
    fn endpoints_are_lists_and_some_name_a_namespace() {
        let instance = "MQ_INST_123_abc";
        for (text, list, namespace) in [
            ("10.0.0.1:9876;10.0.0.2:9876", "10.0.0.1:9876;10.0.0.2:9876", None),
            ("http://10.0.0.1:9876", "10.0.0.1:9876", None),
            (
                "http://MQ_INST_123_abc.eu.example.com:8080",
                "MQ_INST_123_abc.eu.example.com:8080",
                Some(instance),
            ),
            (
                "MQ_INST_123_abc.eu.example.com:8080",
                "MQ_INST_123_abc.eu.example.com:8080",
                Some(instance),
            ),
            (
                "http://MQ_INST_123.example.com:8080",
                "MQ_INST_123.example.com:8080",
                None,
            ),
            (
                "http://MQ_INST_123_a-b.example.com:8080",
                "MQ_INST_123_a-b.example.com:8080",
                None,
            ),
            ("MQ_INST_123_abc:9876", "MQ_INST_123_abc:9876", None),
            ("", "", None),
        ] {
            assert_eq!(endpoint(text), (list, namespace), "{text}");
        }
    }

    #[test]
    fn the_local_address_towards_loopback_is_loopback() {
        assert_eq!(
            local_address("127.0.0.1:9876; b:9876"),
            IpAddr::V4(Ipv4Addr::LOCALHOST)
        );
    }
}
