//! Transactions, requests with replies, sends that go on by themselves, namespaces, traces, lists from a server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ferromq_client::{
    Client, ClientConfig, ClientError, Decision, Filter, LitePullConfig, Message, MessageQueue, Outcome,
    ProducerConfig, PushConsumer, PushConsumerConfig, StartFrom,
};
use ferromq_protocol::code::request;
use ferromq_protocol::header::{EndTransaction, SendMessage};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake::{Cluster, FakeNames, route};
use crate::{wait_for, within};

fn config() -> ProducerConfig {
    ProducerConfig::new("PG").with_send_timeout(Duration::from_secs(50))
}

#[tokio::test]
async fn a_transaction_is_prepared_and_decided_at_the_broker_that_has_it() {
    let cluster = Cluster::start(&["a", "b"], 1);
    let client = cluster.client();
    let producer = client.transactional_producer(config(), |_| async { Decision::Unknown });
    let message = || Message::new("T", "x").key("k").delay_level(3);
    within("commit", producer.prepare(message()).await.unwrap().commit())
        .await
        .unwrap();
    within("roll back", producer.prepare(message()).await.unwrap().rollback())
        .await
        .unwrap();
    let work = |_| async { Decision::Unknown };
    let (receipt, decision) = within("in one", producer.send_in_transaction(message(), work))
        .await
        .unwrap();
    assert_eq!((decision, receipt.message_ids.len()), (Decision::Unknown, 1));
    let ends = || -> Vec<_> {
        cluster
            .brokers
            .iter()
            .flat_map(|broker| broker.asked(request::END_TRANSACTION))
            .collect()
    };
    wait_for("three decisions", || ends().len() == 3).await;
    let mut flags = Vec::new();
    for end in ends() {
        let header: EndTransaction<'_> = end.header().unwrap();
        assert_eq!(
            (header.producer_group, header.from_transaction_check),
            ("PG", false)
        );
        flags.push(header.commit_or_rollback);
    }
    flags.sort_unstable();
    assert_eq!(flags, [0, 8, 12]);
    for broker in &cluster.brokers {
        for send in broker.asked(request::SEND_MESSAGE_V2) {
            let header: SendMessage<'_> = send.header().unwrap();
            assert_eq!(
                ferromq_protocol::sysflag::transaction(header.sys_flag),
                ferromq_protocol::sysflag::TRANSACTION_PREPARED
            );
            assert!(
                header.properties.contains("TRAN_MSG\u{1}true")
                    && header.properties.contains("PGROUP\u{1}PG")
            );
            assert!(!header.properties.contains("DELAY"), "{:?}", header.properties);
        }
    }
    client.shutdown().await;
}

#[tokio::test]
async fn a_broker_that_asks_about_a_transaction_is_answered_whatever_the_check_does() {
    let cluster = Cluster::start(&["a"], 1);
    let mut of_client = cluster.config();
    of_client.heartbeat = Duration::from_millis(50);
    let client = Client::start(of_client).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let producer = client.transactional_producer(config(), move |half| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            assert_eq!(half.message.keys(), Some("k"));
            assert!(call > 0, "a check that panics once");
            Decision::Commit
        }
    });
    let transaction = producer.prepare(Message::new("T", "x").key("k")).await.unwrap();
    drop(transaction);
    let broker = cluster.broker("a");
    wait_for("the client to be known", || !broker.heartbeats().is_empty()).await;
    for n in 1..=2 {
        let args = [
            ("tranStateTableOffset", "0"),
            ("commitLogOffset", "0"),
            ("transactionId", "tx"),
        ];
        broker.tell_client(request::CHECK_TRANSACTION_STATE, &args, broker.record(0));
        wait_for("the answer", || broker.asked(request::END_TRANSACTION).len() == n).await;
    }
    let ends = broker.asked(request::END_TRANSACTION);
    let flags: Vec<i32> = ends
        .iter()
        .map(|end| end.header::<EndTransaction<'_>>().unwrap().commit_or_rollback)
        .collect();
    assert_eq!(flags, [0, 8]);
    assert!(
        ends[1]
            .header::<EndTransaction<'_>>()
            .unwrap()
            .from_transaction_check
    );
    client.shutdown().await;
}

