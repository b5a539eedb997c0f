//! Accounts and certificates from Secrets: who does not sign is refused, who does not encrypt is cut off once that is asked, and
//! both change while the brokers run.

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{CertificateParams, KeyPair};

use crate::support::{
    Namespace, broker_cluster, ferroctl_command, ready, refused, run, text, topic, wait_for,
};

/// Files of one test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("ferromq-secured-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("make a folder");
        Self(path)
    }

    fn write(&self, name: &str, content: &str) -> String {
        let file = self.0.join(name);
        std::fs::write(&file, content).expect("write a file");
        path(&file)
    }

    /// A certificate that vouches for itself, and its key.
    fn certificate(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().expect("make a key");
        let parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = parameters.self_signed(&key).expect("sign a certificate");
        (
            self.write(&format!("{name}.crt"), &certificate.pem()),
            self.write(&format!("{name}.key"), &key.serialize_pem()),
        )
    }

    fn account(&self, name: &str, key: &str) -> String {
        self.write(
            &format!("{name}-{key}.yml"),
            &format!("accessKey: {name}\nsecretKey: {key}\n"),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            eprintln!("remove {}: {error}", self.0.display());
        }
    }
}

fn path(file: &Path) -> String {
    file.to_str().expect("path is UTF-8").to_owned()
}

fn accounts(key: &str) -> String {
    format!(
        "accounts:\n- accessKey: billing-team\n  secretKey: {key}\n  defaultTopicPerm: PUB|SUB\n  defaultGroupPerm: SUB\n"
    )
}

/// Puts files into a Secret, whether it is there or not.
fn secret(space: &Namespace, name: &str, files: &[(&str, &str)]) {
    let mut line = vec![
        "create",
        "secret",
        "generic",
        name,
        "--dry-run=client",
        "-o",
        "yaml",
    ];
    let files: Vec<String> = files
        .iter()
        .map(|(key, file)| format!("--from-file={key}={file}"))
        .collect();
    line.extend(files.iter().map(String::as_str));
    let manifest = run(&mut space.kubectl(&line));
    run(&mut space.apply(&manifest));
}

/// Has the kubelets look at the pods' Secrets now, and not within the minute.
fn refresh(space: &Namespace, turn: u32) {
    let turn = format!("refreshed={turn}");
    run(&mut space.kubectl(&["annotate", "pods", "--all", "--overwrite", &turn]));
}

/// A send to the topic with more arguments.
fn send(names: &str, more: &[&str]) -> Command {
    ferroctl_command(names, &[&["message", "send", "signed", "hello"], more].concat())
}

fn succeeds(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|e| e.to_string())?;
    if done.status.success() {
        Ok(())
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

#[test]
fn accounts_and_certificates_come_from_secrets_and_change_while_brokers_run() {
    let space = Namespace::new("secured");
    let folder = Folder::new();
    let manifest = format!(
        "{}  acl: {{secretName: accounts}}\n  tls: {{secretName: certificate}}\n",
        broker_cluster("secured", 1).replace(
            "brokers: {groups: 1}",
            "brokers: {groups: 1, replicasPerGroup: 2}"
        )
    );
    run(&mut space.apply(&manifest));
    run(&mut space.apply(&topic("signed", "secured", "signed", 4)));
    wait_for("the missing Secret to be named", || {
        let (status, text) = ready(&space.json(&["mqc", "secured"]));
        if status == "False" && text.contains("Secret accounts") {
            Ok(())
        } else {
            Err(text)
        }
    });
    secret(
        &space,
        "accounts",
        &[(
            "plain_acl.yml",
            &folder.write("accounts.yml", &accounts("first-key")),
        )],
    );
    let (certificate, key) = folder.certificate("first");
    secret(
        &space,
        "certificate",
        &[("tls.crt", &certificate), ("tls.key", &key)],
    );

    // The operator signs: it reads settings, and makes the topic. The replica signs: the cluster would not be ready without it.
    space.wait_ready("mqc", "secured");
    space.wait_ready("mqt", "signed");
    let names = space.name_server("secured");
    let send = |more: &[&str]| send(&names, more);
    let first = folder.account("billing-team", "first-key");
    let denied = refused(&mut send(&[]));
    assert!(denied.contains("AclException"), "{denied}");
    run(&mut send(&["--account", &first]));
    run(&mut send(&["--account", &first, "--tls"]));
    // From both kinds of connections to one, without a name server or broker cut off on the way.
    run(&mut space.kubectl(&[
        "patch",
        "mqc",
        "secured",
        "--type=merge",
        "-p",
        r#"{"spec":{"tls":{"mode":"Enforcing"}}}"#,
    ]));
    space.wait_ready("mqc", "secured");
    wait_for("an encrypted send", || {
        succeeds(&mut send(&["--account", &first, "--tls-trust", &certificate]))
    });
    refused(&mut send(&["--account", &first]));
    let pods = || text(&space.json(&["pod", "secured-0-0"]), "/metadata/uid").to_owned();
    let before = pods();

    // Both change without a restart.
    secret(
        &space,
        "accounts",
        &[(
            "plain_acl.yml",
            &folder.write("accounts.yml", &accounts("second-key")),
        )],
    );
    let (other, key) = folder.certificate("second");
    secret(&space, "certificate", &[("tls.crt", &other), ("tls.key", &key)]);
    refresh(&space, 1);
    let second = folder.account("billing-team", "second-key");
    wait_for("the new key and the new certificate", || {
        succeeds(&mut send(&["--account", &second, "--tls-trust", &other]))
    });
    let denied = refused(&mut send(&["--account", &first, "--tls"]));
    assert!(denied.contains("AclException"), "{denied}");
    refused(&mut send(&["--account", &second, "--tls-trust", &certificate]));
    assert_eq!(pods(), before, "the master was restarted");

    // Off goes by Permissive only.
    let off = refused(&mut space.kubectl(&[
        "patch",
        "mqc",
        "secured",
        "--type=json",
        "-p",
        r#"[{"op":"remove","path":"/spec/tls"}]"#,
    ]));
    assert!(off.contains("Permissive"), "{off}");
}
