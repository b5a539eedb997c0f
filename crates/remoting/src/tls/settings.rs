//! The settings, under the names of Java's system properties and `tls.properties`.

use std::path::PathBuf;

use super::TlsError;

/// What a server does with the first byte of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Plain only.
    Disabled,
    /// Both.
    #[default]
    Permissive,
    /// TLS only.
    Enforcing,
}

/// Whether clients have to show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// They are not asked for one.
    #[default]
    None,
    /// They are asked, and may have none.
    Optional,
    /// Without one they are refused.
    Require,
}

/// A server's files and rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerTlsSettings {
    /// `tls.server.certPath`: certificate chain, PEM, the server's own first.
    pub cert_path: Option<PathBuf>,
    /// `tls.server.keyPath`: private key, PEM, not encrypted (PKCS#8, PKCS#1 or SEC1).
    pub key_path: Option<PathBuf>,
    /// `tls.server.trustCertPath`: authorities of clients' certificates, PEM.
    pub trust_cert_path: Option<PathBuf>,
    /// `tls.server.need.client.auth`: `none` (default), `optional` or `require`.
    pub need_client_auth: ClientAuth,
    /// `tls.server.authClient`: whether clients' certificates are checked. Default: when there is a
    /// `tls.server.trustCertPath` (in Java: false).
    pub auth_client: Option<bool>,
    /// `tls.test.mode.enable`: whether a self-signed certificate is made when none is set. Default true.
    /// A certificate that is set is used in any case (in Java: only with `false`).
    pub self_signed: Option<bool>,
}

/// A client's files and rules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientTlsSettings {
    /// `tls.client.certPath`: certificate chain to show to servers, PEM.
    pub cert_path: Option<PathBuf>,
    /// `tls.client.keyPath`: its private key, PEM, not encrypted.
    pub key_path: Option<PathBuf>,
    /// `tls.client.trustCertPath`: authorities of servers' certificates, PEM.
    pub trust_cert_path: Option<PathBuf>,
    /// `tls.client.authServer`: whether servers' certificates are checked. Default: when there is a
    /// `tls.client.trustCertPath` (in Java: false).
    pub auth_server: Option<bool>,
}

/// Everything about TLS that Java's names can say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// `tls.server.mode`: `disabled`, `permissive` (default) or `enforcing`.
    pub mode: Mode,
    /// `tls.enable`: whether outgoing connections use TLS. Default: when the mode is enforcing; a mere client: no.
    pub enable: Option<bool>,
    /// The server's side.
    pub server: ServerTlsSettings,
    /// The client's side.
    pub client: ClientTlsSettings,
}

