//! Runtime info (28), and the settings: shown by 26, changed by 25.
//!
//! A change is applied as a whole or not at all, and answered truthfully: a key that needs a restart is
//! refused with that reason. Changes are kept in `config/live.properties` of the store, since the settings
//! file may be read-only.

use std::sync::Arc;

use ferromq_daemon::Properties;
use ferromq_daemon::logging::Format;
use ferromq_daemon::settings::Taken;
use ferromq_protocol::code::response;
use ferromq_protocol::header::BrokerConfigResponse;
use ferromq_protocol::{Command, fastjson};
use ferromq_remoting::{Outcome, RequestContext};
use ferromq_store::json_table;

use super::{Refusal, json, ok};
use crate::clock::now_ms;
use crate::config::{BrokerSettings, live_file};
use crate::core::Core;
use crate::runtime_info;

/// Keys that are never changed from outside, as of release 4.9.8.
const ALWAYS_BLACK: [&str; 2] = ["configBlackList", "brokerConfigPath"];

pub(crate) fn runtime_info(core: &Arc<Core>, request: &Command) -> Outcome {
    json(request, &runtime_info::table(core, now_ms()))
}

pub(crate) fn config(core: &Arc<Core>, request: &Command) -> Outcome {
    let version = fastjson::to_vec(&*core.settings_version.lock());
    let version = String::from_utf8_lossy(&version).into_owned();
    let text = core.settings().to_properties().to_plain_text();
    request
        .reply(response::SUCCESS)
        .with_header(&BrokerConfigResponse { version: &version })
        .with_body(text.into_bytes())
        .into()
}

/// Has the log be what the settings say.
fn set_log(core: &Core, settings: &BrokerSettings) -> Result<(), Refusal> {
    let form = Format::from_name(&settings.log_format).ok_or_else(|| {
        Refusal::system(format!(
            "logFormat={} is not possible: it must be text or json",
            settings.log_format
        ))
    })?;
    if let Some(log) = &core.log {
        log.set_level(&settings.log_level)
            .map_err(|error| Refusal::system(error.to_string()))?;
        log.set_format(form);
    }
    Ok(())
}

pub(crate) fn update_config(
    core: &Arc<Core>,
    cx: &RequestContext,
    request: &Command,
) -> Result<Outcome, Refusal> {
    let text = std::str::from_utf8(&request.body)
        .map_err(|_| Refusal::system("the request's body is not UTF-8; expected key=value lines"))?;
    let asked = Properties::parse(text)
        .map_err(|error| Refusal::system(format!("the request's body is wrong: {error}")))?;
    if asked.is_empty() {
        return Ok(ok(request));
    }
    // One change at a time: each starts from what the one before left, on disk too.
    let _one = core.changing_settings.lock();
    let old = core.settings();
    let black: Vec<&str> = old
        .config_black_list
        .split(';')
        .map(str::trim)
        .chain(ALWAYS_BLACK)
        .collect();
    if let Some((key, _)) = asked.iter().find(|(key, _)| black.contains(key)) {
        return Err(Refusal::new(
            response::NO_PERMISSION,
            format!(
                "Can not update config in black list: {key} (configBlackList); change it in the file and restart"
            ),
        ));
    }
    let mut new = BrokerSettings::clone(&old);
    let mut changed = Properties::new();
    for (key, value) in asked.iter() {
        // Java's tools send whole files: keys that nobody knows are skipped, as Java does.
        if new
            .apply_live(key, value)
            .map_err(|error| Refusal::system(error.to_string()))?
            == Taken::Effective
        {
            changed.set(key, value);
        }
    }
    set_log(core, &new)?;
    if (
        &new.delete_when,
        &new.delete_when_time_zone,
        new.store_capacity_bytes,
    ) != (
        &old.delete_when,
        &old.delete_when_time_zone,
        old.store_capacity_bytes,
    ) {
        core.store
            .set_schedule(
                &new.delete_when,
                &new.delete_when_time_zone,
                new.store_capacity_bytes,
            )
            .map_err(Refusal::system)?;
    }
    let path = live_file(&old.store_path_root_dir);
    let mut kept = if path.exists() {
        Properties::load(&path).map_err(|error| Refusal::system(error.to_string()))?
    } else {
        Properties::new()
    };
    kept.extend(&changed);
    if let Err(error) = json_table::save_durably(&path, kept.to_text().as_bytes()) {
        // What cannot be kept is not changed: these were tried before.
        let undone = core.store.set_schedule(
            &old.delete_when,
            &old.delete_when_time_zone,
            old.store_capacity_bytes,
        );
        let quiet = set_log(core, &old).is_ok();
        tracing::debug!(?undone, quiet, "settings could not be kept; they are as before");
        return Err(error.into());
    }
    core.store.set_retention(
        new.file_reserved_time,
        u8::try_from(new.disk_max_used_space_ratio).unwrap_or(95),
    );
    let automatic_changed = new.auto_create_topic_enable != old.auto_create_topic_enable;
    let permission_changed = new.broker_permission != old.broker_permission;
    let now = now_ms();
    core.replace_settings(Arc::new(new), now);
    tracing::info!(keys = ?changed.iter().map(|(k, _)| k).collect::<Vec<_>>(), by = %cx.conn.peer(), "settings changed");
    if automatic_changed {
        core.system_topics().put_into(&core.topics, now);
        core.save_topics()?;
        core.registrar.changed();
    }
    if permission_changed {
        core.topics.touch(now);
        core.save_topics()?;
        core.registrar.changed();
    }
    Ok(ok(request))
}
