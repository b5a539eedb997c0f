//! What happens around a consumer: clocks that step, name servers that change, listeners that take too long.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{
    Client, ClientConfig, Delivery, Filter, Message, Outcome, ProducerConfig, PushConsumer,
};
use ferromq_protocol::code::request;

use crate::consuming::{Seen, config, send, texts};
use crate::fake::{Cluster, route};
use crate::{wait_for, within};

const HOUR: i64 = 3_600_000;
const TODAY: i64 = 1_700_000_000_000;

/// An hour back, years ahead, to 1970: nothing comes twice or out of order, no queue changes hands, ids differ, and a
/// change of the subscription counts at the brokers.
#[tokio::test]
async fn a_clock_that_steps_changes_nothing() {
    static NOW: AtomicI64 = AtomicI64::new(TODAY);
    let cluster = Cluster::start(&["a"], 1);
    let mut of_client = cluster.config();
    of_client.wall_clock = || NOW.load(Ordering::SeqCst);
    of_client.heartbeat = Duration::from_millis(50);
    let client = Client::start(of_client).unwrap();
    let (seen, ordered) = (Seen::default(), Seen::default());
    let consumer = PushConsumer::start(&client, config("G"), seen.listener())
        .await
        .unwrap();
    let in_order = PushConsumer::start_ordered(&client, config("O"), ordered.listener())
        .await
        .unwrap();
    let broker = cluster.broker("a");
    let version = || {
        let beat = broker.heartbeats().pop().unwrap();
        let of_group = beat
            .consumer_data_set
            .into_iter()
            .find(|data| data.group_name == "G");
        let mut subscriptions = of_group.unwrap().subscription_data_set.into_iter();
        subscriptions.find(|data| data.topic == "T").unwrap().sub_version
    };
    let mut versions = vec![version()];
    let steps = [0, -HOUR, 1_000_000 * HOUR, -TODAY];
    for (n, step) in (0..).zip(steps) {
        NOW.store(TODAY + step, Ordering::SeqCst);
        let filter = if n % 2 == 0 {
            Filter::tags("even || odd")
        } else {
            Filter::All
        };
        consumer.subscribe("T", filter).await.unwrap();
        versions.push(version());
        send(&client, n * 10..(n + 1) * 10).await;
        for (seen, group) in [(&seen, "G"), (&ordered, "O")] {
            wait_for("what was sent", || seen.bodies() == texts(0..(n + 1) * 10)).await;
            let stored = Some(i64::from(n + 1) * 10);
            wait_for("the offset", || broker.group_offset(group, "T", 0) == stored).await;
        }
    }
    assert!(
        versions.is_sorted_by(|before, after| before < after),
        "{versions:?}"
    );
    assert_eq!((seen.len(), ordered.len()), (40, 40), "nothing came twice");
    assert!(ordered.all().is_sorted_by_key(|(_, offset, _)| *offset));
    let ids: BTreeSet<String> = broker
        .asked(request::SEND_MESSAGE_V2)
        .iter()
        .map(|sent| {
            let properties = sent.ext.get("i").unwrap();
            ferromq_protocol::properties::get(properties, "UNIQ_KEY")
                .unwrap()
                .to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 40);
    let locks = broker.asked(request::LOCK_BATCH_MQ).len();
    assert!(locks <= 2, "the queue was locked {locks} times: it was given up");
    in_order.shutdown().await.unwrap();
    client.shutdown().await;
}

/// The name server that the client used goes; another, which knows of one more broker, is asked from then on.
#[tokio::test]
async fn another_name_server_takes_over_while_messages_are_consumed() {
    let cluster = Cluster::start(&["a", "b"], 1);
    cluster.names.set_route("T", route(&cluster.brokers[..1], 1, 6));
    let second = Cluster::start(&[], 1).names;
    let list = format!("{};{}", cluster.names.running.address, second.running.address);
    let mut of_client = ClientConfig::new(list);
    of_client.route_refresh = Duration::from_millis(50);
    let client = Client::start(of_client).unwrap();
    let seen = Seen::default();
    let consumer = PushConsumer::start(&client, config("G"), seen.listener())
        .await
        .unwrap();
    send(&client, 0..10).await;
    wait_for("what was sent", || seen.bodies() == texts(0..10)).await;
    // The second does not know the topic yet, as one that has just started.
    second.remove_route("T");
    within("the end of the first", cluster.names.running.end()).await;
    let asked = || second.asked(request::GET_ROUTEINFO_BY_TOPIC).len();
    let before = asked();
    wait_for("the second to be asked", || asked() > before + 2).await;
    send(&client, 10..20).await;
    wait_for("what was sent without a route", || seen.bodies() == texts(0..20)).await;
    second.set_route("T", route(&cluster.brokers, 1, 6));
    wait_for("the other broker's queue", || {
        consumer.queues().iter().any(|queue| queue.broker_name == "b")
    })
    .await;
    send(&client, 20..40).await;
    wait_for("what both brokers have", || seen.bodies() == texts(0..40)).await;
    assert!(cluster.broker("b").stored(0) > 0);
    consumer.shutdown().await.unwrap();
    for name in ["a", "b"] {
        let broker = cluster.broker(name);
        let all = i64::try_from(broker.stored(0)).unwrap();
        assert_eq!(broker.group_offset("G", "T", 0), Some(all), "{name}");
    }
    client.shutdown().await;
}

/// A call that hangs is dropped after its time and made again before any later message is given out.
#[tokio::test]
async fn a_listener_that_hangs_holds_up_its_queue_and_keeps_the_order() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let producer = client.producer(ProducerConfig::new("PG"));
    for n in 0..10 {
        producer.send(Message::new("T", n.to_string())).await.unwrap();
    }
    let seen = Seen::default();
    let (noted, hung) = (seen.clone(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&hung);
    let mut config = config("O");
    config.consume_timeout = Duration::from_millis(200);
    config.suspend = Duration::from_millis(10);
    let consumer = PushConsumer::start_ordered(&client, config, move |delivery: Delivery| {
        let (noted, count) = (noted.clone(), Arc::clone(&count));
        async move {
            let message = &delivery.messages[0];
            if message.queue_offset == 4 && message.reconsume_times < 2 {
                count.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }
            noted.note(&delivery);
            Outcome::Done
        }
    })
    .await
    .unwrap();
    wait_for("all messages", || seen.len() >= 10).await;
    consumer.shutdown().await.unwrap();
    let offsets: Vec<i64> = seen.all().into_iter().map(|(_, offset, _)| offset).collect();
    assert_eq!(offsets, (0..10).collect::<Vec<_>>());
    assert_eq!(hung.load(Ordering::SeqCst), 2);
    assert_eq!(cluster.broker("a").group_offset("O", "T", 0), Some(10));
    client.shutdown().await;
}
