//! Name servers: which one is asked, and what is believed.

use std::time::Duration;

use ferromq_client::admin::Admin;
use ferromq_client::{Client, ClientConfig, ClientError};
use ferromq_protocol::code::request;

use crate::fake::{Cluster, FakeNames};
use crate::{wait_for, within};

fn both(first: &FakeNames, second: &FakeNames) -> ClientConfig {
    ClientConfig::new(format!("{};{}", first.running.address, second.running.address))
}

#[tokio::test]
async fn a_silent_name_server_costs_little() {
    let cluster = Cluster::start(&["a"], 1);
    let silent = FakeNames::start();
    silent.fall_silent();
    // Were the first waited for alone, this would take ten minutes.
    let config = both(&silent, &cluster.names).with_call_timeout(Duration::from_mins(10));
    let admin = Admin::new(&config).unwrap();
    let route = within("ask for the route", admin.route("T")).await.unwrap();
    assert_eq!(route.queue_datas.len(), 1);
    assert_eq!(silent.asked(request::GET_ROUTEINFO_BY_TOPIC).len(), 1);
    // The one that answered is asked first from now on.
    within("ask again", admin.route("T")).await.unwrap();
    assert_eq!(silent.asked(request::GET_ROUTEINFO_BY_TOPIC).len(), 1);
}

#[tokio::test]
async fn a_name_server_that_is_gone_is_skipped() {
    let cluster = Cluster::start(&["a"], 1);
    let gone = FakeNames::start();
    gone.running.end().await;
    let admin = Admin::new(&both(&gone, &cluster.names)).unwrap();
    within("ask for the route", admin.route("T")).await.unwrap();
}

#[tokio::test]
async fn no_route_is_believed_only_when_nobody_knows_better() {
    let cluster = Cluster::start(&["a"], 1);
    let young = FakeNames::start();
    let admin = Admin::new(&both(&young, &cluster.names)).unwrap();
    within("ask for the route", admin.route("T")).await.unwrap();
    let error = within("ask for nothing", admin.route("nothing"))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, ClientError::NoRoute { topic } if topic == "nothing"),
        "{error}"
    );
    assert!(error.is_not_found());
}

#[tokio::test]
async fn a_lost_route_stays_in_use() {
    let cluster = Cluster::start(&["a"], 2);
    let mut config = cluster.config();
    config.route_refresh = Duration::from_millis(20);
    let client = Client::start(config).unwrap();
    let consumer = client.pull_consumer("G");
    assert_eq!(consumer.queues("T").await.unwrap().len(), 2);
    cluster.names.remove_route("T");
    let asked = || cluster.names.asked(request::GET_ROUTEINFO_BY_TOPIC).len();
    let before = asked();
    wait_for("two more refreshes", || asked() >= before + 2).await;
    assert_eq!(consumer.queues("T").await.unwrap().len(), 2);
    client.shutdown().await;
}

#[tokio::test]
async fn an_endpoint_is_a_list() {
    let cluster = Cluster::start(&["a"], 1);
    let endpoint = format!("http://{}", cluster.names.running.address);
    let client = Client::start(ClientConfig::new(endpoint)).unwrap();
    assert_eq!(client.pull_consumer("G").queues("T").await.unwrap().len(), 1);
    client.shutdown().await;
}

#[tokio::test]
async fn bad_and_missing_lists_are_told_apart() {
    assert!(matches!(
        Client::start(ClientConfig::new(" ")).unwrap_err(),
        ClientError::NoNameServers
    ));
    let error = Client::start(ClientConfig::new("nonsense")).unwrap_err();
    assert!(matches!(error, ClientError::BadAddress { .. }), "{error}");
    let admin = Admin::new(&ClientConfig::new("")).unwrap();
    assert!(matches!(
        admin.route("T").await.unwrap_err(),
        ClientError::NoNameServers
    ));
}

#[tokio::test]
async fn brokers_hear_of_the_client_and_of_its_leaving() {
    let cluster = Cluster::start(&["a"], 1);
    let mut config = cluster.config().with_client_id("me");
    config.heartbeat = Duration::from_millis(20);
    let client = Client::start(config).unwrap();
    let producer = client.producer(ferromq_client::ProducerConfig::new("PG"));
    producer.queues("T").await.unwrap();
    let broker = cluster.broker("a");
    wait_for("two heartbeats", || broker.heartbeats().len() >= 2).await;
    let beat = broker.heartbeats().remove(0);
    assert_eq!(beat.client_id, "me");
    assert_eq!(beat.producer_data_set[0].group_name, "PG");
    client.shutdown().await;
    let left = broker.asked(request::UNREGISTER_CLIENT);
    assert_eq!(left[0].ext.get("producerGroup"), Some("PG"));
    assert_eq!(left[0].ext.get("clientID"), Some("me"));
}
