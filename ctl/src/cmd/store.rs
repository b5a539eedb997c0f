//! Store directories, looked at offline: nothing is ever written to them.

use std::ops::ControlFlow;

use anyhow::Context as _;
use ferromq_store::inspect::{self, DryRun, Found, Inspection, Place};
use serde::Serialize;

use crate::bench::Progress;
use crate::cli::{self, Format};
use crate::context::Context;
use crate::failure::Failure;
use crate::output::{self, Table};

/// Files may be long to read: that is done on a thread of its own.
pub(crate) async fn run(cx: &Context, command: cli::Store) -> anyhow::Result<()> {
    let format = cx.format;
    tokio::task::spawn_blocking(move || look(format, &command))
        .await
        .context("look at the store")?
}

fn look(format: Format, command: &cli::Store) -> anyhow::Result<()> {
    match command {
        cli::Store::Inspect { place } => show(format, &inspect::inspect(&place.place())?),
        cli::Store::Verify { place, hash_slots } => verify(format, &place.place(), *hash_slots),
        cli::Store::Dump { place, from, count } => dump(format, &place.place(), *from, *count),
        cli::Store::RecoverDryRun { place } => {
            let place = place.place();
            let plan = with_progress(&place, |tell| inspect::dry_run(&place, tell))?;
            output::print(format, &plan, plan_table)
        }
    }
}

/// Runs `work` with a bar that shows how much of the log is read.
fn with_progress<T>(
    place: &Place,
    work: impl FnOnce(&mut dyn FnMut(u64)) -> Result<T, inspect::InspectError>,
) -> anyhow::Result<T> {
    let seen = inspect::inspect(place)?;
    let first = seen.log.first().map_or(0, |file| file.name.parse().unwrap_or(0));
    let mut progress = Progress::new("read", seen.log_file_size * seen.log.len() as u64);
    let done = work(&mut |at| progress.set(at.saturating_sub(first)));
    progress.finish();
    Ok(done?)
}

fn show(format: Format, seen: &Inspection) -> anyhow::Result<()> {
    output::print(format, seen, |seen| {
        let mut table = Table::new(&["part", "name", "files", "bytes", "holds"]).numbers(&[2, 3]);
        let stop = match seen.last_stop {
            inspect::LastStop::Clean => "stopped in order",
            inspect::LastStop::Unclean => "not stopped in order, or in use",
        };
        table.row([
            "store".to_owned(),
            seen.root.display().to_string(),
            String::new(),
            String::new(),
            stop.to_owned(),
        ]);
        let log_bytes: u64 = seen.log.iter().map(|file| file.length).sum();
        let since = seen.log.first().and_then(|file| file.first_store_time);
        let first = seen.log.first().map_or("-", |file| &file.name);
        table.row([
            "log".to_owned(),
            first.to_owned(),
            seen.log.len().to_string(),
            log_bytes.to_string(),
            format!("from {}", output::time(since.unwrap_or(0))),
        ]);
        for queue in &seen.queues {
            table.row([
                "queue".to_owned(),
                format!("{}/{}", queue.topic, queue.queue),
                queue.files.to_string(),
                String::new(),
                format!("from offset {}", queue.first),
            ]);
        }
        for index in &seen.index {
            table.row([
                "index".to_owned(),
                index.name.clone(),
                "1".to_owned(),
                index.length.to_string(),
                format!("{} entries", index.entries),
            ]);
        }
        for config in &seen.tables {
            table.row([
                "table".to_owned(),
                config.name.clone(),
                "1".to_owned(),
                config.length.to_string(),
                String::new(),
            ]);
        }
        table.row([
            "checkpoint".to_owned(),
            String::new(),
            "1".to_owned(),
            String::new(),
            format!("log {}", output::time(seen.checkpoint.log)),
        ]);
        table
    })
}

fn verify(format: Format, place: &Place, hash_slots: u32) -> anyhow::Result<()> {
    let found = with_progress(place, |tell| inspect::verify(place, hash_slots, tell))?;
    output::print(format, &found, found_table)?;
    if found.problem_count == 0 {
        eprintln!(
            "no problem: {} records, {} units of queues, {} entries of the index",
            found.records, found.units, found.entries
        );
        return Ok(());
    }
    Err(Failure::Damaged(format!(
        "{} problem(s) in {}; `ferroctl store recover-dry-run` tells what a start would do about those in the log and \
         the queues; an index that is wrong is made again when its folder is deleted",
        found.problem_count,
        place.root.display()
    ))
    .into())
}

fn found_table(found: &Found) -> Table {
    let mut table = Table::new(&["at", "problem"]);
    for problem in &found.problems {
        table.row([problem.at.clone(), problem.what.clone()]);
    }
    table
}

fn plan_table(plan: &DryRun) -> Table {
    let mut table = Table::new(&["step", "what"]);
    let kind = if plan.abnormal {
        "after a crash (abort file)"
    } else {
        "after a stop in order"
    };
    table.row(["recovery".to_owned(), kind.to_owned()]);
    table.row([
        "read".to_owned(),
        format!(
            "{} records from log offset {}, the last stored {}",
            plan.records,
            plan.start,
            output::time(plan.last_store_time)
        ),
    ]);
    let why = plan.why.as_deref().unwrap_or("nothing but zeros follows");
    table.row(["end".to_owned(), format!("log offset {}: {why}", plan.end)]);
    for file in &plan.files_deleted {
        table.row(["delete".to_owned(), format!("log file {file}, beyond the end")]);
    }
    for cut in &plan.queues_cut {
        table.row([
            "cut".to_owned(),
            format!(
                "queue {} of {} to offset {}: {} unit(s) point beyond the end",
                cut.queue, cut.topic, cut.to, cut.units
            ),
        ]);
    }
    table
}

/// A record as `dump` shows it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    offset: i64,
    topic: String,
    queue: i32,
    queue_offset: i64,
    stored: i64,
    size: i32,
    body_bytes: usize,
    properties: std::collections::BTreeMap<String, String>,
}

fn dump(format: Format, place: &Place, from: Option<u64>, count: usize) -> anyhow::Result<()> {
    let mut lines = Vec::new();
    inspect::records(place, from, &mut |record| {
        let text = record.properties_text();
        lines.push(Line {
            offset: record.physical_offset,
            topic: record.topic.to_owned(),
            queue: record.queue_id,
            queue_offset: record.queue_offset,
            stored: record.store_timestamp,
            size: record.total_size,
            body_bytes: record.body.len(),
            properties: ferromq_protocol::properties::iter(&text)
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
        });
        if lines.len() < count {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    })?;
    output::print(format, &lines, |lines| {
        let mut table =
            Table::new(&["log offset", "topic", "queue", "offset", "stored", "bytes"]).numbers(&[0, 2, 3, 5]);
        for line in lines {
            table.row([
                line.offset.to_string(),
                line.topic.clone(),
                line.queue.to_string(),
                line.queue_offset.to_string(),
                output::time(line.stored),
                line.size.to_string(),
            ]);
        }
        table
    })
}
