//! The master's side: who connects is sent the log from where it says it is, and counts from then on.
//!
//! A peer that reports nothing never becomes a replica, and one that claims more than it was sent is left: the port has no
//! authentication, and what scanners write there must not make a send look safe.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::TcpListener,
    sync::Semaphore,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    LinkError, Options,
    ack::{Member, Replicas},
    wire,
};
use crate::{Store, core::Core};

/// A slave that lacks more than this is sent bytes that may have to come from the disk: they're read on a thread that can wait.
const COLD: i64 = 64 << 20;

/// Sends the log to slaves.
#[derive(Debug)]
pub struct Master {
    store: Store,
    options: Options,
}

/// Where the sending to one slave stands.
struct Link {
    core: Arc<Core>,
    batch: usize,
    heartbeat: Duration,
    /// Log offset of the next byte to send.
    next: AtomicI64,
}

async fn read_report(reader: &mut (impl AsyncRead + Unpin), patience: Duration) -> Result<i64, LinkError> {
    let mut report = [0; wire::REPORT_LEN];
    match timeout(patience, reader.read_exact(&mut report)).await {
        Err(_) => Err(LinkError::Silent(patience)),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(LinkError::Closed),
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(_)) => match i64::from_be_bytes(report) {
            end if end < 0 => Err(LinkError::Offset(end)),
            end => Ok(end),
        },
    }
}

impl Master {
    /// Serves the log of `store`, which must be started.
    pub fn new(store: Store, options: Options) -> Self {
        Self { store, options }
    }

    /// Takes connections until `stop`; then all of them have ended.
    pub async fn run(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let links = TaskTracker::new();
        let room = Arc::new(Semaphore::new(self.options.connections));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot take a connection on the replication port; trying again");
                    sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let Ok(permit) = room.clone().try_acquire_owned() else {
                tracing::warn!(%peer, most = self.options.connections, "too many connections on the replication port: closing a new one");
                continue;
            };
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%peer, %error, "a connection on the replication port is gone already");
                continue;
            }
            let (master, stop) = (self.clone(), stop.clone());
            links.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = master.serve_logged(stream, peer.to_string()) => {}
                }
                drop(permit);
            });
        }
        links.close();
        links.wait().await;
    }

    async fn serve_logged<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, peer: String) {
        let ControlFlow::Break((known, error)) = self.serve_until(stream, &peer).await;
        match error {
            // Probes and scanners come and go.
            LinkError::Closed | LinkError::Silent(_) | LinkError::Io(_) if !known => {
                tracing::debug!(peer, %error, "a connection on the replication port ended before any report");
            }
            error => tracing::warn!(peer, %error, "the link to a slave ended"),
        }
    }

    /// Sends the log to the slave at the other end of `stream`, called `peer` in logs, until the link ends.
    ///
    /// # Errors
    /// Always: why it ended.
    pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S, peer: &str) -> LinkError {
        let ControlFlow::Break((_, error)) = self.serve_until(stream, peer).await;
        error
    }

    /// Ends with the error, and whether the peer had become a replica.
    async fn serve_until<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        peer: &str,
    ) -> ControlFlow<(bool, LinkError), std::convert::Infallible> {
        let core = self.store.core();
        let (mut reader, mut writer) = split(stream);
        let first = match read_report(&mut reader, self.options.housekeeping).await {
            Ok(first) => first,
            Err(error) => return ControlFlow::Break((false, error)),
        };
        let start = match start_offset(core, first) {
            Ok(start) => start,
            Err(error) => return ControlFlow::Break((false, error)),
        };
        tracing::info!(peer, at = first, start, "a slave is connected");
        let member = Replicas::join(core, peer.to_owned(), first);
        // It may be all that a waiting send needs.
        member.reached(first);
        let link = Link {
            core: core.clone(),
            batch: self.options.batch.clamp(1, wire::MAX_BODY),
            heartbeat: self.options.heartbeat,
            next: AtomicI64::new(start),
        };
        let error = tokio::select! {
            error = link.hear(&mut reader, &member, self.options.housekeeping) => error,
            error = link.send(&mut writer) => error,
        };
        ControlFlow::Break((true, error))
    }
}

/// Where sending starts for a slave whose log ends at `end`.
fn start_offset(core: &Core, end: i64) -> Result<i64, LinkError> {
    let (first, known) = (core.log.min(), core.log.max());
    if end == 0 {
        // A fresh one gets all there is.
        return Ok(first);
    }
    if end > known {
        return Err(LinkError::Beyond { reported: end, known });
    }
    if end < first {
        return Err(LinkError::TooOld { wanted: end, first });
    }
    Ok(end)
}

impl Link {
    async fn hear(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        member: &Member,
        housekeeping: Duration,
    ) -> LinkError {
        loop {
            let end = match read_report(reader, housekeeping).await {
                Ok(end) => end,
                Err(error) => return error,
            };
            let known = self.next.load(Ordering::Acquire);
            if end > known {
                return LinkError::Beyond { reported: end, known };
            }
            member.reached(end);
        }
    }

    async fn send(&self, writer: &mut (impl AsyncWrite + Unpin)) -> LinkError {
        let mut frame = Vec::with_capacity(wire::HEAD_LEN + self.batch);
        let mut last = Instant::now();
        let mut told_end = false;
        loop {
            let appended = self.core.replicas.appended.notified();
            tokio::pin!(appended);
            // From here on no append is missed.
            appended.as_mut().enable();
            let next = self.next.load(Ordering::Acquire);
            let behind = self.core.log.max() - next;
            frame.clear();
            if behind > 0 {
                frame = match self.fill(frame, next, behind > COLD).await {
                    Ok(frame) => frame,
                    Err(error) => return error,
                };
                let sent = (frame.len() - wire::HEAD_LEN) as i64;
                // Before it's written: the slave may answer at once.
                self.next.store(next + sent, Ordering::Release);
            } else {
                // The first time it's told at once that there is no more.
                if told_end {
                    tokio::select! {
                        () = &mut appended => continue,
                        () = sleep_until(last + self.heartbeat) => {}
                    }
                }
                told_end = true;
                frame.extend_from_slice(&wire::head(next, 0));
            }
            if let Err(error) = writer.write_all(&frame).await {
                return error.into();
            }
            if let Err(error) = writer.flush().await {
                return error.into();
            }
            last = Instant::now();
        }
    }

    async fn fill(&self, mut frame: Vec<u8>, next: i64, cold: bool) -> Result<Vec<u8>, LinkError> {
        let (core, batch) = (self.core.clone(), self.batch);
        let work = move || gather(&core, next, batch, &mut frame).map(|()| frame);
        if cold {
            tokio::task::spawn_blocking(work)
                .await
                .map_err(|e| LinkError::Disk(format!("reading the log failed: {e}")))?
        } else {
            work()
        }
    }
}

/// Puts a frame with the log from `next` on into `frame`: at most `batch` bytes, of one file.
fn gather(core: &Core, next: i64, batch: usize, frame: &mut Vec<u8>) -> Result<(), LinkError> {
    let end = core.log.max() as u64;
    let found = core.log.rest_of_file(next as u64).and_then(|(segment, range)| {
        let to = range.end.min(end).min(range.start + batch as u64);
        let bytes = segment.slice(range.start..to)?;
        frame.extend_from_slice(&wire::head(next, bytes.len() as i32));
        frame.extend_from_slice(bytes);
        Some(())
    });
    // The cleaner was faster than the slave.
    found.ok_or_else(|| LinkError::TooOld {
        wanted: next,
        first: core.log.min(),
    })
}
