//! How commands prove who they are, and whether what they say is encrypted.
//!
//! The account file is that of mqadmin, `conf/tools.yml`: a YAML document with `accessKey`, `secretKey` and perhaps
//! `securityToken`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use ferromq_client::{ClientConfig, ClientTls, ClientTlsSettings, Credentials};

use crate::cli::Security;
use crate::failure::Failure;

/// Puts account and encryption into the settings of all connections.
pub(crate) fn apply(config: ClientConfig, asked: &Security) -> anyhow::Result<ClientConfig> {
    let mut config = config;
    if let Some(file) = account_file(asked) {
        config = config.with_credentials(credentials(&file)?);
    }
    if asked.tls || asked.tls_trust.is_some() || asked.tls_cert.is_some() {
        let settings = ClientTlsSettings {
            cert_path: asked.tls_cert.clone(),
            key_path: asked.tls_key.clone(),
            trust_cert_path: asked.tls_trust.clone(),
            auth_server: None,
        };
        config = config.with_tls(ClientTls::new(&settings).context("set up TLS")?);
    }
    Ok(config)
}

/// The file that was named, or mqadmin's if it is there.
fn account_file(asked: &Security) -> Option<PathBuf> {
    asked.account.clone().or_else(|| {
        let home = std::env::var_os("ROCKETMQ_HOME").filter(|home| !home.is_empty())?;
        let file = PathBuf::from(home).join("conf/tools.yml");
        file.is_file().then_some(file)
    })
}

fn credentials(file: &Path) -> anyhow::Result<Credentials> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("read the account file {}", file.display()))?;
    parse(&text).ok_or_else(|| {
        Failure::Usage(format!(
            "{} is no account file: it needs the lines `accessKey: NAME` and `secretKey: KEY`",
            file.display()
        ))
        .into()
    })
}

fn parse(text: &str) -> Option<Credentials> {
    let members: serde_yaml::Value = serde_yaml::from_str(text).ok()?;
    let member = |name: &str| match members.get(name)? {
        serde_yaml::Value::String(text) => Some(text.clone()),
        serde_yaml::Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    let mut credentials = Credentials::new(member("accessKey")?, member("secretKey")?);
    credentials.security_token = member("securityToken");
    Some(credentials)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_files_are_mqadmins() {
        let found = parse("accessKey: RocketMQ\nsecretKey: 12345678\n").unwrap();
        assert_eq!(
            (found.access_key.as_str(), found.secret_key.as_str()),
            ("RocketMQ", "12345678")
        );
        assert_eq!(found.security_token, None);
        assert_eq!(
            parse("accessKey: a\nsecretKey: b\nsecurityToken: t")
                .unwrap()
                .security_token
                .as_deref(),
            Some("t")
        );
        for text in [
            "",
            "accessKey: a",
            "secretKey: b",
            "a: [",
            "accessKey: {}\nsecretKey: b",
        ] {
            assert!(parse(text).is_none(), "{text:?}");
        }
    }
}
