//! The metrics page, in OpenMetrics text.
//!
//! Names begin with `ferromq_broker_`. Rows by topic, group and queue are bounded: of each family the first
//! `metricsMaxSeries` names that showed up have a row of their own for as long as they exist, and all others share one
//! whose labels say `other`, so that a row never changes its meaning and a page never grows with the users' tables.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use parking_lot::Mutex;

use crate::core::Core;

/// What a family's values are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
}

/// Begins a family.
fn head(page: &mut String, name: &str, help: &str, kind: &str) {
    for part in [
        "# TYPE ferromq_broker_",
        name,
        " ",
        kind,
        "\n# HELP ferromq_broker_",
        name,
        " ",
        help,
        "\n",
    ] {
        page.push_str(part);
    }
}

fn kind_of(kind: Kind) -> (&'static str, &'static str) {
    // A counter's sample has an ending that its family lacks.
    match kind {
        Kind::Counter => ("counter", "_total"),
        Kind::Gauge => ("gauge", ""),
    }
}

/// OpenMetrics text of these: name, help, kind, value.
pub(crate) fn page(metrics: &[(&str, &str, Kind, f64)]) -> String {
    let mut page = String::new();
    for (name, help, kind, value) in metrics {
        let (kind, ending) = kind_of(*kind);
        head(&mut page, name, help, kind);
        for part in ["ferromq_broker_", name, ending, " ", &value.to_string(), "\n"] {
            page.push_str(part);
        }
    }
    page
}

/// A label's value, with what the form reserves written so that it reads back.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
    text
}

/// One row: the values of the family's labels, and the value.
type Row = (Vec<String>, f64);

/// Which rows have a name of their own.
#[derive(Debug, Default)]
pub(crate) struct Series {
    admitted: Mutex<HashMap<&'static str, HashSet<Vec<String>>>>,
}

impl Series {
    /// The rows with all beyond `most` summed up under `other`, sorted.
    fn fold(&self, family: &'static str, mut rows: Vec<Row>, most: usize) -> Vec<Row> {
        rows.sort_by(|a, b| a.0.cmp(&b.0));
        let mut families = self.admitted.lock();
        let admitted = families.entry(family).or_default();
        if !admitted.is_empty() {
            let present: HashSet<&Vec<String>> = rows.iter().map(|(labels, _)| labels).collect();
            admitted.retain(|labels| present.contains(labels));
        }
        let mut kept = Vec::with_capacity(rows.len().min(most));
        let mut other: Option<Row> = None;
        for (labels, value) in rows {
            if admitted.contains(&labels) || admitted.len() < most {
                admitted.insert(labels.clone());
                kept.push((labels, value));
            } else {
                let width = labels.len();
                other
                    .get_or_insert_with(|| (vec!["other".to_owned(); width], 0.0))
                    .1 += value;
            }
        }
        kept.extend(other);
        kept
    }
}

struct Writer<'a> {
    page: String,
    series: &'a Series,
    most: usize,
}

impl Writer<'_> {
    fn rows(&mut self, name: &'static str, help: &str, kind: Kind, labels: &[&str], rows: Vec<Row>) {
        let rows = self.series.fold(name, rows, self.most);
        let (kind, ending) = kind_of(kind);
        head(&mut self.page, name, help, kind);
        for (values, value) in rows {
            let pairs: Vec<String> = labels
                .iter()
                .zip(&values)
                .map(|(label, value)| format!("{label}=\"{}\"", escaped(value)))
                .collect();
            let _infallible = writeln!(
                self.page,
                "ferromq_broker_{name}{ending}{{{}}} {value}",
                pairs.join(",")
            );
        }
    }

    fn histogram(&mut self, name: &str, help: &str, buckets: &[(f64, u64)], sum: f64) {
        head(&mut self.page, name, help, "histogram");
        let mut seen = 0;
        for (end, count) in buckets {
            seen += count;
            let end = if end.is_finite() {
                end.to_string()
            } else {
                "+Inf".to_owned()
            };
            let _infallible = writeln!(self.page, "ferromq_broker_{name}_bucket{{le=\"{end}\"}} {seen}");
        }
        let _infallible = writeln!(
            self.page,
            "ferromq_broker_{name}_count {seen}\nferromq_broker_{name}_sum {sum}"
        );
    }
}

/// All figures of a serving broker.
pub(crate) fn text(core: &Core) -> String {
    let settings = core.settings();
    let mut writer = Writer {
        page: page(&totals(core)) + &page(&positions(core)),
        series: &core.series,
        most: settings.metrics_max_series,
    };
    traffic(core, &mut writer);
    progress(core, &mut writer);
    let (buckets, sum) = core.stats.put_times();
    writer.histogram(
        "put_seconds",
        "Time that the store took to take a message, without waiting for disk or replicas.",
        &buckets,
        sum,
    );
    let (buckets, sum) = core.stats.get_times();
    writer.histogram(
        "get_seconds",
        "Time that the store took to answer a read.",
        &buckets,
        sum,
    );
    writer.page
}

