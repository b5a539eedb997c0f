//! Ten thousand queues in one consumer: all are taken, what is held stays bounded, and all offsets are stored.

use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{FlowLimits, Message, Outcome, ProducerConfig, PushConsumer};
use ferromq_protocol::code::request;
use tokio::sync::Semaphore;

use crate::consuming::config;
use crate::fake::Cluster;
use crate::{wait_for, within};

const QUEUES: i32 = 10_000;
const EACH: usize = 4;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_queues_are_consumed_within_bounds() {
    let cluster = Cluster::start(&["a"], QUEUES);
    let client = cluster.client();
    let producer = client.producer(ProducerConfig::new("PG"));
    // A batch for each queue, in turn.
    for _ in 0..QUEUES {
        let batch = (0..EACH).map(|n| Message::new("T", n.to_string())).collect();
        producer.send_batch(batch).await.unwrap();
    }
    let gate = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&gate);
    let mut config = config("G").with_concurrency(100);
    config.pull_batch = 2;
    config.balance_every = Duration::from_mins(10);
    config.limits = FlowLimits {
        all_messages: 1000,
        ..FlowLimits::default()
    };
    let consumer = PushConsumer::start(&client, config, move |_| {
        let held = Arc::clone(&held);
        async move {
            // Open once, open for good.
            drop(held.acquire().await);
            Outcome::Done
        }
    })
    .await
    .unwrap();
    let queues = usize::try_from(QUEUES).unwrap();
    let broker = cluster.broker("a");
    // Each queue pulls once; only the first thousand messages let some pull again.
    wait_for("a pull of each queue", || {
        consumer.queues().len() >= queues && consumer.stats().pulled >= 2 * QUEUES as u64
    })
    .await;
    wait_for("the bound", || {
        consumer.stats().flow_controlled >= QUEUES as u64 / 2
    })
    .await;
    let pulled = consumer.stats().pulled;
    assert!(
        pulled <= 2 * QUEUES as u64 + 1000 + 2 * 1000,
        "{pulled} messages are held"
    );
    gate.add_permits(1);
    let all = (queues * EACH) as u64;
    wait_for("all messages", || consumer.stats().consumed == all).await;
    within("the shutdown", consumer.shutdown()).await.unwrap();
    let stored = (0..QUEUES).filter(|queue| broker.group_offset("G", "T", *queue) == Some(4));
    assert_eq!(stored.count(), queues);
    assert!(broker.asked(request::CONSUMER_SEND_MSG_BACK).is_empty());
    client.shutdown().await;
}
