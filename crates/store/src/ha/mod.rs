//! Classic replication: a master's log, byte by byte, to its slaves.
//!
//! What holds: a slave's log is a prefix of its master's; what a slave has reported is in its page cache, not necessarily
//! on its disk; only slaves whose connection lives count when a send waits.
//!
//! Between our brokers the slave shows its log's last bytes before it gets any more ([`wire`]). One whose log has parted from
//! its master's is refused, not repaired: what only it has may be wanted. One whose log ends before the master's first file
//! starts anew by itself ([`copy`]); what it had is deleted when the copy is whole.

pub(crate) mod ack;
pub(crate) mod copy;
mod figures;
mod master;
mod slave;
pub mod wire;

use std::{io, time::Duration};

use ferromq_protocol::crc::crc31;

pub use ack::Replica;
pub use figures::{FollowFigures, FollowState, Following};
pub use master::Master;
pub use slave::Slave;

use crate::{WriteRefusal, commit_log::RawError};

/// How the two sides keep their link.
#[derive(Debug, Clone)]
pub struct Options {
    /// `haSendHeartbeatInterval`: after this long without anything to write, a heartbeat goes out. Default 5 s.
    pub heartbeat: Duration,
    /// `haHousekeepingInterval`: a peer that was silent for this long is left. Default 20 s.
    pub housekeeping: Duration,
    /// `haTransferBatchSize`: most bytes of the log in a frame. Default 32 768, at most [`wire::MAX_BODY`].
    pub batch: usize,
    /// Most connections that a master has at a time; further ones are closed. Default 256.
    pub connections: usize,
    /// How long a slave tries to connect. Default 5 s.
    pub connect: Duration,
    /// Pause of a slave before it connects again. Default 5 s.
    pub retry: Duration,
    /// Name of the broker group; a master and a slave that both tell one and differ stay apart. Empty: not told.
    pub group: String,
    /// Broker id that a slave tells its master. Default 0, which is none.
    pub broker_id: u32,
}

impl Options {
    /// Checksum of the group's name; 0 if there's none.
    fn group_sum(&self) -> u32 {
        match self.group.as_bytes() {
            [] => 0,
            // 0 means that it isn't told.
            name => (crc31(name) as u32).max(1),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(5),
            housekeeping: Duration::from_secs(20),
            batch: 32 << 10,
            connections: 256,
            connect: Duration::from_secs(5),
            retry: Duration::from_secs(5),
            group: String::new(),
            broker_id: 0,
        }
    }
}

/// Why a link between master and slave ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    /// The other side ended it.
    #[error("the other side closed the connection")]
    Closed,
    /// The other side said nothing.
    #[error("the other side was silent for {} ms", .0.as_millis())]
    Silent(Duration),
    /// An offset that can't be one.
    #[error("{0} is no log offset; is the other side a replica at all?")]
    Offset(i64),
    /// A slave that claims to have what it can't have.
    #[error(
        "the slave says it has the log up to {reported}, beyond {known}: if it is a replica, its log has parted from this one; delete its store and start it again"
    )]
    Beyond {
        /// What it reported.
        reported: i64,
        /// What it can have at most.
        known: i64,
    },
    /// A slave so old that the log no longer has what it needs.
    #[error(
        "the slave needs the log from {wanted}, and the first file here starts at {first}: delete the slave's store and start it again"
    )]
    TooOld {
        /// The first byte it lacks.
        wanted: i64,
        /// The first byte there is.
        first: i64,
    },
    /// A slave whose last bytes are not this log's.
    #[error(
        "the last bytes of the slave's log, before {end}, are not those of this log: the two have parted ways; delete the slave's store and start it again, unless it has what is wanted"
    )]
    Parted {
        /// The end of the slave's log.
        end: i64,
    },
    /// Master and slave are of two groups.
    #[error(
        "master and slave are of different broker groups: the slave's brokerClusterName and brokerName must be the master's; look at haMasterAddress"
    )]
    OtherGroup,
    /// Log files of two lengths.
    #[error(
        "master and slave have log files of different lengths: mappedFileSizeCommitLog must be the same at both, here it is {here}"
    )]
    FileSize {
        /// The length here, bytes.
        here: u64,
    },
    /// The master can't continue this log, but has a newer one to give.
    #[error(
        "this log ends at {end}, and the master's begins at {first}: it is set aside and the master's copied anew"
    )]
    NeedsCopy {
        /// The end of the log here.
        end: i64,
        /// Where the master's begins.
        first: i64,
    },
    /// A master that is newer than this slave.
    #[error("the master gave answer {0}, which this version does not know; bring both to the same version")]
    Verdict(i64),
    /// A frame of an impossible size.
    #[error("a frame of {0} bytes; at most {max} are possible", max = wire::MAX_BODY)]
    FrameSize(i32),
    /// The master's bytes don't continue this log.
    #[error("{0}; if this broker is to follow that master, delete its store and start it again")]
    Diverged(String),
    /// The store takes nothing.
    #[error(transparent)]
    Refused(#[from] WriteRefusal),
    /// The bytes couldn't be written.
    #[error("{0}; look at the disk of the store")]
    Disk(String),
}

impl From<RawError> for LinkError {
    fn from(error: RawError) -> Self {
        match error {
            RawError::NoFile(_) | RawError::Io(_) => Self::Disk(error.to_string()),
            RawError::Elsewhere { .. } | RawError::FileSize { .. } | RawError::NoRecord(_) => {
                Self::Diverged(error.to_string())
            }
        }
    }
}
