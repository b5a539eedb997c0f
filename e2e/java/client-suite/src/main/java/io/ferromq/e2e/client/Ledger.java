package io.ferromq.e2e.client;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Json;
import java.io.BufferedWriter;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * A test of what survives: one phase sends and keeps a ledger of each answer, a later one (after whatever was done to
 * the brokers) wants every entry back.
 *
 * <p>The ledger is one JSON object a line, written when the answer came:
 * {@code {"topic","broker","queue","offset","id","offsetId","key","sha256"}}.
 */
final class Ledger {
    private Ledger() {
    }

    static int send(Cluster c, Args args, PrintStream out) throws Exception {
        Path file = Path.of(args.need("ledger"));
        int count = args.number("count", 200);
        boolean stopOnError = Boolean.parseBoolean(args.get("stop-on-error", "false"));
        String topic = c.topic("ledger", args.number("queues", 4));
        int acknowledged = 0;
        String stopped = null;
        try (BufferedWriter w = Files.newBufferedWriter(file, StandardCharsets.UTF_8)) {
            out.println(Json.text(Json.object("sending", topic)));
            for (int i = 0; i < count; i++) {
                List<Message> messages = messages(topic, i);
                SendResult r;
                try {
                    r = Cluster.stored(messages.size() == 1
                            ? c.producer().send(messages.get(0)) : c.producer().send(messages));
                } catch (Exception | AssertionError e) {
                    if (!stopOnError) {
                        throw e;
                    }
                    stopped = e.toString();
                    break;
                }
                String[] ids = r.getMsgId().split(",");
                String[] offsetIds = r.getOffsetMsgId().split(",");
                for (int k = 0; k < messages.size(); k++) {
                    w.write(Json.text(Json.object("topic", topic, "broker", r.getMessageQueue().getBrokerName(),
                            "queue", r.getMessageQueue().getQueueId(), "offset", r.getQueueOffset() + k, "id", ids[k],
                            "offsetId", offsetIds[k], "key", messages.get(k).getKeys(),
                            "sha256", sha256(messages.get(k).getBody()))));
                    w.newLine();
                    acknowledged++;
                }
                w.flush();
            }
        }
        out.println(Json.text(Json.object("sent", acknowledged, "topic", topic, "stopped", stopped)));
        return 0;
    }

    /** Every tenth is a batch of five, every seventh is large enough to be compressed. */
    private static List<Message> messages(String topic, int i) {
        int size = i % 10 == 9 ? 5 : 1;
        List<Message> messages = new ArrayList<>();
        for (int k = 0; k < size; k++) {
            String body = "ledger " + i + "/" + k + " é世 " + (i % 7 == 6 ? "x".repeat(6000) : "");
            Message m = new Message(topic, "T" + i % 3, "lk-" + i + "-" + k, Cluster.bytes(body));
            m.putUserProperty("i", String.valueOf(i));
            messages.add(m);
        }
        return messages;
    }

    private static String sha256(byte[] body) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body));
    }

    static int verify(Cluster c, Args args, PrintStream out) throws Exception {
        Map<String, JSONObject> wanted = new LinkedHashMap<>();
        String topic = null;
        for (String line : Files.readAllLines(Path.of(args.need("ledger")), StandardCharsets.UTF_8)) {
            JSONObject e = JSON.parseObject(line);
            topic = e.getString("topic");
            wanted.put(e.getString("id"), e);
        }
        Check.that(topic != null, "the ledger has entries");
        List<String> wrong = new ArrayList<>();
        TreeSet<String> brokers = new TreeSet<>();
        wanted.values().forEach(e -> brokers.add(e.getString("broker")));
        boolean masters = Boolean.parseBoolean(args.get("masters", "true"));
        if (masters) {
            c.awaitRoute(topic, brokers);
        }

        // By push, with a group that is new.
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = inbox.concurrent(c.push(c.group("verify")), topic, "*");
        Map<String, MessageExt> received = new LinkedHashMap<>();
        try {
            Check.until("all are received", () -> {
                inbox.all().forEach(m -> received.put(m.getMsgId(), m));
                return received.keySet().containsAll(wanted.keySet());
            });
        } catch (AssertionError e) {
            wrong.add(e.getMessage());
        }
        consumer.shutdown();
        for (JSONObject e : wanted.values()) {
            compare("by push", e, received.get(e.getString("id")), wrong);
        }

        // By pull, from the first message on. Java's clients ask masters only where a queue ends.
        Map<String, MessageExt> pulled = new LinkedHashMap<>();
        if (masters) {
            c.readAll(topic, wanted.size()).forEach(m -> pulled.put(m.getMsgId(), m));
            for (JSONObject e : wanted.values()) {
                compare("by pull", e, pulled.get(e.getString("id")), wrong);
            }
        }

        // By the id that the answer to the send had, which is the address of the broker that took it, and by key.
        int n = 0;
        for (JSONObject e : wanted.values()) {
            try {
                if (masters) {
                    compare("by offset id", e, c.producer().viewMessage(e.getString("offsetId")), wrong);
                }
                if (n++ % 20 == 0) {
                    List<MessageExt> found = c.producer().queryMessage(topic, e.getString("key"), 32, 0, Long.MAX_VALUE).getMessageList();
                    MessageExt hit = found.stream().filter(m -> m.getMsgId().equals(e.getString("id"))).findFirst().orElse(null);
                    compare("by key", e, hit, wrong);
                }
            } catch (Exception x) {
                wrong.add(e + " by id or key: " + x);
            }
        }
        out.println(Json.text(Json.object("verified", wanted.size(), "stored", pulled.size(), "topic", topic,
                "wrong", wrong.subList(0, Math.min(20, wrong.size())), "wrongCount", wrong.size())));
        return wrong.isEmpty() ? 0 : 1;
    }

    private static void compare(String how, JSONObject e, MessageExt m, List<String> wrong) throws Exception {
        if (m == null) {
            wrong.add(how + " missing: " + e);
        } else if (!sha256(m.getBody()).equals(e.getString("sha256"))) {
            wrong.add(how + " another body: " + e);
        } else if (m.getQueueId() != e.getIntValue("queue") || m.getQueueOffset() != e.getLongValue("offset")) {
            wrong.add(how + " at " + m.getQueueId() + "/" + m.getQueueOffset() + ": " + e);
        } else if (!e.getString("key").equals(m.getKeys())) {
            wrong.add(how + " with keys " + m.getKeys() + ": " + e);
        }
    }
}
