//! Sends: where they go, what they carry, how they fail.

use std::collections::BTreeSet;
use std::time::Duration;

use ferromq_client::{ClientError, Message, MessageQueue, ProducerConfig, PullRequest, SendStatus};
use ferromq_protocol::code::request;
use ferromq_protocol::header::SendMessage;

use crate::fake::{Cluster, route};
use crate::{wait_for, within};

fn config() -> ProducerConfig {
    // Long enough that only a hang would meet it.
    ProducerConfig::new("PG").with_send_timeout(Duration::from_secs(50))
}

#[tokio::test]
async fn sends_go_round_all_queues_and_return_ids() {
    let cluster = Cluster::start(&["a", "b"], 2);
    let client = cluster.client();
    let producer = client.producer(config());
    let mut ids = BTreeSet::new();
    for n in 0..8 {
        let message = Message::new("T", format!("body {n}")).tag("A").key("k");
        let receipt = within("send", producer.send(message)).await.unwrap();
        assert_eq!(receipt.status, SendStatus::Stored);
        assert_eq!(receipt.message_id().len(), 32);
        assert_eq!(receipt.offset_ids.len(), 1);
        ids.insert(receipt.message_id().to_owned());
        let found = client
            .admin()
            .message_by_id(&receipt.offset_ids[0])
            .await
            .unwrap();
        assert_eq!(found.body().unwrap(), format!("body {n}"));
        assert_eq!(found.message_id(), receipt.message_id());
        assert_eq!((found.tag(), found.keys()), (Some("A"), Some("k")));
    }
    assert_eq!(ids.len(), 8);
    for broker in &cluster.brokers {
        assert_eq!((broker.stored(0), broker.stored(1)), (2, 2), "{}", broker.name());
    }
    client.shutdown().await;
}

#[tokio::test]
async fn a_refusal_that_is_the_brokers_own_is_tried_elsewhere() {
    for code in [1, 14, 16, 17] {
        let cluster = Cluster::start(&["a", "b"], 1);
        let client = cluster.client();
        cluster
            .broker("a")
            .refuse_sends(&[(code, "no"), (code, "no"), (code, "no"), (code, "no")]);
        let producer = client.producer(config());
        for _ in 0..3 {
            let receipt = within("send", producer.send(Message::new("T", "x")))
                .await
                .unwrap();
            assert_eq!(receipt.queue.broker_name, "b", "code {code}");
        }
        client.shutdown().await;
    }
}

#[tokio::test]
async fn a_refusal_of_the_message_itself_is_final() {
    let cluster = Cluster::start(&["a", "b"], 1);
    let client = cluster.client();
    for broker in &cluster.brokers {
        broker.refuse_sends(&[(13, "too large")]);
    }
    let error = within("send", client.producer(config()).send(Message::new("T", "x")))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(13));
    assert!(error.to_string().contains("1 attempt(s)"), "{error}");
    assert_eq!(
        cluster.brokers.iter().map(|b| b.asked(310).len()).sum::<usize>(),
        1
    );
    client.shutdown().await;
}

#[tokio::test]
async fn attempts_end_after_the_retries() {
    let cluster = Cluster::start(&["a", "b"], 1);
    let client = cluster.client();
    for broker in &cluster.brokers {
        broker.refuse_sends(&[(14, "disk full"), (14, "disk full"), (14, "disk full")]);
    }
    let error = within("send", client.producer(config()).send(Message::new("T", "x")))
        .await
        .unwrap_err();
    let ClientError::SendFailed { attempts, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(attempts.len(), 3);
    assert_ne!(attempts[0].broker, attempts[1].broker);
    assert_eq!(error.code(), Some(14));
    client.shutdown().await;
}

#[tokio::test]
async fn busy_is_waited_out_without_using_up_retries() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    cluster.broker("a").refuse_sends(&[(2, "busy"); 5]);
    let producer = client.producer(config().with_retries(0));
    within("send", producer.send(Message::new("T", "x")))
        .await
        .unwrap();
    assert_eq!(cluster.broker("a").stored(0), 1);
    client.shutdown().await;
}

