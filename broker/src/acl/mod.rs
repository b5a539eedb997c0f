//! Access control: who may do what, read from Java's account files, followed while they change.
//!
//! The files are `conf/plain_acl.yml` and every `.yml` and `.yaml` in `conf/acl` below `rocketmqHome`. They are read again
//! each second, by content, so that a mounted folder whose files are swapped by a symbolic link is followed too. A file that
//! cannot be read any more, or is half written, keeps what it said before; one that is gone takes its accounts with
//! it. An access key in several files counts where it stands first, by file name. With no account at all nobody passes
//! but the white list.
//!
//! [`Acl`] is also the hook that every request goes through before its handler. It does not block: it looks at
//! one shared snapshot.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferromq_protocol::Command;
use ferromq_protocol::acl::{ACCESS_KEY, Credentials, sign};
use ferromq_protocol::body::{AclConfig, DataVersion, PlainAccessConfig};
use ferromq_protocol::code::response;
use ferromq_remoting::{HookRefusal, RpcHook};
use ferromq_store::json_table;
use parking_lot::{Mutex, RwLock};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

mod address;
mod comments;
mod file;
pub(crate) mod needs;
mod rules;

use address::Pattern;
use file::Parsed;
use rules::Rules;

/// How often the files are read again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Refusals that are logged in one second; more are counted only.
const LOGGED_PER_SECOND: u64 = 20;

/// Where accounts are read from.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The file that new accounts go to.
    pub(crate) plain: PathBuf,
    /// The folder with more files.
    pub(crate) folder: PathBuf,
}

#[derive(Debug)]
struct Known {
    content: String,
    parsed: Parsed,
}

#[derive(Debug, Default)]
struct Files {
    /// In the order of the paths; the plain file comes first.
    known: Vec<(PathBuf, Known)>,
    /// Paths whose present state was told of as unusable.
    told: HashSet<PathBuf>,
}

/// Access control of one broker.
#[derive(Debug)]
pub(crate) struct Acl {
    places: Places,
    files: Mutex<Files>,
    rules: RwLock<Arc<Rules>>,
    refused: AtomicU64,
    logged: Mutex<(std::time::Instant, u64)>,
}

/// Why an account was not changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("{0}")]
    Wrong(String),
    #[error("{path}: {reason}. Files that are mounted read-only are changed where they come from")]
    Write { path: String, reason: String },
}

impl Acl {
    /// Reads the files.
    pub(crate) fn load(places: Places) -> Arc<Self> {
        let acl = Arc::new(Self {
            places,
            files: Mutex::default(),
            rules: RwLock::default(),
            refused: AtomicU64::new(0),
            logged: Mutex::new((std::time::Instant::now(), 0)),
        });
        acl.reload();
        if acl.rules.read().accounts.is_empty() {
            tracing::warn!(
                plain = %acl.places.plain.display(), folder = %acl.places.folder.display(),
                "aclEnable is true and there is no account: every request is refused until one is there, but those of the white list"
            );
        }
        acl
    }

