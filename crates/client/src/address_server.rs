//! The name server list from an HTTP server: one GET, whose body is the list. Where that server is down or answers
//! nonsense, the list there was stays in use.

use std::time::Duration;

use ferromq_remoting::NameServers;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest pause between two questions while there is no list at all.
const SOON: Duration = Duration::from_secs(2);
/// Time for one question.
const PATIENCE: Duration = Duration::from_secs(3);
/// Longest answer.
const LONGEST: u64 = 64 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct AddressServer {
    pub(crate) url: String,
    pub(crate) names: NameServers,
    pub(crate) every: Duration,
}

impl AddressServer {
    /// Asks again and again.
    pub(crate) async fn keep(self) {
        loop {
            self.ask().await;
            let none = self.names.is_empty();
            let pause = if none { self.every.min(SOON) } else { self.every };
            tokio::time::sleep(pause).await;
        }
    }

    /// Asks once and takes over the list.
    pub(crate) async fn ask(&self) {
        let list = match tokio::time::timeout(PATIENCE, get(&self.url)).await {
            Ok(Ok(list)) => list,
            Ok(Err(reason)) => {
                tracing::warn!(
                    url = self.url,
                    reason,
                    "the name server list could not be fetched; the old one stays"
                );
                return;
            }
            Err(_) => {
                tracing::warn!(
                    url = self.url,
                    "the address server did not answer; the old list of name servers stays"
                );
                return;
            }
        };
        if list == self.names.text() {
            return;
        }
        if let Err(error) = self.names.set(&list) {
            tracing::warn!(url = self.url, %error, "the name server list cannot be read; the old one stays");
            return;
        }
        tracing::info!(list, "the name servers are now others");
    }
}

/// The body of a plain HTTP answer with status 200.
async fn get(url: &str) -> Result<String, String> {
    let rest = url
        .strip_prefix("http://")
        .ok_or("the URL does not begin with http://")?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let address = if host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok())
    {
        host.to_owned()
    } else {
        format!("{host}:80")
    };
    let failed = |error: std::io::Error| error.to_string();
    let mut stream = TcpStream::connect(&address).await.map_err(failed)?;
    // HTTP/1.0: the answer ends with the connection and comes in one piece.
    let request = format!("GET /{path} HTTP/1.0\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream
        .take(LONGEST)
        .read_to_end(&mut answer)
        .await
        .map_err(failed)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("the answer has no body")?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        return Err(format!("the answer has status {status:?}"));
    }
    let list = body.trim();
    if list.is_empty() {
        return Err("the answer is empty".to_owned());
    }
    Ok(list.to_owned())
}
