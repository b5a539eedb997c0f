//! Access control (50 to 54).

use super::headers;

headers! {
    /// Request 50.
    pub struct UpdateAclConfig<'a> {
        access_key: &'a str => "accessKey",
        secret_key: Option<&'a str> => "secretKey",
        white_remote_address: Option<&'a str> => "whiteRemoteAddress",
        admin: bool => "admin" = false,
        default_topic_perm: Option<&'a str> => "defaultTopicPerm",
        default_group_perm: Option<&'a str> => "defaultGroupPerm",
        /// `topic=PERM` entries joined by commas.
        topic_perms: Option<&'a str> => "topicPerms",
        /// `group=PERM` entries joined by commas.
        group_perms: Option<&'a str> => "groupPerms",
    }

    /// Request 51.
    pub struct DeleteAclConfig<'a> {
        access_key: &'a str => "accessKey",
    }

    /// Response to 52.
    pub struct AclInfoResponse<'a> {
        /// A DataVersion in JSON.
        version: &'a str => "version",
        /// A JSON map from file path to DataVersion.
        all_acl_file_version: Option<&'a str> => "allAclFileVersion",
        broker_name: &'a str => "brokerName",
        broker_addr: &'a str => "brokerAddr",
        cluster_name: &'a str => "clusterName",
    }

    /// Request 53.
    pub struct UpdateGlobalWhiteAddrs<'a> {
        global_white_addrs: &'a str => "globalWhiteAddrs",
        acl_file_full_path: Option<&'a str> => "aclFileFullPath",
    }
}
