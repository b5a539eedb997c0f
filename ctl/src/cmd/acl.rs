//! Accounts of access control. Secrets are never shown.

use anyhow::Context as _;
use ferromq_client::admin::UpdateAclConfig;
use serde::Serialize;

use crate::cli::{Account, Acl, Target};
use crate::context::{self, Context, Done, confirm};
use crate::output::{self, Table};

pub(crate) async fn run(cx: &Context, command: Acl) -> anyhow::Result<()> {
    match command {
        Acl::List { target } => list(cx, &target).await,
        Acl::Version { target } => version(cx, &target).await,
        Acl::Set { target, account } => set(cx, &target, &account).await,
        Acl::Delete {
            target,
            access_key,
            yes,
        } => delete(cx, &target, &access_key, yes).await,
        Acl::WhiteAddresses { target, addresses } => white_addresses(cx, &target, &addresses).await,
    }
}

#[derive(Serialize)]
struct AccountRow {
    broker: String,
    access_key: String,
    admin: bool,
    white_remote_address: Option<String>,
    default_topic_perm: Option<String>,
    default_group_perm: Option<String>,
    topic_perms: Vec<String>,
    group_perms: Vec<String>,
}

pub(crate) async fn list(cx: &Context, target: &Target) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for broker in cx.masters(target).await? {
        let accounts = cx.admin.accounts(&broker.address).await;
        let accounts = accounts.with_context(|| format!("read the accounts of {}", broker.name))?;
        if !accounts.global_white_addrs.is_empty() {
            eprintln!(
                "{}: no account is needed from {}",
                broker.name,
                accounts.global_white_addrs.join(", ")
            );
        }
        for account in accounts.plain_access_configs {
            rows.push(AccountRow {
                broker: broker.name.clone(),
                access_key: account.access_key.unwrap_or_default(),
                admin: account.admin,
                white_remote_address: account.white_remote_address,
                default_topic_perm: account.default_topic_perm,
                default_group_perm: account.default_group_perm,
                topic_perms: account.topic_perms.unwrap_or_default(),
                group_perms: account.group_perms.unwrap_or_default(),
            });
        }
    }
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["broker", "account", "admin", "topics", "groups", "named"]);
        for row in rows {
            let named: Vec<&str> = row
                .topic_perms
                .iter()
                .chain(&row.group_perms)
                .map(String::as_str)
                .collect();
            table.row([
                row.broker.clone(),
                row.access_key.clone(),
                row.admin.to_string(),
                row.default_topic_perm.clone().unwrap_or_else(|| "-".to_owned()),
                row.default_group_perm.clone().unwrap_or_else(|| "-".to_owned()),
                named.join(" "),
            ]);
        }
        table
    })
}

#[derive(Serialize)]
struct VersionRow {
    cluster: String,
    broker: String,
    address: String,
    version: String,
}

pub(crate) async fn version(cx: &Context, target: &Target) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for broker in cx.masters(target).await? {
        let version = cx.admin.account_version(&broker.address).await;
        let version = version.with_context(|| format!("read the accounts' version of {}", broker.name))?;
        rows.push(VersionRow {
            cluster: version.cluster,
            broker: version.broker_name,
            address: version.broker_address,
            version: version.version,
        });
    }
    output::print(cx.format, &rows, |rows| {
        let mut table = Table::new(&["cluster", "broker", "address", "version"]);
        for row in rows {
            table.row([&row.cluster, &row.broker, &row.address, &row.version]);
        }
        table
    })
}

pub(crate) async fn set(cx: &Context, target: &Target, account: &Account) -> anyhow::Result<()> {
    let wanted = UpdateAclConfig {
        access_key: &account.access_key,
        secret_key: account.secret_key.as_deref(),
        white_remote_address: account.white_remote_address.as_deref(),
        admin: account.admin,
        default_topic_perm: account.default_topic_perm.as_deref(),
        default_group_perm: account.default_group_perm.as_deref(),
        topic_perms: account.topic_perms.as_deref(),
        group_perms: account.group_perms.as_deref(),
    };
    let brokers = cx.masters(target).await?;
    for broker in &brokers {
        let set = cx.admin.update_account(&broker.address, &wanted).await;
        set.with_context(|| format!("change the account on {} ({})", broker.name, broker.address))?;
        eprintln!("account {} is on {}", account.access_key, broker.name);
    }
    done(cx, &account.access_key, context::names(&brokers))
}

pub(crate) async fn delete(cx: &Context, target: &Target, access_key: &str, yes: bool) -> anyhow::Result<()> {
    let brokers = cx.masters(target).await?;
    let names = context::names(&brokers);
    confirm(
        &format!("Delete account {access_key} from {}?", names.join(", ")),
        yes,
    )?;
    for broker in &brokers {
        let deleted = cx.admin.delete_account(&broker.address, access_key).await;
        deleted.with_context(|| format!("delete the account on {} ({})", broker.name, broker.address))?;
        eprintln!("account {access_key} is deleted from {}", broker.name);
    }
    done(cx, access_key, names)
}

pub(crate) async fn white_addresses(cx: &Context, target: &Target, addresses: &str) -> anyhow::Result<()> {
    let brokers = cx.masters(target).await?;
    for broker in &brokers {
        let set = cx
            .admin
            .set_white_addresses(&broker.address, addresses, None)
            .await;
        set.with_context(|| format!("set the addresses on {} ({})", broker.name, broker.address))?;
        eprintln!("{} needs no account from {addresses}", broker.name);
    }
    done(cx, addresses, context::names(&brokers))
}

fn done(cx: &Context, name: &str, brokers: Vec<String>) -> anyhow::Result<()> {
    output::print_done(
        cx.format,
        &Done {
            changed: "account",
            name: Some(name.to_owned()),
            brokers,
        },
    )
}
