//! TLS between the official programs and ours: on one port with plain connections, only, and with certificates of
//! both sides that are swapped while messages flow.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::common::{pair, test};
use crate::support::cluster::{Broker, Kind, NameServer};
use crate::support::process::Process;
use crate::support::{java, wait_until};

/// A client as its system properties make it.
struct Client<'a> {
    dir: &'a Path,
    names: String,
    defines: String,
}

impl Client<'_> {
    fn phase(&self, name: &str, phase: &str, ledger: &Path, more: &[&str]) -> anyhow::Result<Process> {
        let mut command = java::program("client")?;
        command
            .env("JAVA_TOOL_OPTIONS", &self.defines)
            .args([phase, "--namesrv", &self.names, "--ledger"])
            .arg(ledger)
            .args(more)
            .arg("--work-dir")
            .arg(self.dir.join(format!("{name}-work")));
        Process::start(name, self.dir, &mut command)
    }

    fn start_sending(&self, name: &str, ledger: &Path, count: u32) -> anyhow::Result<Process> {
        let count = count.to_string();
        self.phase(
            name,
            "send-phase",
            ledger,
            &["--stop-on-error", "true", "--count", &count],
        )
    }

    /// Sends, wants every answer to be good, and wants all of it back.
    fn works(&self, name: &str) -> anyhow::Result<()> {
        let ledger = self.dir.join(format!("{name}.jsonl"));
        ended_well(self.start_sending(&format!("{name}-send"), &ledger, 40)?)?;
        self.finds(name, &ledger)
    }

    fn finds(&self, name: &str, ledger: &Path) -> anyhow::Result<()> {
        ended_well(self.phase(&format!("{name}-verify"), "verify-phase", ledger, &[])?)
    }
}

fn ended_well(mut phase: Process) -> anyhow::Result<()> {
    let status = phase.wait()?;
    let stopped = phase.output().contains("\"stopped\":") && !phase.output().contains("\"stopped\":null");
    anyhow::ensure!(
        status.success() && !stopped,
        "ended with {status}\n{}",
        phase.tail()
    );
    Ok(())
}

pub(crate) fn define(settings: &[(&str, &str)]) -> Vec<String> {
    settings.iter().map(|(k, v)| format!("-D{k}={v}")).collect()
}

/// Without any file: our servers make a certificate, the official client in its test mode takes it; plain clients go on.
#[test]
fn permissive_by_default() {
    test(|dir| {
        let (names, mut broker) = pair(dir, Kind::Ours, Kind::Ours, Broker::SMALL_FILES)?;
        let client = |defines: &str| Client {
            dir,
            names: names.address(),
            defines: defines.to_owned(),
        };
        client("-Dtls.enable=true").works("encrypted")?;
        client("").works("plain")?;
        broker.stop(Kind::Ours)
    });
}

/// An authority, and what it issued, in folders as a Secret is mounted: names lead through a link that is swapped.
pub(crate) struct Mount {
    dir: PathBuf,
}

pub(crate) fn authority() -> anyhow::Result<(Issuer<'static, KeyPair>, String)> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key)?.pem();
    Ok((Issuer::new(params, key), pem))
}

