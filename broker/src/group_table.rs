//! Consumer groups and their settings.
//!
//! A group comes into being by an administrator's call, or, with `autoCreateSubscriptionGroup`, when a
//! consumer of that name shows up; merely asking about a name makes nothing. Every change raises the data version.
//! Kept in `config/subscriptionGroup.json`. With light queues (`enableLmq`) every group that begins with `%LMQ%` is there with
//! the defaults, and none of them has a row.

use std::collections::HashMap;
use std::sync::Arc;

use ferromq_protocol::body::{SubscriptionGroupConfig, SubscriptionGroupTable};
use ferromq_protocol::names;

use crate::versioned::Versioned;

/// All groups of this broker.
#[derive(Debug)]
pub(crate) struct GroupTable {
    rows: Versioned<SubscriptionGroupConfig>,
    /// Whether groups of light queues are there without a row.
    light: bool,
}

impl GroupTable {
    /// The table of the file plus the preset groups.
    pub(crate) fn from_file(file: SubscriptionGroupTable, light: bool, now: i64) -> Self {
        let mut groups: HashMap<_, _> = file
            .subscription_group_table
            .into_iter()
            .map(|(name, mut config)| {
                config.group_name.clone_from(&name);
                (name, Arc::new(config))
            })
            .collect();
        for preset in names::groups::AT_START {
            groups
                .entry(preset.to_owned())
                .or_insert_with(|| Arc::new(SubscriptionGroupConfig::new(preset)));
        }
        Self {
            rows: Versioned::new(groups, file.data_version, now),
            light,
        }
    }

    pub(crate) fn to_file(&self) -> SubscriptionGroupTable {
        let (subscription_group_table, data_version) = self.rows.snapshot();
        SubscriptionGroupTable {
            data_version,
            subscription_group_table,
        }
    }

    /// Takes over a master's table as it is, version and all. Returns false when this is that version already.
    pub(crate) fn replace(&self, table: SubscriptionGroupTable) -> bool {
        self.rows.replace(Self::from_file(table, self.light, 0).rows)
    }

    /// The number of changes since the start; equal numbers mean an unchanged table.
    pub(crate) fn changes(&self) -> u64 {
        self.rows.changes()
    }

    pub(crate) fn get(&self, group: &str) -> Option<Arc<SubscriptionGroupConfig>> {
        if self.is_light(group) {
            return Some(Arc::new(SubscriptionGroupConfig::new(group)));
        }
        self.rows.get(group)
    }

    fn is_light(&self, group: &str) -> bool {
        self.light && names::is_light(group)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.rows.names()
    }

    /// The group, made when it is missing and may be; and whether it was made now.
    pub(crate) fn get_or_create(
        &self,
        group: &str,
        auto_create: bool,
        now: i64,
    ) -> Option<(Arc<SubscriptionGroupConfig>, bool)> {
        if let Some(found) = self.get(group) {
            return Some((found, false));
        }
        let may = auto_create || names::is_system_group(group);
        may.then(|| {
            self.rows
                .get_or_make(group, || SubscriptionGroupConfig::new(group), now)
        })
    }

    /// Makes or replaces a group. Returns false when it was like that already. Groups of light queues are as they are.
    pub(crate) fn put(&self, config: SubscriptionGroupConfig, now: i64) -> bool {
        if self.is_light(&config.group_name) {
            return false;
        }
        let name = config.group_name.clone();
        self.rows.put(&name, config, now)
    }

    /// Returns whether it was there.
    pub(crate) fn remove(&self, group: &str, now: i64) -> bool {
        self.rows.remove(group, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> GroupTable {
        GroupTable::from_file(SubscriptionGroupTable::default(), false, 1)
    }

    #[test]
    fn made_on_use_only_when_allowed() {
        let table = table();
        assert!(table.get_or_create("g", false, 2).is_none());
        assert!(table.get_or_create("CID_RMQ_SYS_TRANS", false, 2).is_some());
        let (made, new) = table.get_or_create("g", true, 2).unwrap();
        assert!(new && made.consume_enable && made.retry_max_times == 16 && made.retry_queue_nums == 1);
        assert!(!table.get_or_create("g", true, 2).unwrap().1);
    }

    #[test]
    fn presets_are_there_and_do_not_override_the_file() {
        let java =
            br#"{"dataVersion":{"counter":3,"timestamp":9},"subscriptionGroupTable":{"TOOLS_CONSUMER":{
            "brokerId":0,"consumeBroadcastEnable":true,"consumeEnable":false,"consumeFromMinEnable":true,
            "groupName":"TOOLS_CONSUMER","notifyConsumerIdsChangedEnable":true,"retryMaxTimes":5,
            "retryQueueNums":1,"whichBrokerWhenConsumeSlowly":1}}}"#;
        let table = GroupTable::from_file(ferromq_protocol::fastjson::from_slice(java).unwrap(), false, 1);
        assert!(!table.get("TOOLS_CONSUMER").unwrap().consume_enable);
        assert!(table.get("SELF_TEST_C_GROUP").is_some());
        assert_eq!(table.to_file().data_version.counter, 3);
    }

    #[test]
    fn groups_of_light_queues_are_there_without_a_row() {
        let table = GroupTable::from_file(SubscriptionGroupTable::default(), true, 1);
        let before = table.names().len();
        assert!(table.get("%LMQ%g").unwrap().consume_enable);
        assert!(!table.get_or_create("%LMQ%g", true, 2).unwrap().1);
        assert!(!table.put(SubscriptionGroupConfig::new("%LMQ%g"), 2));
        assert_eq!((table.names().len(), table.changes()), (before, 0));
    }

    #[test]
    fn changes_raise_the_version() {
        let table = table();
        assert!(table.put(SubscriptionGroupConfig::new("g"), 5));
        assert!(!table.put(SubscriptionGroupConfig::new("g"), 6));
        assert!(table.remove("g", 7));
        assert!(!table.remove("g", 8));
        assert_eq!(table.to_file().data_version.counter, 2);
        assert_eq!(table.changes(), 2);
    }
}
