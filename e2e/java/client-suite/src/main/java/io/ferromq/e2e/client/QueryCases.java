package io.ferromq.e2e.client;

import static io.ferromq.e2e.client.Cluster.bytes;
import static io.ferromq.e2e.client.Cluster.text;
import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Finding single messages again: by key, by offset message id, by unique id. */
final class QueryCases {
    private QueryCases() {
    }

    static void add(Suite suite, Cluster c) {
        suite.add("query-by-key", Group.CORE, () -> byKey(c));
        suite.add("view-by-id", Group.CORE, () -> byId(c));
        suite.add("no-such-topic", Group.CORE, () -> noSuchTopic(c));
    }

    private static String byKey(Cluster c) throws Exception {
        String topic = c.topic("query", 2);
        long begin = System.currentTimeMillis() - 3_600_000;
        for (int i = 0; i < 10; i++) {
            c.send(new Message(topic, "T", "one-" + i + " common", bytes("q-" + i)));
        }
        for (int i = 0; i < 10; i++) {
            String key = "one-" + i;
            MessageExt found = Check.eventually("key " + key + " is found", () -> {
                QueryResult r = c.producer().queryMessage(topic, key, 32, begin, System.currentTimeMillis() + 60_000);
                equal(1, r.getMessageList().size(), "messages with key " + key);
                return r.getMessageList().get(0);
            });
            equal("q-" + i, text(found), "body of key " + key);
        }
        QueryResult all = c.producer().queryMessage(topic, "common", 32, begin, System.currentTimeMillis() + 60_000);
        equal(10, all.getMessageList().size(), "messages with the common key");
        QueryResult some = c.producer().queryMessage(topic, "common", 3, begin, System.currentTimeMillis() + 60_000);
        that(some.getMessageList().size() <= 3 * c.masters().size(), "no more than asked for of each broker");
        try {
            QueryResult none = c.producer().queryMessage(topic, "missing", 32, begin, System.currentTimeMillis() + 60_000);
            throw new AssertionError("a key that nobody used gave " + none.getMessageList());
        } catch (MQClientException e) {
            equal(208, e.getResponseCode(), "the client's code for no message: " + e);
        }
        return "10 keys";
    }

    private static String byId(Cluster c) throws Exception {
        String topic = c.topic("view", 2);
        List<SendResult> sent = new ArrayList<>(c.sendMany(topic, "v", 10));
        for (int i = 0; i < 10; i++) {
            SendResult r = sent.get(i);
            MessageExt byOffset = c.producer().viewMessage(r.getOffsetMsgId());
            equal("v-" + i, text(byOffset), "body by offset message id");
            equal(r.getQueueOffset(), byOffset.getQueueOffset(), "queue offset by offset message id");
            MessageExt byUnique = Check.eventually("unique id " + r.getMsgId() + " is found",
                    () -> c.producer().viewMessage(topic, r.getMsgId()));
            equal("v-" + i, text(byUnique), "body by unique id");
        }
        return "10 messages by 2 ids";
    }

    private static String noSuchTopic(Cluster c) throws Exception {
        String topic = c.topicName("nobody");
        try {
            c.api().getTopicRouteInfoFromNameServer(topic, 3000);
            throw new AssertionError("a route for a topic that nobody made");
        } catch (MQClientException e) {
            equal(17, e.getResponseCode(), "code for no route: " + e);
        }
        return "code 17";
    }
}
