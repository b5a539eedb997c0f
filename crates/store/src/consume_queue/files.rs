//! The open files of all consume queues: a bounded number, the least recently used go first.

use std::{
    collections::HashMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::Mutex;
use rustix::fs::{Advice, SeekFrom};

use crate::fs::{
    crash_safe,
    segment::{file_name, parse_name},
};

type Key = (u32, u64);

#[derive(Debug, Default)]
struct Cache {
    open: HashMap<Key, (Arc<File>, u64)>,
    tick: u64,
}

/// Reads and writes consume queue files by queue and logical offset.
#[derive(Debug)]
pub(crate) struct QueueFiles {
    dir: PathBuf,
    size: u64,
    most: usize,
    cache: Mutex<Cache>,
    ext: Option<Box<Self>>,
    ext_writes: bool,
}

impl QueueFiles {
    /// Files of `size` bytes under `dir`, at most `most` of them open.
    pub(crate) fn new(dir: PathBuf, size: u64, most: usize) -> Self {
        Self {
            dir,
            size,
            most: most.max(8),
            cache: Mutex::default(),
            ext: None,
            ext_writes: false,
        }
    }

    /// Has units extended by what is in `ext`; new units are if `writes`.
    #[must_use]
    pub(crate) fn with_ext(mut self, ext: Self, writes: bool) -> Self {
        self.ext = Some(Box::new(ext));
        self.ext_writes = writes;
        self
    }

    /// Where the extensions of units are, if any may be.
    pub(crate) fn ext(&self) -> Option<&Self> {
        self.ext.as_deref()
    }

    /// Whether new units are extended.
    pub(crate) fn extends(&self) -> bool {
        self.ext_writes
    }

    /// Offsets of the files in a queue's directory, in order.
    pub(crate) fn bases(dir: &Path) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut bases = Vec::new();
        for entry in entries {
            bases.extend(parse_name(&entry?.file_name()));
        }
        bases.sort_unstable();
        Ok(bases)
    }

    /// Bytes of a file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Start of the file that has the logical offset.
    pub(crate) fn base_of(&self, logical: u64) -> u64 {
        logical / self.size * self.size
    }

    /// Directory of a topic.
    pub(crate) fn topic_dir(&self, topic: &str) -> PathBuf {
        self.dir.join(topic)
    }

    /// Directory of a queue.
    pub(crate) fn queue_dir(&self, topic: &str, id: i32) -> PathBuf {
        self.dir.join(topic).join(id.to_string())
    }

    fn cached(&self, key: Key, open: impl FnOnce() -> io::Result<File>) -> io::Result<Arc<File>> {
        let mut cache = self.cache.lock();
        cache.tick += 1;
        let tick = cache.tick;
        if let Some((file, used)) = cache.open.get_mut(&key) {
            *used = tick;
            return Ok(file.clone());
        }
        let file = open()?;
        // Readers say how much they want; reading ahead in holes only fills memory with zeros.
        if let Err(error) = rustix::fs::fadvise(&file, 0, None, Advice::Random) {
            tracing::debug!(%error, "no advice for a consume queue file");
        }
        let file = Arc::new(file);
        if cache.open.len() >= self.most {
            let mut ticks: Vec<u64> = cache.open.values().map(|(_, used)| *used).collect();
            let middle = ticks.len() / 4;
            let (_, oldest, _) = ticks.select_nth_unstable(middle);
            let oldest = *oldest;
            cache.open.retain(|_, (_, used)| *used > oldest);
        }
        cache.open.insert(key, (file.clone(), tick));
        Ok(file)
    }

    /// Forgets the open file, after or before its name goes.
    pub(crate) fn forget(&self, uid: u32, base: u64) {
        self.cache.lock().open.remove(&(uid, base));
    }

    /// Forgets all open files of a queue.
    pub(crate) fn forget_queue(&self, uid: u32) {
        self.cache.lock().open.retain(|(u, _), _| *u != uid);
    }

    /// Number of open files.
    #[cfg(test)]
    pub(crate) fn open_files(&self) -> usize {
        self.cache.lock().open.len()
    }

    fn existing(&self, uid: u32, dir: &Path, base: u64) -> io::Result<Arc<File>> {
        self.cached((uid, base), || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(dir.join(file_name(base)))
        })
    }

    /// Reads what one file has of `[start, start + out.len())`, and says how much that is.
    pub(crate) fn read(&self, uid: u32, dir: &Path, start: u64, out: &mut [u8]) -> io::Result<usize> {
        let base = self.base_of(start);
        let n = ((base + self.size - start) as usize).min(out.len());
        self.existing(uid, dir, base)?
            .read_exact_at(&mut out[..n], start - base)?;
        Ok(n)
    }

    /// Where the first hole of a file begins, or what the file system takes for one.
    pub(crate) fn first_hole(&self, uid: u32, dir: &Path, base: u64) -> io::Result<u64> {
        let file = self.existing(uid, dir, base)?;
        match rustix::fs::seek(&*file, SeekFrom::Hole(0)) {
            Ok(hole) => Ok(hole),
            Err(rustix::io::Errno::NXIO) => Ok(0),
            Err(_) => Ok(self.size),
        }
    }

    /// Writes `bytes` at `start`, over as many files as that takes. Sets `made` if a file had to be made, also if the write
    /// then fails.
    pub(crate) fn write(
        &self,
        uid: u32,
        dir: &Path,
        start: u64,
        bytes: &[u8],
        made: &mut bool,
    ) -> io::Result<()> {
        let mut at = start;
        let mut rest = bytes;
        while !rest.is_empty() {
            let base = self.base_of(at);
            let n = ((base + self.size - at) as usize).min(rest.len());
            let file = self.cached((uid, base), || {
                let path = dir.join(file_name(base));
                let options = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .clone();
                let file = match options.open(&path) {
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {
                        fs::create_dir_all(dir)?;
                        options.open(&path)?
                    }
                    other => other?,
                };
                if file.metadata()?.len() != self.size {
                    *made = true;
                    file.set_len(self.size)?;
                }
                Ok(file)
            })?;
            file.write_all_at(&rest[..n], at - base)?;
            at += n as u64;
            rest = &rest[n..];
        }
        Ok(())
    }

    /// Waits until the files of `[start, end)` are on the disk, and their names if `names`.
    pub(crate) fn sync(&self, uid: u32, dir: &Path, start: u64, end: u64, names: bool) -> io::Result<()> {
        let mut base = self.base_of(start);
        while base < end {
            self.existing(uid, dir, base)?.sync_data()?;
            base += self.size;
        }
        if names {
            crash_safe::sync_dir(dir)?;
            for above in dir.ancestors().skip(1).take(2) {
                crash_safe::sync_dir(above)?;
            }
        }
        Ok(())
    }

    /// Makes everything from `from` to the end of its file read as nothing; `true` if there was something.
    pub(crate) fn clear_tail(&self, uid: u32, dir: &Path, from: u64) -> io::Result<bool> {
        let base = self.base_of(from);
        let file = match self.existing(uid, dir, base) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            other => other?,
        };
        crash_safe::zero(&file, from - base, self.size, false)
    }

    /// Deletes one file; it's fine if it isn't there.
    pub(crate) fn delete(&self, uid: u32, dir: &Path, base: u64) -> io::Result<()> {
        self.forget(uid, base);
        match fs::remove_file(dir.join(file_name(base))) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Syncs the whole file system that the queues are on.
    pub(crate) fn sync_all(&self) -> io::Result<()> {
        match File::open(&self.dir) {
            Ok(dir) => Ok(rustix::fs::syncfs(&dir)?),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_over_a_file_end_and_keeps_few_open() {
        let root = tempfile::tempdir().unwrap();
        let files = QueueFiles::new(root.path().to_owned(), 40, 8);
        for id in 0..50u32 {
            let dir = files.queue_dir("t", id as i32);
            let mut made = false;
            files.write(id, &dir, 20, &[id as u8; 100], &mut made).unwrap();
            assert!(made);
            assert!(files.open_files() <= 8);
        }
        for id in 0..50u32 {
            let dir = files.queue_dir("t", id as i32);
            let mut out = [0; 100];
            assert_eq!(files.read(id, &dir, 20, &mut out).unwrap(), 20);
            assert_eq!(files.read(id, &dir, 40, &mut out).unwrap(), 40);
            assert_eq!(out[..40], [id as u8; 40]);
            assert_eq!(fs::read_dir(&dir).unwrap().count(), 3);
            assert!(
                fs::read_dir(&dir)
                    .unwrap()
                    .all(|e| e.unwrap().metadata().unwrap().len() == 40)
            );
        }
    }
}
