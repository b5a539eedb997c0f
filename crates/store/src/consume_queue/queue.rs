//! One queue: its positions, the last units, and how both follow the log.
//!
//! Logical offsets keep `first ≤ min ≤ end`, `synced ≤ written ≤ end`; units in `[tail_start, end)` are in memory, those
//! below `written` in files.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use parking_lot::Mutex;

use super::{
    ext::{Ext, QueueExtension},
    files::QueueFiles,
    unit::{UNIT, Unit},
};

/// Unwritten units are written once there are this many bytes of them.
pub(super) const WRITE_AT: usize = 16 << 10;
/// Written units that stay in memory for readers at the end.
const KEEP: usize = 1 << 10;

/// Position of a queue offset in the queue's files, in bytes. Offsets come from the wire and from tables on the disk too: one
/// that no queue can reach is a position that none has.
pub(super) fn position(offset: i64) -> u64 {
    (offset.max(0) as u64).saturating_mul(UNIT)
}

/// What became of a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Appended {
    /// It's there now; `true`: the queue has to be put on the list of those to write.
    Yes(bool),
    /// It was there already.
    Known,
    /// The queue ends at this offset, before the unit's: units are missing between, or the queue begins with it.
    Gap(i64),
}

#[derive(Debug, Default)]
pub(super) struct State {
    /// Start of the first file.
    pub(super) first: u64,
    /// First offset that can be read.
    pub(super) min: u64,
    pub(super) end: u64,
    pub(super) written: u64,
    pub(super) synced: u64,
    /// Files were made that no directory sync has covered.
    pub(super) names: bool,
    pub(super) tail_start: u64,
    pub(super) tail: Vec<u8>,
    /// Log offset after the last unit's record.
    pub(super) max_physical: i64,
    /// Log offset of the first unit's record in files; 0 if that isn't known.
    pub(super) first_physical: i64,
    /// Where extensions go; unknown until the first one.
    pub(super) ext: Option<Box<Ext>>,
    listed: bool,
    touched: bool,
}

/// How far a queue's files were written at some time.
#[derive(Debug)]
pub(super) struct Marks {
    written: u64,
    ext: u64,
    names: bool,
    ext_names: bool,
}

/// A queue of a topic.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(super) topic: Arc<str>,
    pub(super) id: i32,
    pub(super) uid: u32,
    /// Offset that the next append gets. Changed under the log's put lock only.
    next_put: AtomicI64,
    /// Deleted: look the queue up again.
    dead: AtomicBool,
    pub(super) state: Mutex<State>,
}

