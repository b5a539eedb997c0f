//! One index file: its header, how an entry is added, how a key's entries are found.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
};

use crate::fs::{crash_safe, mmap::OwnedMap};

pub(super) const HEADER: u64 = 40;
const ENTRY: u64 = 20;
/// Entries get blocks this far ahead.
const AHEAD: u64 = 1 << 20;

/// Slots and entries of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) slots: u32,
    pub(super) entries: u32,
}

impl Shape {
    /// Bytes of a file.
    pub(super) fn len(self) -> u64 {
        HEADER + 4 * u64::from(self.slots) + ENTRY * u64::from(self.entries)
    }

    fn slot(self, hash: i32) -> u64 {
        HEADER + 4 * u64::from(hash as u32 % self.slots.max(1))
    }

    fn entry(self, number: u32) -> u64 {
        HEADER + 4 * u64::from(self.slots) + ENTRY * u64::from(number)
    }
}

/// The first 40 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Header {
    pub(crate) begin_time: i64,
    pub(crate) end_time: i64,
    pub(crate) begin_offset: i64,
    pub(crate) end_offset: i64,
    pub(super) slots_used: i32,
    /// Number that the next entry gets.
    pub(crate) count: i32,
}

impl Header {
    pub(super) fn parse(b: &[u8; HEADER as usize]) -> Self {
        let i64_at = |i: usize| i64::from_be_bytes(std::array::from_fn(|k| b[i + k]));
        let i32_at = |i: usize| i32::from_be_bytes(std::array::from_fn(|k| b[i + k]));
        Self {
            begin_time: i64_at(0),
            end_time: i64_at(8),
            begin_offset: i64_at(16),
            end_offset: i64_at(24),
            slots_used: i32_at(32),
            count: i32_at(36).max(1),
        }
    }

    fn encode(&self) -> [u8; HEADER as usize] {
        let mut out = [0; HEADER as usize];
        out[..8].copy_from_slice(&self.begin_time.to_be_bytes());
        out[8..16].copy_from_slice(&self.end_time.to_be_bytes());
        out[16..24].copy_from_slice(&self.begin_offset.to_be_bytes());
        out[24..32].copy_from_slice(&self.end_offset.to_be_bytes());
        out[32..36].copy_from_slice(&self.slots_used.to_be_bytes());
        out[36..].copy_from_slice(&self.count.to_be_bytes());
        out
    }

    /// Reads it from a file.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let mut bytes = [0; HEADER as usize];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Self::parse(&bytes))
    }
}

/// The file that entries are added to.
#[derive(Debug)]
pub(super) struct Writer {
    file: File,
    map: OwnedMap,
    shape: Shape,
    header: Header,
    /// Entries below this number have blocks.
    allocated: u32,
}

