//! The broker's topics: how many queues each has and who may use it.
//!
//! What holds: every change raises the data version, by which name servers tell that a registration
//! carries news; a topic is handed out as an `Arc`, so a reader keeps a consistent row while another
//! replaces it; two creators of one topic get the same row. Kept in `config/topics.json`.
//!
//! With light queues (`enableLmq`) every topic that begins with `%LMQ%` is there, with one queue, and none of them has a row.

use std::sync::Arc;

use ferromq_protocol::body::{DataVersion, TopicConfig, TopicConfigTable};
use ferromq_protocol::names::topics;
use ferromq_protocol::{names, perm};

use crate::versioned::Versioned;

/// Read, write and inherit.
const PERM_RWX: i32 = perm::READ | perm::WRITE | perm::INHERIT;
/// Read and write.
pub(crate) const PERM_RW: i32 = perm::READ | perm::WRITE;

/// Why a topic could not be made on first use.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum CreateRefusal {
    #[error("the template topic [{0}] does not exist on this broker")]
    NoTemplate(String),
    #[error("the template topic [{0}] does not allow topics to be made from it (no inherit permission)")]
    NotInherited(String),
}

/// What a topic made on first use is to look like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) topic: &'a str,
    pub(crate) template: &'a str,
    /// Queues that the client asked for; the template's write queues are the upper bound.
    pub(crate) queues: i32,
    pub(crate) sys_flag: i32,
}

/// All topics of this broker.
#[derive(Debug)]
pub(crate) struct TopicTable {
    rows: Versioned<TopicConfig>,
    /// Whether light queues are topics without a row.
    light: bool,
}

impl TopicTable {
    pub(crate) fn from_file(file: TopicConfigTable, light: bool, now: i64) -> Self {
        let topics = file.topic_config_table.into_iter().map(|(name, mut config)| {
            // The key is the name; a row that says otherwise would be registered under a wrong one.
            config.topic_name.clone_from(&name);
            (name, Arc::new(config))
        });
        Self {
            rows: Versioned::new(topics.collect(), file.data_version, now),
            light,
        }
    }

    /// All rows with the version they make up.
    pub(crate) fn to_file(&self) -> TopicConfigTable {
        let (topic_config_table, data_version) = self.rows.snapshot();
        TopicConfigTable {
            data_version,
            topic_config_table,
        }
    }

    pub(crate) fn version(&self) -> DataVersion {
        self.rows.version()
    }

    /// The number of changes since the start; equal numbers mean an unchanged table.
    pub(crate) fn changes(&self) -> u64 {
        self.rows.changes()
    }

    pub(crate) fn get(&self, topic: &str) -> Option<Arc<TopicConfig>> {
        if self.is_light(topic) {
            return Some(Arc::new(row(topic, 1, PERM_RW, 0)));
        }
        self.rows.get(topic)
    }

    fn is_light(&self, topic: &str) -> bool {
        self.light && names::is_light(topic)
    }

    pub(crate) fn contains(&self, topic: &str) -> bool {
        self.is_light(topic) || self.rows.contains(topic)
    }

    pub(crate) fn all(&self) -> Vec<Arc<TopicConfig>> {
        self.rows.all()
    }

    /// Makes or replaces a topic. Returns false when it was like that already. Light queues are as they are.
    pub(crate) fn put(&self, config: TopicConfig, now: i64) -> bool {
        if self.is_light(&config.topic_name) {
            return false;
        }
        let name = config.topic_name.clone();
        self.rows.put(&name, config, now)
    }

    /// The topic, made with this many queues and read-write permission when it is missing; and whether it was made now.
    pub(crate) fn get_or_create(
        &self,
        topic: &str,
        queues: i32,
        perm: i32,
        sys_flag: i32,
        now: i64,
    ) -> (Arc<TopicConfig>, bool) {
        if let Some(found) = self.get(topic) {
            return (found, false);
        }
        self.rows
            .get_or_make(topic, || row(topic, queues, perm, sys_flag), now)
    }

