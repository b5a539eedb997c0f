package io.ferromq.e2e.admin;

import io.ferromq.e2e.harness.Check;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.protocol.body.ClusterInfo;
import org.apache.rocketmq.common.protocol.route.BrokerData;
import org.apache.rocketmq.common.protocol.route.QueueData;
import org.apache.rocketmq.common.protocol.route.TopicRouteData;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/** The administrator's connection to the cluster under test, and the few clients that its cases need. */
final class Admin implements AutoCloseable {
    final String namesrv;
    final String prefix;
    final DefaultMQAdminExt tools;
    private final DefaultMQProducer producer;
    private final AtomicInteger instances = new AtomicInteger();

    Admin(String namesrv, String prefix) {
        this.namesrv = namesrv;
        this.prefix = prefix;
        tools = configure(new DefaultMQAdminExt(10_000));
        producer = configure(new DefaultMQProducer(prefix + "_g_producer"));
    }

    void start() throws Exception {
        tools.start();
        producer.start();
        Check.until("brokers are routed at " + namesrv, () -> !masters().isEmpty());
        // A broker's figures are a second behind its start.
        for (String address : masters().values()) {
            Check.until("figures of " + address, () -> tools.fetchBrokerRuntimeStats(address).getTable().containsKey("putTps"));
        }
    }

    <T extends ClientConfig> T configure(T client) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName(prefix + "-admin-" + instances.incrementAndGet());
        client.setClientCallbackExecutorThreads(1);
        client.setHeartbeatBrokerInterval(5000);
        client.setPollNameServerInterval(1000);
        return client;
    }

    ClusterInfo cluster() throws Exception {
        return tools.examineBrokerClusterInfo();
    }

    /** Broker name to master address. */
    Map<String, String> masters() throws Exception {
        Map<String, String> masters = new TreeMap<>();
        for (BrokerData b : cluster().getBrokerAddrTable().values()) {
            if (b.getBrokerAddrs().containsKey(0L)) {
                masters.put(b.getBrokerName(), b.getBrokerAddrs().get(0L));
            }
        }
        return masters;
    }

    String clusterName() throws Exception {
        return cluster().getClusterAddrTable().keySet().iterator().next();
    }

    String topicName(String name) {
        return prefix + "_" + name;
    }

    String group(String name) {
        return prefix + "_g_" + name;
    }

    /** Makes or changes a topic on every master and waits until each is routed with these queues. */
    String topic(String name, int queues) throws Exception {
        String topic = topicName(name);
        Map<String, String> masters = masters();
        for (String address : masters.values()) {
            tools.createAndUpdateTopicConfig(address, new TopicConfig(topic, queues, queues, 6));
        }
        Check.until(topic + " is routed with " + queues + " queues", () -> {
            TopicRouteData route = tools.examineTopicRouteInfo(topic);
            return route.getQueueDatas().size() == masters.size() && route.getQueueDatas().stream()
                    .allMatch(q -> q.getReadQueueNums() == queues && q.getWriteQueueNums() == queues);
        });
        return topic;
    }

    QueueData queueData(String topic, String broker) throws Exception {
        return tools.examineTopicRouteInfo(topic).getQueueDatas().stream()
                .filter(q -> q.getBrokerName().equals(broker)).findFirst().orElseThrow();
    }

    List<SendResult> send(String topic, int count) throws Exception {
        List<SendResult> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            sent.add(producer.send(new Message(topic, "T", topic + "-" + i, ("m-" + i).getBytes(StandardCharsets.UTF_8))));
        }
        return sent;
    }

    String producerGroup() {
        return producer.getProducerGroup();
    }

    DefaultMQPushConsumer consumer(String group, String topic, List<MessageExt> into) throws Exception {
        DefaultMQPushConsumer c = configure(new DefaultMQPushConsumer(group));
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setConsumeThreadMin(2);
        c.setConsumeThreadMax(2);
        c.setPersistConsumerOffsetInterval(1000);
        c.subscribe(topic, "*");
        c.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            synchronized (into) {
                into.addAll(received);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        c.start();
        return c;
    }

    static int size(List<MessageExt> list) {
        synchronized (list) {
            return list.size();
        }
    }

    @Override
    public void close() {
        producer.shutdown();
        tools.shutdown();
    }
}
