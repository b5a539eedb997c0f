//! What fails: sent back, sent anew, or in the end among the dead letters.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{Delivery, Message, Outcome, ProducerConfig, PushConsumer, StartFrom};
use ferromq_protocol::code::request;
use parking_lot::Mutex;

use crate::consuming::{Seen, config, send};
use crate::fake::{Cluster, route};
use crate::wait_for;

#[tokio::test]
async fn what_fails_or_panics_is_sent_back_and_the_rest_goes_on() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..10).await;
    let seen = Seen::default();
    let noted = seen.clone();
    let mut config = config("G").with_max_retries(3);
    config.consume_timeout = Duration::from_secs(2);
    let consumer = PushConsumer::start(&client, config, move |delivery| {
        noted.note(&delivery);
        async move {
            match delivery.messages[0].queue_offset {
                3 => Outcome::Retry,
                4 => panic!("as listeners do"),
                5 => Outcome::RetryAtLevel(7),
                6 => Outcome::DeadLetter,
                7 => std::future::pending().await,
                _ => Outcome::Done,
            }
        }
    })
    .await
    .unwrap();
    let broker = cluster.broker("a");
    wait_for("all to be dealt with", || {
        broker.group_offset("G", "T", 0) == Some(10)
    })
    .await;
    let mut levels: Vec<(String, String)> = broker
        .asked(request::CONSUMER_SEND_MSG_BACK)
        .iter()
        .map(|back| {
            let arg = |name: &str| back.ext.get(name).unwrap_or_default().to_owned();
            assert_eq!(
                (arg("group"), arg("originTopic"), arg("maxReconsumeTimes")),
                ("G".into(), "T".into(), "3".into())
            );
            (arg("offset"), arg("delayLevel"))
        })
        .collect();
    levels.sort();
    let wanted = [("3", "0"), ("4", "0"), ("5", "7"), ("6", "-1"), ("7", "0")];
    assert_eq!(
        levels,
        wanted.map(|(offset, level)| (offset.to_owned(), level.to_owned()))
    );
    assert_eq!(consumer.stats().failed, 5);
    client.shutdown().await;
}

#[tokio::test]
async fn a_message_that_no_broker_takes_back_is_sent_anew() {
    let cluster = Cluster::start(&["a"], 1);
    cluster.names.set_route("%RETRY%G", route(&cluster.brokers, 1, 6));
    let client = cluster.client();
    send(&client, 0..1).await;
    let broker = cluster.broker("a");
    broker.refuse(request::CONSUMER_SEND_MSG_BACK, 1);
    let listener = |_| async { Outcome::Retry };
    let _consumer = PushConsumer::start(&client, config("G"), listener).await.unwrap();
    wait_for("the copy", || {
        broker
            .asked(request::SEND_MESSAGE_V2)
            .iter()
            .any(|send| send.ext.get("b") == Some("%RETRY%G"))
    })
    .await;
    let sends = broker.asked(request::SEND_MESSAGE_V2);
    let copy = sends
        .iter()
        .find(|send| send.ext.get("b") == Some("%RETRY%G"))
        .unwrap();
    let properties = copy.ext.get("i").unwrap();
    assert!(properties.contains("RETRY_TOPIC\u{1}T"), "{properties:?}");
    assert!(properties.contains("DELAY\u{1}3"), "{properties:?}");
    assert_eq!((copy.ext.get("j"), copy.ext.get("l")), (Some("1"), Some("16")));
    wait_for("the offset to move on", || {
        broker.group_offset("G", "T", 0) == Some(1)
    })
    .await;
    client.shutdown().await;
}

#[tokio::test]
async fn retried_messages_carry_the_topic_they_were_sent_to() {
    let cluster = Cluster::start(&["a"], 1);
    cluster.names.set_route("%RETRY%G", route(&cluster.brokers, 1, 6));
    let client = cluster.client();
    let producer = client.producer(ProducerConfig::new("PG"));
    let retried = Message::new("%RETRY%G", "again").property("RETRY_TOPIC", "T");
    producer.send(retried).await.unwrap();
    let topics = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&topics);
    // Started at the end of T, but at the beginning of the retries.
    let config = config("G").with_start(StartFrom::Newest);
    let _consumer = PushConsumer::start(&client, config, move |delivery: Delivery| {
        noted.lock().push((
            delivery.queue.topic.clone(),
            delivery.messages[0].topic.to_string(),
        ));
        async { Outcome::Done }
    })
    .await
    .unwrap();
    wait_for("the retry", || !topics.lock().is_empty()).await;
    assert_eq!(topics.lock()[0], ("%RETRY%G".to_owned(), "T".to_owned()));
    client.shutdown().await;
}

#[tokio::test]
async fn a_message_that_keeps_failing_in_order_goes_to_the_dead_letters_after_its_retries() {
    let cluster = Cluster::start(&["a"], 1);
    cluster.names.set_route("%RETRY%G", route(&cluster.brokers, 1, 6));
    let client = cluster.client();
    send(&client, 0..2).await;
    let mut config = config("G").with_max_retries(2);
    config.suspend = Duration::from_millis(10);
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let _consumer = PushConsumer::start_ordered(&client, config, move |delivery: Delivery| {
        let first = delivery.queue.topic == "T" && delivery.messages[0].queue_offset == 0;
        if first {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        async move { if first { Outcome::Retry } else { Outcome::Done } }
    })
    .await
    .unwrap();
    let broker = cluster.broker("a");
    wait_for("the queue to go on", || {
        broker.group_offset("G", "T", 0) == Some(2)
    })
    .await;
    assert_eq!(calls.load(Ordering::SeqCst), 3);
    let sends = broker.asked(request::SEND_MESSAGE_V2);
    let copy = sends
        .iter()
        .find(|send| send.ext.get("b") == Some("%RETRY%G"))
        .unwrap();
    // The broker puts to the dead letters what was tried as often as it may be.
    assert_eq!((copy.ext.get("j"), copy.ext.get("l")), (Some("2"), Some("2")));
    client.shutdown().await;
}
