//! Groups that select by an expression, and the bits that say which of them a message may matter to.
//!
//! With `enableCalcFilterBitMap` every message of a topic on which groups have expressions gets a map of bits
//! ([`ferromq_filter::bloom`]) when it is dispatched; with `enableConsumeQueueExt` the store keeps it beside the queue's unit, and a pull passes
//! over what surely does not concern its group without reading the log. Kept in `config/consumerFilter.json`, in Java's form, so that a
//! restart goes on with the same rows. A group without connections keeps its row for `filterDataCleanTimeSpan`.
//!
//! What holds: the bits of a message say something about a group only if the message was stored after the group's row was made.
//! The row is dated while the table is locked for writing, and not before the newest message that was looked at
//! already, so that a clock that is set back makes no group miss a message.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use ferromq_filter::Sql92;
use ferromq_filter::bloom::{self, BloomFilter};
use ferromq_protocol::body::SubscriptionData;
use ferromq_protocol::properties;
use ferromq_store::{Dispatched, FilterBits};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use crate::selector::is_tag_type;

/// The most rows: groups beyond are served without bits.
const MOST_ROWS: usize = 10_000;
/// When a table is loaded, its groups count as gone since this long, in milliseconds.
const GONE_BEFORE_LOAD: i64 = 30_000;

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct FilterFile {
    filter_data_by_topic: BTreeMap<String, TopicFilters>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TopicFilters {
    group_filter_data: BTreeMap<String, FilterData>,
    topic: String,
}

/// One row of the file.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct FilterData {
    #[serde(rename = "bloomFilterData", skip_serializing_if = "Option::is_none")]
    bloom: Option<Bloom>,
    born_time: i64,
    client_version: i64,
    consumer_group: String,
    /// Written as Java does, not read.
    dead: bool,
    /// 0 while a consumer of the group is connected.
    dead_time: i64,
    expression: String,
    expression_type: String,
    topic: String,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Bloom {
    bit_num: u32,
    bit_pos: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Row {
    data: FilterData,
    sql: Option<Arc<Sql92>>,
}

impl Row {
    fn is_dead(&self) -> bool {
        self.data.dead_time >= self.data.born_time
    }
}

/// What a pull knows of its group's bits.
#[derive(Debug, Clone)]
pub(crate) struct Bits {
    born: i64,
    length: usize,
    positions: Arc<[u32]>,
}

impl Bits {
    /// Whether a message with this map may matter to the group.
    pub(crate) fn may_want(&self, store_timestamp: i64, map: &[u8]) -> bool {
        store_timestamp <= self.born || map.len() != self.length || bloom::has_all(map, &self.positions)
    }
}

#[derive(Debug, Default)]
struct Rows {
    topics: HashMap<String, BTreeMap<String, Row>>,
    /// The topics on which a group has a row.
    groups: HashMap<String, HashSet<String>>,
    count: usize,
}

impl Rows {
    fn put(&mut self, topic: &str, group: &str, row: Row) {
        let groups = self.topics.entry(topic.to_owned()).or_default();
        if groups.insert(group.to_owned(), row).is_none() {
            self.count += 1;
            self.groups
                .entry(group.to_owned())
                .or_default()
                .insert(topic.to_owned());
        }
    }

    /// Returns whether it was there.
    fn remove(&mut self, topic: &str, group: &str) -> bool {
        let Some(groups) = self.topics.get_mut(topic) else {
            return false;
        };
        if groups.remove(group).is_none() {
            return false;
        }
        if groups.is_empty() {
            self.topics.remove(topic);
        }
        self.count -= 1;
        if let Some(topics) = self.groups.get_mut(group) {
            topics.remove(topic);
            if topics.is_empty() {
                self.groups.remove(group);
            }
        }
        true
    }
}

/// All rows.
#[derive(Debug)]
pub(crate) struct FilterTable {
    shape: BloomFilter,
    /// Whether messages get bits.
    calculate: AtomicBool,
    rows: RwLock<Rows>,
    changes: AtomicU64,
    /// Store time of the newest message that was given bits.
    newest: AtomicI64,
}

impl FilterTable {
    /// The rows of a file; none of them when they were made for another shape.
    pub(crate) fn from_file(file: FilterFile, shape: BloomFilter, now: i64) -> Self {
        let mut rows = Rows::default();
        let mut other_shape = false;
        for (topic, filters) in file.filter_data_by_topic {
            for (group, mut data) in filters.group_filter_data {
                other_shape |= !data.bloom.as_ref().is_some_and(|bloom| {
                    bloom.bit_num == shape.bits() && bloom.bit_pos.len() == shape.positions() as usize
                });
                if data.dead_time == 0 {
                    data.dead_time = data.born_time.max(now - GONE_BEFORE_LOAD);
                }
                let sql = Sql92::parse(&data.expression).ok().map(Arc::new);
                rows.put(&topic, &group, Row { data, sql });
            }
        }
        if other_shape && rows.count > 0 {
            tracing::info!(
                rows = rows.count,
                "the filter data of consumers is for other settings (expectConsumerNumUseFilter, maxErrorRateOfBloomFilter) and made anew"
            );
            rows = Rows::default();
        }
        Self {
            shape,
            calculate: AtomicBool::new(false),
            rows: RwLock::new(rows),
            changes: AtomicU64::new(0),
            newest: AtomicI64::new(0),
        }
    }

    pub(crate) fn to_file(&self) -> FilterFile {
        let rows = self.rows.read();
        let topics = rows.topics.iter().map(|(topic, groups)| {
            let groups = groups.iter().map(|(group, row)| {
                let dead = row.is_dead();
                (
                    group.clone(),
                    FilterData {
                        dead,
                        ..row.data.clone()
                    },
                )
            });
            let filters = TopicFilters {
                group_filter_data: groups.collect(),
                topic: topic.clone(),
            };
            (topic.clone(), filters)
        });
        FilterFile {
            filter_data_by_topic: topics.collect(),
        }
    }

    /// The number of changes since the start; equal numbers mean an unchanged table.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Has messages given bits from now on, or not.
    pub(crate) fn calculate(&self, on: bool) {
        self.calculate.store(on, Ordering::Relaxed);
    }

    /// Takes what a group's heartbeat says it subscribes to. `now` is asked for the time while the table is locked.
    pub(crate) fn register(&self, group: &str, subscriptions: &[SubscriptionData], now: fn() -> i64) {
        let by_tag = |data: &SubscriptionData| {
            is_tag_type(data.expression_type.as_deref()) || data.sub_string.is_empty()
        };
        if subscriptions.iter().all(by_tag) && !self.rows.read().groups.contains_key(group) {
            return;
        }
        if self.is_as_known(group, subscriptions) {
            return;
        }
        let mut rows = self.rows.write();
        let now = now().max(self.newest.load(Ordering::Acquire));
        for data in subscriptions.iter().filter(|data| !by_tag(data)) {
            self.one(&mut rows, group, data, now);
        }
        let topics: Vec<_> = rows.groups.get(group).into_iter().flatten().cloned().collect();
        for topic in topics {
            if !subscriptions.iter().any(|data| data.topic == topic) {
                self.bury(&mut rows, &topic, group, now);
            }
        }
    }

    /// Whether a heartbeat says nothing new, as nearly all do.
    fn is_as_known(&self, group: &str, subscriptions: &[SubscriptionData]) -> bool {
        let rows = self.rows.read();
        let known = rows.groups.get(group);
        let gone = known.into_iter().flatten().any(|topic| {
            let row = rows.topics.get(topic).and_then(|groups| groups.get(group));
            row.is_some_and(|row| !row.is_dead()) && !subscriptions.iter().any(|data| data.topic == *topic)
        });
        !gone
            && subscriptions.iter().all(|data| {
                is_tag_type(data.expression_type.as_deref())
                    || rows
                        .topics
                        .get(&data.topic)
                        .and_then(|groups| groups.get(group))
                        .is_some_and(|row| row.data.client_version >= data.sub_version && !row.is_dead())
            })
    }

    fn one(&self, rows: &mut Rows, group: &str, data: &SubscriptionData, now: i64) {
        let expression_type = data.expression_type.clone().unwrap_or_default();
        if let Some(row) = rows.topics.get_mut(&data.topic).and_then(|t| t.get_mut(group)) {
            let same = row.data.expression == data.sub_string && row.data.expression_type == expression_type;
            if data.sub_version < row.data.client_version
                || (data.sub_version == row.data.client_version && !same)
            {
                return;
            }
            if same {
                if row.is_dead() || row.data.client_version != data.sub_version {
                    row.data.client_version = data.sub_version;
                    row.data.dead_time = 0;
                    self.changed();
                }
                return;
            }
        }
        let sql = (expression_type == "SQL92").then(|| Sql92::parse(&data.sub_string));
        let Some(Ok(sql)) = sql else {
            // The client is told when it pulls.
            if rows.remove(&data.topic, group) {
                self.changed();
            }
            return;
        };
        if rows.count >= MOST_ROWS {
            return;
        }
        let bloom = Bloom {
            bit_num: self.shape.bits(),
            bit_pos: self.shape.positions_of(&format!("{group}#{}", data.topic)),
        };
        let row = Row {
            data: FilterData {
                bloom: Some(bloom),
                born_time: now,
                client_version: data.sub_version,
                consumer_group: group.to_owned(),
                dead: false,
                dead_time: 0,
                expression: data.sub_string.clone(),
                expression_type,
                topic: data.topic.clone(),
            },
            sql: Some(Arc::new(sql)),
        };
        rows.put(&data.topic, group, row);
        self.changed();
    }

    fn bury(&self, rows: &mut Rows, topic: &str, group: &str, now: i64) {
        if let Some(row) = rows.topics.get_mut(topic).and_then(|t| t.get_mut(group))
            && !row.is_dead()
        {
            row.data.dead_time = now.max(row.data.born_time);
            self.changed();
        }
    }

    /// No consumer of the group is connected any more.
    pub(crate) fn unregister(&self, group: &str, now: i64) {
        if !self.rows.read().groups.contains_key(group) {
            return;
        }
        let mut rows = self.rows.write();
        let topics: Vec<_> = rows.groups.get(group).into_iter().flatten().cloned().collect();
        for topic in topics {
            self.bury(&mut rows, &topic, group, now);
        }
    }

    /// Forgets groups that have been gone for longer than this, in milliseconds.
    pub(crate) fn clean(&self, now: i64, keep: i64) {
        let gone = |row: &Row| row.data.dead_time != 0 && now.saturating_sub(row.data.dead_time) >= keep;
        let old: Vec<(String, String)> = {
            let rows = self.rows.read();
            let all = rows
                .topics
                .iter()
                .flat_map(|(t, groups)| groups.iter().map(move |(g, row)| (t, g, row)));
            all.filter(|(_, _, row)| gone(row))
                .map(|(t, g, _)| (t.clone(), g.clone()))
                .collect()
        };
        if old.is_empty() {
            return;
        }
        let mut rows = self.rows.write();
        for (topic, group) in old {
            rows.remove(&topic, &group);
        }
        self.changed();
    }

    /// The group's bits on a topic, when they are of this expression.
    pub(crate) fn bits_of(&self, group: &str, topic: &str, expression: &str) -> Option<Bits> {
        let rows = self.rows.read();
        let row = rows.topics.get(topic)?.get(group)?;
        if row.data.expression != expression || row.sql.is_none() {
            return None;
        }
        let bloom = row.data.bloom.as_ref()?;
        Some(Bits {
            born: row.data.born_time,
            length: (bloom.bit_num / 8) as usize,
            positions: bloom.bit_pos.as_slice().into(),
        })
    }

    /// The group's row on a topic, as tools show it.
    pub(crate) fn shown(&self, group: &str, topic: &str) -> Option<String> {
        let rows = self.rows.read();
        let row = rows.topics.get(topic)?.get(group)?;
        serde_json::to_string(&row.data).ok()
    }

    /// The group's expression on a topic.
    pub(crate) fn expression_of(&self, group: &str, topic: &str) -> Option<Arc<Sql92>> {
        self.rows.read().topics.get(topic)?.get(group)?.sql.clone()
    }

    fn map_of<'a>(&self, topic: &str, get: &dyn Fn(&str) -> Option<Cow<'a, str>>) -> Vec<u8> {
        let rows = self.rows.read();
        let Some(groups) = rows.topics.get(topic) else {
            return Vec::new();
        };
        let mut map = self.shape.empty_map();
        for row in groups.values() {
            if let (Some(sql), Some(bloom)) = (&row.sql, &row.data.bloom)
                && sql.eval(get)
            {
                bloom::set(&mut map, &bloom.bit_pos);
            }
        }
        map
    }
}

impl FilterBits for FilterTable {
    fn bits(&self, record: &Dispatched<'_>) -> Vec<u8> {
        // Before the rows are read: whoever makes a row later sees it.
        self.newest.fetch_max(record.store_timestamp, Ordering::AcqRel);
        if !self.calculate.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.map_of(record.topic, &|name| {
            properties::get(record.properties, name).map(Cow::Borrowed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> BloomFilter {
        BloomFilter::new(20, 64).unwrap()
    }

    fn table() -> FilterTable {
        FilterTable::from_file(FilterFile::default(), shape(), 0)
    }

    fn sub(topic: &str, expression: &str, version: i64) -> SubscriptionData {
        SubscriptionData {
            expression_type: Some("SQL92".to_owned()),
            sub_string: expression.to_owned(),
            sub_version: version,
            topic: topic.to_owned(),
            ..SubscriptionData::default()
        }
    }

    fn map(table: &FilterTable, topic: &str, price: &str) -> Vec<u8> {
        table.map_of(topic, &|name| {
            (name == "price").then(|| Cow::Owned(price.to_owned()))
        })
    }

    #[test]
    fn a_message_has_the_bits_of_those_who_want_it() {
        let table = table();
        assert!(map(&table, "T", "1").is_empty());
        table.register("cheap", &[sub("T", "price < 10", 1)], || 100);
        table.register("dear", &[sub("T", "price >= 10", 1)], || 100);
        table.register("tags", &[SubscriptionData::by_tags("T", "*")], || 100);
        let cheap = table.bits_of("cheap", "T", "price < 10").unwrap();
        let dear = table.bits_of("dear", "T", "price >= 10").unwrap();
        let one = map(&table, "T", "1");
        assert!(cheap.may_want(101, &one) && !dear.may_want(101, &one));
        let many = map(&table, "T", "99");
        assert!(dear.may_want(101, &many) && !cheap.may_want(101, &many));
        // What is older than the row, or has a map of another shape, may be wanted.
        assert!(dear.may_want(100, &one) && dear.may_want(101, &one[1..]));
        assert!(table.bits_of("cheap", "T", "price < 11").is_none());
        assert!(table.bits_of("tags", "T", "*").is_none());
    }

    #[test]
    fn a_changed_expression_counts_from_its_change_on_and_old_versions_are_ignored() {
        let table = table();
        table.register("g", &[sub("T", "price < 10", 5)], || 100);
        table.register("g", &[sub("T", "price < 7", 4)], || 200);
        assert!(table.bits_of("g", "T", "price < 10").is_some());
        table.register("g", &[sub("T", "price < 7", 6)], || 300);
        assert_eq!(table.bits_of("g", "T", "price < 7").unwrap().born, 300);
        // One that cannot be compiled leaves nothing behind that could be wrong.
        table.register("g", &[sub("T", "price <", 7)], || 400);
        assert!(table.bits_of("g", "T", "price < 7").is_none());
        assert!(map(&table, "T", "1").is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nobody_miss_a_message() {
        let table = table();
        table.newest.store(5_000, Ordering::Release);
        table.register("g", &[sub("T", "price < 10", 1)], || 100);
        assert_eq!(table.bits_of("g", "T", "price < 10").unwrap().born, 5_000);
    }

    #[test]
    fn who_is_gone_is_kept_for_a_while() {
        let table = table();
        table.register(
            "g",
            &[sub("T", "price < 10", 1), sub("U", "price < 10", 1)],
            || 100,
        );
        // A topic that it gave up is dead, as all are once it's gone; a heartbeat revives them with their age.
        table.register("g", &[sub("T", "price < 10", 1)], || 200);
        table.unregister("g", 300);
        table.register("g", &[sub("T", "price < 10", 1)], || 400);
        assert_eq!(table.bits_of("g", "T", "price < 10").unwrap().born, 100);
        table.clean(10_000, 1_000);
        assert!(table.bits_of("g", "T", "price < 10").is_some());
        assert!(table.bits_of("g", "U", "price < 10").is_none());
        table.unregister("g", 20_000);
        table.clean(20_500, 1_000);
        assert!(table.bits_of("g", "T", "price < 10").is_some());
        table.clean(21_000, 1_000);
        assert_eq!(table.rows.read().count, 0);
        assert!(table.rows.read().groups.is_empty() && table.rows.read().topics.is_empty());
        // Heartbeats that say nothing new change nothing.
        table.register("g", &[sub("T", "price < 10", 1)], || 100);
        let before = table.changes();
        table.register("g", &[sub("T", "price < 10", 1)], || 500);
        assert_eq!(table.changes(), before);
    }

    #[test]
    fn javas_file_is_read_and_written_as_it_is() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/java/golden/filters.jsonl");
        let text = std::fs::read_to_string(golden).unwrap();
        let line = text.lines().find(|l| l.contains("\"kind\":\"file\"")).unwrap();
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let hex = line["hex"].as_str().unwrap();
        let java: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect();
        let file: FilterFile = ferromq_protocol::fastjson::from_slice(&java).unwrap();
        let again = ferromq_protocol::fastjson::to_vec(&file);
        let value = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).unwrap();
        assert_eq!(value(&again), value(&java));
        let table = FilterTable::from_file(file, shape(), 1_700_000_000_000);
        let bits = table.bits_of("CID_a", "Orders", "price > 10").unwrap();
        assert_eq!(bits.positions.as_ref(), [133, 165, 64]);
        assert_eq!(bits.born, 1_640_995_200_000);
        // Loaded groups count as gone until they are heard of.
        assert!(table.rows.read().topics["Orders"]["CID_a"].is_dead());
        let other = FilterTable::from_file(table.to_file(), BloomFilter::new(20, 32).unwrap(), 0);
        assert_eq!(other.rows.read().count, 0);
    }
}
