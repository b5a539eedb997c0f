package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Json;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.header.*;
import org.apache.rocketmq.common.protocol.header.filtersrv.*;
import org.apache.rocketmq.common.protocol.header.namesrv.*;
import org.apache.rocketmq.remoting.CommandCustomHeader;
import org.apache.rocketmq.remoting.annotation.CFNotNull;
import org.apache.rocketmq.remoting.protocol.LanguageCode;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.SerializeType;

/**
 * A frame of each request and response, in both forms of the header. Two classes are left out, since nothing in 4.9
 * sends them: RegisterOrderTopicRequestHeader, and CheckTransactionStateResponseHeader (a client answers 39 with a 37).
 */
final class GoldenFrames {
    private GoldenFrames() {
    }

    private static Map<Integer, Class<? extends CommandCustomHeader>> requests() {
        Map<Integer, Class<? extends CommandCustomHeader>> m = new LinkedHashMap<>();
        m.put(RequestCode.SEND_MESSAGE, SendMessageRequestHeader.class);
        m.put(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2.class);
        m.put(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2.class);
        m.put(RequestCode.PULL_MESSAGE, PullMessageRequestHeader.class);
        m.put(RequestCode.QUERY_MESSAGE, QueryMessageRequestHeader.class);
        m.put(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader.class);
        m.put(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader.class);
        m.put(RequestCode.UPDATE_AND_CREATE_TOPIC, CreateTopicRequestHeader.class);
        m.put(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader.class);
        m.put(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader.class);
        m.put(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader.class);
        m.put(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequestHeader.class);
        m.put(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader.class);
        m.put(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader.class);
        m.put(RequestCode.CONSUMER_SEND_MSG_BACK, ConsumerSendMsgBackRequestHeader.class);
        m.put(RequestCode.END_TRANSACTION, EndTransactionRequestHeader.class);
        m.put(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader.class);
        m.put(RequestCode.CHECK_TRANSACTION_STATE, CheckTransactionStateRequestHeader.class);
        m.put(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader.class);
        m.put(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader.class);
        m.put(RequestCode.GET_KV_CONFIG, GetKVConfigRequestHeader.class);
        m.put(RequestCode.DELETE_KV_CONFIG, DeleteKVConfigRequestHeader.class);
        m.put(RequestCode.REGISTER_BROKER, RegisterBrokerRequestHeader.class);
        m.put(RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader.class);
        m.put(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader.class);
        m.put(RequestCode.WIPE_WRITE_PERM_OF_BROKER, WipeWritePermOfBrokerRequestHeader.class);
        m.put(RequestCode.ADD_WRITE_PERM_OF_BROKER, AddWritePermOfBrokerRequestHeader.class);
        m.put(RequestCode.DELETE_TOPIC_IN_NAMESRV, DeleteTopicFromNamesrvRequestHeader.class);
        m.put(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceRequestHeader.class);
        m.put(RequestCode.GET_TOPICS_BY_CLUSTER, GetTopicsByClusterRequestHeader.class);
        m.put(RequestCode.QUERY_DATA_VERSION, QueryDataVersionRequestHeader.class);
        m.put(RequestCode.GET_TOPIC_STATS_INFO, GetTopicStatsInfoRequestHeader.class);
        m.put(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListRequestHeader.class);
        m.put(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader.class);
        m.put(RequestCode.DELETE_SUBSCRIPTIONGROUP, DeleteSubscriptionGroupRequestHeader.class);
        m.put(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader.class);
        m.put(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequestHeader.class);
        m.put(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequestHeader.class);
        m.put(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader.class);
        m.put(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, GetConsumerStatusRequestHeader.class);
        m.put(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, QueryTopicConsumeByWhoRequestHeader.class);
        m.put(RequestCode.QUERY_CONSUME_TIME_SPAN, QueryConsumeTimeSpanRequestHeader.class);
        m.put(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader.class);
        m.put(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetHeader.class);
        m.put(RequestCode.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyResultRequestHeader.class);
        m.put(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader.class);
        m.put(RequestCode.VIEW_BROKER_STATS_DATA, ViewBrokerStatsDataRequestHeader.class);
        m.put(RequestCode.GET_BROKER_CONSUME_STATS, GetConsumeStatsInBrokerHeader.class);
        m.put(RequestCode.QUERY_CONSUME_QUEUE, QueryConsumeQueueRequestHeader.class);
        m.put(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader.class);
        m.put(RequestCode.SEND_REPLY_MESSAGE, SendMessageRequestHeader.class);
        m.put(RequestCode.SEND_REPLY_MESSAGE_V2, SendMessageRequestHeaderV2.class);
        m.put(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ReplyMessageRequestHeader.class);
        m.put(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, CreateAccessConfigRequestHeader.class);
        m.put(RequestCode.DELETE_ACL_CONFIG, DeleteAccessConfigRequestHeader.class);
        m.put(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, UpdateGlobalWhiteAddrsConfigRequestHeader.class);
        m.put(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, GetConsumerStatusRequestHeader.class);
        m.put(RequestCode.REGISTER_FILTER_SERVER, RegisterFilterServerRequestHeader.class);
        m.put(RequestCode.REGISTER_MESSAGE_FILTER_CLASS, RegisterMessageFilterClassRequestHeader.class);
        m.put(RequestCode.GET_ALL_PRODUCER_INFO, GetAllProducerInfoRequestHeader.class);
        return m;
    }

