package io.ferromq.e2e.client;

import static io.ferromq.e2e.client.Cluster.bodies;
import static io.ferromq.e2e.client.Cluster.bytes;
import static io.ferromq.e2e.client.Cluster.text;
import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/** Push consumers: what arrives, in which order, and what happens to what was not consumed. */
final class ReceiveCases {
    private ReceiveCases() {
    }

    static void add(Suite suite, Cluster c) {
        suite.add("push-concurrent", Group.CORE, () -> concurrent(c));
        suite.add("push-waiting", Group.CORE, () -> waiting(c));
        suite.add("push-orderly", Group.CORE, () -> orderly(c));
        suite.add("push-tags", Group.CORE, () -> tags(c));
        suite.add("push-broadcast", Group.CORE, () -> broadcast(c));
        suite.add("delay-level-1", Group.CORE, () -> delay(c));
        suite.add("retry", Group.CORE, () -> retry(c));
        suite.add("dead-letter", Group.CORE, () -> deadLetter(c));
        suite.add("orderly-suspend", Group.CORE, () -> orderlySuspend(c));
    }

    private static String concurrent(Cluster c) throws Exception {
        String topic = c.topic("push", 4);
        c.sendMany(topic, "before", 100);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = inbox.concurrent(c.push(c.group("push")), topic, "*");
        inbox.await(bodies("before", 100));
        c.sendMany(topic, "after", 100);
        inbox.await(bodies("after", 100));
        equal(200, inbox.size(), "messages received");
        consumer.shutdown();
        return "200 messages";
    }

    /** A consumer that waits at the end of its queues is told of each message, one by one. */
    private static String waiting(Cluster c) throws Exception {
        String topic = c.topic("waiting", 1);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = inbox.concurrent(c.push(c.group("waiting")), topic, "*");
        for (int i = 0; i < 40; i++) {
            c.send(new Message(topic, bytes("w-" + i)));
            int expected = i + 1;
            Check.until("message " + i + " arrives", () -> inbox.size() == expected);
        }
        inbox.exactly(bodies("w", 40));
        consumer.shutdown();
        return "40 messages, one at a time";
    }

    private static String orderly(Cluster c) throws Exception {
        String topic = c.topic("orderly", 3);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = inbox.orderly(c.push(c.group("orderly")), topic, "*");
        for (int i = 0; i < 150; i++) {
            Cluster.stored(c.producer().send(new Message(topic, bytes("o-" + i)),
                    (queues, m, arg) -> queues.get((Integer) arg % queues.size()), i));
        }
        inbox.await(bodies("o", 150));
        equal(150, inbox.size(), "messages received");
        inOrder(inbox.all());
        consumer.shutdown();
        return "150 messages in order";
    }

    static void inOrder(List<MessageExt> received) {
        Map<String, Long> last = new HashMap<>();
        for (MessageExt m : received) {
            String queue = m.getBrokerName() + "/" + m.getQueueId();
            Long before = last.put(queue, m.getQueueOffset());
            that(before == null || before < m.getQueueOffset(), "order in " + queue + ": " + m.getQueueOffset() + " after " + before);
        }
    }

    private static String tags(Cluster c) throws Exception {
        String topic = c.topic("tags", 2);
        // Aa and BB have one Java hash code: the broker cannot tell them apart, the client does.
        for (String tag : List.of("TagA", "TagB", "TagC", "Aa", "BB", "标签")) {
            for (int i = 0; i < 10; i++) {
                c.send(new Message(topic, tag, bytes(tag + "-" + i)));
            }
        }
        for (int i = 0; i < 10; i++) {
            c.send(new Message(topic, bytes("none-" + i)));
        }
        Inbox two = new Inbox();
        Inbox hash = new Inbox();
        Inbox all = new Inbox();
        DefaultMQPushConsumer first = two.concurrent(c.push(c.group("tags2")), topic, "TagA || 标签");
        DefaultMQPushConsumer second = hash.concurrent(c.push(c.group("tagsh")), topic, "Aa");
        DefaultMQPushConsumer third = all.concurrent(c.push(c.group("tags")), topic, "*");
        Set<String> wanted = bodies("TagA", 10);
        wanted.addAll(bodies("标签", 10));
        two.await(wanted);
        hash.await(bodies("Aa", 10));
        Check.until("all 70 arrive without a filter", () -> all.size() >= 70);
        // The group's offset moves past what was filtered out.
        c.send(new Message(topic, "TagA", bytes("TagA-10")));
        wanted.add("TagA-10");
        two.await(wanted);
        two.exactly(wanted);
        hash.exactly(bodies("Aa", 10));
        first.shutdown();
        second.shutdown();
        third.shutdown();
        return "71 messages, 3 subscriptions";
    }