    /// Follows the files until the end.
    pub(crate) async fn watch(self: Arc<Self>, stop: CancellationToken) {
        let mut ticks = interval(LOOK_AGAIN);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
            }
            let acl = self.clone();
            if let Err(error) = tokio::task::spawn_blocking(move || acl.reload()).await {
                tracing::error!(%error, "the thread that reads the account files failed");
            }
        }
    }

    /// Reads the files that changed. Returns whether any did. Blocks.
    pub(crate) fn reload(&self) -> bool {
        let mut files = self.files.lock();
        self.reload_locked(&mut files)
    }

    fn reload_locked(&self, files: &mut Files) -> bool {
        let mut old: BTreeMap<PathBuf, Known> = std::mem::take(&mut files.known).into_iter().collect();
        let mut changed = false;
        for path in self.paths(&old) {
            let before = old.remove(&path);
            let content = match std::fs::read_to_string(&path) {
                Ok(content) => content,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    changed |= before.is_some();
                    continue;
                }
                Err(error) => {
                    if files.told.insert(path.clone()) {
                        tracing::error!(file = %path.display(), %error, "an account file cannot be read; what it said before stays in force");
                    }
                    files.known.extend(before.map(|known| (path, known)));
                    continue;
                }
            };
            if let Some(known) = before.as_ref()
                && known.content == content
            {
                files.known.extend(before.map(|known| (path, known)));
                continue;
            }
            match file::parse(&content) {
                Ok(parsed) => {
                    if !parsed.wrong.is_empty() {
                        tracing::error!(file = %path.display(), rows = file::told(&parsed.wrong), "rows of an account file are wrong and left out");
                    }
                    tracing::info!(file = %path.display(), accounts = parsed.accounts.len(), "accounts read");
                    files.told.remove(&path);
                    files.known.push((path, Known { content, parsed }));
                    changed = true;
                }
                Err(reason) => {
                    if files.told.insert(path.clone()) {
                        tracing::error!(file = %path.display(), reason, "an account file is wrong; what it said before stays in force");
                    }
                    files.known.extend(before.map(|known| (path, known)));
                }
            }
        }
        changed |= !old.is_empty();
        if changed {
            *self.rules.write() = Arc::new(rules_of(&files.known));
        }
        changed
    }

    /// The plain file, then those of the folder by name.
    fn paths(&self, known: &BTreeMap<PathBuf, Known>) -> Vec<PathBuf> {
        let mut of_folder: Vec<PathBuf> = match std::fs::read_dir(&self.places.folder) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            // The folder cannot be looked at now: its files count as they were.
            Err(_) => known
                .keys()
                .filter(|p| **p != self.places.plain)
                .cloned()
                .collect(),
        };
        of_folder.retain(|path| is_account_file(path) && *path != self.places.plain);
        of_folder.sort();
        of_folder.insert(0, self.places.plain.clone());
        of_folder
    }

    /// Requests refused since the start.
    pub(crate) fn refusals(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Makes an account, or changes the members of it that are given. Blocks.
    pub(crate) fn put_account(&self, change: &PlainAccessConfig, now: i64) -> Result<(), ChangeError> {
        let key = change.access_key.clone().unwrap_or_default();
        let mut files = self.files.lock();
        self.reload_locked(&mut files);
        let place = place_of(&files, &key);
        let known = place.map(|(_, config)| config);
        file::account(&file::merged(known, change)).map_err(ChangeError::Wrong)?;
        let path = place.map_or_else(|| self.places.plain.clone(), |(path, _)| path.clone());
        self.change(&mut files, &path, |content| {
            file::with_account(content, change, now)
        })
    }

    /// Deletes an account. Blocks.
    pub(crate) fn delete_account(&self, key: &str, now: i64) -> Result<(), ChangeError> {
        let mut files = self.files.lock();
        self.reload_locked(&mut files);
        let Some(path) = place_of(&files, key).map(|(path, _)| path.clone()) else {
            return Err(ChangeError::Wrong(format!(
                "there is no account with accessKey={key}"
            )));
        };
        self.change(&mut files, &path, |content| {
            file::without_account(content, key, now)
        })
    }

    /// Replaces the global white list of one file, the plain one when none is named. Blocks.
    pub(crate) fn put_white_list(
        &self,
        list: &[String],
        named: Option<&str>,
        now: i64,
    ) -> Result<(), ChangeError> {
        for entry in list {
            Pattern::parse(entry).map_err(ChangeError::Wrong)?;
        }
        let mut files = self.files.lock();
        self.reload_locked(&mut files);
        let path = match named.filter(|name| !name.is_empty()) {
            None => self.places.plain.clone(),
            // Only a file that is in use: a path from the wire opens nothing else.
            Some(name) => {
                let found = files.known.iter().find(|(path, _)| path.as_os_str() == name);
                found.map(|(path, _)| path.clone()).ok_or_else(|| {
                    ChangeError::Wrong(format!("{name} is none of this broker's account files"))
                })?
            }
        };
        self.change(&mut files, &path, |content| {
            file::with_white_list(content, list, now)
        })
    }

    fn change(
        &self,
        files: &mut Files,
        path: &Path,
        edit: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<(), ChangeError> {
        let known = files.known.iter().find(|(p, _)| p == path);
        let content = known.map_or("", |(_, known)| known.content.as_str());
        let new = edit(content).map_err(ChangeError::Wrong)?;
        json_table::save_durably(path, new.as_bytes()).map_err(|error| ChangeError::Write {
            path: path.display().to_string(),
            reason: error.to_string(),
        })?;
        self.reload_locked(files);
        Ok(())
    }

    /// The version of the plain file, and those of all files by path.
    pub(crate) fn versions(&self) -> (DataVersion, BTreeMap<String, DataVersion>) {
        let files = self.files.lock();
        let all: BTreeMap<String, DataVersion> = files
            .known
            .iter()
            .map(|(path, known)| (path.display().to_string(), known.parsed.version))
            .collect();
        let plain = all.get(&self.places.plain.display().to_string()).copied();
        (plain.unwrap_or_default(), all)
    }

    /// All accounts and white lists, secrets too.
    pub(crate) fn config(&self) -> AclConfig {
        let files = self.files.lock();
        let mut config = AclConfig::default();
        let mut seen = HashSet::new();
        for (_, known) in &files.known {
            config.global_white_addrs.extend(known.parsed.white_texts.clone());
            for (account, row) in &known.parsed.accounts {
                if seen.insert(account.access_key.clone()) {
                    config.plain_access_configs.push(row.clone());
                }
            }
        }
        config
    }

    fn note(&self, peer: &str, request: &Command, reason: &str) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut logged = self.logged.lock();
        if logged.0.elapsed() >= Duration::from_secs(1) {
            *logged = (std::time::Instant::now(), 0);
        }
        logged.1 += 1;
        if logged.1 > LOGGED_PER_SECOND {
            return;
        }
        drop(logged);
        let name = ferromq_protocol::code::request_name(request.code).unwrap_or("unknown");
        tracing::warn!(
            peer,
            code = request.code,
            name,
            access_key = request.ext.get(ACCESS_KEY).unwrap_or(""),
            reason,
            "access refused"
        );
    }
}

