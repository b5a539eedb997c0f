//! Account files: YAML as Java's `plain_acl.yml`.
//!
//! ```yaml
//! globalWhiteRemoteAddresses: [10.10.103.*]
//! accounts:
//! - accessKey: RocketMQ
//!   secretKey: "12345678"
//!   whiteRemoteAddress:
//!   admin: false
//!   defaultTopicPerm: DENY
//!   defaultGroupPerm: SUB
//!   topicPerms: [topicA=DENY, topicB=PUB|SUB]
//!   groupPerms: [groupA=DENY]
//! dataVersion: [{counter: 1, timestamp: 1600000000000}]
//! ```
//!
//! A row that is wrong is left out and told of, the others count: one slip does not lock everybody out. A file
//! is changed as the tree that it is, so members that nobody here knows stay; so do comments in files in block form
//! ([`super::comments`]), but for one behind a value that changes.

use std::fmt::Write as _;

use ferromq_protocol::body::{DataVersion, PlainAccessConfig};
use serde_yaml::{Mapping, Value};

use super::address::Pattern;
use super::rules::{Account, Perm, Resource, SHORTEST_KEY};

const WHITE: &str = "globalWhiteRemoteAddresses";
pub(super) const ACCOUNTS: &str = "accounts";
const VERSION: &str = "dataVersion";

