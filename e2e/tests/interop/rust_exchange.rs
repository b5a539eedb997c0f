//! What takes more than one step between our client and a broker, ours or Java's: transactions with their checks, and
//! requests with their answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ferromq_client::{
    Decision, Delivery, HalfMessage, Message, Outcome, ProducerConfig, PushConsumer, ReceivedMessage,
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
fn requests_are_answered_over_our_broker() {
    test(|dir| requests(dir, Kind::Ours));
}

#[test]
fn requests_are_answered_over_javas_broker() {
    test(|dir| requests(dir, Kind::Java));
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