#[tokio::test]
async fn a_request_gets_its_reply_or_times_out() {
    let cluster = Cluster::start(&["a"], 1);
    cluster
        .names
        .set_route("C_REPLY_TOPIC", route(&cluster.brokers, 1, 6));
    let client = cluster.client();
    let producer = client.producer(config());
    let replier = client.producer(ProducerConfig::new("RG"));
    let listener = move |delivery: ferromq_client::Delivery| {
        let replier = replier.clone();
        async move {
            let asked = &delivery.messages[0];
            let body = asked.body().unwrap();
            if body != "unanswered" {
                let reply =
                    Message::reply_to(asked, format!("re: {}", String::from_utf8_lossy(&body))).unwrap();
                replier.send(reply).await.unwrap();
            }
            Outcome::Done
        }
    };
    let consumer_config = PushConsumerConfig::new("G")
        .subscribe("T", Filter::All)
        .with_start(StartFrom::Oldest);
    let _consumer = PushConsumer::start(&client, consumer_config, listener)
        .await
        .unwrap();
    // Brokers add the cluster's name; the fake does not.
    let ask = |body: &'static str| Message::new("T", body).property("CLUSTER", "C");
    let reply = within("the reply", producer.request(ask("one"), Duration::from_secs(50)))
        .await
        .unwrap();
    assert_eq!(reply.body().unwrap(), "re: one");
    let error = producer
        .request(ask("unanswered"), Duration::from_millis(300))
        .await
        .unwrap_err();
    assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
    client.shutdown().await;
}

/// Brokers push replies to clients that they know; one that a second topic brings in must hear of the asker first.
#[tokio::test]
async fn requests_to_brokers_that_are_new_to_the_client_are_answered_too() {
    let cluster = Cluster::start(&["a", "b"], 1);
    for (topic, broker) in [("T", 0), ("U", 1)] {
        let of_one = route(&cluster.brokers[broker..=broker], 1, 6);
        cluster.names.set_route(topic, of_one.clone());
        cluster.names.set_route(&format!("{topic}_REPLY_TOPIC"), of_one);
    }
    let (asking, answering) = (cluster.client(), cluster.client());
    let replier = answering.producer(ProducerConfig::new("RG"));
    let listener = move |delivery: ferromq_client::Delivery| {
        let replier = replier.clone();
        async move {
            let reply = Message::reply_to(&delivery.messages[0], "yes").unwrap();
            replier.send(reply).await.unwrap();
            Outcome::Done
        }
    };
    let both = crate::consuming::config("G").subscribe("U", Filter::All);
    let _consumer = PushConsumer::start(&answering, both, listener).await.unwrap();
    let producer = asking.producer(config());
    for topic in ["T", "U", "T"] {
        let question = Message::new(topic, "?").property("CLUSTER", topic);
        let reply = within("the reply", producer.request(question, Duration::from_secs(50))).await;
        assert_eq!(reply.unwrap().body().unwrap(), "yes", "{topic}");
    }
    asking.shutdown().await;
    answering.shutdown().await;
}

#[tokio::test]
async fn what_was_accepted_is_sent_before_the_client_ends() {
    let cluster = Cluster::start(&["a"], 4);
    let client = cluster.client();
    let mut config = config();
    config.max_pending = 8;
    let producer = client.producer(config);
    for n in 0..200 {
        drop(
            producer
                .send_later(Message::new("T", n.to_string()))
                .await
                .unwrap(),
        );
    }
    client.shutdown().await;
    assert_eq!(cluster.broker("a").stored_in_all(), 200);
    let error = producer.send_later(Message::new("T", "x")).await.unwrap_err();
    assert!(matches!(error, ClientError::Closed), "{error}");
}

