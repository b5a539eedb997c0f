//! The slave's side: connects to its master, shows where and how its log ends, and appends what comes.
//!
//! A report means "in the page cache here". It's sent when all frames that have come are appended, so that a burst is
//! acknowledged once. A master that is silent is left after the housekeeping time since the last read, and looked for again.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    LinkError, Options, copy,
    figures::{FollowState, Following},
    master,
    wire::{self, Frame, Incoming, Note, Verdict},
};
use crate::{Store, core::Core};

const READ: usize = 256 << 10;
/// A slave that has all that came, and whose last message is no older, has caught up with a busy Java master.
const RECENT: i64 = 3_000;

/// Follows a master.
#[derive(Debug)]
pub struct Slave {
    store: Store,
    options: Options,
    following: Following,
}

impl Slave {
    /// A slave that appends to `store`, which must be started with the role of one.
    pub fn new(store: Store, options: Options) -> Self {
        let following = Following::default();
        following.set_copying(copy::is_copying(&store.config().root));
        Self {
            store,
            options,
            following,
        }
    }

    /// How it goes.
    pub fn following(&self) -> Following {
        self.following.clone()
    }

    /// Follows the master at `master`, `host:port`, whenever that is known, until `stop`, or until the log has turned out to be
    /// too old to be continued ([`Following::wants_reopening`]).
    pub async fn run(self, mut master: watch::Receiver<Option<String>>, stop: CancellationToken) {
        let mut failures = 0u32;
        loop {
            let known = tokio::select! {
                () = stop.cancelled() => return,
                known = master.wait_for(Option::is_some) => match known {
                    Ok(known) => known.clone(),
                    Err(_) => return,
                },
            };
            let Some(address) = known else { continue };
            master.mark_unchanged();
            let (was_connected, error) = tokio::select! {
                () = stop.cancelled() => return,
                error = self.follow_at(&address) => error,
                changed = master.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tracing::info!(master = address, "the master's address has changed");
                    continue;
                }
            };
            failures = if was_connected {
                1
            } else {
                failures.saturating_add(1)
            };
            // Once each minute or so while it lasts.
            if failures % 12 == 1 {
                tracing::warn!(master = address, %error, "not following the master; trying again until it works");
            } else {
                tracing::debug!(master = address, %error, "still not following the master");
            }
            if matches!(error, LinkError::NeedsCopy { .. }) {
                match self.start_anew().await {
                    Ok(()) => {
                        self.following.want_reopening();
                        return;
                    }
                    Err(error) => tracing::error!(%error, "cannot start anew; trying again"),
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(self.options.retry) => {}
            }
        }
    }

    /// Has the next opening set the log aside.
    async fn start_anew(&self) -> Result<(), LinkError> {
        let root = self.store.config().root.clone();
        blocking(move || copy::want(&root).map_err(|e| mark_error(&e))).await
    }

    async fn follow_at(&self, address: &str) -> (bool, LinkError) {
        self.following.connecting(Some(address));
        let error = match self.connect(address).await {
            Ok(stream) => {
                tracing::info!(master = address, "connected to the master");
                let Err(error) = self.follow_until(stream).await;
                error
            }
            Err(error) => error,
        };
        (self.ended(&error), error)
    }

