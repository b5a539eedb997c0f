//! Compression of message bodies: zlib (the default), LZ4 frames, zstd.
//!
//! Inflation is always capped: a few bytes from a peer can claim to be gigabytes.

use std::io::{self, Read, Write as _};

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use thiserror::Error;

/// A way to compress. A message's system flag names it; see [`crate::sysflag::compression`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// A zlib stream, all that releases before 4.9.4 know.
    #[default]
    Zlib,
    /// An LZ4 frame.
    Lz4,
    /// A zstd frame.
    Zstd,
}

/// The level at which RocketMQ's clients compress.
pub const DEFAULT_LEVEL: i32 = 5;

/// Why bytes cannot be inflated.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum InflateError {
    /// The result would be longer than allowed.
    #[error("the inflated data is longer than the allowed {cap} bytes")]
    TooLong {
        /// The limit, in bytes.
        cap: usize,
    },
    /// The stream is damaged, or compressed in another way.
    #[error("the data is no intact {kind:?} stream: {source}")]
    Damaged {
        /// How it should have been compressed.
        kind: Kind,
        /// What the library found.
        source: io::Error,
    },
}

/// Compresses at RocketMQ's default level.
///
/// # Errors
/// Only if a compression library fails, which in practice means that memory ran out.
pub fn compress(kind: Kind, data: &[u8]) -> io::Result<Vec<u8>> {
    match kind {
        Kind::Zlib => {
            let mut zlib = ZlibEncoder::new(
                Vec::with_capacity(data.len() / 2),
                Compression::new(DEFAULT_LEVEL as u32),
            );
            zlib.write_all(data)?;
            zlib.finish()
        }
        Kind::Lz4 => {
            let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::with_capacity(data.len() / 2));
            lz4.write_all(data)?;
            lz4.finish().map_err(io::Error::other)
        }
        Kind::Zstd => zstd::stream::encode_all(data, DEFAULT_LEVEL),
    }
}

/// Inflates to at most `cap` bytes.
pub fn inflate(kind: Kind, data: &[u8], cap: usize) -> Result<Vec<u8>, InflateError> {
    match kind {
        Kind::Zlib => read_capped(kind, ZlibDecoder::new(data), cap),
        Kind::Lz4 => read_capped(kind, lz4_flex::frame::FrameDecoder::new(data), cap),
        Kind::Zstd => {
            let damaged = |source| InflateError::Damaged { kind, source };
            let mut zstd = zstd::stream::read::Decoder::with_buffer(data).map_err(damaged)?;
            // A frame may ask for a window of gigabytes; 8 MiB is more than any message needs.
            zstd.window_log_max(23).map_err(damaged)?;
            read_capped(kind, zstd, cap)
        }
    }
}

fn read_capped(kind: Kind, stream: impl Read, cap: usize) -> Result<Vec<u8>, InflateError> {
    let mut out = Vec::new();
    // One byte more than allowed tells a full result from one that was cut.
    let read = stream.take(cap as u64 + 1).read_to_end(&mut out);
    read.map_err(|source| InflateError::Damaged { kind, source })?;
    if out.len() > cap {
        return Err(InflateError::TooLong { cap });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 3] = [Kind::Zlib, Kind::Lz4, Kind::Zstd];

    #[test]
    fn round_trips() {
        for kind in KINDS {
            for data in [Vec::new(), b"x".to_vec(), b"RocketMQ ".repeat(10_000)] {
                let packed = compress(kind, &data).unwrap();
                assert_eq!(inflate(kind, &packed, data.len()).unwrap(), data, "{kind:?}");
            }
        }
    }

    #[test]
    fn zlib_header_is_that_of_java() {
        assert_eq!(compress(Kind::Zlib, b"abc").unwrap()[..2], [0x78, 0x5E]);
    }

    #[test]
    fn inflation_is_capped() {
        for kind in KINDS {
            let packed = compress(kind, &vec![0; 1 << 20]).unwrap();
            assert!(
                matches!(
                    inflate(kind, &packed, (1 << 20) - 1),
                    Err(InflateError::TooLong { .. })
                ),
                "{kind:?}"
            );
        }
    }

    #[test]
    fn damage_is_an_error() {
        for kind in KINDS {
            assert!(
                matches!(
                    inflate(kind, b"no stream at all", 100),
                    Err(InflateError::Damaged { .. })
                ),
                "{kind:?}"
            );
            let packed = compress(kind, &b"RocketMQ ".repeat(50)).unwrap();
            for cut in 1..packed.len() {
                // Never a panic, never more than the cap.
                if let Ok(out) = inflate(kind, &packed[..cut], 450) {
                    assert!(out.len() <= 450);
                }
            }
        }
    }
}
