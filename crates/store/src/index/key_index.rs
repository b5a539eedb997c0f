//! All index files: adding a record's keys, looking a key up, rolling, recovery and cleaning.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use ferromq_protocol::java_hash;
use jiff::{Timestamp, tz::TimeZone};
use parking_lot::{Mutex, RwLock};

use super::file::{Header, Shape, Writer, find};
use crate::{checkpoint::Checkpoint, config::Clock};

#[derive(Debug)]
struct Indexed {
    path: PathBuf,
    header: Mutex<Header>,
}

/// The index of the store.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    dir: PathBuf,
    shape: Shape,
    clock: Clock,
    files: RwLock<Vec<Arc<Indexed>>>,
    writer: Mutex<Option<Writer>>,
    dropped: bool,
}

/// What a key is indexed under.
fn index_key(topic: &str, key: &str) -> String {
    format!("{topic}#{key}")
}

fn hash_of(key: &str) -> i32 {
    java_hash::string_hash(key).checked_abs().unwrap_or(0)
}

/// Whether one of a topic's keys is indexed under this hash.
pub(crate) fn hashes_to<'k>(topic: &str, mut keys: impl Iterator<Item = &'k str>, hash: i32) -> bool {
    keys.any(|key| hash_of(&index_key(topic, key)) == hash)
}

fn parse_name(name: &std::ffi::OsStr) -> Option<u64> {
    let name = name.to_str()?;
    if name.len() == 17 && name.bytes().all(|b| b.is_ascii_digit()) {
        name.parse().ok()
    } else {
        None
    }
}

