//! Appends of 1 KiB from 1 and 16 threads, acknowledged at once and after a sync; syncs a second against what the disk does.
#![allow(missing_docs)]

mod common;

use std::time::{Duration, Instant};

use common::{BODY, config, directory, open, put, sized, sync_rate};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferromq_store::{FlushMode, Store};

/// Appends `count` messages from `threads` threads.
fn run(store: &Store, threads: usize, count: u64, wait: bool) -> Duration {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let share = count / threads as u64 + u64::from((thread as u64) < count % threads as u64);
            scope.spawn(move || {
                for _ in 0..share {
                    let put = put(store, "Bench", thread as i32, wait);
                    if wait {
                        put.ack.wait();
                    }
                }
            });
        }
    });
    begun.elapsed()
}

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(sized(10, 1) as u64))
        .throughput(Throughput::Bytes(BODY as u64));
    for threads in [1, 16] {
        for mode in [FlushMode::Async, FlushMode::Sync] {
            let dir = directory();
            let mut config = config(dir.path());
            config.flush_mode = mode;
            let store = open(&config);
            group.bench_function(format!("{mode:?}/{threads} threads"), |b| {
                b.iter_custom(|count| run(&store, threads, count, mode == FlushMode::Sync));
            });
        }
    }
    group.finish();
}

/// Both sides of the ratio are taken in turn, in one run.
fn sync_efficiency(_: &mut Criterion) {
    let dir = directory();
    let mut config = config(dir.path());
    config.flush_mode = FlushMode::Sync;
    let store = open(&config);
    let count = sized(2_000, 50);
    for threads in [1, 16] {
        let mut ratios = Vec::new();
        for _ in 0..sized(7, 2) {
            let plain = sync_rate(dir.path(), count);
            let before = store.figures().puts.flushes;
            let took = run(&store, threads, (count * threads) as u64, true);
            let flushes = store.figures().puts.flushes - before;
            ratios.push(flushes as f64 / took.as_secs_f64() / plain);
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "sync efficiency, {threads} threads: {:.2} of the plain fdatasync rate (goal 0.9)",
            ratios[ratios.len() / 2]
        );
    }
}

criterion_group!(benches, append, sync_efficiency);
criterion_main!(benches);
