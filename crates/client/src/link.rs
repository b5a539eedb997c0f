//! The one way from this crate to the network: calls with their errors named, and the choice of name server.
//!
//! A question that any name server can answer goes to the one that answered last. When it stays silent for
//! [`ClientConfig::hedge_after`] or fails, the next is asked as well and the first good answer wins, so that a
//! dead name server costs little. "Not found" counts only when no other name server knows better: one that has
//! just started knows nothing yet.

use std::sync::Arc;
use std::time::Duration;

use ferromq_protocol::code::{request_name, response};
use ferromq_protocol::command::Command;
use ferromq_protocol::fastjson;
use ferromq_remoting::{
    CallError, Client as Remoting, ClientConfig as RemotingConfig, Dispatch, NameServers, SendError,
};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use crate::address_server::AddressServer;
use crate::config::{self, ClientConfig};
use crate::error::{ClientError, Refusal, Result};

/// Shared by all parts of one client; cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    remoting: Remoting,
    names: Option<NameServers>,
    /// Of the HTTP server that gives the list.
    url: Option<String>,
    address_refresh: Duration,
    call_timeout: Duration,
    hedge_after: Duration,
    preferred: Mutex<Option<String>>,
    /// Name servers at the last look.
    known: Mutex<Vec<String>>,
}

