//! Secrets: those that a resource names are checked, those that the operator keeps are made once.
//!
//! ```text
//! NAME-http      token         what PUT /writes of the brokers wants; brokers hold it, so it is never written again
//! NAME-account   tools.yml     the account that replicas sign with, and the operator
//!                account.yml   the same for plain_acl.yml's readers
//! ```

use super::validate::ValidCluster;
use crate::context::Context;
use crate::digest;
use crate::error::Error;
use crate::names;
use ferromq_client::Credentials;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{ObjectMeta, PostParams};
use std::collections::BTreeMap;

/// The key of a Secret that holds accounts.
pub(super) const ACCOUNTS: &str = "plain_acl.yml";
/// Name of the account that the operator makes.
const ACCOUNT: &str = "ferromq-internal";

/// What Secrets say.
#[derive(Debug, Clone, Default)]
pub(super) struct Secrets {
    /// Token for PUT /writes; empty if it was made by somebody else just now.
    pub(super) token: String,
    /// The account to sign with, if the cluster has accounts.
    pub(super) credentials: Option<Credentials>,
    /// Whether the Secret with certificates says whom to trust.
    pub(super) trusted: bool,
}

type Data = BTreeMap<String, String>;

/// Reads what the resource names and makes what is missing of the operator's own. A Secret that cannot be used is an error before
/// anything is changed.
pub(super) async fn settle(cx: &Context, valid: &ValidCluster) -> Result<Secrets, Error> {
    let mut secrets = Secrets::default();
    if let Some(name) = &valid.acl_secret {
        check(cx, valid, "spec.acl.secretName", name, check_accounts).await?;
    }
    if let Some(tls) = &valid.tls {
        let found = check(
            cx,
            valid,
            "spec.tls.secretName",
            &tls.secret_name,
            check_certificates,
        )
        .await?;
        secrets.trusted = has_authority(&found);
    }
    let token = || Data::from([("token".to_owned(), random())]);
    secrets.token = keep(cx, valid, names::http_secret(&valid.name), token)
        .await?
        .remove("token")
        .unwrap_or_default();
    if valid.acl_secret.is_some() {
        let account = keep(cx, valid, names::account_secret(&valid.name), || {
            account(&random())
        })
        .await?;
        secrets.credentials = credentials(&account);
    }
    Ok(secrets)
}

/// What is there of it, for a cluster that is not to be changed: nothing is judged, nothing is made.
pub(super) async fn look(cx: &Context, valid: &ValidCluster) -> Result<Secrets, Error> {
    let mut secrets = Secrets::default();
    if valid.acl_secret.is_some() {
        let account = read(cx, valid, &names::account_secret(&valid.name)).await?;
        secrets.credentials = account.as_ref().map(text).as_ref().and_then(credentials);
    }
    if let Some(tls) = &valid.tls {
        let found = read(cx, valid, &tls.secret_name).await?;
        secrets.trusted = found.as_ref().map(text).is_some_and(|data| has_authority(&data));
    }
    Ok(secrets)
}

fn credentials(account: &Data) -> Option<Credentials> {
    let key = account.get("secretKey")?;
    Some(Credentials::new(ACCOUNT, key.clone()))
}

fn has_authority(certificates: &Data) -> bool {
    certificates.get("ca.crt").is_some_and(|ca| !ca.is_empty())
}

async fn read(cx: &Context, valid: &ValidCluster, name: &str) -> Result<Option<Secret>, Error> {
    let found = cx.api::<Secret>(&valid.namespace).get_opt(name).await;
    found.map_err(Error::api(format!("read Secret {name}")))
}

fn random() -> String {
    digest::hex(&rand::random::<[u8; 32]>())
}

fn account(key: &str) -> Data {
    let both = format!("accessKey: {ACCOUNT}\nsecretKey: {key}\n");
    let listed = format!("accounts:\n- accessKey: {ACCOUNT}\n  secretKey: {key}\n  admin: true\n");
    Data::from([
        ("secretKey".to_owned(), key.to_owned()),
        ("tools.yml".to_owned(), both),
        ("account.yml".to_owned(), listed),
    ])
}

fn text(secret: &Secret) -> Data {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.clone(), String::from_utf8_lossy(&value.0).trim().to_owned()))
        .collect()
}

async fn check(
    cx: &Context,
    valid: &ValidCluster,
    field: &'static str,
    name: &str,
    judge: fn(&Data) -> Result<(), String>,
) -> Result<Data, Error> {
    let found = cx
        .api::<Secret>(&valid.namespace)
        .get_opt(name)
        .await
        .map_err(Error::api(format!("read Secret {name} of {field}")))?;
    let unusable = |why: String| Error::Secret {
        field,
        name: name.to_owned(),
        why,
    };
    let data = found.as_ref().map(text).ok_or_else(|| {
        unusable(format!(
            "there is none in namespace {}: create it, or remove {field}",
            valid.namespace
        ))
    })?;
    judge(&data).map_err(unusable)?;
    Ok(data)
}

