package io.ferromq.e2e.peer;

import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Json;
import java.io.File;
import java.io.FileInputStream;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.ConsumeQueueExt;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.QueryMessageResult;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * Opens a store with Java's own store classes and prints what is in it, a JSON object a line.
 *
 * <p>{@code --store DIR [--conf FILE] [--set k=v]... [--check-keys true] [--key TOPIC:KEY]...}. Opening recovers the
 * store and writes to it, so give it a copy. Lines: {@code {"opened":…}} first, then one a message, then
 * {@code {"key":…}} for each key asked, then {@code {"summary":…}}. Exit code 1: the store did not open, or an entry
 * of a queue leads to no message, or a key of a message does not find it.
 */
public final class StoreReader {
    private final DefaultMessageStore store;
    private final PrintStream out;
    private final List<String> wrong = new ArrayList<>();

    private StoreReader(DefaultMessageStore store, PrintStream out) {
        this.store = store;
        this.out = out;
    }

    public static void main(String[] argv) throws Exception {
        Args args = new Args(argv);
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        String dir = args.need("store");
        Properties given = new Properties();
        if (args.get("conf", null) != null) {
            try (FileInputStream in = new FileInputStream(args.need("conf"))) {
                given.load(in);
            }
        }
        for (String pair : args.all("set")) {
            int at = pair.indexOf('=');
            given.setProperty(pair.substring(0, at), pair.substring(at + 1));
        }
        MessageStoreConfig config = new MessageStoreConfig();
        MixAll.properties2Object(given, config);
        config.setStorePathRootDir(dir);
        config.setStorePathCommitLog(dir + "/commitlog");
        // Nobody replicates from here: any free port will do.
        config.setHaListenPort(0);
        // What is read must not be removed for its age or for a full disk meanwhile.
        config.setFileReservedTime(24 * 3650);
        config.setDiskMaxUsedSpaceRatio(99);
        boolean abort = new File(dir, "abort").exists();
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("reader", true),
                (topic, queueId, offset, tagsCode, time, filterBitMap, properties) -> {
                }, new BrokerConfig());
        int code = 1;
        if (!store.load()) {
            System.err.println("StoreReader: Java's store refused to load " + dir);
        } else {
            store.start();
            while (store.dispatchBehindBytes() > 0) {
                Thread.sleep(10);
            }
            StoreReader reader = new StoreReader(store, out);
            out.println(Json.text(Json.object("opened", dir, "abort", abort, "min", store.getMinPhyOffset(), "max", store.getMaxPhyOffset())));
            code = reader.print(args);
        }
        out.flush();
        store.shutdown();
        System.exit(code);
    }

    private int print(Args args) throws Exception {
        boolean checkKeys = Boolean.parseBoolean(args.get("check-keys", "false"));
        int messages = 0;
        int keys = 0;
        Map<String, Map<Integer, ConsumeQueue>> topics = new TreeMap<>();
        store.getConsumeQueueTable().forEach((topic, queues) -> topics.put(topic, new TreeMap<>(queues)));
        for (Map.Entry<String, Map<Integer, ConsumeQueue>> topic : topics.entrySet()) {
            for (ConsumeQueue queue : topic.getValue().values()) {
                for (long at = queue.getMinOffsetInQueue(); at < queue.getMaxOffsetInQueue(); at++) {
                    MessageExt m = entry(queue, at);
                    if (m == null) {
                        continue;
                    }
                    messages++;
                    if (checkKeys) {
                        keys += checkKeys(m);
                    }
                }
            }
        }
        for (String key : args.all("key")) {
            int at = key.lastIndexOf(':');
            String topic = key.substring(0, at);
            List<Long> found = find(topic, key.substring(at + 1));
            out.println(Json.text(Json.object("key", key.substring(at + 1), "topic", topic, "physical", found)));
        }
        out.println(Json.text(Json.object("summary", Json.object("messages", messages, "keysChecked", keys,
                "wrong", wrong.subList(0, Math.min(wrong.size(), 20)), "wrongCount", wrong.size()))));
        return wrong.isEmpty() ? 0 : 1;
    }

    private MessageExt entry(ConsumeQueue queue, long at) throws Exception {
        SelectMappedBufferResult unit = queue.getIndexBuffer(at);
        if (unit == null) {
            wrong.add(queue.getTopic() + "/" + queue.getQueueId() + "/" + at + ": no entry");
            return null;
        }
        long physical;
        int size;
        long tagsCode;
        try {
            ByteBuffer b = unit.getByteBuffer();
            physical = b.getLong();
            size = b.getInt();
            tagsCode = b.getLong();
        } finally {
            unit.release();
        }
        MessageExt m = message(physical, size);
        if (m == null || m.getStoreSize() != size || m.getCommitLogOffset() != physical || m.getQueueOffset() != at
                || m.getQueueId() != queue.getQueueId() || !m.getTopic().equals(queue.getTopic())) {
            wrong.add(queue.getTopic() + "/" + queue.getQueueId() + "/" + at + ": entry " + physical + "+" + size + " leads to " + m);
            return null;
        }
        boolean extended = queue.isExtAddr(tagsCode);
        if (extended) {
            ConsumeQueueExt.CqExtUnit ext = queue.getExt(tagsCode);
            if (ext == null || ext.getMsgStoreTime() != m.getStoreTimestamp()) {
                wrong.add(queue.getTopic() + "/" + queue.getQueueId() + "/" + at + ": extension " + tagsCode + " is " + ext);
                return null;
            }
            tagsCode = ext.getTagsCode();
        }
        Map<String, String> properties = new TreeMap<>(m.getProperties());
        out.println(Json.text(Json.object("topic", m.getTopic(), "queue", m.getQueueId(), "offset", at, "physical", physical,
                "size", size, "tagsCode", tagsCode, "extended", extended, "sysFlag", m.getSysFlag(), "flag", m.getFlag(),
                "born", m.getBornTimestamp(), "bornHost", String.valueOf(m.getBornHost()), "stored", m.getStoreTimestamp(),
                "storeHost", String.valueOf(m.getStoreHost()), "reconsume", m.getReconsumeTimes(),
                "prepared", m.getPreparedTransactionOffset(), "crc", m.getBodyCRC(), "bodyLen", m.getBody().length,
                "sha256", HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(m.getBody())),
                "id", properties.get(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX),
                "offsetId", MessageDecoder.createMessageId(m.getStoreHost(), physical), "properties", properties)));
        return m;
    }

    /** The record at a place, with its body inflated. */
    private MessageExt message(long physical, int size) {
        SelectMappedBufferResult record = store.selectOneMessageByOffset(physical, size);
        if (record == null) {
            return null;
        }
        try {
            return MessageDecoder.decode(record.getByteBuffer(), true, true);
        } finally {
            record.release();
        }
    }

    private int checkKeys(MessageExt m) {
        int asked = 0;
        List<String> keys = new ArrayList<>();
        if (m.getKeys() != null) {
            keys.addAll(List.of(m.getKeys().split(MessageConst.KEY_SEPARATOR)));
        }
        String unique = m.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (unique != null) {
            keys.add(unique);
        }
        for (String key : keys) {
            asked++;
            if (!find(m.getTopic(), key).contains(m.getCommitLogOffset())) {
                wrong.add("key " + key + " of " + m.getTopic() + " does not find " + m.getCommitLogOffset());
            }
        }
        return asked;
    }

    private List<Long> find(String topic, String key) {
        QueryMessageResult r = store.queryMessage(topic, key, 64, 0, Long.MAX_VALUE);
        List<Long> found = new ArrayList<>();
        try {
            for (ByteBuffer b : r.getMessageBufferList()) {
                found.add(b.getLong(b.position() + MessageDecoder.PHY_POS_POSITION));
            }
        } finally {
            r.release();
        }
        return found;
    }
}
