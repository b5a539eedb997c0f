package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Json;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.atomic.AtomicLong;
import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.serializer.SerializerFeature;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.admin.OffsetWrapper;
import org.apache.rocketmq.common.admin.TopicOffset;
import org.apache.rocketmq.common.admin.TopicStatsTable;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.body.*;
import org.apache.rocketmq.common.protocol.header.GetConsumerListByGroupResponseBody;
import org.apache.rocketmq.common.protocol.heartbeat.*;
import org.apache.rocketmq.common.protocol.route.*;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.remoting.protocol.LanguageCode;

/** Bodies with the traps of fastjson: bare integer keys, objects as keys, members without fields. */
final class GoldenBodies {
    private static final long TIME = 1_640_995_200_000L;

    private GoldenBodies() {
    }

    static void write(Golden.Sink sink) throws Exception {
        register(sink);
        heartbeat(sink);
        route(sink);
        tables(sink);
        queueMaps(sink);
        group(sink);
    }

    private static DataVersion version(long counter) {
        DataVersion v = new DataVersion();
        v.setTimestamp(TIME);
        v.setCounter(new AtomicLong(counter));
        return v;
    }

    private static Map<String, Object> versionValue(long counter) {
        return Json.object("counter", counter, "timestamp", TIME);
    }

    private static TopicConfigSerializeWrapper topics() {
        TopicConfigSerializeWrapper w = new TopicConfigSerializeWrapper();
        w.setDataVersion(version(7));
        w.getTopicConfigTable().put("TopicTest", new TopicConfig("TopicTest", 4, 8, 6));
        TopicConfig ordered = new TopicConfig("Ordered", 2, 2, 4);
        ordered.setOrder(true);
        ordered.setTopicSysFlag(3);
        w.getTopicConfigTable().put("Ordered", ordered);
        return w;
    }

    private static List<Object> topicsValue() {
        return List.of(
                Json.object("topicName", "Ordered", "readQueueNums", 2, "writeQueueNums", 2, "perm", 4, "order", true, "topicSysFlag", 3),
                Json.object("topicName", "TopicTest", "readQueueNums", 4, "writeQueueNums", 8, "perm", 6, "order", false, "topicSysFlag", 0));
    }

    private static void register(Golden.Sink sink) throws Exception {
        for (boolean compress : new boolean[] {false, true}) {
            RegisterBrokerBody body = new RegisterBrokerBody();
            body.setTopicConfigSerializeWrapper(topics());
            body.setFilterServerList(List.of("10.0.0.3:9000"));
            sink.line(compress ? "register-compressed" : "register", body.encode(compress),
                    Json.object("kind", "register", "compressed", compress, "value", Json.object("dataVersion", versionValue(7),
                            "topics", topicsValue(), "filterServers", List.of("10.0.0.3:9000"))));
        }
    }

    private static void json(Golden.Sink sink, String kind, byte[] bytes, Object value) throws Exception {
        sink.line(kind, bytes, Json.object("kind", kind, "text", new String(bytes, java.nio.charset.StandardCharsets.UTF_8), "value", value));
    }

    private static void heartbeat(Golden.Sink sink) throws Exception {
        HeartbeatData h = new HeartbeatData();
        h.setClientID("10.0.0.9@4711#1");
        ProducerData p = new ProducerData();
        p.setGroupName("producers");
        h.setProducerDataSet(new HashSet<>(Set.of(p)));
        ConsumerData c = new ConsumerData();
        c.setGroupName("consumers");
        c.setConsumeType(ConsumeType.CONSUME_PASSIVELY);
        c.setMessageModel(MessageModel.CLUSTERING);
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        SubscriptionData s = FilterAPI.buildSubscriptionData("TopicTest", "TagA || TagB");
        s.setSubVersion(TIME);
        c.setSubscriptionDataSet(new HashSet<>(Set.of(s)));
        h.setConsumerDataSet(new HashSet<>(Set.of(c)));
        Map<String, Object> subscription = Json.object("topic", "TopicTest", "subString", "TagA || TagB", "subVersion", TIME,
                "tagsSet", List.of("TagA", "TagB"), "codeSet", List.of("TagA".hashCode(), "TagB".hashCode()), "expressionType", "TAG");
        json(sink, "heartbeat", h.encode(), Json.object("clientID", h.getClientID(), "producers", List.of("producers"),
                "consumers", List.of(Json.object("groupName", "consumers", "consumeType", "CONSUME_PASSIVELY", "messageModel", "CLUSTERING",
                        "consumeFromWhere", "CONSUME_FROM_FIRST_OFFSET", "subscriptions", List.of(subscription)))));
    }

