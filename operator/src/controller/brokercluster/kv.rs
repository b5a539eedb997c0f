//! Key-value entries of the name servers, written to each of them: they keep no file over a restart.

use super::validate::ValidCluster;
use crate::context::Context;

/// Writes what a name server lacks or has differently. Entries that the resource does not name stay. Gives what failed.
pub(super) async fn settle(cx: &Context, valid: &ValidCluster, servers: &[String]) -> Vec<String> {
    let mut faults = Vec::new();
    if valid.kv.is_empty() {
        return faults;
    }
    for server in servers {
        for (namespace, entries) in &valid.kv {
            if let Err(why) = one(cx, server, namespace, entries).await {
                faults.push(format!("name server {server}: {why}"));
                break;
            }
        }
    }
    faults
}

async fn one(
    cx: &Context,
    server: &str,
    namespace: &str,
    entries: &std::collections::BTreeMap<String, String>,
) -> Result<(), String> {
    let has = match cx.admin(server).list_kv(server, namespace).await {
        Ok(has) => has,
        // A namespace without an entry is an error in this protocol.
        Err(e) if e.is_not_found() => std::collections::BTreeMap::new(),
        Err(e) => return Err(e.to_string()),
    };
    for (key, value) in entries {
        if has.get(key) != Some(value) {
            cx.admin(server)
                .put_kv(server, namespace, key, value)
                .await
                .map_err(|e| e.to_string())?;
            cx.metrics.wrote("NameServerKv");
        }
    }
    Ok(())
}
