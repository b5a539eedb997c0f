//! Accounts: made and changed (50), deleted (51), their versions (52), the global white list (53), all of them (54).
//!
//! Who may ask is said in `acl::needs`; secrets are in no log line and no refusal.

use std::sync::Arc;

use ferromq_protocol::Command;
use ferromq_protocol::body::PlainAccessConfig;
use ferromq_protocol::code::response;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{AclInfoResponse, DeleteAclConfig, UpdateAclConfig, UpdateGlobalWhiteAddrs};
use ferromq_remoting::{Outcome, RequestContext};

use super::{Refusal, json, ok};
use crate::acl::Acl;
use crate::clock::now_ms;
use crate::core::Core;

/// The accounts; without access control the refusal has the code that a failure has.
fn acl(core: &Core, failed: i32) -> Result<&Arc<Acl>, Refusal> {
    let off = "access control is off at this broker (aclEnable=false): there are no accounts";
    core.acl.as_ref().ok_or_else(|| Refusal::new(failed, off))
}

fn list(text: Option<&str>) -> Option<Vec<String>> {
    let items = text?.split(',').map(str::trim).filter(|item| !item.is_empty());
    Some(items.map(str::to_owned).collect())
}

pub(crate) fn put(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: UpdateAclConfig<'_> = request.header()?;
    let text = |value: Option<&str>| value.map(str::to_owned);
    let change = PlainAccessConfig {
        access_key: Some(header.access_key.to_owned()),
        secret_key: text(header.secret_key),
        white_remote_address: text(header.white_remote_address),
        admin: header.admin,
        default_topic_perm: text(header.default_topic_perm),
        default_group_perm: text(header.default_group_perm),
        topic_perms: list(header.topic_perms),
        group_perms: list(header.group_perms),
    };
    acl(core, response::UPDATE_AND_CREATE_ACL_CONFIG_FAILED)?
        .put_account(&change, now_ms())
        .map_err(|error| {
            Refusal::new(
                response::UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
                format!(
                    "The accesskey[{}] corresponding to accessConfig has been updated failed. {error}",
                    header.access_key
                ),
            )
        })?;
    tracing::info!(access_key = header.access_key, admin = header.admin, by = %cx.conn.peer(), "account made or changed");
    Ok(ok(request))
}

pub(crate) fn delete(core: &Arc<Core>, cx: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let header: DeleteAclConfig<'_> = request.header()?;
    acl(core, response::DELETE_ACL_CONFIG_FAILED)?
        .delete_account(header.access_key, now_ms())
        .map_err(|error| {
            Refusal::new(
                response::DELETE_ACL_CONFIG_FAILED,
                format!(
                    "The accesskey[{}] corresponding to accessConfig has been deleted failed. {error}",
                    header.access_key
                ),
            )
        })?;
    tracing::info!(access_key = header.access_key, by = %cx.conn.peer(), "account deleted");
    Ok(ok(request))
}

pub(crate) fn put_white_list(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let header: UpdateGlobalWhiteAddrs<'_> = request.header()?;
    let wanted = list(Some(header.global_white_addrs)).unwrap_or_default();
    acl(core, response::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED)?
        .put_white_list(&wanted, header.acl_file_full_path, now_ms())
        .map_err(|error| {
            Refusal::new(
                response::UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
                format!(
                    "The globalWhiteAddresses[{}] has been updated failed. {error}",
                    header.global_white_addrs
                ),
            )
        })?;
    tracing::info!(addresses = header.global_white_addrs, by = %cx.conn.peer(), "global white list changed");
    Ok(ok(request))
}

pub(crate) fn versions(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    let (plain, all) = acl(core, response::SYSTEM_ERROR)?.versions();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let (version, all) = (text(fastjson::to_vec(&plain)), text(fastjson::to_vec(&all)));
    Ok(request
        .reply(response::SUCCESS)
        .with_header(&AclInfoResponse {
            version: &version,
            all_acl_file_version: Some(&all),
            broker_name: &core.identity.name,
            broker_addr: &core.identity.advertised,
            cluster_name: &core.identity.cluster,
        })
        .into())
}

pub(crate) fn all(core: &Arc<Core>, _: &RequestContext, request: &Command) -> Result<Outcome, Refusal> {
    Ok(json(request, &acl(core, response::SYSTEM_ERROR)?.config()))
}
