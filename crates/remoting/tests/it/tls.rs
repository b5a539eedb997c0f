//! TLS beside plain connections: modes, certificates both ways, files that change while connections live.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use ferromq_protocol::command::Command;
use ferromq_remoting::tls::{ClientAuth, Mode};
use ferromq_remoting::{
    CallError, Client, ClientConfig, ClientTls, ClientTlsSettings, Conn, Dispatch, Limits, ServerConfig,
    ServerTls, TlsSettings,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::AsyncWriteExt;

use crate::support::{Peer, SOON, TestServer, echo_table, request, until, within};

/// An authority in a folder of its own, which issues certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    /// Certificate and key, PEM.
    fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["some.broker".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        (cert.pem(), key.serialize_pem())
    }
}

fn write(dir: &Path, name: &str, text: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// Files of a server: `ca`, `cert` and `key` in `dir`.
fn files(dir: &Path, authority: &Authority) -> TlsSettings {
    let (cert, key) = authority.issue();
    let mut settings = TlsSettings {
        mode: Mode::Enforcing,
        ..TlsSettings::default()
    };
    settings.server.cert_path = Some(write(dir, "cert", &cert));
    settings.server.key_path = Some(write(dir, "key", &key));
    settings.client.trust_cert_path = Some(write(dir, "ca", &authority.pem));
    settings
}

fn start(settings: &TlsSettings) -> (TestServer, Option<ServerTls>) {
    let tls = ServerTls::new(settings).unwrap();
    let config = ServerConfig {
        tls: tls.clone(),
        ..ServerConfig::default()
    };
    (TestServer::start(echo_table(), config), tls)
}

fn client(settings: &ClientTlsSettings) -> Client {
    let config = ClientConfig {
        tls: Some(ClientTls::new(settings).unwrap()),
        ..ClientConfig::default()
    };
    Client::new(config, Dispatch::none())
}

async fn ask(client: &Client, server: &TestServer) -> Result<Command, CallError> {
    let asked = Command::request(1).with_body(&b"hello"[..]);
    client.call(&server.addr.to_string(), asked, SOON).await
}

#[tokio::test]
async fn permissive_serves_both_on_one_port_without_any_file() {
    let (server, _) = start(&TlsSettings::default());
    assert_eq!(
        Peer::connect(server.addr)
            .await
            .ask(request(1, 1, b"plain"))
            .await
            .body,
        "plain"
    );
    let client = client(&ClientTlsSettings::default());
    assert_eq!(ask(&client, &server).await.unwrap().body, "hello");
    let secure: Vec<bool> = server.seen.conns.lock().iter().map(Conn::is_tls).collect();
    assert_eq!(secure, [false, true]);
    client.close().await;
    assert_eq!((server.stats.tls_opened(), server.stats.tls_errors()), (1, 0));
    server.stop().await;
}

#[tokio::test]
async fn enforcing_closes_plain_connections_and_disabled_closes_encrypted_ones() {
    let (server, _) = start(&TlsSettings {
        mode: Mode::Enforcing,
        ..TlsSettings::default()
    });
    let mut plain = Peer::connect(server.addr).await;
    plain.send(&[request(1, 1, b"")]).await;
    assert!(plain.next().await.is_none());
    until("counted", || server.stats.tls_errors() == 1).await;
    assert_eq!(server.seen.opened.load(Ordering::SeqCst), 0);
    server.stop().await;

    let (server, tls) = start(&TlsSettings {
        mode: Mode::Disabled,
        ..TlsSettings::default()
    });
    assert!(tls.is_none());
    let error = ask(&client(&ClientTlsSettings::default()), &server)
        .await
        .unwrap_err();
    assert!(matches!(error, CallError::Connect { .. }), "{error}");
    assert!(error.to_string().contains("no TLS"), "{error}");
    server.stop().await;
}

#[tokio::test]
async fn large_frames_pass_in_both_directions_many_at_a_time() {
    let (server, _) = start(&TlsSettings::default());
    let client = client(&ClientTlsSettings::default());
    let body = Bytes::from((0..3_000_000u32).map(|n| (n % 251) as u8).collect::<Vec<_>>());
    let calls = (0..16).map(|_| {
        let asked = Command::request(1).with_body(body.clone());
        let (client, addr) = (client.clone(), server.addr.to_string());
        async move { client.call(&addr, asked, SOON).await }
    });
    for answer in futures::future::join_all(calls).await {
        assert!(answer.unwrap().body == body);
    }
    client.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_client_believes_only_the_authority_it_trusts() {
    let dir = tempfile::tempdir().unwrap();
    let settings = files(dir.path(), &Authority::new());
    let (server, _) = start(&settings);
    assert!(ask(&client(&settings.client), &server).await.is_ok());

    let pinned = ClientTlsSettings {
        trust_cert_path: settings.server.cert_path.clone(),
        ..ClientTlsSettings::default()
    };
    assert!(ask(&client(&pinned), &server).await.is_ok());

    let other = ClientTlsSettings {
        trust_cert_path: Some(write(dir.path(), "other", &Authority::new().pem)),
        ..ClientTlsSettings::default()
    };
    let error = ask(&client(&other), &server).await.unwrap_err().to_string();
    assert!(error.contains("invalid peer certificate"), "{error}");

    let careless = ClientTlsSettings {
        auth_server: Some(false),
        ..other
    };
    assert!(ask(&client(&careless), &server).await.is_ok());
    server.stop().await;
}

#[tokio::test]
async fn clients_show_certificates_as_the_server_demands() {
    let dir = tempfile::tempdir().unwrap();
    let (servers, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let mut settings = files(dir.path(), &servers);
    settings.server.trust_cert_path = Some(write(dir.path(), "clients", &clients.pem));
    let nobody = settings.client.clone();
    let with = |name: &str, by: &Authority| {
        let (cert, key) = by.issue();
        ClientTlsSettings {
            cert_path: Some(write(dir.path(), &format!("{name}.cert"), &cert)),
            key_path: Some(write(dir.path(), &format!("{name}.key"), &key)),
            ..nobody.clone()
        }
    };
    let (friend, stranger) = (with("friend", &clients), with("stranger", &strangers));
    for (auth, expected) in [
        (ClientAuth::None, [true, true, true]),
        (ClientAuth::Optional, [true, true, false]),
        (ClientAuth::Require, [false, true, false]),
    ] {
        settings.server.need_client_auth = auth;
        let (server, _) = start(&settings);
        for (who, expected) in [&nobody, &friend, &stranger].into_iter().zip(expected) {
            assert_eq!(
                ask(&client(who), &server).await.is_ok(),
                expected,
                "{auth:?} {who:?}"
            );
        }
        server.stop().await;
    }
    // Any certificate, but one there must be.
    settings.server.auth_client = Some(false);
    let (server, _) = start(&settings);
    assert!(ask(&client(&stranger), &server).await.is_ok());
    assert!(ask(&client(&nobody), &server).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn files_that_change_are_used_by_new_connections_only() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    // As a Secret is mounted: the names lead through a link to a folder, and the link is swapped.
    let mount = dir.path();
    for (name, authority) in [("1", &old), ("2", &new)] {
        std::fs::create_dir(mount.join(name)).unwrap();
        files(&mount.join(name), authority);
    }
    symlink("1", mount.join("data")).unwrap();
    for name in ["cert", "key", "ca"] {
        symlink(Path::new("data").join(name), mount.join(name)).unwrap();
    }
    let mut settings = TlsSettings {
        mode: Mode::Enforcing,
        ..TlsSettings::default()
    };
    settings.server.cert_path = Some(mount.join("cert"));
    settings.server.key_path = Some(mount.join("key"));
    let trusting = |authority: &Authority, name: &str| {
        client(&ClientTlsSettings {
            trust_cert_path: Some(write(mount, name, &authority.pem)),
            ..ClientTlsSettings::default()
        })
    };
    let (server, tls) = start(&settings);
    server.tasks.spawn(tls.unwrap().watch(server.stop.clone()));
    let early = trusting(&old, "old.ca");
    assert!(ask(&early, &server).await.is_ok());
    assert!(ask(&trusting(&new, "new.ca"), &server).await.is_err());

    symlink("2", mount.join("data.tmp")).unwrap();
    std::fs::rename(mount.join("data.tmp"), mount.join("data")).unwrap();
    let late = trusting(&new, "new.ca");
    within(async {
        while ask(&late, &server).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(ask(&trusting(&old, "old.ca"), &server).await.is_err());
    assert!(ask(&early, &server).await.is_ok(), "a live connection was cut");
    assert_eq!(server.seen.closed.load(Ordering::SeqCst), 0);
    early.close().await;
    late.close().await;
    server.stop().await;
}

#[tokio::test]
async fn a_pair_that_does_not_match_keeps_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let settings = files(dir.path(), &authority);
    let (server, tls) = start(&settings);
    let tls = tls.unwrap();
    let good = |server| async move { ask(&client(&settings.client), server).await.is_ok() };
    assert_eq!(tls.refresh(), Ok(false));

    let (cert, key) = authority.issue();
    write(dir.path(), "cert", &cert);
    let error = tls.refresh().unwrap_err().to_string();
    assert!(error.contains("does not belong to it"), "{error}");
    assert_eq!(
        tls.refresh(),
        Ok(false),
        "one state of the files is reported once"
    );
    write(dir.path(), "key", &key[..key.len() / 2]);
    let error = tls.refresh().unwrap_err().to_string();
    assert!(error.contains("private key") && error.contains("key"), "{error}");
    std::fs::remove_file(dir.path().join("key")).unwrap();
    assert!(tls.refresh().is_err());
    write(dir.path(), "key", &key);
    assert_eq!(tls.refresh(), Ok(true));
    assert!(good(&server).await);
    server.stop().await;
}

#[tokio::test]
async fn the_old_pair_serves_while_the_new_one_is_unusable() {
    let dir = tempfile::tempdir().unwrap();
    let settings = files(dir.path(), &Authority::new());
    let (server, tls) = start(&settings);
    write(dir.path(), "cert", "half");
    assert!(tls.unwrap().refresh().is_err());
    assert!(ask(&client(&settings.client), &server).await.is_ok());
    server.stop().await;
}

#[tokio::test]
async fn a_client_takes_up_changed_files_when_it_connects() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let settings = files(dir.path(), &new);
    write(dir.path(), "ca", &old.pem);
    let (server, _) = start(&settings);
    let client = client(&settings.client);
    assert!(ask(&client, &server).await.is_err());
    write(dir.path(), "ca", &new.pem);
    assert!(ask(&client, &server).await.is_ok());
    client.close().await;
    server.stop().await;
}

type Change = Box<dyn Fn(&mut TlsSettings)>;

#[test]
fn what_cannot_work_is_refused_at_the_start_with_file_and_cure() {
    let dir = tempfile::tempdir().unwrap();
    let good = files(dir.path(), &Authority::new());
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let encrypted = write(dir.path(), "encrypted", encrypted);
    let other_key = write(dir.path(), "other.key", &Authority::new().issue().1);
    let cases: [(&str, Change); 8] = [
        (
            "no.such.file",
            Box::new(|s| s.server.cert_path = Some("/no.such.file".into())),
        ),
        (
            "openssl pkcs8",
            Box::new(move |s| s.server.key_path = Some(encrypted.clone())),
        ),
        (
            "does not belong",
            Box::new(move |s| s.server.key_path = Some(other_key.clone())),
        ),
        (
            "no certificate in PEM",
            Box::new(|s| s.server.cert_path = s.server.key_path.clone()),
        ),
        (
            "tls.server.keyPath is not",
            Box::new(|s| s.server.key_path = None),
        ),
        (
            "tls.server.trustCertPath",
            Box::new(|s| s.server.need_client_auth = ClientAuth::Require),
        ),
        (
            "needs tls.server.trustCertPath",
            Box::new(|s| {
                s.server.need_client_auth = ClientAuth::Optional;
                s.server.auth_client = Some(true);
            }),
        ),
        (
            "tls.test.mode.enable=true",
            Box::new(|s| {
                (s.server.cert_path, s.server.key_path) = (None, None);
                s.server.self_signed = Some(false);
            }),
        ),
    ];
    for (expected, change) in cases {
        let mut settings = good.clone();
        change(&mut settings);
        let error = ServerTls::new(&settings).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let blind = ClientTlsSettings {
        auth_server: Some(true),
        ..ClientTlsSettings::default()
    };
    let error = ClientTls::new(&blind).unwrap_err().to_string();
    assert!(error.contains("tls.client.trustCertPath"), "{error}");
}

#[tokio::test]
async fn peers_that_begin_and_stop_are_given_up_or_drained() {
    let tls = ServerTls::new(&TlsSettings::default()).unwrap();
    let limits = Limits {
        idle: Duration::from_millis(200),
        ..Limits::default()
    };
    let config = ServerConfig {
        tls: tls.clone(),
        limits,
        ..ServerConfig::default()
    };
    let server = TestServer::start(echo_table(), config);
    let mut silent = Peer::connect(server.addr).await;
    let mut half = Peer::connect(server.addr).await;
    half.stream.write_all(&[0x16, 3, 1, 2, 0]).await.unwrap();
    let mut rubbish = Peer::connect(server.addr).await;
    rubbish.stream.write_all(&[0x16; 4096]).await.unwrap();
    for peer in [&mut silent, &mut half, &mut rubbish] {
        // A TLS alert may come first.
        within(async {
            let mut sink = [0; 1024];
            while !matches!(
                tokio::io::AsyncReadExt::read(&mut peer.stream, &mut sink).await,
                Ok(0) | Err(_)
            ) {}
        })
        .await;
    }
    until("all are gone", || server.stats.open() == 0).await;
    assert_eq!(server.seen.opened.load(Ordering::SeqCst), 0);
    assert_eq!(server.seen.closed.load(Ordering::SeqCst), 0);
    assert_eq!(server.stats.tls_errors(), 1);
    server.stop().await;

    let (server, _) = start(&TlsSettings::default());
    let mut silent = Peer::connect(server.addr).await;
    until("accepted", || server.stats.open() == 1).await;
    server.stop().await;
    assert!(silent.next().await.is_none());
}