#[tokio::test]
async fn a_broker_that_is_gone_is_passed_over() {
    let cluster = Cluster::start(&["a", "b"], 2);
    let client = cluster.client();
    let producer = client.producer(config());
    cluster.broker("a").running.end().await;
    for _ in 0..6 {
        let receipt = within("send", producer.send(Message::new("T", "x")))
            .await
            .unwrap();
        assert_eq!(receipt.queue.broker_name, "b");
    }
    client.shutdown().await;
}

#[tokio::test]
async fn a_broker_that_hangs_leaves_time_for_another() {
    let cluster = Cluster::start(&["a", "b"], 1);
    let client = cluster.client();
    let producer = client.producer(config().with_send_timeout(Duration::from_secs(4)));
    cluster.broker("a").fall_silent();
    for _ in 0..4 {
        let receipt = within("send", producer.send(Message::new("T", "x")))
            .await
            .unwrap();
        assert_eq!(receipt.queue.broker_name, "b");
    }
    client.shutdown().await;
}

#[tokio::test]
async fn a_send_to_a_queue_goes_nowhere_else() {
    let cluster = Cluster::start(&["a", "b"], 2);
    let client = cluster.client();
    let producer = client.producer(config());
    let queue = MessageQueue::new("T", "a", 1);
    cluster.broker("a").refuse_sends(&[(2, "busy"), (14, "stopping")]);
    let error = within("send", producer.send_to(&queue, Message::new("T", "x")))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some(14));
    let receipt = within("send", producer.send_to(&queue, Message::new("T", "x")))
        .await
        .unwrap();
    assert_eq!(receipt.queue, queue);
    assert_eq!(cluster.broker("b").stored_in_all(), 0);
    client.shutdown().await;
}

#[tokio::test]
async fn one_key_stays_in_one_queue() {
    let cluster = Cluster::start(&["a", "b"], 2);
    let client = cluster.client();
    let producer = client.producer(config());
    // "TagA".hashCode() mod 4 = 3: the last of a0 a1 b0 b1.
    for _ in 0..3 {
        let receipt = within("send", producer.send_ordered("TagA", Message::new("T", "x")))
            .await
            .unwrap();
        assert_eq!(receipt.queue, MessageQueue::new("T", "b", 1));
    }
    client.shutdown().await;
}

#[tokio::test]
async fn a_batch_is_one_request_with_an_id_for_each_message() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(config());
    let messages = (0..3)
        .map(|n| Message::new("T", format!("{n}")).tag("A"))
        .collect();
    let receipt = within("send", producer.send_batch(messages)).await.unwrap();
    assert_eq!((receipt.message_ids.len(), receipt.offset_ids.len()), (3, 3));
    assert_eq!(cluster.broker("a").asked(request::SEND_BATCH_MESSAGE).len(), 1);
    let consumer = client.pull_consumer("G");
    let queue = MessageQueue::new("T", "a", 0);
    let pulled = consumer.pull(&queue, 0, &PullRequest::new(10)).await.unwrap();
    let ids: Vec<String> = pulled
        .messages
        .iter()
        .map(ferromq_client::ReceivedMessage::message_id)
        .collect();
    assert_eq!(ids, receipt.message_ids);
    for bad in [
        vec![],
        vec![Message::new("T", "x"), Message::new("U", "x")],
        vec![Message::new("T", "x").delay_level(3)],
        vec![Message::new("%RETRY%G", "x")],
    ] {
        let error = producer.send_batch(bad).await.unwrap_err();
        assert!(matches!(error, ClientError::InvalidMessage { .. }), "{error}");
    }
    client.shutdown().await;
}

