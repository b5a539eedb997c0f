//! Which messages come, and what is stored of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ferromq_client::{Filter, FlowLimits, MessageQueue, Outcome, PushConsumer};
use ferromq_protocol::code::request;

use crate::consuming::{Seen, config, send, texts};
use crate::fake::Cluster;
use crate::{wait_for, within};

#[tokio::test]
async fn a_lone_member_gets_everything_and_its_offsets_are_stored_at_the_end() {
    let cluster = Cluster::start(&["a", "b"], 2);
    let client = cluster.client();
    send(&client, 0..100).await;
    let seen = Seen::default();
    let consumer = PushConsumer::start(&client, config("G"), seen.listener())
        .await
        .unwrap();
    wait_for("all messages", || seen.bodies() == texts(0..100)).await;
    let beat = cluster.broker("b").heartbeats().pop().unwrap();
    let topics: Vec<_> = beat.consumer_data_set[0]
        .subscription_data_set
        .iter()
        .map(|data| data.topic.as_str())
        .collect();
    assert_eq!(topics, ["%RETRY%G", "T"]);
    assert_eq!(consumer.stats().consumed, 100);
    within("the shutdown", consumer.shutdown()).await.unwrap();
    for (broker, queue) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        assert_eq!(cluster.broker(broker).group_offset("G", "T", queue), Some(25));
    }
    assert!(!cluster.broker("a").asked(request::UNREGISTER_CLIENT).is_empty());
    assert_eq!(seen.len(), 100, "nothing twice where nothing went wrong");
    client.shutdown().await;
}

#[tokio::test]
async fn an_offset_that_is_gone_is_corrected() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..10).await;
    let queue = MessageQueue::new("T", "a", 0);
    client.pull_consumer("G").commit(&queue, 2).await.unwrap();
    cluster.broker("a").expire_before(6);
    let seen = Seen::default();
    let _consumer = PushConsumer::start(&client, config("G"), seen.listener())
        .await
        .unwrap();
    wait_for("what is left", || seen.bodies() == texts(6..10)).await;
    wait_for("the offset", || {
        cluster.broker("a").group_offset("G", "T", 0) == Some(10)
    })
    .await;
    client.shutdown().await;
}

#[tokio::test]
async fn a_filter_that_takes_out_everything_moves_the_offset_on() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..6).await;
    let config = config("G").subscribe("T", Filter::tags("none"));
    // The fake hands out everything, as a broker does with tags whose hashes are equal.
    let listener = |_| async { panic!("nothing is wanted") };
    let _consumer = PushConsumer::start(&client, config, listener).await.unwrap();
    wait_for("the offset", || {
        cluster.broker("a").group_offset("G", "T", 0) == Some(6)
    })
    .await;
    client.shutdown().await;
}

#[tokio::test]
async fn full_caches_stop_the_pulls() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..60).await;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let held = Arc::clone(&gate);
    let mut config = config("G").with_concurrency(100);
    config.pull_batch = 4;
    config.limits = FlowLimits {
        messages: 10,
        ..FlowLimits::default()
    };
    let consumer = PushConsumer::start(&client, config, move |_| {
        let held = Arc::clone(&held);
        async move {
            held.acquire().await.unwrap().forget();
            Outcome::Done
        }
    })
    .await
    .unwrap();
    wait_for("the bound", || consumer.stats().flow_controlled > 0).await;
    assert_eq!(
        consumer.stats().pulled,
        12,
        "the pull that crossed the bound was the last"
    );
    gate.add_permits(60);
    wait_for("the rest", || consumer.stats().consumed == 60).await;
    client.shutdown().await;
}

#[tokio::test]
async fn a_pause_holds_and_a_reset_goes_back() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..5).await;
    let seen = Seen::default();
    let consumer = PushConsumer::start(&client, config("G"), seen.listener())
        .await
        .unwrap();
    wait_for("five", || seen.len() == 5).await;
    consumer.pause();
    send(&client, 5..8).await;
    let broker = cluster.broker("a");
    let pulls = broker.asked(request::PULL_MESSAGE).len();
    // The queue's messages may still be pulled once; none reaches the listener.
    wait_for("the pull that was held", || broker.pulls_held() == 0).await;
    assert_eq!(seen.len(), 5);
    assert!(broker.asked(request::PULL_MESSAGE).len() <= pulls + 1);
    consumer.resume();
    wait_for("the others", || seen.len() == 8).await;
    broker.tell_reset("G", "T", &[(MessageQueue::new("T", "a", 0), 2)]);
    wait_for("six again", || seen.len() == 14).await;
    assert_eq!(
        seen.all()[8..].iter().map(|seen| seen.1).collect::<BTreeSet<_>>(),
        (2..8).collect()
    );
    wait_for("the offset", || broker.group_offset("G", "T", 0) == Some(8)).await;
    client.shutdown().await;
}
