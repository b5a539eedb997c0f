//! Accounts of one broker.

use ferromq_protocol::body::AclConfig;
use ferromq_protocol::code::request;
use ferromq_protocol::command::Command;
use ferromq_protocol::header::{AclInfoResponse, DeleteAclConfig, UpdateAclConfig, UpdateGlobalWhiteAddrs};

use super::Admin;
use crate::error::Result;
use crate::link;

/// Which accounts a broker has, as a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AclVersion {
    /// Cluster of the broker.
    pub cluster: String,
    /// Its name.
    pub broker_name: String,
    /// Its address.
    pub broker_address: String,
    /// A `DataVersion` in JSON.
    pub version: String,
}

impl Admin {
    /// Creates an account on a broker, or changes what is given of it.
    pub async fn update_account(&self, broker: &str, account: &UpdateAclConfig<'_>) -> Result<()> {
        self.tell(
            broker,
            Command::request(request::UPDATE_AND_CREATE_ACL_CONFIG).with_header(account),
        )
        .await
    }

    /// Deletes an account from a broker.
    pub async fn delete_account(&self, broker: &str, access_key: &str) -> Result<()> {
        let request =
            Command::request(request::DELETE_ACL_CONFIG).with_header(&DeleteAclConfig { access_key });
        self.tell(broker, request).await
    }

    /// The accounts of a broker. Secrets may be left out by it.
    pub async fn accounts(&self, broker: &str) -> Result<AclConfig> {
        self.ask_json(broker, Command::request(request::GET_BROKER_CLUSTER_ACL_CONFIG))
            .await
    }

    /// The version of a broker's accounts.
    pub async fn account_version(&self, broker: &str) -> Result<AclVersion> {
        let request = Command::request(request::GET_BROKER_CLUSTER_ACL_INFO);
        let name = link::name_of(request.code);
        let answer = self.link.ask(broker, request).await?;
        let header: AclInfoResponse<'_> = answer
            .header()
            .map_err(|error| link::bad_answer(broker, name, error))?;
        Ok(AclVersion {
            cluster: header.cluster_name.to_owned(),
            broker_name: header.broker_name.to_owned(),
            broker_address: header.broker_addr.to_owned(),
            version: header.version.to_owned(),
        })
    }

    /// Sets the addresses that need no account, joined by commas, in one file of the broker's or in its main one.
    pub async fn set_white_addresses(&self, broker: &str, addresses: &str, file: Option<&str>) -> Result<()> {
        let header = UpdateGlobalWhiteAddrs {
            global_white_addrs: addresses,
            acl_file_full_path: file,
        };
        self.tell(
            broker,
            Command::request(request::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG).with_header(&header),
        )
        .await
    }
}
