//! `bench receive`: all messages of a run, each at least once.
//!
//! It ends when every number expected has come, or when nothing new has come for `--idle`. Missing numbers make it
//! fail; duplicates are counted and shown, since "at least once" allows them.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use ferromq_client::{
    Client, ClientError, ConsumerStream, Filter, PushConsumerConfig, ReceivedMessage, StartFrom,
};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::ledger::Ledger;
use super::{PAUSE, Progress, Times, histogram, payload, rate, record, rounded};
use crate::cli::BenchReceive;
use crate::context::Context;
use crate::output;

#[derive(Serialize)]
struct Report<'a> {
    bench: &'static str,
    topic: &'a str,
    group: &'a str,
    run: Option<&'a str>,
    expected: u64,
    /// Different messages of the run; without a run, all messages.
    received: u64,
    missing: u64,
    /// The first missing numbers as ranges FROM-TO.
    missing_first: String,
    duplicates: u64,
    /// Messages of other runs and programs.
    foreign: u64,
    /// Messages of the run with numbers at or above the count.
    beyond: u64,
    /// Messages whose body cannot be read.
    damaged: u64,
    seconds: f64,
    rate_per_second: f64,
    /// From the sender's clock to ours, per message.
    age_ms: Times,
}

/// What has come.
struct Tally {
    run: Option<String>,
    expected: Ledger,
    seen: Ledger,
    any: u64,
    foreign: u64,
    damaged: u64,
    ages: Histogram<u64>,
}

pub(crate) async fn run(cx: &Context, args: BenchReceive) -> anyhow::Result<()> {
    let expected = match &args.acknowledged {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
            Ledger::from_text(&text, args.count)
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("read {} as ranges below --count {}", path.display(), args.count))?
        }
        None => Ledger::full(args.count),
    };
    let mut tally = Tally {
        run: args.run.clone(),
        seen: Ledger::new(args.count),
        expected,
        any: 0,
        foreign: 0,
        damaged: 0,
        ages: histogram(),
    };
    let client = cx.client()?;
    let batch = args.pull_batch.clamp(1, 1024);
    let mut config = PushConsumerConfig::new(&args.group)
        .subscribe(&args.topic, Filter::All)
        .with_start(StartFrom::Oldest)
        .with_concurrency(64)
        .with_batch(batch as usize);
    config.pull_batch = i32::try_from(batch).unwrap_or(1024);
    if args.from_start {
        config = config.ignoring_stored();
    }
    let mut consumer = start_consumer(&client, &args.topic, config, args.idle).await?;
    let started = Instant::now();
    let mut progress = Progress::new("received", tally.expected.distinct());
    let mut last_new = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    while !tally.complete() && last_new.elapsed() < args.idle {
        tokio::select! {
            incoming = consumer.next() => {
                let Some(incoming) = incoming else { break };
                let before = tally.received();
                let now = SystemTime::now();
                incoming.delivery.messages.iter().for_each(|message| tally.note(message, now));
                if tally.received() > before {
                    last_new = Instant::now();
                }
                incoming.done();
            }
            _ = tick.tick() => progress.set(tally.received()),
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    progress.finish();
    let seconds = started.elapsed().as_secs_f64();
    if let Err(error) = consumer.shutdown().await {
        eprintln!("ferroctl: offsets could not be stored, the messages will come again: {error}");
    }
    client.shutdown().await;
    report(&args, &tally, seconds)
}

/// Starts the consumer. A name server or broker that does not answer yet is waited for as long as a silent one.
async fn start_consumer(
    client: &Client,
    topic: &str,
    config: PushConsumerConfig,
    patience: Duration,
) -> Result<ConsumerStream, ClientError> {
    let give_up = Instant::now() + patience;
    loop {
        // A consumer would wait for a topic that does not exist; here that is a mistake.
        let started = match client.pull_consumer(&config.group).queues(topic).await {
            Ok(_) => ConsumerStream::start(client, config.clone()).await,
            Err(error) => Err(error),
        };
        match started {
            Err(error) if error.is_unreachable() && Instant::now() < give_up => {
                tokio::time::sleep(PAUSE).await;
            }
            ended => return ended,
        }
    }
}

fn report(args: &BenchReceive, tally: &Tally, seconds: f64) -> anyhow::Result<()> {
    let (missing, missing_first) = tally.missing();
    output::print_line(&Report {
        bench: "receive",
        topic: &args.topic,
        group: &args.group,
        run: args.run.as_deref(),
        expected: tally.expected.distinct(),
        received: tally.received(),
        missing,
        missing_first,
        duplicates: tally.seen.duplicates(),
        foreign: tally.foreign,
        beyond: tally.seen.strangers(),
        damaged: tally.damaged,
        seconds: rounded(seconds),
        rate_per_second: rate(tally.received(), seconds),
        age_ms: Times::of(&tally.ages),
    })?;
    if missing == 0 {
        return Ok(());
    }
    Err(anyhow::anyhow!(
        "{missing} of {} messages are missing",
        tally.expected.distinct()
    ))
}

impl Tally {
    fn note(&mut self, message: &ReceivedMessage, now: SystemTime) {
        let born = UNIX_EPOCH + Duration::from_millis(message.born_timestamp.max(0).cast_unsigned());
        record(&mut self.ages, now.duration_since(born).unwrap_or_default());
        self.any += 1;
        let Ok(body) = message.body() else {
            self.damaged += 1;
            return;
        };
        let Some(run) = &self.run else { return };
        match payload::decode(&body) {
            Some((of, number)) if of == run => {
                self.seen.note(number);
            }
            _ => self.foreign += 1,
        }
    }

    fn received(&self) -> u64 {
        if self.run.is_some() {
            self.seen.distinct()
        } else {
            self.any
        }
    }

    /// Cheap where it is asked often: numbers are compared only when there are enough of them.
    fn complete(&self) -> bool {
        self.received() >= self.expected.distinct() && self.missing().0 == 0
    }

    fn missing(&self) -> (u64, String) {
        if self.run.is_some() {
            return self.seen.missing_from(&self.expected);
        }
        (self.expected.distinct().saturating_sub(self.any), String::new())
    }
}