    /// The topic, made after a template when it is missing; and whether it was made now.
    pub(crate) fn create_from_template(
        &self,
        wish: Wish<'_>,
        now: i64,
    ) -> Result<(Arc<TopicConfig>, bool), CreateRefusal> {
        self.rows.with(|rows| {
            if let Some(found) = rows.get(wish.topic) {
                return Ok((found.clone(), false));
            }
            let template = rows
                .get(wish.template)
                .ok_or_else(|| CreateRefusal::NoTemplate(wish.template.to_owned()))?;
            if template.perm & perm::INHERIT == 0 {
                return Err(CreateRefusal::NotInherited(wish.template.to_owned()));
            }
            let queues = wish.queues.min(template.write_queue_nums).max(0);
            let mut made = row(wish.topic, queues, template.perm & !perm::INHERIT, wish.sys_flag);
            made.topic_filter_type = template.topic_filter_type;
            let made = Arc::new(made);
            rows.set(wish.topic, made.clone(), now);
            Ok((made, true))
        })
    }

    /// Takes over a master's table as it is, version and all.
    pub(crate) fn replace(&self, table: TopicConfigTable) {
        self.rows.replace(Self::from_file(table, self.light, 0).rows);
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&self, topic: &str, now: i64) -> bool {
        self.rows.remove(topic, now)
    }

    /// Raises the version without a change of rows: what is registered depends on more than the rows.
    pub(crate) fn touch(&self, now: i64) {
        self.rows.touch(now);
    }

    /// Sets each topic's `order` mark as the name servers' order configuration says. No new version: it came
    /// from there.
    pub(crate) fn mark_ordered(&self, ordered: &dyn Fn(&str) -> bool) {
        let wrong: Vec<_> = self
            .all()
            .into_iter()
            .filter(|t| t.order != ordered(&t.topic_name))
            .collect();
        for topic in wrong {
            let order = ordered(&topic.topic_name);
            self.rows
                .with(|rows| rows.adjust(&topic.topic_name, |row| row.order = order));
        }
    }
}

/// A plain row.
pub(crate) fn row(topic: &str, queues: i32, perm: i32, sys_flag: i32) -> TopicConfig {
    TopicConfig {
        topic_sys_flag: sys_flag,
        ..TopicConfig::new(topic, queues, queues, perm)
    }
}

/// What the set of topics made at start depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SystemTopics<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) broker: &'a str,
    pub(crate) auto_create: bool,
    pub(crate) default_queues: i32,
    pub(crate) cluster_topic: bool,
    pub(crate) broker_topic: bool,
    pub(crate) trace_topic: Option<&'a str>,
}

