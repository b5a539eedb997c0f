//! What takes more than one step between our client and a broker, ours or Java's of releases 4.9 and 5: transactions with
//! their checks, requests with their answers, and pulls with their offsets.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{
    Decision, Delivery, Filter, HalfMessage, LitePullConfig, Message, Outcome, ProducerConfig, PullRequest,
    PushConsumer, ReceivedMessage, StartFrom,
};
use parking_lot::Mutex;

use crate::common::{pair, test};
use crate::rust_client::{Rust, config};
use crate::support::cluster::{Broker, Kind};
use crate::support::wait_until;

#[test]
fn transactions_end_as_they_were_decided_at_our_broker() {
    test(|dir| transactions(dir, Kind::Ours));
}

#[test]
fn transactions_end_as_they_were_decided_at_javas_broker() {
    test(|dir| transactions(dir, Kind::Java));
}

#[test]
fn transactions_end_as_they_were_decided_at_a_broker_of_release_5() {
    test(|dir| transactions(dir, Kind::Java5));
}

#[test]
fn requests_are_answered_over_our_broker() {
    test(|dir| requests(dir, Kind::Ours));
}

#[test]
fn requests_are_answered_over_javas_broker() {
    test(|dir| requests(dir, Kind::Java));
}

#[test]
fn requests_are_answered_over_a_broker_of_release_5() {
    test(|dir| requests(dir, Kind::Java5));
}

#[test]
fn pulls_find_what_was_sent_and_go_on_where_they_were_at_our_broker() {
    test(|dir| pulls(dir, Kind::Ours));
}

#[test]
fn pulls_find_what_was_sent_and_go_on_where_they_were_at_javas_broker() {
    test(|dir| pulls(dir, Kind::Java));
}

#[test]
fn pulls_find_what_was_sent_and_go_on_where_they_were_at_a_broker_of_release_5() {
    test(|dir| pulls(dir, Kind::Java5));
}

fn body(message: &ReceivedMessage) -> String {
    String::from_utf8_lossy(&message.body().expect("the body can be read")).into_owned()
}

/// What the check says when it is asked about this body for the n-th time.
fn checked(body: &str, times: u32) -> Decision {
    match (body, times) {
        ("left, found undone", _) => Decision::Rollback,
        ("left, not known at first" | "said to be unknown", 1) => Decision::Unknown,
        ("left, the check panics at first", 1) => panic!("as checks do"),
        _ => Decision::Commit,
    }
}

/// Half messages whose producer decides, leaves them to the check, or does not know yet.
fn transactions(dir: &Path, kind: Kind) -> anyhow::Result<()> {
    let (names, mut broker) = pair(dir, kind, kind, Broker::MIDDLE_FILES)?;
    let rust = Rust::start(&names)?;
    let topic = "Decided";
    rust.make_topic(topic, 2)?;
    let asked: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
    let counts = Arc::clone(&asked);
    let producer = {
        let _inside = rust.runtime.enter();
        let check = move |half: HalfMessage| {
            let counts = Arc::clone(&counts);
            async move {
                let body = body(&half.message);
                let times = *counts
                    .lock()
                    .entry(body.clone())
                    .and_modify(|times| *times += 1)
                    .or_insert(1);
                checked(&body, times)
            }
        };
        rust.client
            .transactional_producer(ProducerConfig::new("decides"), check)
    };
    let seen: Arc<Mutex<BTreeMap<String, String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let listener = move |delivery: Delivery| {
        for message in &delivery.messages {
            noted.lock().insert(body(message), message.message_id());
        }
        async { Outcome::Done }
    };
    let consumer = rust.runtime.block_on(PushConsumer::start(
        &rust.client,
        config("decided", topic),
        listener,
    ))?;
    let mut ids = BTreeMap::new();
    rust.runtime.block_on(async {
        for text in [
            "committed",
            "rolled back",
            "left, found done",
            "left, found undone",
            "left, not known at first",
            "left, the check panics at first",
        ] {
            let transaction = producer
                .prepare(Message::new(topic, text).tag("A").key(text.replace(' ', "_")))
                .await?;
            ids.insert(text.to_owned(), transaction.receipt().message_id().to_owned());
            match text {
                "committed" => transaction.commit().await?,
                "rolled back" => transaction.rollback().await?,
                _ => drop(transaction),
            }
        }
        let text = "said to be unknown";
        let (receipt, _) = producer
            .send_in_transaction(Message::new(topic, text), |_| async { Decision::Unknown })
            .await?;
        ids.insert(text.to_owned(), receipt.message_id().to_owned());
        anyhow::Ok(())
    })?;
    let times = |text: &str| asked.lock().get(text).copied().unwrap_or_default();
    wait_until("all that is to be delivered, and the last question", || {
        Ok(seen.lock().len() >= 5 && times("left, found undone") > 0)
    })?;
    let seen = seen.lock().clone();
    let wanted: BTreeMap<String, String> = ids
        .into_iter()
        .filter(|(text, _)| !matches!(text.as_str(), "rolled back" | "left, found undone"))
        .collect();
    anyhow::ensure!(seen == wanted, "came: {seen:#?}\nwanted: {wanted:#?}");
    anyhow::ensure!(
        times("committed") + times("rolled back") == 0,
        "asked though told: {asked:?}"
    );
    for text in [
        "left, not known at first",
        "left, the check panics at first",
        "said to be unknown",
    ] {
        anyhow::ensure!(times(text) >= 2, "asked again where it was not known: {asked:?}");
    }
    rust.runtime.block_on(consumer.shutdown())?;
    drop(producer);
    rust.end();
    broker.stop(kind)
}

