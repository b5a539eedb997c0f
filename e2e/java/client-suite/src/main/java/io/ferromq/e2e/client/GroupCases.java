package io.ferromq.e2e.client;

import static io.ferromq.e2e.client.Cluster.bodies;
import static io.ferromq.e2e.client.Cluster.bytes;
import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What members of a group share: queues, locks and offsets. */
final class GroupCases {
    /**
     * The client's lock timer can lock again a queue that a rebalance has just given away; then it stays locked for
     * 60 s, and the next rebalance is up to 20 s later.
     */
    private static final int LOCK_PATIENCE = 100;

    private GroupCases() {
    }

    static void add(Suite suite, Cluster c) {
        suite.add("group-rebalance", Group.CORE, () -> rebalance(c));
        suite.add("group-orderly-rebalance", Group.CORE, () -> orderlyRebalance(c));
        suite.add("offsets-survive-restart", Group.CORE, () -> restart(c));
        suite.add("consume-from-timestamp", Group.CORE, () -> fromTimestamp(c));
        suite.add("consume-from-last", Group.CORE, () -> fromLast(c));
        suite.add("consumer-ids", Group.CORE, () -> ids(c));
    }

    private static Set<MessageQueue> held(DefaultMQPushConsumer consumer, String topic) {
        return consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet().stream()
                .filter(q -> q.getTopic().equals(topic)).collect(Collectors.toSet());
    }

    private static boolean shared(Set<MessageQueue> one, Set<MessageQueue> other, Set<MessageQueue> all) {
        Set<MessageQueue> union = new HashSet<>(one);
        union.addAll(other);
        return union.equals(all) && one.size() + other.size() == all.size() && !one.isEmpty() && !other.isEmpty();
    }

    private static String rebalance(Cluster c) throws Exception {
        String topic = c.topic("rebalance", 4);
        String group = c.group("rebalance");
        Set<MessageQueue> all = new HashSet<>(c.queues(topic));
        Inbox stays = new Inbox();
        Inbox leaves = new Inbox();
        DefaultMQPushConsumer one = stays.concurrent(c.push(group), topic, "*");
        Check.until("the only member has every queue", () -> held(one, topic).equals(all));
        DefaultMQPushConsumer other = leaves.concurrent(c.push(group), topic, "*");
        Check.until("two members share the queues", () -> shared(held(one, topic), held(other, topic), all));
        c.sendMany(topic, "both", 40);
        Check.until("two members receive 40", () -> stays.size() + leaves.size() >= 40);
        Set<String> union = stays.bodies();
        union.addAll(leaves.bodies());
        equal(bodies("both", 40), union, "bodies of both");
        equal(40, stays.size() + leaves.size(), "messages of both (more means doubles)");
        that(stays.size() > 0 && leaves.size() > 0, "each has a share");
        other.shutdown();
        Check.until("the one that stays has every queue again", () -> held(one, topic).equals(all));
        c.sendMany(topic, "alone", 40);
        stays.await(bodies("alone", 40));
        one.shutdown();
        return all.size() + " queues";
    }

    private static String orderlyRebalance(Cluster c) throws Exception {
        String topic = c.topic("orebalance", 4);
        String group = c.group("orebalance");
        Set<MessageQueue> all = new HashSet<>(c.queues(topic));
        Inbox stays = new Inbox();
        Inbox leaves = new Inbox();
        DefaultMQPushConsumer one = stays.orderly(c.push(group), topic, "*");
        Check.until("the only member has every queue", () -> held(one, topic).equals(all));
        DefaultMQPushConsumer other = leaves.orderly(c.push(group), topic, "*");
        Check.untilWithin(LOCK_PATIENCE, "two members share the queues", () -> shared(held(one, topic), held(other, topic), all));
        c.sendMany(topic, "both", 40);
        Check.until("two members receive 40", () -> {
            Set<String> union = stays.bodies();
            union.addAll(leaves.bodies());
            return union.equals(bodies("both", 40));
        });
        ReceiveCases.inOrder(stays.all());
        ReceiveCases.inOrder(leaves.all());
        other.shutdown();
        Check.untilWithin(LOCK_PATIENCE, "the one that stays has every queue again", () -> held(one, topic).equals(all));
        c.sendMany(topic, "alone", 40);
        stays.await(bodies("alone", 40));
        one.shutdown();
        return all.size() + " queues";
    }