impl Writer {
    /// Makes a new file that follows one with these end values.
    pub(super) fn create(path: &Path, shape: Shape, end_time: i64, end_offset: i64) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)?;
        let made = Self::fill_new(path, file, shape, end_time, end_offset);
        if made.is_err()
            && let Err(error) = std::fs::remove_file(path)
        {
            tracing::warn!(path = %path.display(), %error, "cannot remove an index file that could not be made");
        }
        made
    }

    fn fill_new(path: &Path, file: File, shape: Shape, end_time: i64, end_offset: i64) -> io::Result<Self> {
        file.set_len(shape.len())?;
        let header = Header {
            begin_time: end_time,
            end_time,
            begin_offset: end_offset,
            end_offset,
            slots_used: 0,
            count: 1,
        };
        let mut writer = Self::with(file, shape, header)?;
        writer.map.get_mut()[..HEADER as usize].copy_from_slice(&header.encode());
        path.parent().map_or(Ok(()), crash_safe::sync_dir)?;
        Ok(writer)
    }

    /// Goes on with a file.
    pub(super) fn open(path: &Path, shape: Shape) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        if file.metadata()?.len() < shape.len() {
            file.set_len(shape.len())?;
        }
        let header = Header::read(&file)?;
        Self::with(file, shape, header)
    }

    fn with(file: File, shape: Shape, header: Header) -> io::Result<Self> {
        crash_safe::allocate(&file, 0, shape.entry(0))?;
        let map = OwnedMap::open(&file, shape.len() as usize)?;
        let mut writer = Self {
            file,
            map,
            shape,
            header,
            allocated: 0,
        };
        writer.reserve()?;
        Ok(writer)
    }

    fn reserve(&mut self) -> io::Result<()> {
        let count = self.header.count as u32;
        if count < self.allocated || count >= self.shape.entries {
            return Ok(());
        }
        let start = self.shape.entry(count);
        let end = (start + AHEAD).min(self.shape.len());
        crash_safe::allocate(&self.file, start, end)?;
        self.allocated = ((end - self.shape.entry(0)) / ENTRY) as u32;
        Ok(())
    }

    pub(super) fn header(&self) -> Header {
        self.header
    }

    pub(super) fn is_full(&self) -> bool {
        self.header.count as u32 >= self.shape.entries
    }

    fn i32_at(&self, at: u64) -> i32 {
        let at = at as usize;
        self.map
            .get()
            .get(at..at + 4)
            .map_or(0, |b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// Adds an entry. An error, such as a full disk, leaves the file as it was.
    pub(super) fn insert(&mut self, hash: i32, offset: i64, time: i64) -> io::Result<()> {
        if self.is_full() {
            return Err(io::Error::other("the index file is full"));
        }
        self.reserve()?;
        let header = &mut self.header;
        let number = header.count;
        let slot = self.shape.slot(hash);
        let seconds = if header.begin_time <= 0 {
            0
        } else {
            (time.saturating_sub(header.begin_time) / 1_000).clamp(0, i64::from(i32::MAX)) as i32
        };
        if number <= 1 {
            header.begin_offset = offset;
            header.begin_time = time;
        }
        header.count += 1;
        header.end_offset = offset;
        header.end_time = time;
        let older = self.i32_at(slot);
        let older = if older > 0 && older <= number { older } else { 0 };
        if older == 0 {
            self.header.slots_used += 1;
        }
        let at = self.shape.entry(number as u32) as usize;
        let header = self.header.encode();
        let map = self.map.get_mut();
        let entry = &mut map[at..at + ENTRY as usize];
        entry[..4].copy_from_slice(&hash.to_be_bytes());
        entry[4..12].copy_from_slice(&offset.to_be_bytes());
        entry[12..16].copy_from_slice(&seconds.to_be_bytes());
        entry[16..].copy_from_slice(&older.to_be_bytes());
        map[slot as usize..slot as usize + 4].copy_from_slice(&number.to_be_bytes());
        map[..HEADER as usize].copy_from_slice(&header);
        self.map.check()
    }

    /// Waits until it is on the disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Finds log offsets of entries with `hash` and a time in `[begin, end]`, newest first, at most `most`.
pub(super) fn find(
    file: &File,
    shape: Shape,
    header: &Header,
    hash: i32,
    begin: i64,
    end: i64,
    most: usize,
) -> io::Result<Vec<i64>> {
    let mut number = [0; 4];
    file.read_exact_at(&mut number, shape.slot(hash))?;
    let mut number = i32::from_be_bytes(number);
    let mut found = Vec::new();
    // Entries point to older ones only, so numbers fall and the walk ends.
    let mut above = header.count;
    while number > 0 && number < above && found.len() < most && (number as u32) < shape.entries {
        let mut entry = [0; ENTRY as usize];
        file.read_exact_at(&mut entry, shape.entry(number as u32))?;
        let i32_at = |i: usize| i32::from_be_bytes(std::array::from_fn(|k| entry[i + k]));
        let time = header.begin_time.saturating_add(i64::from(i32_at(12)) * 1_000);
        // Entries tell whole seconds: the real time may be up to a second later.
        if i32_at(0) == hash && begin <= time.saturating_add(999) && time <= end {
            found.push(i64::from_be_bytes(std::array::from_fn(|k| entry[4 + k])));
        }
        above = number;
        number = i32_at(16);
    }
    Ok(found)
}

/// The head of an index file.
pub(crate) fn read_header(file: &File) -> io::Result<Header> {
    Header::read(file)
}

/// Calls `each` with number, key hash and log offset of all entries of a file with so many slots. `false` if the file is
/// too short for that.
pub(crate) fn read_entries(file: &File, slots: u32, each: &mut dyn FnMut(u32, i32, i64)) -> io::Result<bool> {
    let count = Header::read(file)?.count as u32;
    let shape = Shape {
        slots,
        entries: count,
    };
    if file.metadata()?.len() < shape.len() {
        return Ok(false);
    }
    for number in 1..count {
        let mut entry = [0; ENTRY as usize];
        file.read_exact_at(&mut entry, shape.entry(number))?;
        let hash = i32::from_be_bytes(std::array::from_fn(|k| entry[k]));
        each(
            number,
            hash,
            i64::from_be_bytes(std::array::from_fn(|k| entry[4 + k])),
        );
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape {
        slots: 200,
        entries: 10,
    };

    #[test]
    fn golden_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("20220223070000000");
        let shape = Shape {
            slots: 5_000_000,
            entries: 20,
        };
        let mut writer = Writer::create(&path, shape, 0, 0).unwrap();
        writer.insert(2_746_024, 65_536, 1_645_600_000_456).unwrap();
        writer.sync().unwrap();
        let content = std::fs::read(&path).unwrap();
        let header = [
            0, 0, 1, 0x7f, 0x25, 0x67, 0x49, 0xc8, 0, 0, 1, 0x7f, 0x25, 0x67, 0x49, 0xc8, 0, 0, 0, 0, 0, 1,
            0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2,
        ];
        assert_eq!(content[..40], header);
        assert_eq!(content[10_984_136..10_984_140], [0, 0, 0, 1]);
        let entry = [
            0, 0x29, 0xe6, 0xa8, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(content[20_000_060..20_000_080], entry);
        assert_eq!(content.len() as u64, shape.len());
    }

    #[test]
    fn chains_and_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("i");
        let mut writer = Writer::create(&path, SHAPE, 0, 0).unwrap();
        for n in 0..5 {
            writer.insert(7, n * 100, 10_000 + n * 1_000).unwrap();
            writer
                .insert(207, n * 100 + 1, 10_000 + n * 1_000)
                .unwrap_or_else(|_| assert_eq!(n, 4));
            if writer.is_full() {
                break;
            }
        }
        assert!(writer.is_full());
        drop(writer);
        let writer = Writer::open(&path, SHAPE).unwrap();
        let file = File::open(&path).unwrap();
        let header = writer.header();
        assert_eq!((header.count, header.slots_used), (10, 1));
        let all = find(&file, SHAPE, &header, 7, 0, i64::MAX, 64).unwrap();
        assert_eq!(all, [400, 300, 200, 100, 0]);
        assert_eq!(
            find(&file, SHAPE, &header, 207, 11_500, 12_500, 64).unwrap(),
            [201, 101]
        );
        assert_eq!(
            find(&file, SHAPE, &header, 7, 0, i64::MAX, 2).unwrap(),
            [400, 300]
        );
    }
}