impl KeyIndex {
    /// Loads the files in `dir`. After a stop that wasn't in order, those from the first on that has something newer than
    /// `kept_until` are deleted; indexing has to go on from [`KeyIndex::end`].
    pub(crate) fn load(
        dir: &Path,
        slots: u32,
        entries: u32,
        clock: Clock,
        kept_until: Option<i64>,
    ) -> io::Result<Self> {
        let shape = Shape { slots, entries };
        let mut names = Vec::new();
        match fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            other => {
                for entry in other? {
                    let entry = entry?;
                    if let Some(name) = parse_name(&entry.file_name()) {
                        names.push((name, entry.path()));
                    } else {
                        tracing::warn!(path = %entry.path().display(), "skipping what is no index file");
                    }
                }
            }
        }
        names.sort();
        let mut files = Vec::new();
        let mut dropping = false;
        for (_, path) in names {
            let file = File::options().read(true).write(true).open(&path)?;
            let len = file.metadata()?.len();
            if len > shape.len() {
                tracing::warn!(path = %path.display(), "skipping an index file made with other maxHashSlotNum or maxIndexNum");
                continue;
            }
            if len < shape.len() {
                file.set_len(shape.len())?;
            }
            let header = Header::read(&file)?;
            // One whose head was never written ends before those that are older.
            let before = files
                .last()
                .map_or(0, |f: &Arc<Indexed>| f.header.lock().end_offset);
            let bad = header.count as u32 > entries
                || header.begin_offset < 0
                || header.end_offset < header.begin_offset
                || header.end_offset < before;
            dropping |= bad || kept_until.is_some_and(|until| header.end_time > until);
            if dropping {
                tracing::info!(path = %path.display(), "dropping an index file that may be incomplete");
                fs::remove_file(&path)?;
                continue;
            }
            files.push(Arc::new(Indexed {
                path,
                header: Mutex::new(header),
            }));
        }
        Ok(Self {
            dir: dir.to_owned(),
            shape,
            clock,
            files: RwLock::new(files),
            writer: Mutex::new(None),
            dropped: dropping,
        })
    }

    /// Whether loading deleted files: what they had has to be added again.
    pub(crate) fn was_dropped(&self) -> bool {
        self.dropped
    }

    /// Adds a record under each of `keys`, unless the index is already beyond it.
    pub(crate) fn add<'k>(
        &self,
        checkpoint: &Checkpoint,
        topic: &str,
        keys: impl Iterator<Item = &'k str>,
        offset: i64,
        time: i64,
    ) -> io::Result<()> {
        let mut writer = self.writer.lock();
        let mut scratch = String::new();
        let mut known = None;
        for key in keys.filter(|k| !k.is_empty()) {
            let known = *known.get_or_insert_with(|| self.end().1);
            if offset < known {
                return Ok(());
            }
            scratch.clear();
            scratch.push_str(topic);
            scratch.push('#');
            scratch.push_str(key);
            let file = self.writable(&mut writer, checkpoint)?;
            file.insert(hash_of(&scratch), offset, time)?;
            let header = file.header();
            if let Some(last) = self.files.read().last() {
                *last.header.lock() = header;
            }
        }
        Ok(())
    }

    fn writable<'w>(
        &self,
        slot: &'w mut Option<Writer>,
        checkpoint: &Checkpoint,
    ) -> io::Result<&'w mut Writer> {
        if slot.as_ref().is_some_and(Writer::is_full)
            && let Some(full) = slot.take()
        {
            sync(&full, checkpoint);
            checkpoint.save()?;
        }
        if slot.is_none() {
            let last = self.files.read().last().cloned();
            let header = last.as_ref().map(|l| *l.header.lock());
            *slot = Some(match (last, header) {
                (Some(last), Some(header)) if (header.count as u32) < self.shape.entries => {
                    Writer::open(&last.path, self.shape)?
                }
                (_, header) => self.create(header.unwrap_or_default())?,
            });
        }
        slot.as_mut().ok_or_else(|| io::Error::other("no index file"))
    }

    fn create(&self, before: Header) -> io::Result<Writer> {
        crate::fs::crash_safe::create_dir(&self.dir)?;
        let newest = self
            .files
            .read()
            .last()
            .and_then(|f| parse_name(f.path.file_name()?));
        let name = file_name(self.clock.now());
        // Names sort by age, whatever the clock does.
        let name = newest.map_or(name, |newest| name.max(newest + 1));
        let path = self.dir.join(format!("{name:017}"));
        let writer = Writer::create(&path, self.shape, before.end_time, before.end_offset)?;
        self.files.write().push(Arc::new(Indexed {
            path,
            header: Mutex::new(writer.header()),
        }));
        Ok(writer)
    }

    /// Store time and log offset of the newest indexed record; zeros if there's none.
    pub(crate) fn end(&self) -> (i64, i64) {
        self.files.read().last().map_or((0, 0), |f| {
            let header = f.header.lock();
            (header.end_time, header.end_offset)
        })
    }

    /// Deletes files with something at or beyond log offset `end`: the log was cut there. Returns from where to index again.
    pub(crate) fn cut(&self, end: i64) -> io::Result<Option<i64>> {
        let mut writer = self.writer.lock();
        let mut files = self.files.write();
        let kept = files
            .iter()
            .position(|f| f.header.lock().end_offset >= end)
            .unwrap_or(files.len());
        if kept == files.len() {
            return Ok(None);
        }
        *writer = None;
        for file in files.drain(kept..) {
            tracing::info!(path = %file.path.display(), end, "dropping an index file that reaches beyond the log");
            fs::remove_file(&file.path)?;
        }
        Ok(Some(files.last().map_or(0, |f| f.header.lock().end_offset)))
    }

    /// Bytes of the files, counted as if they had no holes.
    pub(crate) fn bytes(&self) -> u64 {
        let files = self.files.read();
        let newest = files.last().map_or(0, |f| {
            let count = u64::from(f.header.lock().count as u32);
            self.shape.len() - 20 * (u64::from(self.shape.entries).saturating_sub(count))
        });
        (files.len() as u64).saturating_sub(1) * self.shape.len() + newest
    }

    /// Log offsets of records that may carry the key, newest first. Hashes collide: the caller compares keys, and says
    /// by `enough` when to stop.
    pub(crate) fn find(
        &self,
        topic: &str,
        key: &str,
        begin: i64,
        end: i64,
        mut enough: impl FnMut(i64) -> bool,
    ) -> io::Result<()> {
        let hash = hash_of(&index_key(topic, key));
        let files: Vec<_> = self.files.read().iter().rev().cloned().collect();
        for indexed in files {
            let header = *indexed.header.lock();
            if header.begin_time <= end && begin <= header.end_time {
                let file = match File::open(&indexed.path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                    other => other?,
                };
                for offset in find(&file, self.shape, &header, hash, begin, end, 4_096)? {
                    if enough(offset) {
                        return Ok(());
                    }
                }
            }
            if header.begin_time < begin {
                break;
            }
        }
        Ok(())
    }

    /// Waits until the newest file is on the disk, and notes how far that is.
    pub(crate) fn sync(&self, checkpoint: &Checkpoint) {
        if let Some(writer) = self.writer.lock().as_ref() {
            sync(writer, checkpoint);
        }
    }

    /// Deletes files all of whose records are below `log_min`; never the newest.
    pub(crate) fn clean(&self, log_min: i64) -> io::Result<usize> {
        let mut deleted = 0;
        loop {
            let first = {
                let mut files = self.files.write();
                if files.len() < 2 || files[0].header.lock().end_offset >= log_min {
                    return Ok(deleted);
                }
                files.remove(0)
            };
            match fs::remove_file(&first.path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => deleted += 1,
            }
        }
    }
}

