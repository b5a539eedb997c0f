//! Mapped files: the only unsafe code of the store.
//!
//! A [`Map`] has a frontier, `readable`. Bytes below it never change again and may be lent out; bytes from it on
//! belong to the one [`MapWriter`], which moves the frontier up once they are complete. So a shared slice and the
//! writer never meet, and a slice may outlive the file's name: it keeps the mapping alive.
//!
//! Files under a mapping are allocated in full before they are mapped and never shrink, and the store's lock keeps
//! other processes out, so touching a page can't raise SIGBUS for want of space.
#![expect(
    unsafe_code,
    reason = "slices of mapped files; every block says why it is sound"
)]

use std::{
    fmt,
    fs::File,
    io,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};

/// A mapped file, readable below its frontier.
pub(crate) struct Map {
    raw: MmapRaw,
    readable: AtomicUsize,
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("len", &self.raw.len())
            .field("readable", &self.readable())
            .finish()
    }
}

/// The right to write a map from its frontier on. There is one a map.
#[derive(Debug)]
pub(crate) struct MapWriter(Arc<Map>);

impl Map {
    /// Maps `len` bytes of `file`; those below `readable` are there already.
    pub(crate) fn open(file: &File, len: usize, readable: usize) -> io::Result<(Arc<Self>, MapWriter)> {
        if readable > len || file.metadata()?.len() < len as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shorter than its mapping",
            ));
        }
        let raw = MmapOptions::new().len(len).map_raw(file)?;
        let map = Arc::new(Self {
            raw,
            readable: AtomicUsize::new(readable),
        });
        Ok((map.clone(), MapWriter(map)))
    }

    /// Bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        self.readable.load(Ordering::Acquire)
    }

    /// The bytes of `range`, if all are readable.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<&[u8]> {
        if range.start > range.end || range.end > self.readable() {
            return None;
        }
        // SAFETY: the range is inside the mapping (readable ≤ len) and below the frontier, where nothing writes any
        // more: the writer asserts that it stays at or above it, and the frontier only goes up. The Acquire load above
        // pairs with the Release store in `publish`, so the bytes are complete. The mapping lives as long as `self`.
        Some(unsafe {
            std::slice::from_raw_parts(self.raw.as_ptr().add(range.start), range.end - range.start)
        })
    }

    /// Like [`Map::slice`], keeping the mapping alive.
    pub(crate) fn bytes(self: &Arc<Self>, range: Range<usize>) -> Option<Bytes> {
        struct Lent(Arc<Map>, Range<usize>);
        impl AsRef<[u8]> for Lent {
            fn as_ref(&self) -> &[u8] {
                self.0.slice(self.1.clone()).unwrap_or(&[])
            }
        }
        self.slice(range.clone())?;
        Some(Bytes::from_owner(Lent(self.clone(), range)))
    }

    /// Has the kernel make the pages of `range` present and writable, so that the appending thread meets no faults.
    /// Only a hint: errors don't matter.
    pub(crate) fn populate(&self, range: Range<usize>) {
        let start = range.start & !4095;
        let end = range.end.min(self.raw.len());
        if start < end
            && let Err(error) = self.raw.advise_range(Advice::PopulateWrite, start, end - start)
        {
            tracing::debug!(%error, "pages not populated ahead");
        }
    }
}

impl MapWriter {
    /// Copies `bytes` to `at`, which must be at or above the frontier. Readers don't see it before [`MapWriter::publish`].
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        let map = &self.0;
        let end = at.checked_add(bytes.len()).filter(|end| *end <= map.raw.len());
        if at < map.readable.load(Ordering::Relaxed) || end.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a write outside the open part of a log file",
            ));
        }
        // SAFETY: the destination is inside the mapping and at or above the frontier, so no slice covers it; `&mut self`
        // on the only writer of this map excludes another write; source and destination can't overlap for the same reason.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.raw.as_mut_ptr().add(at), bytes.len());
        }
        Ok(())
    }

    /// Makes everything below `end` readable, for good.
    pub(crate) fn publish(&mut self, end: usize) {
        let end = end.min(self.0.raw.len());
        self.0.readable.fetch_max(end, Ordering::Release);
    }
}

/// A mapped file with one owner, who reads and writes all of it.
#[derive(Debug)]
pub(crate) struct OwnedMap(MmapMut);

impl OwnedMap {
    /// Maps `len` bytes of `file`, whose blocks the caller has allocated where it means to write.
    pub(crate) fn open(file: &File, len: usize) -> io::Result<Self> {
        if file.metadata()?.len() < len as u64 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the file is shorter than its mapping",
            ));
        }
        // SAFETY: the store's lock keeps other processes from writing the file, it never shrinks, and this process maps
        // it once; others in it read the file through system calls only.
        let map = unsafe { MmapOptions::new().len(len).map_mut(file)? };
        Ok(Self(map))
    }

    /// All of it.
    pub(crate) fn get(&self) -> &[u8] {
        &self.0
    }

    /// All of it, to write.
    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frontier_parts_readers_from_the_writer() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let (map, mut writer) = Map::open(&file, 8192, 0).unwrap();
        assert!(map.slice(0..1).is_none());
        writer.write(0, b"hello").unwrap();
        assert!(map.slice(0..5).is_none());
        writer.publish(5);
        assert_eq!(map.slice(0..5).unwrap(), b"hello");
        assert!(writer.write(4, b"x").is_err(), "what was published stays");
        assert!(writer.write(8190, b"xyz").is_err(), "nothing beyond the end");
        let lent = map.bytes(1..4).unwrap();
        drop((map, writer));
        assert_eq!(&lent[..], b"ell");
    }

    #[test]
    fn a_map_is_never_longer_than_its_file() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        assert!(Map::open(&file, 101, 0).is_err());
        assert!(OwnedMap::open(&file, 101).is_err());
    }
}
