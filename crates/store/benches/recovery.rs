//! Opening after a kill, against a plain sequential read of the log; cached and from the disk.
#![allow(missing_docs)]

mod common;

use std::time::Instant;

use common::{config, directory, dispatched, forget, open, put, sequential_read, sized};
use criterion::{Criterion, criterion_group, criterion_main};

fn recovery(_: &mut Criterion) {
    let dir = directory();
    let config = config(dir.path());
    let count = sized(900_000, 2_000);
    let store = open(&config);
    for n in 0..count {
        put(&store, "Bench", (n % 8) as i32, false);
    }
    dispatched(&store);
    let log_bytes = store.figures().log_max as u64;
    // Without a stop in order: as a kill leaves it.
    drop(store);
    let checkpoint = config.root.join("checkpoint");
    for cold in [false, true] {
        let mut figures = Vec::new();
        for _ in 0..sized(5, 1) {
            // All of the log is read, and all of the queues are made.
            for gone in [config.consume_queue_dir(), config.index_dir()] {
                std::fs::remove_dir_all(gone).ok();
            }
            std::fs::remove_file(&checkpoint).ok();
            if cold {
                forget(dir.path());
            }
            let plain = sequential_read(&config.commit_log_dir(), log_bytes);
            if cold {
                forget(dir.path());
            }
            let begun = Instant::now();
            let store = open(&config);
            let rate = log_bytes as f64 / begun.elapsed().as_secs_f64();
            drop(store);
            figures.push((rate / plain, rate));
        }
        figures.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (ratio, rate) = figures[figures.len() / 2];
        println!(
            "recovery, {}: {:.2} GiB/s, {ratio:.2} of a plain sequential read (floor 0.8)",
            if cold { "from the disk" } else { "cached" },
            rate / f64::from(1 << 30)
        );
    }
}

criterion_group!(benches, recovery);
criterion_main!(benches);
