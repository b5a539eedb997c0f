package io.ferromq.e2e.client;

import static io.ferromq.e2e.client.Cluster.bodies;
import static io.ferromq.e2e.client.Cluster.bytes;
import static io.ferromq.e2e.client.Cluster.text;
import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Consumers that ask for themselves: the old pull consumer and the lite one. */
final class PullCases {
    private PullCases() {
    }

    static void add(Suite suite, Cluster c) {
        suite.add("pull", Group.CORE, () -> pull(c));
        suite.add("pull-edges", Group.CORE, () -> edges(c));
        suite.add("pull-block", Group.CORE, () -> block(c));
        suite.add("lite-pull-subscribe", Group.CORE, () -> liteSubscribe(c));
        suite.add("light-queues", Group.NAMED, () -> light(c));
        suite.add("lite-pull-assign", Group.CORE, () -> liteAssign(c));
    }

    /**
     * Light queues ({@code enableLmq}, {@code enableMultiDispatch}): each run goes on where the last one ended, on
     * whichever broker has the store now.
     */
    private static String light(Cluster c) throws Exception {
        String parent = "light_parent";
        c.producer().createTopic(Cluster.TEMPLATE, parent, 1);
        c.awaitRoute(parent, c.masters());
        String broker = c.masters().iterator().next();
        MessageQueue a = new MessageQueue("%LMQ%light_a", broker, 0);
        MessageQueue b = new MessageQueue("%LMQ%light_b", broker, 0);
        DefaultMQPullConsumer consumer = c.pull("%LMQ%light_g");
        consumer.start();
        // Light queues have no route; this one's tells where the broker is.
        consumer.maxOffset(new MessageQueue(parent, broker, 0));
        long before = consumer.maxOffset(a);
        long other = consumer.maxOffset(b);
        equal(before, consumer.fetchConsumeOffset(a, true), "the group's offset at the start");
        for (int i = 0; i < 6; i++) {
            Message m = new Message(parent, "T", bytes("l-" + i));
            MessageAccessor.putProperty(m, "INNER_MULTI_DISPATCH", i % 2 == 0 ? "%LMQ%light_a,%LMQ%light_b" : "%LMQ%light_a");
            c.send(m);
        }
        Check.until("all is dispatched", () -> consumer.maxOffset(a) == before + 6 && consumer.maxOffset(b) == other + 3);
        equal(List.of("l-0", "l-1", "l-2", "l-3", "l-4", "l-5"), drain(consumer, a, before), "the first light queue");
        equal(List.of("l-0", "l-2", "l-4"), drain(consumer, b, other), "the second light queue");
        CompletableFuture<PullResult> held = CompletableFuture.supplyAsync(() -> {
            try {
                return consumer.pullBlockIfNotFound(b, "*", other + 3, 1);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        });
        Message woken = new Message(parent, "T", bytes("woken"));
        MessageAccessor.putProperty(woken, "INNER_MULTI_DISPATCH", "%LMQ%light_b");
        c.send(woken);
        equal("woken", text(held.get(60, TimeUnit.SECONDS).getMsgFoundList().get(0)), "what woke the held pull");
        consumer.getDefaultMQPullConsumerImpl().getOffsetStore().updateConsumeOffsetToBroker(a, before + 6, false);
        equal(before + 6, consumer.fetchConsumeOffset(a, true), "the group's offset at the end");
        try {
            c.api().getTopicRouteInfoFromNameServer(a.getTopic(), 3000);
            throw new AssertionError("a light queue is not registered");
        } catch (MQClientException e) {
            equal(17, e.getResponseCode(), "code of the route of a light queue");
        }
        consumer.shutdown();
        return "from " + before;
    }

    private static List<String> drain(DefaultMQPullConsumer consumer, MessageQueue q, long from) throws Exception {
        List<String> got = new ArrayList<>();
        for (long at = from; ; ) {
            PullResult r = consumer.pull(q, "*", at, 4);
            if (r.getPullStatus() == PullStatus.NO_NEW_MSG) {
                return got;
            }
            equal(PullStatus.FOUND, r.getPullStatus(), "pull status");
            r.getMsgFoundList().forEach(m -> got.add(text(m)));
            at = r.getNextBeginOffset();
        }
    }

    private static String pull(Cluster c) throws Exception {
        String topic = c.topic("pull", 3);
        c.sendMany(topic, "p", 60);
        c.readAll(topic, 60);
        DefaultMQPullConsumer consumer = c.pull(c.group("pull"));
        consumer.start();
        Set<String> got = new TreeSet<>();
        for (MessageQueue q : consumer.fetchSubscribeMessageQueues(topic)) {
            long at = 0;
            while (true) {
                PullResult r = consumer.pull(q, "*", at, 10);
                if (r.getPullStatus() == PullStatus.NO_NEW_MSG) {
                    break;
                }
                equal(PullStatus.FOUND, r.getPullStatus(), "pull status");
                that(r.getMsgFoundList().size() <= 10, "no more than asked for");
                equal(0L, r.getMinOffset(), "min offset");
                r.getMsgFoundList().forEach(m -> got.add(text(m)));
                at = r.getNextBeginOffset();
            }
            consumer.updateConsumeOffset(q, at);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(q);
            long end = at;
            Check.until("offset of " + q + " is kept by the broker", () -> consumer.fetchConsumeOffset(q, true) == end);
        }
        equal(bodies("p", 60), got, "bodies");
        consumer.shutdown();
        return "60 messages";
    }

    private static String edges(Cluster c) throws Exception {
        String topic = c.topic("edges", 1);
        MessageQueue q = c.queues(topic).get(0);
        for (int i = 0; i < 10; i++) {
            c.send(new Message(topic, i < 9 ? "most" : "last", bytes("e-" + i)), q);
        }
        c.readAll(topic, 10);
        DefaultMQPullConsumer r = c.reader();
        equal(0L, r.minOffset(q), "min offset");
        equal(10L, r.maxOffset(q), "max offset");
        PullResult end = r.pull(q, "*", 10, 32);
        equal(PullStatus.NO_NEW_MSG, end.getPullStatus(), "pull at the end");
        PullResult past = r.pull(q, "*", 5000, 32);
        equal(PullStatus.OFFSET_ILLEGAL, past.getPullStatus(), "pull past the end");
        equal(10L, past.getNextBeginOffset(), "a pull past the end is led to the end");
        PullResult negative = r.pull(q, "*", 0, 32);
        equal(10, negative.getMsgFoundList().size(), "pull from the start");
        PullResult filtered = r.pull(q, "nothing", 0, 32);
        equal(PullStatus.NO_MATCHED_MSG, filtered.getPullStatus(), "pull of a tag that is not there");
        equal(10L, filtered.getNextBeginOffset(), "a filtered pull moves on");
        PullResult last = r.pull(q, "last", 0, 32);
        equal(List.of("e-9"), last.getMsgFoundList().stream().map(Cluster::text).toList(), "pull by tag");
        long store = r.earliestMsgStoreTime(q);
        equal(negative.getMsgFoundList().get(0).getStoreTimestamp(), store, "earliest store time");
        return "8 pulls";
    }

    /** A pull that waits is answered when a message comes. */
    private static String block(Cluster c) throws Exception {
        String topic = c.topic("block", 1);
        MessageQueue q = c.queues(topic).get(0);
        DefaultMQPullConsumer consumer = c.pull(c.group("block"));
        consumer.start();
        CompletableFuture<PullResult> held = CompletableFuture.supplyAsync(() -> unchecked(() -> consumer.pullBlockIfNotFound(q, "*", 0, 32)));
        c.send(new Message(topic, bytes("woken")), q);
        PullResult r = held.get(Check.PATIENCE, TimeUnit.SECONDS);
        equal(PullStatus.FOUND, r.getPullStatus(), "status of the held pull");
        equal("woken", text(r.getMsgFoundList().get(0)), "body");
        consumer.shutdown();
        return "held pull answered";
    }

    private static <T> T unchecked(Callable<T> call) {
        try {
            return call.call();
        } catch (Exception e) {
            throw new IllegalStateException(e);
        }
    }

    private static String liteSubscribe(Cluster c) throws Exception {
        String topic = c.topic("lite", 3);
        String group = c.group("lite");
        c.sendMany(topic, "l", 60);
        DefaultLitePullConsumer consumer = c.litePull(group);
        consumer.subscribe(topic, "*");
        consumer.start();
        Map<String, Integer> got = new HashMap<>();
        Check.until("60 polled", () -> {
            consumer.poll(500).forEach(m -> got.merge(text(m), 1, Integer::sum));
            return got.size() >= 60;
        });
        equal(bodies("l", 60), new TreeSet<>(got.keySet()), "bodies");
        that(got.values().stream().allMatch(n -> n == 1), "no doubles: " + got);
        // What the last poll handed out is committed by the next.
        consumer.poll(10);
        consumer.commitSync();
        Check.until("the group's offsets reach the end", () -> c.offsetSum(group, topic) == 60);
        consumer.shutdown();
        return "60 messages";
    }

    private static String liteAssign(Cluster c) throws Exception {
        String topic = c.topic("assign", 2);
        String group = c.group("assign");
        for (MessageQueue q : c.queues(topic)) {
            for (int i = 0; i < 20; i++) {
                c.send(new Message(topic, bytes(q.getBrokerName() + q.getQueueId() + ":" + i)), q);
            }
        }
        int queues = c.queues(topic).size();
        c.readAll(topic, 20 * queues);
        DefaultLitePullConsumer consumer = c.litePull(group);
        consumer.setAutoCommit(false);
        consumer.start();
        consumer.assign(consumer.fetchMessageQueues(topic));
        for (MessageQueue q : c.queues(topic)) {
            consumer.seekToBegin(q);
        }
        Set<String> first = new HashSet<>();
        Check.until("all polled", () -> {
            consumer.poll(500).forEach(m -> first.add(text(m)));
            return first.size() == 20 * queues;
        });
        MessageQueue one = c.queues(topic).get(0);
        consumer.seek(one, 15);
        Set<Long> again = new TreeSet<>();
        Check.until("5 polled again", () -> {
            for (MessageExt m : consumer.poll(500)) {
                equal(one.getQueueId(), m.getQueueId(), "only the queue that was sought back");
                again.add(m.getQueueOffset());
            }
            return again.size() == 5;
        });
        equal(Set.of(15L, 16L, 17L, 18L, 19L), again, "offsets after the seek");
        consumer.commitSync();
        Check.until("committed", () -> consumer.committed(one) == 20);
        consumer.shutdown();
        return 20 * queues + " messages, 5 again";
    }
}
