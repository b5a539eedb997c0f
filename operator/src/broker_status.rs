//! A broker's own report, `GET /status`, and how the right broker is found.
//!
//! Pod addresses are used again for other pods, and names may be cached past a pod's end. So every report is compared
//! with the identity that was expected, and an address counts as a broker's only after that.

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// Largest report that is read, bytes.
const MOST: usize = 256 * 1024;

/// The report of a broker.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// loading, recovering, starting, running or stopping.
    pub stage: String,
    /// How far a recovery is.
    pub recovery: Recovery,
    /// ASYNC_MASTER, SYNC_MASTER or SLAVE.
    pub role: String,
    /// RocketMQ's cluster name.
    pub cluster_name: String,
    /// RocketMQ's broker name.
    pub broker_name: String,
    /// RocketMQ's broker id.
    pub broker_id: i64,
    /// Ends of the commit log.
    pub log: LogRange,
    /// Name servers that have the registration.
    pub registered_at: Vec<String>,
    /// Whether the stop before this run was clean.
    pub last_stop_clean: bool,
    /// Bytes of the log that are not in the queues yet; none if the broker does not say.
    pub dispatch_behind_bytes: Option<i64>,
    /// Whether, and how long, it takes no writes.
    pub writes_stopped: WritesStopped,
    /// A replica's view of its master.
    pub following: Option<Following>,
    /// Messages that retention is about to delete before a group has consumed them.
    pub expiring_unconsumed: Vec<Expiring>,
    /// What decides whether the disk holds messages as long as it should; none if the broker does not say.
    pub disk: Option<Disk>,
}

/// What one group will miss of one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Expiring {
    /// The consumer group.
    pub group: String,
    /// The topic.
    pub topic: String,
    /// How many messages.
    pub messages: i64,
    /// Until the first of them may be deleted.
    pub deleted_in_seconds: i64,
}

/// A broker's disk and what it is to keep there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Disk {
    /// Used part, 0 to 1.
    pub used_ratio: Option<f64>,
    /// Part that may be used, 0 to 1.
    pub max_used_ratio: f64,
    /// Hours that messages are to be kept.
    pub reserved_hours: i64,
    /// Age of the oldest message.
    pub oldest_age_seconds: i64,
    /// Bytes of the log.
    pub log_bytes: i64,
    /// Bytes that the broker may use; 0: the disk's own size counts.
    pub capacity_bytes: i64,
}

/// Whether, and how long, a broker takes no writes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WritesStopped {
    /// Whether the lease is in force.
    pub active: bool,
    /// What is left of it.
    pub lease_seconds_left: u64,
}

/// A replica's view of its master.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Following {
    /// Whether it is connected.
    pub connected: bool,
    /// Bytes of the master's log that it lacks.
    pub behind_bytes: Option<i64>,
    /// Why it does not follow.
    pub error: Option<String>,
}

/// How far a recovery is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Recovery {
    /// Whether the stop before was unclean.
    pub abnormal: bool,
    /// Bytes looked at.
    pub done: i64,
    /// Bytes to look at.
    pub total: i64,
}

/// Ends of the commit log, bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct LogRange {
    /// Where it begins.
    pub min: i64,
    /// Where it ends.
    pub max: i64,
}

/// Which broker is meant, and where it may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// RocketMQ's cluster name.
    pub cluster_name: String,
    /// RocketMQ's broker name.
    pub broker_name: String,
    /// RocketMQ's broker id.
    pub broker_id: i64,
    /// Headless name, if names are used.
    pub host: Option<String>,
    /// Address that Kubernetes gives for the pod.
    pub pod_ip: Option<IpAddr>,
    /// HTTP port.
    pub port: u16,
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// Neither name nor pod gave an address.
    #[error("no address is known for it")]
    NoAddress,
    /// Connecting or reading failed.
    #[error("no status from {address}: {reason}")]
    NoAnswer {
        /// Address asked.
        address: SocketAddr,
        /// What happened.
        reason: String,
    },
    /// Somebody else answered.
    #[error("{address} is another broker, {found}")]
    Other {
        /// Address asked.
        address: SocketAddr,
        /// Who answered.
        found: String,
    },
}

/// Asks for the report, at each address in turn until the right broker answers.
///
/// # Errors
/// The failure of the last address.
pub async fn ask(expected: &Expected, within: Duration) -> Result<(IpAddr, Report), ReportError> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    if let Some(host) = &expected.host {
        let found =
            tokio::time::timeout(within, tokio::net::lookup_host((host.as_str(), expected.port))).await;
        if let Ok(Ok(found)) = found {
            addresses.extend(found.map(|a| a.ip()));
        }
    }
    addresses.extend(expected.pod_ip);
    addresses.dedup();
    let mut last = ReportError::NoAddress;
    for ip in addresses {
        let address = SocketAddr::new(ip, expected.port);
        let answer = tokio::time::timeout(within, get(address)).await;
        last = match answer {
            Ok(Ok(report)) if is_expected(expected, &report) => return Ok((ip, report)),
            Ok(Ok(report)) => ReportError::Other {
                address,
                found: format!(
                    "{}/{} {}",
                    report.cluster_name, report.broker_name, report.broker_id
                ),
            },
            Ok(Err(e)) => ReportError::NoAnswer {
                address,
                reason: e.to_string(),
            },
            Err(_) => ReportError::NoAnswer {
                address,
                reason: format!("nothing within {within:?}"),
            },
        };
    }
    Err(last)
}