/// What a file says.
#[derive(Debug, Default)]
pub(crate) struct Parsed {
    pub(crate) white_texts: Vec<String>,
    pub(crate) white: Vec<Pattern>,
    pub(crate) accounts: Vec<(Account, PlainAccessConfig)>,
    pub(crate) version: DataVersion,
    /// Rows that were left out, and why; without secrets.
    pub(crate) wrong: Vec<String>,
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn member(row: &Value, name: &str) -> Option<String> {
    row.get(name).and_then(text)
}

fn list(row: &Value, name: &str) -> Option<Vec<String>> {
    match row.get(name)? {
        Value::Sequence(items) => Some(items.iter().filter_map(text).collect()),
        other => text(other).map(|one| vec![one]),
    }
}

/// Reads a file.
///
/// # Errors
/// It is no YAML mapping.
pub(crate) fn parse(content: &str) -> Result<Parsed, String> {
    let root = tree(content)?;
    let root = Value::Mapping(root);
    let mut parsed = Parsed::default();
    for entry in list(&root, WHITE).unwrap_or_default() {
        match Pattern::parse(&entry) {
            Ok(pattern) => {
                parsed.white.push(pattern);
                parsed.white_texts.push(entry);
            }
            Err(why) => parsed.wrong.push(format!("{WHITE}: {why}")),
        }
    }
    match root.get(ACCOUNTS) {
        Some(Value::Sequence(rows)) => {
            for row in rows {
                let config = config(row);
                match account(&config) {
                    Ok(account) => parsed.accounts.push((account, config)),
                    Err(why) => parsed.wrong.push(why),
                }
            }
        }
        None | Some(Value::Null) => {}
        Some(_) => parsed.wrong.push(format!("{ACCOUNTS} is no list")),
    }
    if let Some(version) = root.get(VERSION).and_then(|v| v.get(0)) {
        let number = |name| version.get(name).and_then(Value::as_i64).unwrap_or(0);
        parsed.version = DataVersion {
            counter: number("counter"),
            timestamp: number("timestamp"),
        };
    }
    Ok(parsed)
}

fn tree(content: &str) -> Result<Mapping, String> {
    if content.trim().is_empty() {
        return Ok(Mapping::new());
    }
    match serde_yaml::from_str::<Value>(content) {
        Ok(Value::Mapping(root)) => Ok(root),
        Ok(Value::Null) => Ok(Mapping::new()),
        Ok(_) => Err("it is no mapping of names to values".to_owned()),
        // The library's text may quote the line, and with it a secret.
        Err(error) => {
            let at = error.location().map_or_else(String::new, |l| {
                format!(" at line {}, column {}", l.line(), l.column())
            });
            Err(format!("it is no YAML{at}"))
        }
    }
}

fn config(row: &Value) -> PlainAccessConfig {
    PlainAccessConfig {
        access_key: member(row, "accessKey"),
        secret_key: member(row, "secretKey"),
        white_remote_address: member(row, "whiteRemoteAddress"),
        admin: member(row, "admin").is_some_and(|a| a.trim().eq_ignore_ascii_case("true")),
        default_topic_perm: member(row, "defaultTopicPerm"),
        default_group_perm: member(row, "defaultGroupPerm"),
        topic_perms: list(row, "topicPerms"),
        group_perms: list(row, "groupPerms"),
    }
}

/// The account that these members make.
///
/// # Errors
/// What is wrong; without secrets.
pub(crate) fn account(config: &PlainAccessConfig) -> Result<Account, String> {
    let key = config.access_key.clone().unwrap_or_default();
    let secret = config.secret_key.clone().unwrap_or_default();
    if key.len() < SHORTEST_KEY {
        return Err(format!(
            "The accessKey={key} cannot be null and length should longer than 6"
        ));
    }
    if secret.len() < SHORTEST_KEY {
        return Err(format!(
            "The secretKey of accessKey={key} cannot be null and length should longer than 6"
        ));
    }
    let of_account = |why: String| format!("accessKey={key}: {why}");
    let white =
        Pattern::parse(config.white_remote_address.as_deref().unwrap_or_default()).map_err(of_account)?;
    let perm = |text: &Option<String>| -> Result<Perm, String> {
        match text.as_deref().filter(|t| !t.trim().is_empty()) {
            None => Ok(Perm::DENY),
            Some(text) if Perm::known(text) => Ok(Perm::parse(text)),
            Some(text) => Err(of_account(format!(
                "{text:?} is no permission: use DENY, PUB, SUB or PUB|SUB"
            ))),
        }
    };
    let mut account = Account {
        white,
        admin: config.admin,
        default_topic: perm(&config.default_topic_perm)?,
        default_group: perm(&config.default_group_perm)?,
        perms: std::collections::HashMap::new(),
        access_key: key.clone(),
        secret_key: secret,
    };
    let named = [
        (&config.topic_perms, Resource::topic as fn(&str) -> Resource),
        (&config.group_perms, Resource::group),
    ];
    for (rows, resource) in named {
        for row in rows.iter().flatten().filter(|row| !row.trim().is_empty()) {
            let Some((name, word)) = row.split_once('=').filter(|(name, _)| !name.trim().is_empty()) else {
                return Err(of_account(format!("{row:?} is no name=PERMISSION")));
            };
            account
                .perms
                .insert(resource(name.trim()), perm(&Some(word.to_owned()))?);
        }
    }
    Ok(account)
}

/// A file's text with one change made and the next version.
fn edited(content: &str, now: i64, edit: impl FnOnce(&mut Mapping)) -> Result<String, String> {
    let old = tree(content)?;
    let mut root = old.clone();
    let version = parse(content)?.version;
    edit(&mut root);
    let mut row = Mapping::new();
    row.insert("counter".into(), (version.counter + 1).into());
    row.insert("timestamp".into(), now.into());
    root.insert(VERSION.into(), Value::Sequence(vec![Value::Mapping(row)]));
    match super::comments::keep(content, &old, &root) {
        Some(text) => Ok(text),
        None => serde_yaml::to_string(&root).map_err(|error| error.to_string()),
    }
}

fn rows(root: &mut Mapping) -> &mut Vec<Value> {
    let slot = root
        .entry(ACCOUNTS.into())
        .or_insert_with(|| Value::Sequence(Vec::new()));
    if !slot.is_sequence() {
        *slot = Value::Sequence(Vec::new());
    }
    match slot {
        Value::Sequence(rows) => rows,
        _ => unreachable!("it was made a sequence above"),
    }
}

fn is_row_of(row: &Value, key: &str) -> bool {
    member(row, "accessKey").as_deref() == Some(key)
}

/// The text with the account made, or changed in the members that are given.
pub(crate) fn with_account(content: &str, change: &PlainAccessConfig, now: i64) -> Result<String, String> {
    let key = change.access_key.clone().unwrap_or_default();
    edited(content, now, |root| {
        let rows = rows(root);
        let at = rows
            .iter()
            .position(|row| is_row_of(row, &key))
            .unwrap_or_else(|| {
                rows.push(Value::Mapping(Mapping::new()));
                rows.len() - 1
            });
        let Value::Mapping(row) = &mut rows[at] else {
            return;
        };
        row.insert("accessKey".into(), key.clone().into());
        row.insert("admin".into(), change.admin.into());
        for (name, value) in [
            ("secretKey", &change.secret_key),
            ("whiteRemoteAddress", &change.white_remote_address),
            ("defaultTopicPerm", &change.default_topic_perm),
            ("defaultGroupPerm", &change.default_group_perm),
        ] {
            if let Some(value) = value.as_ref().filter(|v| !v.is_empty()) {
                row.insert(name.into(), value.clone().into());
            }
        }
        for (name, values) in [
            ("topicPerms", &change.topic_perms),
            ("groupPerms", &change.group_perms),
        ] {
            if let Some(values) = values.as_ref().filter(|v| !v.is_empty()) {
                let values = values.iter().cloned().map(Value::from).collect();
                row.insert(name.into(), Value::Sequence(values));
            }
        }
    })
}

/// The text without the account.
pub(crate) fn without_account(content: &str, key: &str, now: i64) -> Result<String, String> {
    edited(content, now, |root| rows(root).retain(|row| !is_row_of(row, key)))
}

/// The text with this global white list.
pub(crate) fn with_white_list(content: &str, list: &[String], now: i64) -> Result<String, String> {
    edited(content, now, |root| {
        let list = list.iter().cloned().map(Value::from).collect();
        root.insert(WHITE.into(), Value::Sequence(list));
    })
}

/// The account that a change of the known one gives.
pub(crate) fn merged(known: Option<&PlainAccessConfig>, change: &PlainAccessConfig) -> PlainAccessConfig {
    let known = known.cloned().unwrap_or_default();
    let text = |new: &Option<String>, old: Option<String>| new.clone().filter(|n| !n.is_empty()).or(old);
    let list =
        |new: &Option<Vec<String>>, old: Option<Vec<String>>| new.clone().filter(|n| !n.is_empty()).or(old);
    PlainAccessConfig {
        access_key: change.access_key.clone(),
        secret_key: text(&change.secret_key, known.secret_key),
        white_remote_address: text(&change.white_remote_address, known.white_remote_address),
        admin: change.admin,
        default_topic_perm: text(&change.default_topic_perm, known.default_topic_perm),
        default_group_perm: text(&change.default_group_perm, known.default_group_perm),
        topic_perms: list(&change.topic_perms, known.topic_perms),
        group_perms: list(&change.group_perms, known.group_perms),
    }
}

/// What was left out of a file, in one line.
pub(crate) fn told(wrong: &[String]) -> String {
    let mut line = String::new();
    for (n, why) in wrong.iter().enumerate() {
        let between = if n == 0 { "" } else { "; " };
        let _ok = write!(line, "{between}{why}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Java's distribution.
    const JAVAS: &str = "
globalWhiteRemoteAddresses:
- 10.10.103.*
- 192.168.0.*

accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - topicA=DENY
  - topicB=PUB|SUB
  - topicC=SUB
  groupPerms:
  # the group should convert to retry topic
  - groupA=DENY
  - groupB=PUB|SUB
  - groupC=SUB

- accessKey: rocketmq2
  secretKey: 12345678
  whiteRemoteAddress: 192.168.1.*
  # if it is admin, it could access all resources
  admin: true
";

    #[test]
    fn javas_example_is_read() {
        let parsed = parse(JAVAS).unwrap();
        assert!(parsed.wrong.is_empty(), "{:?}", parsed.wrong);
        assert_eq!(parsed.white.len(), 2);
        let (first, config) = &parsed.accounts[0];
        assert_eq!(
            (first.secret_key.as_str(), first.admin, first.perms.len()),
            ("12345678", false, 6)
        );
        assert_eq!(config.topic_perms.as_ref().unwrap()[1], "topicB=PUB|SUB");
        assert!(parsed.accounts[1].0.admin);
    }

    #[test]
    fn a_wrong_row_costs_itself_only() {
        let parsed = parse(
            "globalWhiteRemoteAddresses: [1.2.3, 10.0.0.1]\naccounts:\n- {accessKey: short, secretKey: 12345678}\n\
             - {accessKey: goodkey, secretKey: hidden7}\n- {accessKey: badperm, secretKey: hidden7, topicPerms: [a=MAY]}\n\
             - {accessKey: nosecret, secretKey: abc}\n- 7\n- {accessKey: noequals, secretKey: hidden7, groupPerms: [a]}",
        )
        .unwrap();
        assert_eq!((parsed.accounts.len(), parsed.white.len()), (1, 1));
        assert_eq!(parsed.wrong.len(), 6, "{:?}", parsed.wrong);
        assert!(!told(&parsed.wrong).contains("hidden7") && !told(&parsed.wrong).contains("abc"));
    }

    #[test]
    fn what_is_no_yaml_is_refused_without_showing_it() {
        let why = parse("accounts:\n- secretKey: \"hidden7\n  x: [").unwrap_err();
        assert!(!why.contains("hidden7"), "{why}");
        assert!(parse("[1]").is_err());
        assert!(parse("").unwrap().accounts.is_empty());
    }

    #[test]
    fn accounts_are_made_changed_and_deleted() {
        let change = PlainAccessConfig {
            access_key: Some("newaccount".into()),
            secret_key: Some("12345678".into()),
            topic_perms: Some(vec!["t=PUB".into()]),
            ..PlainAccessConfig::default()
        };
        let once = with_account(JAVAS, &change, 5).unwrap();
        let parsed = parse(&once).unwrap();
        assert_eq!((parsed.accounts.len(), parsed.version.counter), (3, 1));
        let change = PlainAccessConfig {
            access_key: Some("newaccount".into()),
            admin: true,
            default_group_perm: Some("SUB".into()),
            ..PlainAccessConfig::default()
        };
        let parsed = parse(&with_account(&once, &change, 6).unwrap()).unwrap();
        let (account, config) = &parsed.accounts[2];
        assert!(account.admin && account.default_group == Perm::SUB && account.perms.len() == 1);
        assert_eq!(config.secret_key.as_deref(), Some("12345678"));
        assert_eq!(
            parsed.version,
            DataVersion {
                counter: 2,
                timestamp: 6
            }
        );
        let parsed = parse(&without_account(&once, "RocketMQ", 7).unwrap()).unwrap();
        assert_eq!(parsed.accounts.len(), 2);
        let parsed = parse(&with_white_list(&once, &["1.1.1.1".into()], 8).unwrap()).unwrap();
        assert_eq!(parsed.white_texts, ["1.1.1.1"]);
    }
}
