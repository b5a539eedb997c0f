//! The push consumer: who gets what, what is retried, what is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{
    Client, ClientError, ConsumerStream, Delivery, Filter, FlowLimits, Message, MessageQueue, Outcome,
    ProducerConfig, PushConsumer, PushConsumerConfig, StartFrom,
};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use parking_lot::Mutex;

use crate::fake::{Cluster, route};
use crate::{wait_for, within};

/// What came, in the order in which it came.
#[derive(Debug, Clone, Default)]
struct Seen(Arc<Mutex<Vec<(MessageQueue, i64, String)>>>);

impl Seen {
    fn note(&self, delivery: &Delivery) {
        for message in &delivery.messages {
            let body = String::from_utf8(message.body().unwrap().to_vec()).unwrap();
            self.0
                .lock()
                .push((delivery.queue.clone(), message.queue_offset, body));
        }
    }

    fn bodies(&self) -> BTreeSet<String> {
        self.0.lock().iter().map(|(_, _, body)| body.clone()).collect()
    }

    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

fn config(group: &str) -> PushConsumerConfig {
    let mut config = PushConsumerConfig::new(group)
        .subscribe("T", Filter::All)
        .with_start(StartFrom::Oldest);
    config.save_every = Duration::from_millis(50);
    config.balance_every = Duration::from_millis(200);
    config.hold = Duration::from_millis(500);
    config
}

async fn send(client: &Client, numbers: std::ops::Range<u32>) {
    let producer = client.producer(ProducerConfig::new("PG"));
    for n in numbers {
        let tag = if n % 2 == 0 { "even" } else { "odd" };
        producer
            .send(Message::new("T", n.to_string()).tag(tag))
            .await
            .unwrap();
    }
}

fn texts(numbers: std::ops::Range<u32>) -> BTreeSet<String> {
    numbers.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn a_lone_member_gets_everything_and_its_offsets_are_stored_at_the_end() {
    let cluster = Cluster::start(&["a", "b"], 2);
    let client = cluster.client();
    send(&client, 0..100).await;
    let seen = Seen::default();
    let listener = {
        let seen = seen.clone();
        move |delivery| {
            seen.note(&delivery);
            async { Outcome::Done }
        }
    };
    let consumer = PushConsumer::start(&client, config("G"), listener).await.unwrap();
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
    for (queue, offset, _) in seen.0.lock().iter() {
        by_queue.entry(queue.queue_id).or_default().push(*offset);
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
    let noted = seen.clone();
    let consumer = PushConsumer::start_ordered(&client, config("G"), move |delivery| {
        noted.note(&delivery);
        async { Outcome::Done }
    })
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
    let noted = seen.clone();
    let consumer = PushConsumer::start(&client, config("G"), move |delivery| {
        noted.note(&delivery);
        async { Outcome::Done }
    })
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
        seen.0.lock()[8..]
            .iter()
            .map(|seen| seen.1)
            .collect::<BTreeSet<_>>(),
        (2..8).collect()
    );
    wait_for("the offset", || broker.group_offset("G", "T", 0) == Some(8)).await;
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
    let noted = seen.clone();
    let _consumer = PushConsumer::start(&client, config("G"), move |delivery| {
        noted.note(&delivery);
        async { Outcome::Done }
    })
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
async fn broadcasting_members_get_everything_and_keep_their_place_in_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&["a"], 2);
    let broadcast = |n: u32| {
        let mut config = config("G").broadcasting();
        config.offsets_dir = Some(dir.path().to_owned());
        (
            Client::start(cluster.config().with_client_id(format!("member-{n}"))).unwrap(),
            config,
        )
    };
    let (first, config_of_first) = broadcast(1);
    send(&first, 0..10).await;
    let mut parts = Vec::new();
    for (client, config) in [(first.clone(), config_of_first), broadcast(2)] {
        let seen = Seen::default();
        let noted = seen.clone();
        let listener = move |delivery| {
            noted.note(&delivery);
            async { Outcome::Retry }
        };
        let consumer = PushConsumer::start(&client, config, listener).await.unwrap();
        parts.push((client, consumer, seen));
    }
    for (_, _, seen) in &parts {
        wait_for("all of it", || seen.bodies() == texts(0..10)).await;
    }
    assert!(
        cluster
            .broker("a")
            .asked(request::CONSUMER_SEND_MSG_BACK)
            .is_empty()
    );
    for (client, consumer, _) in &parts {
        consumer.shutdown().await.unwrap();
        client.shutdown().await;
    }
    assert_eq!(cluster.broker("a").group_offset("G", "T", 0), None);
    let (again, config) = broadcast(1);
    let seen = Seen::default();
    let noted = seen.clone();
    let _consumer = PushConsumer::start(&again, config, move |delivery| {
        noted.note(&delivery);
        async { Outcome::Done }
    })
    .await
    .unwrap();
    send(&again, 10..12).await;
    wait_for("what is new", || seen.bodies() == texts(10..12)).await;
    again.shutdown().await;
}

#[tokio::test]
async fn a_stream_settles_what_it_is_told_and_retries_what_is_dropped() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..6).await;
    let mut stream = ConsumerStream::start(&client, config("G").subscribe("T", Filter::tags("even")))
        .await
        .unwrap();
    for n in 0..3 {
        let incoming = within("a delivery", stream.next()).await.unwrap();
        match n {
            1 => drop(incoming),
            _ => incoming.done(),
        }
    }
    let broker = cluster.broker("a");
    wait_for("the offset", || broker.group_offset("G", "T", 0) == Some(6)).await;
    assert_eq!(broker.asked(request::CONSUMER_SEND_MSG_BACK).len(), 1);
    within("the shutdown", stream.shutdown()).await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn what_was_under_way_at_the_shutdown_is_neither_lost_nor_counted() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..5).await;
    let mut stream = ConsumerStream::start(&client, config("G").with_concurrency(2))
        .await
        .unwrap();
    within("a delivery", stream.next()).await.unwrap().done();
    let taken = within("a delivery", stream.next()).await.unwrap();
    let offset = taken.delivery.messages[0].queue_offset;
    drop(taken);
    within("the shutdown", stream.shutdown()).await.unwrap();
    let stored = cluster.broker("a").group_offset("G", "T", 0).unwrap_or(0);
    let backs = cluster.broker("a").asked(request::CONSUMER_SEND_MSG_BACK);
    assert!(
        stored <= offset || backs.len() == 1,
        "stored {stored}, dropped {offset}, {} sent back",
        backs.len()
    );
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