#[tokio::test]
async fn large_bodies_travel_compressed_and_arrive_whole() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(config());
    let body = "0123456789".repeat(1000);
    let receipt = within("send", producer.send(Message::new("T", body.clone())))
        .await
        .unwrap();
    let found = client
        .admin()
        .message_by_id(&receipt.offset_ids[0])
        .await
        .unwrap();
    assert!(found.stored_body().len() < 1000, "{}", found.stored_body().len());
    assert_eq!(found.body().unwrap(), body);
    // What does not get smaller is sent as it is.
    let noise: Vec<u8> = (0u64..5000)
        .map(|n| (n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33) as u8)
        .collect();
    let receipt = within("send", producer.send(Message::new("T", noise.clone())))
        .await
        .unwrap();
    let found = client
        .admin()
        .message_by_id(&receipt.offset_ids[0])
        .await
        .unwrap();
    assert_eq!(found.body().unwrap(), noise);
    client.shutdown().await;
}

#[tokio::test]
async fn a_new_topic_is_sent_by_the_templates_route_until_it_has_its_own() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(config());
    let error = producer.send(Message::new("new", "x")).await.unwrap_err();
    assert!(
        matches!(&error, ClientError::NoRoute { topic } if topic == "new"),
        "{error}"
    );
    cluster.names.set_route("TBW102", route(&cluster.brokers, 8, 7));
    assert_eq!(producer.queues("new").await.unwrap().len(), 4);
    within("send", producer.send(Message::new("new", "x")))
        .await
        .unwrap();
    let sent = cluster.broker("a").asked(request::SEND_MESSAGE_V2);
    let header: SendMessage<'_> = sent[0].header().unwrap();
    assert_eq!(
        (header.default_topic, header.default_topic_queue_nums),
        ("TBW102", 4)
    );
    cluster.names.set_route("new", route(&cluster.brokers, 6, 6));
    let found = tokio::time::timeout(crate::PATIENCE, async {
        while producer.queues("new").await.unwrap().len() != 6 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    found.await.expect("the topic's own route is found");
    client.shutdown().await;
}

#[tokio::test]
async fn a_topic_without_writable_queues_says_so() {
    let cluster = Cluster::start(&["a"], 1);
    cluster.names.set_route("T", route(&cluster.brokers, 1, 4));
    let client = cluster.client();
    let error = client
        .producer(config())
        .send(Message::new("T", "x"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ClientError::NoQueue { need: "writable", .. }),
        "{error}"
    );
    client.shutdown().await;
}

#[tokio::test]
async fn oneway_sends_arrive_without_an_answer() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(config());
    for _ in 0..3 {
        producer.send_oneway(Message::new("T", "x")).await.unwrap();
    }
    wait_for("three messages", || cluster.broker("a").stored(0) == 3).await;
    assert!(
        cluster
            .broker("a")
            .asked(request::SEND_MESSAGE_V2)
            .iter()
            .all(ferromq_protocol::Command::is_oneway)
    );
    client.shutdown().await;
}

#[tokio::test]
async fn a_closed_client_refuses() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(config());
    producer.send(Message::new("T", "x")).await.unwrap();
    client.shutdown().await;
    let error = producer.send(Message::new("T", "x")).await.unwrap_err();
    assert!(matches!(error, ClientError::Closed), "{error}");
}

#[tokio::test]
async fn the_route_of_a_topic_that_is_gone_is_given_up() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(config().with_retries(0));
    within("send", producer.send(Message::new("T", "x")))
        .await
        .unwrap();
    cluster.names.remove_route("T");
    cluster.broker("a").refuse_sends(&[(17, "no such topic"); 200]);
    let given_up = async {
        loop {
            match producer.send(Message::new("T", "x")).await.unwrap_err() {
                ClientError::NoRoute { .. } => break,
                error => assert_eq!(error.code(), Some(17), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("give the route up", given_up).await;
    client.shutdown().await;
}
