package io.ferromq.e2e.admin;

import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.admin.OffsetWrapper;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.ConsumerConnection;
import org.apache.rocketmq.common.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;

/** Consumer groups: their configuration, progress, members, and moving their offsets. */
final class GroupCases {
    private GroupCases() {
    }

    static void add(Suite suite, Admin a) {
        suite.add("group-config", Group.CORE, () -> config(a));
        suite.add("group-progress", Group.CORE, () -> progress(a));
        suite.add("reset-offset-online", Group.EXTRA, () -> resetOnline(a));
        suite.add("reset-offset-offline", Group.EXTRA, () -> resetOffline(a));
        suite.add("group-connections", Group.EXTRA, () -> connections(a));
    }

    private static String config(Admin a) throws Exception {
        String group = a.group("config");
        SubscriptionGroupConfig config = new SubscriptionGroupConfig();
        config.setGroupName(group);
        config.setRetryMaxTimes(3);
        config.setRetryQueueNums(2);
        config.setConsumeBroadcastEnable(false);
        for (String address : a.masters().values()) {
            a.tools.createAndUpdateSubscriptionGroupConfig(address, config);
            SubscriptionGroupConfig kept = a.tools.examineSubscriptionGroupConfig(address, group);
            equal(3, kept.getRetryMaxTimes(), "retryMaxTimes");
            equal(2, kept.getRetryQueueNums(), "retryQueueNums");
            equal(false, kept.isConsumeBroadcastEnable(), "consumeBroadcastEnable");
            equal(true, kept.isConsumeEnable(), "consumeEnable");
            that(a.tools.getUserSubscriptionGroup(address, 5000).getSubscriptionGroupTable().containsKey(group), "a user's group");
            a.tools.deleteSubscriptionGroup(address, group, true);
            that(!a.tools.getAllSubscriptionGroup(address, 5000).getSubscriptionGroupTable().containsKey(group), "deleted");
        }
        return "made, read, deleted";
    }

    private static DefaultMQPushConsumer consumed(Admin a, String group, String topic, int count, List<MessageExt> got) throws Exception {
        a.send(topic, count);
        DefaultMQPushConsumer consumer = a.consumer(group, topic, got);
        Check.until("all consumed", () -> Admin.size(got) >= count);
        return consumer;
    }

    private static String progress(Admin a) throws Exception {
        String topic = a.topic("progress", 2);
        String group = a.group("progress");
        DefaultMQPushConsumer consumer = consumed(a, group, topic, 20, new ArrayList<>());
        Check.until("consumer offset reaches 20", () -> sum(a.tools.examineConsumeStats(group, topic)) == 20);
        ConsumeStats stats = a.tools.examineConsumeStats(group);
        equal(0L, stats.computeTotalDiff(), "difference when all is consumed");
        consumer.shutdown();
        a.send(topic, 5);
        Check.until("5 are waiting", () -> a.tools.examineConsumeStats(group, topic).computeTotalDiff() == 5);
        for (Map.Entry<MessageQueue, OffsetWrapper> row : a.tools.examineConsumeStats(group, topic).getOffsetTable().entrySet()) {
            that(a.masters().containsKey(row.getKey().getBrokerName()), "broker of a row: " + row.getKey());
            that(row.getValue().getConsumerOffset() <= row.getValue().getBrokerOffset(), "consumer is not ahead: " + row);
        }
        return "20 consumed, 5 waiting";
    }

    private static long sum(ConsumeStats stats) {
        return stats.getOffsetTable().values().stream().mapToLong(OffsetWrapper::getConsumerOffset).sum();
    }

    private static String resetOnline(Admin a) throws Exception {
        String topic = a.topic("reset", 2);
        String group = a.group("reset");
        List<MessageExt> got = new ArrayList<>();
        DefaultMQPushConsumer consumer = consumed(a, group, topic, 20, got);
        Check.until("offsets are with the brokers", () -> sum(a.tools.examineConsumeStats(group, topic)) == 20);
        // An online consumer needs ten seconds to take a reset in.
        Map<MessageQueue, Long> moved = a.tools.resetOffsetByTimestamp(topic, group, 0, true);
        equal(2 * a.masters().size(), moved.size(), "queues moved");
        that(moved.values().stream().allMatch(o -> o == 0), "moved to the start: " + moved);
        Check.until("all 20 come again", () -> Admin.size(got) >= 40);
        consumer.shutdown();
        return "20 again";
    }

    private static String resetOffline(Admin a) throws Exception {
        String topic = a.topic("resetoff", 2);
        String group = a.group("resetoff");
        DefaultMQPushConsumer consumer = consumed(a, group, topic, 20, new ArrayList<>());
        consumer.shutdown();
        Check.until("offsets are with the brokers", () -> sum(a.tools.examineConsumeStats(group, topic)) == 20);
        Check.until("the broker sees that the group is offline", () -> {
            try {
                a.tools.examineConsumerConnectionInfo(group);
                return false;
            } catch (MQBrokerException e) {
                equal(206, e.getResponseCode(), "code for an offline group");
                return true;
            }
        });
        try {
            a.tools.resetOffsetByTimestamp(topic, group, 0, true);
            throw new AssertionError("reset of an offline group by 222 was answered");
        } catch (MQClientException e) {
            equal(206, e.getResponseCode(), "code for an offline group");
        }
        a.tools.resetOffsetByTimestampOld(group, topic, 0, true);
        equal(0L, sum(a.tools.examineConsumeStats(group, topic)), "offsets after the reset");
        return "to the start";
    }

    private static String connections(Admin a) throws Exception {
        String topic = a.topic("connections", 2);
        String group = a.group("connections");
        DefaultMQPushConsumer consumer = consumed(a, group, topic, 4, new ArrayList<>());
        ConsumerConnection connection = a.tools.examineConsumerConnectionInfo(group);
        equal(1, connection.getConnectionSet().size(), "one consumer");
        equal(consumer.buildMQClientId(), connection.getConnectionSet().iterator().next().getClientId(), "its client id");
        that(connection.getSubscriptionTable().containsKey(topic), "its subscription");
        ConsumerRunningInfo info = a.tools.getConsumerRunningInfo(group, consumer.buildMQClientId(), false);
        that(info.getMqTable().keySet().stream().anyMatch(q -> q.getTopic().equals(topic)), "its queues");
        // A broker hears of a producer by its next heartbeat.
        Check.until("the producer is seen", () -> !a.tools.examineProducerConnectionInfo(a.producerGroup(), topic).getConnectionSet().isEmpty());
        that(a.tools.queryTopicConsumeByWho(topic).getGroupList().contains(group), "the topic's groups name it");
        consumer.shutdown();
        return "1 consumer";
    }
}
