//! Who holds which queue, and when that changes.

use std::collections::BTreeSet;
use std::time::Duration;

use ferromq_client::{Client, Filter, Message, MessageQueue, Outcome, ProducerConfig, PushConsumer};
use ferromq_protocol::code::request;

use crate::consuming::{config, send};
use crate::fake::{Cluster, route};
use crate::{wait_for, within};

#[tokio::test]
async fn members_share_the_queues_when_they_come_and_go() {
    let cluster = Cluster::start(&["a", "b"], 3);
    let clients: Vec<Client> = (0..3)
        .map(|n| Client::start(cluster.config().with_client_id(format!("member-{n}"))).unwrap())
        .collect();
    let mut consumers = Vec::new();
    for client in &clients {
        let listener = |_| async { Outcome::Done };
        consumers.push(PushConsumer::start(client, config("G"), listener).await.unwrap());
    }
    let of_t = |consumer: &PushConsumer| -> BTreeSet<MessageQueue> {
        consumer
            .queues()
            .into_iter()
            .filter(|queue| queue.topic == "T")
            .collect()
    };
    let shared = |consumers: &[PushConsumer], each: usize| {
        let shares: Vec<_> = consumers.iter().map(of_t).collect();
        let all: BTreeSet<_> = shares.iter().flatten().collect();
        all.len() == 6 && shares.iter().all(|share| share.len() == each)
    };
    wait_for("two queues each", || shared(&consumers, 2)).await;
    consumers.pop().unwrap().shutdown().await.unwrap();
    wait_for("three queues each", || shared(&consumers, 3)).await;
    for client in &clients {
        client.shutdown().await;
    }
}

#[tokio::test]
async fn queues_that_appear_later_are_taken_up() {
    let cluster = Cluster::start(&["a"], 1);
    let mut of_client = cluster.config();
    of_client.route_refresh = Duration::from_millis(50);
    let client = Client::start(of_client).unwrap();
    let mut config = config("G");
    config.balance_every = Duration::from_mins(10);
    let listener = |_| async { Outcome::Done };
    cluster.names.set_route("%RETRY%G", route(&cluster.brokers, 1, 6));
    let consumer = PushConsumer::start(&client, config, listener).await.unwrap();
    wait_for("two queues", || consumer.queues().len() == 2).await;
    cluster.names.set_route("T", route(&cluster.brokers, 4, 6));
    wait_for("three more", || consumer.queues().len() == 5).await;
    client.shutdown().await;
}

#[tokio::test]
async fn notices_make_one_look_not_many() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let mut config = config("G");
    config.balance_every = Duration::from_mins(10);
    let listener = |_| async { Outcome::Done };
    cluster.names.set_route("%RETRY%G", route(&cluster.brokers, 1, 6));
    let consumer = PushConsumer::start(&client, config, listener).await.unwrap();
    wait_for("the queues", || consumer.queues().len() == 2).await;
    let broker = cluster.broker("a");
    let looks = || broker.asked(request::GET_CONSUMER_LIST_BY_GROUP).len();
    let before = looks();
    broker.notify("G", 5000);
    let producer = client.producer(ProducerConfig::new("PG"));
    within("a send among them", producer.send(Message::new("T", "x")))
        .await
        .unwrap();
    wait_for("a look", || looks() >= before + 2).await;
    // Two topics: a burst makes at most two looks at each, one of which may have been under way.
    within("another send", producer.send(Message::new("T", "x")))
        .await
        .unwrap();
    assert!(looks() <= before + 6, "{} looks", looks() - before);
    client.shutdown().await;
}

#[tokio::test]
async fn topics_come_and_go_and_the_retries_stay() {
    let cluster = Cluster::start(&["a"], 1);
    for topic in ["U", "%RETRY%G"] {
        cluster.names.set_route(topic, route(&cluster.brokers, 1, 6));
    }
    let client = cluster.client();
    let listener = |_| async { Outcome::Done };
    let consumer = PushConsumer::start(&client, config("G"), listener).await.unwrap();
    let topics = || -> Vec<String> { consumer.queues().into_iter().map(|queue| queue.topic).collect() };
    wait_for("one topic", || topics() == ["%RETRY%G", "T"]).await;
    consumer.subscribe("U", Filter::All).await.unwrap();
    wait_for("two topics", || topics() == ["%RETRY%G", "T", "U"]).await;
    consumer.unsubscribe("T").await;
    wait_for("the other topic", || topics() == ["%RETRY%G", "U"]).await;
    client.shutdown().await;
}

#[tokio::test]
async fn a_group_can_be_joined_again_while_the_old_handle_lives() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let listener = |_| async { Outcome::Done };
    let first = PushConsumer::start(&client, config("G"), listener).await.unwrap();
    first.shutdown().await.unwrap();
    let second = PushConsumer::start(&client, config("G"), listener).await.unwrap();
    drop(first);
    wait_for("its queue", || {
        second.queues().iter().any(|queue| queue.topic == "T")
    })
    .await;
    send(&client, 0..1).await;
    wait_for("its message", || second.stats().consumed == 1).await;
    client.shutdown().await;
    let last = cluster.broker("a").heartbeats().pop().unwrap();
    assert_eq!(
        last.consumer_data_set[0].group_name, "G",
        "the old handle took nobody off"
    );
}