    private static Map<String, Class<? extends CommandCustomHeader>> responses() {
        Map<String, Class<? extends CommandCustomHeader>> m = new LinkedHashMap<>();
        m.put("send", SendMessageResponseHeader.class);
        m.put("pull", PullMessageResponseHeader.class);
        m.put("queryMessage", QueryMessageResponseHeader.class);
        m.put("queryConsumerOffset", QueryConsumerOffsetResponseHeader.class);
        m.put("searchOffset", SearchOffsetResponseHeader.class);
        m.put("maxOffset", GetMaxOffsetResponseHeader.class);
        m.put("minOffset", GetMinOffsetResponseHeader.class);
        m.put("earliestStoreTime", GetEarliestMsgStoretimeResponseHeader.class);
        m.put("brokerConfig", GetBrokerConfigResponseHeader.class);
        m.put("registerBroker", RegisterBrokerResponseHeader.class);
        m.put("queryDataVersion", QueryDataVersionResponseHeader.class);
        m.put("getKvConfig", GetKVConfigResponseHeader.class);
        m.put("wipeWritePerm", WipeWritePermOfBrokerResponseHeader.class);
        m.put("addWritePerm", AddWritePermOfBrokerResponseHeader.class);
        m.put("aclInfo", GetBrokerAclConfigResponseHeader.class);
        m.put("registerFilterServer", RegisterFilterServerResponseHeader.class);
        m.put("endTransaction", EndTransactionResponseHeader.class);
        m.put("allTopicConfig", GetAllTopicConfigResponseHeader.class);
        m.put("aclConfig", GetBrokerClusterAclConfigResponseHeader.class);
        m.put("consumerList", GetConsumerListByGroupResponseHeader.class);
        m.put("unregisterClient", UnregisterClientResponseHeader.class);
        m.put("updateConsumerOffset", UpdateConsumerOffsetResponseHeader.class);
        m.put("viewMessage", ViewMessageResponseHeader.class);
        return m;
    }

