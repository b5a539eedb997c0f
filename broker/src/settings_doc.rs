//! docs/configuration.md, made from the settings themselves.
//!
//! `UPDATE=1 cargo test -p ferromq-broker settings_doc` writes it; the same test fails when the file does not say what the code
//! does.

use std::fmt::Write as _;

use ferromq_daemon::settings::KeyInfo;
use ferromq_namesrv::NamesrvSettings;

use crate::BrokerSettings;

const INTRO: &str = "\
# Settings

Made from the code by `UPDATE=1 cargo test -p ferromq-broker settings_doc`; edit the code instead.

Settings stand in a properties file given with `-c`, one `key=value` a line. Any key can also be given as `-Dkey=value`, which
wins over the file. Keys and defaults are RocketMQ 4.9's where it has them, so that a Java broker's file can be used as it is.

Each key is one of four kinds:

* **effective**: it does what the table says. *live*: request 25 (`mqadmin updateBrokerConfig`, `ferroctl broker config`) changes it in
  the running broker, which keeps the change in `config/live.properties` of the store and reads that after the file. *restart*:
  request 25 refuses it and says so;
* **accepted without effect**: Java's keys for threads and buffers that have no counterpart; they are shown back, nothing
  else, and the start names them once;
* **refused**: any value but the harmless one stops the start with the reason;
* **unknown**: a warning at the start that names it.

A value that is impossible stops the start with key, value and what is allowed. Keys for TLS are in [tls.md](tls.md).
";

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}

/// Names the home directory instead of showing whose it is.
fn with_home(value: String) -> String {
    match std::env::var("HOME") {
        Ok(home) if home.len() > 1 && value.starts_with(&home) => value.replacen(&home, "$HOME", 1),
        _ => value,
    }
}

fn table(page: &mut String, keys: &[KeyInfo], default: &dyn Fn(&str) -> Option<String>) {
    page.push_str("| Key | Default | Unit | Range | Change | Meaning |\n|---|---|---|---|---|---|\n");
    for info in keys {
        let value = with_home(default(info.key).unwrap_or_default());
        let value = if value.is_empty() {
            "empty".to_owned()
        } else {
            format!("`{}`", cell(&value))
        };
        let range = match (info.range, info.kind) {
            (Some((from, to)), _) if to >= i64::MAX - 1 => format!("from {from}"),
            (Some((from, to)), _) => format!("{from} to {to}"),
            (None, kind) => kind.to_owned(),
        };
        let meaning = info.doc.split_whitespace().collect::<Vec<_>>().join(" ");
        let _infallible = writeln!(
            page,
            "| `{}` | {value} | {} | {range} | {} | {} |",
            info.key,
            info.unit,
            if info.live { "live" } else { "restart" },
            cell(&meaning),
        );
    }
}

/// The whole page.
fn configuration_page() -> String {
    let mut page = INTRO.to_owned();
    let broker = BrokerSettings::default();
    page.push_str("\n## Broker\n\n");
    table(&mut page, BrokerSettings::KEYS, &|key| broker.get(key));
    page.push_str("\n### Refused\n\n| Key | Harmless value | Why |\n|---|---|---|\n");
    for (key, harmless, why) in BrokerSettings::REFUSED {
        let harmless = if harmless.is_empty() { "empty" } else { harmless };
        let _infallible = writeln!(page, "| `{key}` | {harmless} | {} |", cell(why));
    }
    page.push_str("\n### Accepted without effect\n\n");
    accepted(&mut page, BrokerSettings::WITHOUT_EFFECT);
    let namesrv = NamesrvSettings::default();
    page.push_str("\n## Name server\n\n");
    table(&mut page, NamesrvSettings::KEYS, &|key| namesrv.get(key));
    if !NamesrvSettings::WITHOUT_EFFECT.is_empty() {
        page.push_str("\n### Accepted without effect\n\n");
        accepted(&mut page, NamesrvSettings::WITHOUT_EFFECT);
    }
    page
}

fn accepted(page: &mut String, keys: &[(&str, &str)]) {
    let names: Vec<String> = keys.iter().map(|(key, _)| format!("`{key}`")).collect();
    let mut width = 0;
    for (n, name) in names.iter().enumerate() {
        let end = if n + 1 < names.len() { "," } else { ".\n" };
        if width + name.len() > 110 {
            page.push('\n');
            width = 0;
        } else if n > 0 {
            page.push(' ');
        }
        page.push_str(name);
        page.push_str(end);
        width += name.len() + 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_the_code_does() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
        let page = configuration_page();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, page).unwrap();
            return;
        }
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == page,
            "docs/configuration.md is stale: run `UPDATE=1 cargo test -p ferromq-broker settings_doc` and look at what changed"
        );
    }
}