impl Link {
    pub(crate) fn new(config: &ClientConfig, dispatch: Arc<Dispatch>) -> Result<Self> {
        let (text, _) = config::endpoint(&config.name_servers);
        let parsed = NameServers::parse(text).map_err(|error| ClientError::BadAddress {
            address: text.to_owned(),
            reason: error.to_string(),
        })?;
        let url = config.address_server.clone().filter(|_| text.is_empty());
        let names = (!text.is_empty() || url.is_some()).then_some(parsed);
        let remoting = RemotingConfig {
            tls: config.tls.clone(),
            hooks: config.all_hooks(),
            ..RemotingConfig::default()
        };
        let shared = Shared {
            remoting: Remoting::new(remoting, dispatch),
            names,
            url,
            address_refresh: config.address_refresh,
            call_timeout: config.call_timeout,
            hedge_after: config.hedge_after,
            preferred: Mutex::new(None),
            known: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// What keeps the list of name servers up to date, if an HTTP server gives it.
    pub(crate) fn address_server(&self) -> Option<AddressServer> {
        Some(AddressServer {
            url: self.shared.url.clone()?,
            names: self.shared.names.clone()?,
            every: self.shared.address_refresh,
        })
    }

    /// The list of name servers as it was given.
    pub(crate) fn name_server_text(&self) -> String {
        self.shared
            .names
            .as_ref()
            .map(NameServers::text)
            .unwrap_or_default()
    }

    /// The time for calls without one of their own.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.shared.call_timeout
    }

    /// Sends a request and returns the answer whatever its code.
    pub(crate) async fn call(&self, address: &str, request: Command, timeout: Duration) -> Result<Command> {
        let name = name_of(request.code);
        let answer = self.shared.remoting.call(address, request, timeout).await;
        answer.map_err(|error| translate(error, address, name))
    }

    /// Sends a request and returns the answer if its code is 0.
    pub(crate) async fn ask(&self, address: &str, request: Command) -> Result<Command> {
        self.ask_within(address, request, self.shared.call_timeout).await
    }

    /// As [`Self::ask`], with a time of its own.
    pub(crate) async fn ask_within(
        &self,
        address: &str,
        request: Command,
        timeout: Duration,
    ) -> Result<Command> {
        let name = name_of(request.code);
        let answer = self.call(address, request, timeout).await?;
        accept(address, name, answer)
    }

    /// Sends a request that is not answered.
    pub(crate) async fn oneway(&self, address: &str, request: Command) -> Result<()> {
        let name = name_of(request.code);
        let sent = self.shared.remoting.oneway(address, request).await;
        sent.map_err(|error| translate(error, address, name))
    }

    /// The addresses of all name servers, the one that answered last in front.
    pub(crate) async fn name_servers(&self) -> Result<Vec<String>> {
        let names = self.shared.names.as_ref().ok_or(ClientError::NoNameServers)?;
        if names.is_empty()
            && let Some(server) = self.address_server()
        {
            // The first question of all must not fail because the list is not there yet.
            server.ask().await;
        }
        let mut addresses: Vec<String> = names.resolve().await.iter().map(ToString::to_string).collect();
        if addresses.is_empty() {
            return Err(ClientError::BadAddress {
                address: names.text(),
                reason: "no address was found for any of these names".into(),
            });
        }
        // One that left the list may live on, with nothing to tell.
        let before = std::mem::replace(&mut *self.shared.known.lock(), addresses.clone());
        for gone in before.iter().filter(|address| !addresses.contains(address)) {
            self.shared.remoting.disconnect(gone);
        }
        let preferred = self.shared.preferred.lock().clone();
        if let Some(at) = preferred.and_then(|p| addresses.iter().position(|a| *a == p)) {
            addresses[..=at].rotate_right(1);
        }
        Ok(addresses)
    }

    /// Asks any name server; see the module's text for which.
    pub(crate) async fn ask_name_servers(&self, request: &Command) -> Result<(String, Command)> {
        let mut left = self.name_servers().await?.into_iter();
        let mut asked = FuturesUnordered::new();
        let mut refused: Option<ClientError> = None;
        let mut failed: Option<ClientError> = None;
        let ask = |address: String| {
            let request = request.clone();
            async move {
                let answer = self.ask(&address, request).await;
                (address, answer)
            }
        };
        if let Some(address) = left.next() {
            asked.push(ask(address));
        }
        loop {
            let hedge = tokio::time::sleep(self.shared.hedge_after);
            tokio::select! {
                next = asked.next() => match next {
                    Some((address, Ok(answer))) => {
                        *self.shared.preferred.lock() = Some(address.clone());
                        return Ok((address, answer));
                    }
                    Some((_, Err(error))) => {
                        let slot = if error.code().is_some() { &mut refused } else { &mut failed };
                        slot.get_or_insert(error);
                        if let Some(address) = left.next() {
                            asked.push(ask(address));
                        }
                    }
                    None => return Err(refused.or(failed).unwrap_or(ClientError::NoNameServers)),
                },
                () = hedge, if left.len() > 0 => {
                    if let Some(address) = left.next() {
                        asked.push(ask(address));
                    }
                }
            }
        }
    }

    /// Ends all connections.
    pub(crate) async fn close(&self) {
        self.shared.remoting.close().await;
    }
}

/// The answer, if its code is 0.
pub(crate) fn accept(address: &str, request: &'static str, answer: Command) -> Result<Command> {
    if answer.code == response::SUCCESS {
        return Ok(answer);
    }
    Err(refusal(address, request, answer))
}

/// An answer with an error code as an error.
pub(crate) fn refusal(address: &str, request: &'static str, answer: Command) -> ClientError {
    ClientError::Refused(Box::new(Refusal {
        address: address.to_owned(),
        request,
        code: answer.code,
        remark: answer.remark.unwrap_or_default(),
    }))
}

/// The answer's body as a value; an empty body is an error.
pub(crate) fn body<T: DeserializeOwned>(address: &str, request: &'static str, answer: &Command) -> Result<T> {
    fastjson::from_slice(&answer.body).map_err(|error| bad_answer(address, request, error))
}

pub(crate) fn bad_answer(
    address: &str,
    request: &'static str,
    reason: impl std::fmt::Display,
) -> ClientError {
    ClientError::BadAnswer {
        address: address.to_owned(),
        request,
        reason: reason.to_string(),
    }
}

pub(crate) fn name_of(code: i32) -> &'static str {
    request_name(code).unwrap_or("the request")
}

fn translate(error: CallError, address: &str, request: &'static str) -> ClientError {
    let address = address.to_owned();
    match error {
        CallError::Address { addr, reason } => ClientError::BadAddress {
            address: addr,
            reason,
        },
        CallError::Connect { reason, .. } | CallError::Send(SendError::Closed { reason, .. }) => {
            ClientError::Connect {
                address,
                reason: reason.to_string(),
            }
        }
        CallError::Send(error @ SendError::TooLarge { .. }) => ClientError::NotSent {
            request,
            reason: error.to_string(),
        },
        CallError::Send(error) => ClientError::Overloaded {
            address,
            reason: error.to_string(),
        },
        CallError::Refused { remark } => ClientError::NotSent {
            request,
            reason: remark,
        },
        CallError::Timeout { after, .. } => ClientError::TimedOut {
            address,
            request,
            after,
        },
        CallError::Lost { reason, .. } => ClientError::Disconnected {
            address,
            request,
            reason: reason.to_string(),
        },
        CallError::ClientClosed => ClientError::Closed,
        other => ClientError::NotSent {
            request,
            reason: other.to_string(),
        },
    }
}
