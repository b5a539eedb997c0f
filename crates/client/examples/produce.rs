//! Sends in the ways there are: `cargo run -p ferromq-client --example produce -- NAMESRV TOPIC`.

use std::time::Duration;

use ferromq_client::{Client, ClientConfig, ClientError, Message, ProducerConfig};

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let mut args = std::env::args().skip(1);
    let names = args.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = args.next().unwrap_or_else(|| "Example".to_owned());
    let client = Client::start(ClientConfig::new(names))?;
    let producer =
        client.producer(ProducerConfig::new("example_producer").with_send_timeout(Duration::from_secs(5)));

    // One message, waiting for the broker's word.
    let receipt = producer
        .send(Message::new(&topic, "hello").tag("greeting").key("hello-1"))
        .await?;
    println!(
        "{} is at offset {} of {:?}",
        receipt.message_id(),
        receipt.queue_offset,
        receipt.queue
    );

    // Messages of one key stay in order.
    for step in ["created", "paid", "shipped"] {
        producer
            .send_ordered("order-17", Message::new(&topic, step))
            .await?;
    }

    // Many at once, in as few requests as fit.
    let many = (0..1000)
        .map(|n| Message::new(&topic, format!("number {n}")))
        .collect();
    println!("{} batches", producer.send_batches(many).await?.len());

    // Accepted now, sent beside us; the shutdown waits for them.
    for n in 0..100 {
        drop(
            producer
                .send_later(Message::new(&topic, format!("later {n}")))
                .await?,
        );
    }
    client.shutdown().await;
    Ok(())
}
