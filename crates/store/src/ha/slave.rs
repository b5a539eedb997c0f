//! The slave's side: connects to its master, says where its log ends, and appends what comes.
//!
//! A report means "in the page cache here". It's sent when all frames that have come are appended, so that a burst is
//! acknowledged once. A master that is silent is left after the housekeeping time since the last read, and looked for again.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split},
    net::TcpStream,
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    LinkError, Options,
    wire::{self, Frame},
};
use crate::{Store, core::Core};

const READ: usize = 256 << 10;
/// A slave that has all that came, and whose last message is no older, has caught up with a busy master.
const RECENT: i64 = 3_000;

/// Follows a master.
#[derive(Debug)]
pub struct Slave {
    store: Store,
    options: Options,
    following: Following,
}

/// How the following goes. Clones share one state.
#[derive(Debug, Clone, Default)]
pub struct Following(Arc<State>);

#[derive(Debug, Default)]
struct State {
    connected: AtomicBool,
    caught_up: AtomicBool,
}

impl Following {
    /// Whether a master is connected and has sent something.
    pub fn connected(&self) -> bool {
        self.0.connected.load(Ordering::Acquire)
    }

    /// Whether this slave has had all that its master had, at least once since the start.
    pub fn caught_up_once(&self) -> bool {
        self.0.caught_up.load(Ordering::Acquire)
    }
}

impl Slave {
    /// A slave that appends to `store`, which must be started with the role of one.
    pub fn new(store: Store, options: Options) -> Self {
        Self {
            store,
            options,
            following: Following::default(),
        }
    }

    /// How it goes.
    pub fn following(&self) -> Following {
        self.following.clone()
    }

    /// Follows the master at `master`, `host:port`, whenever that is known, until `stop`.
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
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(self.options.retry) => {}
            }
        }
    }

    async fn follow_at(&self, address: &str) -> (bool, LinkError) {
        let stream = match timeout(self.options.connect, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return (false, error.into()),
            Err(_) => return (false, LinkError::Silent(self.options.connect)),
        };
        if let Err(error) = stream.set_nodelay(true) {
            return (false, error.into());
        }
        tracing::info!(master = address, "connected to the master");
        let error = self.follow(stream).await;
        (self.following.0.connected.swap(false, Ordering::AcqRel), error)
    }

    /// Follows the master at the other end of `stream` until the link ends.
    ///
    /// # Errors
    /// Always: why it ended.
    pub async fn follow<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> LinkError {
        let Err(error) = self.follow_until(stream).await;
        self.following.0.connected.store(false, Ordering::Release);
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
        send_report(&mut writer, end).await?;
        let (mut last_read, mut last_write) = (Instant::now(), Instant::now());
        loop {
            while let Some(frame) = wire::take(&mut buffer)? {
                let heartbeat = frame.body.is_empty();
                end = take_frame(core, frame).await?;
                self.following.0.connected.store(true, Ordering::Release);
                if heartbeat {
                    self.caught_up();
                }
            }
            if end > reported {
                send_report(&mut writer, end).await?;
                (reported, last_write) = (end, Instant::now());
                if buffer.is_empty() && core.log.last_time() >= core.config.clock.now() - RECENT {
                    self.caught_up();
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

    fn caught_up(&self) {
        if !self.following.0.caught_up.swap(true, Ordering::AcqRel) {
            tracing::info!("caught up with the master");
        }
    }
}

async fn send_report(writer: &mut (impl AsyncWrite + Unpin), end: i64) -> Result<(), LinkError> {
    writer.write_all(&wire::report(end)).await?;
    writer.flush().await?;
    Ok(())
}

/// Appends a frame; returns the log's end.
async fn take_frame(core: &Arc<Core>, frame: Frame) -> Result<i64, LinkError> {
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
    // A new file may have to be allocated first.
    if frame.offset % core.config.commit_log_file_size as i64 == 0 {
        let core = core.clone();
        return tokio::task::spawn_blocking(move || core.append_raw(frame.offset, &frame.body))
            .await
            .map_err(|e| LinkError::Disk(format!("appending failed: {e}")))?;
    }
    core.append_raw(frame.offset, &frame.body)
}
