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

use ferromq_protocol::crc::crc31;
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
    wire::{self, Hello, Note, Verdict},
};
use crate::{Store, core::Core};

/// A slave that lacks more than this is sent bytes that may have to come from the disk: they're read on a thread that can wait.
const COLD: i64 = 64 << 20;
/// Bytes of a frame, at least, for a slave of ours that lacks more than [`COLD`]: each frame costs a way to that thread and back.
const CATCH_UP: usize = 256 << 10;

/// How often our slave, as long as it's behind, is told how long the log is.
const TELL: Duration = Duration::from_millis(100);

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
    /// The slave understands notes.
    notes: bool,
}

async fn read_word(reader: &mut (impl AsyncRead + Unpin), patience: Duration) -> Result<i64, LinkError> {
    let mut report = [0; wire::REPORT_LEN];
    match timeout(patience, reader.read_exact(&mut report)).await {
        Err(_) => Err(LinkError::Silent(patience)),
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(LinkError::Closed),
        Ok(Err(error)) => Err(error.into()),
        Ok(Ok(_)) => Ok(i64::from_be_bytes(report)),
    }
}

async fn read_report(reader: &mut (impl AsyncRead + Unpin), patience: Duration) -> Result<i64, LinkError> {
    match read_word(reader, patience).await? {
        end if end < 0 => Err(LinkError::Offset(end)),
        end => Ok(end),
    }
}

/// The first report, and the hello that our slave says in front of it.
async fn read_first(
    reader: &mut (impl AsyncRead + Unpin),
    patience: Duration,
) -> Result<(Option<Hello>, i64), LinkError> {
    match read_word(reader, patience).await? {
        wire::HELLO => {
            let mut words = [0; wire::HELLO_WORDS - 1];
            for word in &mut words {
                *word = read_word(reader, patience).await?;
            }
            let hello = Hello::decode(&words).ok_or(LinkError::Offset(wire::HELLO))?;
            Ok((Some(hello), read_report(reader, patience).await?))
        }
        end if end < 0 => Err(LinkError::Offset(end)),
        end => Ok((None, end)),
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
        let stranger = |error| ControlFlow::Break((false, error));
        let (hello, first) = match read_first(&mut reader, self.options.housekeeping).await {
            Ok(first) => first,
            Err(error) => return stranger(error),
        };
        if let Some(hello) = hello
            && let Err(error) = self.welcome(&mut writer, hello, first).await
        {
            return stranger(error);
        }
        let start = match start_offset(core, first) {
            Ok(start) => start,
            Err(error) => return stranger(error),
        };
        let id = hello.map(|h| h.broker_id).filter(|id| *id != 0);
        tracing::info!(peer, id, at = first, start, "a slave is connected");
        let member = Replicas::join(core, peer.to_owned(), id, first);
        // It may be all that a waiting send needs.
        member.reached(first);
        let link = Link {
            core: core.clone(),
            batch: self.options.batch.clamp(1, wire::MAX_BODY),
            heartbeat: self.options.heartbeat,
            next: AtomicI64::new(start),
            notes: hello.is_some(),
        };
        let error = tokio::select! {
            error = link.hear(&mut reader, &member, self.options.housekeeping) => error,
            error = link.send(&mut writer) => error,
        };
        ControlFlow::Break((true, error))
    }

    /// Tells our slave whether it may follow.
    async fn welcome(
        &self,
        writer: &mut (impl AsyncWrite + Unpin),
        hello: Hello,
        end: i64,
    ) -> Result<(), LinkError> {
        let (core, group) = (self.store.core().clone(), self.options.group_sum());
        // The slave's last bytes may have to come from the disk.
        let note = tokio::task::spawn_blocking(move || judge(&core, group, &hello, end))
            .await
            .map_err(|e| LinkError::Disk(format!("reading the log failed: {e}")))?;
        let mut bytes = Vec::new();
        note.put(&mut bytes);
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        match note.verdict {
            Verdict::Go => Ok(()),
            Verdict::TooOld => Err(LinkError::TooOld {
                wanted: end,
                first: note.first,
            }),
            Verdict::Beyond => Err(LinkError::Beyond {
                reported: end,
                known: note.end,
            }),
            Verdict::Parted => Err(LinkError::Parted { end }),
            Verdict::OtherGroup => Err(LinkError::OtherGroup),
            Verdict::FileSize => Err(LinkError::FileSize {
                here: self.store.config().commit_log_file_size,
            }),
            Verdict::Unknown(n) => Err(LinkError::Verdict(n)),
        }
    }
}

