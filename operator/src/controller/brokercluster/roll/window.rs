//! Maintenance windows: whether a restart may begin now, and when the next window opens.

use crate::crd::broker_cluster::{Day, Window};
use jiff::civil::{Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

/// Whether one of the windows is open. No windows: always.
pub fn is_open(windows: &[Window], now: Timestamp) -> bool {
    windows.is_empty() || windows.iter().any(|w| open(w, now).unwrap_or(false))
}

/// Why nothing is begun.
pub fn closed_text(windows: &[Window]) -> String {
    let all: Vec<String> = windows
        .iter()
        .map(|w| format!("{} {} for {} min", w.start, w.time_zone, w.minutes))
        .collect();
    format!("no maintenance window is open ({})", all.join("; "))
}

/// What is wrong with a window.
pub fn fault(window: &Window) -> Option<String> {
    if TimeZone::get(&window.time_zone).is_err() {
        return Some(format!(
            "spec.rollout.windows: timeZone {:?} is not a time zone of the IANA database",
            window.time_zone
        ));
    }
    start(window).is_none().then(|| {
        format!(
            "spec.rollout.windows: start {:?} is not a time as \"02:30\"",
            window.start
        )
    })
}

fn start(window: &Window) -> Option<Time> {
    let (hour, minute) = window.start.split_once(':')?;
    Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
}

fn open(window: &Window, now: Timestamp) -> Option<bool> {
    let zone = TimeZone::get(&window.time_zone).ok()?;
    let at = start(window)?;
    let today = now.to_zoned(zone.clone()).date();
    // A window that began yesterday may last into today.
    for day in [today.yesterday().ok()?, today] {
        if !window.days.is_empty() && !window.days.iter().any(|d| weekday(*d) == day.weekday()) {
            continue;
        }
        let from = day.to_datetime(at).to_zoned(zone.clone()).ok()?.timestamp();
        let until = from.checked_add(i64::from(window.minutes).minutes()).ok()?;
        if from <= now && now < until {
            return Some(true);
        }
    }
    Some(false)
}

fn weekday(day: Day) -> Weekday {
    match day {
        Day::Mon => Weekday::Monday,
        Day::Tue => Weekday::Tuesday,
        Day::Wed => Weekday::Wednesday,
        Day::Thu => Weekday::Thursday,
        Day::Fri => Weekday::Friday,
        Day::Sat => Weekday::Saturday,
        Day::Sun => Weekday::Sunday,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(days: Vec<Day>, start: &str, minutes: i32, zone: &str) -> Window {
        Window {
            days,
            start: start.to_owned(),
            minutes,
            time_zone: zone.to_owned(),
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_window_lasts_past_midnight_and_follows_its_zone_and_days() {
        // 2026-12-01 is a Tuesday.
        let night = [window(vec![Day::Mon], "23:00", 120, "Europe/Berlin")];
        assert!(is_open(&night, at("2026-11-30T22:30:00Z")));
        assert!(is_open(&night, at("2026-11-30T23:30:00Z")));
        assert!(
            !is_open(&night, at("2026-12-01T00:00:00Z")),
            "the end does not belong to it"
        );
        assert!(!is_open(&night, at("2026-12-01T22:30:00Z")), "a Tuesday");
        assert!(is_open(&[], at("2026-12-01T00:00:00Z")));
    }

    #[test]
    fn faults_are_named() {
        assert!(
            fault(&window(vec![], "25:00", 1, "UTC"))
                .unwrap()
                .contains("25:00")
        );
        assert!(
            fault(&window(vec![], "02:00", 1, "Mars/X"))
                .unwrap()
                .contains("Mars/X")
        );
        assert_eq!(fault(&window(vec![], "02:00", 1, "UTC")), None);
    }
}
