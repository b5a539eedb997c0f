//! Asks an HTTP address server for the list of name servers.
//!
//! ```text
//! GET /rocketmq/nsaddr            →  10.0.0.1:9876;10.0.0.2:9876
//! GET /rocketmq/nsaddr-UNIT?nofix=1  the list of a unit
//! ```
//!
//! The first line of the body is the list. What holds: an answer is read to at most [`MAX_ANSWER`] bytes and within
//! [`PATIENCE`]; anything but a 200 with a list in it is an error, so that a wrong answer cannot replace a good list.
//! HTTP/1.0 is asked for, which leaves servers no choice but to send the body as it is and close.

use std::fmt;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::split_addr;
use crate::error::CallError;

/// Domain that RocketMQ asks when none is set.
pub const DEFAULT_DOMAIN: &str = "jmenv.tbsite.net";
/// Last part of the path when none is set.
pub const DEFAULT_SUB_GROUP: &str = "nsaddr";
/// Port of a domain without one.
const DEFAULT_PORT: u16 = 8080;
/// Longest answer, bytes.
const MAX_ANSWER: u64 = 64 * 1024;
/// Time for one question, connecting included.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where lists of name servers are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressServer {
    host: String,
    port: u16,
    path: String,
}

impl fmt::Display for AddressServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(f, "http://{open}{}{close}:{}{}", self.host, self.port, self.path)
    }
}

impl AddressServer {
    /// The server of a domain, `host` or `host:port` (default 8080), for a sub-group and, if there is one, a unit.
    ///
    /// # Errors
    /// [`CallError::Address`] if the domain is no host, or a part cannot stand in a path.
    pub fn new(domain: &str, sub_group: &str, unit: Option<&str>) -> Result<Self, CallError> {
        let domain = domain.trim();
        let bad = |reason: &str| CallError::Address {
            addr: domain.to_owned(),
            reason: reason.to_owned(),
        };
        let (host, port) = if domain.contains(':') {
            split_addr(domain)?
        } else {
            (domain, DEFAULT_PORT)
        };
        if host.is_empty() || !host.bytes().all(|b| b.is_ascii_graphic() && b != b'/') {
            return Err(bad("an address server's domain is a host, or host:port"));
        }
        let unit = unit.filter(|u| !u.is_empty());
        let plain = |part: &str| {
            part.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_./%".contains(&b))
        };
        if sub_group.is_empty() || !plain(sub_group) || !unit.is_none_or(plain) {
            return Err(bad(
                "sub-group and unit of an address server are letters, digits and -_./",
            ));
        }
        let path = match unit {
            Some(unit) => format!("/rocketmq/{sub_group}-{unit}?nofix=1"),
            None => format!("/rocketmq/{sub_group}"),
        };
        Ok(Self {
            host: host.to_owned(),
            port,
            path,
        })
    }

    /// Asks for the list, `host:port` with `;` between them.
    ///
    /// # Errors
    /// No answer within 3 s, or one that is not a list.
    pub async fn fetch(&self) -> io::Result<String> {
        match timeout(PATIENCE, self.ask()).await {
            Ok(answer) => list_of(&answer?),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    async fn ask(&self) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let request = format!(
            "GET {} HTTP/1.0\r\nHost: {}\r\nAccept: text/plain, */*\r\nConnection: close\r\n\r\n",
            self.path, self.host
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // A server may keep the connection although it was asked not to: the length tells the end then.
        let mut part = [0; 4096];
        while !is_whole(&answer) && (answer.len() as u64) < MAX_ANSWER {
            let n = stream.read(&mut part).await?;
            if n == 0 {
                break;
            }
            answer.extend_from_slice(&part[..n]);
        }
        Ok(answer)
    }
}

fn head_and_body(answer: &[u8]) -> Option<(&str, &[u8])> {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    Some((std::str::from_utf8(&answer[..end]).ok()?, &answer[end + 4..]))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn is_whole(answer: &[u8]) -> bool {
    head_and_body(answer).is_some_and(|(head, body)| {
        field(head, "content-length")
            .and_then(|n| n.parse().ok())
            .is_some_and(|n: usize| body.len() >= n)
    })
}

fn list_of(answer: &[u8]) -> io::Result<String> {
    let bad = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let (head, body) = head_and_body(answer).ok_or_else(|| bad("the answer is not HTTP".to_owned()))?;
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        let line = head.lines().next().unwrap_or_default();
        return Err(bad(format!(
            "the answer is '{}', not 200",
            line.chars().take(80).collect::<String>()
        )));
    }
    if field(head, "transfer-encoding").is_some_and(|e| !e.eq_ignore_ascii_case("identity")) {
        return Err(bad(
            "the answer is in chunks although HTTP/1.0 was asked for".to_owned()
        ));
    }
    let body = std::str::from_utf8(body).map_err(|_| bad("the answer is not text".to_owned()))?;
    let list = body.trim().lines().next().unwrap_or_default().trim();
    if list.is_empty() {
        return Err(bad("the list is empty".to_owned()));
    }
    Ok(list.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_made_as_javas_are() {
        let made = |d, s, u| AddressServer::new(d, s, u).map(|a| a.to_string());
        assert_eq!(
            made(DEFAULT_DOMAIN, DEFAULT_SUB_GROUP, None).unwrap(),
            "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
        );
        assert_eq!(
            made("ns.example:80", "other", Some("unit1")).unwrap(),
            "http://ns.example:80/rocketmq/other-unit1?nofix=1"
        );
        assert_eq!(
            made("[fd00::1]:80", "nsaddr", Some("")).unwrap(),
            "http://[fd00::1]:80/rocketmq/nsaddr"
        );
        for (domain, group, unit) in [
            ("", "nsaddr", None),
            ("a b", "nsaddr", None),
            ("http://a/", "nsaddr", None),
            ("a:b", "nsaddr", None),
            ("a", "", None),
            ("a", "x\r\nHost: b", None),
            ("a", "nsaddr", Some("u?x")),
        ] {
            assert!(made(domain, group, unit).is_err(), "{domain} {group}");
        }
    }

    #[test]
    fn only_a_list_is_taken() {
        let list = |text: &str| list_of(text.as_bytes()).map_err(|e| e.to_string());
        assert_eq!(
            list("HTTP/1.0 200 OK\r\nX: y\r\n\r\na:1;b:2\r\nmore\n").unwrap(),
            "a:1;b:2"
        );
        assert_eq!(list("HTTP/1.1 200\r\n\r\n\n a:1 \n").unwrap(), "a:1");
        for (bad, says) in [
            ("", "not HTTP"),
            ("HTTP/1.1 404 Not Found\r\n\r\na:1", "404"),
            ("HTTP/1.1 200 OK\r\n\r\n \n", "empty"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na:1",
                "chunks",
            ),
        ] {
            assert!(list(bad).unwrap_err().contains(says), "{bad}");
        }
        assert!(list_of(b"HTTP/1.1 200 OK\r\n\r\n\xff").is_err());
    }

    #[test]
    fn the_length_tells_the_end() {
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na:"));
        assert!(is_whole(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\na:1"));
        assert!(!is_whole(b"HTTP/1.1 200 OK\r\n\r\na:1"));
    }
}
