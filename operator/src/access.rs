//! How the operator gets at brokers and name servers that want signatures or TLS.
//!
//! Calls are told apart by the address they go to. The controller of BrokerClusters notes at every pass what the pods of a
//! cluster want; the other controllers only call addresses that such a pass has met.

use ferromq_client::admin::Admin;
use ferromq_client::{ClientConfig, ClientTls, ClientTlsSettings, Credentials, HookRefusal, RpcHook};
use ferromq_protocol::{Command, acl};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// What calls to the pods of one cluster need.
#[derive(Debug, Clone, Default)]
pub struct Means {
    /// Requests are signed with this account.
    pub credentials: Option<Credentials>,
    /// Connections are encrypted.
    pub encrypted: bool,
}

#[derive(Debug, Default)]
struct Known {
    by_address: HashMap<IpAddr, (String, Arc<Means>)>,
}

impl Known {
    fn of(&self, address: &str) -> Option<&Means> {
        let ip = address.parse::<SocketAddr>().ok()?.ip();
        self.by_address.get(&ip).map(|(_, means)| means.as_ref())
    }
}

/// Signs what goes to addresses that want it.
struct Signing(Arc<RwLock<Known>>);

impl RpcHook for Signing {
    fn before(&self, peer: &str, request: &mut Command) -> Result<(), HookRefusal> {
        if let Some(credentials) = self
            .0
            .read()
            .of(peer)
            .and_then(|means| means.credentials.as_ref())
        {
            acl::sign(request, credentials);
        }
        Ok(())
    }
}

/// Calls to brokers and name servers.
pub struct Access {
    plain: Admin,
    encrypted: Admin,
    known: Arc<RwLock<Known>>,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Access({} addresses)", self.known.read().by_address.len())
    }
}

impl Access {
    /// Calls that last as long as `config` says. Certificates of brokers are not checked: a broker has proved who it is by its
    /// report before it is called, and no secret is sent to it.
    ///
    /// # Errors
    /// The configuration cannot be used.
    pub fn new(config: &ClientConfig) -> anyhow::Result<Self> {
        let known = Arc::new(RwLock::new(Known::default()));
        let config = config.clone().with_hook(Arc::new(Signing(known.clone())));
        let unchecked = ClientTlsSettings {
            auth_server: Some(false),
            ..ClientTlsSettings::default()
        };
        Ok(Self {
            plain: Admin::new(&config)?,
            encrypted: Admin::new(&config.with_tls(ClientTls::new(&unchecked)?))?,
            known,
        })
    }

    /// Notes what all pods of a cluster want; addresses that it had before are forgotten.
    pub fn replace(&self, uid: &str, addresses: impl IntoIterator<Item = IpAddr>, means: Means) {
        let means = Arc::new(means);
        let mut known = self.known.write();
        known.by_address.retain(|_, (owner, _)| owner != uid);
        if means.credentials.is_some() || means.encrypted {
            let entries = addresses
                .into_iter()
                .map(|ip| (ip, (uid.to_owned(), means.clone())));
            known.by_address.extend(entries);
        }
    }

    /// Forgets a cluster.
    pub fn forget(&self, uid: &str) {
        self.replace(uid, [], Means::default());
    }

    /// Calls for an address, `ip:port`.
    pub fn admin(&self, address: &str) -> &Admin {
        let encrypted = self.known.read().of(address).is_some_and(|means| means.encrypted);
        if encrypted { &self.encrypted } else { &self.plain }
    }

    /// Closes all connections.
    pub async fn close(&self) {
        self.plain.close().await;
        self.encrypted.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> Access {
        Access::new(&ClientConfig::new("")).unwrap()
    }

    fn is_signed(access: &Access, address: &str) -> bool {
        let mut request = Command::request(26);
        Signing(access.known.clone())
            .before(address, &mut request)
            .unwrap();
        request.ext.get(acl::SIGNATURE).is_some()
    }

    #[test]
    fn each_cluster_has_its_own_means() {
        let access = access();
        let (a, b) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let means = Means {
            credentials: Some(Credentials::new("ferromq-internal", "secret")),
            encrypted: false,
        };
        access.replace("one", [a], means);
        access.replace(
            "two",
            [b],
            Means {
                credentials: None,
                encrypted: true,
            },
        );
        assert!(is_signed(&access, "10.0.0.1:10911") && !is_signed(&access, "10.0.0.2:10911"));
        let is_encrypted = |address| std::ptr::eq(access.admin(address), &raw const access.encrypted);
        assert!(!is_encrypted("10.0.0.1:10911") && is_encrypted("10.0.0.2:9876"));
        // A pod that came back elsewhere: its former address is somebody else's now.
        access.replace(
            "two",
            [IpAddr::from([10, 0, 0, 3])],
            Means {
                credentials: None,
                encrypted: true,
            },
        );
        assert!(!is_encrypted("10.0.0.2:9876") && is_encrypted("10.0.0.3:9876"));
        access.forget("one");
        assert!(!is_signed(&access, "10.0.0.1:10911"));
        assert!(!is_signed(&access, "name.of.a.host:10911"));
    }
}
