//! Extension units: what a queue's readers can filter by beyond the 64 bits of a tags code.
//!
//! ```text
//! consumequeue_ext/<topic>/<queue>/<20-digit offset>     files of one length
//! i16 size = 20 + n · i64 tags code · i64 store time (ms) · i16 n · n bytes of filter bits
//! i16 −1                                                 nothing more in this file: the next unit begins the next one
//! ```
//!
//! A queue's unit whose message has an extension holds its address in place of a tags code: the offset of the extension
//! plus `i64::MIN`, so below every hash. The extension is written before the unit, and synced before it. A unit whose
//! extension can't be read says nothing about its message.

use std::{io, path::Path};

use super::{
    files::QueueFiles,
    queue::{Queue, State, WRITE_AT},
    unit::{UNIT, Unit},
};

/// Bytes of an extension without filter bits.
const HEAD: usize = 20;
/// Left free at the end of a file, for the mark that says so.
const END_MARK: u64 = 4;
/// Bytes of a file that a reader takes at a time.
const WINDOW: u64 = 16 << 10;

/// Most bytes of filter bits that an extension has room for.
pub const MOST_FILTER_BITS: usize = i16::MAX as usize - HEAD;

/// What a message's extension says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueExtension {
    /// Hash of its tag; deliver time of a delayed message.
    pub tags_code: i64,
    /// When it was stored, in milliseconds.
    pub store_timestamp: i64,
    /// Which expressions it may match; empty if nobody worked that out. At most [`MOST_FILTER_BITS`] bytes.
    pub filter_bits: Vec<u8>,
}

impl QueueExtension {
    /// Bytes on the disk.
    pub fn size(&self) -> usize {
        HEAD + self.filter_bits.len()
    }

    fn encode(&self) -> Option<Vec<u8>> {
        let size = i16::try_from(self.size()).ok()?;
        let mut out = Vec::with_capacity(self.size());
        out.extend_from_slice(&size.to_be_bytes());
        out.extend_from_slice(&self.tags_code.to_be_bytes());
        out.extend_from_slice(&self.store_timestamp.to_be_bytes());
        out.extend_from_slice(&(size - HEAD as i16).to_be_bytes());
        out.extend_from_slice(&self.filter_bits);
        Some(out)
    }

    /// The extension that these bytes begin with.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk::<2>()?;
        let (tags_code, rest) = rest.split_first_chunk::<8>()?;
        let (store_timestamp, rest) = rest.split_first_chunk::<8>()?;
        let (bits, rest) = rest.split_first_chunk::<2>()?;
        let size = usize::try_from(i16::from_be_bytes(*size)).ok()?;
        let bits = usize::try_from(i16::from_be_bytes(*bits)).ok()?;
        (size == HEAD + bits).then_some(())?;
        Some(Self {
            tags_code: i64::from_be_bytes(*tags_code),
            store_timestamp: i64::from_be_bytes(*store_timestamp),
            filter_bits: rest.get(..bits)?.to_vec(),
        })
    }
}

/// Offset of the extension that stands in place of a tags code.
pub(crate) fn offset_of(tags_code: i64) -> Option<u64> {
    (tags_code < i64::from(i32::MIN)).then(|| tags_code.wrapping_sub(i64::MIN) as u64)
}

/// What stands for it in a unit; `None` for an offset that no unit can hold.
fn address(offset: u64) -> Option<i64> {
    let address = i64::try_from(offset).ok()?.wrapping_add(i64::MIN);
    (address < i64::from(i32::MIN)).then_some(address)
}

/// Extensions of one queue, ready for more.
#[derive(Debug)]
pub(super) struct Ext {
    opened_at: u64,
    end: u64,
    synced: u64,
    names: bool,
}

impl Ext {
    /// Finds where the next extension goes: behind the one that the queue's units point to last, at `last`. What stands there
    /// belongs to no unit and goes.
    pub(super) fn open(files: &QueueFiles, uid: u32, dir: &Path, last: Option<u64>) -> io::Result<Self> {
        let bases = QueueFiles::bases(dir)?;
        let next_file = |base: u64| base + files.size();
        let end = match last {
            Some(last) => read(files, uid, dir, last)?.map_or_else(
                || next_file(files.base_of(last)),
                |unit| last + unit.size() as u64,
            ),
            None => bases.last().map_or(0, |base| next_file(*base)),
        };
        for base in bases.into_iter().filter(|base| *base >= end) {
            files.delete(uid, dir, base)?;
        }
        if end % files.size() != 0 {
            files.clear_tail(uid, dir, end)?;
        }
        Ok(Self {
            opened_at: end,
            end,
            synced: end,
            names: false,
        })
    }

