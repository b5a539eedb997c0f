//! The cluster's certificates, made anew for every cluster by the openssl program and valid for ten years.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::plan::{API_SERVICE, Node};

/// One certificate to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Request {
    /// File name without its ending.
    pub(crate) name: String,
    /// Kubernetes takes the common name for the user and the organisation for the group.
    pub(crate) user: String,
    pub(crate) group: Option<&'static str>,
    /// Names and addresses of a server.
    pub(crate) dns: Vec<String>,
    pub(crate) addresses: Vec<Ipv4Addr>,
}

/// Every certificate of a cluster.
pub(crate) fn requests(nodes: &[Node]) -> Vec<Request> {
    let client = |name: &str, user: &str, group| Request {
        name: name.into(),
        user: user.into(),
        group,
        dns: Vec::new(),
        addresses: Vec::new(),
    };
    let names = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let switch = nodes.iter().map(|node| node.network().switch()).next();
    let mut all = vec![
        Request {
            dns: names.map(String::from).to_vec(),
            addresses: [API_SERVICE, Ipv4Addr::LOCALHOST]
                .into_iter()
                .chain(switch)
                .collect(),
            ..client("apiserver", "kube-apiserver", None)
        },
        client("admin", "ferromq-rig-admin", Some("system:masters")),
        client("controller-manager", "system:kube-controller-manager", None),
        client("scheduler", "system:kube-scheduler", None),
        client("proxy", "system:kube-proxy", None),
    ];
    all.extend(nodes.iter().map(|node| Request {
        dns: vec![node.name()],
        addresses: vec![node.address()],
        ..client(
            &node.name(),
            &format!("system:node:{}", node.name()),
            Some("system:nodes"),
        )
    }));
    all
}

impl Request {
    fn subject(&self) -> String {
        let group = self.group.map(|group| format!("/O={group}")).unwrap_or_default();
        format!("{group}/CN={}", self.user)
    }

    fn alternative_names(&self) -> Option<String> {
        let dns = self.dns.iter().map(|name| format!("DNS:{name}"));
        let addresses = self.addresses.iter().map(|address| format!("IP:{address}"));
        let all: Vec<_> = dns.chain(addresses).collect();
        (!all.is_empty()).then(|| format!("subjectAltName={}", all.join(",")))
    }
}

/// Makes the authority, every certificate of [`requests`] and the key that signs service account tokens.
pub(crate) fn make(folder: &Path, nodes: &[Node]) -> Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).context("protect the keys")?;
    let (key, crt) = pair(folder, "ca");
    openssl(
        new_certificate(&key, &crt)
            .args([
                "-subj",
                "/CN=ferromq-rig",
                "-addext",
                "basicConstraints=critical,CA:TRUE",
            ])
            .args([
                "-addext",
                "keyUsage=critical,keyCertSign,cRLSign,digitalSignature",
            ]),
    )?;
    std::thread::scope(|scope| -> Result<()> {
        let requests = requests(nodes);
        let mut work: Vec<_> = requests
            .into_iter()
            .map(|request| scope.spawn(move || sign(folder, &request)))
            .collect();
        work.push(scope.spawn(|| {
            let key = folder.join("service-accounts.key");
            openssl(
                Command::new("openssl")
                    .args(["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out"])
                    .arg(&key),
            )
        }));
        for thread in work {
            super::joined(thread)?;
        }
        Ok(())
    })
}

fn sign(folder: &Path, request: &Request) -> Result<()> {
    let (key, crt) = pair(folder, &request.name);
    let (ca_key, ca_crt) = pair(folder, "ca");
    let mut command = new_certificate(&key, &crt);
    command
        .arg("-CA")
        .arg(ca_crt)
        .arg("-CAkey")
        .arg(ca_key)
        .args(["-subj", &request.subject()]);
    command.args([
        "-addext",
        "basicConstraints=critical,CA:FALSE",
        "-addext",
        "keyUsage=critical,digitalSignature",
    ]);
    command.args(["-addext", "extendedKeyUsage=clientAuth,serverAuth"]);
    if let Some(names) = request.alternative_names() {
        command.args(["-addext", &names]);
    }
    openssl(&mut command)
}

fn pair(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    (
        folder.join(format!("{name}.key")),
        folder.join(format!("{name}.crt")),
    )
}

fn new_certificate(key: &Path, crt: &Path) -> Command {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-noenc",
        "-days",
        "3650",
    ]);
    command.arg("-keyout").arg(key).arg("-out").arg(crt);
    command
}

fn openssl(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .context("run openssl; e2e/rig/setup.sh installs it")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "openssl failed: {}", errors.trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::plan::Network;

    #[test]
    fn certificates_chain_to_the_authority_and_name_their_servers() {
        let folder = tempfile::tempdir().unwrap();
        let nodes = Node::all(Network::CANDIDATES[0], 2).unwrap();
        make(folder.path(), &nodes).unwrap();
        for request in requests(&nodes) {
            let (_, crt) = pair(folder.path(), &request.name);
            let verify = Command::new("openssl")
                .arg("verify")
                .arg("-CAfile")
                .arg(folder.path().join("ca.crt"))
                .arg(crt)
                .output();
            assert!(verify.unwrap().status.success(), "{}", request.name);
        }
        let text = Command::new("openssl")
            .args(["x509", "-noout", "-subject", "-ext", "subjectAltName", "-in"])
            .arg(folder.path().join("ferromq-2.crt"))
            .output()
            .unwrap();
        let text = String::from_utf8(text.stdout).unwrap();
        assert!(
            text.contains("system:node:ferromq-2") && text.contains("198.51.100.12"),
            "{text}"
        );
    }
}
