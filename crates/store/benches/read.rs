//! Reading a queue from front to end: from the page cache, and from the disk.
#![allow(missing_docs, clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::{BODY, config, directory, dispatched, forget, open, put, sequential_read, sized};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferromq_store::{GetRequest, NoFilter, Store};

/// Reads a queue up to an offset in answers of 32; bytes read.
fn read_to(store: &Store, end: i64) -> usize {
    let (mut offset, mut bytes) = (0, 0);
    while offset < end {
        let request = GetRequest {
            topic: "Bench",
            queue_id: 0,
            offset,
            max_messages: 32,
        };
        let Ok(result) = store.get(&request, &NoFilter) else {
            break;
        };
        for chunk in &result.chunks {
            std::hint::black_box(chunk.iter().step_by(64).fold(0u8, |a, b| a ^ b));
        }
        bytes += result.bytes;
        offset = result.next_offset;
    }
    bytes
}

fn read(c: &mut Criterion) {
    let dir = directory();
    let mut config = config(dir.path());
    config.commit_log_file_size = sized(64 << 20, 256 << 10) as u64;
    config.max_transfer_bytes_on_disk = config.max_transfer_bytes_in_memory;
    config.max_transfer_count_on_disk = config.max_transfer_count_in_memory;
    let store = open(&config);
    let count = sized(1_000_000, 2_000);
    for _ in 0..count {
        put(&store, "Bench", 0, false);
    }
    dispatched(&store);
    let mut group = c.benchmark_group("read");
    group
        .sample_size(10)
        .measurement_time(Duration::from_secs(sized(10, 1) as u64))
        .throughput(Throughput::Bytes((count * BODY) as u64));
    group.bench_function("hot", |b| b.iter(|| read_to(&store, count as i64)));
    group.finish();

    // What an opening looks at comes last and isn't read: the cache would have it.
    let most = count as i64 * 3 / 4;
    store.shutdown().unwrap();
    drop(store);
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..sized(5, 1) {
        forget(dir.path());
        let plain = sequential_read(&config.commit_log_dir(), most as u64 * BODY as u64);
        forget(dir.path());
        let store = open(&config);
        let begun = Instant::now();
        let bytes = read_to(&store, most);
        let rate = bytes as f64 / begun.elapsed().as_secs_f64();
        store.shutdown().unwrap();
        ratios.push(rate / plain);
        rates.push(rate / f64::from(1 << 30));
    }
    ratios.sort_by(f64::total_cmp);
    rates.sort_by(f64::total_cmp);
    println!(
        "cold read: {:.2} GiB/s, {:.2} of a plain sequential read (goal 0.85)",
        rates[rates.len() / 2],
        ratios[ratios.len() / 2]
    );
}

criterion_group!(benches, read);
criterion_main!(benches);
