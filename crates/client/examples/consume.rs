//! Consumes a topic as a member of a group: `cargo run -p ferromq-client --example consume -- NAMESRV TOPIC GROUP`.
//! Start it several times to see the queues shared out. Ctrl-C leaves the group in good order.

use ferromq_client::{
    Client, ClientConfig, ClientError, Delivery, Filter, Outcome, PushConsumer, PushConsumerConfig, StartFrom,
};

async fn handle(delivery: Delivery) -> Outcome {
    for message in &delivery.messages {
        match message.body() {
            Ok(body) => println!("{} {}", message.message_id(), String::from_utf8_lossy(&body)),
            // A body that cannot be read fails by itself: it is retried, then goes to the dead letters.
            Err(error) => {
                eprintln!("{error}");
                return Outcome::Retry;
            }
        }
    }
    Outcome::Done
}

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let mut args = std::env::args().skip(1);
    let names = args.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = args.next().unwrap_or_else(|| "Example".to_owned());
    let group = args.next().unwrap_or_else(|| "example_group".to_owned());
    let client = Client::start(ClientConfig::new(names))?;
    let config = PushConsumerConfig::new(group)
        .subscribe(topic, Filter::All)
        .with_start(StartFrom::Oldest);
    let consumer = PushConsumer::start(&client, config, handle).await?;
    if tokio::signal::ctrl_c().await.is_ok() {
        println!("{:?}", consumer.stats());
    }
    consumer.shutdown().await?;
    client.shutdown().await;
    Ok(())
}
