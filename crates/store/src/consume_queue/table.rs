//! All queues by topic and number.

use std::{
    collections::HashMap,
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use super::{files::QueueFiles, queue::Queue};

/// From this many queues on one sync of the whole file system is cheaper than one a file.
const MANY: usize = 256;

/// A queue with less to write than this is left for later: a small write costs as much as a large one.
const WORTH: usize = 4 << 10;
/// With more than this to write, in all queues, none is left.
const MOST_UNWRITTEN: usize = 16 << 20;

/// The queues of one topic, by number.
type Topic = Vec<Arc<Queue>>;

/// All queues, and the list of those with something to write.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) files: QueueFiles,
    topics: RwLock<HashMap<Arc<str>, Topic>>,
    uids: AtomicU32,
    to_write: Mutex<Vec<Arc<Queue>>>,
    /// While one thread goes through the list, no other may think that it has seen all.
    one_writer: Mutex<()>,
}

impl Queues {
    pub(crate) fn new(files: QueueFiles) -> Self {
        Self {
            files,
            topics: RwLock::default(),
            uids: AtomicU32::new(0),
            to_write: Mutex::default(),
            one_writer: Mutex::default(),
        }
    }

    /// The queue, if there is one.
    pub(crate) fn find(&self, topic: &str, id: i32) -> Option<Arc<Queue>> {
        let topics = self.topics.read();
        let queues = topics.get(topic)?;
        // Most topics have queues 0, 1, 2 …
        if let Some(queue) = usize::try_from(id).ok().and_then(|i| queues.get(i))
            && queue.id() == id
        {
            return Some(queue.clone());
        }
        queues
            .binary_search_by_key(&id, |q| q.id())
            .ok()
            .map(|i| queues[i].clone())
    }

