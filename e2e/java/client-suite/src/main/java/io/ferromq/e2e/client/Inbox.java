package io.ferromq.e2e.client;

import io.ferromq.e2e.harness.Check;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;

/** Collects what a push consumer receives, in the order it receives it. */
final class Inbox {
    private final List<MessageExt> messages = new ArrayList<>();

    /** Subscribes, starts and returns the consumer. */
    DefaultMQPushConsumer concurrent(DefaultMQPushConsumer consumer, String topic, String tags) throws Exception {
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            add(received);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    DefaultMQPushConsumer orderly(DefaultMQPushConsumer consumer, String topic, String tags) throws Exception {
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerOrderly) (received, context) -> {
            add(received);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    synchronized void add(List<MessageExt> received) {
        messages.addAll(received);
    }

    synchronized List<MessageExt> all() {
        return new ArrayList<>(messages);
    }

    synchronized int size() {
        return messages.size();
    }

    Set<String> bodies() {
        return all().stream().map(Cluster::text).collect(Collectors.toCollection(TreeSet::new));
    }

    /** Waits until at least these bodies are here. */
    void await(Set<String> wanted) throws Exception {
        try {
            Check.until("consumer receives all", () -> bodies().containsAll(wanted));
        } catch (AssertionError e) {
            Set<String> missing = new TreeSet<>(wanted);
            missing.removeAll(bodies());
            throw new AssertionError(e.getMessage() + "; " + missing.size() + " of " + wanted.size() + " missing: " + missing, e);
        }
    }

    /** Each body once and no other. */
    void exactly(Set<String> wanted) {
        Check.equal(wanted, bodies(), "bodies received");
        Check.equal(wanted.size(), size(), "messages received (more means doubles)");
    }
}
