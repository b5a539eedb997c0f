//! `bench send`: numbered messages, as fast as it goes or at a steady rate.
//!
//! A failed send is repeated with the same numbers until it is acknowledged or `--retry-for` is over, so that what is
//! acknowledged is known exactly. At a steady rate each send has its time; what comes late is measured from that time,
//! so that a stall shows in all the sends that it delayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ferromq_client::{ClientError, Message, Producer, ProducerConfig, SendStatus};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::ledger::Ledger;
use super::{PAUSE, Progress, Times, histogram, payload, rate, record, rounded};
use crate::cli::BenchSend;
use crate::context::Context;
use crate::output;

#[derive(Serialize)]
struct Report<'a> {
    bench: &'static str,
    topic: &'a str,
    run: &'a str,
    count: u64,
    sent: u64,
    failed: u64,
    /// Sends that were repeated by this program, on top of the client's own attempts.
    repeated: u64,
    /// Acknowledged, but not (yet) on disk or at a slave as the broker is configured for.
    unsafely_stored: u64,
    size: u32,
    batch: u32,
    concurrency: u32,
    seconds: f64,
    rate_per_second: f64,
    mib_per_second: f64,
    latency_ms: Times,
    first_error: Option<String>,
}

struct Shared {
    args: BenchSend,
    run: String,
    producer: Producer,
    next: AtomicU64,
    sent: AtomicU64,
    failed: AtomicU64,
    repeated: AtomicU64,
    unsafely: AtomicU64,
    acknowledged: Option<Mutex<Ledger>>,
    first_error: Mutex<Option<ClientError>>,
    started: Instant,
    stop: CancellationToken,
}

pub(crate) async fn run(cx: &Context, args: BenchSend) -> anyhow::Result<()> {
    let run = args.run.clone().unwrap_or_else(new_run);
    let client = cx.client()?;
    let config = ProducerConfig::new("ferroctl_bench_producer")
        .with_send_timeout(cx.timeout())
        .with_compress_from(None);
    let producer = client.producer(config);
    // The first look at the route fails early when the topic cannot be sent to.
    let queues = producer.queues(&args.topic).await?;
    eprintln!(
        "run {run}: {} messages to {} over {} queues",
        args.count,
        args.topic,
        queues.len()
    );
    let shared = Arc::new(Shared {
        acknowledged: args
            .acknowledged
            .as_ref()
            .map(|_| Mutex::new(Ledger::new(args.count))),
        run,
        producer,
        next: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        repeated: AtomicU64::new(0),
        unsafely: AtomicU64::new(0),
        first_error: Mutex::new(None),
        started: Instant::now(),
        stop: CancellationToken::new(),
        args,
    });
    let mut workers = JoinSet::new();
    for _ in 0..shared.args.concurrency {
        workers.spawn(work(Arc::clone(&shared)));
    }
    let times = watch(&shared, &mut workers).await?;
    let seconds = shared.started.elapsed().as_secs_f64();
    client.shutdown().await;
    report(&shared, &times, seconds)
}

/// Shows progress until every worker has ended; a signal ends them early.
async fn watch(shared: &Shared, workers: &mut JoinSet<Histogram<u64>>) -> anyhow::Result<Histogram<u64>> {
    let mut progress = Progress::new("sent", shared.args.count);
    let mut times = histogram();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tokio::select! {
            ended = workers.join_next() => match ended {
                Some(ended) => times.add(ended.context("a worker panicked")?).context("add up the times")?,
                None => break,
            },
            _ = tick.tick() => progress.set(shared.sent.load(Ordering::Relaxed)),
            _ = tokio::signal::ctrl_c(), if !shared.stop.is_cancelled() => shared.stop.cancel(),
        }
    }
    progress.finish();
    Ok(times)
}