/// Whether a slave whose log ends at `end` may follow.
fn judge(core: &Core, group: u32, hello: &Hello, end: i64) -> Note {
    let (first, max) = (core.log.min(), core.log.max());
    let verdict = if hello.group != 0 && group != 0 && hello.group != group {
        Verdict::OtherGroup
    } else if hello.file_size != core.config.commit_log_file_size {
        Verdict::FileSize
    } else if end == 0 {
        Verdict::Go
    } else if end > max {
        Verdict::Beyond
    } else if end <= first {
        // Nothing is left here that its last bytes could be compared with.
        Verdict::TooOld
    } else {
        let from = (end as u64).saturating_sub(u64::from(hello.tail_len));
        match tail(core, from, end as u64) {
            Some(sum) if sum == hello.tail_crc && hello.tail_len > 0 => Verdict::Go,
            // The cleaner was faster.
            None if core.log.min() >= end => Verdict::TooOld,
            _ => Verdict::Parted,
        }
    };
    Note {
        verdict,
        first,
        end: max,
    }
}

/// Checksum of the log from `from` to `to`, which are in one file.
fn tail(core: &Core, from: u64, to: u64) -> Option<u32> {
    let (segment, range) = core.log.rest_of_file(from)?;
    let bytes = segment.slice(range.start..to.min(range.end))?;
    (bytes.len() as u64 == to - from).then(|| crc31(bytes) as u32)
}

/// What our slave says before its first report, `end`.
pub(super) fn hello(core: &Core, options: &Options, end: i64) -> Hello {
    let size = core.config.commit_log_file_size;
    let to = end.max(0) as u64;
    let base = to.saturating_sub(1) / size * size;
    let from = base.max(to.saturating_sub(wire::TAIL));
    let sum = if to == 0 { None } else { tail(core, from, to) };
    Hello {
        file_size: size,
        tail_len: if sum.is_some() { (to - from) as u32 } else { 0 },
        tail_crc: sum.unwrap_or(0),
        broker_id: options.broker_id,
        group: options.group_sum(),
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
        let mut noted = Instant::now();
        loop {
            let appended = self.core.replicas.appended.notified();
            tokio::pin!(appended);
            // From here on no append is missed.
            appended.as_mut().enable();
            let next = self.next.load(Ordering::Acquire);
            let behind = self.core.log.max() - next;
            frame.clear();
            if behind > 0 {
                if self.notes && behind > self.batch as i64 && noted.elapsed() >= TELL {
                    noted = Instant::now();
                    Note {
                        verdict: Verdict::Go,
                        first: self.core.log.min(),
                        end: next + behind,
                    }
                    .put(&mut frame);
                }
                let before = frame.len() + wire::HEAD_LEN;
                frame = match self.fill(frame, next, behind).await {
                    Ok(frame) => frame,
                    Err(error) => return error,
                };
                let sent = (frame.len() - before) as i64;
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

    async fn fill(&self, mut frame: Vec<u8>, next: i64, behind: i64) -> Result<Vec<u8>, LinkError> {
        if behind <= COLD {
            return gather(&self.core, next, self.batch, &mut frame).map(|()| frame);
        }
        let batch = if self.notes {
            self.batch.max(CATCH_UP)
        } else {
            self.batch
        };
        let core = self.core.clone();
        tokio::task::spawn_blocking(move || gather(&core, next, batch, &mut frame).map(|()| frame))
            .await
            .map_err(|e| LinkError::Disk(format!("reading the log failed: {e}")))?
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
