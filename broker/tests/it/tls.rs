//! Broker and name server that take TLS only: the broker registers and clients work as ever.

use ferromq_broker::{Broker, StartOptions};
use ferromq_namesrv::{NameServer, NamesrvSettings};
use ferromq_protocol::Command;
use ferromq_protocol::code::{request, response};
use ferromq_remoting::tls::Mode;
use ferromq_remoting::{Client, ClientConfig, ClientTls, ClientTlsSettings, Dispatch, TlsSettings};

use crate::support::{LONG, Peer, Pulled, eventually, free_port, pull_command, send_command, settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_plain_connections_are_refused_everything_goes_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let tls = TlsSettings {
        mode: Mode::Enforcing,
        ..TlsSettings::default()
    };
    let names = NamesrvSettings {
        listen_port: free_port(),
        bind_address: "127.0.0.1".to_owned(),
        kv_config_path: dir.path().join("kv.json").display().to_string(),
        ..NamesrvSettings::default()
    };
    let at_names = format!("127.0.0.1:{}", names.listen_port);
    let names = NameServer::start_with(names, None, tls.clone()).await.unwrap();
    let port = free_port();
    let mut own = settings(&dir.path().join("store"), port);
    own.namesrv_addr.clone_from(&at_names);
    let broker = {
        let options = StartOptions {
            tls,
            ..StartOptions::default()
        };
        Broker::start_with(own, options).await.unwrap()
    };
    let at_broker = format!("127.0.0.1:{port}");

    let config = ClientConfig {
        tls: Some(ClientTls::new(&ClientTlsSettings::default()).unwrap()),
        ..ClientConfig::default()
    };
    let client = Client::new(config, Dispatch::none());
    let call = async |addr: &str, command: Command| client.call(addr, command, LONG).await.unwrap();
    assert_eq!(
        call(&at_broker, send_command("T", 0, "secret", "")).await.code,
        response::SUCCESS
    );
    let pulled = Pulled::of(&call(&at_broker, pull_command("T", 0, 0, 5_000)).await);
    assert_eq!(pulled.bodies, ["secret"]);
    eventually("the topic is routed", || async {
        let route = Command::request(request::GET_ROUTEINFO_BY_TOPIC).with_ext("topic", "T");
        call(&at_names, route).await.code == response::SUCCESS
    })
    .await;
    for addr in [at_broker, at_names] {
        let plain = Peer::new(addr);
        assert!(
            plain
                .try_call(Command::request(request::GET_BROKER_CLUSTER_INFO))
                .await
                .is_none()
        );
    }
    client.close().await;
    assert!(broker.shutdown().await);
    names.shutdown().await;
}