#[tokio::test]
async fn a_producer_that_is_shut_down_leaves_the_others_alone() {
    let cluster = Cluster::start(&["a"], 1);
    let client = cluster.client();
    let (one, other) = (
        client.producer(config()),
        client.producer(ProducerConfig::new("OG")),
    );
    let pending = one.send_later(Message::new("T", "x")).await.unwrap();
    within("the shutdown", one.shutdown()).await;
    assert_eq!(within("the outcome", pending).await.unwrap().queue_offset, 0);
    assert!(matches!(
        one.send(Message::new("T", "x")).await,
        Err(ClientError::Closed)
    ));
    other.send(Message::new("T", "x")).await.unwrap();
    client.shutdown().await;
}

#[tokio::test]
async fn a_long_list_goes_as_few_batches_and_a_chooser_decides_the_queue() {
    let cluster = Cluster::start(&["a"], 4);
    let client = cluster.client();
    let mut config = config();
    config.max_message_size = 4096;
    let producer = client.producer(config);
    let messages = (0..20).map(|n| Message::new("T", vec![b'x'; 300 + n])).collect();
    let receipts = producer.send_batches(messages).await.unwrap();
    assert_eq!(
        receipts
            .iter()
            .map(|receipt| receipt.message_ids.len())
            .sum::<usize>(),
        20
    );
    assert!((2..=4).contains(&receipts.len()), "{} batches", receipts.len());
    let receipt = producer
        .send_chosen(Message::new("T", "x"), |queues, _| queues.len() + 2)
        .await
        .unwrap();
    assert_eq!(receipt.queue, MessageQueue::new("T", "a", 2));
    client.shutdown().await;
}

#[tokio::test]
async fn a_namespace_is_on_the_wire_and_not_in_the_application() {
    let cluster = Cluster::start(&["a"], 1);
    cluster.names.set_route("NS%T", route(&cluster.brokers, 1, 6));
    let client = Client::start(cluster.config().with_namespace("NS")).unwrap();
    let receipt = client
        .producer(config())
        .send(Message::new("T", "x"))
        .await
        .unwrap();
    assert_eq!(receipt.queue.topic, "T");
    let (sender, mut topics) = tokio::sync::mpsc::channel(1);
    let config = PushConsumerConfig::new("G")
        .subscribe("T", Filter::All)
        .with_start(StartFrom::Oldest);
    let _consumer = PushConsumer::start(&client, config, move |delivery| {
        let sender = sender.clone();
        async move {
            let topics = (
                delivery.queue.topic.clone(),
                delivery.messages[0].topic.to_string(),
            );
            sender.send(topics).await.unwrap();
            Outcome::Done
        }
    })
    .await
    .unwrap();
    assert_eq!(
        within("the message", topics.recv()).await,
        Some(("T".into(), "T".into()))
    );
    let beat = cluster.broker("a").heartbeats().pop().unwrap();
    assert_eq!(beat.consumer_data_set[0].group_name, "NS%G");
    let subscribed: Vec<_> = beat.consumer_data_set[0]
        .subscription_data_set
        .iter()
        .map(|data| data.topic.clone())
        .collect();
    assert_eq!(subscribed, ["%RETRY%NS%G", "NS%T"]);
    client.shutdown().await;
}