impl Queue {
    pub(super) fn new(topic: Arc<str>, id: i32, uid: u32) -> Self {
        Self {
            topic,
            id,
            uid,
            next_put: AtomicI64::new(0),
            dead: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    pub(crate) fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    pub(crate) fn id(&self) -> i32 {
        self.id
    }

    pub(super) fn dir(&self, files: &QueueFiles) -> PathBuf {
        files.queue_dir(&self.topic, self.id)
    }

    /// Offset that the next append gets.
    pub(crate) fn next_put(&self) -> i64 {
        self.next_put.load(Ordering::Relaxed)
    }

    /// Sets it; under the put lock.
    pub(crate) fn set_next_put(&self, offset: i64) {
        self.next_put.store(offset, Ordering::Relaxed);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    pub(super) fn kill(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Offset of the first message and offset after the last.
    pub(crate) fn range(&self) -> (i64, i64) {
        let state = self.state.lock();
        ((state.min / UNIT) as i64, (state.end / UNIT) as i64)
    }

    /// Bytes of its units, about as much as its files take.
    pub(crate) fn bytes(&self) -> u64 {
        let state = self.state.lock();
        let ext = state.ext.as_ref().map_or(0, |ext| ext.written_bytes());
        (state.end - state.first).next_multiple_of(4096) + ext
    }

    /// Log offset after the record of the last unit; 0 if there's none.
    pub(crate) fn max_physical(&self) -> i64 {
        self.state.lock().max_physical
    }

    /// Adds the unit of queue offset `offset`, extended by `ext`.
    pub(crate) fn append(
        &self,
        files: &QueueFiles,
        offset: i64,
        mut unit: Unit,
        ext: Option<&QueueExtension>,
    ) -> io::Result<Appended> {
        let mut state = self.state.lock();
        if unit.end() <= state.max_physical || self.is_dead() {
            return Ok(Appended::Known);
        }
        let Some(at) = u64::try_from(offset).ok().and_then(|o| o.checked_mul(UNIT)) else {
            return Ok(Appended::Known);
        };
        if at < state.end {
            return Ok(Appended::Known);
        }
        if at > state.end {
            return Ok(Appended::Gap((state.end / UNIT) as i64));
        }
        if let (Some(ext), Some(ext_files)) = (ext, files.ext())
            && let Some(address) = self.put_ext(&mut state, files, ext_files, ext)?
        {
            unit.tags_code = address;
        }
        if at == state.first {
            state.first_physical = unit.physical;
        }
        state.tail.extend_from_slice(&unit.encode());
        state.end += UNIT;
        state.max_physical = unit.end();
        state.touched = true;
        if (state.end - state.written) as usize >= WRITE_AT {
            self.write(&mut state, files)?;
        }
        let list = !state.listed;
        state.listed = true;
        Ok(Appended::Yes(list))
    }

    /// Fills the offsets up to `offset` with units that stand for no message. A queue without units begins there instead.
    pub(crate) fn fill_gap(&self, files: &QueueFiles, offset: i64) -> io::Result<()> {
        let mut state = self.state.lock();
        let up_to = position(offset);
        if state.end == 0 {
            let first = files.base_of(up_to);
            *state = State {
                first,
                min: up_to,
                end: first,
                written: first,
                synced: first,
                tail_start: first,
                listed: state.listed,
                ..State::default()
            };
        }
        self.fill(&mut state, files, up_to)
    }

    fn fill(&self, state: &mut State, files: &QueueFiles, up_to: u64) -> io::Result<()> {
        while state.end < up_to {
            let n = ((up_to - state.end) / UNIT).min(WRITE_AT as u64 / UNIT);
            for _ in 0..n {
                state.tail.extend_from_slice(&Unit::PRE_BLANK.encode());
            }
            state.end += n * UNIT;
            self.write(state, files)?;
        }
        Ok(())
    }

    fn write(&self, state: &mut State, files: &QueueFiles) -> io::Result<()> {
        if state.end > state.written && !self.is_dead() {
            let from = (state.written - state.tail_start) as usize;
            let mut made = false;
            let result = files.write(
                self.uid,
                &self.dir(files),
                state.written,
                &state.tail[from..],
                &mut made,
            );
            state.names |= made;
            result?;
            state.written = state.end;
        }
        if state.tail.len() > 2 * KEEP {
            let drop = state.tail.len() - KEEP;
            state.tail.drain(..drop);
            state.tail_start += drop as u64;
            state.tail.shrink_to(2 * KEEP);
        }
        Ok(())
    }

    /// Bytes of units that are only in memory.
    pub(super) fn unwritten(&self) -> usize {
        let state = self.state.lock();
        (state.end - state.written) as usize
    }

    /// Writes what is only in memory to the files. `true`: it had nothing new since the last call, and now keeps nothing
    /// in memory; it can leave the list.
    pub(crate) fn write_out(&self, files: &QueueFiles) -> io::Result<bool> {
        let mut state = self.state.lock();
        if self.is_dead() {
            return Ok(true);
        }
        self.write(&mut state, files)?;
        if std::mem::take(&mut state.touched) {
            return Ok(false);
        }
        state.listed = false;
        state.tail_start = state.end;
        state.tail = Vec::new();
        Ok(true)
    }

    /// Keeps nothing in memory that files have, unless it's on the list of those to write.
    pub(crate) fn forget_tail(&self) {
        let mut state = self.state.lock();
        if !state.listed && state.written == state.end {
            state.tail_start = state.end;
            state.tail = Vec::new();
        }
    }

    /// Whether files have something that isn't surely on the disk.
    pub(crate) fn unsynced(&self) -> bool {
        let state = self.state.lock();
        state.synced < state.written
    }

    /// Waits until everything written is on the disk.
    pub(crate) fn sync(&self, files: &QueueFiles) -> io::Result<()> {
        // Units must not be there without what they point to.
        if let Some(ext) = files.ext() {
            self.sync_ext(ext)?;
        }
        let (from, to, names) = {
            let mut state = self.state.lock();
            (state.synced, state.written, std::mem::take(&mut state.names))
        };
        if from < to
            && !self.is_dead()
            && let Err(error) = files.sync(self.uid, &self.dir(files), from, to, names)
        {
            self.state.lock().names |= names;
            // A file that the cleaner took meanwhile needs no sync.
            if error.kind() != io::ErrorKind::NotFound {
                return Err(error);
            }
        }
        let mut state = self.state.lock();
        state.synced = state.synced.max(to);
        Ok(())
    }

    /// What a sync of everything, begun after this, makes safe.
    pub(super) fn marks(&self) -> Marks {
        let mut state = self.state.lock();
        let (_, ext, ext_names) = state.ext.as_mut().map_or((0, 0, false), |ext| ext.unsynced());
        Marks {
            written: state.written,
            ext,
            names: std::mem::take(&mut state.names),
            ext_names,
        }
    }

    /// How that sync ended.
    pub(super) fn note_synced(&self, marks: &Marks, done: bool) {
        let mut state = self.state.lock();
        if done {
            state.synced = state.synced.max(marks.written.min(state.written));
        } else {
            state.names |= marks.names;
        }
        if let Some(ext) = state.ext.as_mut() {
            if done {
                ext.note_synced(marks.ext);
            } else if marks.ext_names {
                ext.note_names();
            }
        }
    }

    /// End of what is in files.
    #[cfg(test)]
    pub(crate) fn written(&self) -> u64 {
        self.state.lock().written
    }

    /// Units from queue offset `offset` on: at most `most`, and no more than one file has. Fewer at the end. An error of
    /// kind `NotFound` says that the file is gone.
    pub(crate) fn read(&self, files: &QueueFiles, offset: i64, most: usize) -> io::Result<Units> {
        let start = position(offset);
        let want = {
            let state = self.state.lock();
            let file_end = files.base_of(start).saturating_add(files.size());
            let end = state
                .end
                .min(file_end)
                .min(start.saturating_add((most as u64).saturating_mul(UNIT)));
            if end <= start || start < state.first {
                return Ok(Units(Vec::new()));
            }
            if start >= state.tail_start {
                let from = (start - state.tail_start) as usize;
                return Ok(Units(state.tail[from..from + (end - start) as usize].to_vec()));
            }
            end.min(state.written) - start
        };
        let mut out = vec![0; want as usize];
        let n = files.read(self.uid, &self.dir(files), start, &mut out)?;
        out.truncate(n);
        Ok(Units(out))
    }

    /// The unit of queue offset `offset`.
    pub(crate) fn unit(&self, files: &QueueFiles, offset: i64) -> io::Result<Option<Unit>> {
        Ok(self.read(files, offset, 1)?.raw().next().flatten())
    }

    /// Start of the next file after the one with queue offset `offset`, as a queue offset.
    pub(crate) fn next_file(files: &QueueFiles, offset: i64) -> i64 {
        (files.base_of(position(offset)).saturating_add(files.size()) / UNIT) as i64
    }

    /// Moves the first readable offset to the first unit whose record is still in a log that starts at `log_min`.
    pub(crate) fn align(&self, files: &QueueFiles, log_min: i64) -> io::Result<()> {
        let (first, end) = {
            let state = self.state.lock();
            if state.first_physical > 0 && state.first_physical >= log_min {
                return Ok(());
            }
            ((state.first / UNIT) as i64, (state.end / UNIT) as i64)
        };
        let gone = |offset: i64| -> io::Result<bool> {
            Ok(self
                .unit(files, offset)?
                .is_none_or(|u| u.is_pre_blank() || u.physical < log_min))
        };
        if log_min == 0 && first == 0 {
            return Ok(());
        }
        // Most often the first one is still there.
        if first == end || !gone(first)? {
            return Ok(());
        }
        let (mut low, mut high) = (first + 1, end);
        while low < high {
            let middle = low + (high - low) / 2;
            if gone(middle)? {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let mut state = self.state.lock();
        state.min = state.min.max(position(low)).min(state.end);
        Ok(())
    }

    /// Deletes the first file if all its records are below `log_min` and it isn't the last. `true` if it did.
    pub(crate) fn delete_first_file(&self, files: &QueueFiles, log_min: i64) -> io::Result<bool> {
        let (first, end) = {
            let state = self.state.lock();
            (state.first, state.end)
        };
        let next = first + files.size();
        if next >= end {
            return Ok(false);
        }
        match self.unit(files, (next / UNIT) as i64 - 1) {
            Ok(Some(last)) if last.is_pre_blank() || last.physical < log_min => {}
            Ok(None) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Ok(Some(_)) => return Ok(false),
            Err(e) => return Err(e),
        }
        {
            let mut state = self.state.lock();
            if state.written < next {
                return Ok(false);
            }
            state.first = next;
            state.first_physical = 0;
            state.min = state.min.max(next);
            state.synced = state.synced.max(next);
        }
        files.delete(self.uid, &self.dir(files), first)?;
        Ok(true)
    }

    /// Cuts the queue to the units below queue offset `end`, deletes later files and clears what stands behind the cut; `true`
    /// if its last file had something there.
    pub(crate) fn truncate(&self, files: &QueueFiles, end: i64) -> io::Result<bool> {
        let mut state = self.state.lock();
        let to = position(end).max(state.first).min(state.end);
        let dir = self.dir(files);
        let mut base = files.base_of(state.written.max(1) - 1);
        while base >= to && base > state.first {
            files.delete(self.uid, &dir, base)?;
            base -= files.size();
        }
        let cleared = files.clear_tail(self.uid, &dir, to)?;
        state.end = to;
        state.written = to.min(state.written);
        state.synced = to.min(state.synced);
        state.min = state.min.min(to);
        state.tail = Vec::new();
        state.tail_start = to;
        state.ext = None;
        if to == state.first {
            state.first_physical = 0;
        }
        drop(state);
        self.refresh_max_physical(files)?;
        Ok(cleared)
    }

    /// Offset of the first unit in files, which may be of a message that is gone, and offset after the last.
    pub(crate) fn file_range(&self) -> (i64, i64) {
        let state = self.state.lock();
        ((state.first / UNIT) as i64, (state.end / UNIT) as i64)
    }

    /// Cuts the queue to the units whose records are below log offset `end`.
    pub(crate) fn cut_at_physical(&self, files: &QueueFiles, end: i64) -> io::Result<()> {
        let (mut low, mut high) = self.file_range();
        while low < high {
            let middle = low + (high - low) / 2;
            if self
                .unit(files, middle)?
                .is_some_and(|u| u.is_pre_blank() || u.physical < end)
            {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.truncate(files, low)?;
        Ok(())
    }

    /// Takes the log offset after the last unit from the units themselves. Pre-blank ones have none.
    pub(super) fn refresh_max_physical(&self, files: &QueueFiles) -> io::Result<()> {
        let (first, mut offset) = {
            let state = self.state.lock();
            ((state.first / UNIT) as i64, (state.end / UNIT) as i64)
        };
        let mut max = 0;
        while offset > first {
            offset -= 1;
            match self.unit(files, offset)? {
                Some(unit) if !unit.is_pre_blank() => {
                    max = unit.end();
                    break;
                }
                _ => {}
            }
        }
        self.state.lock().max_physical = max;
        Ok(())
    }
}

/// Units read together.
#[derive(Debug)]
pub(crate) struct Units(Vec<u8>);

impl Units {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The units; where a file has lost one, a unit that stands for no message.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Unit> {
        self.raw().map(|unit| unit.unwrap_or(Unit::PRE_BLANK))
    }

    /// What is there, unit by unit.
    pub(crate) fn raw(&self) -> impl Iterator<Item = Option<Unit>> {
        self.0.chunks_exact(UNIT as usize).map(Unit::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(n: i64) -> Unit {
        Unit {
            physical: n * 100,
            size: 100,
            tags_code: n,
        }
    }

    fn queue() -> (tempfile::TempDir, QueueFiles, Queue) {
        let dir = tempfile::tempdir().unwrap();
        let files = QueueFiles::new(dir.path().to_owned(), 200, 16);
        (dir, files, Queue::new("t".into(), 3, 1))
    }

    #[test]
    fn appends_in_order_and_only_once() {
        let (_dir, files, q) = queue();
        for n in 0..25 {
            assert!(matches!(
                q.append(&files, n, unit(n), None).unwrap(),
                Appended::Yes(_)
            ));
        }
        assert_eq!(q.append(&files, 7, unit(7), None).unwrap(), Appended::Known);
        assert_eq!(q.append(&files, 30, unit(30), None).unwrap(), Appended::Gap(25));
        assert_eq!(q.range(), (0, 25));
        let tail: Vec<_> = q.read(&files, 22, 100).unwrap().iter().collect();
        assert_eq!(tail, (22..25).map(unit).collect::<Vec<_>>());
        assert!(!q.write_out(&files).unwrap());
        assert!(q.write_out(&files).unwrap(), "idle: nothing stays in memory");
        assert_eq!(q.state.lock().tail.capacity(), 0);
        let old: Vec<_> = q.read(&files, 5, 100).unwrap().iter().collect();
        assert_eq!(old, (5..10).map(unit).collect::<Vec<_>>(), "one file at a time");
        q.sync(&files).unwrap();
        assert!(!q.unsynced());
    }

    #[test]
    fn offsets_that_no_queue_can_reach_hold_nothing() {
        let (_dir, files, q) = queue();
        for n in 0..25 {
            q.append(&files, n, unit(n), None).unwrap();
        }
        // Times 20 these pass 2^64; the first comes out as 4, a place inside the queue.
        for offset in [
            (1 << 62) / 5 * 4 + 1,
            i64::MAX / 20,
            i64::MAX / 20 + 1,
            i64::MAX - 1,
            i64::MAX,
        ] {
            assert!(q.read(&files, offset, 32).unwrap().is_empty(), "{offset}");
            assert!(q.read(&files, offset, usize::MAX).unwrap().is_empty(), "{offset}");
            assert_eq!(q.unit(&files, offset).unwrap(), None, "{offset}");
            assert!(Queue::next_file(&files, offset) > 0);
        }
        assert_eq!(q.unit(&files, i64::MIN).unwrap(), Some(unit(0)));
        q.write_out(&files).unwrap();
        q.truncate(&files, i64::MAX).unwrap();
        assert_eq!(q.range(), (0, 25));
    }

    #[test]
    fn starts_in_the_middle_with_pre_blank_units() {
        let (dir, files, q) = queue();
        assert_eq!(q.append(&files, 13, unit(13), None).unwrap(), Appended::Gap(0));
        q.fill_gap(&files, 13).unwrap();
        assert_eq!(q.append(&files, 13, unit(13), None).unwrap(), Appended::Yes(true));
        assert_eq!(q.range(), (13, 14));
        q.write_out(&files).unwrap();
        let content = std::fs::read(dir.path().join("t/3/00000000000000000200")).unwrap();
        assert_eq!(content.len(), 200);
        assert!(Unit::parse(&content).unwrap().is_pre_blank());
        assert_eq!(Unit::parse(&content[60..]), Some(unit(13)));
        assert_eq!(Unit::parse(&content[80..]), None);
    }

    #[test]
    fn truncation_clears_what_is_behind() {
        let (dir, files, q) = queue();
        for n in 0..25 {
            q.append(&files, n, unit(n), None).unwrap();
        }
        q.write_out(&files).unwrap();
        q.truncate(&files, 12).unwrap();
        assert_eq!((q.range(), q.max_physical()), ((0, 12), 1_200));
        assert!(!dir.path().join("t/3/00000000000000000400").exists());
        let second = std::fs::read(dir.path().join("t/3/00000000000000000200")).unwrap();
        assert!(second[40..].iter().all(|b| *b == 0));
        q.append(&files, 12, unit(12), None).unwrap();
        assert_eq!(q.unit(&files, 12).unwrap(), Some(unit(12)));
        assert_eq!(q.unit(&files, 11).unwrap(), Some(unit(11)));
    }

    #[test]
    fn follows_the_log_when_its_front_goes() {
        let (dir, files, q) = queue();
        for n in 0..25 {
            q.append(&files, n, unit(n), None).unwrap();
        }
        q.write_out(&files).unwrap();
        assert!(q.delete_first_file(&files, 1_350).unwrap());
        assert!(!q.delete_first_file(&files, 1_350).unwrap());
        q.align(&files, 1_350).unwrap();
        assert_eq!(q.range(), (14, 25));
        assert!(!dir.path().join("t/3/00000000000000000000").exists());
        q.align(&files, 1_000_000).unwrap();
        assert_eq!(q.range(), (25, 25), "nothing left: the first offset is the end");
    }
}
