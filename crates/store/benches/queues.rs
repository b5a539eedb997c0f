//! Appends to 10,000 and 100,000 queues against 8, and what many queues take to open.
#![allow(missing_docs)]

mod common;

use std::time::Instant;

use common::{config, directory, dispatched, open, put, sized};
use criterion::{Criterion, criterion_group, criterion_main};
use ferromq_store::Store;

/// Messages a second over so many queues, dispatched.
fn rate(store: &Store, topics: &[String], messages: usize) -> f64 {
    let begun = Instant::now();
    for n in 0..messages {
        put(store, &topics[n / 8 % topics.len()], (n % 8) as i32, false);
    }
    dispatched(store);
    messages as f64 / begun.elapsed().as_secs_f64()
}

fn closed(store: Store) {
    if let Err(error) = store.shutdown() {
        println!("not closed in order: {error}");
    }
    drop(store);
}

fn queues(_: &mut Criterion) {
    let few = vec!["Few".to_owned()];
    for count in [sized(10_000, 80), sized(100_000, 800)] {
        let topics: Vec<String> = (0..count / 8).map(|n| format!("Topic{n}")).collect();
        let dir = directory();
        let config = config(dir.path());
        // Queues and their files are made once, and are all on the disk before what is measured begins.
        let store = open(&config);
        rate(&store, &topics, count);
        closed(store);
        let store = open(&config);
        // Few enough that the kernel doesn't hold writers back.
        let messages = sized(150_000, 1_600);
        let mut ratios = Vec::new();
        for n in 0..sized(8, 2) {
            let mut rates = [0.0; 2];
            let mut order = [0, 1];
            order.rotate_left(n % 2);
            for which in order {
                rates[which] = rate(&store, [&few, &topics][which], messages);
            }
            ratios.push(rates[1] / rates[0]);
        }
        ratios.sort_by(f64::total_cmp);
        println!(
            "{count} queues: {:.2} of the rate of 8 (goal 0.85)",
            ratios[ratios.len() / 2]
        );
        closed(store);
        let begun = Instant::now();
        let store = open(&config);
        println!(
            "{count} queues: open after {:?} (goal 2 s for 100,000)",
            begun.elapsed()
        );
        drop(store);
    }
}

criterion_group!(benches, queues);
criterion_main!(benches);
