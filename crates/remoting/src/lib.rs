//! RocketMQ remoting over tokio: server, client, dispatch.
