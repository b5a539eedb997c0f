//! A dispatcher: counts messages by topic, and keeps the counts in a file of its own beside the store.
//!
//! ```text
//! cargo run -p ferromq-store --example topic_counts -- <directory of a store>
//! ```
//!
//! The file says up to which log offset it counted. If it's lost or older than the log, the store shows the dispatcher what
//! it lacks; if it's ahead of a log that was cut, it starts over.
#![allow(missing_docs)]

use std::{
    collections::BTreeMap,
    fmt::Write,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use ferromq_store::{Dispatched, Dispatcher, Hooks, Progress, Store, StoreConfig};
use parking_lot::Mutex;

#[derive(Debug, Default)]
struct Counts {
    /// Log offset up to which messages are counted.
    until: i64,
    by_topic: BTreeMap<String, u64>,
}

#[derive(Debug)]
struct TopicCounts {
    path: PathBuf,
    counts: Mutex<Counts>,
}

impl TopicCounts {
    /// Counts on from what the file says, or from the start of the log.
    fn load(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines();
        let until = lines.next().and_then(|l| l.parse().ok()).unwrap_or(0);
        let by_topic = lines
            .filter_map(|line| {
                let (count, topic) = line.split_once(' ')?;
                Some((topic.to_owned(), count.parse().ok()?))
            })
            .collect();
        Self {
            path: path.to_owned(),
            counts: Mutex::new(Counts { until, by_topic }),
        }
    }

    fn save(&self) -> io::Result<()> {
        let counts = self.counts.lock();
        let mut text = format!("{}\n", counts.until);
        for (topic, count) in &counts.by_topic {
            writeln!(text, "{count} {topic}").map_err(io::Error::other)?;
        }
        let aside = self.path.with_extension("tmp");
        fs::write(&aside, text)?;
        fs::rename(aside, &self.path)
    }
}

impl Dispatcher for TopicCounts {
    fn dispatch(&self, record: &Dispatched<'_>) -> io::Result<()> {
        let mut counts = self.counts.lock();
        // Records may come again.
        if record.physical_offset >= counts.until {
            *counts.by_topic.entry(record.topic.to_owned()).or_default() += 1;
            counts.until = record.physical_offset + record.record.len() as i64;
        }
        Ok(())
    }

    fn resume_from(&self) -> Option<i64> {
        Some(self.counts.lock().until)
    }

    fn cut(&self, log_end: i64) -> io::Result<()> {
        let mut counts = self.counts.lock();
        if counts.until > log_end {
            // Which of the counted messages are gone isn't known here: the next start counts anew.
            *counts = Counts::default();
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = PathBuf::from(std::env::args().nth(1).ok_or("name the directory of a store")?);
    let counts = Arc::new(TopicCounts::load(&root.join("topic-counts")));
    let hooks = Hooks {
        dispatchers: vec![counts.clone()],
        ..Hooks::default()
    };
    let config = StoreConfig {
        root,
        ..StoreConfig::default()
    };
    let store = Store::open(config, &Progress::new(), hooks)?;
    store.start()?;
    store.shutdown()?;
    counts.save()?;
    for (topic, count) in &counts.counts.lock().by_topic {
        println!("{count:>12}  {topic}");
    }
    Ok(())
}