    /// Writes one more and says what stands for it in a unit; `None` if it can't be kept.
    pub(super) fn put(
        &mut self,
        files: &QueueFiles,
        uid: u32,
        dir: &Path,
        unit: &QueueExtension,
    ) -> io::Result<Option<i64>> {
        let Some(bytes) = unit.encode() else {
            return Ok(None);
        };
        let len = bytes.len() as u64;
        if len + END_MARK > files.size() {
            return Ok(None);
        }
        let file_end = files.base_of(self.end) + files.size();
        if self.end + len + END_MARK > file_end {
            let mark = (-1i16).to_be_bytes();
            if self.end + mark.len() as u64 <= file_end {
                files.write(uid, dir, self.end, &mark, &mut self.names)?;
            }
            self.end = file_end;
        }
        let Some(address) = address(self.end) else {
            return Ok(None);
        };
        files.write(uid, dir, self.end, &bytes, &mut self.names)?;
        self.end += len;
        Ok(Some(address))
    }

    /// What has to be synced: from, to, and whether names have to be.
    pub(super) fn unsynced(&mut self) -> (u64, u64, bool) {
        (self.synced, self.end, std::mem::take(&mut self.names))
    }

    pub(super) fn note_synced(&mut self, to: u64) {
        self.synced = self.synced.max(to.min(self.end));
    }

    /// A sync of names failed.
    pub(super) fn note_names(&mut self) {
        self.names = true;
    }

    /// Bytes written since it was opened.
    pub(super) fn written_bytes(&self) -> u64 {
        self.end - self.opened_at
    }
}

/// The extension at an offset; `None` if nothing is there.
fn read(files: &QueueFiles, uid: u32, dir: &Path, offset: u64) -> io::Result<Option<QueueExtension>> {
    ExtReader::new(files, uid, dir).read(offset)
}

/// Reads extensions that mostly follow each other.
#[derive(Debug)]
pub(crate) struct ExtReader<'a> {
    files: &'a QueueFiles,
    uid: u32,
    dir: &'a Path,
    start: u64,
    window: Vec<u8>,
}

impl<'a> ExtReader<'a> {
    pub(super) fn new(files: &'a QueueFiles, uid: u32, dir: &'a Path) -> Self {
        Self {
            files,
            uid,
            dir,
            start: 0,
            window: Vec::new(),
        }
    }

    /// The extension at an offset; `None` if nothing is there.
    pub(crate) fn read(&mut self, offset: u64) -> io::Result<Option<QueueExtension>> {
        if let Some(unit) = self.in_window(offset) {
            return Ok(Some(unit));
        }
        for length in [WINDOW, i16::MAX as u64] {
            let left = self.files.base_of(offset).saturating_add(self.files.size()) - offset;
            self.window.resize(length.min(left) as usize, 0);
            self.start = offset;
            match self.files.read(self.uid, self.dir, offset, &mut self.window) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.window.clear();
                    return Ok(None);
                }
                other => other?,
            };
            if let Some(unit) = self.in_window(offset) {
                return Ok(Some(unit));
            }
        }
        Ok(None)
    }

    fn in_window(&self, offset: u64) -> Option<QueueExtension> {
        let at = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        QueueExtension::parse(self.window.get(at..)?)
    }
}

impl Queue {
    /// Writes a unit's extension and says what stands for it; `None` if it can't be kept.
    pub(super) fn put_ext(
        &self,
        state: &mut State,
        files: &QueueFiles,
        ext_files: &QueueFiles,
        unit: &QueueExtension,
    ) -> io::Result<Option<i64>> {
        let dir = self.dir(ext_files);
        let mut ext = if let Some(ext) = state.ext.take() {
            ext
        } else {
            let last = self.last_ext(state, files)?;
            Box::new(Ext::open(ext_files, self.uid, &dir, last)?)
        };
        let put = ext.put(ext_files, self.uid, &dir, unit);
        state.ext = Some(ext);
        put
    }

    /// Offset of the last extension that units in the last two files point to.
    fn last_ext(&self, state: &State, files: &QueueFiles) -> io::Result<Option<u64>> {
        let last_of = |bytes: &[u8]| {
            let units = bytes.rchunks_exact(UNIT as usize).filter_map(Unit::parse);
            units
                .filter(|u| !u.is_pre_blank())
                .find_map(|u| offset_of(u.tags_code))
        };
        if let Some(last) = last_of(&state.tail) {
            return Ok(Some(last));
        }
        let mut to = state.tail_start.min(state.written);
        let least = files.base_of(to).saturating_sub(files.size()).max(state.first);
        let mut bytes = Vec::new();
        while to > least {
            let from = to
                .saturating_sub(WRITE_AT as u64 / UNIT * UNIT)
                .max(least)
                .max(files.base_of(to - 1));
            bytes.resize((to - from) as usize, 0);
            files.read(self.uid, &self.dir(files), from, &mut bytes)?;
            if let Some(last) = last_of(&bytes) {
                return Ok(Some(last));
            }
            to = from;
        }
        Ok(None)
    }