    private static String broadcast(Cluster c) throws Exception {
        String topic = c.topic("broadcast", 4);
        c.sendMany(topic, "early", 20);
        Inbox[] inboxes = {new Inbox(), new Inbox()};
        DefaultMQPushConsumer[] consumers = new DefaultMQPushConsumer[2];
        for (int i = 0; i < 2; i++) {
            consumers[i] = c.push(c.group("broadcast"));
            consumers[i].setMessageModel(MessageModel.BROADCASTING);
            inboxes[i].concurrent(consumers[i], topic, "*");
        }
        c.sendMany(topic, "late", 20);
        Set<String> wanted = bodies("early", 20);
        wanted.addAll(bodies("late", 20));
        for (int i = 0; i < 2; i++) {
            inboxes[i].await(wanted);
            inboxes[i].exactly(wanted);
            consumers[i].shutdown();
        }
        return "40 messages to each of 2";
    }

    private static String delay(Cluster c) throws Exception {
        String topic = c.topic("delay", 2);
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = inbox.concurrent(c.push(c.group("delay")), topic, "*");
        for (int i = 0; i < 5; i++) {
            Message m = new Message(topic, "D", "dk-" + i, bytes("d-" + i));
            m.setDelayTimeLevel(1);
            c.send(m);
        }
        inbox.await(bodies("d", 5));
        inbox.exactly(bodies("d", 5));
        for (MessageExt m : inbox.all()) {
            long waited = m.getStoreTimestamp() - m.getBornTimestamp();
            that(waited >= 900, "level 1 is a second, stored after " + waited + " ms");
            equal(topic, m.getTopic(), "topic after the delay");
            equal("D", m.getTags(), "tag after the delay");
            equal(topic, m.getProperty("REAL_TOPIC"), "REAL_TOPIC is kept");
        }
        consumer.shutdown();
        return "5 messages";
    }

    private static String retry(Cluster c) throws Exception {
        String topic = c.topic("retry", 2);
        String group = c.group("retry");
        Inbox tries = new Inbox();
        Inbox done = new Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            tries.add(received);
            if (received.get(0).getReconsumeTimes() < 2 && text(received.get(0)).endsWith("-0")) {
                context.setDelayLevelWhenNextConsume(1);
                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
            }
            done.add(received);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        c.sendMany(topic, "r", 5);
        done.await(bodies("r", 5));
        done.exactly(bodies("r", 5));
        List<MessageExt> again = tries.all().stream().filter(m -> text(m).equals("r-0")).toList();
        equal(List.of(0, 1, 2), again.stream().map(MessageExt::getReconsumeTimes).toList(), "reconsume times of the tries");
        MessageExt third = again.get(2);
        equal(topic, third.getTopic(), "the client shows the original topic");
        equal(topic, third.getProperty("RETRY_TOPIC"), "RETRY_TOPIC");
        equal(again.get(0).getMsgId(), third.getMsgId(), "the unique id stays");
        that(third.getProperty("ORIGIN_MESSAGE_ID") != null, "ORIGIN_MESSAGE_ID is set");
        consumer.shutdown();
        return "3 tries";
    }

    private static String deadLetter(Cluster c) throws Exception {
        String topic = c.topic("dlq", 1);
        String group = c.group("dlq");
        Inbox tries = new Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            tries.add(received);
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        Message m = new Message(topic, "T", "dead", bytes("dead"));
        m.putUserProperty("p", "kept");
        c.send(m);
        MessageExt dead = c.readAll("%DLQ%" + group, 1).get(0);
        equal("dead", text(dead), "body of the dead letter");
        equal("kept", dead.getUserProperty("p"), "property of the dead letter");
        equal(2, dead.getReconsumeTimes(), "reconsume times of the dead letter");
        equal(topic, dead.getProperty("RETRY_TOPIC"), "RETRY_TOPIC of the dead letter");
        equal(2, tries.size(), "tries");
        consumer.shutdown();
        return "dead after 2 tries";
    }

    private static String orderlySuspend(Cluster c) throws Exception {
        String topic = c.topic("suspend", 1);
        Inbox done = new Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group("suspend"));
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (received, context) -> {
            if (text(received.get(0)).equals("s-0") && received.get(0).getReconsumeTimes() < 2) {
                context.setSuspendCurrentQueueTimeMillis(100);
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            done.add(received);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        MessageQueue queue = c.queues(topic).get(0);
        for (int i = 0; i < 10; i++) {
            c.send(new Message(topic, bytes("s-" + i)), queue);
        }
        done.await(bodies("s", 10));
        done.exactly(bodies("s", 10));
        inOrder(done.all());
        equal("s-0", text(done.all().get(0)), "the suspended one stays first");
        consumer.shutdown();
        return "10 messages in order";
    }
}
