//! What a start would do: where it would begin to read, where the log would end and why, and what would be cut.

use std::io;

use ferromq_protocol::record::Check;
use serde::Serialize;

use super::{InspectError, Layout, Place, io_error, verify::what_stops};
use crate::{
    StoreConfig,
    commit_log::{Visit, scan},
    consume_queue::{UNIT, Unit},
    fs::segment::file_name,
    open::start_file,
};

/// Units of a queue that a start would take away, since they point beyond the log's end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueCut {
    /// Topic.
    pub topic: String,
    /// Queue.
    pub queue: i32,
    /// The queue's end after it.
    pub to: u64,
    /// Units taken away.
    pub units: u64,
}

/// What a start would do to a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRun {
    /// Whether recovery would be that after a crash.
    pub abnormal: bool,
    /// Log offset from which records are read.
    pub start: u64,
    /// Log offset at which the log would end.
    pub end: u64,
    /// Records read.
    pub records: u64,
    /// Store time of the last record; 0 if none was read.
    pub last_store_time: i64,
    /// Why the log would end there, unless only zeros follow.
    pub why: Option<String>,
    /// Log files that would be deleted, since they lie beyond the end.
    pub files_deleted: Vec<String>,
    /// Queues that would be cut.
    pub queues_cut: Vec<QueueCut>,
}

/// Tells what a start would do, without doing it. `progress` is told log offsets.
pub fn dry_run(place: &Place, progress: &mut dyn FnMut(u64)) -> Result<DryRun, InspectError> {
    let layout = Layout::of(place)?;
    let dir = layout.log_dir();
    let start = start_file(
        &StoreConfig::default(),
        &layout.checkpoint()?,
        &layout.files,
        layout.abort,
    )
    .map_err(|error| io_error("read", dir)(io::Error::other(error.to_string())))?;
    let mut records = 0;
    let scanned = scan(
        &layout.files,
        layout.size,
        start,
        u64::MAX,
        Check::Crc,
        progress,
        &mut |_, _| {
            records += 1;
            Ok(Visit::Continue(()))
        },
    )
    .map_err(io_error("read", dir))?;
    let end = scanned.end;
    let beyond = layout
        .files
        .iter()
        .skip(1)
        .filter(|file| file.base >= end)
        .map(|file| file_name(file.base));
    Ok(DryRun {
        abnormal: layout.abort,
        start,
        end,
        records,
        last_store_time: scanned.last_time,
        why: what_stops(&layout, end)?.map(|(_, why)| why),
        files_deleted: beyond.collect(),
        queues_cut: queues_cut(&layout, end)?,
    })
}

fn queues_cut(layout: &Layout, end: u64) -> Result<Vec<QueueCut>, InspectError> {
    let mut cuts = Vec::new();
    for queue in layout.queue_dirs()? {
        let mut cut: Option<QueueCut> = None;
        for (base, path) in queue.files.iter().rev() {
            let bytes = std::fs::read(path).map_err(io_error("read", path))?;
            let units: Vec<Unit> = bytes.chunks(UNIT as usize).map_while(Unit::parse).collect();
            let good = units
                .iter()
                .rposition(|unit| !unit.is_pre_blank() && unit.physical < end as i64)
                .map_or(0, |last| last + 1);
            let gone = units[good..].iter().filter(|unit| !unit.is_pre_blank()).count() as u64;
            if gone > 0 {
                let cut = cut.get_or_insert_with(|| QueueCut {
                    topic: queue.topic.clone(),
                    queue: queue.id,
                    to: 0,
                    units: 0,
                });
                cut.to = base / UNIT + good as u64;
                cut.units += gone;
            }
            if good > 0 {
                break;
            }
        }
        cuts.extend(cut);
    }
    Ok(cuts)
}
