//! What users and tools are told.

use ferromq_client::{ClientError, Filter, MessageQueue, Outcome, PushConsumer, PushConsumerConfig};
use ferromq_protocol::code::request;
use ferromq_protocol::fastjson;

use crate::consuming::{config, send};
use crate::fake::Cluster;
use crate::{wait_for, within};

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