fn is_expected(expected: &Expected, report: &Report) -> bool {
    report.cluster_name == expected.cluster_name
        && report.broker_name == expected.broker_name
        && report.broker_id == expected.broker_id
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;

async fn get(address: SocketAddr) -> Result<Report, BoxError> {
    let request = hyper::Request::get("/status")
        .header(hyper::header::HOST, address.to_string())
        .header(hyper::header::CONNECTION, "close")
        .body(Full::default())?;
    exchange(address, request).await
}

/// Stops writes of clients for so many seconds, or ends the stop (nothing). Gives what the broker reports then.
///
/// # Errors
/// What happened, for people.
pub async fn order_writes(
    ip: IpAddr,
    token: &str,
    stop_for: Option<u64>,
    within: Duration,
) -> Result<Report, String> {
    let address = SocketAddr::new(ip, crate::names::HTTP_PORT);
    let body = match stop_for {
        Some(seconds) => serde_json::json!({"stop": true, "leaseSeconds": seconds}),
        None => serde_json::json!({"stop": false}),
    };
    let request = hyper::Request::put("/writes")
        .header(hyper::header::HOST, address.to_string())
        .header(hyper::header::CONNECTION, "close")
        .header(hyper::header::AUTHORIZATION, format!("Bearer {token}"))
        .body(Full::from(body.to_string()))
        .map_err(|e| e.to_string())?;
    match tokio::time::timeout(within, exchange(address, request)).await {
        Ok(answer) => answer.map_err(|e| format!("PUT /writes at {address}: {e}")),
        Err(_) => Err(format!("PUT /writes at {address}: nothing within {within:?}")),
    }
}

async fn exchange(address: SocketAddr, request: hyper::Request<Full<Bytes>>) -> Result<Report, BoxError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection is driven beside the request and ends with it; nothing is left running.
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MOST)
            .collect()
            .await?
            .to_bytes();
        if !status.is_success() {
            return Err(BoxError::from(format!("HTTP {status}")));
        }
        Ok(serde_json::from_slice(&body)?)
    };
    tokio::pin!(exchange);
    tokio::pin!(connection);
    tokio::select! {
        biased;
        answer = &mut exchange => answer,
        ended = &mut connection => {
            ended?;
            exchange.await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn expected(port: u16) -> Expected {
        Expected {
            cluster_name: "demo".to_owned(),
            broker_name: "demo-0".to_owned(),
            broker_id: 0,
            host: None,
            pod_ip: Some(IpAddr::from([127, 0, 0, 1])),
            port,
        }
    }

    async fn serve(body: &'static str) -> (u16, tokio::task::JoinHandle<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let tasks = tokio_util::task::TaskTracker::new();
        let served = tasks.spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut seen = Vec::new();
            while !seen.ends_with(b"\r\n\r\n") {
                let mut buffer = [0; 512];
                let n = stream.read(&mut buffer).await.unwrap();
                assert!(n > 0);
                seen.extend_from_slice(&buffer[..n]);
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(body.as_bytes()).await.unwrap();
        });
        (port, served)
    }

    #[tokio::test]
    async fn the_right_broker_is_heard() {
        let (port, served) = serve(
            r#"{"stage":"recovering","recovery":{"abnormal":true,"done":4,"total":10},"role":"ASYNC_MASTER",
               "clusterName":"demo","brokerName":"demo-0","brokerId":0,"log":{"min":0,"max":7},"replicas":[],
               "registeredAt":["10.0.0.1:9876"],"lastStopClean":true,"something":{"new":1}}"#,
        )
        .await;
        let (ip, report) = ask(&expected(port), Duration::from_secs(10)).await.unwrap();
        served.await.unwrap();
        assert_eq!(ip, IpAddr::from([127, 0, 0, 1]));
        assert_eq!(
            (report.stage.as_str(), report.log.max, report.recovery.done),
            ("recovering", 7, 4)
        );
        assert!(report.last_stop_clean);
    }

    #[tokio::test]
    async fn another_broker_at_the_address_does_not_count() {
        let (port, served) = serve(r#"{"clusterName":"other","brokerName":"demo-0","brokerId":0}"#).await;
        let error = ask(&expected(port), Duration::from_secs(10)).await.unwrap_err();
        served.await.unwrap();
        assert!(
            matches!(&error, ReportError::Other { found, .. } if found == "other/demo-0 0"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn nothing_there_is_said() {
        let nowhere = Expected {
            pod_ip: None,
            ..expected(1)
        };
        assert_eq!(
            ask(&nowhere, Duration::from_secs(1)).await.unwrap_err(),
            ReportError::NoAddress
        );
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = ask(&expected(port), Duration::from_secs(10)).await.unwrap_err();
        assert!(matches!(error, ReportError::NoAnswer { .. }), "{error}");
    }
}
