//! Queues that are consumed in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{Message, MessageQueue, Outcome, ProducerConfig, PushConsumer};
use ferromq_protocol::code::request;
use parking_lot::Mutex;

use crate::consuming::{Seen, config, send};
use crate::fake::Cluster;
use crate::wait_for;

#[tokio::test]
async fn order_is_kept_under_failures_and_a_queue_has_one_call_at_a_time() {
    let cluster = Cluster::start(&["a"], 2);
    let client = cluster.client();
    let producer = client.producer(ProducerConfig::new("PG"));
    for n in 0..40 {
        let queue = MessageQueue::new("T", "a", n % 2);
        producer
            .send_to(&queue, Message::new("T", n.to_string()))
            .await
            .unwrap();
    }
    let seen = Seen::default();
    let noted = seen.clone();
    let calls: Arc<[AtomicUsize; 2]> = Arc::default();
    let counts = Arc::new(Mutex::new(BTreeMap::<(i32, i64), i32>::new()));
    let mut config = config("G");
    config.suspend = Duration::from_millis(10);
    let consumer = PushConsumer::start_ordered(&client, config, move |delivery| {
        let (calls, noted, counts) = (Arc::clone(&calls), noted.clone(), Arc::clone(&counts));
        async move {
            let id = delivery.queue.queue_id;
            let calls = &calls[usize::try_from(id).unwrap()];
            assert_eq!(calls.fetch_add(1, Ordering::SeqCst), 0, "two calls for one queue");
            tokio::task::yield_now().await;
            let message = &delivery.messages[0];
            let times = {
                let mut counts = counts.lock();
                let times = counts.entry((id, message.queue_offset)).or_default();
                *times += 1;
                *times
            };
            assert_eq!(message.reconsume_times, times - 1);
            calls.fetch_sub(1, Ordering::SeqCst);
            match (message.queue_offset % 5, times) {
                (2, 1) => Outcome::Retry,
                (3, 1..=2) => panic!("as listeners do"),
                _ => {
                    noted.note(&delivery);
                    Outcome::Done
                }
            }
        }
    })
    .await
    .unwrap();
    wait_for("all messages", || seen.len() == 40).await;
    consumer.shutdown().await.unwrap();
    let mut by_queue: BTreeMap<i32, Vec<i64>> = BTreeMap::new();
    for (queue, offset, _) in seen.all() {
        by_queue.entry(queue.queue_id).or_default().push(offset);
    }
    for offsets in by_queue.values() {
        assert_eq!(*offsets, (0..20).collect::<Vec<_>>());
    }
    let broker = cluster.broker("a");
    assert_eq!(broker.group_offset("G", "T", 0), Some(20));
    assert!(broker.locks().is_empty(), "all given back: {:?}", broker.locks());
    assert!(broker.asked(request::CONSUMER_SEND_MSG_BACK).is_empty());
    client.shutdown().await;
}

#[tokio::test]
async fn a_locked_queue_is_taken_when_its_lock_is_free() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..3).await;
    let broker = cluster.broker("a");
    broker.lock_for("somebody", &MessageQueue::new("T", "a", 0));
    let seen = Seen::default();
    let consumer = PushConsumer::start_ordered(&client, config("G"), seen.listener())
        .await
        .unwrap();
    wait_for("two tries to lock", || {
        broker.asked(request::LOCK_BATCH_MQ).len() >= 2
    })
    .await;
    assert!(consumer.queues().is_empty() && seen.len() == 0);
    broker.unlock_all();
    wait_for("the messages", || seen.len() == 3).await;
    client.shutdown().await;
}
