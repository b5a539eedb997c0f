package io.ferromq.e2e.client;

import io.ferromq.e2e.harness.Check;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.impl.MQClientAPIImpl;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.header.QueryConsumerOffsetRequestHeader;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;

/** The cluster under test as the cases see it: shared clients, names of this run, and reading a topic to its end. */
final class Cluster implements AutoCloseable {
    static final String TEMPLATE = "TBW102";

    final String namesrv;
    final String prefix;
    private final AtomicInteger instances = new AtomicInteger();
    private final DefaultMQProducer producer;
    private final DefaultMQPullConsumer reader;
    private Set<String> masters;

    Cluster(String namesrv, String prefix) {
        this.namesrv = namesrv;
        this.prefix = prefix;
        producer = new DefaultMQProducer(group("producer"));
        configure(producer);
        reader = new DefaultMQPullConsumer(group("reader"));
        configure(reader);
    }

    /** For a cluster that may have no master left. */
    void startClients() throws Exception {
        producer.start();
        reader.start();
    }

    void start() throws Exception {
        startClients();
        masters = Check.eventually("brokers are routed at " + namesrv, () -> {
            Set<String> names = mastersOf(api().getTopicRouteInfoFromNameServer(TEMPLATE, 3000));
            return names.isEmpty() ? null : names;
        });
    }

    private static Set<String> mastersOf(TopicRouteData route) {
        return route.getBrokerDatas().stream().filter(b -> b.getBrokerAddrs().containsKey(0L))
                .map(BrokerData::getBrokerName).collect(Collectors.toCollection(TreeSet::new));
    }

    /** Every client is an instance of its own, as clients in separate processes are. */
    private void configure(ClientConfig client) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(prefix + "-" + instances.incrementAndGet());
        client.setClientCallbackExecutorThreads(1);
        client.setHeartbeatBrokerInterval(5000);
    }

    String group(String name) {
        return prefix + "_g_" + name;
    }

    String topicName(String name) {
        return prefix + "_" + name;
    }

    /** Names of the broker groups that have a master. */
    Set<String> masters() {
        return masters;
    }

    DefaultMQProducer producer() {
        return producer;
    }

    DefaultMQPullConsumer reader() {
        return reader;
    }

    MQClientAPIImpl api() {
        return producer.getDefaultMQProducerImpl().getmQClientFactory().getMQClientAPIImpl();
    }

    DefaultMQProducer newProducer(String group) {
        DefaultMQProducer p = new DefaultMQProducer(group);
        configure(p);
        return p;
    }

    <T extends ClientConfig> T own(T client) {
        configure(client);
        return client;
    }

    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer c = new DefaultMQPushConsumer(group);
        configure(c);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setConsumeThreadMin(2);
        c.setConsumeThreadMax(2);
        return c;
    }

    DefaultLitePullConsumer litePull(String group) {
        DefaultLitePullConsumer c = new DefaultLitePullConsumer(group);
        configure(c);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setPullThreadNums(2);
        return c;
    }

    DefaultMQPullConsumer pull(String group) {
        DefaultMQPullConsumer c = new DefaultMQPullConsumer(group);
        configure(c);
        return c;
    }

    /** Makes a topic with {@code queues} queues on every master and waits until it is routed there. */
    String topic(String name, int queues) throws Exception {
        String topic = topicName(name);
        producer.createTopic(TEMPLATE, topic, queues);
        awaitRoute(topic, masters);
        return topic;
    }

    void awaitRoute(String topic, Set<String> brokers) throws Exception {
        Check.until("the name server routes " + topic + " at " + brokers,
                () -> mastersOf(api().getTopicRouteInfoFromNameServer(topic, 3000)).containsAll(brokers));
    }

    List<MessageQueue> queues(String topic) throws Exception {
        return producer.fetchPublishMessageQueues(topic).stream()
                .sorted(Comparator.comparing(MessageQueue::getBrokerName).thenComparing(MessageQueue::getQueueId)).toList();
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(MessageExt m) {
        return new String(m.getBody(), StandardCharsets.UTF_8);
    }

    SendResult send(Message m) throws Exception {
        return stored(producer.send(m));
    }

    SendResult send(Message m, MessageQueue queue) throws Exception {
        return stored(producer.send(m, queue));
    }

    static SendResult stored(SendResult r) {
        Check.equal(SendStatus.SEND_OK, r.getSendStatus(), "send status");
        Check.that(r.getOffsetMsgId() != null && !r.getOffsetMsgId().isEmpty(), "a send answers with an offset message id");
        return r;
    }

    /** Sends {@code count} messages {@code body-0…} round the queues; key is {@code topic-i}. */
    List<SendResult> sendMany(String topic, String body, int count) throws Exception {
        List<SendResult> results = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            results.add(send(new Message(topic, "T", topic + "-" + i, bytes(body + "-" + i))));
        }
        return results;
    }

    static Set<String> bodies(String body, int count) {
        Set<String> all = new TreeSet<>();
        for (int i = 0; i < count; i++) {
            all.add(body + "-" + i);
        }
        return all;
    }

    /** Pulls every queue from its first message to its end, once at least {@code expected} messages are there. */
    List<MessageExt> readAll(String topic, int expected) throws Exception {
        Collection<MessageQueue> queues = Check.eventually("queues of " + topic, () -> reader.fetchSubscribeMessageQueues(topic));
        // Queues are filled a little after the answer to a send.
        Check.until(topic + " holds " + expected + " messages", () -> {
            long sum = 0;
            for (MessageQueue q : queues) {
                sum += reader.maxOffset(q) - reader.minOffset(q);
            }
            return sum >= expected;
        });
        List<MessageExt> all = new ArrayList<>();
        for (MessageQueue q : queues) {
            long at = reader.minOffset(q);
            long end = reader.maxOffset(q);
            while (at < end) {
                PullResult r = reader.pull(q, "*", at, 32);
                switch (r.getPullStatus()) {
                    case FOUND -> all.addAll(r.getMsgFoundList());
                    case NO_MATCHED_MSG -> {
                    }
                    default -> throw new AssertionError("pull of " + q + " at " + at + " of " + end + ": " + r);
                }
                Check.that(r.getNextBeginOffset() > at, "pull of " + q + " at " + at + " moves on: " + r);
                at = r.getNextBeginOffset();
            }
        }
        return all;
    }

    /** What the brokers have as the offsets of a group, by queue; −1 where there is none. */
    Map<MessageQueue, Long> offsets(String group, String topic) throws Exception {
        Map<MessageQueue, Long> offsets = new TreeMap<>();
        for (MessageQueue q : queues(topic)) {
            QueryConsumerOffsetRequestHeader h = new QueryConsumerOffsetRequestHeader();
            h.setConsumerGroup(group);
            h.setTopic(topic);
            h.setQueueId(q.getQueueId());
            long offset;
            try {
                offset = api().queryConsumerOffset(brokerAddress(q.getBrokerName()), h, 3000);
            } catch (org.apache.rocketmq.client.exception.MQBrokerException e) {
                if (e.getResponseCode() != 22) {
                    throw e;
                }
                offset = -1;
            }
            offsets.put(q, offset);
        }
        return offsets;
    }

    long offsetSum(String group, String topic) throws Exception {
        return offsets(group, topic).values().stream().mapToLong(o -> Math.max(o, 0)).sum();
    }

    String brokerAddress(String name) {
        return producer.getDefaultMQProducerImpl().getmQClientFactory().findBrokerAddressInPublish(name);
    }

    @Override
    public void close() {
        reader.shutdown();
        producer.shutdown();
    }
}
