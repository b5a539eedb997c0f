//! RocketMQ remoting over tokio: server, client, dispatch.
//!
//! Both ends of a connection are alike: each may send requests, each answers the other's. A connection is
//! one task ([`conn`] is its handle): it drains the socket, hands every complete frame to the [`dispatch`]
//! table, and writes all replies that are ready with one vectored write. Memory per connection is bounded by
//! [`Limits`], memory of all connections together by a [`Budget`]: when too much is queued or in flight, the task
//! stops reading and TCP holds the peer back.
//!
//! * [`server`]: accepts connections and drains them when told to stop
//! * [`client`]: one connection per address, made when first needed, shared by all calls
//! * [`dispatch`]: request code → handler and where it runs
//! * [`hook`]: what looks at every request (access control, signing)
//! * [`tls`]: encryption on the same port, with certificates that may change while connections live
//! * [`names`]: the list of name servers, with DNS names that are resolved again and again
//! * [`address_server`]: where such a list can be asked for over HTTP

#![forbid(unsafe_code)]

pub mod address_server;
pub mod budget;
pub mod client;
pub mod conn;
pub mod dispatch;
mod driver;
pub mod error;
pub mod hook;
mod lane;
pub mod metrics;
pub mod names;
mod out_buf;
mod pending;
pub mod requests;
pub mod server;
pub mod stats;
pub mod tls;

pub use address_server::AddressServer;
pub use budget::Budget;
pub use client::{Client, ClientConfig, split_addr};
pub use conn::{Conn, Limits};
pub use dispatch::{Dispatch, DispatchBuilder, Handler, Lane, LaneId, Outcome, Reply, RequestContext, Run};
pub use error::{CallError, SendError};
pub use hook::{HookRefusal, RpcHook};
pub use metrics::ServerFigures;
pub use names::NameServers;
pub use server::{ConnEvents, NoEvents, Server, ServerConfig};
pub use stats::Stats;
pub use tls::{ClientTls, ClientTlsSettings, ServerTls, TlsError, TlsSettings};