#[tokio::test]
async fn settings_that_cannot_be_are_told() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let listener = |_| async { Outcome::Done };
    for bad in [
        PushConsumerConfig::new("G"),
        config("a b"),
        config("G").subscribe("a b", Filter::All),
        config("G").with_batch(0),
        config("G").with_concurrency(0),
    ] {
        let error = PushConsumer::start(&client, bad, listener).await.unwrap_err();
        assert!(matches!(error, ClientError::InvalidArgument { .. }), "{error}");
    }
    let _first = PushConsumer::start(&client, config("G"), listener).await.unwrap();
    let error = PushConsumer::start(&client, config("G"), listener)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("already"), "{error}");
    cluster.broker("a").refuse(request::CHECK_CLIENT_CONFIG, 23);
    let sql = config("H").subscribe("T", Filter::sql("a >"));
    let error = PushConsumer::start(&client, sql, listener).await.unwrap_err();
    assert_eq!(error.code(), Some(23));
    client.shutdown().await;
}

#[tokio::test]
async fn tools_see_how_a_consumer_does() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    send(&client, 0..4).await;
    let listener = |_| async { Outcome::Done };
    let consumer = PushConsumer::start(&client, config("G"), listener).await.unwrap();
    let broker = cluster.broker("a");
    wait_for("the messages", || consumer.stats().consumed == 4).await;
    wait_for("the offset", || broker.group_offset("G", "T", 0) == Some(4)).await;
    let answer = within(
        "the answer",
        broker.ask_client(
            request::GET_CONSUMER_RUNNING_INFO,
            &[("consumerGroup", "G"), ("clientId", client.id())],
            Vec::new(),
        ),
    )
    .await;
    assert_eq!(answer.code, 0);
    let info: ferromq_protocol::body::ConsumerRunningInfo = fastjson::from_slice(&answer.body).unwrap();
    let queue = &info.mq_table[&MessageQueue::new("T", "a", 0)];
    assert_eq!((queue.commit_offset, queue.cached_msg_count), (4, 0));
    assert_eq!(info.properties["PROP_CONSUME_ORDERLY"], "false");
    let answer = within(
        "the answer",
        broker.ask_client(
            request::GET_CONSUMER_STATUS_FROM_CLIENT,
            &[("group", "G"), ("topic", "T")],
            Vec::new(),
        ),
    )
    .await;
    let status: ferromq_protocol::body::GetConsumerStatusBody = fastjson::from_slice(&answer.body).unwrap();
    assert_eq!(status.message_queue_table.len(), 1);
    let record = broker.record(0);
    let answer = within(
        "the answer",
        broker.ask_client(
            request::CONSUME_MESSAGE_DIRECTLY,
            &[("consumerGroup", "G")],
            record,
        ),
    )
    .await;
    let result: ferromq_protocol::body::ConsumeMessageDirectlyResult =
        fastjson::from_slice(&answer.body).unwrap();
    assert_eq!(
        result.consume_result,
        Some(ferromq_protocol::body::ConsumeResult::Success)
    );
    client.shutdown().await;
}