impl TlsSettings {
    /// All keys that [`set`](Self::set) knows.
    pub const KEYS: &'static [&'static str] = &[
        "tls.server.mode",
        "tls.enable",
        "tls.test.mode.enable",
        "tls.server.certPath",
        "tls.server.keyPath",
        "tls.server.keyPassword",
        "tls.server.trustCertPath",
        "tls.server.need.client.auth",
        "tls.server.authClient",
        "tls.client.certPath",
        "tls.client.keyPath",
        "tls.client.keyPassword",
        "tls.client.trustCertPath",
        "tls.client.authServer",
    ];

    /// Reads keys and values, later ones over earlier ones; keys that do not begin with `tls.` are left alone.
    ///
    /// # Errors
    /// An impossible value, with its key; an unknown key that begins with `tls.`: a misspelt one must not leave
    /// a port open.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, TlsError> {
        let mut settings = Self::default();
        for (key, value) in pairs {
            if !settings.set(key, value)? && key.starts_with("tls.") && key != "tls.config.file" {
                return Err(TlsError::Settings(format!(
                    "{key} is not known; the keys about TLS are {}",
                    Self::KEYS.join(", ")
                )));
            }
        }
        Ok(settings)
    }

    /// Sets one key; false when it is none of [`KEYS`](Self::KEYS). An empty path or switch takes it back.
    ///
    /// # Errors
    /// The value is impossible; nothing changed then.
    pub fn set(&mut self, key: &str, value: &str) -> Result<bool, TlsError> {
        let value = value.trim();
        let bad = |must| TlsError::Setting {
            key: key.to_owned(),
            value: value.to_owned(),
            must,
        };
        let path = || (!value.is_empty()).then(|| PathBuf::from(value));
        let switch = || match value.to_ascii_lowercase().as_str() {
            "" => Ok(None),
            "true" => Ok(Some(true)),
            "false" => Ok(Some(false)),
            _ => Err(bad("true or false")),
        };
        match key {
            "tls.server.mode" => {
                self.mode = match value.to_ascii_lowercase().as_str() {
                    "disabled" => Mode::Disabled,
                    "" | "permissive" => Mode::Permissive,
                    "enforcing" => Mode::Enforcing,
                    _ => return Err(bad("disabled, permissive or enforcing")),
                }
            }
            "tls.enable" => self.enable = switch()?,
            "tls.test.mode.enable" => self.server.self_signed = switch()?,
            "tls.server.certPath" => self.server.cert_path = path(),
            "tls.server.keyPath" => self.server.key_path = path(),
            // Of use only for an encrypted key, which is refused when it is read.
            "tls.server.keyPassword" | "tls.client.keyPassword" => {}
            "tls.server.trustCertPath" => self.server.trust_cert_path = path(),
            "tls.server.need.client.auth" => {
                self.server.need_client_auth = match value.to_ascii_lowercase().as_str() {
                    "" | "none" => ClientAuth::None,
                    "optional" => ClientAuth::Optional,
                    "require" => ClientAuth::Require,
                    _ => return Err(bad("none, optional or require")),
                }
            }
            "tls.server.authClient" => self.server.auth_client = switch()?,
            "tls.client.certPath" => self.client.cert_path = path(),
            "tls.client.keyPath" => self.client.key_path = path(),
            "tls.client.trustCertPath" => self.client.trust_cert_path = path(),
            "tls.client.authServer" => self.client.auth_server = switch()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Whether a server's outgoing connections use TLS.
    pub fn outgoing(&self) -> bool {
        self.enable.unwrap_or(self.mode == Mode::Enforcing)
    }
}

impl ServerTlsSettings {
    pub(super) fn files(&self) -> [(&'static str, Option<PathBuf>); 3] {
        [
            ("a certificate chain", self.cert_path.clone()),
            ("a private key", self.key_path.clone()),
            ("trusted authorities", self.trust_cert_path.clone()),
        ]
    }

    /// Whether clients' certificates are checked against the trusted authorities.
    pub fn verifies(&self) -> bool {
        self.auth_client.unwrap_or_else(|| self.trust_cert_path.is_some())
    }
}

impl ClientTlsSettings {
    pub(super) fn files(&self) -> [(&'static str, Option<PathBuf>); 3] {
        [
            ("a certificate chain", self.cert_path.clone()),
            ("a private key", self.key_path.clone()),
            ("trusted authorities", self.trust_cert_path.clone()),
        ]
    }

    /// Whether servers' certificates are checked against the trusted authorities.
    pub fn verifies(&self) -> bool {
        self.auth_server.unwrap_or_else(|| self.trust_cert_path.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javas_names_are_read() {
        let pairs = [
            ("tls.server.mode", "Enforcing"),
            ("tls.test.mode.enable", "false"),
            ("tls.server.certPath", " /c "),
            ("tls.server.keyPath", "/k"),
            ("tls.server.keyPassword", "secret"),
            ("tls.server.need.client.auth", "require"),
            ("tls.server.trustCertPath", "/t"),
            ("listenPort", "1"),
        ];
        let settings = TlsSettings::from_pairs(pairs).unwrap();
        assert_eq!(settings.mode, Mode::Enforcing);
        assert_eq!(settings.server.cert_path, Some("/c".into()));
        assert!(settings.server.verifies() && settings.outgoing());
        assert!(!format!("{settings:?}").contains("secret"));
    }

    #[test]
    fn each_key_in_the_list_is_known_and_others_are_not() {
        let mut settings = TlsSettings::default();
        for key in TlsSettings::KEYS {
            assert_eq!(settings.set(key, ""), Ok(true), "{key}");
        }
        assert_eq!(settings, TlsSettings::default());
        assert_eq!(settings.set("tls.server.certpath", "x"), Ok(false));
    }

    #[test]
    fn impossible_values_are_refused_with_their_key() {
        for (key, value) in [
            ("tls.server.certpath", "cert"),
            ("tls.server.mode", "enforce"),
            ("tls.enable", "yes"),
            ("tls.server.need.client.auth", "always"),
        ] {
            let error = TlsSettings::from_pairs([(key, value)]).unwrap_err().to_string();
            assert!(
                error.contains(key) && error.to_lowercase().contains(value),
                "{error}"
            );
        }
    }
}