/// Waits until a file is on the disk, and notes how far that is. What a sync that failed should have brought there is lost: the
/// next start makes the index again from where it was safe.
fn sync(writer: &Writer, checkpoint: &Checkpoint) {
    let end = writer.header().end_time;
    match writer.sync() {
        Ok(()) => checkpoint.set_index(end),
        Err(error) if checkpoint.lose_index() => {
            tracing::error!(%error, "the disk refused a sync of the index: it is made again at the next start");
        }
        Err(_) => {}
    }
}

/// A new file's name: the local time down to milliseconds.
fn file_name(now: i64) -> u64 {
    let local = Timestamp::from_millisecond(now)
        .unwrap_or_default()
        .to_zoned(TimeZone::system());
    local.strftime("%Y%m%d%H%M%S%3f").to_string().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_17_digits() {
        let name = format!("{:017}", file_name(1_645_600_000_456));
        assert_eq!(name.len(), 17);
        assert!(name.starts_with("202202") && name.ends_with("456"), "{name}");
        assert!(parse_name(name.as_ref()).is_some());
    }

    #[test]
    fn the_worked_example_hashes() {
        assert_eq!(hash_of("TopicTest#k1"), 2_746_024);
        assert_eq!(hash_of(""), 0);
    }

    #[test]
    fn rolls_finds_across_files_and_cleans() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoint = Checkpoint::load(&dir.path().join("checkpoint")).unwrap();
        let at = dir.path().join("index");
        let index = KeyIndex::load(&at, 50, 10, Clock::manual(1_000_000), None).unwrap();
        for n in 0..40 {
            index
                .add(
                    &checkpoint,
                    "t",
                    ["a", "b"].into_iter(),
                    n * 100,
                    50_000 + n * 1_000,
                )
                .unwrap();
        }
        let mut found = Vec::new();
        index
            .find("t", "a", 0, i64::MAX, |o| {
                found.push(o);
                false
            })
            .unwrap();
        assert_eq!(found, (0..40).rev().map(|n| n * 100).collect::<Vec<_>>());
        assert!(checkpoint.index() > 0);
        index.add(&checkpoint, "t", ["a"].into_iter(), 100, 1).unwrap();
        assert_eq!(index.end().1, 3_900, "what is known isn't added again");
        let files = fs::read_dir(&at).unwrap().count();
        let deleted = index.clean(2_000).unwrap();
        assert!(deleted > 0);
        assert_eq!(fs::read_dir(&at).unwrap().count(), files - deleted);
        // After a crash the newest file, which the checkpoint doesn't cover, is made again.
        drop(index);
        let clock = Clock::manual(1_000_000);
        let index = KeyIndex::load(&at, 50, 10, clock, Some(checkpoint.index())).unwrap();
        assert!(index.end().1 > 0 && index.end().1 < 3_900);
        assert_eq!(index.cut(index.end().1 + 1).unwrap(), None);
        let from = index.cut(index.end().1).unwrap().unwrap();
        assert_eq!(from, index.end().1);
    }
}