    /// The queue, made if there's none.
    pub(crate) fn find_or_make(&self, topic: &str, id: i32) -> Arc<Queue> {
        if let Some(queue) = self.find(topic, id) {
            return queue;
        }
        let mut topics = self.topics.write();
        let name = topics
            .get_key_value(topic)
            .map_or_else(|| Arc::from(topic), |(k, _)| k.clone());
        let queues = topics.entry(name.clone()).or_default();
        match queues.binary_search_by_key(&id, |q| q.id()) {
            Ok(i) => queues[i].clone(),
            Err(i) => {
                let queue = Arc::new(Queue::new(name, id, self.uids.fetch_add(1, Ordering::Relaxed)));
                queues.insert(i, queue.clone());
                queue
            }
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<Queue>> {
        self.topics.read().values().flatten().cloned().collect()
    }

    /// Number of topics whose names are such.
    pub(crate) fn count_topics(&self, such: impl Fn(&str) -> bool) -> usize {
        self.topics.read().keys().filter(|topic| such(topic)).count()
    }

    pub(crate) fn len(&self) -> usize {
        self.topics.read().values().map(Vec::len).sum()
    }

    /// Names of all topics with queues.
    pub(crate) fn topics(&self) -> Vec<Arc<str>> {
        self.topics.read().keys().cloned().collect()
    }

    /// Puts a queue on the list of those to write.
    pub(crate) fn list(&self, queue: Arc<Queue>) {
        self.to_write.lock().push(queue);
    }

    /// Writes out what queues have in memory only. Those that had news stay on the list; the first error is told after
    /// all were tried.
    pub(crate) fn write_out(&self) -> io::Result<()> {
        self.write(|_| 0)
    }

    /// Like [`Queues::write_out`] for queues where it's worth it: what stays in memory is little, and comes out of the log
    /// again after a kill.
    pub(crate) fn write_worthy(&self) -> io::Result<()> {
        self.write(|listed| {
            let unwritten = listed.iter().map(|queue| queue.unwritten()).sum::<usize>();
            if unwritten > MOST_UNWRITTEN { 0 } else { WORTH }
        })
    }

    /// Writes out those queues on the list that have nothing to write, or so much as `worth` says.
    fn write(&self, worth: impl Fn(&[Arc<Queue>]) -> usize) -> io::Result<()> {
        let _one = self.one_writer.lock();
        let listed = std::mem::take(&mut *self.to_write.lock());
        let worth = worth(&listed);
        let mut result = Ok(());
        let mut stay = Vec::new();
        for queue in &listed {
            if (1..worth).contains(&queue.unwritten()) {
                stay.push(queue.clone());
                continue;
            }
            match queue.write_out(&self.files) {
                Ok(true) => {}
                Ok(false) => stay.push(queue.clone()),
                Err(error) => {
                    stay.push(queue.clone());
                    if result.is_ok() {
                        result = Err(error);
                    }
                }
            }
        }
        self.to_write.lock().append(&mut stay);
        result
    }

    /// Waits until everything written is on the disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let unsynced: Vec<_> = self.all().into_iter().filter(|q| q.unsynced()).collect();
        if unsynced.len() > MANY {
            let marks: Vec<_> = unsynced.iter().map(|q| q.marks()).collect();
            let ext = self.files.ext().map_or(Ok(()), QueueFiles::sync_all);
            let synced = ext.and_then(|()| self.files.sync_all());
            for (queue, marks) in unsynced.iter().zip(marks) {
                queue.note_synced(&marks, synced.is_ok());
            }
            return synced;
        }
        unsynced.iter().try_for_each(|queue| queue.sync(&self.files))
    }

    /// Takes a topic's queues away and deletes their files.
    pub(crate) fn remove_topic(&self, topic: &str) -> io::Result<()> {
        let Some(queues) = self.topics.write().remove(topic) else {
            return Ok(());
        };
        for queue in &queues {
            queue.kill();
            // Whoever is writing the queue finishes before its files go.
            drop(queue.state.lock());
            self.files.forget_queue(queue.uid);
        }
        if let Some(ext) = self.files.ext() {
            for queue in &queues {
                ext.forget_queue(queue.uid);
            }
            remove_dir(&ext.topic_dir(topic))?;
        }
        remove_dir(&self.files.topic_dir(topic))
    }

    /// Takes one queue away and deletes its files, and the topic's directory with its last queue.
    pub(crate) fn remove_queue(&self, queue: &Queue) -> io::Result<()> {
        {
            let mut topics = self.topics.write();
            if let Some(queues) = topics.get_mut(queue.topic().as_ref()) {
                queues.retain(|q| q.id() != queue.id());
                if queues.is_empty() {
                    topics.remove(queue.topic().as_ref());
                }
            }
        }
        queue.kill();
        drop(queue.state.lock());
        for files in self.files.ext().into_iter().chain([&self.files]) {
            files.forget_queue(queue.uid);
            remove_dir(&files.queue_dir(queue.topic(), queue.id()))?;
            if let Err(error) = fs::remove_dir(files.topic_dir(queue.topic()))
                && !matches!(
                    error.kind(),
                    io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound
                )
            {
                return Err(error);
            }
        }
        Ok(())
    }
}

fn remove_dir(dir: &std::path::Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::consume_queue::{Appended, Unit};

    #[test]
    fn after_write_out_everything_is_written_whoever_else_is_at_it() {
        let dir = tempfile::tempdir().unwrap();
        let queues = Queues::new(QueueFiles::new(dir.path().to_owned(), 2_000, 16));
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    queues.write_out().unwrap();
                }
            });
            for n in 0..2_000 {
                let queue = queues.find_or_make("t", n as i32 % 5);
                let unit = Unit {
                    physical: n * 10,
                    size: 10,
                    tags_code: 0,
                };
                if queue.append(&queues.files, n / 5, unit, None).unwrap() == Appended::Yes(true) {
                    queues.list(queue.clone());
                }
                queues.write_out().unwrap();
                assert_eq!(queue.written(), (n as u64 / 5 + 1) * 20);
            }
            done.store(true, Ordering::Release);
        });
    }

    #[test]
    fn a_few_units_stay_in_memory_until_there_are_many() {
        let dir = tempfile::tempdir().unwrap();
        let queues = Queues::new(QueueFiles::new(dir.path().to_owned(), 2_000, 16));
        let mut log_offset = 0;
        let mut append = |id: i32, count: usize| {
            let queue = queues.find_or_make("t", id);
            for _ in 0..count {
                let unit = Unit {
                    physical: log_offset,
                    size: 10,
                    tags_code: 0,
                };
                log_offset += 10;
                let next = queue.range().1;
                if queue.append(&queues.files, next, unit, None).unwrap() == Appended::Yes(true) {
                    queues.list(queue.clone());
                }
            }
            queue
        };
        let (few, many) = (append(0, 3), append(1, WORTH / 20 + 1));
        queues.write_worthy().unwrap();
        assert_eq!((few.unwritten(), many.unwritten()), (60, 0));
        append(0, WORTH / 20);
        queues.write_worthy().unwrap();
        assert_eq!(few.unwritten(), 0);
        let each = WORTH / 20 - 1;
        let all: Vec<_> = (2..2 + (MOST_UNWRITTEN / (each * 20)) as i32)
            .map(|id| append(id, each))
            .collect();
        queues.write_worthy().unwrap();
        assert!(all.iter().all(|queue| queue.unwritten() == each * 20));
        append(0, each);
        queues.write_worthy().unwrap();
        assert!(all.iter().all(|queue| queue.unwritten() == 0));
        append(0, 1);
        queues.write_out().unwrap();
        assert_eq!(few.unwritten(), 0);
    }

    #[test]
    fn queues_are_found_by_number_whatever_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let queues = Queues::new(QueueFiles::new(dir.path().to_owned(), 2_000, 16));
        for id in [7, 0, 3, 1] {
            assert_eq!(queues.find_or_make("t", id).id(), id);
        }
        assert!(
            queues.find("t", 2).is_none() && queues.find("u", 0).is_none() && queues.find("t", -1).is_none()
        );
        let three = queues.find("t", 3).unwrap();
        assert!(Arc::ptr_eq(&three, &queues.find_or_make("t", 3)));
        assert_eq!(queues.len(), 4);
        queues.remove_queue(&three).unwrap();
        assert!(three.is_dead() && queues.find("t", 3).is_none());
        queues.remove_topic("t").unwrap();
        assert_eq!(queues.len(), 0);
    }
}
