package io.ferromq.e2e.admin;

import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.admin.TopicOffset;
import org.apache.rocketmq.common.admin.TopicStatsTable;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.TopicList;

/** Making, changing, listing, measuring and deleting topics. */
final class TopicCases {
    private TopicCases() {
    }

    static void add(Suite suite, Admin a) {
        suite.add("topic-create-grow", Group.CORE, () -> grow(a));
        suite.add("topic-permission", Group.CORE, () -> permission(a));
        suite.add("topic-delete", Group.CORE, () -> delete(a));
        suite.add("topic-list", Group.CORE, () -> list(a));
        suite.add("topic-stats", Group.CORE, () -> stats(a));
        suite.add("topic-refused", Group.CORE, () -> refused(a));
        suite.add("message-lookup", Group.CORE, () -> lookup(a));
        suite.add("order-config", Group.CORE, () -> orderConfig(a));
    }

    private static String grow(Admin a) throws Exception {
        String topic = a.topic("grow", 4);
        a.send(topic, 20);
        a.topic("grow", 8);
        for (Map.Entry<String, String> m : a.masters().entrySet()) {
            TopicConfig config = a.tools.examineTopicConfig(m.getValue(), topic);
            equal(8, config.getReadQueueNums(), "read queues at " + m.getKey());
            equal(8, config.getWriteQueueNums(), "write queues at " + m.getKey());
            equal(6, config.getPerm(), "permission at " + m.getKey());
        }
        Set<Integer> used = new HashSet<>();
        // The producer follows the route within its 30 s.
        Check.until("sends reach the new queues", () -> {
            for (SendResult r : a.send(topic, 16)) {
                used.add(r.getMessageQueue().getQueueId());
            }
            return used.size() == 8;
        });
        return "4 to 8";
    }

    private static String permission(Admin a) throws Exception {
        String topic = a.topic("perm", 2);
        for (String address : a.masters().values()) {
            a.tools.createAndUpdateTopicConfig(address, new TopicConfig(topic, 2, 2, 4));
        }
        for (String broker : a.masters().keySet()) {
            Check.until("read-only at the name server", () -> a.queueData(topic, broker).getPerm() == 4);
        }
        return "RW to R";
    }

    private static String delete(Admin a) throws Exception {
        String topic = a.topic("delete", 2);
        a.send(topic, 4);
        a.tools.deleteTopicInBroker(new HashSet<>(a.masters().values()), topic);
        a.tools.deleteTopicInNameServer(new HashSet<>(a.tools.getNameServerAddressList()), topic, a.clusterName());
        Check.until("no route is left", () -> {
            try {
                a.tools.examineTopicRouteInfo(topic);
                return false;
            } catch (MQClientException e) {
                equal(17, e.getResponseCode(), "code of the route query");
                return true;
            }
        });
        for (String address : a.masters().values()) {
            that(!a.tools.getAllTopicConfig(address, 5000).getTopicConfigTable().containsKey(topic), "the broker's table has it no more");
        }
        a.topic("delete", 1);
        equal(0L, a.tools.examineTopicStats(topic).getOffsetTable().values().stream()
                .mapToLong(o -> o.getMaxOffset() - o.getMinOffset()).sum(), "messages in the topic made anew");
        return "deleted and made anew";
    }

    private static String list(Admin a) throws Exception {
        String topic = a.topic("list", 1);
        TopicList all = a.tools.fetchAllTopicList();
        that(all.getTopicList().contains(topic), "the list has the new topic");
        that(all.getTopicList().contains("TBW102"), "the list has the template topic");
        that(a.tools.fetchTopicsByCLuster(a.clusterName()).getTopicList().contains(topic), "so has the cluster's list");
        equal(Set.of(a.clusterName()), a.tools.getTopicClusterList(topic), "clusters of the topic");
        for (String address : a.masters().values()) {
            that(a.tools.getAllTopicConfig(address, 5000).getTopicConfigTable().containsKey(topic), "so has " + address);
            that(a.tools.getUserTopicConfig(address, false, 5000).getTopicConfigTable().containsKey(topic), "and as a user's topic");
        }
        return all.getTopicList().size() + " topics";
    }

    private static String stats(Admin a) throws Exception {
        String topic = a.topic("stats", 2);
        a.send(topic, 20);
        TopicStatsTable stats = Check.eventually("20 counted", () -> {
            TopicStatsTable t = a.tools.examineTopicStats(topic);
            return t.getOffsetTable().values().stream().mapToLong(TopicOffset::getMaxOffset).sum() == 20 ? t : null;
        });
        equal(2 * a.masters().size(), stats.getOffsetTable().size(), "one row a queue");
        for (Map.Entry<MessageQueue, TopicOffset> row : stats.getOffsetTable().entrySet()) {
            equal(topic, row.getKey().getTopic(), "topic of a row");
            that(a.masters().containsKey(row.getKey().getBrokerName()), "broker of a row: " + row.getKey());
            equal(0L, row.getValue().getMinOffset(), "min offset");
            that(row.getValue().getMaxOffset() == 0 || row.getValue().getLastUpdateTimestamp() > 0, "last time of a row");
        }
        return stats.getOffsetTable().size() + " rows";
    }

    private static String refused(Admin a) throws Exception {
        String address = a.masters().values().iterator().next();
        for (String bad : List.of("TBW102", "SCHEDULE_TOPIC_XXXX", a.topicName("bad name"))) {
            try {
                a.tools.createAndUpdateTopicConfig(address, new TopicConfig(bad, 1, 1, 6));
                throw new AssertionError("the broker made the topic " + bad);
            } catch (MQClientException | MQBrokerException e) {
                that(e.getMessage() != null && !e.getMessage().isBlank(), "the refusal says why");
            }
        }
        return "3 refusals";
    }

    private static String lookup(Admin a) throws Exception {
        String topic = a.topic("lookup", 1);
        SendResult sent = a.send(topic, 1).get(0);
        MessageExt byId = a.tools.viewMessage(topic, sent.getOffsetMsgId());
        equal("m-0", new String(byId.getBody()), "body by offset id");
        equal(sent.getMsgId(), byId.getMsgId(), "unique id by offset id");
        MessageExt byKey = Check.eventually("the key is found", () ->
                a.tools.queryMessage(topic, topic + "-0", 32, 0, Long.MAX_VALUE).getMessageList().get(0));
        equal("m-0", new String(byKey.getBody()), "body by key");
        MessageExt byUnique = Check.eventually("the unique id is found", () ->
                a.tools.queryMessageByUniqKey(topic, sent.getMsgId(), 32, 0, Long.MAX_VALUE).getMessageList().get(0));
        equal("m-0", new String(byUnique.getBody()), "body by unique id");
        return "3 ways";
    }

    private static String orderConfig(Admin a) throws Exception {
        String topic = a.topicName("order");
        String value = a.masters().keySet().iterator().next() + ":4";
        a.tools.createOrUpdateOrderConf(topic, value, true);
        equal(value, a.tools.getKVConfig("ORDER_TOPIC_CONFIG", topic), "order configuration");
        equal(value, a.tools.getKVListByNamespace("ORDER_TOPIC_CONFIG").getTable().get(topic), "the same in the list");
        a.tools.deleteKvConfig("ORDER_TOPIC_CONFIG", topic);
        try {
            String left = a.tools.getKVConfig("ORDER_TOPIC_CONFIG", topic);
            throw new AssertionError("a deleted configuration gave " + left);
        } catch (MQClientException e) {
            equal(22, e.getResponseCode(), "code for no configuration");
        }
        return value;
    }
}
