//! Makes a store with many queues, and tells what it takes to open it, to start it and to append to all of them.
//!
//! ```text
//! cargo run --release -p ferromq-store --example many_queues -- <directory> [queues] [messages]
//! ```
#![allow(missing_docs)]

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use ferromq_store::{Hooks, Progress, PutMessage, Store, StoreConfig};

fn open(config: &StoreConfig) -> Result<Store, Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let store = Store::open(config.clone(), &Progress::new(), Hooks::default())?;
    let opened = begun.elapsed();
    store.start()?;
    println!(
        "open {opened:?}, start {:?}",
        begun.elapsed().saturating_sub(opened)
    );
    Ok(store)
}

fn memory() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with("RssAnon:")).unwrap_or("");
    line.split_ascii_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .unwrap_or(0)
}

fn count(dir: &str) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

fn append(store: &Store, topics: &[String], messages: usize) -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    let body = [7u8; 1024];
    for n in 0..messages {
        store.put(PutMessage {
            topic: &topics[n / 8 % topics.len()],
            queue_id: (n % 8) as i32,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: store.config().store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &body,
            properties: "",
            wait_store_ok: false,
        })?;
    }
    let appended = begun.elapsed();
    while store.figures().dispatch_behind > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    println!(
        "appended {messages} in {appended:?} ({:.0}/s), dispatched after {:?}",
        messages as f64 / appended.as_secs_f64(),
        begun.elapsed()
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let root = PathBuf::from(args.next().ok_or("name a directory")?);
    let queues: usize = args.next().map_or(Ok(100_000), |n| n.parse())?;
    let messages: usize = args.next().map_or(Ok(queues * 2), |n| n.parse())?;
    let config = StoreConfig {
        root,
        disk_space_warning_level_ratio: 100,
        disk_space_clean_forcibly_ratio: 100,
        message_index_enable: false,
        ..StoreConfig::default()
    };
    let topics: Vec<String> = (0..queues.div_ceil(8)).map(|n| format!("Topic{n}")).collect();
    let before = memory();
    let store = open(&config)?;
    append(&store, &topics, messages)?;
    std::thread::sleep(Duration::from_secs(4));
    let figures = store.figures();
    println!(
        "{} queues, {} KiB of memory for all, {} descriptors, {} mappings",
        figures.queues,
        memory() - before,
        count("/proc/self/fd"),
        fs::read_to_string("/proc/self/maps")?.lines().count()
    );
    let begun = Instant::now();
    store.shutdown()?;
    drop(store);
    println!("stop {:?}", begun.elapsed());
    let before = memory();
    let store = open(&config)?;
    println!(
        "after a stop: {} KiB of memory for {} queues",
        memory().saturating_sub(before),
        store.figures().queues
    );
    drop(store);
    println!("after a kill:");
    let store = open(&config)?;
    store.shutdown()?;
    Ok(())
}
