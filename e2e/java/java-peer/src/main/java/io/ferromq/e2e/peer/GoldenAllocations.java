package io.ferromq.e2e.peer;

import java.io.BufferedWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * How Java's classes share queues out, for seeded random groups and topics: {@code allocations.txt}.
 *
 * <p>A line {@code =} has topic, brokers ({@code name:queues,...}) and members. Each line after it has a strategy and
 * what each of those members gets: numbers of queues in the sorted list as ranges, {@code |} between members,
 * {@code -} for nothing.
 */
final class GoldenAllocations {
    private static final String[] ROOMS = {"ams", "ber", "cdg", "dub"};

    private GoldenAllocations() {
    }

    static void write(Path dir) throws Exception {
        try (BufferedWriter w = Files.newBufferedWriter(dir.resolve("allocations.txt"), StandardCharsets.UTF_8)) {
            Random random = new Random(407);
            for (int i = 0; i < 600; i++) {
                one(random, w);
            }
        }
    }

    private static void one(Random random, BufferedWriter w) throws Exception {
        String topic = "T" + Integer.toString(random.nextInt(100000), 36);
        Map<String, Integer> brokers = new TreeMap<>();
        for (int n = 1 + random.nextInt(4); n > 0; n--) {
            String name = ROOMS[random.nextInt(ROOMS.length)] + "@broker-" + (char) ('a' + random.nextInt(5));
            brokers.put(name, random.nextInt(random.nextInt(10) == 0 ? 40 : 9));
        }
        List<MessageQueue> queues = new ArrayList<>();
        brokers.forEach((name, count) -> {
            for (int id = 0; id < count; id++) {
                queues.add(new MessageQueue(topic, name, id));
            }
        });
        Collections.sort(queues);
        if (queues.isEmpty()) {
            // The classes refuse an empty list.
            return;
        }
        TreeSet<String> names = new TreeSet<>();
        for (int n = 1 + random.nextInt(random.nextInt(8) == 0 ? 30 : 7); n > 0; n--) {
            names.add(ROOMS[random.nextInt(ROOMS.length)] + "@10.0." + random.nextInt(9) + "." + random.nextInt(250)
                    + "@" + random.nextInt(40000));
        }
        List<String> members = new ArrayList<>(names);
        TreeSet<String> rooms = new TreeSet<>();
        for (int n = 1 + random.nextInt(3); n > 0; n--) {
            rooms.add(ROOMS[random.nextInt(ROOMS.length)]);
        }
        AllocateMessageQueueByMachineRoom room = new AllocateMessageQueueByMachineRoom();
        room.setConsumeridcs(rooms);
        AllocateMessageQueueByConfig config = new AllocateMessageQueueByConfig();
        config.setMessageQueueList(queues.subList(0, random.nextInt(queues.size())));
        Map<String, AllocateMessageQueueStrategy> strategies = new TreeMap<>();
        strategies.put("AVG", new AllocateMessageQueueAveragely());
        strategies.put("AVG_BY_CIRCLE", new AllocateMessageQueueAveragelyByCircle());
        strategies.put("CONFIG:" + config.getMessageQueueList().size(), config);
        strategies.put("CONSISTENT_HASH", new AllocateMessageQueueConsistentHash());
        strategies.put("MACHINE_ROOM:" + String.join(",", rooms), room);
        strategies.put("NEARBY_AVG", nearby(new AllocateMessageQueueAveragely()));
        strategies.put("NEARBY_CIRCLE", nearby(new AllocateMessageQueueAveragelyByCircle()));
        String places = brokers.entrySet().stream().map(e -> e.getKey() + ":" + e.getValue())
                .collect(Collectors.joining(","));
        w.write("= " + topic + " " + places + " " + String.join(",", members) + "\n");
        for (Map.Entry<String, AllocateMessageQueueStrategy> entry : strategies.entrySet()) {
            List<String> shares = new ArrayList<>();
            for (String member : members) {
                shares.add(ranges(queues, entry.getValue().allocate("G", member, queues, members)));
            }
            w.write(entry.getKey() + " " + String.join("|", shares) + "\n");
        }
    }

    private static AllocateMessageQueueStrategy nearby(AllocateMessageQueueStrategy inner) {
        return new AllocateMachineRoomNearby(inner, new AllocateMachineRoomNearby.MachineRoomResolver() {
            @Override
            public String brokerDeployIn(MessageQueue queue) {
                return queue.getBrokerName().split("@")[0];
            }

            @Override
            public String consumerDeployIn(String clientId) {
                return clientId.split("@")[0];
            }
        });
    }

    /** The order counts: it is the order in which the class gives them. */
    private static String ranges(List<MessageQueue> all, List<MessageQueue> some) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < some.size();) {
            int from = all.indexOf(some.get(i));
            int to = from;
            i++;
            while (i < some.size() && all.indexOf(some.get(i)) == to + 1) {
                to++;
                i++;
            }
            text.append(text.isEmpty() ? "" : ",").append(from);
            if (to > from) {
                text.append('-').append(to);
            }
        }
        return text.isEmpty() ? "-" : text.toString();
    }
}