    private static BrokerData broker(String name) {
        BrokerData b = new BrokerData("DefaultCluster", name, new HashMap<>());
        b.getBrokerAddrs().put(0L, "10.0.0.1:10911");
        b.getBrokerAddrs().put(1L, "10.0.0.2:10911");
        return b;
    }

    private static void route(Golden.Sink sink) throws Exception {
        TopicRouteData r = new TopicRouteData();
        r.setBrokerDatas(new ArrayList<>(List.of(broker("broker-a"))));
        QueueData q = new QueueData();
        q.setBrokerName("broker-a");
        q.setReadQueueNums(4);
        q.setWriteQueueNums(8);
        q.setPerm(6);
        q.setTopicSysFlag(1);
        r.setQueueDatas(new ArrayList<>(List.of(q)));
        r.setFilterServerTable(new HashMap<>(Map.of("10.0.0.1:10911", List.of("10.0.0.3:9000"))));
        r.setOrderTopicConf("broker-a:4");
        Map<String, Object> brokerValue = Json.object("cluster", "DefaultCluster", "brokerName", "broker-a",
                "brokerAddrs", Json.object("0", "10.0.0.1:10911", "1", "10.0.0.2:10911"));
        Map<String, Object> value = Json.object("brokers", List.of(brokerValue), "queues", List.of(Json.object("brokerName", "broker-a",
                "readQueueNums", 4, "writeQueueNums", 8, "perm", 6, "topicSysFlag", 1)), "orderTopicConf", "broker-a:4");
        json(sink, "route", r.encode(), value);
        // What a client of 4.9.4 or later is given.
        json(sink, "route-standard", JSON.toJSONBytes(r, SerializerFeature.BrowserCompatible, SerializerFeature.QuoteFieldNames,
                SerializerFeature.SkipTransientField, SerializerFeature.MapSortField), value);
        ClusterInfo info = new ClusterInfo();
        info.setBrokerAddrTable(new HashMap<>(Map.of("broker-a", broker("broker-a"))));
        info.setClusterAddrTable(new HashMap<>(Map.of("DefaultCluster", new HashSet<>(Set.of("broker-a")))));
        json(sink, "cluster-info", info.encode(), Json.object("brokers", List.of(brokerValue), "clusters", Json.object("DefaultCluster", List.of("broker-a"))));
    }

    private static void tables(Golden.Sink sink) throws Exception {
        json(sink, "topic-table", topics().encode(), Json.object("dataVersion", versionValue(7), "topics", topicsValue()));
        SubscriptionGroupWrapper groups = new SubscriptionGroupWrapper();
        groups.setDataVersion(version(9));
        SubscriptionGroupConfig g = new SubscriptionGroupConfig();
        g.setGroupName("consumers");
        g.setRetryMaxTimes(3);
        g.setRetryQueueNums(2);
        g.setConsumeBroadcastEnable(false);
        groups.getSubscriptionGroupTable().put("consumers", g);
        json(sink, "group-table", groups.encode(), Json.object("dataVersion", versionValue(9), "groups", List.of(Json.object("groupName", "consumers",
                "retryMaxTimes", 3, "retryQueueNums", 2, "consumeBroadcastEnable", false, "consumeEnable", true, "whichBrokerWhenConsumeSlowly", 1))));
        ConsumerOffsetSerializeWrapper offsets = new ConsumerOffsetSerializeWrapper();
        ConcurrentMap<String, ConcurrentMap<Integer, Long>> table = new ConcurrentHashMap<>();
        table.put("TopicTest@consumers", new ConcurrentHashMap<>(Map.of(0, 123L, 1, 4_000_000_000L)));
        offsets.setOffsetTable(table);
        json(sink, "consumer-offsets", offsets.encode(), Json.object("TopicTest@consumers", Json.object("0", 123, "1", 4_000_000_000L)));
        KVTable kv = new KVTable();
        kv.getTable().put("TopicTest", "broker-a:4;broker-b:4");
        json(sink, "kv-table", kv.encode(), Json.object("TopicTest", "broker-a:4;broker-b:4"));
        TopicList list = new TopicList();
        list.setTopicList(new TreeSet<>(Set.of("A", "B")));
        list.setBrokerAddr("10.0.0.1:10911");
        json(sink, "topic-list", list.encode(), Json.object("topicList", List.of("A", "B"), "brokerAddr", "10.0.0.1:10911"));
    }

