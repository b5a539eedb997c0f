package io.ferromq.e2e.client;

import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Json;
import java.io.PrintStream;
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

/**
 * One member of a consumer group as a process of its own, to share a topic with members of other kinds.
 *
 * <p>{@code member --group G --topic T [--ordered true] [--name N]}: prints {@code {"holds":[...]}} whenever its queues of
 * the topic become others, and {@code {"got":body,"queue":"broker/id","offset":n}} for each message. Leaves the group in
 * good order when standard input closes.
 */
final class Member {
    private Member() {
    }

    static int run(Cluster c, Args args, PrintStream out) throws Exception {
        String topic = args.need("topic");
        DefaultMQPushConsumer consumer = c.push(args.need("group"));
        consumer.setInstanceName(args.get("name", "java-member"));
        consumer.subscribe(topic, "*");
        if (Boolean.parseBoolean(args.get("ordered", "false"))) {
            consumer.registerMessageListener((MessageListenerOrderly) (received, context) -> {
                print(out, received);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
                print(out, received);
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        Set<String> before = null;
        while (!closed()) {
            Set<String> now = consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()
                    .stream().filter(q -> q.getTopic().equals(topic)).map(q -> q.getBrokerName() + "/" + q.getQueueId())
                    .collect(Collectors.toCollection(TreeSet::new));
            if (!now.equals(before)) {
                out.println(Json.text(Json.object("holds", List.copyOf(now))));
                before = now;
            }
            Thread.sleep(50);
        }
        consumer.shutdown();
        out.println(Json.text(Json.object("left", true)));
        return 0;
    }

    private static volatile boolean inputClosed;
    private static boolean watching;

    /** True once standard input has ended. A thread waits for that, as a look at it would not tell. */
    private static boolean closed() {
        if (!watching) {
            watching = true;
            Thread watcher = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {
                        // What is written to us does not matter, only the end.
                    }
                } catch (java.io.IOException e) {
                    // As good as an end.
                }
                inputClosed = true;
            });
            watcher.setDaemon(true);
            watcher.start();
        }
        return inputClosed;
    }

    private static void print(PrintStream out, List<MessageExt> received) {
        for (MessageExt m : received) {
            out.println(Json.text(Json.object("got", Cluster.text(m), "queue", m.getBrokerName() + "/" + m.getQueueId(),
                    "offset", m.getQueueOffset())));
        }
    }
}
