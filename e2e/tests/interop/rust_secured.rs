//! Our client at brokers, ours and Java's, that want accounts, and at servers that speak TLS only.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use ferromq_client::{
    ClientConfig, ClientTls, ClientTlsSettings, Credentials, Delivery, Message, Outcome, PushConsumer,
};
use parking_lot::Mutex;

use crate::common::{pair_with, test};
use crate::rust_client::{Rust, config};
use crate::support::cluster::{Broker, Kind};
use crate::support::wait_until;
use crate::tls::{Mount, authority, define};

const ACCOUNTS: &str = "
accounts:
- {accessKey: admin-key, secretKey: admin-secret, admin: true}
- accessKey: client-key
  secretKey: client-secret
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [RustOpen=PUB|SUB, RustReadOnly=SUB]
  groupPerms: [rust_consumers=SUB]
";

#[test]
fn accounts_open_what_is_theirs_at_our_broker() {
    test(|dir| accounts(dir, Kind::Ours));
}

#[test]
fn accounts_open_what_is_theirs_at_javas_broker() {
    test(|dir| accounts(dir, Kind::Java));
}

#[test]
fn tls_alone_with_certificates_of_both_sides_at_ours() {
    test(|dir| tls_only(dir, Kind::Ours));
}

#[test]
fn tls_alone_with_certificates_of_both_sides_at_javas() {
    test(|dir| tls_only(dir, Kind::Java));
}

/// Sends twenty messages and wants them back by a push consumer of `group`.
fn round_trip(rust: &Rust, topic: &str, group: &str) -> anyhow::Result<()> {
    let producer = rust.producer("secured_p");
    let wanted: BTreeSet<String> = (0..20).map(|n| format!("secret {n}")).collect();
    for body in &wanted {
        rust.runtime
            .block_on(producer.send(Message::new(topic, body.clone())))?;
    }
    let seen: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let listener = move |delivery: Delivery| {
        for message in &delivery.messages {
            let body = message.body().expect("the body can be read");
            noted.lock().insert(String::from_utf8_lossy(&body).into_owned());
        }
        async { Outcome::Done }
    };
    let consumer =
        rust.runtime
            .block_on(PushConsumer::start(&rust.client, config(group, topic), listener))?;
    wait_until("all that was sent", || Ok(*seen.lock() == wanted))?;
    // That the offsets were taken is part of it.
    rust.runtime.block_on(consumer.shutdown())?;
    Ok(())
}

/// What an account may do it can do by every kind of call; the rest is refused with a reason, as is whoever is no one.
fn accounts(dir: &Path, kind: Kind) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir.join("conf"))?;
    std::fs::write(dir.join("conf/plain_acl.yml"), ACCOUNTS)?;
    let settings = [Broker::MIDDLE_FILES, &[("aclEnable", "true")]].concat();
    let home = [format!("-Drocketmq.home.dir={}", dir.display())];
    let (names, mut broker) = pair_with(dir, kind, &settings, &[], &home)?;
    let start = |account: Option<(&str, &str)>| {
        Rust::start_as(&names, |config| match account {
            Some((key, secret)) => config.with_credentials(Credentials::new(key, secret)),
            None => config,
        })
    };
    let admin = start(Some(("admin-key", "admin-secret")))?;
    for topic in ["RustOpen", "RustReadOnly", "RustOther"] {
        admin.make_topic(topic, 2)?;
    }
    let client = start(Some(("client-key", "client-secret")))?;
    round_trip(&client, "RustOpen", "rust_consumers")?;
    let send = |rust: &Rust, topic: &str| {
        let producer = rust.producer("secured_p");
        rust.runtime.block_on(producer.send(Message::new(topic, "x")))
    };
    send(&admin, "RustReadOnly")?;
    let refused = [
        (
            &client,
            "RustReadOnly",
            "No default permission for topic:RustReadOnly",
        ),
        (&client, "RustOther", "No default permission for topic:RustOther"),
        (
            &start(Some(("client-key", "other-secret")))?,
            "RustOpen",
            "Check signature failed",
        ),
        (
            &start(Some(("nobody-key", "client-secret")))?,
            "RustOpen",
            "No acl config for nobody-key",
        ),
        (&start(None)?, "RustOpen", "No accessKey is configured"),
    ];
    for (rust, topic, why) in refused {
        let outcome = send(rust, topic);
        let text = outcome
            .as_ref()
            .err()
            .map(ToString::to_string)
            .unwrap_or_default();
        anyhow::ensure!(
            text.contains(why),
            "a send to {topic} that is refused for {why:?} gave {outcome:?}"
        );
    }
    client.end();
    admin.end();
    broker.stop(kind)
}

fn tls_client(settings: &ClientTlsSettings) -> anyhow::Result<impl FnOnce(ClientConfig) -> ClientConfig> {
    let tls = ClientTls::new(settings)?;
    Ok(|config: ClientConfig| config.with_tls(tls))
}

/// Name server and broker take nothing but TLS, and clients have to show a certificate.
fn tls_only(dir: &Path, kind: Kind) -> anyhow::Result<()> {
    let authority = authority()?;
    let servers = Mount::new(dir.join("servers"))?;
    let clients = Mount::new(dir.join("clients"))?;
    servers.issue(&authority, "1")?;
    clients.issue(&authority, "1")?;
    let both_sides = format!(
        "tls.server.need.client.auth=require\ntls.server.authClient=true\ntls.client.authServer=true\n\
         tls.client.certPath={}\ntls.client.keyPath={}\ntls.client.trustCertPath={}\n",
        servers.path("tls.crt"),
        servers.path("tls.key"),
        servers.path("ca.crt"),
    );
    let file = servers.properties("server", &both_sides)?;
    let defines = define(&[
        ("tls.server.mode", "enforcing"),
        ("tls.enable", "true"),
        ("tls.config.file", &file),
    ]);
    let (names, mut broker) = pair_with(dir, kind, Broker::MIDDLE_FILES, &defines, &defines)?;
    let settings = ClientTlsSettings {
        cert_path: Some(clients.path("tls.crt").into()),
        key_path: Some(clients.path("tls.key").into()),
        trust_cert_path: Some(clients.path("ca.crt").into()),
        auth_server: Some(true),
    };
    let friend = Rust::start_as(&names, tls_client(&settings)?)?;
    friend.make_topic("Encrypted", 2)?;
    round_trip(&friend, "Encrypted", "encrypted_c")?;

    let bare = ClientTlsSettings {
        cert_path: None,
        key_path: None,
        ..settings
    };
    for stranger in [Rust::start(&names)?, Rust::start_as(&names, tls_client(&bare)?)?] {
        let producer = stranger.producer("stranger");
        let sent = producer.send(Message::new("Encrypted", "x"));
        let refused = stranger.runtime.block_on(sent);
        anyhow::ensure!(refused.is_err(), "sent without a certificate: {refused:?}");
        stranger.end();
    }
    friend.end();
    broker.stop(kind)
}