    static void write(Golden.Sink sink) throws Exception {
        int opaque = 1;
        for (Map.Entry<Integer, Class<? extends CommandCustomHeader>> e : requests().entrySet()) {
            for (boolean full : new boolean[] {true, false}) {
                for (SerializeType type : SerializeType.values()) {
                    RemotingCommand c = RemotingCommand.createRequestCommand(e.getKey(), fill(e.getValue(), full));
                    emit(sink, "request-" + e.getKey(), full, type, c, opaque++);
                }
            }
        }
        for (Map.Entry<String, Class<? extends CommandCustomHeader>> e : responses().entrySet()) {
            for (boolean full : new boolean[] {true, false}) {
                for (SerializeType type : SerializeType.values()) {
                    // A response is made of its class; then the values are copied, as a handler does.
                    RemotingCommand c = RemotingCommand.createResponseCommand(e.getValue());
                    c.setCode(0);
                    c.setRemark(null);
                    c.writeCustomHeader(fill(e.getValue(), full));
                    emit(sink, "response-" + e.getKey(), full, type, c, opaque++);
                }
            }
        }
        for (SerializeType type : SerializeType.values()) {
            RemotingCommand bare = RemotingCommand.createRequestCommand(RequestCode.GET_BROKER_CLUSTER_INFO, null);
            emit(sink, "bare", true, type, bare, Integer.MAX_VALUE);
            RemotingCommand body = RemotingCommand.createRequestCommand(RequestCode.HEART_BEAT, null);
            body.setBody("{\"clientID\":\"é\"}".getBytes(java.nio.charset.StandardCharsets.UTF_8));
            emit(sink, "body", true, type, body, Integer.MIN_VALUE);
            RemotingCommand oneway = RemotingCommand.createRequestCommand(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, null);
            oneway.markOnewayRPC();
            oneway.setLanguage(LanguageCode.CPP);
            emit(sink, "oneway", true, type, oneway, -1);
            RemotingCommand error = RemotingCommand.createResponseCommand(17, "No topic route info: \"世界\"\n\uD83D\uDE80");
            emit(sink, "error", true, type, error, 0);
        }
    }

    private static void emit(Golden.Sink sink, String header, boolean full, SerializeType type, RemotingCommand c, int opaque)
            throws Exception {
        c.setSerializeTypeCurrentRPC(type);
        c.setOpaque(opaque);
        c.setVersion(407);
        // The way that the network takes: header first, then the body.
        ByteBuf buf = Unpooled.buffer();
        c.fastEncodeHeader(buf);
        if (c.getBody() != null) {
            buf.writeBytes(c.getBody());
        }
        byte[] bytes = new byte[buf.readableBytes()];
        buf.readBytes(bytes);
        // The meaning is what Java itself reads from these bytes.
        RemotingCommand back = RemotingCommand.decode(java.nio.ByteBuffer.wrap(bytes, 4, bytes.length - 4).slice());
        Map<String, Object> ext = back.getExtFields() == null ? null : new LinkedHashMap<>(new TreeMap<>(back.getExtFields()));
        sink.line(header + (full ? "" : "-least") + "-" + type.name().toLowerCase(), bytes,
                Json.object("header", header, "variant", full ? "full" : "least", "serialize", type.name(), "code", back.getCode(),
                        "language", back.getLanguage().name(), "version", back.getVersion(), "opaque", back.getOpaque(),
                        "flag", back.getFlag(), "remark", back.getRemark(), "ext", ext,
                        "body", back.getBody() == null ? "" : java.util.HexFormat.of().formatHex(back.getBody())));
    }

    /** Values tell their field's place, so that no two are mixed up unseen. */
    private static CommandCustomHeader fill(Class<? extends CommandCustomHeader> type, boolean full) throws Exception {
        CommandCustomHeader header = type.getDeclaredConstructor().newInstance();
        int n = 0;
        for (Field f : type.getDeclaredFields()) {
            if (Modifier.isStatic(f.getModifiers()) || f.getName().startsWith("this")) {
                continue;
            }
            n++;
            if (!full && !f.isAnnotationPresent(CFNotNull.class)) {
                continue;
            }
            f.setAccessible(true);
            Class<?> t = f.getType();
            if (t == String.class) {
                f.set(header, f.getName().equals("topicFilterType") ? "SINGLE_TAG" : f.getName() + "-é世" + n);
            } else if (t == int.class || t == Integer.class) {
                f.set(header, 1000 + n);
            } else if (t == long.class || t == Long.class) {
                f.set(header, 4_000_000_000_000L + n);
            } else if (t == boolean.class || t == Boolean.class) {
                f.set(header, true);
            } else if (t == java.util.List.class) {
                // The accounts of 54 go in the body; a broker never fills this.
                continue;
            } else {
                throw new IllegalStateException("no value for " + f);
            }
        }
        return header;
    }
}