fn is_account_file(path: &Path) -> bool {
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let yaml = path
        .extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("yml") || e.eq_ignore_ascii_case("yaml"));
    // What begins with a dot belongs to the machinery of mounted folders.
    yaml && !name.starts_with('.') && name != "tools.yml"
}

fn place_of<'a>(files: &'a Files, key: &str) -> Option<(&'a PathBuf, &'a PlainAccessConfig)> {
    files.known.iter().find_map(|(path, known)| {
        let row = known.parsed.accounts.iter().find(|(a, _)| a.access_key == key)?;
        Some((path, &row.1))
    })
}

fn rules_of(known: &[(PathBuf, Known)]) -> Rules {
    let mut rules = Rules::default();
    for (path, known) in known {
        rules.white.extend(known.parsed.white.iter().cloned());
        for (account, _) in &known.parsed.accounts {
            if rules.accounts.contains_key(&account.access_key) {
                tracing::warn!(
                    access_key = account.access_key, file = %path.display(),
                    "an access key stands in more than one account file; its first place counts"
                );
                continue;
            }
            rules.accounts.insert(account.access_key.clone(), account.clone());
        }
    }
    rules
}

impl RpcHook for Acl {
    fn before(&self, peer: &str, request: &mut Command) -> Result<(), HookRefusal> {
        let address = peer
            .parse::<std::net::SocketAddr>()
            .map_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
        let rules = self.rules.read().clone();
        rules
            .check(address, request, || needs::of(request))
            .map_err(|reason| {
                self.note(peer, request, &reason);
                HookRefusal {
                    code: response::SYSTEM_ERROR,
                    remark: format!("org.apache.rocketmq.acl.common.AclException: {reason}"),
                }
            })
    }
}

/// Signs what this broker asks of others: a slave its master's tables, all of them.
#[derive(Debug)]
pub(crate) struct Signer(Credentials);

