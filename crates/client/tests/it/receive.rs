//! Pulls and offsets.

use std::time::Duration;

use ferromq_client::{ClientError, Filter, MessageQueue, PullRequest, PullStatus};
use ferromq_protocol::code::request;

use crate::consuming::send;
use crate::fake::{Cluster, route};
use crate::within;

#[tokio::test]
async fn pulls_find_wait_and_correct() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..5).await;
    let consumer = client.pull_consumer("G");
    let queue = consumer.queues("T").await.unwrap().remove(0);
    let pulled = consumer.pull(&queue, 1, &PullRequest::new(2)).await.unwrap();
    assert_eq!(
        (pulled.status, pulled.next_offset, pulled.max_offset),
        (PullStatus::Found, 3, 5)
    );
    assert_eq!(
        pulled.messages.iter().map(|m| m.queue_offset).collect::<Vec<_>>(),
        [1, 2]
    );
    let now = PullRequest::new(2).with_hold(Duration::ZERO);
    let pulled = consumer.pull(&queue, 5, &now).await.unwrap();
    assert_eq!(
        (pulled.status, pulled.messages.len()),
        (PullStatus::NoNewMessage, 0)
    );
    let pulled = consumer.pull(&queue, 99, &now).await.unwrap();
    assert_eq!((pulled.status, pulled.next_offset), (PullStatus::OffsetMoved, 5));
    // A held pull ends with the message that comes.
    let long = PullRequest::new(9).with_hold(Duration::from_secs(50));
    let held = consumer.pull(&queue, 5, &long);
    let (held, ()) = within(
        "the held pull",
        Box::pin(async { tokio::join!(held, send(&client, 5..6)) }),
    )
    .await;
    assert_eq!(held.unwrap().messages.len(), 1);
    client.shutdown().await;
}

#[tokio::test]
async fn tags_are_checked_again_here() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..6).await;
    let consumer = client.pull_consumer("G");
    let queue = consumer.queues("T").await.unwrap().remove(0);
    // The fake hands out everything, as a broker does with tags whose hashes are equal.
    let pulled = consumer
        .pull(
            &queue,
            0,
            &PullRequest::new(9).with_filter(Filter::tags("even || none")),
        )
        .await
        .unwrap();
    assert_eq!((pulled.messages.len(), pulled.next_offset), (3, 6));
    let asked = cluster.broker("a").asked(request::PULL_MESSAGE);
    assert_eq!(asked[0].ext.get("subscription"), Some("even || none"));
    client.shutdown().await;
}

#[tokio::test]
async fn offsets_are_read_and_stored() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..3).await;
    let consumer = client.pull_consumer("G");
    let queue = consumer.queues("T").await.unwrap().remove(0);
    assert_eq!(consumer.committed(&queue).await.unwrap(), None);
    consumer.commit(&queue, 2).await.unwrap();
    assert_eq!(consumer.committed(&queue).await.unwrap(), Some(2));
    assert_eq!(
        (
            consumer.min_offset(&queue).await.unwrap(),
            consumer.max_offset(&queue).await.unwrap()
        ),
        (0, 3)
    );
    assert_eq!(consumer.offset_by_time(&queue, 1).await.unwrap(), 5);
    let stranger = MessageQueue::new("T", "nobody", 0);
    let error = consumer.max_offset(&stranger).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::UnknownBroker { broker } if broker == "nobody"),
        "{error}"
    );
    client.shutdown().await;
}

#[tokio::test]
async fn a_topic_that_cannot_be_read_says_so() {
    let cluster = Cluster::start(&["a"], 1);
    cluster.names.set_route("T", route(&cluster.brokers, 1, 2));
    let client = cluster.client();
    let error = client.pull_consumer("G").queues("T").await.unwrap_err();
    assert!(
        matches!(error, ClientError::NoQueue { need: "readable", .. }),
        "{error}"
    );
    let error = client.pull_consumer("G").queues("none").await.unwrap_err();
    assert!(matches!(error, ClientError::NoRoute { .. }), "{error}");
    client.shutdown().await;
}