/// What topics and groups sent and read.
fn traffic(core: &Core, writer: &mut Writer<'_>) {
    use Kind::Counter;
    let topics = core.items.topics();
    let of = |value: fn(&crate::item_stats::Counts) -> u64| -> Vec<Row> {
        topics
            .iter()
            .map(|(topic, counts)| (vec![topic.clone()], value(counts) as f64))
            .collect()
    };
    writer.rows(
        "topic_messages_stored",
        "Messages stored in a topic.",
        Counter,
        &["topic"],
        of(|c| c.messages),
    );
    writer.rows(
        "topic_bytes_stored",
        "Bytes stored in a topic.",
        Counter,
        &["topic"],
        of(|c| c.bytes),
    );
    let groups = core.items.groups();
    let of = |value: fn(&crate::item_stats::Counts) -> u64| -> Vec<Row> {
        groups
            .iter()
            .map(|(topic, group, counts)| (vec![topic.clone(), group.clone()], value(counts) as f64))
            .collect()
    };
    writer.rows(
        "group_messages_pulled",
        "Messages of a topic handed to a group.",
        Counter,
        &["topic", "group"],
        of(|c| c.messages),
    );
    writer.rows(
        "group_bytes_pulled",
        "Bytes of a topic handed to a group.",
        Counter,
        &["topic", "group"],
        of(|c| c.bytes),
    );
    let back = core.items.sent_back_rows();
    let back = back
        .into_iter()
        .map(|(topic, group, counts)| (vec![topic, group], counts.messages as f64))
        .collect();
    writer.rows(
        "group_messages_sent_back",
        "Messages of a topic that a group sent back.",
        Counter,
        &["topic", "group"],
        back,
    );
}

/// Where queues end and how far groups are.
fn progress(core: &Core, writer: &mut Writer<'_>) {
    use Kind::Gauge;
    let queues = core.store.queues();
    let ends: HashMap<(&str, i32), i64> = queues
        .iter()
        .map(|q| ((&*q.topic, q.queue_id), q.max_offset))
        .collect();
    let rows = queues
        .iter()
        .map(|q| {
            (
                vec![q.topic.to_string(), q.queue_id.to_string()],
                q.max_offset as f64,
            )
        })
        .collect();
    writer.rows(
        "queue_max_offset",
        "Offset after the last message of a queue.",
        Gauge,
        &["topic", "queue"],
        rows,
    );
    let (mut lags, mut queue_lags) = (Vec::new(), Vec::new());
    for (group, topic, offsets) in core.offsets.all() {
        let mut sum = 0;
        for (queue, consumed) in offsets {
            let end = ends.get(&(topic.as_str(), queue)).copied().unwrap_or(0);
            // Offsets are the clients' word: they may be anything.
            let lag = end.saturating_sub(consumed).max(0);
            sum += lag;
            queue_lags.push((vec![topic.clone(), group.clone(), queue.to_string()], lag as f64));
        }
        lags.push((vec![topic, group], sum as f64));
    }
    writer.rows(
        "group_lag_messages",
        "Messages of a topic that a group has not consumed.",
        Gauge,
        &["topic", "group"],
        lags,
    );
    writer.rows(
        "group_queue_lag_messages",
        "Messages of a queue that a group has not consumed.",
        Gauge,
        &["topic", "group", "queue"],
        queue_lags,
    );
    let expiring = core.expiring.read().clone();
    let row = |value: fn(&crate::expiring::Expiring) -> i64| -> Vec<Row> {
        expiring
            .iter()
            .map(|e| (vec![e.topic.clone(), e.group.clone()], value(e) as f64))
            .collect()
    };
    writer.rows(
        "group_expiring_messages",
        "Messages that retention will delete within 24 hours (or half of fileReservedTime) before the group has consumed them.",
        Gauge,
        &["topic", "group"],
        row(|e| e.messages),
    );
    writer.rows(
        "group_expiring_oldest_age_seconds",
        "Age of the oldest message that retention will delete before the group has consumed it.",
        Gauge,
        &["topic", "group"],
        row(|e| e.oldest_age_seconds),
    );
    writer.rows(
        "group_expiring_deleted_in_seconds",
        "Time until retention may delete the first message that the group has not consumed.",
        Gauge,
        &["topic", "group"],
        row(|e| e.deleted_in_seconds),
    );
}