fn report(shared: &Shared, times: &Histogram<u64>, seconds: f64) -> anyhow::Result<()> {
    let args = &shared.args;
    if let (Some(path), Some(ledger)) = (&args.acknowledged, &shared.acknowledged) {
        let text = ledger.lock().to_text();
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    let (sent, failed) = (
        shared.sent.load(Ordering::Relaxed),
        shared.failed.load(Ordering::Relaxed),
    );
    let first_error = shared.first_error.lock().take();
    let bytes = sent as f64 * f64::from(args.size) / 1_048_576.0;
    output::print_line(&Report {
        bench: "send",
        topic: &args.topic,
        run: &shared.run,
        count: args.count,
        sent,
        failed,
        repeated: shared.repeated.load(Ordering::Relaxed),
        unsafely_stored: shared.unsafely.load(Ordering::Relaxed),
        size: args.size,
        batch: args.batch,
        concurrency: args.concurrency,
        seconds: rounded(seconds),
        rate_per_second: rate(sent, seconds),
        mib_per_second: if seconds > 0.0 {
            (bytes / seconds * 100.0).round() / 100.0
        } else {
            0.0
        },
        latency_ms: Times::of(times),
        first_error: first_error.as_ref().map(ToString::to_string),
    })?;
    if sent == args.count {
        return Ok(());
    }
    let missing = args.count - sent;
    match first_error {
        Some(error) => {
            Err(anyhow::Error::new(error).context(format!("{missing} messages were not acknowledged")))
        }
        None => Err(anyhow::anyhow!("stopped with {missing} messages not sent")),
    }
}

async fn work(shared: Arc<Shared>) -> Histogram<u64> {
    let mut times = histogram();
    let args = &shared.args;
    let batch = u64::from(args.batch);
    while !shared.stop.is_cancelled() {
        let from = shared.next.fetch_add(batch, Ordering::Relaxed);
        if from >= args.count {
            break;
        }
        let numbers = from..(from + batch).min(args.count);
        let due = args
            .rate
            .map(|rate| shared.started + Duration::from_secs_f64(from as f64 / f64::from(rate)));
        if let Some(due) = due {
            tokio::time::sleep_until(due.into()).await;
        }
        let begun = due.unwrap_or_else(Instant::now);
        let count = numbers.end - numbers.start;
        match send_until_acknowledged(&shared, numbers.clone()).await {
            Ok(status) => {
                record(&mut times, begun.elapsed());
                shared.sent.fetch_add(count, Ordering::Relaxed);
                if status != SendStatus::Stored {
                    shared.unsafely.fetch_add(count, Ordering::Relaxed);
                }
                if let Some(ledger) = &shared.acknowledged {
                    let mut ledger = ledger.lock();
                    for number in numbers {
                        ledger.note(number);
                    }
                }
            }
            Err(error) => {
                shared.failed.fetch_add(count, Ordering::Relaxed);
                shared.first_error.lock().get_or_insert(error);
                // What could not be sent for so long will not be sent a moment later.
                shared.stop.cancel();
            }
        }
    }
    times
}

async fn send_until_acknowledged(
    shared: &Shared,
    numbers: std::ops::Range<u64>,
) -> Result<SendStatus, ClientError> {
    let size = shared.args.size as usize;
    let message = |number| Message::new(&shared.args.topic, payload::encode(&shared.run, number, size));
    let messages: Vec<Message> = numbers.map(message).collect();
    let give_up = Instant::now() + shared.args.retry_for;
    loop {
        let sent = match messages.as_slice() {
            [one] => shared.producer.send(one.clone()).await,
            many => shared.producer.send_batch(many.to_vec()).await,
        };
        let error = match sent {
            Ok(receipt) => return Ok(receipt.status),
            Err(error) => error,
        };
        let hopeless = matches!(
            error,
            ClientError::InvalidMessage { .. } | ClientError::NotSent { .. }
        ) || error.code() == Some(13);
        if hopeless || Instant::now() >= give_up || shared.stop.is_cancelled() {
            return Err(error);
        }
        shared.repeated.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
}

fn new_run() -> String {
    let now = jiff::Timestamp::now();
    format!("{}-{}", now.strftime("%Y%m%dT%H%M%S"), std::process::id())
}
