//! Loading the tables when the broker starts.

use ferromq_protocol::body::{ConsumerOffsetTable, SubscriptionGroupTable, TopicConfigTable};
use ferromq_store::json_table::TableError;

use crate::clock::now_ms;
use crate::config::BrokerSettings;
use crate::core::{Files, Identity, system_topics};
use crate::filter_table::{FilterFile, FilterTable};
use crate::group_table::GroupTable;
use crate::offset_table::OffsetTable;
use crate::persist::TableFile;
use crate::topic_table::TopicTable;

fn filter_file(settings: &BrokerSettings) -> TableFile {
    TableFile::new(&settings.root(), "consumerFilter.json")
}

/// The table of groups' expressions. What is only there to be faster with is no reason not to start.
pub(crate) fn load_filters(settings: &BrokerSettings) -> anyhow::Result<FilterTable> {
    let file = filter_file(settings).load().unwrap_or_else(|error: TableError| {
        tracing::warn!(%error, "the filter data of consumers cannot be read and is made anew");
        FilterFile::default()
    });
    let filters = FilterTable::from_file(file, settings.bloom_filter()?, now_ms());
    filters.calculate(settings.enable_calc_filter_bit_map);
    Ok(filters)
}

/// The files, and what they say.
pub(crate) type Tables = (Files, TopicTable, GroupTable, OffsetTable);

/// Loads topics, groups and progress, each from its file or that one's `.bak`.
pub(crate) fn load_tables(
    settings: &BrokerSettings,
    identity: &Identity,
    now: i64,
) -> anyhow::Result<Tables> {
    let root = settings.root();
    let light = settings.enable_lmq;
    let (offsets, other) = if light {
        ("lmqConsumerOffset.json", "consumerOffset.json")
    } else {
        ("consumerOffset.json", "lmqConsumerOffset.json")
    };
    let files = Files {
        topics: TableFile::new(&root, "topics.json"),
        groups: TableFile::new(&root, "subscriptionGroup.json"),
        offsets: TableFile::new(&root, offsets),
        filters: filter_file(settings),
    };
    let topics = TopicTable::from_file(files.topics.load::<TopicConfigTable>()?, light, now);
    system_topics(&identity.cluster, &identity.name, settings).put_into(&topics, now);
    let groups = GroupTable::from_file(files.groups.load::<SubscriptionGroupTable>()?, light, now);
    // When enableLmq has changed since the last run, that one's file has the progress.
    let other = TableFile::new(&root, other);
    let changed = other.is_newer_than(&files.offsets);
    let from = if changed { &other } else { &files.offsets };
    let offsets = OffsetTable::from_file(from.load::<ConsumerOffsetTable>()?, light);
    if !changed {
        files.offsets.clean(offsets.changes());
    }
    Ok((files, topics, groups, offsets))
}