impl Mount {
    pub(crate) fn new(dir: PathBuf) -> anyhow::Result<Self> {
        std::fs::create_dir(&dir)?;
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            symlink(Path::new("..data").join(name), dir.join(name))?;
        }
        Ok(Self { dir })
    }

    /// Issues a certificate and swaps it in.
    pub(crate) fn issue(
        &self,
        by: &(Issuer<'static, KeyPair>, String),
        generation: &str,
    ) -> anyhow::Result<()> {
        let folder = self.dir.join(generation);
        std::fs::create_dir(&folder)?;
        let key = KeyPair::generate()?;
        let cert = CertificateParams::new(vec!["any.name".to_owned()])?.signed_by(&key, &by.0)?;
        std::fs::write(folder.join("ca.crt"), &by.1)?;
        std::fs::write(folder.join("tls.crt"), cert.pem())?;
        std::fs::write(folder.join("tls.key"), key.serialize_pem())?;
        let new = self.dir.join("..new");
        symlink(generation, &new)?;
        std::fs::rename(new, self.dir.join("..data"))?;
        Ok(())
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// A `tls.properties` of this side, used by the official programs and by ours alike.
    pub(crate) fn properties(&self, side: &str, more: &str) -> anyhow::Result<String> {
        let text = format!(
            "tls.test.mode.enable=false\ntls.{side}.certPath={}\ntls.{side}.keyPath={}\ntls.{side}.trustCertPath={}\n{more}",
            self.path("tls.crt"),
            self.path("tls.key"),
            self.path("ca.crt"),
        );
        let path = self.dir.join(format!("{side}.properties"));
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }
}

/// Only TLS, both sides show certificates, and all of them are swapped for those of a new authority meanwhile.
#[test]
fn mutual_and_enforced_while_certificates_change() {
    test(|dir| {
        let (first, second) = (authority()?, authority()?);
        let servers = Mount::new(dir.join("servers"))?;
        let clients = Mount::new(dir.join("clients"))?;
        servers.issue(&first, "1")?;
        clients.issue(&first, "1")?;
        let both_sides = format!(
            "tls.server.need.client.auth=require\ntls.server.authClient=true\ntls.client.authServer=true\n\
             tls.client.certPath={}\ntls.client.keyPath={}\ntls.client.trustCertPath={}\n",
            servers.path("tls.crt"),
            servers.path("tls.key"),
            servers.path("ca.crt"),
        );
        let server_file = servers.properties("server", &both_sides)?;
        let defines = define(&[
            ("tls.server.mode", "enforcing"),
            ("tls.config.file", &server_file),
        ]);
        let names = NameServer::start_with(Kind::Ours, dir, &defines)?;
        let mut broker = Broker::new("broker-a", dir, &names, Broker::SMALL_FILES)?;
        broker.defines = defines;
        broker.start(Kind::Ours)?;

        let client_file = clients.properties("client", "tls.client.authServer=true\n")?;
        let client = |defines: String| Client {
            dir,
            names: names.address(),
            defines,
        };
        let friend = client(format!("-Dtls.enable=true -Dtls.config.file={client_file}"));
        let ledger = dir.join("ledger.jsonl");
        let mut sending = friend.start_sending("long", &ledger, 3000)?;
        let entries = || std::fs::read_to_string(&ledger).map_or(0, |text| text.lines().count());
        wait_until("the first messages", || Ok(entries() >= 50))?;

        servers.issue(&second, "2")?;
        clients.issue(&second, "2")?;
        let reloaded = "new connections use the changed certificate";
        wait_until("the servers take up the new files", || {
            let broker = broker
                .process
                .as_ref()
                .is_some_and(|p| p.errors().contains(reloaded));
            Ok(broker && names.errors().contains(reloaded))
        })?;
        let before = entries();
        wait_until("messages still flow", || {
            Ok(entries() > before || sending.try_wait()?.is_some())
        })?;
        ended_well(sending)?;
        // A batch is one send and several entries.
        anyhow::ensure!(entries() >= 3000, "{} of 3000 were acknowledged", entries());
        // A new process trusts the new authority only, and has the new certificate only.
        friend.finds("friend", &ledger)?;

        let stranger = client("-Dtls.enable=true".to_owned());
        let stranger = stranger.start_sending("stranger", &dir.join("stranger.jsonl"), 1)?;
        wait_until("a client without a certificate is refused", || {
            Ok(names.errors().contains("peer sent no certificates"))
        })?;
        // It would go on trying for a minute.
        drop(stranger);
        broker.stop(Kind::Ours)
    });
}

/// Our broker's outgoing connections are encrypted too: Java's name server takes nothing else here.
#[test]
fn our_broker_registers_with_javas_enforcing_name_server() {
    test(|dir| {
        let enforcing = define(&[("tls.server.mode", "enforcing")]);
        let names = NameServer::start_with(Kind::Java, dir, &enforcing)?;
        let mut broker = Broker::new("broker-a", dir, &names, Broker::SMALL_FILES)?;
        broker.defines = define(&[("tls.enable", "true")]);
        broker.start(Kind::Ours)?;
        Client {
            dir,
            names: names.address(),
            defines: "-Dtls.enable=true".to_owned(),
        }
        .works("encrypted")?;
        broker.stop(Kind::Ours)
    });
}