impl Signer {
    /// The account of `tools.yml`, which Java's tools use too; None when there is no such file.
    ///
    /// # Errors
    /// The file is there but cannot be used.
    pub(crate) fn of_file(path: &Path) -> Result<Option<Arc<Self>>, String> {
        let content = match std::fs::read_to_string(path) {
            Ok(content) => content,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let members: serde_yaml::Value =
            serde_yaml::from_str(&content).map_err(|_| format!("{} is no YAML", path.display()))?;
        let text = |name: &str| {
            let value = members.get(name)?;
            value
                .as_str()
                .map(str::to_owned)
                .or_else(|| value.as_i64().map(|n| n.to_string()))
        };
        match (text("accessKey"), text("secretKey")) {
            (Some(key), Some(secret)) => Ok(Some(Arc::new(Self(Credentials::new(key, secret))))),
            _ => Err(format!(
                "{} must have the members accessKey and secretKey",
                path.display()
            )),
        }
    }
}

impl RpcHook for Signer {
    fn before(&self, _: &str, request: &mut Command) -> Result<(), HookRefusal> {
        sign(request, &self.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(key: &str) -> String {
        format!("accounts: [{{accessKey: {key}, secretKey: the-secret, admin: true}}]\n")
    }

    fn acl(root: &Path) -> Arc<Acl> {
        Acl::load(Places {
            plain: root.join("plain_acl.yml"),
            folder: root.join("acl"),
        })
    }

    fn passes(acl: &Acl, key: &str) -> bool {
        let mut request = Command::request(17);
        sign(&mut request, &Credentials::new(key, "the-secret"));
        acl.before("10.0.0.1:5", &mut request).is_ok()
    }

    #[test]
    fn files_are_followed() {
        let root = tempfile::tempdir().unwrap();
        let acl = acl(root.path());
        assert!(!passes(&acl, "account-1"));
        std::fs::write(root.path().join("plain_acl.yml"), account("account-1")).unwrap();
        std::fs::create_dir(root.path().join("acl")).unwrap();
        std::fs::write(root.path().join("acl/more.yaml"), account("account-2")).unwrap();
        std::fs::write(root.path().join("acl/.hidden.yml"), account("account-3")).unwrap();
        std::fs::write(root.path().join("acl/notes.txt"), account("account-3")).unwrap();
        assert!(acl.reload() && !acl.reload());
        assert!(passes(&acl, "account-1") && passes(&acl, "account-2") && !passes(&acl, "account-3"));
        // A half-written file keeps what it said; one that is gone takes its accounts along.
        std::fs::write(root.path().join("plain_acl.yml"), "accounts: [{accessKey: acc").unwrap();
        assert!(!acl.reload());
        assert!(passes(&acl, "account-1"));
        std::fs::write(root.path().join("plain_acl.yml"), account("account-4")).unwrap();
        assert!(acl.reload());
        assert!(passes(&acl, "account-4") && !passes(&acl, "account-1") && passes(&acl, "account-2"));
        std::fs::remove_file(root.path().join("acl/more.yaml")).unwrap();
        assert!(acl.reload());
        assert!(!passes(&acl, "account-2") && passes(&acl, "account-4"));
    }

    #[test]
    fn a_mounted_folder_is_swapped_by_its_link() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("acl");
        for (version, key) in [("..1", "account-1"), ("..2", "account-2")] {
            std::fs::create_dir_all(folder.join(version)).unwrap();
            std::fs::write(folder.join(version).join("a.yml"), account(key)).unwrap();
        }
        std::os::unix::fs::symlink("..1", folder.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/a.yml", folder.join("a.yml")).unwrap();
        let acl = acl(root.path());
        assert!(passes(&acl, "account-1"));
        std::os::unix::fs::symlink("..2", folder.join("..new")).unwrap();
        std::fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
        assert!(acl.reload());
        assert!(passes(&acl, "account-2") && !passes(&acl, "account-1"));
    }

    #[test]
    fn accounts_are_changed_where_they_stand() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("acl")).unwrap();
        std::fs::write(root.path().join("acl/a.yml"), account("account-1")).unwrap();
        let acl = acl(root.path());
        let change = |key: &str, secret: Option<&str>| PlainAccessConfig {
            access_key: Some(key.into()),
            secret_key: secret.map(str::to_owned),
            admin: true,
            ..PlainAccessConfig::default()
        };
        acl.put_account(&change("account-1", None), 1).unwrap();
        acl.put_account(&change("account-2", Some("the-secret")), 2)
            .unwrap();
        assert!(passes(&acl, "account-1") && passes(&acl, "account-2"));
        assert!(
            std::fs::read_to_string(root.path().join("plain_acl.yml"))
                .unwrap()
                .contains("account-2")
        );
        assert!(acl.put_account(&change("account-3", None), 2).is_err());
        assert!(acl.put_account(&change("short", Some("the-secret")), 2).is_err());
        let (plain, all) = acl.versions();
        assert_eq!((plain.counter, all.len()), (1, 2));
        acl.delete_account("account-1", 3).unwrap();
        assert!(!passes(&acl, "account-1") && passes(&acl, "account-2"));
        assert!(acl.delete_account("account-1", 3).is_err());
        assert!(
            acl.put_white_list(&["10.0.0.*".into()], Some("/etc/passwd"), 3)
                .is_err()
        );
        assert!(acl.put_white_list(&["10.0.0".into()], None, 3).is_err());
        acl.put_white_list(&["10.0.0.*".into()], None, 3).unwrap();
        assert!(acl.before("10.0.0.9:1", &mut Command::request(17)).is_ok());
        assert_eq!(acl.config().global_white_addrs, ["10.0.0.*"]);
        assert_eq!(acl.refusals(), 1);
    }

    #[test]
    fn every_code_that_is_served_has_a_rule() {
        let without: Vec<i32> = crate::processor::codes()
            .into_iter()
            .filter(|&code| needs::rule(code).is_none())
            .collect();
        assert!(without.is_empty(), "add these to acl::needs::RULES: {without:?}");
    }
}
