//! The commands, a module for each noun. mqadmin's names lead to the same functions.

pub(crate) mod broker;
pub(crate) mod cluster;
pub(crate) mod group;
pub(crate) mod message;
pub(crate) mod store;
pub(crate) mod topic;

use ferromq_client::admin::SubscriptionGroupConfig;

use crate::bench;
use crate::cli::{self, Bench, BrokerConfig, Cli, Command, Mqadmin, TopicShape};
use crate::context::Context;

/// Carries a command out.
pub(crate) async fn run(cli: Cli) -> anyhow::Result<()> {
    let cx = Context::new(&cli)?;
    // The largest futures of the commands are boxed, so that this one stays small.
    match cli.command {
        Command::Topic(command) => Box::pin(topic::run(&cx, command)).await,
        Command::Cluster(cli::Cluster::List { cluster }) => cluster::list(&cx, cluster.as_deref()).await,
        Command::Broker(command) => Box::pin(broker::run(&cx, command)).await,
        Command::Group(command) => Box::pin(group::run(&cx, command)).await,
        Command::Message(command) => Box::pin(message::run(&cx, command)).await,
        Command::Store(command) => store::run(&cx, command).await,
        Command::Bench(Bench::Send(args)) => Box::pin(bench::send::run(&cx, args)).await,
        Command::Bench(Bench::Receive(args)) => Box::pin(bench::receive::run(&cx, args)).await,
        Command::Mqadmin(command) => Box::pin(mqadmin(&cx, command)).await,
    }
}

async fn mqadmin(cx: &Context, command: Mqadmin) -> anyhow::Result<()> {
    match command {
        Mqadmin::TopicList { cluster_model: false } => topic::list(cx, None, true).await,
        Mqadmin::TopicList { cluster_model: true } => topic::list_by_cluster(cx).await,
        Mqadmin::TopicRoute { topic, list: true } => topic::route(cx, &topic).await,
        Mqadmin::TopicRoute { topic, list: false } => topic::route_json(cx, &topic).await,
        Mqadmin::TopicStatus { topic } => topic::stats(cx, &topic).await,
        Mqadmin::UpdateTopic {
            topic,
            target,
            read_queues,
            write_queues,
            perm,
        } => {
            let shape = TopicShape {
                read_queues,
                write_queues,
                perm,
                order: false,
            };
            topic::create(cx, &topic, &target, &shape).await
        }
        Mqadmin::DeleteTopic { topic, cluster } => topic::delete(cx, &topic, Some(&cluster), true).await,
        Mqadmin::ClusterList { cluster } => cluster::list(cx, cluster.as_deref()).await,
        Mqadmin::BrokerStatus { target } => broker::status(cx, &target).await,
        Mqadmin::GetBrokerConfig { target } => {
            broker::run(
                cx,
                cli::Broker::Config(BrokerConfig::Get {
                    target,
                    keys: Vec::new(),
                }),
            )
            .await
        }
        Mqadmin::UpdateBrokerConfig { target, key, value } => {
            let settings = vec![(key, value)];
            broker::run(cx, cli::Broker::Config(BrokerConfig::Set { target, settings })).await
        }
        Mqadmin::WipeWritePerm { broker } => cluster::set_write_perm(cx, &broker, false).await,
        Mqadmin::AddWritePerm { broker } => cluster::set_write_perm(cx, &broker, true).await,
        Mqadmin::UpdateSubGroup {
            target,
            group,
            enabled,
            from_min,
            broadcast,
            retry_queues,
            retry_max,
            broker_id,
            slow_broker_id,
            notify,
        } => {
            let config = SubscriptionGroupConfig {
                consume_enable: enabled,
                consume_from_min_enable: from_min,
                consume_broadcast_enable: broadcast,
                retry_queue_nums: retry_queues,
                retry_max_times: retry_max,
                broker_id,
                which_broker_when_consume_slowly: slow_broker_id,
                notify_consumer_ids_changed_enable: notify,
                ..SubscriptionGroupConfig::new(group)
            };
            group::create(cx, &config, &target).await
        }
        Mqadmin::DeleteSubGroup {
            group,
            target,
            offsets,
        } => group::delete(cx, &group, &target, offsets, true).await,
        Mqadmin::ConsumerProgress { group } => group::progress(cx, group.as_deref(), None).await,
        Mqadmin::QueryMsgById { id } => message::get(cx, &id, false).await,
        Mqadmin::QueryMsgByKey { topic, key } => message::by_key(cx, &topic, &key, 64, false).await,
        Mqadmin::SendMessage { topic, body, extra } => message::send(cx, &topic, &body, &extra).await,
    }
}
