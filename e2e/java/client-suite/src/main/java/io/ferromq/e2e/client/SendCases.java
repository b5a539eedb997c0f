package io.ferromq.e2e.client;

import static io.ferromq.e2e.client.Cluster.bytes;
import static io.ferromq.e2e.client.Cluster.text;
import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageId;
import org.apache.rocketmq.common.message.MessageQueue;

/** The ways of sending; what was stored is read back by a pull consumer and compared field by field. */
final class SendCases {
    private static final String UNICODE = "grüße 世界 \uD83D\uDE80 \n\t\"";

    private SendCases() {
    }

    static void add(Suite suite, Cluster c) {
        suite.add("send-sync", Group.CORE, () -> sync(c));
        suite.add("send-async", Group.CORE, () -> async(c));
        suite.add("send-oneway", Group.CORE, () -> oneway(c));
        suite.add("send-batch", Group.CORE, () -> batch(c));
        suite.add("send-compressed", Group.CORE, () -> compressed(c));
        suite.add("send-large", Group.CORE, () -> large(c));
        suite.add("send-selector", Group.CORE, () -> selector(c));
        suite.add("send-refused", Group.CORE, () -> refused(c));
        suite.add("topic-auto-create", Group.CORE, () -> autoCreate(c));
    }

    private static String sync(Cluster c) throws Exception {
        String topic = c.topic("sync", 4);
        Map<String, SendResult> sent = new HashMap<>();
        for (int i = 0; i < 20; i++) {
            Message m = new Message(topic, "Tag-" + i % 3, "key-" + i + " shared", 0x12345678 + i, bytes(UNICODE + i), true);
            m.putUserProperty("unicode", "π=3.14 " + i);
            m.putUserProperty("plain", "v" + i);
            SendResult r = c.send(m);
            equal(topic, r.getMessageQueue().getTopic(), "topic of the send result");
            that(r.getTransactionId() != null || r.getMsgId() != null, "a send result names the message");
            sent.put(UNICODE + i, r);
        }
        List<MessageExt> got = c.readAll(topic, 20);
        equal(20, got.size(), "messages stored");
        for (MessageExt m : got) {
            SendResult r = sent.remove(text(m));
            that(r != null, "body " + text(m) + " was sent, and is there once");
            int i = Integer.parseInt(text(m).substring(UNICODE.length()));
            equal("Tag-" + i % 3, m.getTags(), "tag");
            equal("key-" + i + " shared", m.getKeys(), "keys");
            equal(0x12345678 + i, m.getFlag(), "flag");
            equal("π=3.14 " + i, m.getUserProperty("unicode"), "Unicode property");
            equal("v" + i, m.getUserProperty("plain"), "property");
            equal(r.getQueueOffset(), m.getQueueOffset(), "queue offset of answer and record");
            equal(r.getMessageQueue().getQueueId(), m.getQueueId(), "queue of answer and record");
            equal(r.getMsgId(), m.getMsgId(), "unique id");
            MessageId id = MessageDecoder.decodeMessageId(r.getOffsetMsgId());
            equal(id.getOffset(), m.getCommitLogOffset(), "physical offset in the offset message id");
            equal(id.getAddress(), m.getStoreHost(), "store host in the offset message id");
            that(m.getProperty("CLUSTER") != null, "the broker adds CLUSTER");
            that(m.getStoreTimestamp() > 0 && m.getBornTimestamp() > 0, "times are set");
            equal(0, m.getReconsumeTimes(), "reconsume times");
        }
        that(sent.isEmpty(), "never stored: " + sent.keySet());
        return "20 messages";
    }

