package io.ferromq.e2e.client;

import com.sun.management.OperatingSystemMXBean;
import io.ferromq.e2e.harness.Args;
import io.ferromq.e2e.harness.Json;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

/**
 * Processor time that the official client takes for a message sent and one consumed, to be compared with another
 * client's in the same run.
 *
 * <p>{@code load --namesrv ADDR [--count N] [--size BYTES] [--senders N]}: prints
 * {@code {"client","sent_cpu_us","consumed_cpu_us"}}. A first round of the same size is not counted.
 */
final class Load {
    private Load() {
    }

    static int run(Cluster c, Args args, PrintStream out) throws Exception {
        int count = args.number("count", 50000);
        byte[] body = new byte[args.number("size", 200)];
        int senders = args.number("senders", 8);
        String topic = c.topic("load", 8);
        DefaultMQProducer producer = c.newProducer(c.group("load"));
        producer.start();
        double sent = 0;
        for (int round = 0; round < 2; round++) {
            long before = cpu();
            AtomicInteger left = new AtomicInteger(count);
            Thread[] threads = new Thread[senders];
            for (int i = 0; i < senders; i++) {
                threads[i] = new Thread(() -> {
                    while (left.decrementAndGet() >= 0) {
                        try {
                            producer.send(new Message(topic, body));
                        } catch (Exception e) {
                            throw new IllegalStateException(e);
                        }
                    }
                });
                threads[i].start();
            }
            for (Thread thread : threads) {
                thread.join();
            }
            sent = (cpu() - before) / 1000.0 / count;
        }
        CountDownLatch half = new CountDownLatch(count);
        CountDownLatch all = new CountDownLatch(2 * count);
        DefaultMQPushConsumer consumer = c.push(c.group("load_consumer"));
        consumer.setConsumeThreadMin(20);
        consumer.setConsumeThreadMax(20);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (received, context) -> {
            received.forEach(m -> {
                half.countDown();
                all.countDown();
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        half.await();
        long before = cpu();
        long rest = all.getCount();
        all.await();
        double consumed = (cpu() - before) / 1000.0 / Math.max(rest, 1);
        out.println(Json.text(Json.object("client", "java", "messages", count, "sent_cpu_us", sent, "consumed_cpu_us", consumed)));
        consumer.shutdown();
        producer.shutdown();
        return 0;
    }

    /** Nanoseconds of processor time of this process. */
    private static long cpu() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
