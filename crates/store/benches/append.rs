//! Appends of 1 KiB from 1 and 16 threads, acknowledged at once and after a sync; syncs a second against what the disk does.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

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

type Load = fn(&Store, usize, usize) -> Duration;

/// Like [`run`] from tasks, as a broker's connections do it: a thread that waits for nothing else is the dearer way.
fn run_tasks(store: &Store, tasks: usize, count: usize) -> Duration {
    let runtime = tokio::runtime::Builder::new_multi_thread().build().unwrap();
    let begun = Instant::now();
    runtime.block_on(async {
        let running: Vec<_> = (0..tasks)
            .map(|task| {
                let store = store.clone();
                tokio::spawn(async move {
                    for _ in 0..count / tasks {
                        put(&store, "Bench", task as i32, true).ack.await;
                    }
                })
            })
            .collect();
        for one in running {
            one.await.unwrap();
        }
    });
    begun.elapsed()
}

/// Both sides of the ratio are taken in turn, in one run.
fn sync_efficiency(_: &mut Criterion) {
    let dir = directory();
    let mut config = config(dir.path());
    config.flush_mode = FlushMode::Sync;
    let store = open(&config);
    let count = sized(2_000, 50);
    let threads: Load = |store, threads, count| run(store, threads, count as u64, true);
    for (name, load, many) in [
        ("threads", threads, 1),
        ("threads", threads, 16),
        ("tasks", run_tasks, 1),
        ("tasks", run_tasks, 16),
        ("tasks", run_tasks, 64),
    ] {
        let (mut ratios, mut shared) = (Vec::new(), Vec::new());
        for _ in 0..sized(7, 2) {
            let before = store.figures();
            let took = load(&store, many, count * many);
            let after = store.figures();
            let flushes = (after.puts.flushes - before.puts.flushes) as f64;
            let bytes = (after.log_max - before.log_max) as f64 / flushes;
            let plain = sync_rate(dir.path(), bytes as usize, count);
            ratios.push(flushes / took.as_secs_f64() / plain);
            shared.push((count * many) as f64 / flushes);
        }
        ratios.sort_by(f64::total_cmp);
        shared.sort_by(f64::total_cmp);
        println!(
            "sync efficiency, {many} {name}: {:.2} of the rate of plain fdatasync calls for as many bytes (goal 0.9), {:.1} messages a sync",
            ratios[ratios.len() / 2],
            shared[shared.len() / 2]
        );
    }
}

criterion_group!(benches, append, sync_efficiency);
criterion_main!(benches);