    /// Calls `with` with what reads the extensions of its units.
    pub(crate) fn with_ext<R>(
        &self,
        files: &QueueFiles,
        with: impl FnOnce(Option<&mut ExtReader<'_>>) -> R,
    ) -> R {
        match files.ext() {
            Some(ext) => with(Some(&mut ExtReader::new(ext, self.uid, &self.dir(ext)))),
            None => with(None),
        }
    }

    /// Deletes the files of extensions that only units below the first readable one point to.
    pub(crate) fn align_ext(&self, files: &QueueFiles) -> io::Result<()> {
        let Some(ext) = files.ext() else { return Ok(()) };
        let (min, _) = self.range();
        let first = self.unit(files, min)?.filter(|unit| !unit.is_pre_blank());
        if let Some(offset) = first.and_then(|unit| offset_of(unit.tags_code)) {
            let dir = self.dir(ext);
            for base in QueueFiles::bases(&dir)?
                .into_iter()
                .filter(|base| *base < ext.base_of(offset))
            {
                ext.delete(self.uid, &dir, base)?;
            }
        }
        Ok(())
    }

    /// Waits until the extensions of what is written are on the disk.
    pub(super) fn sync_ext(&self, ext_files: &QueueFiles) -> io::Result<()> {
        let Some((from, to, names)) = self.state.lock().ext.as_mut().map(|ext| ext.unsynced()) else {
            return Ok(());
        };
        if from == to && !names {
            return Ok(());
        }
        let synced = ext_files.sync(self.uid, &self.dir(ext_files), from, to, names);
        let mut state = self.state.lock();
        let Some(ext) = state.ext.as_mut() else {
            return Ok(());
        };
        match synced {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                if names {
                    ext.note_names();
                }
                Err(error)
            }
            _ => {
                ext.note_synced(to);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(n: i64, bits: usize) -> QueueExtension {
        QueueExtension {
            tags_code: n,
            store_timestamp: 1_700_000_000_000 + n,
            filter_bits: vec![n as u8; bits],
        }
    }

    #[test]
    fn golden_bytes() {
        let bytes = [
            0, 22, 0, 0, 0, 0, 0, 0x27, 0xa8, 7, 0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0, 0, 2, 0xa5, 0x5a,
        ];
        let unit = QueueExtension {
            tags_code: 2_598_919,
            store_timestamp: 1_700_000_000_000,
            filter_bits: vec![0xa5, 0x5a],
        };
        assert_eq!(unit.encode().unwrap(), bytes);
        assert_eq!(QueueExtension::parse(&bytes), Some(unit));
        for cut in 0..bytes.len() {
            assert_eq!(QueueExtension::parse(&bytes[..cut]), None);
        }
        assert_eq!(QueueExtension::parse(&[0; 64]), None);
        assert_eq!(QueueExtension::parse(&[0xff; 64]), None);
    }

    #[test]
    fn hashes_are_no_addresses() {
        for code in [0, 1, i64::from(i32::MIN), i64::from(i32::MAX), i64::MAX] {
            assert_eq!(offset_of(code), None);
        }
        assert_eq!(offset_of(i64::MIN), Some(0));
        assert_eq!(address(77).and_then(offset_of), Some(77));
        assert_eq!(address(u64::MAX), None);
        let most = (i64::from(i32::MIN) - 1).wrapping_sub(i64::MIN) as u64;
        assert_eq!(address(most), Some(i64::from(i32::MIN) - 1));
        assert_eq!(address(most + 1), None);
    }

    #[test]
    fn files_are_filled_marked_and_read_back_after_a_reopening() {
        let root = tempfile::tempdir().unwrap();
        let files = QueueFiles::new(root.path().to_owned(), 100, 8);
        let dir = files.queue_dir("t", 0);
        let mut ext = Ext::open(&files, 7, &dir, None).unwrap();
        let put = |ext: &mut Ext, n: i64, bits| {
            let address = ext.put(&files, 7, &dir, &unit(n, bits)).unwrap();
            offset_of(address.unwrap()).unwrap()
        };
        // Three of 30 bytes would leave less than 4, so the fourth begins the next file.
        let mut places: Vec<_> = (0..5).map(|n| put(&mut ext, n, 10)).collect();
        assert_eq!(places, [0, 30, 60, 100, 130]);
        assert_eq!(
            std::fs::read(dir.join("00000000000000000000")).unwrap()[90..92],
            [0xff, 0xff]
        );
        // What no file has room for is left out.
        assert_eq!(ext.put(&files, 7, &dir, &unit(9, 77)).unwrap(), None);
        // A message whose unit was lost leaves its extension behind.
        put(&mut ext, 5, 10);
        put(&mut ext, 6, 10);
        let mut ext = Ext::open(&files, 7, &dir, Some(130)).unwrap();
        assert_eq!(QueueFiles::bases(&dir).unwrap(), [0, 100]);
        assert_eq!(read(&files, 7, &dir, 160).unwrap(), None);
        places.push(put(&mut ext, 5, 5));
        assert_eq!(places[5], 160);
        let mut reader = ExtReader::new(&files, 7, &dir);
        for (n, at) in places.iter().enumerate() {
            let bits = if n == 5 { 5 } else { 10 };
            assert_eq!(reader.read(*at).unwrap(), Some(unit(n as i64, bits)));
        }
        // Files that are gone read as nothing, and their places are not given out again.
        std::fs::remove_dir_all(&dir).unwrap();
        files.forget_queue(7);
        assert_eq!(read(&files, 7, &dir, 130).unwrap(), None);
        let mut ext = Ext::open(&files, 7, &dir, Some(130)).unwrap();
        assert_eq!(put(&mut ext, 1, 1), 200);
    }
}
