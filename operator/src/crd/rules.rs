//! CEL rules that the API server evaluates, and the CEL text made from the table of broker keys.
//!
//! Transition rules (those with `oldSelf`) of optional fields sit one level up, because a rule on the field itself does
//! not run when the field appears or goes.

use crate::keys::KEYS;

/// Names of our objects derive from the resource's name; the longest adds 23 characters and a revision label 13.
pub const NAME_FITS: &str =
    "self.metadata.name.size() <= 40 && self.metadata.name.matches('^[a-z]([a-z0-9-]*[a-z0-9])?$')";
/// Message of [`NAME_FITS`].
pub const NAME_FITS_MESSAGE: &str = "the name of a BrokerCluster may have at most 40 characters, begins with a letter and holds only a-z, 0-9 and -, since Services and pod labels are named after it";

/// A topic name that the brokers take.
pub const TOPIC_NAME_USABLE: &str = "has(self.spec.topicName) || (self.metadata.name.size() <= 127 && self.metadata.name.matches('^[a-z0-9-]+$'))";
/// Message of [`TOPIC_NAME_USABLE`].
pub const TOPIC_NAME_USABLE_MESSAGE: &str =
    "the name of this resource cannot be a topic name (at most 127 characters, no dots): set spec.topicName";

/// A group name that the brokers take.
pub const GROUP_NAME_USABLE: &str = "has(self.spec.groupName) || (self.metadata.name.size() <= 120 && self.metadata.name.matches('^[a-z0-9-]+$'))";
/// Message of [`GROUP_NAME_USABLE`].
pub const GROUP_NAME_USABLE_MESSAGE: &str =
    "the name of this resource cannot be a group name (at most 120 characters, no dots): set spec.groupName";

/// groupName stays as it is, set or not.
pub const GROUP_NAME_FIXED: &str =
    "(has(self.groupName) ? self.groupName : '') == (has(oldSelf.groupName) ? oldSelf.groupName : '')";

/// topicName stays as it is, set or not.
pub const TOPIC_NAME_FIXED: &str =
    "(has(self.topicName) ? self.topicName : '') == (has(oldSelf.topicName) ? oldSelf.topicName : '')";

/// brokerClusterName stays as it is, set or not.
pub const CLUSTER_NAME_FIXED: &str = "(has(self.brokerClusterName) ? self.brokerClusterName : '') == (has(oldSelf.brokerClusterName) ? oldSelf.brokerClusterName : '')";

/// storageClassName stays as it is, set or not.
pub const STORAGE_CLASS_FIXED: &str = "(has(self.storage.storageClassName) ? self.storage.storageClassName : '') == (has(oldSelf.storage.storageClassName) ? oldSelf.storage.storageClassName : '')";

/// Volumes never shrink.
pub const STORAGE_NOT_SHRUNK: &str = "!isQuantity(self.storage.size) || !isQuantity(oldSelf.storage.size) || quantity(self.storage.size).compareTo(quantity(oldSelf.storage.size)) >= 0";

/// A volume holds four files of the log and 1 GiB. In floats, because making a quantity from a computed text would
/// exceed the API server's budget for rules; sizes of this kind are exact in floats.
pub const STORAGE_HOLDS_LOG: &str = "!isQuantity(self.storage.size) || quantity(self.storage.size).asApproximateFloat() >= 4.0 * (has(self.config) && 'mappedFileSizeCommitLog' in self.config && self.config['mappedFileSizeCommitLog'].matches('^[0-9]{1,10}$') ? double(self.config['mappedFileSizeCommitLog']) : 1073741824.0) + 1073741824.0";

/// A synchronous master without replicas would answer every send with an error.
pub const SYNC_NEEDS_REPLICAS: &str =
    "self.brokers.replication != 'Sync' || self.brokers.replicasPerGroup > 1";

/// TLS comes and goes while plain connections are taken.
pub const TLS_BY_PERMISSIVE: &str = "has(self.tls) == has(oldSelf.tls) || (has(self.tls) ? self.tls.mode == 'Permissive' : oldSelf.tls.mode == 'Permissive')";

/// names stays as it is, set or not.
pub const BROKER_NAMES_FIXED: &str =
    "(has(self.names) ? self.names : []) == (has(oldSelf.names) ? oldSelf.names : [])";

/// Hours 0 to 23, separated by semicolons.
pub const HOURS: &str = "self.matches('^([01]?[0-9]|2[0-3])(;([01]?[0-9]|2[0-3]))*$')";

/// Every key of `spec.config` is one that the broker knows.
pub fn config_keys_known() -> String {
    format!("self.all(k, k in {})", known_keys())
}

/// Names the first unknown key.
pub fn config_unknown_message() -> String {
    format!(
        "'config: the broker knows no key ' + self.filter(k, !(k in {}))[0]",
        known_keys()
    )
}

/// A rule and its message for each key that cannot stand in `spec.config`: one rule a key, since a computed message
/// would exceed the API server's budget for rules.
pub fn config_owned() -> Vec<(String, String)> {
    KEYS.iter()
        .filter_map(|k| {
            let instead = k.owner.instead()?;
            Some((
                format!("!('{}' in self)", k.name),
                format!("config cannot hold {}: {instead}", k.name),
            ))
        })
        .collect()
}

fn known_keys() -> String {
    let names: Vec<String> = KEYS.iter().map(|k| format!("'{}'", k.name)).collect();
    format!("[{}]", names.join(", "))
}
