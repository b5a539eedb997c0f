//! Accounts, what they may do, and whether a request may pass. Pure.
//!
//! A request passes when its address is on the global white list, or on its account's; else it must carry the account's
//! signature, and the account must have every permission that the request needs: the one that is named for the topic
//! or group, or else the account's default. An administrator's account without permissions of its own may do everything.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;

use ferromq_protocol::acl::{ACCESS_KEY, verify};
use ferromq_protocol::{Command, names};

use super::address::Pattern;
use super::needs::Needs;

/// Shorter keys and secrets are refused.
pub(crate) const SHORTEST_KEY: usize = 7;

/// A set of permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Perm(u8);

impl Perm {
    pub(crate) const DENY: Self = Self(0);
    pub(crate) const PUB: Self = Self(1);
    pub(crate) const SUB: Self = Self(2);

    /// Whatever is no known word denies.
    pub(crate) fn parse(text: &str) -> Self {
        match text.trim() {
            "PUB" => Self::PUB,
            "SUB" => Self::SUB,
            "PUB|SUB" | "SUB|PUB" => Self(Self::PUB.0 | Self::SUB.0),
            _ => Self::DENY,
        }
    }

    /// Whether a text is one of the words.
    pub(crate) fn known(text: &str) -> bool {
        matches!(text.trim(), "PUB" | "SUB" | "PUB|SUB" | "SUB|PUB" | "DENY")
    }

    fn allows(self, needed: Self) -> bool {
        self.0 & needed.0 != 0
    }
}

/// A topic, or a consumer group, which also stands for its retry topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Resource {
    Topic(String),
    Group(String),
}

impl Resource {
    /// A topic; a retry topic is its group.
    pub(crate) fn topic(name: &str) -> Self {
        match names::group_of_retry_topic(name) {
            Some(group) => Self::Group(group.to_owned()),
            None => Self::Topic(name.to_owned()),
        }
    }

    pub(crate) fn group(name: &str) -> Self {
        Self::Group(names::group_of_retry_topic(name).unwrap_or(name).to_owned())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic:{name}"),
            Self::Group(name) => write!(f, "group:{name}"),
        }
    }
}

/// One account. Its `Debug` form hides the secret.
#[derive(Clone)]
pub(crate) struct Account {
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
    pub(crate) white: Pattern,
    pub(crate) admin: bool,
    pub(crate) default_topic: Perm,
    pub(crate) default_group: Perm,
    pub(crate) perms: HashMap<Resource, Perm>,
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("access_key", &self.access_key)
            .field("admin", &self.admin)
            .finish_non_exhaustive()
    }
}

impl Account {
    fn has(&self, needed: &(Resource, Perm)) -> bool {
        let (resource, perm) = needed;
        let own = self.perms.get(resource).copied().unwrap_or(match resource {
            Resource::Topic(_) => self.default_topic,
            Resource::Group(_) => self.default_group,
        });
        own.allows(*perm)
    }
}

/// Everything that decides, at one time.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    pub(crate) white: Vec<Pattern>,
    pub(crate) accounts: HashMap<String, Account>,
}

