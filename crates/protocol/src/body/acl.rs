//! Access control bodies.

use super::bodies;

bodies! {
    /// Answer to 54.
    pub struct AclConfig {
        global_white_addrs: Vec<String> => "globalWhiteAddrs",
        plain_access_configs: Vec<PlainAccessConfig> => "plainAccessConfigs",
    }

    /// One account.
    pub struct PlainAccessConfig {
        access_key: Option<String> => "accessKey",
        admin: bool => "admin",
        default_group_perm: Option<String> => "defaultGroupPerm",
        default_topic_perm: Option<String> => "defaultTopicPerm",
        group_perms: Option<Vec<String>> => "groupPerms",
        secret_key: Option<String> => "secretKey",
        topic_perms: Option<Vec<String>> => "topicPerms",
        white_remote_address: Option<String> => "whiteRemoteAddress",
    }
}