fn check_accounts(data: &Data) -> Result<(), String> {
    let text = data
        .get(ACCOUNTS)
        .ok_or_else(|| format!("it has no key {ACCOUNTS}: put the accounts under that name"))?;
    // Parsers quote what they stumble over, and here that may be a key.
    let parsed: serde_yaml::Value =
        serde_yaml::from_str(text).map_err(|_| format!("{ACCOUNTS} is no YAML"))?;
    match parsed.get("accounts").map(serde_yaml::Value::is_sequence) {
        Some(true) => {}
        None if parsed.get("globalWhiteRemoteAddresses").is_some() => {}
        _ => return Err(format!("{ACCOUNTS} has no list accounts")),
    }
    let names = parsed.get("accounts").and_then(|list| list.as_sequence());
    let taken = names
        .into_iter()
        .flatten()
        .any(|one| one.get("accessKey").and_then(|key| key.as_str()) == Some(ACCOUNT));
    if taken {
        return Err(format!(
            "the account {ACCOUNT} is the operator's own: take it out of {ACCOUNTS}"
        ));
    }
    Ok(())
}

fn check_certificates(data: &Data) -> Result<(), String> {
    for (key, begins) in [("tls.crt", "-----BEGIN CERTIFICATE"), ("tls.key", "-----BEGIN ")] {
        match data.get(key) {
            Some(pem) if pem.contains(begins) => {}
            Some(_) => return Err(format!("{key} is not in PEM form")),
            None => {
                return Err(format!(
                    "it has no key {key}: a Secret of type kubernetes.io/tls is needed"
                ));
            }
        }
    }
    if data["tls.key"].contains("ENCRYPTED") {
        return Err("tls.key is encrypted: brokers cannot ask for a pass phrase".to_owned());
    }
    Ok(())
}

/// The Secret of that name, made if there is none; nothing if somebody else made it at the same time.
async fn keep(
    cx: &Context,
    valid: &ValidCluster,
    name: String,
    make: impl FnOnce() -> Data,
) -> Result<Data, Error> {
    let api = cx.api::<Secret>(&valid.namespace);
    if let Some(found) = read(cx, valid, &name).await? {
        let ours = found.owner_references().iter().any(|o| o.uid == valid.owner.uid);
        return if ours {
            Ok(text(&found))
        } else {
            Err(Error::NameTaken { kind: "Secret", name })
        };
    }
    let data = make();
    let bytes = |(key, value): (&String, &String)| (key.clone(), ByteString(value.clone().into_bytes()));
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(valid.namespace.clone()),
            labels: Some(names::common(&valid.name)),
            owner_references: Some(vec![valid.owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(bytes).collect()),
        ..Secret::default()
    };
    let parameters = PostParams {
        field_manager: Some(names::MANAGER.to_owned()),
        ..PostParams::default()
    };
    match api.create(&parameters, &secret).await {
        Ok(_) => {
            cx.metrics.wrote("Secret");
            Ok(data)
        }
        // Made since; the next pass looks whose it is.
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(Data::new()),
        Err(e) => Err(Error::api(format!("create Secret {name}"))(e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(key: &str, value: &str) -> Data {
        Data::from([(key.to_owned(), value.to_owned())])
    }

    #[test]
    fn accounts_are_judged_and_never_quoted() {
        let judge = |text: &str| check_accounts(&data(ACCOUNTS, text));
        assert_eq!(
            judge("accounts:\n- accessKey: team\n  secretKey: 12345678\n"),
            Ok(())
        );
        assert_eq!(judge("globalWhiteRemoteAddresses: ['10.*.*.*']"), Ok(()));
        for (text, word) in [
            ("accounts: x", "no list"),
            ("a: [", "no YAML"),
            ("{}", "no list"),
            ("accounts: [{accessKey: ferromq-internal}]", "operator's own"),
        ] {
            let why = judge(text).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        assert!(check_accounts(&data("other", "")).unwrap_err().contains(ACCOUNTS));
        let why = judge("accounts:\n- secretKey: hunter2hunter2\n  : x\n -").unwrap_err();
        assert!(!why.contains("hunter2"), "{why}");
    }

    #[test]
    fn the_operators_account_is_read_as_it_is_written() {
        let account = account("0123abcd");
        let tools: BTreeMap<String, String> = serde_yaml::from_str(&account["tools.yml"]).unwrap();
        assert_eq!(tools["secretKey"], "0123abcd");
        let listed: serde_yaml::Value = serde_yaml::from_str(&account["account.yml"]).unwrap();
        assert_eq!(listed["accounts"][0]["accessKey"].as_str(), Some(ACCOUNT));
        assert_eq!(listed["accounts"][0]["admin"].as_bool(), Some(true));
    }

    #[test]
    fn certificates_are_judged() {
        let mut pair = data("tls.crt", "-----BEGIN CERTIFICATE-----");
        assert!(check_certificates(&pair).unwrap_err().contains("tls.key"));
        pair.insert(
            "tls.key".to_owned(),
            "-----BEGIN ENCRYPTED PRIVATE KEY-----".to_owned(),
        );
        assert!(check_certificates(&pair).unwrap_err().contains("pass phrase"));
        pair.insert("tls.key".to_owned(), "-----BEGIN PRIVATE KEY-----".to_owned());
        assert_eq!(check_certificates(&pair), Ok(()));
        pair.insert("tls.crt".to_owned(), "DER".to_owned());
        assert!(check_certificates(&pair).unwrap_err().contains("PEM"));
    }
}
