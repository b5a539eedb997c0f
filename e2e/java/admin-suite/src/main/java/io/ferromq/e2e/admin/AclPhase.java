package io.ferromq.e2e.admin;

import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Json;
import java.io.PrintStream;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.PlainAccessConfig;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What one account may do, each thing tried once: {@code acl --namesrv ADDR --broker ADDR --access-key K --secret-key S}.
 * Prints one JSON object: what was tried → {@code ok}, {@code refused}, or what else went wrong.
 */
final class AclPhase {
    private interface Attempt {
        Object run() throws Exception;
    }

    private final String namesrv;
    private final String broker;
    private final RPCHook hook;
    private final Map<String, Object> outcomes = new TreeMap<>();
    private int clients;

    private AclPhase(Args args) {
        namesrv = args.need("namesrv");
        broker = args.need("broker");
        String key = args.get("access-key", null);
        hook = key == null ? null : new AclClientRPCHook(new SessionCredentials(key, args.need("secret-key")));
    }

    static int run(Args args, PrintStream out) throws Exception {
        AclPhase phase = new AclPhase(args);
        phase.all();
        out.println(Json.text(phase.outcomes));
        return 0;
    }

    private <T extends ClientConfig> T configure(T client) {
        client.setNamesrvAddr(namesrv);
        client.setInstanceName("acl-" + clients++);
        return client;
    }

    private void attempt(String name, Attempt attempt) {
        try {
            attempt.run();
            outcomes.put(name, "ok");
        } catch (Exception e) {
            outcomes.put(name, refused(e) ? "refused" : String.valueOf(e));
        }
    }

    private static boolean refused(Throwable e) {
        for (Throwable cause = e; cause != null; cause = cause.getCause()) {
            if (cause instanceof MQBrokerException refusal && refusal.getResponseCode() == 1) {
                return true;
            }
            // The administrator's client keeps the text only.
            if (String.valueOf(cause.getMessage()).contains("AclException")) {
                return true;
            }
        }
        return false;
    }

    private void all() throws Exception {
        DefaultMQAdminExt admin = configure(new DefaultMQAdminExt(hook, 10_000));
        admin.start();
        DefaultMQProducer producer = configure(new DefaultMQProducer("acl_producers", hook));
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        DefaultMQPullConsumer consumer = configure(new DefaultMQPullConsumer("acl_consumers", hook));
        consumer.start();
        DefaultMQPullConsumer stranger = configure(new DefaultMQPullConsumer("acl_others", hook));
        stranger.start();
        try {
            for (String topic : List.of("AclOpen", "AclReadOnly", "AclOther")) {
                attempt("create topic " + topic, () -> {
                    TopicConfig config = new TopicConfig(topic, 1, 1, 6);
                    admin.createAndUpdateTopicConfig(broker, config);
                    return null;
                });
            }
            for (String topic : List.of("AclOpen", "AclReadOnly", "AclOther")) {
                MessageQueue queue = new MessageQueue(topic, "broker-a", 0);
                attempt("send to " + topic, () -> producer.send(new Message(topic, "tag", "single".getBytes()), queue));
                attempt("pull from " + topic, () -> pull(consumer, queue));
            }
            MessageQueue open = new MessageQueue("AclOpen", "broker-a", 0);
            attempt("send a batch to AclOpen",
                () -> producer.send(List.of(new Message("AclOpen", "a".getBytes()), new Message("AclOpen", "b".getBytes())), open));
            attempt("send a batch to AclOther", () -> producer.send(
                List.of(new Message("AclOther", "a".getBytes()), new Message("AclOther", "b".getBytes())),
                new MessageQueue("AclOther", "broker-a", 0)));
            attempt("pull as another group", () -> pull(stranger, open));
            attempt("find by unique key", () -> {
                SendResult sent = producer.send(new Message("AclOpen", "tag", "sought".getBytes()), open);
                long end = System.currentTimeMillis() + 20_000;
                while (true) {
                    try {
                        return admin.viewMessage("AclOpen", sent.getMsgId());
                    } catch (Exception e) {
                        // The index is filled behind the answer.
                        if (refused(e) || System.currentTimeMillis() > end) {
                            throw e;
                        }
                        Thread.sleep(50);
                    }
                }
            });
            attempt("read the settings", () -> admin.getBrokerConfig(broker));
            attempt("make an account", () -> {
                PlainAccessConfig config = new PlainAccessConfig();
                config.setAccessKey("made-by-" + (hook == null ? "nobody" : "somebody"));
                config.setSecretKey("12345678");
                admin.createAndUpdatePlainAccessConfig(broker, config);
                return null;
            });
        } finally {
            stranger.shutdown();
            consumer.shutdown();
            producer.shutdown();
            admin.shutdown();
        }
    }

    private static PullResult pull(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        return consumer.pull(queue, "*", 0, 32);
    }
}
