package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Json;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.common.AclConfig;
import org.apache.rocketmq.common.DataVersion;
import org.apache.rocketmq.common.PlainAccessConfig;
import org.apache.rocketmq.common.admin.ConsumeStats;
import org.apache.rocketmq.common.admin.OffsetWrapper;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.message.MessageQueueForC;
import org.apache.rocketmq.common.protocol.body.*;
import org.apache.rocketmq.common.protocol.header.GetBrokerClusterAclConfigResponseBody;
import org.apache.rocketmq.common.protocol.heartbeat.SubscriptionData;
import org.apache.rocketmq.common.protocol.topic.OffsetMovedEvent;
import org.apache.rocketmq.common.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.namesrv.kvconfig.KVConfigSerializeWrapper;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;
import org.apache.rocketmq.store.schedule.DelayOffsetSerializeWrapper;

/** The bodies that are not in {@link GoldenBodies}: mostly answers to administrators, and plain JSON but for the maps with queues as keys. */
final class GoldenAnswers {
    private static final long TIME = 1_640_995_200_000L;

    private GoldenAnswers() {
    }

    static void write(Golden.Sink sink) throws Exception {
        groups(sink);
        resets(sink);
        statistics(sink);
        clients(sink);
        files(sink);
    }

    private static void json(Golden.Sink sink, String name, byte[] bytes) throws Exception {
        sink.line(name, bytes, Json.object("text", new String(bytes, StandardCharsets.UTF_8)));
    }

    private static MessageQueue queue(int id) {
        return new MessageQueue("TopicTest", "broker-a", id);
    }

    private static SubscriptionData subscription() throws Exception {
        SubscriptionData s = FilterAPI.buildSubscriptionData("TopicTest", "TagA");
        s.setSubVersion(TIME);
        return s;
    }

    private static void groups(Golden.Sink sink) throws Exception {
        SubscriptionGroupConfig g = new SubscriptionGroupConfig();
        g.setGroupName("consumers");
        g.setConsumeEnable(false);
        g.setConsumeFromMinEnable(false);
        g.setConsumeBroadcastEnable(false);
        g.setRetryQueueNums(3);
        g.setRetryMaxTimes(5);
        g.setBrokerId(1);
        g.setWhichBrokerWhenConsumeSlowly(2);
        g.setNotifyConsumerIdsChangedEnable(false);
        json(sink, "group", RemotingSerializable.encode(g));
        CheckClientRequestBody check = new CheckClientRequestBody();
        check.setClientId("10.0.0.9@4711#1");
        check.setGroup("consumers");
        check.setSubscriptionData(subscription());
        json(sink, "check-client", check.encode());
        UnlockBatchRequestBody unlock = new UnlockBatchRequestBody();
        unlock.setClientId("10.0.0.9@4711#1");
        unlock.setConsumerGroup("consumers");
        unlock.getMqSet().add(queue(3));
        json(sink, "unlock-request", unlock.encode());
        GroupList list = new GroupList();
        list.setGroupList(new HashSet<>(Set.of("consumers")));
        json(sink, "group-list", list.encode());
    }

    private static void resets(Golden.Sink sink) throws Exception {
        MessageQueueForC c = new MessageQueueForC("TopicTest", "broker-a", 1, 51L);
        ResetOffsetBodyForC forC = new ResetOffsetBodyForC();
        forC.setOffsetTable(List.of(c));
        json(sink, "reset-offset-c", forC.encode());
        GetConsumerStatusBody status = new GetConsumerStatusBody();
        status.setMessageQueueTable(new HashMap<>(Map.of(queue(1), 51L)));
        status.setConsumerTable(new HashMap<>(Map.of("10.0.0.9@4711#1", new HashMap<>(Map.of(queue(2), 52L)))));
        json(sink, "consumer-status", status.encode());
        OffsetMovedEvent moved = new OffsetMovedEvent();
        moved.setConsumerGroup("consumers");
        moved.setMessageQueue(queue(1));
        moved.setOffsetRequest(7);
        moved.setOffsetNew(9);
        json(sink, "offset-moved", moved.encode());
        QueryCorrectionOffsetBody correction = new QueryCorrectionOffsetBody();
        correction.setCorrectionOffsets(new HashMap<>(Map.of(0, 5L, 1, Long.MAX_VALUE)));
        json(sink, "correction-offsets", correction.encode());
    }