/// One client asks, another answers; a question that nobody answers ends in its time.
fn requests(dir: &Path, kind: Kind) -> anyhow::Result<()> {
    let (names, mut broker) = pair(dir, kind, kind, Broker::MIDDLE_FILES)?;
    let asking = Rust::start(&names)?;
    let answering = Rust::start(&names)?;
    let topic = "Questions";
    asking.make_topic(topic, 2)?;
    let replies = answering.producer("answers");
    let listener = move |delivery: Delivery| {
        let replies = replies.clone();
        async move {
            for message in &delivery.messages {
                let text = body(message);
                if text == "nobody knows" {
                    continue;
                }
                let answer =
                    Message::reply_to(message, format!("answer to {text}")).expect("it is a request");
                if let Err(error) = replies.send(answer.property("by", "rust")).await {
                    eprintln!("the answer to {text:?} was not sent: {error}");
                    return Outcome::Retry;
                }
            }
            Outcome::Done
        }
    };
    let consumer = answering.runtime.block_on(PushConsumer::start(
        &answering.client,
        config("answering", topic),
        listener,
    ))?;
    let producer = asking.producer("asks");
    asking.runtime.block_on(async {
        let ask = |text: String| {
            let producer = producer.clone();
            async move {
                producer
                    .request(Message::new(topic, text), Duration::from_mins(1))
                    .await
            }
        };
        // Many at a time: each gets its own answer.
        let mut all = tokio::task::JoinSet::new();
        for n in 0..20 {
            let answer = ask(format!("question {n}"));
            all.spawn(async move { (n, answer.await) });
        }
        while let Some(joined) = all.join_next().await {
            let (n, answer) = joined?;
            let answer = answer?;
            anyhow::ensure!(
                body(&answer) == format!("answer to question {n}") && answer.property("by") == Some("rust"),
                "question {n}: {answer:?}"
            );
        }
        let silent = producer
            .request(Message::new(topic, "nobody knows"), Duration::from_secs(1))
            .await;
        anyhow::ensure!(
            matches!(silent, Err(ferromq_client::ClientError::TimedOut { .. })),
            "{silent:?}"
        );
        Ok(())
    })?;
    answering.runtime.block_on(consumer.shutdown())?;
    answering.end();
    asking.end();
    broker.stop(kind)
}

/// Plain pulls with a filter, and lite pulls that seek, commit, and are taken over by the next consumer.
fn pulls(dir: &Path, kind: Kind) -> anyhow::Result<()> {
    let (names, mut broker) = pair(dir, kind, kind, Broker::MIDDLE_FILES)?;
    let rust = Rust::start(&names)?;
    let topic = "Pulled";
    rust.make_topic(topic, 2)?;
    let producer = rust.producer("pulled_p");
    rust.runtime.block_on(async {
        let pulling = rust.client.pull_consumer("pulled");
        let queues = pulling.queues(topic).await?;
        for n in 0..40 {
            let tag = if n < 20 { "first" } else { "second" };
            let message = Message::new(topic, n.to_string()).tag(tag);
            producer.send_to(&queues[n % 2], message).await?;
        }
        let mut request = PullRequest::new(32);
        request.filter = Filter::tags("second");
        let (mut found, mut at) = (Vec::new(), 0);
        // What was acknowledged a moment ago may not be in its queue yet.
        for _ in 0..100 {
            if at >= 20 {
                break;
            }
            let pulled = pulling
                .pull(&queues[0], at, &request.clone().with_hold(Duration::from_secs(1)))
                .await?;
            found.extend(pulled.messages.iter().map(body));
            at = pulled.next_offset;
        }
        let wanted: Vec<String> = (20..40).step_by(2).map(|n: i32| n.to_string()).collect();
        anyhow::ensure!(found == wanted && at == 20, "up to {at}: {found:?}");

        let settings = LitePullConfig::new("lite")
            .with_start(StartFrom::Oldest)
            .without_auto_commit();
        let lite = rust.client.lite_pull_consumer(settings.clone());
        lite.assign(&queues).await?;
        let mut count = 0;
        while count < 40 {
            count += lite.poll(Duration::from_mins(1)).await?.len();
        }
        lite.commit().await?;
        lite.seek(&queues[1], 15).await?;
        let again = lite.poll(Duration::from_mins(1)).await?;
        anyhow::ensure!(again[0].queue_offset == 15, "{again:?}");
        lite.shutdown().await?;
        let next = rust.client.lite_pull_consumer(settings);
        next.assign(&queues).await?;
        producer.send_to(&queues[1], Message::new(topic, "new")).await?;
        let new = next.poll(Duration::from_mins(1)).await?;
        anyhow::ensure!(body(&new[0]) == "new" && new.len() == 1, "{new:?}");
        next.shutdown().await?;
        anyhow::Ok(())
    })?;
    rust.end();
    broker.stop(kind)
}
