//! Groups of which each member gets everything.

use ferromq_client::{Client, Outcome, PushConsumer};
use ferromq_protocol::code::request;

use crate::consuming::{Seen, config, send, texts};
use crate::fake::Cluster;
use crate::wait_for;

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
    let _consumer = PushConsumer::start(&again, config, seen.listener())
        .await
        .unwrap();
    send(&again, 10..12).await;
    wait_for("what is new", || seen.bodies() == texts(10..12)).await;
    again.shutdown().await;
}
