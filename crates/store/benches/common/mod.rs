//! What the benches share. With `STORE_BENCH_SMALL` set everything is small: to see that they run.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used)]

use std::{
    fs::File,
    io::Read,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ferromq_store::{Hooks, Progress, Put, PutMessage, Store, StoreConfig};

pub const BODY: usize = 1024;

/// `full`, or `small` where only a run is wanted.
pub fn sized(full: usize, small: usize) -> usize {
    if std::env::var_os("STORE_BENCH_SMALL").is_some() {
        small
    } else {
        full
    }
}

/// A directory on the disk to measure: `STORE_BENCH_DIR`, or the build directory.
pub fn directory() -> tempfile::TempDir {
    let base = std::env::var_os("STORE_BENCH_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")), PathBuf::from);
    tempfile::tempdir_in(base).unwrap()
}

pub fn config(root: &Path) -> StoreConfig {
    StoreConfig {
        root: root.to_owned(),
        commit_log_file_size: sized(1 << 30, 16 << 20) as u64,
        message_index_enable: false,
        // The machine's disk is not what is measured.
        disk_max_used_space_ratio: 95,
        disk_space_clean_forcibly_ratio: 100,
        disk_space_warning_level_ratio: 100,
        delete_when: String::new(),
        ..StoreConfig::default()
    }
}

pub fn open(config: &StoreConfig) -> Store {
    let store = Store::open(config.clone(), &Progress::new(), Hooks::default()).unwrap();
    store.start().unwrap();
    store
}

pub fn put(store: &Store, topic: &str, queue_id: i32, wait: bool) -> Put {
    static BYTES: [u8; BODY] = [7; BODY];
    store
        .put(PutMessage {
            topic,
            queue_id,
            flag: 0,
            sys_flag: 0,
            born_timestamp: 0,
            born_host: store.config().store_host,
            reconsume_times: 0,
            prepared_transaction_offset: 0,
            body: &BYTES,
            properties: "",
            wait_store_ok: wait,
        })
        .unwrap()
}

pub fn dispatched(store: &Store) {
    while store.figures().dispatch_behind > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Drops what the page cache has of all files under a directory.
pub fn forget(dir: &Path) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            forget(&path);
        } else {
            let file = File::open(&path).unwrap();
            file.sync_all().unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
    }
}

/// Bytes a second of reading a log's files from front to end, up to `most`.
pub fn sequential_read(log: &Path, most: u64) -> f64 {
    let mut files: Vec<_> = std::fs::read_dir(log)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    files.sort();
    let mut buffer = vec![0; 1 << 20];
    let begun = Instant::now();
    let mut all = 0;
    for path in files {
        let mut file = File::open(path).unwrap().take(most - all as u64);
        loop {
            match file.read(&mut buffer).unwrap() {
                0 => break,
                n => all += n,
            }
        }
    }
    all as f64 / begun.elapsed().as_secs_f64()
}

/// `fdatasync` calls a second, each after `bytes` were written over blocks that are there.
pub fn sync_rate(dir: &Path, bytes: usize, count: usize) -> f64 {
    let path = dir.join("sync-rate");
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)
        .unwrap();
    let block = vec![7; bytes];
    for n in 0..count as u64 {
        file.write_all_at(&block, n * bytes as u64).unwrap();
    }
    file.sync_all().unwrap();
    let begun = Instant::now();
    for n in 0..count as u64 {
        file.write_all_at(&block, n * bytes as u64).unwrap();
        file.sync_data().unwrap();
    }
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    std::fs::remove_file(path).unwrap();
    rate
}