    private static String restart(Cluster c) throws Exception {
        String topic = c.topic("restart", 3);
        String group = c.group("restart");
        Inbox first = new Inbox();
        DefaultMQPushConsumer consumer = first.concurrent(c.push(group), topic, "*");
        c.sendMany(topic, "one", 30);
        first.await(bodies("one", 30));
        consumer.shutdown();
        Check.until("offsets of all 30 are with the brokers", () -> c.offsetSum(group, topic) == 30);
        c.sendMany(topic, "two", 15);
        Inbox second = new Inbox();
        consumer = second.concurrent(c.push(group), topic, "*");
        second.await(bodies("two", 15));
        second.exactly(bodies("two", 15));
        consumer.shutdown();
        return "30, then 15";
    }

    /**
     * Messages from the moment on must come. Older ones may: a group that is new to a queue whose first message is
     * still in memory starts there whatever it asks for.
     */
    private static String fromTimestamp(Cluster c) throws Exception {
        String topic = c.topic("timestamp", 1);
        MessageQueue q = c.queues(topic).get(0);
        sendTo(c, q, "old");
        List<MessageExt> old = c.readAll(topic, 10);
        long lastOld = old.get(9).getStoreTimestamp();
        // The client cuts its time to whole seconds, so the two halves lie in different ones.
        Check.until("the clock moves on", () -> System.currentTimeMillis() > lastOld + 2500);
        sendTo(c, q, "new");
        List<MessageExt> all = c.readAll(topic, 20);
        long firstNew = all.get(10).getStoreTimestamp();
        long cut = (firstNew / 1000) * 1000;
        long found = c.reader().searchOffset(q, cut);
        that(found == 9 || found == 10, "search at " + cut + " finds the message nearest to it, not " + found);
        equal(0L, c.reader().searchOffset(q, old.get(0).getStoreTimestamp() - 60_000), "search before the first");
        long past = c.reader().searchOffset(q, all.get(19).getStoreTimestamp() + 60_000);
        that(past == 19 || past == 20, "search past the end finds the last, not " + past);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group("timestamp"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(cut));
        inbox.concurrent(consumer, topic, "*");
        inbox.await(bodies("new", 10));
        consumer.shutdown();
        return "10 new and " + (inbox.size() - 10) + " old";
    }

    private static void sendTo(Cluster c, MessageQueue queue, String body) throws Exception {
        for (int i = 0; i < 10; i++) {
            c.send(new Message(queue.getTopic(), bytes(body + "-" + i)), queue);
        }
    }

    private static String fromLast(Cluster c) throws Exception {
        String topic = c.topic("last", 1);
        c.sendMany(topic, "old", 10);
        c.readAll(topic, 10);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group("last"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET);
        inbox.concurrent(consumer, topic, "*");
        MessageQueue q = c.queues(topic).get(0);
        Check.until("the consumer has its queue", () -> held(consumer, topic).contains(q));
        Check.until("the consumer knows where it starts", () -> {
            var table = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable();
            return table.get(q) != null && table.get(q).getLastPullTimestamp() > 0;
        });
        c.sendMany(topic, "new", 10);
        inbox.await(bodies("new", 10));
        consumer.shutdown();
        return "10 new and " + (inbox.size() - 10) + " old";
    }

    private static String ids(Cluster c) throws Exception {
        String topic = c.topic("ids", 1);
        String group = c.group("ids");
        DefaultMQPushConsumer one = new Inbox().concurrent(c.push(group), topic, "*");
        DefaultMQPushConsumer other = new Inbox().concurrent(c.push(group), topic, "*");
        String broker = c.brokerAddress(c.queues(topic).get(0).getBrokerName());
        Set<String> wanted = new TreeSet<>(List.of(one.buildMQClientId(), other.buildMQClientId()));
        Check.until("the broker lists both members",
                () -> new TreeSet<>(c.api().getConsumerIdListByGroup(broker, group, 3000)).equals(wanted));
        other.shutdown();
        wanted.remove(other.buildMQClientId());
        Check.until("the one that left is gone",
                () -> new TreeSet<>(c.api().getConsumerIdListByGroup(broker, group, 3000)).equals(wanted));
        c.send(new Message(topic, bytes("x")));
        one.shutdown();
        return "2, then 1";
    }
}
