//! Mapped files: with `bus_error` the only unsafe code of the store.
//!
//! A [`Map`] has a frontier, `readable`. Bytes below it never change again and may be lent out; bytes from it on
//! belong to the one [`MapWriter`], which moves the frontier up once they are complete. So a shared slice and the
//! writer never meet, and a slice may outlive the file's name: it keeps the mapping alive.
//!
//! Files under a mapping are allocated in full before they are mapped and never shrink, and the store's lock keeps
//! other processes out, so touching a page doesn't raise SIGBUS for want of space. Where a page can't be read all the same,
//! because the disk has lost it or somebody has cut the file, it reads as zeros and its mapping says that it's damaged:
//! [`Map::slice`] looks at that, [`Map::peek`] leaves it to the caller.
#![expect(
    unsafe_code,
    reason = "slices of mapped files; every block says why it is sound"
)]

use std::{
    fmt,
    fs::File,
    io,
    ops::Range,
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};

use super::bus_error::Watched;

/// No page is smaller.
const PAGE: usize = 4096;

/// What a page that can't be read is told as.
pub(crate) fn unreadable() -> io::Error {
    io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error())
}

/// A mapped file, readable below its frontier.
pub(crate) struct Map {
    // Goes before the mapping does.
    watched: Watched,
    raw: MmapRaw,
    readable: AtomicUsize,
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Map")
            .field("len", &self.raw.len())
            .field("readable", &self.readable())
            .finish_non_exhaustive()
    }
}

/// The right to write a map from its frontier on. There is one a map.
///
/// There are two ways. [`MapWriter::copy`] costs no system call, but a sync has to write-protect every page that it stored to,
/// and the next store to such a page is a fault. [`MapWriter::write`] is a system call, needs no present pages, and leaves
/// syncs nothing to protect: better for large pieces, and where a sync follows each append.
#[derive(Debug)]
pub(crate) struct MapWriter {
    map: Arc<Map>,
    file: File,
}

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
            watched: Watched::new(raw.as_ptr(), len),
            raw,
            readable: AtomicUsize::new(readable),
        });
        let writer = MapWriter {
            map: map.clone(),
            file: file.try_clone()?,
        };
        Ok((map, writer))
    }

    /// Bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        self.readable.load(Ordering::Acquire)
    }

    /// Whether no page of `range` has turned out to be unreadable.
    #[inline]
    pub(crate) fn is_sound(&self, range: &Range<usize>) -> bool {
        !self.watched.damage().touches(range.start, range.end)
    }

    /// `true` once after a page has turned out to be unreadable.
    pub(crate) fn has_new_damage(&self) -> bool {
        self.watched.damage().news()
    }

    /// The bytes of `range`, if all are below the frontier and the disk gives them.
    pub(crate) fn slice(&self, range: Range<usize>) -> Option<&[u8]> {
        let bytes = self.peek(range.clone())?;
        touch(bytes);
        self.is_sound(&range).then_some(bytes)
    }

    /// The bytes of `range`, if all are below the frontier. Those that the disk doesn't give are zeros: ask
    /// [`Map::is_sound`] after looking at them.
    pub(crate) fn peek(&self, range: Range<usize>) -> Option<&[u8]> {
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
                self.0.peek(self.1.clone()).unwrap_or(&[])
            }
        }
        self.slice(range.clone())?;
        Some(Bytes::from_owner(Lent(self.clone(), range)))
    }

    /// Waits until what was written to `range` is on the disk, and nothing else of the file: pages that were made present
    /// ahead of the appends cost nothing here.
    pub(crate) fn sync(&self, range: Range<usize>) -> io::Result<()> {
        self.raw.flush_range(range.start, range.end - range.start)
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

impl Map {
    /// Keeps all pages in memory.
    pub(crate) fn lock(&self) -> io::Result<()> {
        self.raw.lock()
    }

    /// Lets the kernel take pages away again.
    pub(crate) fn unlock(&self) {
        if let Err(error) = self.raw.unlock() {
            tracing::debug!(%error, "pages not unlocked");
        }
    }
}

impl MapWriter {
    fn check(&self, at: usize, len: usize) -> io::Result<()> {
        let end = at.checked_add(len).filter(|end| *end <= self.map.raw.len());
        if at < self.map.readable.load(Ordering::Relaxed) || end.is_none() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a write outside the open part of a log file",
            ));
        }
        Ok(())
    }

    /// Stores `bytes` at `at`, which must be at or above the frontier, through the mapping. Readers don't see it before
    /// [`MapWriter::publish`].
    pub(crate) fn copy(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.check(at, bytes.len())?;
        let map = &self.map;
        // SAFETY: the destination is inside the mapping and at or above the frontier, so no slice covers it; `&mut self`
        // on the only writer of this map excludes another write; source and destination can't overlap for the same reason.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), map.raw.as_mut_ptr().add(at), bytes.len());
        }
        // A page that had to be replaced is no part of the file: what was written there is lost.
        if map.is_sound(&(at..at + bytes.len())) {
            Ok(())
        } else {
            Err(unreadable())
        }
    }

    /// Like [`MapWriter::copy`], through a system call. After an error some of the bytes may be in the file; they are beyond
    /// the frontier, and what is written next goes over them.
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) -> io::Result<()> {
        self.check(at, bytes.len())?;
        self.file.write_all_at(bytes, at as u64)?;
        if self.map.is_sound(&(at..at + bytes.len())) {
            Ok(())
        } else {
            Err(unreadable())
        }
    }

    /// Makes everything below `end` readable, for good.
    pub(crate) fn publish(&mut self, end: usize) {
        let end = end.min(self.map.raw.len());
        self.map.readable.fetch_max(end, Ordering::Release);
    }
}

