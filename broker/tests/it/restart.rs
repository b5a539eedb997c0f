//! What survives a restart.

use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;
use ferromq_protocol::header::{OffsetResponse, QueryConsumerOffset};
use ferromq_protocol::{Command, body::SubscriptionGroupConfig};

use crate::admin::{create, topics};
use crate::offsets::update;
use crate::support::Rig;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_there_after_a_restart() {
    let mut rig = Rig::start().await;
    rig.peer.ok(create("Made", 3, 6)).await;
    let config = SubscriptionGroupConfig {
        retry_max_times: 3,
        ..SubscriptionGroupConfig::new("CG")
    };
    rig.peer
        .ok(Command::request(request::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP)
            .with_body(fastjson::to_vec(&config)))
        .await;
    let sent: Vec<String> = (0..300).map(|n| format!("message {n}")).collect();
    for body in &sent {
        rig.peer.send("T", 0, body).await;
    }
    rig.peer.ok(update(42)).await;
    let before = topics(&rig).await;
    for _ in 0..2 {
        rig.restart().await;
        assert_eq!(topics(&rig).await, before);
        assert_eq!(rig.peer.drain("T", 0, 0, 300).await, sent);
    }
    let query = Command::request(request::QUERY_CONSUMER_OFFSET).with_header(&QueryConsumerOffset {
        consumer_group: "CG",
        topic: "T",
        queue_id: 0,
    });
    assert_eq!(
        rig.peer
            .ok(query)
            .await
            .header::<OffsetResponse>()
            .unwrap()
            .offset,
        42
    );
    let groups = rig
        .peer
        .ok(Command::request(request::GET_ALL_SUBSCRIPTIONGROUP_CONFIG))
        .await;
    let groups: ferromq_protocol::body::SubscriptionGroupTable = fastjson::from_slice(&groups.body).unwrap();
    assert_eq!(groups.subscription_group_table["CG"].retry_max_times, 3);
    assert_eq!(rig.peer.send("T", 0, "more").await.offset, 300);
    rig.stop().await;
}