impl SystemTopics<'_> {
    /// The rows that every broker of this make has from its start.
    ///
    /// The topics named like the cluster and the broker carry no inherit bit when automatic creation is off:
    /// else a client that names them as template would get round that setting.
    pub(crate) fn rows(&self) -> Vec<TopicConfig> {
        let inherit = if self.auto_create { perm::INHERIT } else { 0 };
        let named = |enabled: bool| if enabled { PERM_RW | inherit } else { inherit };
        let mut rows = vec![
            row(topics::SELF_TEST, 1, PERM_RW, 0),
            row(topics::BENCHMARK, 1024, PERM_RW, 0),
            row(self.cluster, 16, named(self.cluster_topic), 0),
            row(self.broker, 1, named(self.broker_topic), 0),
            row(topics::OFFSET_MOVED, 1, PERM_RW, 0),
            row(topics::SCHEDULE, 18, PERM_RW, 0),
            row(
                &format!("{}{}", self.cluster, topics::REPLY_SUFFIX),
                1,
                PERM_RW,
                0,
            ),
        ];
        if self.auto_create {
            rows.push(row(topics::AUTO_CREATE, self.default_queues, PERM_RWX, 0));
        }
        if let Some(trace) = self.trace_topic {
            rows.push(row(trace, 1, PERM_RW, 0));
        }
        rows
    }

    /// Makes the table have these rows, and no topic from which others can be made when that is off.
    pub(crate) fn put_into(&self, table: &TopicTable, now: i64) {
        for row in self.rows() {
            table.put(row, now);
        }
        // One left from earlier would get round the setting.
        if !self.auto_create
            && let Some(old) = table.get(topics::AUTO_CREATE)
        {
            table.put(
                TopicConfig {
                    perm: PERM_RW,
                    ..(*old).clone()
                },
                now,
            );
        }
    }

    /// Whether administrators may not make, change or delete a topic of this name.
    pub(crate) fn reserved(&self, topic: &str) -> bool {
        names::is_system_topic(topic)
            || topic == self.cluster
            || topic == self.broker
            || topic.strip_suffix(topics::REPLY_SUFFIX) == Some(self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TopicTable {
        let table = TopicTable::from_file(TopicConfigTable::default(), false, 1);
        table.put(row("TBW102", 8, PERM_RWX, 0), 2);
        table
    }

    fn wish<'a>(topic: &'a str, template: &'a str, queues: i32) -> Wish<'a> {
        Wish {
            topic,
            template,
            queues,
            sys_flag: 0,
        }
    }

    #[test]
    fn made_from_the_template_with_the_smaller_queue_count_and_no_inherit_bit() {
        let table = table();
        let (made, new) = table.create_from_template(wish("T", "TBW102", 4), 3).unwrap();
        assert!(new);
        assert_eq!(
            (made.read_queue_nums, made.write_queue_nums, made.perm),
            (4, 4, PERM_RW)
        );
        let (many, _) = table.create_from_template(wish("U", "TBW102", 100), 3).unwrap();
        assert_eq!(many.write_queue_nums, 8);
        let (none, _) = table.create_from_template(wish("V", "TBW102", -3), 3).unwrap();
        assert_eq!(none.write_queue_nums, 0);
    }

    #[test]
    fn only_inheritable_templates_serve() {
        let table = table();
        assert_eq!(
            table.create_from_template(wish("T", "nope", 4), 3).unwrap_err(),
            CreateRefusal::NoTemplate("nope".into())
        );
        table.put(row("plain", 4, PERM_RW, 0), 3);
        assert_eq!(
            table.create_from_template(wish("T", "plain", 4), 3).unwrap_err(),
            CreateRefusal::NotInherited("plain".into())
        );
        assert!(!table.contains("T"));
    }

    #[test]
    fn each_change_raises_the_version_and_nothing_else_does() {
        let table = table();
        let before = table.version();
        assert!(!table.put(row("TBW102", 8, PERM_RWX, 0), 9));
        assert_eq!(table.version(), before);
        assert!(table.put(row("T", 4, PERM_RW, 0), 9));
        assert_eq!(table.version().counter, before.counter + 1);
        assert_eq!(table.version().timestamp, 9);
        assert!(!table.get_or_create("T", 1, PERM_RW, 0, 10).1);
        assert!(table.get_or_create("U", 1, PERM_RW, 0, 10).1);
        assert!(table.remove("U", 11));
        assert!(!table.remove("U", 12));
        assert_eq!(table.version().counter, before.counter + 3);
    }

    #[test]
    fn light_queues_are_there_without_a_row() {
        let table = TopicTable::from_file(TopicConfigTable::default(), true, 1);
        let light = table.get("%LMQ%a").unwrap();
        assert_eq!(
            (light.read_queue_nums, light.write_queue_nums, light.perm),
            (1, 1, PERM_RW)
        );
        assert!(table.contains("%LMQ%b") && !table.contains("T"));
        assert!(!table.put(row("%LMQ%a", 8, PERM_RW, 0), 2));
        assert!(!table.get_or_create("%LMQ%a", 8, PERM_RW, 0, 2).1);
        assert!(table.all().is_empty() && table.changes() == 0);
    }

    #[test]
    fn javas_file_loads() {
        let java =
            br#"{"dataVersion":{"counter":1,"timestamp":1645600000000},"topicConfigTable":{"TopicTest":{
            "order":false,"perm":6,"readQueueNums":8,"topicFilterType":"SINGLE_TAG","topicName":"TopicTest",
            "topicSysFlag":0,"writeQueueNums":8}}}"#;
        let file: TopicConfigTable = ferromq_protocol::fastjson::from_slice(java).unwrap();
        let table = TopicTable::from_file(file, false, 5);
        assert_eq!(table.get("TopicTest").unwrap().read_queue_nums, 8);
        assert_eq!(table.version().counter, 1);
        let again: serde_json::Value = serde_json::to_value(table.to_file()).unwrap();
        let first: serde_json::Value = serde_json::from_slice(java).unwrap();
        assert_eq!(again, first);
    }

    #[test]
    fn without_automatic_creation_no_topic_is_a_template() {
        let system = SystemTopics {
            cluster: "C",
            broker: "B",
            auto_create: false,
            default_queues: 8,
            cluster_topic: true,
            broker_topic: false,
            trace_topic: Some("RMQ_SYS_TRACE_TOPIC"),
        };
        assert!(system.rows().iter().all(|row| row.perm & perm::INHERIT == 0));
        assert!(system.rows().iter().all(|row| row.topic_name != "TBW102"));
        assert!(system.reserved("C") && system.reserved("C_REPLY_TOPIC") && system.reserved("TBW102"));
        assert!(!system.reserved("mine"));
    }
}
