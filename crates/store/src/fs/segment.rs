//! One file of the log: its name is the log offset that it starts at, its length is the same for all.

use std::{
    fs::File,
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use bytes::Bytes;

use super::mmap::{Map, MapWriter};

/// A mapped file of the log.
#[derive(Debug)]
pub(crate) struct Segment {
    base: u64,
    path: PathBuf,
    file: File,
    map: Arc<Map>,
    size: u64,
}

/// `name` as the start offset of a file, if it's one: 20 digits.
pub(crate) fn parse_name(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str()?;
    if name.len() == 20 && name.bytes().all(|b| b.is_ascii_digit()) {
        // No store gets this far; sums with such a start would overflow.
        name.parse().ok().filter(|base| *base < 1 << 62)
    } else {
        None
    }
}

/// Name of the file that starts at `base`.
pub(crate) fn file_name(base: u64) -> String {
    format!("{base:020}")
}

impl Segment {
    /// Maps a file that is `size` long and readable below `readable`.
    pub(crate) fn open(
        path: &Path,
        file: File,
        base: u64,
        size: u64,
        readable: u64,
    ) -> io::Result<(Arc<Self>, MapWriter)> {
        let (map, writer) = Map::open(&file, size as usize, readable as usize)?;
        Ok((
            Arc::new(Self {
                base,
                path: path.to_owned(),
                file,
                map,
                size,
            }),
            writer,
        ))
    }

    /// Log offset of its first byte.
    pub(crate) fn base(&self) -> u64 {
        self.base
    }

    /// Log offset after its last byte.
    pub(crate) fn limit(&self) -> u64 {
        self.base + self.size
    }

    /// Log offset after its last readable byte.
    pub(crate) fn readable_end(&self) -> u64 {
        self.base + self.map.readable() as u64
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn map(&self) -> &Arc<Map> {
        &self.map
    }

    fn local(&self, range: &Range<u64>) -> Option<Range<usize>> {
        Some(range.start.checked_sub(self.base)? as usize..range.end.checked_sub(self.base)? as usize)
    }

    /// Bytes by log offset, if they are all here and the disk gives them.
    pub(crate) fn slice(&self, range: Range<u64>) -> Option<&[u8]> {
        let found = self.map.slice(self.local(&range)?);
        if found.is_none() && self.map.has_new_damage() {
            self.report(&range);
        }
        found
    }

    /// Bytes by log offset, if they are all here. Those that the disk doesn't give are zeros: ask [`Segment::is_sound`]
    /// after looking at them.
    pub(crate) fn peek(&self, range: Range<u64>) -> Option<&[u8]> {
        self.map.peek(self.local(&range)?)
    }

    /// Whether no page of the range has turned out to be unreadable.
    pub(crate) fn is_sound(&self, range: &Range<u64>) -> bool {
        let sound = self.local(range).is_none_or(|local| self.map.is_sound(&local));
        if !sound && self.map.has_new_damage() {
            self.report(range);
        }
        sound
    }

    #[cold]
    fn report(&self, range: &Range<u64>) {
        tracing::error!(
            path = %self.path.display(), from = range.start, to = range.end,
            "the disk cannot read a page of a log file: its messages are not served; look at the disk, and fetch them from a replica"
        );
    }

    /// Like [`Segment::slice`], keeping the mapping alive.
    pub(crate) fn bytes(&self, range: Range<u64>) -> Option<Bytes> {
        self.map.bytes(self.local(&range)?)
    }

    /// Gives all of it real blocks.
    pub(crate) fn allocate(&self) -> io::Result<()> {
        super::crash_safe::allocate(&self.file, 0, self.size)
    }

    /// Waits until what was written to the range of log offsets is on the disk.
    pub(crate) fn sync(&self, range: &Range<u64>) -> io::Result<()> {
        let local = self.local(range).filter(|local| local.end as u64 <= self.size);
        let local = local.ok_or_else(|| io::Error::other("the range is not in this log file"))?;
        self.map.sync(local)
    }

    /// Writes out all pages there are, so that blocks which were only allocated become written ones: a sync of appends in
    /// them is then a write and no change of the file system's own tables. Through a handle of its own: the kernel tells a
    /// failed write once to each handle, and must not tell this one instead of those who wait for their appends.
    pub(crate) fn write_ahead(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_data()
    }

    /// When it was last written.
    pub(crate) fn modified(&self) -> io::Result<SystemTime> {
        self.file.metadata()?.modified()
    }

    /// Removes the name. Slices lent out stay good.
    pub(crate) fn unlink(&self) -> io::Result<()> {
        std::fs::remove_file(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(file_name(1_048_576), "00000000000001048576");
        assert_eq!(parse_name("00000000000001048576".as_ref()), Some(1_048_576));
        for foreign in [
            "1048576",
            "0000000000000104857x",
            "+0000000000001048576",
            "lost+found",
            ".nfs00000000000000001",
            "18446744073709540000",
            "04611686018427387904",
        ] {
            assert_eq!(parse_name(foreign.as_ref()), None, "{foreign}");
        }
    }
}