    private static void queueMaps(Golden.Sink sink) throws Exception {
        TopicStatsTable stats = new TopicStatsTable();
        ConsumeStats consume = new ConsumeStats();
        Map<MessageQueue, Long> reset = new HashMap<>();
        List<Object> statsValue = new ArrayList<>();
        List<Object> consumeValue = new ArrayList<>();
        List<Object> resetValue = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            MessageQueue q = new MessageQueue("TopicTest", "broker-a", i);
            TopicOffset o = new TopicOffset();
            o.setMinOffset(i);
            o.setMaxOffset(100 + i);
            o.setLastUpdateTimestamp(TIME + i);
            stats.getOffsetTable().put(q, o);
            statsValue.add(List.of("TopicTest", "broker-a", i, Json.object("minOffset", i, "maxOffset", 100 + i, "lastUpdateTimestamp", TIME + i)));
            OffsetWrapper w = new OffsetWrapper();
            w.setBrokerOffset(100 + i);
            w.setConsumerOffset(90 + i);
            w.setLastTimestamp(TIME + i);
            consume.getOffsetTable().put(q, w);
            consumeValue.add(List.of("TopicTest", "broker-a", i, Json.object("brokerOffset", 100 + i, "consumerOffset", 90 + i, "lastTimestamp", TIME + i)));
            reset.put(q, 50L + i);
            resetValue.add(List.of("TopicTest", "broker-a", i, 50 + i));
        }
        consume.setConsumeTps(1.5);
        json(sink, "topic-stats", stats.encode(), statsValue);
        json(sink, "consume-stats", consume.encode(), Json.object("consumeTps", 1.5, "queues", consumeValue));
        ResetOffsetBody body = new ResetOffsetBody();
        body.setOffsetTable(reset);
        json(sink, "reset-offset", body.encode(), resetValue);
    }

    private static void group(Golden.Sink sink) throws Exception {
        LockBatchRequestBody lock = new LockBatchRequestBody();
        lock.setClientId("10.0.0.9@4711#1");
        lock.setConsumerGroup("consumers");
        lock.getMqSet().add(new MessageQueue("TopicTest", "broker-a", 3));
        Object queues = List.of(List.of("TopicTest", "broker-a", 3));
        json(sink, "lock-request", lock.encode(), Json.object("clientId", "10.0.0.9@4711#1", "consumerGroup", "consumers", "queues", queues));
        LockBatchResponseBody locked = new LockBatchResponseBody();
        locked.setLockOKMQSet(new HashSet<>(Set.of(new MessageQueue("TopicTest", "broker-a", 3))));
        json(sink, "lock-response", locked.encode(), Json.object("queues", queues));
        ConsumerConnection connection = new ConsumerConnection();
        Connection one = new Connection();
        one.setClientId("10.0.0.9@4711#1");
        one.setClientAddr("10.0.0.9:50000");
        one.setLanguage(LanguageCode.GO);
        one.setVersion(317);
        connection.setConnectionSet(new HashSet<>(Set.of(one)));
        connection.setConsumeType(ConsumeType.CONSUME_ACTIVELY);
        connection.setMessageModel(MessageModel.BROADCASTING);
        connection.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
        SubscriptionData s = FilterAPI.buildSubscriptionData("TopicTest", "*");
        s.setSubVersion(TIME);
        connection.getSubscriptionTable().put("TopicTest", s);
        json(sink, "consumer-connection", connection.encode(), Json.object("clientId", "10.0.0.9@4711#1", "clientAddr", "10.0.0.9:50000",
                "language", "GO", "version", 317, "consumeType", "CONSUME_ACTIVELY", "messageModel", "BROADCASTING",
                "consumeFromWhere", "CONSUME_FROM_TIMESTAMP", "topic", "TopicTest"));
        GetConsumerListByGroupResponseBody ids = new GetConsumerListByGroupResponseBody();
        ids.setConsumerIdList(List.of("c1", "c2"));
        json(sink, "consumer-ids", ids.encode(), Json.object("consumerIdList", List.of("c1", "c2")));
        ConsumerRunningInfo info = new ConsumerRunningInfo();
        info.getProperties().put("PROP_THREADPOOL_CORE_SIZE", "20");
        info.setSubscriptionSet(new TreeSet<>(Set.of(s)));
        ProcessQueueInfo pq = new ProcessQueueInfo();
        pq.setCommitOffset(42);
        pq.setCachedMsgCount(7);
        pq.setLocked(true);
        info.setMqTable(new TreeMap<>(Map.of(new MessageQueue("TopicTest", "broker-a", 1), pq)));
        json(sink, "running-info", info.encode(), Json.object("queue", List.of("TopicTest", "broker-a", 1), "commitOffset", 42, "cachedMsgCount", 7, "locked", true));
    }
}
