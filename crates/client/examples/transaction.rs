//! A message that is delivered only if local work succeeds:
//! `cargo run -p ferromq-client --example transaction -- NAMESRV TOPIC`.

use ferromq_client::{Client, ClientConfig, ClientError, Decision, HalfMessage, Message, ProducerConfig};

/// Decides about a message whose decision got lost, from what the application has stored.
async fn check(half: HalfMessage) -> Decision {
    match half.message.keys() {
        Some(key) if key.starts_with("order-") => Decision::Commit,
        _ => Decision::Rollback,
    }
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let mut args = std::env::args().skip(1);
    let names = args.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = args.next().unwrap_or_else(|| "Example".to_owned());
    let client = Client::start(ClientConfig::new(names))?;
    let producer = client.transactional_producer(ProducerConfig::new("example_transactions"), check);

    let transaction = producer
        .prepare(Message::new(&topic, "order 17 is paid").key("order-17"))
        .await?;
    let stored_locally = true;
    if stored_locally {
        transaction.commit().await?;
    } else {
        transaction.rollback().await?;
    }
    client.shutdown().await;
    Ok(())
}