    async fn connect(&self, address: &str) -> Result<TcpStream, LinkError> {
        let stream = match timeout(self.options.connect, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(LinkError::Silent(self.options.connect)),
        };
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Notes why the link ended; returns whether there was one.
    fn ended(&self, error: &LinkError) -> bool {
        let state = match error {
            LinkError::NeedsCopy { .. } => FollowState::StartingAnew,
            LinkError::Diverged(_)
            | LinkError::OtherGroup
            | LinkError::FileSize { .. }
            | LinkError::Verdict(_)
            | LinkError::Disk(_)
            | LinkError::Refused(_) => FollowState::Refused,
            _ => FollowState::Connecting,
        };
        self.following.ended(state, error.to_string())
    }

    /// Follows the master at the other end of `stream` until the link ends.
    ///
    /// # Errors
    /// Always: why it ended.
    pub async fn follow<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> LinkError {
        self.following.connecting(None);
        let Err(error) = self.follow_until(stream).await;
        self.ended(&error);
        error
    }

    async fn follow_until<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Result<std::convert::Infallible, LinkError> {
        let core = self.store.core();
        let (mut reader, mut writer) = split(stream);
        let mut buffer = BytesMut::with_capacity(READ);
        let mut end = core.log.max();
        let mut reported = end;
        self.introduce(&mut writer, end).await?;
        let (mut last_read, mut last_write) = (Instant::now(), Instant::now());
        // Our master says how long its log was when the link was made.
        let mut goal = None;
        loop {
            while let Some(incoming) = wire::take(&mut buffer)? {
                match incoming {
                    Incoming::Note(note) => {
                        self.take_note(note, end, goal.is_none())?;
                        goal = goal.or(Some(note.end));
                    }
                    Incoming::Log(frame) => {
                        let heartbeat = frame.body.is_empty();
                        let known = frame.offset + frame.body.len() as i64;
                        end = self.take_frame(core, frame).await?;
                        self.following.heard(known);
                        if heartbeat {
                            self.following.known_end(known);
                            self.caught_up(core).await?;
                        }
                    }
                }
                if goal.is_some_and(|goal| end >= goal) {
                    self.caught_up(core).await?;
                }
            }
            if end > reported {
                send_report(&mut writer, end).await?;
                (reported, last_write) = (end, Instant::now());
                let recent = || core.log.last_time() >= core.config.clock.now() - RECENT;
                if goal.is_none() && buffer.is_empty() && recent() {
                    self.caught_up(core).await?;
                }
            }
            buffer.reserve(READ);
            tokio::select! {
                read = reader.read_buf(&mut buffer) => {
                    if read? == 0 {
                        return Err(LinkError::Closed);
                    }
                    last_read = Instant::now();
                }
                () = sleep_until(last_write + self.options.heartbeat) => {
                    send_report(&mut writer, end).await?;
                    last_write = Instant::now();
                }
                () = sleep_until(last_read + self.options.housekeeping) => {
                    return Err(LinkError::Silent(self.options.housekeeping));
                }
            }
        }
    }

    /// Says hello and where the log ends, in one write: a Java master then sees the latter only.
    async fn introduce(&self, writer: &mut (impl AsyncWrite + Unpin), end: i64) -> Result<(), LinkError> {
        let (core, options) = (self.store.core().clone(), self.options.clone());
        let hello = blocking(move || Ok(master::hello(&core, &options, end))).await?;
        let mut bytes = Vec::with_capacity(8 * (wire::HELLO_WORDS + 1));
        for word in hello.encode() {
            bytes.extend_from_slice(&word.to_be_bytes());
        }
        bytes.extend_from_slice(&wire::report(end));
        writer.write_all(&bytes).await?;
        writer.flush().await?;
        Ok(())
    }

    fn take_note(&self, note: Note, end: i64, first: bool) -> Result<(), LinkError> {
        match note.verdict {
            Verdict::Go => {
                self.following.heard(note.end);
                if first {
                    self.following.known_end(note.end);
                }
                Ok(())
            }
            Verdict::TooOld => Err(LinkError::NeedsCopy {
                end,
                first: note.first,
            }),
            Verdict::Parted => Err(LinkError::Diverged(format!(
                "the last bytes of this log, before {end}, are not those of the master's log: the two have parted ways"
            ))),
            Verdict::Beyond => Err(LinkError::Diverged(format!(
                "this log ends at {end}, beyond the master's, which ends at {}: the two have parted ways",
                note.end
            ))),
            Verdict::OtherGroup => Err(LinkError::OtherGroup),
            Verdict::FileSize => Err(LinkError::FileSize {
                here: self.store.config().commit_log_file_size,
            }),
            Verdict::Unknown(n) => Err(LinkError::Verdict(n)),
        }
    }

    async fn caught_up(&self, core: &Arc<Core>) -> Result<(), LinkError> {
        if self.following.copying() {
            let core = core.clone();
            // Whole is what survives a loss of power.
            blocking(move || {
                if core.flush_log() {
                    copy::finish(&core.config).map_err(|e| mark_error(&e))
                } else {
                    Err(crate::WriteRefusal::FlushFailed.into())
                }
            })
            .await?;
            self.following.set_copying(false);
            tracing::info!("the copy of the master's log is whole");
        }
        self.following.caught_up();
        Ok(())
    }

    /// Appends a frame; returns the log's end.
    async fn take_frame(&self, core: &Arc<Core>, frame: Frame) -> Result<i64, LinkError> {
        let end = core.log.max();
        if end != 0 && end != frame.offset {
            return Err(LinkError::Diverged(format!(
                "the master goes on at log offset {}, this log ends at {end}: the two have parted ways",
                frame.offset
            )));
        }
        if frame.body.is_empty() {
            return Ok(end);
        }
        let begins = end == 0 && !self.following.copying();
        // A new file may have to be allocated first.
        if begins || frame.offset % core.config.commit_log_file_size as i64 == 0 {
            let core = core.clone();
            let appended = blocking(move || {
                if begins {
                    copy::begin(&core.config.root).map_err(|e| mark_error(&e))?;
                }
                core.append_raw(frame.offset, &frame.body)
            })
            .await;
            if begins {
                self.following
                    .set_copying(copy::is_copying(&self.store.config().root));
            }
            return appended;
        }
        core.append_raw(frame.offset, &frame.body)
    }
}

fn mark_error(error: &std::io::Error) -> LinkError {
    LinkError::Disk(format!(
        "cannot write the mark of a copy, {}: {error}",
        copy::MARK
    ))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LinkError> + Send + 'static,
) -> Result<T, LinkError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|e| LinkError::Disk(format!("a worker thread failed: {e}")))?
}

async fn send_report(writer: &mut (impl AsyncWrite + Unpin), end: i64) -> Result<(), LinkError> {
    writer.write_all(&wire::report(end)).await?;
    writer.flush().await?;
    Ok(())
}
