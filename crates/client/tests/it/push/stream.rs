//! The consumer as a stream.

use ferromq_client::{ConsumerStream, Filter};
use ferromq_protocol::code::request;

use crate::consuming::{config, send};
use crate::fake::Cluster;
use crate::{wait_for, within};

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
