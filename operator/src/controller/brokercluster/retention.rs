//! Whether volumes hold messages as long as they should, and whether consumers are in time for them.
//!
//! Both are warnings: the cluster works. Figures are told coarsely, since a condition that changed with every message would
//! be written at every look.

use super::status::Reports;
use crate::broker_status::{Disk, Report};
use crate::crd::condition::{CONSUMED, RETENTION, Verdict};
use std::collections::BTreeMap;

const HOUR: i64 = 3_600;
const GIB: f64 = (1u64 << 30) as f64;
/// Rows of a kind that one message names.
const NAMED: usize = 3;

/// What is wrong with a broker's disk.
#[derive(Debug, Clone, PartialEq)]
enum Shortage {
    /// The disk is fuller than it should be, with messages that are too young to be deleted.
    Now { used: f64 },
    /// It will be, if messages come as they came so far.
    Coming {
        /// Bytes that the log takes when the oldest message is as old as it should get.
        needed: f64,
        /// Bytes of the disk.
        capacity: f64,
        /// Bytes of the disk that the log doesn't have.
        others: f64,
    },
}

/// The log must be this old before its rate says something: an hour, or a twenty-fourth of what is kept.
fn telling_age(disk: &Disk) -> i64 {
    HOUR.max(disk.reserved_hours * HOUR / 24)
}

fn shortage(disk: &Disk) -> Option<Shortage> {
    let used = disk.used_ratio?;
    let reserved = disk.reserved_hours.checked_mul(HOUR)?;
    if disk.oldest_age_seconds >= reserved {
        return None;
    }
    if used > disk.max_used_ratio {
        return Some(Shortage::Now { used });
    }
    if disk.capacity_bytes == 0 || disk.oldest_age_seconds < telling_age(disk) {
        return None;
    }
    let capacity = disk.capacity_bytes as f64;
    let log = disk.log_bytes as f64;
    let others = (used * capacity - log).max(0.0);
    let needed = log * reserved as f64 / disk.oldest_age_seconds as f64;
    (needed + others > disk.max_used_ratio * capacity).then_some(Shortage::Coming {
        needed,
        capacity,
        others,
    })
}

/// Rounds up to two digits.
fn coarse_up(value: f64) -> f64 {
    let unit = 10f64.powf(value.max(1.0).log10().floor() - 1.0).max(1.0);
    (value / unit).ceil() * unit
}

/// Rounds down to one digit, for whole numbers.
fn coarse(value: i64) -> i64 {
    let mut unit = 1;
    while value / unit >= 10 {
        unit *= 10;
    }
    value / unit * unit
}

fn shortage_text(broker: &str, disk: &Disk, shortage: &Shortage) -> String {
    let percent = (disk.max_used_ratio * 100.0).round();
    match shortage {
        Shortage::Now { used } => format!(
            "the disk of {broker} is {:.0}% used, above diskMaxUsedSpaceRatio ({percent}%), and its oldest message has not reached fileReservedTime ({} hours): a larger volume (spec.storage.size) or a shorter fileReservedTime helps",
            (used * 100.0).floor(),
            disk.reserved_hours
        ),
        Shortage::Coming {
            needed,
            capacity,
            others,
        } => {
            let room = (disk.max_used_ratio * capacity - others).max(0.0);
            let hours = (disk.reserved_hours as f64 * room / needed).floor();
            format!(
                "as messages came so far, {broker} needs {:.0} GiB to keep them for {} hours, and may use {percent}% of {:.0} GiB: a volume of {:.0} GiB (spec.storage.size) or a fileReservedTime of at most {} hours would do",
                coarse_up(needed / GIB),
                disk.reserved_hours,
                (capacity / GIB).floor(),
                coarse_up((needed + others) / disk.max_used_ratio / GIB),
                coarse(hours as i64),
            )
        }
    }
}

fn heard(reports: &Reports) -> impl Iterator<Item = (&String, &Report)> {
    reports
        .iter()
        .filter_map(|(pod, report)| Some((pod, report.as_ref().ok()?)))
}

/// Whether volumes are large enough for what is to be kept.
pub(super) fn retention(reports: &Reports) -> Verdict {
    let mut texts = Vec::new();
    let mut now = false;
    for (pod, report) in heard(reports) {
        let Some(disk) = &report.disk else { continue };
        if let Some(shortage) = shortage(disk) {
            now |= matches!(shortage, Shortage::Now { .. });
            texts.push(shortage_text(pod, disk, &shortage));
        }
    }
    if texts.is_empty() {
        return Verdict::new(
            RETENTION,
            true,
            "Fits",
            "no volume is seen to be too small for fileReservedTime",
        );
    }
    let reason = if now { "DiskTooFull" } else { "DiskTooSmall" };
    Verdict::new(RETENTION, false, reason, listed(texts))
}

