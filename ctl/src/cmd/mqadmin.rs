//! mqadmin's commands, each leading to the function of ours that does the same.

use ferromq_client::admin::SubscriptionGroupConfig;

use super::{
    acl, broker, cluster, connected, export, group, message, namesrv, offsets, probe, rates, read, topic,
    trace,
};
use crate::cli::{
    self, BrokerConfig, Clean, Export, Mqadmin, Namesrv, Order, Probe, Range, Target, TopicShape,
};
use crate::context::Context;

#[expect(
    clippy::too_many_lines,
    reason = "a table with an entry for each of mqadmin's names"
)]
pub(super) async fn run(cx: &Context, command: Mqadmin) -> anyhow::Result<()> {
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
        Mqadmin::UpdateTopicPerm { target, topic, perm } => topic::set_perm(cx, &topic, perm, &target).await,
        Mqadmin::TopicClusterList { topic } => topic::clusters(cx, &topic).await,
        Mqadmin::UpdateOrderConf { topic, method, value } => {
            let order = match (method.as_str(), value) {
                ("put", Some(value)) => Order::Set { topic, value },
                ("delete", _) => Order::Delete { topic },
                _ => Order::Get { topic },
            };
            namesrv::order(cx, &order).await
        }
        Mqadmin::AllocateMq { topic, clients } => topic::allocate(cx, &topic, clients).await,
        Mqadmin::StatsAll { active, topic } => rates::print(cx, topic.as_deref(), active).await,
        Mqadmin::CleanExpiredCq { target } => broker::clean(cx, Clean::Queues, &target).await,
        Mqadmin::CleanUnusedTopic { target } => broker::clean(cx, Clean::Topics, &target).await,
        Mqadmin::DeleteExpiredCommitLog { target } => broker::clean(cx, Clean::Log, &target).await,
        Mqadmin::BrokerConsumeStats {
            broker,
            level,
            order,
            millis: _,
        } => broker::backlog(cx, &broker, level, order).await,
        Mqadmin::SendMsgStatus { broker, size, count } => {
            probe::send(cx, &broker, Some(&broker), &Probe { size, count }).await
        }
        Mqadmin::CheckMsgSendRt { topic, count, size } => {
            probe::send(cx, &topic, None, &Probe { size, count }).await
        }
        Mqadmin::ClusterRt { count, size, cluster } => {
            let target = Target {
                broker: None,
                cluster,
            };
            for broker in cx.masters(&target).await? {
                probe::send(cx, &broker.name, Some(&broker.name), &Probe { size, count }).await?;
            }
            Ok(())
        }
        Mqadmin::GetConsumerConfig { group } => group::config(cx, &group).await,
        Mqadmin::ConsumerConnection { group } => connected::consumers(cx, &group).await,
        Mqadmin::ProducerConnection { group, topic } => {
            connected::producers_of_group(cx, &group, Some(&topic)).await
        }
        Mqadmin::Producer { broker } => connected::producers_of_broker(cx, &broker).await,
        Mqadmin::ConsumerStatus {
            group,
            client,
            stacks,
        } => connected::status(cx, &group, client.as_deref(), stacks).await,
        Mqadmin::ResetOffsetByTime {
            group,
            topic,
            to,
            force,
            cplus: _,
        } => offsets::reset(cx, &group, &topic, to, force, true).await,
        Mqadmin::SkipAccumulatedMessage { group, topic, force } => {
            offsets::reset(cx, &group, &topic, offsets::END, force, true).await
        }
        Mqadmin::CloneGroupOffset {
            from,
            to,
            topic,
            offline: _,
        } => offsets::clone(cx, &from, &to, Some(&topic), true).await,
        Mqadmin::QueryMsgByUniqueKey { topic, id } => message::by_key(cx, &topic, &id, 64, true).await,
        Mqadmin::QueryMsgByOffset {
            topic,
            broker,
            queue,
            offset,
        } => read::at(cx, &topic, &broker, queue, offset).await,
        Mqadmin::QueryMsgTraceById { id, topic } => trace::run(cx, &id, &topic).await,
        Mqadmin::QueryCq {
            topic,
            queue,
            index,
            count,
            broker,
            group,
        } => {
            read::units(
                cx,
                &topic,
                queue,
                index,
                count,
                broker.as_deref(),
                group.as_deref(),
            )
            .await
        }
        Mqadmin::PrintMsg {
            topic,
            tags,
            begin,
            end,
            bodies,
            charset: _,
        } => {
            let range = Range {
                tags,
                begin,
                end,
                bodies,
                count: u32::MAX,
                ..Range::default()
            };
            read::print(cx, &topic, &range).await
        }
        Mqadmin::PrintMsgByQueue {
            topic,
            broker,
            queue,
            tags,
            begin,
            end,
            bodies,
            charset: _,
            print: _,
        } => {
            let range = Range {
                broker: Some(broker),
                queue: Some(queue),
                tags,
                begin,
                end,
                bodies,
                count: u32::MAX,
                ..Range::default()
            };
            read::print(cx, &topic, &range).await
        }
        Mqadmin::ConsumeMessage {
            topic,
            broker,
            queue,
            offset,
            begin,
            end,
            count,
            group: _,
        } => {
            let range = Range {
                broker,
                queue,
                from: offset,
                begin,
                end,
                count,
                bodies: true,
                ..Range::default()
            };
            read::print(cx, &topic, &range).await
        }
        Mqadmin::GetNamesrvConfig => namesrv::run(cx, Namesrv::Config).await,
        Mqadmin::UpdateNamesrvConfig { key, value } => {
            let settings = vec![(key, value)];
            namesrv::run(cx, Namesrv::Set { settings }).await
        }
        Mqadmin::UpdateKvConfig {
            namespace,
            key,
            value,
        } => {
            let put = Namesrv::KvPut {
                namespace,
                key,
                value,
            };
            namesrv::run(cx, put).await
        }
        Mqadmin::DeleteKvConfig { namespace, key } => {
            namesrv::run(cx, Namesrv::KvDelete { namespace, key }).await
        }
        Mqadmin::UpdateAclConfig { target, account } => acl::set(cx, &target, &account).await,
        Mqadmin::DeleteAccessConfig { target, access_key } => {
            acl::delete(cx, &target, &access_key, true).await
        }
        Mqadmin::ClusterAclConfigVersion { target } => acl::version(cx, &target).await,
        Mqadmin::UpdateGlobalWhiteAddr { target, addresses } => {
            acl::white_addresses(cx, &target, &addresses).await
        }
        Mqadmin::GetAccessConfig { target } => acl::list(cx, &target).await,
        Mqadmin::ExportMetadata(to) => export::run(cx, &Export::Metadata(to)).await,
        Mqadmin::ExportConfigs(to) => export::run(cx, &Export::Configs(to)).await,
        Mqadmin::ExportMetrics(to) => export::run(cx, &Export::Metrics(to)).await,
    }
}