/// A mapped file with one owner, who reads and writes all of it.
#[derive(Debug)]
pub(crate) struct OwnedMap {
    // Goes before the mapping does.
    watched: Watched,
    map: MmapMut,
}

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
        Ok(Self {
            watched: Watched::new(map.as_ptr(), len),
            map,
        })
    }

    /// All of it.
    pub(crate) fn get(&self) -> &[u8] {
        &self.map
    }

    /// All of it, to write.
    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// Says whether a page has turned out to be unreadable: what was read there was zeros, what was written is lost.
    pub(crate) fn check(&self) -> io::Result<()> {
        if self.watched.damage().touches(0, usize::MAX) {
            return Err(unreadable());
        }
        Ok(())
    }
}

/// Reads a byte of each page, so that a page that can't be read shows now.
fn touch(bytes: &[u8]) {
    let mut sum = 0u8;
    for byte in bytes.iter().step_by(PAGE) {
        sum ^= byte;
    }
    if let Some(last) = bytes.last() {
        sum ^= last;
    }
    std::hint::black_box(sum);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_gone_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(64 << 10).unwrap();
        let (map, mut writer) = Map::open(&file, 64 << 10, 0).unwrap();
        writer.copy(0, &vec![7; 40 << 10]).unwrap();
        writer.publish(40 << 10);
        let lent = map.bytes(0..40 << 10).unwrap();
        file.set_len(16 << 10).unwrap();
        assert!(map.slice(0..16 << 10).unwrap().iter().all(|b| *b == 7));
        assert!(!map.has_new_damage());
        assert!(map.slice(15 << 10..17 << 10).is_none());
        assert!(map.has_new_damage() && !map.has_new_damage());
        assert!(map.slice(16 << 10..17 << 10).is_none(), "it stays damaged");
        assert!(map.slice(0..16 << 10).is_some(), "the rest doesn't");
        assert!(
            lent[16 << 10..].iter().all(|b| *b == 0),
            "a lent slice outlives it"
        );
        assert!(
            writer.copy(50 << 10, b"x").is_err(),
            "what is written to no file is not taken for written"
        );
        assert!(writer.copy(50 << 10, b"x").is_err());
        assert!(writer.write(50 << 10, b"x").is_err(), "by either way");
        let mut owned = OwnedMap::open(&file, 16 << 10).unwrap();
        file.set_len(4 << 10).unwrap();
        owned.get_mut()[100] = 1;
        assert!(owned.check().is_ok());
        owned.get_mut()[10 << 10] = 1;
        assert!(owned.check().is_err());
    }

    #[test]
    fn another_bus_error_still_ends_the_process() {
        use std::os::unix::process::ExitStatusExt;

        if std::env::var_os("STORE_TEST_RAISE").is_some() {
            let file = tempfile::tempfile().unwrap();
            file.set_len(4096).unwrap();
            let _known = Map::open(&file, 4096, 0).unwrap();
            let unknown = MmapOptions::new().len(4096).map_raw(&file).unwrap();
            file.set_len(0).unwrap();
            // SAFETY: the byte is inside the mapping. That its page is gone is what is tested.
            let byte = unsafe { unknown.as_ptr().read_volatile() };
            panic!("read {byte}");
        }
        let me = std::env::current_exe().unwrap();
        let status = std::process::Command::new(me)
            .args([
                "--exact",
                "fs::mmap::tests::another_bus_error_still_ends_the_process",
            ])
            .env("STORE_TEST_RAISE", "1")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        assert_eq!(status.signal(), Some(libc::SIGBUS));
    }

    #[test]
    fn the_frontier_parts_readers_from_the_writer() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        let (map, mut writer) = Map::open(&file, 8192, 0).unwrap();
        assert!(map.slice(0..1).is_none());
        writer.copy(0, b"he").unwrap();
        writer.write(2, b"llo").unwrap();
        assert!(map.slice(0..5).is_none());
        writer.publish(5);
        assert_eq!(map.slice(0..5).unwrap(), b"hello");
        for way in [MapWriter::copy, MapWriter::write] {
            assert!(way(&mut writer, 4, b"x").is_err(), "what was published stays");
            assert!(way(&mut writer, 8190, b"xyz").is_err(), "nothing beyond the end");
        }
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