#[tokio::test]
async fn traces_of_sending_and_consuming_go_to_the_trace_topic() {
    let cluster = Cluster::start(&["a"], 1);
    cluster
        .names
        .set_route("RMQ_SYS_TRACE_TOPIC", route(&cluster.brokers, 1, 6));
    let client = Client::start(cluster.config().with_trace()).unwrap();
    let listener = |_| async { Outcome::Done };
    let of_group = PushConsumerConfig::new("G")
        .subscribe("T", Filter::All)
        .with_start(StartFrom::Oldest);
    let consumer = PushConsumer::start(&client, of_group, listener).await.unwrap();
    let receipt = client
        .producer(config())
        .send(Message::new("T", "x").key("k"))
        .await
        .unwrap();
    wait_for("the message", || consumer.stats().consumed == 1).await;
    // What still waits is sent at the end.
    client.shutdown().await;
    let sends = cluster.broker("a").asked(request::SEND_MESSAGE_V2);
    let traces: Vec<_> = sends
        .iter()
        .filter(|send| send.ext.get("b") == Some("RMQ_SYS_TRACE_TOPIC"))
        .collect();
    let text: String = traces
        .iter()
        .map(|trace| String::from_utf8_lossy(&trace.body).into_owned())
        .collect();
    let kinds: Vec<&str> = text
        .split_terminator('\u{2}')
        .filter_map(|record| record.split('\u{1}').next())
        .collect();
    for kind in ["Pub", "SubBefore", "SubAfter"] {
        assert_eq!(
            kinds.iter().filter(|found| **found == kind).count(),
            1,
            "{kind} in {text:?}"
        );
    }
    for trace in traces {
        let header: SendMessage<'_> = trace.header().unwrap();
        assert!(
            header.properties.contains(receipt.message_id()),
            "found by the id of what it tells of"
        );
    }
}

