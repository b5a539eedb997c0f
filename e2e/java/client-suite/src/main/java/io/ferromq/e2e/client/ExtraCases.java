package io.ferromq.e2e.client;

import static io.ferromq.e2e.client.Cluster.bytes;
import static io.ferromq.e2e.client.Cluster.text;
import static io.ferromq.e2e.harness.Check.equal;
import static io.ferromq.e2e.harness.Check.that;

import io.ferromq.e2e.harness.Check;
import io.ferromq.e2e.harness.Suite;
import io.ferromq.e2e.harness.Suite.Group;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Transactions, request and reply, SQL filters: run by name or with {@code all}. */
final class ExtraCases {
    private ExtraCases() {
    }

    static void add(Suite suite, Cluster c) {
        suite.add("transaction", Group.EXTRA, () -> transaction(c));
        suite.add("transaction-check", Group.EXTRA, () -> check(c));
        suite.add("request-reply", Group.EXTRA, () -> requestReply(c));
        suite.add("sql-filter", Group.EXTRA, () -> sql(c));
    }

    private static String transaction(Cluster c) throws Exception {
        String topic = c.topic("tx", 2);
        TransactionMQProducer producer = c.own(new TransactionMQProducer(c.group("tx")));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                return (Boolean) arg ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                return LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        for (int i = 0; i < 10; i++) {
            producer.sendMessageInTransaction(new Message(topic, "T", "tk-" + i, bytes("t-" + i)), i % 2 == 0);
        }
        Set<String> got = new TreeSet<>();
        c.readAll(topic, 5).forEach(m -> got.add(text(m)));
        equal(new TreeSet<>(List.of("t-0", "t-2", "t-4", "t-6", "t-8")), got, "committed messages");
        producer.shutdown();
        return "5 of 10 committed";
    }

    /** The broker asks about a message that was left open. Slow: waits for the broker's check. */
    private static String check(Cluster c) throws Exception {
        String topic = c.topic("txcheck", 1);
        Set<String> asked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = c.own(new TransactionMQProducer(c.group("txcheck")));
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                return LocalTransactionState.UNKNOW;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt m) {
                asked.add(text(m));
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        producer.sendMessageInTransaction(new Message(topic, bytes("open")), null);
        equal("open", text(Check.eventually("the broker checks", () -> {
            List<MessageExt> all = asked.isEmpty() ? List.of() : c.readAll(topic, 1);
            return all.isEmpty() ? null : all.get(0);
        })), "body of the checked message");
        producer.shutdown();
        return "checked and committed";
    }

    private static String requestReply(Cluster c) throws Exception {
        String topic = c.topic("request", 1);
        DefaultMQProducer asker = c.newProducer(c.group("asker"));
        asker.start();
        DefaultMQPushConsumer server = c.push(c.group("answerer"));
        server.subscribe(topic, "*");
        server.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            for (MessageExt m : received) {
                try {
                    c.producer().send(MessageUtil.createReplyMessage(m, bytes("re: " + text(m))));
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        server.start();
        Message reply = asker.request(new Message(topic, bytes("ping")), 30_000);
        equal("re: ping", new String(reply.getBody(), java.nio.charset.StandardCharsets.UTF_8), "reply");
        server.shutdown();
        asker.shutdown();
        return "1 reply";
    }

    private static String sql(Cluster c) throws Exception {
        String topic = c.topic("sql", 1);
        for (int i = 0; i < 20; i++) {
            Message m = new Message(topic, i % 2 == 0 ? "even" : "odd", bytes("n-" + i));
            m.putUserProperty("n", String.valueOf(i));
            c.send(m);
        }
        Inbox inbox = new Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group("sql"));
        consumer.subscribe(topic, MessageSelector.bySql("n between 5 and 12 and TAGS = 'even'"));
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            inbox.add(received);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Set<String> wanted = new TreeSet<>(List.of("n-6", "n-8", "n-10", "n-12"));
        inbox.await(wanted);
        inbox.exactly(wanted);
        that(inbox.size() == 4, "nothing else");
        consumer.shutdown();
        return "4 of 20";
    }
}
