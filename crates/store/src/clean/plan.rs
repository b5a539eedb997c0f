//! Which log files go: a function of what is there, what time it is and how full the disk is.

use jiff::{Timestamp, tz::TimeZone};

/// Most files that go in one run.
pub(crate) const MOST: usize = 10;

/// What the decision is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshot<'a> {
    /// When each log file was last written, in milliseconds, oldest first.
    pub(crate) modified: &'a [i64],
    /// Now, in milliseconds.
    pub(crate) now: i64,
    /// Hour of the day.
    pub(crate) hour: i8,
    /// Hours in which expired files go.
    pub(crate) hours: &'a [i8],
    /// A file expires this long after its last write, in milliseconds.
    pub(crate) reserved: i64,
    /// Use of the fuller of the disks of log and queues, 0 to 1; negative if unknown.
    pub(crate) used: f64,
    /// Above this use, expired files go at any hour.
    pub(crate) max_used: f64,
    /// Above this use, files go before they expire.
    pub(crate) force_used: f64,
    /// Whether files may go before they expire.
    pub(crate) may_force: bool,
    /// Somebody asked for it.
    pub(crate) manual: bool,
}

/// Why files go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// It's the hour.
    Hour,
    /// The disk fills up.
    Space,
    /// The disk is nearly full: age doesn't count.
    Forced,
    /// Somebody asked.
    Manual,
}

/// How many files go from the front, and why. The newest never does.
pub(crate) fn decide(s: &Snapshot<'_>) -> Option<(Reason, usize)> {
    let reason = if s.used > s.force_used && s.may_force {
        Reason::Forced
    } else if s.manual {
        Reason::Manual
    } else if s.used > s.max_used || s.used < 0.0 {
        Reason::Space
    } else if s.hours.contains(&s.hour) {
        Reason::Hour
    } else {
        return None;
    };
    let all_but_newest = s.modified.len().saturating_sub(1);
    let count = s.modified[..all_but_newest]
        .iter()
        .take(MOST)
        .take_while(|modified| reason == Reason::Forced || **modified + s.reserved <= s.now)
        .count();
    (count > 0).then_some((reason, count))
}

/// Parses `deleteWhen`: hours of the day, parted by `;`.
pub(crate) fn parse_hours(text: &str) -> Result<Vec<i8>, String> {
    text.split(';')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(|word| {
            word.parse::<i8>()
                .ok()
                .filter(|hour| (0..24).contains(hour))
                .ok_or_else(|| {
                    format!("deleteWhen has the entry {word:?}; write hours from 00 to 23 parted by ;")
                })
        })
        .collect()
}

/// The zone of `deleteWhenTimeZone`; empty means the process's own.
pub(crate) fn parse_zone(name: &str) -> Result<TimeZone, String> {
    if name.is_empty() {
        return Ok(TimeZone::system());
    }
    TimeZone::get(name)
        .map_err(|e| format!("deleteWhenTimeZone {name:?} is no zone's IANA name such as Europe/Berlin: {e}"))
}

/// Hour of the day at a time in a zone.
pub(crate) fn hour_at(zone: &TimeZone, now: i64) -> i8 {
    Timestamp::from_millisecond(now)
        .unwrap_or_default()
        .to_zoned(zone.clone())
        .hour()
}

/// A disk's use as Java counts it: used by total that isn't reserved for root, rounded up to whole percents.
pub(crate) fn ratio(used: u64, available: u64) -> f64 {
    let all = used.saturating_add(available);
    if all == 0 {
        return -1.0;
    }
    (u128::from(used) * 100).div_ceil(u128::from(all)) as f64 / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn calm(modified: &[i64]) -> Snapshot<'_> {
        Snapshot {
            modified,
            now: 100 * HOUR,
            hour: 12,
            hours: &[4],
            reserved: 72 * HOUR,
            used: 0.5,
            max_used: 0.75,
            force_used: 0.85,
            may_force: true,
            manual: false,
        }
    }

    #[test]
    fn only_expired_ones_and_only_when_it_is_time() {
        let files = [0, HOUR, 27 * HOUR, 29 * HOUR, 30 * HOUR];
        assert_eq!(decide(&calm(&files)), None);
        assert_eq!(
            decide(&Snapshot {
                hour: 4,
                ..calm(&files)
            }),
            Some((Reason::Hour, 3))
        );
        assert_eq!(
            decide(&Snapshot {
                manual: true,
                ..calm(&files)
            }),
            Some((Reason::Manual, 3))
        );
        assert_eq!(
            decide(&Snapshot {
                used: 0.76,
                ..calm(&files)
            }),
            Some((Reason::Space, 3))
        );
        assert_eq!(
            decide(&Snapshot {
                used: -1.0,
                ..calm(&files)
            }),
            Some((Reason::Space, 3))
        );
        assert_eq!(
            decide(&Snapshot {
                hour: 4,
                now: 50 * HOUR,
                ..calm(&files)
            }),
            None,
            "nothing is old enough"
        );
    }

    #[test]
    fn a_nearly_full_disk_takes_young_files_too() {
        let files = [99 * HOUR; 30];
        assert_eq!(
            decide(&Snapshot {
                used: 0.86,
                ..calm(&files)
            }),
            Some((Reason::Forced, MOST))
        );
        assert_eq!(
            decide(&Snapshot {
                used: 0.86,
                may_force: false,
                ..calm(&files)
            }),
            None
        );
        assert_eq!(
            decide(&Snapshot {
                used: 0.85,
                ..calm(&files)
            }),
            None,
            "not above the limit"
        );
    }

    #[test]
    fn the_newest_stays() {
        assert_eq!(
            decide(&Snapshot {
                used: 0.99,
                ..calm(&[0])
            }),
            None
        );
        assert_eq!(
            decide(&Snapshot {
                used: 0.99,
                ..calm(&[])
            }),
            None
        );
        assert_eq!(
            decide(&Snapshot {
                used: 0.99,
                ..calm(&[0, 0])
            }),
            Some((Reason::Forced, 1))
        );
    }

    #[test]
    fn hours_and_zones() {
        assert_eq!(parse_hours("04").unwrap(), [4]);
        assert_eq!(parse_hours("04;16; 23").unwrap(), [4, 16, 23]);
        assert!(parse_hours("").unwrap().is_empty());
        assert!(parse_hours("24").is_err());
        assert!(parse_hours("four").unwrap_err().contains("four"));
        let noon_utc = 1_645_617_600_000;
        assert_eq!(hour_at(&parse_zone("UTC").unwrap(), noon_utc), 12);
        assert_eq!(hour_at(&parse_zone("Asia/Shanghai").unwrap(), noon_utc), 20);
        assert!(parse_zone("Nowhere/Here").is_err());
    }

    #[test]
    fn ratios_round_up() {
        let is = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(is(ratio(0, 100), 0.0));
        assert!(is(ratio(1, 999), 0.01));
        assert!(is(ratio(85, 15), 0.85));
        assert!(is(ratio(0, 0), -1.0));
    }
}
