//! Progress of consumer groups: the next queue offset each group will read, per topic and queue.
//!
//! What holds: an offset committed along with a pull never moves progress backwards, so that a late
//! request cannot undo a newer one; an explicit update (request 15) sets what it says, since clients reset
//! with it; negative offsets are never stored. The table is kept in
//! `config/consumerOffset.json` as `{"offsetTable":{"topic@group":{"queue":offset}}}`.
//!
//! With light queues (`enableLmq`) the file is `config/lmqConsumerOffset.json`, which has a second member for groups that
//! begin with `%LMQ%`: `"lmqOffsetTable":{"topic@group":offset}`. Such a group has one offset a topic, whatever queue is named.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};

use ferromq_protocol::body::ConsumerOffsetTable;
use ferromq_protocol::names::is_light;
use parking_lot::RwLock;

type Queues = BTreeMap<i32, i64>;

/// Group → topic → queue → offset.
#[derive(Debug, Default)]
pub(crate) struct OffsetTable {
    groups: RwLock<HashMap<String, HashMap<String, Queues>>>,
    /// Counts changes, so that an unchanged table is not written again.
    changes: AtomicU64,
    /// Whether groups of light queues are kept apart.
    light: bool,
}

impl OffsetTable {
    pub(crate) fn from_file(file: ConsumerOffsetTable, light: bool) -> Self {
        let mut groups: HashMap<String, HashMap<String, Queues>> = HashMap::new();
        for (key, queues) in file.offset_table {
            // Names cannot hold '@'; a key without it names no group and could never be asked for.
            let Some((topic, group)) = key.split_once('@') else {
                continue;
            };
            let queues = queues.into_iter().filter(|&(_, offset)| offset >= 0).collect();
            groups
                .entry(group.to_owned())
                .or_default()
                .insert(topic.to_owned(), queues);
        }
        for (key, offset) in file.lmq_offset_table.unwrap_or_default() {
            if let Some((topic, group)) = key.split_once('@').filter(|_| offset >= 0) {
                let topics = groups.entry(group.to_owned()).or_default();
                topics.entry(topic.to_owned()).or_default().insert(0, offset);
            }
        }
        Self {
            groups: RwLock::new(groups),
            changes: AtomicU64::new(0),
            light,
        }
    }

    /// The queue under which an offset is kept.
    fn place(&self, group: &str, queue: i32) -> i32 {
        if self.light && is_light(group) { 0 } else { queue }
    }

    pub(crate) fn to_file(&self) -> ConsumerOffsetTable {
        let mut file = ConsumerOffsetTable::default();
        let mut light = BTreeMap::new();
        for (group, topics) in self.groups.read().iter() {
            let apart = self.light && is_light(group);
            for (topic, queues) in topics {
                let key = format!("{topic}@{group}");
                if apart {
                    light.extend(queues.get(&0).map(|&offset| (key, offset)));
                } else {
                    file.offset_table.insert(key, queues.clone());
                }
            }
        }
        file.lmq_offset_table = self.light.then_some(light);
        file
    }

    /// The number of changes so far; two equal numbers mean an unchanged table.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The stored offset, if there is one.
    pub(crate) fn get(&self, group: &str, topic: &str, queue: i32) -> Option<i64> {
        let queue = self.place(group, queue);
        self.groups.read().get(group)?.get(topic)?.get(&queue).copied()
    }

    /// Sets the offset to what was asked, forwards or backwards. A negative one changes nothing.
    pub(crate) fn set(&self, group: &str, topic: &str, queue: i32, offset: i64) {
        self.update(group, topic, queue, offset, |_| true);
    }

    /// Moves the offset forwards only: for commits that ride on pulls, which may overtake each other.
    pub(crate) fn advance(&self, group: &str, topic: &str, queue: i32, offset: i64) {
        self.update(group, topic, queue, offset, |old| old < offset);
    }