fn totals(core: &Core) -> Vec<(&'static str, &'static str, Kind, f64)> {
    use Kind::{Counter, Gauge};
    let totals = core.stats.totals();
    let (consumers, producers) = core.clients.counts();
    let registered = core.registrar.registered_at().len();
    let refused = core.acl.as_ref().map_or(0, |acl| acl.refusals());
    vec![
        (
            "access_refused",
            "Requests that access control refused.",
            Counter,
            refused as f64,
        ),
        (
            "messages_stored",
            "Messages stored for clients.",
            Counter,
            totals.put as f64,
        ),
        (
            "bytes_stored",
            "Bytes stored for clients.",
            Counter,
            totals.put_bytes as f64,
        ),
        (
            "sends_refused",
            "Sends that were refused.",
            Counter,
            totals.put_failed as f64,
        ),
        (
            "busy_answers",
            "Requests answered SYSTEM_BUSY before they were handled.",
            Counter,
            core.stats.busy() as f64,
        ),
        (
            "messages_pulled",
            "Messages handed to consumers.",
            Counter,
            totals.transferred as f64,
        ),
        (
            "bytes_pulled",
            "Bytes handed to consumers.",
            Counter,
            totals.transferred_bytes as f64,
        ),
        (
            "messages_sent_back",
            "Messages that consumers sent back.",
            Counter,
            totals.sent_back as f64,
        ),
        (
            "pulls_waiting",
            "Pulls that wait for a message.",
            Gauge,
            core.held.parked() as f64,
        ),
        (
            "sends_waiting",
            "Sends that wait for the disk or a replica.",
            Gauge,
            core.sends_waiting.now() as f64,
        ),
        (
            "consumer_groups_connected",
            "Consumer groups with a connected member.",
            Gauge,
            consumers as f64,
        ),
        (
            "producer_groups_connected",
            "Producer groups with a connected member.",
            Gauge,
            producers as f64,
        ),
        (
            "name_servers_registered",
            "Name servers that know this broker.",
            Gauge,
            registered as f64,
        ),
    ]
}

/// Where the store is.
fn positions(core: &Core) -> Vec<(&'static str, &'static str, Kind, f64)> {
    use Kind::Gauge;
    let figures = core.store.figures();
    vec![
        (
            "log_min_offset",
            "First offset of the log.",
            Gauge,
            figures.log_min as f64,
        ),
        ("log_max_offset", "End of the log.", Gauge, figures.log_max as f64),
        (
            "log_flushed_offset",
            "Up to here the log is on disk.",
            Gauge,
            figures.log_flushed as f64,
        ),
        (
            "flush_behind_bytes",
            "Bytes of the log that are not on disk yet.",
            Gauge,
            (figures.log_max - figures.log_flushed).max(0) as f64,
        ),
        (
            "dispatch_behind_bytes",
            "Bytes of the log that no queue has yet.",
            Gauge,
            figures.dispatch_behind as f64,
        ),
        (
            "append_lock_held_seconds",
            "How long the running append has held the lock.",
            Gauge,
            figures.page_cache_lock_millis as f64 / 1_000.0,
        ),
        ("queues", "Queues in the store.", Gauge, figures.queues as f64),
        (
            "disk_used_ratio",
            "Use of the log's disk.",
            Gauge,
            figures.log_disk_ratio,
        ),
        (
            "queue_disk_used_ratio",
            "Use of the consume queues' disk.",
            Gauge,
            figures.queue_disk_ratio,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(names: &[&str]) -> Vec<Row> {
        names.iter().map(|name| (vec![(*name).to_owned()], 1.0)).collect()
    }

    fn names(rows: &[Row]) -> Vec<&str> {
        rows.iter().map(|(labels, _)| labels[0].as_str()).collect()
    }

    #[test]
    fn rows_beyond_the_bound_share_one_and_keep_their_places() {
        let series = Series::default();
        let first = series.fold("f", rows(&["c", "b", "d", "e"]), 2);
        assert_eq!(names(&first), ["b", "c", "other"]);
        assert!((first[2].1 - 2.0).abs() < f64::EPSILON);
        // A name that would sort first takes nobody's place.
        assert_eq!(
            names(&series.fold("f", rows(&["a", "b", "c"]), 2)),
            ["b", "c", "other"]
        );
        // One that is gone makes room.
        assert_eq!(
            names(&series.fold("f", rows(&["a", "c", "d"]), 2)),
            ["a", "c", "other"]
        );
        assert_eq!(names(&series.fold("g", rows(&["a"]), 0)), ["other"]);
        assert!(series.fold("g", rows(&[]), 2).is_empty());
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd%"), "a\\\"b\\\\c\\nd%");
    }

    #[test]
    fn a_histogram_is_cumulative() {
        let series = Series::default();
        let mut writer = Writer {
            page: String::new(),
            series: &series,
            most: 1,
        };
        writer.histogram("x_seconds", "h", &[(0.5, 2), (f64::INFINITY, 1)], 1.5);
        assert!(
            writer.page.contains("x_seconds_bucket{le=\"0.5\"} 2\n"),
            "{}",
            writer.page
        );
        assert!(writer.page.contains("x_seconds_bucket{le=\"+Inf\"} 3\n"));
        assert!(
            writer
                .page
                .ends_with("x_seconds_count 3\nferromq_broker_x_seconds_sum 1.5\n")
        );
    }
}
