//! A consumer as a stream, each queue in order:
//! `cargo run -p ferromq-client --example stream -- NAMESRV TOPIC GROUP`.

use ferromq_client::{Client, ClientConfig, ClientError, ConsumerStream, Filter, PushConsumerConfig};

#[tokio::main]
async fn main() -> Result<(), ClientError> {
    let mut args = std::env::args().skip(1);
    let names = args.next().unwrap_or_else(|| "127.0.0.1:9876".to_owned());
    let topic = args.next().unwrap_or_else(|| "Example".to_owned());
    let group = args.next().unwrap_or_else(|| "example_stream".to_owned());
    let client = Client::start(ClientConfig::new(names))?;
    let config = PushConsumerConfig::new(group).subscribe(topic, Filter::tags("greeting || order"));
    let mut deliveries = ConsumerStream::start_ordered(&client, config).await?;
    loop {
        tokio::select! {
            incoming = deliveries.next() => {
                let Some(incoming) = incoming else { break };
                println!("{} from {:?}", incoming.delivery.messages.len(), incoming.delivery.queue);
                incoming.done();
            }
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    deliveries.shutdown().await?;
    client.shutdown().await;
    Ok(())
}
