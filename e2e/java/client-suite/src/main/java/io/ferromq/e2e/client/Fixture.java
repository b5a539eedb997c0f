package io.ferromq.e2e.client;

import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONObject;
import com.alibaba.fastjson.parser.Feature;
import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Json;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Wants from a broker everything that a sample store is known to hold: each message by its id and at its place in its
 * queue, each group's offsets, each key look-up.
 *
 * <p>{@code fixture-phase --namesrv ADDR --messages FILE.jsonl --manifest FILE.json}.
 */
final class Fixture {
    /** Kept by a broker for itself; a consumer may find no route to them. */
    private static final Set<String> HIDDEN = Set.of("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC");

    private final Cluster cluster;
    private final List<String> wrong = new ArrayList<>();

    private Fixture(Cluster cluster) {
        this.cluster = cluster;
    }

    static int verify(Cluster c, Args args, PrintStream out) throws Exception {
        Fixture f = new Fixture(c);
        String manifestText = Files.readString(Path.of(args.need("manifest")), StandardCharsets.UTF_8);
        JSONObject manifest = JSON.parseObject(manifestText, Feature.OrderedField);
        String broker = manifest.getString("broker");
        c.awaitRoute("fx-plain", Set.of(broker));
        int messages = 0;
        for (String line : Files.readAllLines(Path.of(args.need("messages")), StandardCharsets.UTF_8)) {
            f.message(broker, JSON.parseObject(line));
            messages++;
        }
        f.groups(broker, manifest.getJSONObject("groups"));
        int keys = 0;
        for (Object entry : manifest.getJSONArray("index")) {
            f.key((JSONObject) entry);
            keys++;
        }
        out.println(Json.text(Json.object("fixture", messages, "keys", keys,
                "wrong", f.wrong.subList(0, Math.min(20, f.wrong.size())), "wrongCount", f.wrong.size())));
        return f.wrong.isEmpty() ? 0 : 1;
    }

    private void same(String what, Object expected, Object actual) {
        if (!expected.equals(actual)) {
            wrong.add(what + ": expected " + expected + ", got " + actual);
        }
    }

    private void message(String broker, JSONObject e) throws Exception {
        String place = e.getString("topic") + "/" + e.getIntValue("queue") + "/" + e.getLongValue("offset");
        try {
            MessageExt byId = cluster.producer().viewMessage(e.getString("offset_msg_id"));
            compare(place + " by id", e, byId);
            Map<String, String> properties = new TreeMap<>();
            e.getJSONObject("properties").forEach((k, v) -> properties.put(k, (String) v));
            Map<String, String> found = new TreeMap<>(byId.getProperties());
            found.keySet().removeAll(properties.containsKey("MIN_OFFSET") ? Set.of() : Set.of("MIN_OFFSET", "MAX_OFFSET"));
            same(place + " properties", properties, found);
            if (!HIDDEN.contains(e.getString("topic"))) {
                MessageQueue q = new MessageQueue(e.getString("topic"), broker, e.getIntValue("queue"));
                PullResult r = cluster.reader().pull(q, "*", e.getLongValue("offset"), 1);
                if (r.getPullStatus() == PullStatus.FOUND) {
                    compare(place + " by pull", e, r.getMsgFoundList().get(0));
                } else {
                    wrong.add(place + " by pull: " + r);
                }
            }
        } catch (Exception x) {
            wrong.add(place + ": " + x);
        }
    }

    private void compare(String place, JSONObject e, MessageExt m) throws Exception {
        same(place + " topic", e.getString("topic"), m.getTopic());
        same(place + " queue", e.getIntValue("queue"), m.getQueueId());
        same(place + " offset", e.getLongValue("offset"), m.getQueueOffset());
        same(place + " physical offset", e.getLongValue("phy"), m.getCommitLogOffset());
        same(place + " size", e.getIntValue("size"), m.getStoreSize());
        same(place + " flag", e.getIntValue("flag"), m.getFlag());
        same(place + " born", e.getLongValue("born"), m.getBornTimestamp());
        same(place + " stored", e.getLongValue("stored"), m.getStoreTimestamp());
        same(place + " reconsume times", e.getIntValue("reconsume"), m.getReconsumeTimes());
        same(place + " body", e.getString("body_md5"), HexFormat.of().formatHex(MessageDigest.getInstance("MD5").digest(m.getBody())));
    }

    private void groups(String broker, JSONObject groups) throws Exception {
        for (String group : groups.keySet()) {
            JSONObject topics = groups.getJSONObject(group);
            for (String topic : topics.keySet()) {
                Map<MessageQueue, Long> kept = cluster.offsets(group, topic);
                JSONObject queues = topics.getJSONObject(topic);
                for (String queue : queues.keySet()) {
                    long offset = kept.getOrDefault(new MessageQueue(topic, broker, Integer.parseInt(queue)), -1L);
                    same("offset of " + group + " in " + topic + "/" + queue, queues.getLong(queue), offset);
                }
            }
        }
    }

    private void key(JSONObject e) throws Exception {
        String what = "key " + e.getString("key") + " of " + e.getString("topic");
        try {
            // Delayed messages come due and add to what is found.
            int found = Check.eventually(what, () -> cluster.producer().queryMessage(e.getString("topic"), e.getString("key"), 64, 0, Long.MAX_VALUE)
                    .getMessageList().size());
            if (found < e.getIntValue("found")) {
                wrong.add(what + ": expected " + e.getIntValue("found") + " messages, got " + found);
            }
        } catch (AssertionError x) {
            wrong.add(what + ": " + x.getCause());
        }
    }
}