    private static String async(Cluster c) throws Exception {
        String topic = c.topic("async", 4);
        int count = 100;
        CountDownLatch answers = new CountDownLatch(count);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < count; i++) {
            c.producer().send(new Message(topic, bytes("a-" + i)), new SendCallback() {
                @Override
                public void onSuccess(SendResult r) {
                    answers.countDown();
                }

                @Override
                public void onException(Throwable e) {
                    failure.set(e);
                    answers.countDown();
                }
            });
        }
        that(answers.await(Check.PATIENCE, TimeUnit.SECONDS), "all answers came, " + answers.getCount() + " did not");
        that(failure.get() == null, "async send failed: " + failure.get());
        Set<String> got = c.readAll(topic, count).stream().map(Cluster::text).collect(Collectors.toCollection(TreeSet::new));
        equal(Cluster.bodies("a", count), got, "bodies");
        return count + " messages";
    }

    private static String oneway(Cluster c) throws Exception {
        String topic = c.topic("oneway", 2);
        for (int i = 0; i < 50; i++) {
            c.producer().sendOneway(new Message(topic, bytes("o-" + i)));
        }
        Set<String> got = c.readAll(topic, 50).stream().map(Cluster::text).collect(Collectors.toCollection(TreeSet::new));
        equal(Cluster.bodies("o", 50), got, "bodies");
        return "50 messages";
    }

    private static String batch(Cluster c) throws Exception {
        String topic = c.topic("batch", 2);
        MessageQueue queue = c.queues(topic).get(0);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            Message m = new Message(topic, i % 2 == 0 ? "even" : "odd", "bk-" + i, bytes("b-" + UNICODE + i));
            m.setFlag(i);
            m.putUserProperty("n", "№" + i);
            messages.add(m);
        }
        SendResult r = Cluster.stored(c.producer().send(messages, queue));
        String[] ids = r.getOffsetMsgId().split(",");
        equal(30, ids.length, "offset message ids of a batch");
        equal(30, new HashSet<>(Arrays.asList(ids)).size(), "different ids");
        List<MessageExt> got = c.readAll(topic, 30);
        equal(30, got.size(), "messages stored");
        String[] unique = r.getMsgId().split(",");
        for (int i = 0; i < 30; i++) {
            MessageExt m = got.get(i);
            equal("b-" + UNICODE + i, text(m), "body in order");
            equal(r.getQueueOffset() + i, m.getQueueOffset(), "consecutive queue offset");
            equal(queue.getQueueId(), m.getQueueId(), "queue");
            equal(i % 2 == 0 ? "even" : "odd", m.getTags(), "tag");
            equal("bk-" + i, m.getKeys(), "key");
            equal("№" + i, m.getUserProperty("n"), "property");
            equal(i, m.getFlag(), "flag");
            equal(unique[i], m.getMsgId(), "unique id");
            equal(MessageDecoder.decodeMessageId(ids[i]).getOffset(), m.getCommitLogOffset(), "physical offset of id " + i);
            that(m.getProperty("CLUSTER") != null, "the broker adds CLUSTER to each");
        }
        Cluster.stored(c.producer().send(List.of(new Message(topic, bytes("single")))));
        equal(31, c.readAll(topic, 31).size(), "a batch of one");
        return "30 + 1 messages";
    }

    private static String compressed(Cluster c) throws Exception {
        String topic = c.topic("compressed", 1);
        byte[] body = bytes("squeeze me ".repeat(6000));
        MessageQueue queue = c.queues(topic).get(0);
        c.send(new Message(topic, "T", body), queue);
        c.send(new Message(topic, "T", bytes("plain")), queue);
        List<MessageExt> got = c.readAll(topic, 2);
        that(Arrays.equals(body, got.get(0).getBody()), "the body comes back inflated");
        equal(1, got.get(0).getSysFlag() & 1, "compressed flag");
        that(got.get(0).getStoreSize() < body.length / 4, "stored compressed: " + got.get(0).getStoreSize());
        equal("plain", text(got.get(1)), "plain body next to it");
        return body.length + " bytes stored as " + got.get(0).getStoreSize();
    }

    private static String large(Cluster c) throws Exception {
        String topic = c.topic("large", 1);
        // Random bytes do not compress: 1 MiB goes over the wire and into the log as it is.
        byte[] body = new byte[1 << 20];
        new java.util.Random(7).nextBytes(body);
        c.producer().send(new Message(topic, body), 20_000);
        that(Arrays.equals(body, c.readAll(topic, 1).get(0).getBody()), "1 MiB comes back unchanged");
        return "1 MiB";
    }

    private static String selector(Cluster c) throws Exception {
        String topic = c.topic("selector", 3);
        for (int i = 0; i < 30; i++) {
            int order = i % 5;
            Cluster.stored(c.producer().send(new Message(topic, bytes(order + ":" + i / 5)),
                    (queues, m, arg) -> queues.get((Integer) arg % queues.size()), order));
        }
        Map<String, Integer> next = new HashMap<>();
        Map<String, String> home = new HashMap<>();
        for (MessageExt m : c.readAll(topic, 30)) {
            String[] parts = text(m).split(":");
            equal(next.getOrDefault(parts[0], 0), Integer.valueOf(parts[1]), "step of order " + parts[0]);
            next.merge(parts[0], 1, Integer::sum);
            String at = m.getBrokerName() + "/" + m.getQueueId();
            equal(home.computeIfAbsent(parts[0], k -> at), at, "queue of order " + parts[0]);
        }
        return "5 orders of 6 steps";
    }

    private static String refused(Cluster c) throws Exception {
        String topic = c.topic("refused", 1);
        MessageQueue real = c.queues(topic).get(0);
        try {
            c.producer().send(new Message(topic, bytes("x")), new MessageQueue(topic, real.getBrokerName(), 99));
            throw new AssertionError("a send to queue 99 of 1 was accepted");
        } catch (MQBrokerException e) {
            equal(1, e.getResponseCode(), "code for a queue that is not there: " + e.getErrorMessage());
        }
        try {
            c.producer().send(new Message("SCHEDULE_TOPIC_XXXX", bytes("x")), new MessageQueue("SCHEDULE_TOPIC_XXXX", real.getBrokerName(), 0));
            throw new AssertionError("a send to the delay topic was accepted");
        } catch (MQBrokerException | MQClientException e) {
            that(String.valueOf(e.getMessage()).contains("SCHEDULE_TOPIC_XXXX"), "the refusal names the topic: " + e.getMessage());
        }
        c.send(new Message(topic, bytes("good")));
        equal(1, c.readAll(topic, 1).size(), "only the good one is stored");
        return "2 refusals";
    }

    private static String autoCreate(Cluster c) throws Exception {
        String topic = c.topicName("auto");
        SendResult r = c.send(new Message(topic, bytes("first")));
        c.awaitRoute(topic, Set.of(r.getMessageQueue().getBrokerName()));
        long queues = c.producer().fetchPublishMessageQueues(topic).stream()
                .filter(q -> q.getBrokerName().equals(r.getMessageQueue().getBrokerName())).count();
        equal(4L, queues, "queues of a topic made by a send");
        equal("first", text(c.readAll(topic, 1).get(0)), "body");
        return "4 queues on " + r.getMessageQueue().getBrokerName();
    }
}