#[tokio::test]
async fn the_list_of_name_servers_comes_from_an_http_server() {
    let cluster = Cluster::start(&["a"], 1);
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/rocketmq/nsaddr", server.local_addr().unwrap());
    let list = cluster.names.running.address;
    let serve = async move {
        loop {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut asked = [0; 512];
            let len = stream.read(&mut asked).await.unwrap();
            assert!(asked[..len].starts_with(b"GET /rocketmq/nsaddr HTTP/1.0\r\n"));
            let answer = format!("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{list}\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    let client = Client::start(ClientConfig {
        name_servers: String::new(),
        address_server: Some(url),
        ..ClientConfig::default()
    })
    .unwrap();
    let found = client.pull_consumer("G");
    tokio::select! {
        () = serve => {}
        queues = within("the queues", found.queues("T")) => assert_eq!(queues.unwrap().len(), 1),
    }
    client.shutdown().await;
    let nobody = FakeNames::start();
    nobody.running.end().await;
}

#[tokio::test]
async fn a_server_that_leaves_the_list_is_let_go() {
    let cluster = Cluster::start(&["a"], 1);
    let old = FakeNames::start();
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", server.local_addr().unwrap());
    let lists = [old.running.address, cluster.names.running.address];
    let serve = async move {
        for list in lists.iter().chain([&lists[1]; 20]) {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut asked = [0; 512];
            assert!(stream.read(&mut asked).await.unwrap() > 0);
            // An answer that is no list changes nothing.
            let answer = format!("HTTP/1.0 200 OK\r\n\r\n{list}");
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    };
    let config = ClientConfig {
        name_servers: String::new(),
        address_server: Some(url),
        address_refresh: Duration::from_millis(50),
        ..ClientConfig::default()
    };
    let client = Client::start(config).unwrap();
    let consumer = client.pull_consumer("G");
    let find = async {
        // The old one has empty tables.
        while consumer.queues("T").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = serve => panic!("asked more often than enough"),
        () = within("the route from the new one", find) => {}
    }
    assert!(!old.asked(request::GET_ROUTEINFO_BY_TOPIC).is_empty());
    client.shutdown().await;
}

#[tokio::test]
async fn requests_are_signed_for_access_control() {
    let cluster = Cluster::start(&["a"], 1);
    let credentials = ferromq_client::Credentials::new("account", "a secret of some length");
    let client = Client::start(cluster.config().with_credentials(credentials)).unwrap();
    client
        .producer(config())
        .send(Message::new("T", "x"))
        .await
        .unwrap();
    let sends = cluster.broker("a").asked(request::SEND_MESSAGE_V2);
    let routes = cluster.names.asked(request::GET_ROUTEINFO_BY_TOPIC);
    for asked in sends.iter().chain(&routes) {
        assert_eq!(asked.ext.get("AccessKey"), Some("account"));
        let wanted = ferromq_protocol::acl::signature(&asked.ext, &asked.body, "a secret of some length");
        assert_eq!(asked.ext.get("Signature"), Some(wanted.as_str()));
    }
    client.shutdown().await;
}

#[tokio::test]
async fn lite_pulls_hand_out_seek_and_commit() {
    let cluster = Cluster::start(&["a"], 2);
    let client = cluster.client();
    let producer = client.producer(config());
    let queues = [MessageQueue::new("T", "a", 0), MessageQueue::new("T", "a", 1)];
    for n in 0..40 {
        producer
            .send_to(&queues[n % 2], Message::new("T", n.to_string()))
            .await
            .unwrap();
    }
    let settings = LitePullConfig::new("G")
        .with_start(StartFrom::Oldest)
        .without_auto_commit();
    let consumer = client.lite_pull_consumer(settings.clone());
    consumer.assign(&queues).await.unwrap();
    let patience = Duration::from_secs(50);
    let mut seen = 0;
    while seen < 40 {
        let messages = consumer.poll(patience).await.unwrap();
        assert!(
            messages.len() <= 10
                && messages
                    .windows(2)
                    .all(|two| two[0].queue_offset + 1 == two[1].queue_offset)
        );
        seen += messages.len();
    }
    assert_eq!(consumer.position(&queues[0]), Some(20));
    assert_eq!(consumer.committed(&queues[0]).await.unwrap(), None);
    consumer.commit().await.unwrap();
    assert_eq!(consumer.committed(&queues[1]).await.unwrap(), Some(20));
    assert!(consumer.seek(&queues[0], 21).await.is_err());
    consumer.seek(&queues[0], 15).await.unwrap();
    let again = consumer.poll(patience).await.unwrap();
    assert_eq!(again[0].queue_offset, 15);
    consumer.pause(&queues[..1]);
    assert!(
        consumer
            .poll(Duration::ZERO)
            .await
            .unwrap()
            .iter()
            .all(|message| message.queue_id == 1)
    );
    consumer.assign(&queues[1..]).await.unwrap();
    assert_eq!(consumer.position(&queues[0]), None);
    within("the shutdown", consumer.shutdown()).await.unwrap();
    assert!(matches!(consumer.poll(patience).await, Err(ClientError::Closed)));
    // Another one goes on where this one committed, and commits by itself.
    let next = client.lite_pull_consumer(LitePullConfig {
        auto_commit: Some(Duration::ZERO),
        ..settings
    });
    next.assign(&queues).await.unwrap();
    producer
        .send_to(&queues[0], Message::new("T", "new"))
        .await
        .unwrap();
    assert_eq!(next.poll(patience).await.unwrap()[0].queue_offset, 20);
    next.poll(Duration::ZERO).await.unwrap();
    assert_eq!(next.committed(&queues[0]).await.unwrap(), Some(21));
    client.shutdown().await;
}

#[tokio::test]
async fn lite_pulls_of_many_queues_stop_at_the_bound_of_all() {
    let cluster = Cluster::start(&["a"], 5);
    let client = cluster.client();
    crate::consuming::send(&client, 0..200).await;
    let mut settings = LitePullConfig::new("G").with_start(StartFrom::Oldest);
    settings.ahead_of_all = 20;
    let consumer = client.lite_pull_consumer(settings);
    let queues: Vec<_> = (0..5).map(|n| MessageQueue::new("T", "a", n)).collect();
    consumer.assign(&queues).await.unwrap();
    let pulls = || cluster.broker("a").asked(request::PULL_MESSAGE).len();
    wait_for("a pull of each queue", || pulls() >= 5).await;
    // Two queues may have been asked again before there were twenty.
    assert!(pulls() <= 7, "{} pulls", pulls());
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 200 {
        for message in consumer.poll(Duration::from_secs(50)).await.unwrap() {
            assert!(seen.insert((message.queue_id, message.queue_offset)));
        }
    }
    within("the shutdown", consumer.shutdown()).await.unwrap();
    assert_eq!(cluster.broker("a").group_offset("G", "T", 4), Some(40));
    client.shutdown().await;
}