impl Rules {
    /// Whether a request may pass. `needs` is asked only when it matters.
    ///
    /// # Errors
    /// Why not, without secrets.
    pub(crate) fn check(
        &self,
        peer: IpAddr,
        request: &Command,
        needs: impl FnOnce() -> Result<Needs, String>,
    ) -> Result<(), String> {
        if self.white.iter().any(|pattern| pattern.matches(peer)) {
            return Ok(());
        }
        let Some(key) = request.ext.get(ACCESS_KEY) else {
            return Err("No accessKey is configured: the request is not signed".to_owned());
        };
        let Some(account) = self.accounts.get(key) else {
            return Err(format!("No acl config for {key}"));
        };
        if account.white.matches(peer) {
            return Ok(());
        }
        if !verify(request, &account.secret_key) {
            return Err(format!("Check signature failed for accessKey={key}"));
        }
        let needs = needs()?;
        if needs.admin && !account.admin {
            return Err(format!(
                "Need admin permission for request code={}, but accessKey={key} is not",
                request.code
            ));
        }
        if account.admin && account.perms.is_empty() {
            return Ok(());
        }
        match needs.perms.iter().find(|needed| !account.has(needed)) {
            Some((resource, _)) => Err(format!("No default permission for {resource}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ferromq_protocol::acl::{Credentials, sign};

    use super::*;

    pub(crate) fn account(key: &str, admin: bool, perms: &[(Resource, &str)]) -> Account {
        Account {
            access_key: key.into(),
            secret_key: "the-secret".into(),
            white: Pattern::Nobody,
            admin,
            default_topic: Perm::DENY,
            default_group: Perm::SUB,
            perms: perms.iter().map(|(r, p)| (r.clone(), Perm::parse(p))).collect(),
        }
    }

    fn signed(key: &str, secret: &str) -> Command {
        let mut request = Command::request(310).with_ext("b", "T");
        sign(&mut request, &Credentials::new(key, secret));
        request
    }

    fn rules(accounts: Vec<Account>) -> Rules {
        Rules {
            white: vec![Pattern::parse("10.9.9.9").unwrap()],
            accounts: accounts.into_iter().map(|a| (a.access_key.clone(), a)).collect(),
        }
    }

    fn check(rules: &Rules, request: &Command, needs: Needs) -> Result<(), String> {
        rules.check("10.0.0.1".parse().unwrap(), request, || Ok(needs))
    }

    #[test]
    fn who_is_who() {
        let mut trusted = account("trusted-host", false, &[]);
        trusted.white = Pattern::parse("10.0.0.*").unwrap();
        let rules = rules(vec![account("producer", true, &[]), trusted]);
        let needs = Needs::topic("T", Perm::PUB);
        assert_eq!(
            check(&rules, &signed("producer", "the-secret"), needs.clone()),
            Ok(())
        );
        for (request, word) in [
            (Command::request(310), "No accessKey"),
            (signed("somebody", "the-secret"), "No acl config for somebody"),
            (
                signed("producer", "wrong-secret"),
                "Check signature failed for accessKey=producer",
            ),
        ] {
            let said = check(&rules, &request, needs.clone()).unwrap_err();
            assert!(said.contains(word), "{said}");
        }
        // An account's white list stands for its signature, the global one for an account.
        let unsigned = Command::request(310).with_ext(ACCESS_KEY, "trusted-host");
        assert_eq!(check(&rules, &unsigned, needs.clone()), Ok(()));
        let global = rules.check("10.9.9.9".parse().unwrap(), &Command::request(310), || {
            Err("not asked".into())
        });
        assert_eq!(global, Ok(()));
    }

    #[test]
    fn named_permissions_come_before_defaults() {
        let perms = [
            (Resource::topic("T"), "PUB"),
            (Resource::topic("Both"), "PUB|SUB"),
            (Resource::group("G"), "DENY"),
        ];
        let rules = rules(vec![account("producer", false, &perms)]);
        let request = signed("producer", "the-secret");
        for (needs, ok) in [
            (Needs::topic("T", Perm::PUB), true),
            (Needs::topic("T", Perm::SUB), false),
            (Needs::topic("Both", Perm::SUB), true),
            (Needs::topic("Other", Perm::PUB), false),
            (Needs::group("G", Perm::SUB), false),
            (Needs::topic("%RETRY%G", Perm::SUB), false),
            (Needs::group("Other", Perm::SUB), true),
            (Needs::topic("%RETRY%Other", Perm::SUB), true),
            (Needs::admin(), false),
            (Needs::default(), true),
        ] {
            assert_eq!(check(&rules, &request, needs.clone()).is_ok(), ok, "{needs:?}");
        }
    }

    #[test]
    fn an_administrator_with_permissions_of_its_own_has_only_those() {
        let rules = rules(vec![account(
            "adm-narrow",
            true,
            &[(Resource::topic("T"), "SUB")],
        )]);
        let request = signed("adm-narrow", "the-secret");
        assert!(check(&rules, &request, Needs::admin()).is_ok());
        assert!(check(&rules, &request, Needs::topic("T", Perm::PUB)).is_err());
        assert!(check(&rules, &request, Needs::topic("U", Perm::PUB)).is_err());
    }

    #[test]
    fn words() {
        assert_eq!(Perm::parse(" SUB|PUB "), Perm::parse("PUB|SUB"));
        assert_eq!(Perm::parse("pub"), Perm::DENY);
        assert!(Perm::known("DENY") && !Perm::known("ANY"));
        assert!(!format!("{:?}", account("a", false, &[])).contains("the-secret"));
    }
}
