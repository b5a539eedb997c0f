package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Json;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** Stored messages, batch bodies, properties, ids and hashes. */
final class GoldenRecords {
    private static final long TIME = 1_640_995_200_000L;
    /** Where the body's length is, with IPv4 hosts. */
    private static final int BODY_AT = 84;

    private GoldenRecords() {
    }

    static void records(Golden.Sink sink) throws Exception {
        record(sink, "plain", "10.0.0.9", "10.0.0.1", "hello".getBytes(StandardCharsets.UTF_8), 0, true);
        record(sink, "unicode", "10.0.0.9", "10.0.0.1", "grüße 世界 \uD83D\uDE80".getBytes(StandardCharsets.UTF_8), 0, true);
        record(sink, "no-properties", "10.0.0.9", "10.0.0.1", new byte[] {0}, 0, false);
        record(sink, "born-v6", "fd00::9", "10.0.0.1", "six".getBytes(StandardCharsets.UTF_8), MessageSysFlag.BORNHOST_V6_FLAG, true);
        record(sink, "store-v6", "10.0.0.9", "fd00::1", "six".getBytes(StandardCharsets.UTF_8), MessageSysFlag.STOREHOSTADDRESS_V6_FLAG, true);
        record(sink, "both-v6", "fd00::9", "fd00::1", "six".getBytes(StandardCharsets.UTF_8),
                MessageSysFlag.BORNHOST_V6_FLAG | MessageSysFlag.STOREHOSTADDRESS_V6_FLAG, true);
        byte[] large = "compress me ".repeat(500).getBytes(StandardCharsets.UTF_8);
        record(sink, "compressed", "10.0.0.9", "10.0.0.1", large, MessageSysFlag.COMPRESSED_FLAG, true);
        record(sink, "prepared", "10.0.0.9", "10.0.0.1", "half".getBytes(StandardCharsets.UTF_8), MessageSysFlag.TRANSACTION_PREPARED_TYPE, true);
        batch(sink);
    }

    private static void record(Golden.Sink sink, String name, String born, String stored, byte[] body, int sysFlag, boolean properties)
            throws Exception {
        MessageExt m = new MessageExt();
        m.setTopic("TopicTest");
        m.setBody(body);
        m.setFlag(0x12345678);
        m.setSysFlag(sysFlag);
        m.setQueueId(3);
        m.setQueueOffset(42);
        m.setCommitLogOffset(123456);
        m.setBornTimestamp(TIME);
        m.setStoreTimestamp(TIME + 5);
        m.setBornHost(new InetSocketAddress(InetAddress.getByName(born), 54321));
        m.setStoreHost(new InetSocketAddress(InetAddress.getByName(stored), 10911));
        m.setReconsumeTimes(2);
        m.setPreparedTransactionOffset(77);
        m.setBodyCRC(UtilAll.crc32(body));
        if (properties) {
            m.setTags("TagA");
            m.setKeys("k1 k2");
            m.putUserProperty("ünï", "wert-世");
        }
        boolean compress = (sysFlag & MessageSysFlag.COMPRESSED_FLAG) != 0;
        byte[] bytes = MessageDecoder.encode(m, compress);
        if (compress) {
            // A broker sums up what it stores, which is the compressed body.
            int length = java.nio.ByteBuffer.wrap(bytes).getInt(BODY_AT);
            m.setBodyCRC(UtilAll.crc32(bytes, BODY_AT + 4, length));
            bytes = MessageDecoder.encode(m, true);
        }
        MessageExt back = MessageDecoder.decode(java.nio.ByteBuffer.wrap(bytes), true, true);
        sink.line(name, bytes, Json.object("kind", "record", "topic", back.getTopic(), "flag", back.getFlag(), "sysFlag", back.getSysFlag(),
                "queueId", back.getQueueId(), "queueOffset", back.getQueueOffset(), "physicalOffset", back.getCommitLogOffset(),
                "born", back.getBornTimestamp(), "bornHost", born, "bornPort", 54321, "stored", back.getStoreTimestamp(),
                "storeHost", stored, "storePort", 10911, "reconsumeTimes", back.getReconsumeTimes(),
                "prepared", back.getPreparedTransactionOffset(), "bodyCrc", back.getBodyCRC(),
                "bodyHex", java.util.HexFormat.of().formatHex(body), "properties", new LinkedHashMap<>(new TreeMap<>(m.getProperties() == null ? Map.of() : m.getProperties())),
                "offsetId", MessageDecoder.createMessageId(m.getStoreHost(), m.getCommitLogOffset())));
    }

    private static void batch(Golden.Sink sink) throws Exception {
        List<Message> messages = new ArrayList<>();
        List<Object> values = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            Message m = new Message("TopicTest", ("body-" + i + "é").getBytes(StandardCharsets.UTF_8));
            m.setFlag(i);
            if (i > 0) {
                m.setTags("T" + i);
            }
            messages.add(m);
            values.add(Json.object("bodyHex", java.util.HexFormat.of().formatHex(m.getBody()), "flag", i,
                    "properties", m.getProperties() == null ? Map.of() : new LinkedHashMap<>(m.getProperties())));
        }
        sink.line("batch", MessageDecoder.encodeMessages(messages), Json.object("kind", "batch", "messages", values));
    }

    static void texts(Golden.Sink sink) throws Exception {
        for (String s : new String[] {"", "a", "TagA", "TagB", "中文", "aVeryLongTagNameForOverflow", "Aa", "BB", "\uD83D\uDE80"}) {
            byte[] bytes = s.getBytes(StandardCharsets.UTF_8);
            sink.line("hash-" + s, bytes, Json.object("kind", "hash", "hash", s.hashCode(), "crc", UtilAll.crc32(bytes)));
        }
        Map<String, String> properties = new LinkedHashMap<>();
        properties.put("KEYS", "k1 k2");
        properties.put("TAGS", "TagA");
        properties.put("ü", "世 界");
        String text = MessageDecoder.messageProperties2String(properties);
        for (String given : new String[] {text, text + '\u0002', "A\u0001\u0002B\u0001x", "A\u0001x\u0001y\u0002B\u0001z", "\u0001x\u0002B\u0001z",
            "novalue", "", "\u0002\u0002A\u0001b\u0002\u0002", "A\u0001first\u0002A\u0001last"}) {
            sink.line("properties-" + given, given.getBytes(StandardCharsets.UTF_8), Json.object("kind", "properties",
                    "properties", new LinkedHashMap<>(new TreeMap<>(MessageDecoder.string2messageProperties(given)))));
        }
        for (String host : new String[] {"10.0.0.1", "255.1.2.3", "fd00::1"}) {
            for (long offset : new long[] {0, 123456, Long.MAX_VALUE}) {
                String id = MessageDecoder.createMessageId(new InetSocketAddress(InetAddress.getByName(host), 10911), offset);
                sink.line("id-" + id, id.getBytes(StandardCharsets.UTF_8), Json.object("kind", "id", "host", host, "port", 10911, "offset", offset));
            }
        }
    }
}