    fn update(&self, group: &str, topic: &str, queue: i32, offset: i64, take: impl FnOnce(i64) -> bool) {
        if offset < 0 {
            return;
        }
        let queue = self.place(group, queue);
        let mut groups = self.groups.write();
        if let Some(slot) = groups
            .get_mut(group)
            .and_then(|t| t.get_mut(topic))
            .and_then(|q| q.get_mut(&queue))
        {
            if *slot == offset || !take(*slot) {
                return;
            }
            *slot = offset;
        } else {
            groups
                .entry(group.to_owned())
                .or_default()
                .entry(topic.to_owned())
                .or_default()
                .insert(queue, offset);
        }
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Moves offsets beyond the end of their queue back to it, and says how many those were. A crash loses messages that nobody
    /// was told were safe, but consumers may have read them: the messages that get their offsets next would be passed over.
    pub(crate) fn keep_within(&self, end: impl Fn(&str, i32) -> i64) -> u64 {
        let mut moved = 0;
        for topics in self.groups.write().values_mut() {
            for (topic, queues) in topics {
                for (&queue, offset) in queues {
                    let end = end(topic, queue);
                    if *offset > end {
                        *offset = end;
                        moved += 1;
                    }
                }
            }
        }
        self.changes.fetch_add(moved, Ordering::Release);
        moved
    }

    /// The offsets of one group on one topic.
    pub(crate) fn queues(&self, group: &str, topic: &str) -> Queues {
        self.groups
            .read()
            .get(group)
            .and_then(|t| t.get(topic))
            .cloned()
            .unwrap_or_default()
    }

    /// All progress: group, topic, queues.
    pub(crate) fn all(&self) -> Vec<(String, String, Queues)> {
        let groups = self.groups.read();
        let rows = groups.iter().flat_map(|(group, topics)| {
            let of_group = topics.iter();
            of_group.map(move |(topic, queues)| (group.clone(), topic.clone(), queues.clone()))
        });
        rows.collect()
    }

    /// The topics on which the group has progress.
    pub(crate) fn topics_of(&self, group: &str) -> Vec<String> {
        self.groups
            .read()
            .get(group)
            .map(|topics| topics.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// The groups that have progress on the topic.
    pub(crate) fn groups_of(&self, topic: &str) -> Vec<String> {
        let groups = self.groups.read();
        groups
            .iter()
            .filter(|(_, topics)| topics.contains_key(topic))
            .map(|(group, _)| group.clone())
            .collect()
    }

    /// Forgets all progress of a group.
    pub(crate) fn remove_group(&self, group: &str) {
        if self.groups.write().remove(group).is_some() {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Forgets all progress on a topic, so that a topic made anew under the name starts at 0 for everyone.
    pub(crate) fn remove_topic(&self, topic: &str) {
        let mut removed = false;
        self.groups.write().retain(|_, topics| {
            removed |= topics.remove(topic).is_some();
            !topics.is_empty()
        });
        if removed {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_never_moves_backwards_but_an_update_does() {
        let table = OffsetTable::default();
        table.advance("g", "t", 0, 10);
        table.advance("g", "t", 0, 7);
        assert_eq!(table.get("g", "t", 0), Some(10));
        table.set("g", "t", 0, 3);
        assert_eq!(table.get("g", "t", 0), Some(3));
    }

    #[test]
    fn negative_offsets_are_ignored() {
        let table = OffsetTable::default();
        table.set("g", "t", 0, -1);
        table.advance("g", "t", 1, i64::MIN);
        assert_eq!(table.get("g", "t", 0), None);
        assert_eq!(table.changes(), 0);
        table.set("g", "t", 0, 5);
        table.set("g", "t", 0, -1);
        assert_eq!(table.get("g", "t", 0), Some(5));
    }

    #[test]
    fn offsets_beyond_the_end_go_back_to_it() {
        let table = OffsetTable::default();
        table.set("g", "t", 0, 5);
        table.set("g", "t", 1, 9);
        table.set("h", "gone", 0, 3);
        let before = table.changes();
        let end = |topic: &str, queue| if topic == "t" { 7 + i64::from(queue) } else { 0 };
        assert_eq!(table.keep_within(end), 2);
        assert_eq!(table.get("g", "t", 0), Some(5));
        assert_eq!(table.get("g", "t", 1), Some(8));
        assert_eq!(table.get("h", "gone", 0), Some(0));
        assert_eq!(table.changes(), before + 2);
        assert_eq!(table.keep_within(end), 0);
    }

    #[test]
    fn an_unchanged_value_is_no_change() {
        let table = OffsetTable::default();
        table.set("g", "t", 0, 5);
        let before = table.changes();
        table.set("g", "t", 0, 5);
        table.advance("g", "t", 0, 5);
        assert_eq!(table.changes(), before);
    }

    #[test]
    fn survives_its_file_in_javas_shape() {
        let java = br#"{"offsetTable":{"TopicTest@G":{0:250,1:7},"%RETRY%G@G":{0:1},"odd":{0:1}}}"#;
        let file: ConsumerOffsetTable = ferromq_protocol::fastjson::from_slice(java).unwrap();
        let table = OffsetTable::from_file(file, false);
        assert_eq!(table.get("G", "TopicTest", 1), Some(7));
        let text = serde_json::to_string(&table.to_file()).unwrap();
        assert_eq!(
            text,
            r#"{"offsetTable":{"%RETRY%G@G":{"0":1},"TopicTest@G":{"0":250,"1":7}}}"#
        );
    }

    #[test]
    fn light_groups_have_one_offset_a_topic_and_a_table_of_their_own() {
        let java = br#"{"lmqOffsetTable":{"%LMQ%a@%LMQ%g":7},"offsetTable":{"%LMQ%a@G":{0:3},"T@G":{1:9}}}"#;
        let table = OffsetTable::from_file(ferromq_protocol::fastjson::from_slice(java).unwrap(), true);
        assert_eq!(table.get("%LMQ%g", "%LMQ%a", 5), Some(7));
        assert_eq!(table.get("G", "%LMQ%a", 0), Some(3));
        table.set("%LMQ%g", "%LMQ%a", 4, 8);
        table.set("%LMQ%g", "T", 1, 2);
        assert_eq!(
            serde_json::to_string(&table.to_file()).unwrap(),
            r#"{"lmqOffsetTable":{"%LMQ%a@%LMQ%g":8,"T@%LMQ%g":2},"offsetTable":{"%LMQ%a@G":{"0":3},"T@G":{"1":9}}}"#
        );
        // Without light queues such a name is one like any.
        let plain = OffsetTable::from_file(table.to_file(), false);
        plain.set("%LMQ%g", "T", 1, 2);
        assert_eq!(plain.queues("%LMQ%g", "T"), BTreeMap::from([(0, 2), (1, 2)]));
        assert!(plain.to_file().lmq_offset_table.is_none());
    }

    #[test]
    fn topics_and_groups_can_be_removed() {
        let table = OffsetTable::default();
        table.set("g", "t", 0, 5);
        table.set("g", "u", 0, 5);
        table.set("h", "t", 0, 5);
        let mut groups = table.groups_of("t");
        groups.sort();
        assert_eq!(groups, ["g", "h"]);
        table.remove_topic("t");
        assert!(table.groups_of("t").is_empty());
        assert_eq!(table.topics_of("g"), ["u"]);
        table.remove_group("g");
        assert!(table.topics_of("g").is_empty());
    }
}
