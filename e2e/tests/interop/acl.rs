//! Access control: the official client with `AclClientRPCHook` against our broker and Java's, with the same account file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::test;
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::java;
use crate::support::process::Process;

const ACCOUNTS: &str = "
accounts:
- {accessKey: admin-key, secretKey: admin-secret, admin: true}
- accessKey: client-key
  secretKey: client-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [AclOpen=PUB|SUB, AclReadOnly=SUB]
  groupPerms: [acl_consumers=SUB]
";

type Outcomes = BTreeMap<String, String>;

/// Starts trying everything as this account.
fn start_trying(
    dir: &Path,
    names: &NameServer,
    broker: &str,
    name: &str,
    account: Option<(&str, &str)>,
) -> anyhow::Result<Process> {
    let mut command = java::program("admin")?;
    command
        .args(["acl", "--namesrv", &names.address(), "--broker", broker])
        .arg("--work-dir")
        .arg(dir.join(format!("{name}-work")));
    if let Some((key, secret)) = account {
        command.args(["--access-key", key, "--secret-key", secret]);
    }
    Process::start(name, dir, &mut command)
}

/// What the account got from the broker.
fn tried(mut phase: Process) -> anyhow::Result<Outcomes> {
    let status = phase.wait()?;
    let output = phase.output();
    let line = output.lines().rfind(|line| line.starts_with('{'));
    anyhow::ensure!(
        status.success() && line.is_some(),
        "ended with {status}\n{}",
        phase.tail()
    );
    Ok(serde_json::from_str(line.unwrap_or_default())?)
}

/// All accounts against one kind of broker.
fn outcomes(dir: &Path, kind: Kind) -> anyhow::Result<Vec<Outcomes>> {
    let dir = &dir.join(format!("{kind:?}"));
    std::fs::create_dir_all(dir.join("conf"))?;
    std::fs::write(dir.join("conf/plain_acl.yml"), ACCOUNTS)?;
    let names = NameServer::start(kind, dir)?;
    let settings: Vec<_> = Broker::SMALL_FILES
        .iter()
        .copied()
        .chain([("aclEnable", "true")])
        .collect();
    let mut broker = Broker::new("broker-a", dir, &names, &settings)?;
    broker.defines = vec![format!("-Drocketmq.home.dir={}", dir.display())];
    broker.start(kind)?;
    let address = broker.address();
    let start = |name, account| start_trying(dir, &names, &address, name, account);
    // The administrator makes the topics; the others then try their luck at the same time.
    let mut all = vec![tried(start("admin", Some(("admin-key", "admin-secret")))?)?];
    let others = [
        ("client", Some(("client-key", "client-secret"))),
        ("wrong", Some(("client-key", "other-secret"))),
        ("unknown", Some(("nobody-key", "client-secret"))),
        ("unsigned", None),
    ];
    let others = others.map(|(name, account)| start(name, account));
    for phase in others {
        all.push(tried(phase?)?);
    }
    broker.stop(kind)?;
    Ok(all)
}

/// Where ours is stricter or kinder than Java's on purpose.
fn differs_on_purpose(account: usize, what: &str) -> bool {
    match what {
        // Java's broker leaves an argument out that its client signs.
        "find by unique key" => true,
        // Java checks no permission of a batch, and lets every account make accounts.
        "send a batch to AclOther" | "make an account" => account == 1,
        _ => false,
    }
}

#[test]
fn the_official_client_gets_from_ours_what_it_gets_from_javas() {
    test(|dir| {
        let ours = outcomes(dir, Kind::Ours)?;
        let javas = outcomes(dir, Kind::Java)?;
        for (account, (ours, javas)) in ours.iter().zip(&javas).enumerate() {
            for (what, outcome) in ours {
                anyhow::ensure!(
                    differs_on_purpose(account, what) || javas.get(what) == Some(outcome),
                    "account {account}: {what}: ours {outcome}, Java's {:?}",
                    javas.get(what)
                );
            }
        }
        let (admin, client) = (&ours[0], &ours[1]);
        anyhow::ensure!(admin.values().all(|o| o == "ok"), "{admin:?}");
        let allowed: Vec<&str> = client
            .iter()
            .filter(|(_, o)| *o == "ok")
            .map(|(what, _)| what.as_str())
            .collect();
        anyhow::ensure!(
            allowed
                == [
                    "find by unique key",
                    "pull from AclOpen",
                    "pull from AclReadOnly",
                    "read the settings",
                    "send a batch to AclOpen",
                    "send to AclOpen",
                ],
            "{client:?}"
        );
        for nobody in &ours[2..] {
            anyhow::ensure!(nobody.values().all(|o| o == "refused"), "{nobody:?}");
        }
        Ok(())
    });
}