/// Whether groups consume messages before retention deletes them.
pub(super) fn consumed(reports: &Reports) -> Verdict {
    let mut rows: BTreeMap<(&str, &str), (i64, i64)> = BTreeMap::new();
    // A replica has the same messages as its master.
    for (_, report) in heard(reports).filter(|(_, report)| report.role != "SLAVE") {
        for row in &report.expiring_unconsumed {
            let (messages, seconds) = rows.entry((&row.group, &row.topic)).or_insert((0, i64::MAX));
            *messages += row.messages;
            *seconds = row.deleted_in_seconds.min(*seconds);
        }
    }
    if rows.is_empty() {
        return Verdict::new(
            CONSUMED,
            true,
            "InTime",
            "no group is seen to miss messages by retention",
        );
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by_key(|(_, (messages, _))| std::cmp::Reverse(*messages));
    let texts = rows.into_iter().map(|((group, topic), (messages, seconds))| {
        format!(
            "group {group} has yet to consume {}{} messages of topic {topic}, the first of which is deleted {}",
            if messages < 10 { "" } else { "more than " },
            coarse(messages),
            match seconds / HOUR {
                ..1 => "within the hour".to_owned(),
                hours => format!("in about {hours} hours"),
            }
        )
    });
    let text = listed(texts.collect());
    Verdict::new(
        CONSUMED,
        false,
        "MessagesExpire",
        format!("{text}; a longer fileReservedTime keeps them (spec.retention)"),
    )
}

fn listed(mut texts: Vec<String>) -> String {
    let more = texts.len().saturating_sub(NAMED);
    texts.truncate(NAMED);
    if more > 0 {
        texts.push(format!("and {more} more"));
    }
    texts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker_status::{Expiring, ReportError};

    fn calm() -> Disk {
        Disk {
            used_ratio: Some(0.30),
            max_used_ratio: 0.75,
            reserved_hours: 72,
            oldest_age_seconds: 24 * HOUR,
            log_bytes: 20 << 30,
            capacity_bytes: 100 << 30,
        }
    }

    fn of(disks: &[Disk]) -> Reports {
        (0..)
            .zip(disks)
            .map(|(n, disk)| {
                let report = Report {
                    disk: Some(disk.clone()),
                    ..Report::default()
                };
                (format!("c-{n}"), Ok(report))
            })
            .collect()
    }

    #[test]
    fn a_volume_that_holds_what_is_to_be_kept_is_fine() {
        let fine = [
            calm(),
            // Full, but of nothing younger than it should be.
            Disk {
                used_ratio: Some(0.9),
                oldest_age_seconds: 72 * HOUR,
                ..calm()
            },
            // A burst in the first minutes says nothing about three days.
            Disk {
                oldest_age_seconds: 2 * HOUR,
                ..calm()
            },
            Disk {
                used_ratio: None,
                ..calm()
            },
            Disk {
                capacity_bytes: 0,
                log_bytes: 70 << 30,
                ..calm()
            },
            Disk::default(),
        ];
        for disk in fine {
            assert!(retention(&of(std::slice::from_ref(&disk))).holds, "{disk:?}");
        }
        assert!(retention(&Reports::new()).holds);
    }

    #[test]
    fn a_volume_that_will_be_too_small_is_told_with_what_helps() {
        // 20 GiB a day: 60 GiB for three, and 10 GiB that others have.
        let small = Disk {
            capacity_bytes: 80 << 30,
            used_ratio: Some(0.375),
            ..calm()
        };
        let verdict = retention(&of(&[calm(), small.clone()]));
        assert_eq!((verdict.holds, verdict.reason), (false, "DiskTooSmall"));
        assert_eq!(
            verdict.message,
            "as messages came so far, c-1 needs 60 GiB to keep them for 72 hours, and may use 75% of 80 GiB: a volume of 94 GiB (spec.storage.size) or a fileReservedTime of at most 60 hours would do"
        );
        let larger = Disk {
            capacity_bytes: 94 << 30,
            used_ratio: Some(30.0 / 94.0),
            ..small.clone()
        };
        assert!(retention(&of(&[larger])).holds, "what it says does help");
        let shorter = Disk {
            reserved_hours: 60,
            ..small
        };
        assert!(retention(&of(&[shorter])).holds, "and so does this");
    }

    #[test]
    fn a_volume_that_is_too_full_of_young_messages_is_told() {
        let full = Disk {
            used_ratio: Some(0.801),
            ..calm()
        };
        let verdict = retention(&of(&vec![full; 5]));
        assert_eq!((verdict.holds, verdict.reason), (false, "DiskTooFull"));
        assert!(
            verdict.message.starts_with("the disk of c-0 is 80% used"),
            "{}",
            verdict.message
        );
        assert!(verdict.message.ends_with("; and 2 more"), "{}", verdict.message);
    }

    #[test]
    fn groups_that_will_miss_messages_are_named_over_all_masters() {
        let row = |messages, seconds| Expiring {
            group: "g".to_owned(),
            topic: "t".to_owned(),
            messages,
            deleted_in_seconds: seconds,
        };
        let from = |role: &str, rows| {
            Ok(Report {
                role: role.to_owned(),
                expiring_unconsumed: rows,
                ..Report::default()
            })
        };
        let mut reports = Reports::from([
            ("a-0".to_owned(), from("SYNC_MASTER", vec![row(3_000, 7_300)])),
            ("a-1".to_owned(), from("SLAVE", vec![row(3_000, 100)])),
            ("b-0".to_owned(), from("SYNC_MASTER", vec![row(1_234, 10_000)])),
            ("c-0".to_owned(), Err(ReportError::NoAddress)),
        ]);
        let verdict = consumed(&reports);
        assert_eq!((verdict.holds, verdict.reason), (false, "MessagesExpire"));
        assert_eq!(
            verdict.message,
            "group g has yet to consume more than 4000 messages of topic t, the first of which is deleted in about 2 hours; a longer fileReservedTime keeps them (spec.retention)"
        );
        reports.insert("b-0".to_owned(), from("SYNC_MASTER", vec![row(1_334, 10_000)]));
        assert_eq!(consumed(&reports), verdict, "a few more are no news");
        reports.retain(|pod, _| pod == "a-1");
        assert!(consumed(&reports).holds);
    }

    #[test]
    fn figures_are_coarse() {
        assert_eq!([0, 7, 19, 4_234].map(coarse), [0, 7, 10, 4_000]);
        let up = [0.2, 7.1, 93.4, 94.0, 1_241.0].map(|value| coarse_up(value) as i64);
        assert_eq!(up, [1, 8, 94, 94, 1_300]);
    }
}