    private static void statistics(Golden.Sink sink) throws Exception {
        ConsumeStats stats = new ConsumeStats();
        OffsetWrapper w = new OffsetWrapper();
        w.setBrokerOffset(100);
        w.setConsumerOffset(90);
        w.setLastTimestamp(TIME);
        stats.getOffsetTable().put(queue(0), w);
        stats.setConsumeTps(2.5);
        ConsumeStatsList all = new ConsumeStatsList();
        all.setBrokerAddr("10.0.0.1:10911");
        all.setTotalDiff(10);
        all.setConsumeStatsList(new ArrayList<>(List.of(new HashMap<>(Map.of("consumers", new ArrayList<>(List.of(stats)))))));
        json(sink, "consume-stats-list", all.encode());
        BrokerStatsData broker = new BrokerStatsData();
        broker.setStatsMinute(item(1));
        broker.setStatsHour(item(2));
        broker.setStatsDay(item(3));
        json(sink, "broker-stats", broker.encode());
        QueueTimeSpan span = new QueueTimeSpan();
        span.setMessageQueue(queue(0));
        span.setMinTimeStamp(TIME);
        span.setMaxTimeStamp(TIME + 1);
        span.setConsumeTimeStamp(TIME + 2);
        span.setDelayTime(3);
        QueryConsumeTimeSpanBody spans = new QueryConsumeTimeSpanBody();
        spans.setConsumeTimeSpanSet(new ArrayList<>(List.of(span)));
        json(sink, "time-spans", spans.encode());
        ConsumeQueueData entry = new ConsumeQueueData();
        entry.setPhysicOffset(123456);
        entry.setPhysicSize(210);
        entry.setTagsCode("TagA".hashCode());
        entry.setExtendDataJson("{}");
        entry.setBitMap("0101");
        entry.setEval(true);
        entry.setMsg("text");
        QueryConsumeQueueResponseBody entries = new QueryConsumeQueueResponseBody();
        entries.setSubscriptionData(subscription());
        entries.setFilterData("filter");
        entries.setMinQueueIndex(1);
        entries.setMaxQueueIndex(9);
        entries.setQueueData(new ArrayList<>(List.of(entry)));
        json(sink, "queue-entries", entries.encode());
    }

    private static BrokerStatsItem item(int n) {
        BrokerStatsItem i = new BrokerStatsItem();
        i.setSum(n);
        i.setTps(n + 0.5);
        i.setAvgpt(n + 0.25);
        return i;
    }

    private static void clients(Golden.Sink sink) throws Exception {
        Connection one = new Connection();
        one.setClientId("10.0.0.9@4711#1");
        one.setClientAddr("10.0.0.9:50000");
        one.setLanguage(LanguageCode.CPP);
        one.setVersion(407);
        ProducerConnection producers = new ProducerConnection();
        producers.setConnectionSet(new HashSet<>(Set.of(one)));
        json(sink, "producer-connection", producers.encode());
        ProducerInfo info = new ProducerInfo("10.0.0.9@4711#1", "10.0.0.9:50000", LanguageCode.JAVA, 407, TIME);
        json(sink, "producer-table", new ProducerTableInfo(new HashMap<>(Map.of("producers", new ArrayList<>(List.of(info))))).encode());
        ConsumeMessageDirectlyResult direct = new ConsumeMessageDirectlyResult();
        direct.setOrder(true);
        direct.setAutoCommit(false);
        direct.setConsumeResult(CMResult.CR_LATER);
        direct.setRemark("später");
        direct.setSpentTimeMills(12);
        json(sink, "consume-directly", direct.encode());
    }

    private static void files(Golden.Sink sink) throws Exception {
        DataVersion v = new DataVersion();
        v.setTimestamp(TIME);
        v.setCounter(new AtomicLong(7));
        json(sink, "data-version", v.encode());
        DelayOffsetSerializeWrapper delays = new DelayOffsetSerializeWrapper();
        delays.setOffsetTable(new ConcurrentHashMap<>(Map.of(1, 10L, 18, 20L)));
        json(sink, "delay-offsets", delays.encode());
        KVConfigSerializeWrapper kv = new KVConfigSerializeWrapper();
        kv.setConfigTable(new HashMap<>(Map.of("ORDER_TOPIC_CONFIG", new HashMap<>(Map.of("TopicTest", "broker-a:4")))));
        json(sink, "kv-config", kv.encode());
        PlainAccessConfig account = new PlainAccessConfig();
        account.setAccessKey("key");
        account.setSecretKey("12345678");
        account.setWhiteRemoteAddress("10.0.0.*");
        account.setAdmin(true);
        account.setDefaultTopicPerm("DENY");
        account.setDefaultGroupPerm("SUB");
        account.setTopicPerms(new ArrayList<>(List.of("TopicTest=PUB")));
        account.setGroupPerms(new ArrayList<>(List.of("consumers=SUB")));
        AclConfig acl = new AclConfig();
        acl.setGlobalWhiteAddrs(new ArrayList<>(List.of("10.0.0.1")));
        acl.setPlainAccessConfigs(new ArrayList<>(List.of(account)));
        json(sink, "acl-config", RemotingSerializable.encode(acl));
        GetBrokerClusterAclConfigResponseBody aclAnswer = new GetBrokerClusterAclConfigResponseBody();
        aclAnswer.setGlobalWhiteAddrs(new ArrayList<>(List.of("10.0.0.1", "10.0.1.*")));
        aclAnswer.setPlainAccessConfigs(new ArrayList<>(List.of(account)));
        json(sink, "acl-config-answer", aclAnswer.encode());
    }
}
